//! The watchdog of the service manager, which restarts a process that hangs.
//!
//! A message means that the event loop of every worker has run since the message before. One hung
//! worker is enough to withhold it, because the clients of that worker get no answer.
//!
//! The threads of the disk are not asked. A slow disk has its own remedies: the other nodes lead
//! meanwhile, and a restart would read the log from the same disk.

use std::rc::Rc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::ServiceManager;

/// Messages per timeout, as `sd_watchdog_enabled(3)` recommends.
const MESSAGES_PER_TIMEOUT: u32 = 2;

/// Asks one worker whether its event loop runs.
pub(crate) struct ProgressProbe(mpsc::Sender<oneshot::Sender<()>>);

/// Answers the probes of one worker.
pub(crate) struct ProgressAnswers(mpsc::Receiver<oneshot::Sender<()>>);

/// A probe, and the end that belongs to the worker.
pub(crate) fn probe() -> (ProgressProbe, ProgressAnswers) {
    // One question is open at a time.
    let (sender, receiver) = mpsc::channel(1);
    (ProgressProbe(sender), ProgressAnswers(receiver))
}

impl ProgressAnswers {
    /// Answers as long as the probe exists. A task of the worker's event loop.
    pub async fn answer(mut self) {
        while let Some(reply) = self.0.recv().await {
            // The asker ends with the node.
            let _ = reply.send(());
        }
    }
}

impl ProgressProbe {
    /// Returns once the event loop of the worker has run, or has ended: the end of a worker stops
    /// the node in another way.
    async fn passed(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.0.send(sender).await.is_ok() {
            let _ = receiver.await;
        }
    }
}

/// Sends the messages of the watchdog, as long as all workers answer. A task of the owning worker's
/// event loop, which therefore needs no probe.
pub(crate) async fn pass_watchdog(manager: Rc<ServiceManager>, workers: Vec<ProgressProbe>) {
    let Some(timeout) = manager.watchdog else { return };
    let mut interval = tokio::time::interval(timeout / MESSAGES_PER_TIMEOUT);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        pass_once(&manager, &workers).await;
    }
}

async fn pass_once(manager: &ServiceManager, workers: &[ProgressProbe]) {
    for worker in workers {
        worker.passed().await;
    }
    manager.send("WATCHDOG=1");
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc as blocking;
    use std::task::{Context, Waker};
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;
    use crate::service_manager::tests::Receiver;

    /// Times that a withheld message is looked for; more than the steps of one round.
    const POLLS: usize = 100;

    fn run<F: Future>(test: F) -> F::Output {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test)
    }

    #[test]
    fn workers_that_answer_let_the_message_pass() {
        let receiver = Receiver::new();
        let manager = receiver.manager(&[]);
        run(async {
            let (probes, answers): (Vec<_>, Vec<_>) = (0..3).map(|_| probe()).unzip();
            for worker in answers {
                tokio::task::spawn_local(worker.answer());
            }
            pass_once(&manager, &probes).await;
            pass_once(&manager, &probes).await;
        });
        assert_eq!(receiver.messages(), ["WATCHDOG=1", "WATCHDOG=1"]);
    }

    /// A worker on a thread of its own, whose event loop a task has blocked.
    #[test]
    fn one_hung_worker_withholds_the_message() {
        let receiver = Receiver::new();
        let manager = receiver.manager(&[]);
        let (healthy, healthy_answers) = probe();
        let (hung, hung_answers) = probe();
        let (blocked, is_blocked) = blocking::channel();
        let (release, released) = blocking::channel::<()>();
        let worker = thread::spawn(move || {
            run(async move {
                let answering = tokio::task::spawn_local(hung_answers.answer());
                blocked.send(()).unwrap();
                released.recv().unwrap();
                answering.await.unwrap();
            });
        });
        is_blocked.recv().unwrap();
        run(async {
            tokio::task::spawn_local(healthy_answers.answer());
            let probes = [healthy, hung];
            let mut round = pin!(pass_once(&manager, &probes));
            for _ in 0..POLLS {
                assert!(round.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                tokio::task::yield_now().await;
            }
            assert!(receiver.messages().is_empty());
            release.send(()).unwrap();
            round.await;
        });
        assert_eq!(receiver.messages(), ["WATCHDOG=1"]);
        worker.join().unwrap();
    }

    #[test]
    fn a_worker_that_has_ended_is_not_waited_for() {
        let receiver = Receiver::new();
        let manager = receiver.manager(&[]);
        let (ended, answers) = probe();
        drop(answers);
        run(pass_once(&manager, &[ended]));
        assert_eq!(receiver.messages(), ["WATCHDOG=1"]);
    }

    #[test]
    fn the_watchdog_beats_only_if_it_is_wanted() {
        let receiver = Receiver::new();
        run(pass_watchdog(receiver.manager(&[]).into(), Vec::new()));
        assert!(receiver.messages().is_empty());
        let manager = receiver.manager(&[("WATCHDOG_USEC", "2000")]);
        run(async {
            tokio::task::spawn_local(pass_watchdog(manager.into(), Vec::new()));
            while receiver.messages().is_empty() {
                tokio::task::yield_now().await;
            }
        });
    }
}
