//! The scripts that a node remembers, so that clients send their digests instead (`EVALSHA`).
//!
//! Owns the bounds: the script that was used least recently leaves. That order is exact, because a
//! script that was loaded just now must be there. The cache is not replicated and
//! is empty after a start; a client whose script is not there sends it again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha1::{Digest, Sha1};
use tidelock_core::limits::{SCRIPTS_CACHED_BYTES_MAX, SCRIPTS_CACHED_MAX};

use crate::hex;

/// The SHA-1 digest of a script, by which clients name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScriptDigest([u8; 20]);

impl ScriptDigest {
    /// The digest of a script.
    pub fn of(source: &[u8]) -> ScriptDigest {
        ScriptDigest(Sha1::digest(source).into())
    }

    /// Parses 40 hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<ScriptDigest> {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let mut digest = [0; 20];
        if text.len() != 2 * digest.len() {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(ScriptDigest(digest))
    }

    /// The digest as 40 hexadecimal digits.
    pub fn text(self) -> String {
        hex::encode(&self.0)
    }
}

/// A cache that all workers of a node share.
#[derive(Debug, Default)]
pub struct ScriptCache(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    scripts: HashMap<ScriptDigest, CachedScript>,
    bytes: usize,
    /// Number of uses so far, which orders them.
    uses: u64,
}

#[derive(Debug)]
struct CachedScript {
    source: Arc<[u8]>,
    last_use: u64,
}

impl ScriptCache {
    /// The script of a digest, which counts as used.
    pub fn get(&self, digest: ScriptDigest) -> Option<Arc<[u8]>> {
        let mut held = self.lock();
        held.uses += 1;
        let last_use = held.uses;
        let cached = held.scripts.get_mut(&digest)?;
        cached.last_use = last_use;
        Some(cached.source.clone())
    }

    /// Whether a script is there, which does not count as a use.
    pub fn contains(&self, digest: ScriptDigest) -> bool {
        self.lock().scripts.contains_key(&digest)
    }

    /// Adds a script, and removes others if there are too many.
    pub fn insert(&self, digest: ScriptDigest, source: Arc<[u8]>) {
        let mut held = self.lock();
        held.uses += 1;
        let (bytes, last_use) = (source.len(), held.uses);
        if let Some(before) = held.scripts.insert(digest, CachedScript { source, last_use }) {
            held.bytes -= before.source.len();
        }
        held.bytes += bytes;
        while held.scripts.len() > SCRIPTS_CACHED_MAX || held.bytes > SCRIPTS_CACHED_BYTES_MAX {
            held.remove_oldest();
        }
    }

    /// Removes all scripts.
    pub fn clear(&self) {
        let mut held = self.lock();
        held.scripts.clear();
        held.bytes = 0;
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Looks at all scripts: their number is small, and few applications send new ones forever.
    fn remove_oldest(&mut self) {
        let oldest = self.scripts.iter().min_by_key(|(_, cached)| cached.last_use).map(|(digest, _)| *digest);
        let removed = oldest.and_then(|digest| self.scripts.remove(&digest));
        self.bytes -= removed.map_or(0, |cached| cached.source.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> (ScriptDigest, Arc<[u8]>) {
        (ScriptDigest::of(text.as_bytes()), text.as_bytes().into())
    }

    #[test]
    fn digests_are_hexadecimal_texts_of_sha_1() {
        let digest = ScriptDigest::of(b"return 1");
        assert_eq!(digest.text(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(ScriptDigest::parse(digest.text().to_uppercase().as_bytes()), Some(digest));
        for wrong in ["", "e0", "e0e1f9fabfc9d4800c877a703b823ac0578ff8dx"] {
            assert_eq!(ScriptDigest::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_script_that_was_used_least_recently_leaves() {
        let cache = ScriptCache::default();
        let all: Vec<_> = (0..SCRIPTS_CACHED_MAX).map(|number| script(&format!("return {number}"))).collect();
        all.iter().for_each(|(digest, source)| cache.insert(*digest, source.clone()));
        assert_eq!(cache.get(all[0].0), Some(all[0].1.clone()));
        let (digest, source) = script("return 'one more'");
        cache.insert(digest, source);
        assert!(cache.contains(all[0].0) && cache.contains(digest) && !cache.contains(all[1].0));
        assert_eq!(cache.get(all[1].0), None);
        cache.clear();
        assert!(!cache.contains(digest));
    }

    #[test]
    fn the_bytes_of_scripts_are_bounded() {
        let cache = ScriptCache::default();
        let text = |number: usize| format!("return {number}{}", " ".repeat(SCRIPTS_CACHED_BYTES_MAX / 3));
        let all: Vec<_> = (0..3).map(|number| script(&text(number))).collect();
        all.iter().for_each(|(digest, source)| cache.insert(*digest, source.clone()));
        let held = all.iter().filter(|(digest, _)| cache.contains(*digest)).count();
        assert_eq!(held, 2);
        // A repeated insertion counts its bytes once.
        (0..5).for_each(|_| cache.insert(all[2].0, all[2].1.clone()));
        assert!(cache.contains(all[1].0) && cache.contains(all[2].0));
    }
}
