//! Handshakes that are unfinished: a bounded number, of which the oldest gives way.
//!
//! To begin a handshake costs almost nothing, so callers that finish none could take every place.
//! If the newest were refused then, nobody else would be served. The oldest has had its chance,
//! because a handshake takes milliseconds.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The unfinished handshakes of a listener, on all workers.
#[derive(Debug)]
pub(crate) struct Unfinished {
    max: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    /// Number of the next handshake; they are numbered in their order.
    next: u64,
    /// Dropping a sender ends the handshake.
    taken: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one handshake, until it is dropped.
struct Place<'a> {
    unfinished: &'a Unfinished,
    number: u64,
    /// Completes when a newer handshake takes the place.
    lost: oneshot::Receiver<()>,
}

impl Unfinished {
    /// At most `max` handshakes, at least one.
    pub fn new(max: usize) -> Unfinished {
        Unfinished { max, places: Mutex::default() }
    }

    /// Runs a handshake; `None` if so many newer ones began that it had to give way.
    pub async fn run<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let mut place = self.take();
        tokio::select! {
            biased;
            done = handshake => Some(done),
            _ = &mut place.lost => None,
        }
    }

    fn take(&self) -> Place<'_> {
        let (sender, lost) = oneshot::channel();
        let mut places = self.places();
        if places.taken.len() == self.max {
            places.taken.pop_first();
        }
        let number = places.next;
        places.next += 1;
        places.taken.insert(number, sender);
        Place { unfinished: self, number, lost }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.unfinished.places().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDSHAKES_MAX: usize = 16;

    #[test]
    fn the_oldest_gives_way() {
        let unfinished = Unfinished::new(HANDSHAKES_MAX);
        let mut places: Vec<Place<'_>> = (0..HANDSHAKES_MAX).map(|_| unfinished.take()).collect();
        let has_lost =
            |place: &mut Place<'_>| place.lost.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        assert!(!places.iter_mut().any(has_lost));
        places.remove(7);
        let free = unfinished.take();
        assert!(!places.iter_mut().any(has_lost), "one place was free");
        let newest = unfinished.take();
        let lost: Vec<u64> =
            places.iter_mut().filter_map(|place| has_lost(place).then_some(place.number)).collect();
        assert_eq!(lost, [0]);
        drop((places, free, newest));
        assert!(unfinished.places().taken.is_empty());
    }
}
