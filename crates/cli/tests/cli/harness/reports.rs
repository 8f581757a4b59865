//! A channel from a thread of a test, which knows whether the test still receives.
//!
//! A sender of the standard library learns that only when it sends. A thread that cannot reach a
//! node has nothing to send, and would go on trying after the end of its test.

use std::ops::Deref;
use std::sync::mpsc::{self, SendError};
use std::sync::{Arc, Weak};

/// The end of the thread.
pub struct Reporter<T> {
    sender: mpsc::Sender<T>,
    receiver: Weak<()>,
}

/// The end of the test.
pub struct Reports<T> {
    receiver: mpsc::Receiver<T>,
    /// Dropped with the receiver.
    _exists: Arc<()>,
}

/// Both ends of a channel.
pub fn reports<T>() -> (Reporter<T>, Reports<T>) {
    let (sender, receiver) = mpsc::channel();
    let exists = Arc::new(());
    (Reporter { sender, receiver: Arc::downgrade(&exists) }, Reports { receiver, _exists: exists })
}

impl<T> Reporter<T> {
    pub fn send(&self, report: T) -> Result<(), SendError<T>> {
        self.sender.send(report)
    }

    /// Whether anybody receives what is sent.
    pub fn is_received(&self) -> bool {
        self.receiver.strong_count() > 0
    }
}

impl<T> Deref for Reports<T> {
    type Target = mpsc::Receiver<T>;

    fn deref(&self) -> &mpsc::Receiver<T> {
        &self.receiver
    }
}
