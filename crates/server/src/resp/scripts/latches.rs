//! Latches: scripts whose keys conflict run one after another.
//!
//! What a script writes depends on the condition that its keys are unchanged, so of scripts that
//! run at the same time on one key, one takes effect and the others run again. Once a script has
//! met a conflict, the scripts of its worker on keys of its slot wait for the latch of the slot.
//! Latches only save repeated runs: without them the same scripts take effect.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// Longest time that a script waits for a latch. After that it runs without one: the script that
/// holds the latch may be waiting for a shard without a leader.
const WAIT: Duration = Duration::from_secs(1);

/// The latches of one worker, by slot. There is one while a script holds it or waits for it.
#[derive(Clone, Debug, Default)]
pub struct ScriptLatches(Rc<RefCell<HashMap<u16, Arc<Mutex<()>>>>>);

/// A latch that a script holds, released when dropped, or for which it has waited in vain.
#[derive(Debug)]
pub struct ScriptLatch {
    latches: ScriptLatches,
    slot: u16,
    latch: Option<Arc<Mutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl ScriptLatches {
    /// Waits for the latch of a slot if scripts use it already.
    pub async fn join(&self, slot: u16) -> Option<ScriptLatch> {
        let latch = self.0.borrow().get(&slot).cloned()?;
        Some(self.wait(slot, latch, WAIT).await)
    }

    /// Waits for the latch of a slot after a conflict. Scripts that come later wait as well.
    pub async fn begin(&self, slot: u16) -> ScriptLatch {
        let latch = self.0.borrow_mut().entry(slot).or_default().clone();
        self.wait(slot, latch, WAIT).await
    }

    async fn wait(&self, slot: u16, latch: Arc<Mutex<()>>, time: Duration) -> ScriptLatch {
        let mut held = ScriptLatch { latches: self.clone(), slot, latch: Some(latch.clone()), guard: None };
        held.guard = timeout(time, latch.lock_owned()).await.ok();
        held
    }
}

impl Drop for ScriptLatch {
    fn drop(&mut self) {
        (self.guard, self.latch) = (None, None);
        let mut table = self.latches.0.borrow_mut();
        // The table has the last reference: no script holds the latch or waits for it.
        if table.get(&self.slot).is_some_and(|latch| Arc::strong_count(latch) == 1) {
            table.remove(&self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_wait_for_each_other_after_a_conflict() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let latches = ScriptLatches::default();
            assert!(latches.join(7).await.is_none(), "there was no conflict");
            let first = latches.begin(7).await;
            assert!(latches.join(8).await.is_none(), "another slot");
            let (order, other) = (Rc::new(RefCell::new(Vec::new())), latches.clone());
            let done = order.clone();
            let second = async move {
                let held = other.join(7).await;
                assert!(held.is_some_and(|held| held.guard.is_some()));
                done.borrow_mut().push("second");
            };
            let release = async {
                tokio::task::yield_now().await;
                order.borrow_mut().push("first");
                drop(first);
            };
            tokio::join!(second, release);
            assert_eq!(*order.borrow(), ["first", "second"]);
            assert!(latches.0.borrow().is_empty(), "the latch is gone");
        });
    }

    #[test]
    fn a_script_does_not_wait_forever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let latches = ScriptLatches::default();
            let _first = latches.begin(7).await;
            let latch = latches.0.borrow().get(&7).cloned().expect("a latch");
            let second = latches.wait(7, latch, Duration::ZERO).await;
            assert!(second.guard.is_none());
        });
    }
}
