//! Turns of scripts whose keys conflict.
//!
//! Each script is written on the condition that its keys are unchanged, so of scripts that run at
//! the same time on one key, one takes effect and the others run again. Once a script has met a
//! conflict, the scripts of its worker on keys of its slot wait for each other. This is about speed
//! alone: without any turn the same scripts take effect, after more runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// How long a script waits for its turn. After that it runs without: the one before it may wait for
/// a leader.
const WAIT: Duration = Duration::from_secs(1);

/// The queues of one worker, by slot. There is one while a script has a turn, or waits for it.
#[derive(Clone, Debug, Default)]
pub struct ScriptTurns(Rc<RefCell<HashMap<u16, Arc<Mutex<()>>>>>);

/// A script's turn. The next one begins when it is dropped.
#[derive(Debug)]
pub struct ScriptTurn {
    turns: ScriptTurns,
    slot: u16,
    queue: Option<Arc<Mutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl ScriptTurns {
    /// Waits for a turn if scripts of this slot take turns already.
    pub async fn join(&self, slot: u16) -> Option<ScriptTurn> {
        let queue = self.0.borrow().get(&slot).cloned()?;
        Some(self.wait(slot, queue, WAIT).await)
    }

    /// Waits for a turn after a conflict. Scripts that come later wait as well.
    pub async fn begin(&self, slot: u16) -> ScriptTurn {
        let queue = self.0.borrow_mut().entry(slot).or_default().clone();
        self.wait(slot, queue, WAIT).await
    }

    async fn wait(&self, slot: u16, queue: Arc<Mutex<()>>, time: Duration) -> ScriptTurn {
        let mut turn = ScriptTurn { turns: self.clone(), slot, queue: Some(queue.clone()), guard: None };
        turn.guard = timeout(time, queue.lock_owned()).await.ok();
        turn
    }
}

impl Drop for ScriptTurn {
    fn drop(&mut self) {
        (self.guard, self.queue) = (None, None);
        let mut queues = self.turns.0.borrow_mut();
        // The table holds the last reference: nobody has a turn, and nobody waits.
        if queues.get(&self.slot).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.slot);
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
            let turns = ScriptTurns::default();
            assert!(turns.join(7).await.is_none(), "there was no conflict");
            let first = turns.begin(7).await;
            assert!(turns.join(8).await.is_none(), "another slot");
            let (order, other) = (Rc::new(RefCell::new(Vec::new())), turns.clone());
            let done = order.clone();
            let second = async move {
                let turn = other.join(7).await;
                assert!(turn.is_some_and(|turn| turn.guard.is_some()));
                done.borrow_mut().push("second");
            };
            let release = async {
                tokio::task::yield_now().await;
                order.borrow_mut().push("first");
                drop(first);
            };
            tokio::join!(second, release);
            assert_eq!(*order.borrow(), ["first", "second"]);
            assert!(turns.0.borrow().is_empty(), "the queue is gone");
        });
    }

    #[test]
    fn a_script_does_not_wait_forever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let turns = ScriptTurns::default();
            let _first = turns.begin(7).await;
            let queue = turns.0.borrow().get(&7).cloned().expect("a queue");
            let second = turns.wait(7, queue, Duration::ZERO).await;
            assert!(second.guard.is_none());
        });
    }
}
