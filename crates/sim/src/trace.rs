//! The trace of a run: always a rolling hash, and text on demand.
//!
//! Two runs of one seed must give the same hash; a difference reveals hidden randomness in the core
//! or in the simulator. Formatting text costs more than simulating, so a failed run is repeated
//! with [`Detail::Tail`].

use std::collections::VecDeque;

use crate::event_queue::Micros;

/// How much of a trace is kept as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// No text. The hash alone tells whether two runs were equal.
    Hash,
    /// At most this many lines, the latest.
    Tail(usize),
    /// Every line, to standard error as it happens, so that it survives an abort.
    Print,
}

/// The trace of a run: a hash of its events, and some of them as text.
#[derive(Debug)]
pub struct Trace {
    detail: Detail,
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
}

impl Trace {
    /// Creates a trace without events.
    pub fn new(detail: Detail) -> Trace {
        Trace { detail, hash: FNV_OFFSET, events: 0, lines: VecDeque::new() }
    }

    /// Records an event: `facts` go into the hash, and `text` is called only if lines are kept.
    pub fn note(&mut self, now: Micros, facts: &[u64], text: impl FnOnce() -> String) {
        self.events += 1;
        self.hash = mix(self.hash, now.0);
        for &fact in facts {
            self.hash = mix(self.hash, fact);
        }
        match self.detail {
            Detail::Hash => {}
            Detail::Print => eprintln!("{now} {}", text()),
            Detail::Tail(limit) => {
                if self.lines.len() >= limit {
                    self.lines.pop_front();
                }
                self.lines.push_back(format!("{now} {}", text()));
            }
        }
    }

    /// The hash of all events so far, in order.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of recorded events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The lines kept, oldest first.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Folds one number into a hash. Whole words at a time with a rotation: the trace needs to be
/// sensitive and fast, not compatible with anything.
fn mix(hash: u64, fact: u64) -> u64 {
    (hash ^ fact).wrapping_mul(FNV_PRIME).rotate_left(23)
}

/// A hash of bytes for the facts of a trace.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = mix(FNV_OFFSET, bytes.len() as u64);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        hash = mix(hash, u64::from_le_bytes(word.try_into().expect("invariant: chunks are eight bytes")));
    }
    for &byte in words.remainder() {
        hash = mix(hash, u64::from(byte));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_facts_and_their_order() {
        let hash = |facts: &[&[u64]]| {
            let mut trace = Trace::new(Detail::Hash);
            facts.iter().for_each(|facts| trace.note(Micros(1), facts, String::new));
            trace.hash()
        };
        assert_eq!(hash(&[&[1, 2], &[3]]), hash(&[&[1, 2], &[3]]));
        assert_ne!(hash(&[&[1, 2], &[3]]), hash(&[&[1, 2], &[4]]));
        assert_ne!(hash(&[&[1], &[2]]), hash(&[&[2], &[1]]));
        assert_ne!(digest(b"abc"), digest(b"abd"));
        assert_ne!(digest(b"12345678"), digest(b"12345679"));
    }

    #[test]
    fn the_tail_is_bounded() {
        let mut trace = Trace::new(Detail::Tail(2));
        for n in 0..5 {
            trace.note(Micros(n), &[n], || format!("event {n}"));
        }
        assert_eq!(trace.events(), 5);
        assert_eq!(trace.into_lines(), ["0.000003s event 3", "0.000004s event 4"]);
    }
}
