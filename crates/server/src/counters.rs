//! Counters that one worker raises and any thread may read.
//!
//! Owns how counters cross threads, not what they count. Each has one writer, so raising one is a
//! plain load and store, never a locked instruction. A reader sees a value that is or was current.
//! Workers do not share counters: each has its own, and a scrape adds them up.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A total that one thread raises and others may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Raises the total. Call it on one thread only.
    pub fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    /// Sets the value of a gauge. Call it on that same thread only.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value. Its thread may be changing it.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one worker, and those of all workers for summing.
#[derive(Debug)]
pub struct PerWorker<T> {
    own: Arc<T>,
    all: Arc<[Arc<T>]>,
}

impl<T: Default> PerWorker<T> {
    /// One for each of `workers` workers, at least one.
    pub fn of(workers: usize) -> Vec<PerWorker<T>> {
        let all: Arc<[Arc<T>]> = (0..workers.max(1)).map(|_| Arc::default()).collect();
        all.iter().map(|own| PerWorker { own: own.clone(), all: all.clone() }).collect()
    }

    /// The sums over all workers of the counters that `list` returns, in the same order for each.
    pub fn totals(&self, list: impl Fn(&T) -> Vec<&Counter>) -> T {
        let totals = T::default();
        for worker in self.all() {
            list(&totals).iter().zip(list(worker)).for_each(|(total, count)| total.add(count.get()));
        }
        totals
    }
}

impl<T> PerWorker<T> {
    /// The counters of all workers, in the same order for each.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.all.iter().map(Deref::deref)
    }

    /// The sum of a counter over all workers.
    pub fn sum(&self, of_one: impl Fn(&T) -> u64) -> u64 {
        self.all().map(of_one).sum()
    }
}

impl<T: Default> Default for PerWorker<T> {
    fn default() -> Self {
        PerWorker::of(1).pop().expect("invariant: there is at least one")
    }
}

impl<T> Clone for PerWorker<T> {
    fn clone(&self) -> Self {
        PerWorker { own: self.own.clone(), all: self.all.clone() }
    }
}

impl<T> Deref for PerWorker<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_raises_its_own_and_all_are_added_up() {
        let workers: Vec<PerWorker<Counter>> = PerWorker::of(3);
        std::thread::scope(|scope| {
            for (worker, count) in workers.iter().zip(1..) {
                scope.spawn(move || (0..1_000).for_each(|_| worker.add(count)));
            }
        });
        assert_eq!(workers.iter().map(|worker| worker.get()).collect::<Vec<_>>(), [1_000, 2_000, 3_000]);
        assert!(workers.iter().all(|worker| worker.sum(Counter::get) == 6_000));
        assert_eq!(PerWorker::<Counter>::default().all().count(), 1);
    }
}
