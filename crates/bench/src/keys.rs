//! The keys of a run, and the choice of the next one.
//!
//! A key is a prefix and its index in decimal, padded with zeros to one length, so that byte order
//! is the order of indexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};
use tidelock_client::CliError;

use crate::args::{Distribution, MixArgs};

/// All keys of a run.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    prefix: Vec<u8>,
    digits: usize,
    count: u64,
    /// The position of connections that take keys in sequence; they share it, so that together they
    /// miss none.
    cursor: Arc<AtomicU64>,
}

impl KeySpace {
    pub fn new(args: &MixArgs) -> Result<KeySpace, CliError> {
        let count = if args.distribution == Distribution::One { 1 } else { args.keys };
        let needed = (count - 1).checked_ilog10().unwrap_or(0) as usize + 1;
        let size = args.key_size as usize;
        let prefix = args.key_prefix.as_bytes().to_vec();
        match size.checked_sub(prefix.len()) {
            Some(digits) if digits >= needed => {
                Ok(KeySpace { prefix, digits, count, cursor: Arc::default() })
            }
            _ => Err(CliError::Usage(format!(
                "{count} keys that begin with {:?} do not fit into --key-size {size}; at least {} bytes are needed",
                args.key_prefix,
                args.key_prefix.len() + needed
            ))),
        }
    }

    /// Number of keys, at least one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Length of every key in bytes.
    pub fn key_bytes(&self) -> usize {
        self.prefix.len() + self.digits
    }

    /// Appends the key of `index`.
    pub fn push(&self, index: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        let start = out.len();
        out.resize(start + self.digits, b'0');
        let mut rest = index;
        for digit in out[start..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// The same keys, with a new sequence.
    pub fn starting_over(&self) -> KeySpace {
        KeySpace { cursor: Arc::default(), ..self.clone() }
    }

    /// The key of `index`.
    #[cfg(test)]
    pub fn key(&self, index: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.key_bytes());
        self.push(index, &mut key);
        key
    }
}

/// Draws keys, and chooses between reads and writes, for one connection.
#[derive(Debug)]
pub(crate) struct Chooser {
    rng: SmallRng,
    law: Law,
    keys: u64,
    reads_of_ten_thousand: u32,
}

#[derive(Debug)]
enum Law {
    One,
    Uniform,
    Zipf(Zipf<f64>),
    Sequential(Arc<AtomicU64>),
}

impl Chooser {
    /// `index` is that of the connection.
    pub fn new(args: &MixArgs, keys: &KeySpace, seed: u64, index: u64) -> Result<Chooser, CliError> {
        let law = match args.distribution {
            Distribution::One => Law::One,
            Distribution::Uniform => Law::Uniform,
            Distribution::Zipf => Law::Zipf(
                Zipf::new(keys.count() as f64, args.zipf_exponent)
                    .map_err(|error| CliError::Usage(format!("--zipf-exponent: {error}")))?,
            ),
            Distribution::Sequential => Law::Sequential(Arc::clone(&keys.cursor)),
        };
        // Connections must not all draw the same keys in the same order.
        let rng = SmallRng::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Ok(Chooser {
            rng,
            law,
            keys: keys.count(),
            reads_of_ten_thousand: (args.reads * 100.0).round() as u32,
        })
    }

    /// The index of the next key.
    pub fn key(&mut self) -> u64 {
        match &mut self.law {
            Law::One => 0,
            Law::Uniform => self.rng.random_range(0..self.keys),
            // Ranks count from 1, the most frequent one. Shards are chosen by hash, so hot keys are
            // spread anyway.
            Law::Zipf(zipf) => (zipf.sample(&mut self.rng) as u64).clamp(1, self.keys) - 1,
            Law::Sequential(cursor) => cursor.fetch_add(1, Ordering::Relaxed) % self.keys,
        }
    }

    /// Whether the next request reads.
    pub fn reads(&mut self) -> bool {
        match self.reads_of_ten_thousand {
            0 => false,
            10_000.. => true,
            share => self.rng.random_range(0..10_000) < share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::mix;

    fn draw(line: &str, times: usize) -> Vec<u64> {
        let args = mix(line);
        let keys = KeySpace::new(&args).unwrap();
        let mut chooser = Chooser::new(&args, &keys, 7, 0).unwrap();
        (0..times).map(|_| chooser.key()).collect()
    }

    #[test]
    fn keys_have_one_length_and_the_order_of_their_indexes() {
        let keys = KeySpace::new(&mix("--keys 1000 --key-size 10 --key-prefix k:")).unwrap();
        assert_eq!(keys.key(0), b"k:00000000");
        assert_eq!(keys.key(999), b"k:00000999");
        assert!(keys.key(9) < keys.key(10));
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        assert!(KeySpace::new(&mix("--keys 1000 --key-size 5 --key-prefix k:")).is_ok());
        assert!(KeySpace::new(&mix("--keys 1001 --key-size 5 --key-prefix k:")).is_err());
        assert!(KeySpace::new(&mix("--keys 1 --key-size 2 --key-prefix k:")).is_err());
    }

    #[test]
    fn every_law_stays_within_the_keys() {
        for law in ["uniform", "zipf", "sequential"] {
            let drawn = draw(&format!("--keys 100 --distribution {law}"), 10_000);
            assert!(drawn.iter().all(|&key| key < 100), "{law}");
            assert!(drawn.contains(&0) && drawn.contains(&99), "{law}");
        }
        assert!(draw("--keys 100 --distribution one", 100).iter().all(|&key| key == 0));
        assert_eq!(draw("--keys 3 --distribution sequential", 5), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn zipf_is_uneven_and_uniform_is_not() {
        let first = |law: &str| {
            draw(&format!("--keys 1000 --distribution {law}"), 10_000).iter().filter(|&&key| key == 0).count()
        };
        assert!(first("zipf") > 1_000);
        assert!(first("uniform") < 50);
    }

    #[test]
    fn those_who_go_in_sequence_share_it() {
        let args = mix("--keys 4 --distribution sequential");
        let keys = KeySpace::new(&args).unwrap();
        let mut choosers = [0, 1].map(|index| Chooser::new(&args, &keys, 1, index).unwrap());
        let drawn: Vec<_> = [0, 0, 1, 0, 1].map(|one: usize| choosers[one].key()).into();
        assert_eq!(drawn, [0, 1, 2, 3, 0]);
        let mut anew = Chooser::new(&args, &keys.starting_over(), 1, 0).unwrap();
        assert_eq!((anew.key(), choosers[0].key()), (0, 1));
    }

    #[test]
    fn the_mix_is_what_was_asked_for() {
        for (percent, least, most) in [("0", 0, 0), ("100", 10_000, 10_000), ("25", 2_300, 2_700)] {
            let args = mix(&format!("--reads {percent}"));
            let keys = KeySpace::new(&args).unwrap();
            let mut chooser = Chooser::new(&args, &keys, 3, 0).unwrap();
            let reads = (0..10_000).filter(|_| chooser.reads()).count();
            assert!((least..=most).contains(&reads), "{percent}: {reads}");
        }
    }
}
