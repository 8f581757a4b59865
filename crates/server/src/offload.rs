//! A thread for work that would block a worker: parsing, comparing and encoding large documents.
//!
//! A worker drives shards, heartbeats and all other clients between two requests, so it must not
//! run anything that takes more than a few milliseconds. Such work runs on this thread, and the
//! worker continues meanwhile. There is one thread: a client that keeps sending large documents
//! takes at most one core, and delays only other large documents.
//!
//! The thread starts with the first job and ends when the last handle is dropped.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::sync::oneshot;

/// Longest document in bytes that the worker processes itself: under 2 ms in the slowest format,
/// less than the worker spends on a full batch of requests. Most configuration is shorter.
pub const INLINE_BYTES_MAX: usize = 8 << 10;

/// Most documents that wait for the thread. Each holds a body of up to 8 MiB, and the last of them
/// waits a few seconds, which is as long as clients wait for an answer.
pub const QUEUE_JOBS_MAX: usize = 8;

const THREAD_NAME: &str = "documents";

type Job = Box<dyn FnOnce() + Send>;

/// The queue is full, or the thread could not be started. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many large documents are being worked on; nothing was done")]
pub struct Busy;

/// A handle to the thread. Clones share it.
#[derive(Clone, Default)]
pub struct Offload {
    queue: Arc<OnceLock<Option<SyncSender<Job>>>>,
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offload").finish_non_exhaustive()
    }
}

impl Offload {
    /// Runs `work` on a document of `bytes` bytes: here if it is short, else on the thread. Skips
    /// work whose future was dropped before its turn, because the client is gone.
    ///
    /// # Errors
    /// When [`QUEUE_JOBS_MAX`] jobs wait already, or the thread could not be started.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        if bytes <= INLINE_BYTES_MAX {
            return Ok(work());
        }
        let (done, answer) = oneshot::channel();
        let job = move || {
            if !done.is_closed() {
                // Fails if the client is gone.
                let _ = done.send(work());
            }
        };
        let queue = self.queue.get_or_init(start).as_ref().ok_or(Busy)?;
        queue.try_send(Box::new(job)).map_err(|_| Busy)?;
        answer.await.map_err(|_| Busy)
    }
}

fn start() -> Option<SyncSender<Job>> {
    let started = || -> io::Result<SyncSender<Job>> {
        let (queue, jobs) = mpsc::sync_channel::<Job>(QUEUE_JOBS_MAX);
        thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(move || jobs.into_iter().for_each(|job| job()))?;
        Ok(queue)
    };
    started()
        .inspect_err(|error| {
            tracing::error!(
                %error,
                "the thread for large documents cannot be started; requests with documents of more than \
                 {INLINE_BYTES_MAX} bytes are refused until the node is restarted"
            );
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::LocalSet;

    use super::*;

    const LARGE: usize = INLINE_BYTES_MAX + 1;

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, future)
    }

    fn thread_name() -> Option<String> {
        thread::current().name().map(str::to_owned)
    }

    #[test]
    fn large_work_is_done_by_another_thread() {
        block_on(async {
            let offload = Offload::default();
            assert_eq!(offload.run(INLINE_BYTES_MAX, thread_name).await, Ok(thread_name()));
            assert_eq!(offload.run(LARGE, thread_name).await, Ok(Some(THREAD_NAME.to_owned())));
        });
    }

    #[test]
    fn a_full_queue_refuses_and_the_worker_goes_on() {
        block_on(async {
            let offload = Offload::default();
            let (release, released) = mpsc::channel::<()>();
            let (began, has_begun) = oneshot::channel();
            let handle = offload.clone();
            let first = tokio::task::spawn_local(async move {
                let work = move || {
                    began.send(()).ok();
                    released.recv().ok();
                };
                handle.run(LARGE, work).await
            });
            has_begun.await.expect("the thread has the first");
            let waiting: Vec<_> = (0..QUEUE_JOBS_MAX)
                .map(|number| {
                    let handle = offload.clone();
                    tokio::task::spawn_local(async move { handle.run(LARGE, move || number).await })
                })
                .collect();
            // This task yields, so that the others join the queue. It is resumed, so the thread
            // blocks no other task.
            tokio::task::yield_now().await;
            assert_eq!(offload.run(LARGE, || ()).await, Err(Busy));
            assert_eq!(offload.run(1, || "short").await, Ok("short"));
            release.send(()).expect("it waits");
            assert_eq!(first.await.expect("a task"), Ok(()));
            for (number, task) in waiting.into_iter().enumerate() {
                assert_eq!(task.await.expect("a task"), Ok(number));
            }
            assert_eq!(offload.run(LARGE, || ()).await, Ok(()), "there is room again");
        });
    }

    #[test]
    fn work_of_a_client_who_left_is_not_done() {
        block_on(async {
            let offload = Offload::default();
            let done = Arc::new(AtomicUsize::new(0));
            let (release, released) = mpsc::channel::<()>();
            let (handle, counted) = (offload.clone(), done.clone());
            let first = tokio::task::spawn_local(async move {
                handle
                    .run(LARGE, move || released.recv().map(|()| counted.fetch_add(1, Ordering::Relaxed)))
                    .await
            });
            let (handle, counted) = (offload.clone(), done.clone());
            let left = tokio::task::spawn_local(async move {
                handle.run(LARGE, move || counted.fetch_add(10, Ordering::Relaxed)).await
            });
            tokio::task::yield_now().await;
            left.abort();
            assert!(left.await.is_err(), "it is gone");
            release.send(()).expect("it waits");
            first.await.expect("a task").expect("room").expect("a count");
            offload.run(LARGE, || ()).await.expect("room");
            assert_eq!(done.load(Ordering::Relaxed), 1);
        });
    }
}
