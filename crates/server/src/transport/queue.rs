//! The bounded queue of frames to one peer.
//!
//! Owns order and accounting; owns no socket and no task. There are two limits for two kinds of
//! frames. Raft repeats its messages, so dropping them is the right response to a slow peer.
//! Forwarded commands and their replies are sent once: a queue that cannot hold them ends the link.
//! The core then answers each request on it with what is known of its outcome.
//!
//! Invariant: bytes count from [`OutgoingQueue::offer`] until they were written, not until they
//! were taken, so the limits bound the memory of the whole link.

use bytes::Bytes;

use super::frame::FRAME_HEADER_BYTES;

/// Default of [`QueueLimits::droppable_bytes_max`]: what a 1 Gbit/s link carries in a quarter of a
/// second. Older Raft messages are better sent anew.
pub const DROPPABLE_BYTES_MAX: usize = 32 << 20;

/// Default of [`QueueLimits::bytes_max`]: room for the droppable frames, for all commands that the
/// core forwards to one peer, and as much again for replies to the peer's commands.
pub const QUEUE_BYTES_MAX: usize = 128 << 20;

/// Limits of the queue towards one peer, in bytes of frames including their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// A droppable frame that would exceed this is dropped.
    pub droppable_bytes_max: usize,
    /// Any other frame that would exceed this ends the link. At least `droppable_bytes_max`.
    pub bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits { droppable_bytes_max: DROPPABLE_BYTES_MAX, bytes_max: QUEUE_BYTES_MAX }
    }
}

/// The result of offering a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueResult {
    /// It will be written, unless the link ends first.
    Queued,
    /// There was no room and the frame may be dropped.
    Dropped,
    /// There was no room and the frame may not be dropped.
    Overflow,
}

/// Frames to one peer, first in, first out.
#[derive(Debug)]
pub struct OutgoingQueue {
    limits: QueueLimits,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    writing_frames: usize,
    writing_bytes: usize,
}

impl OutgoingQueue {
    /// Creates an empty queue with these limits.
    pub fn new(limits: QueueLimits) -> Self {
        assert!(
            limits.droppable_bytes_max <= limits.bytes_max,
            "invariant: the hard limit is the higher one"
        );
        OutgoingQueue { limits, waiting: vec![], waiting_bytes: 0, writing_frames: 0, writing_bytes: 0 }
    }

    /// Appends `payload` if there is room. An empty queue accepts any frame, so that a frame larger
    /// than a limit is slow rather than impossible.
    pub fn offer(&mut self, payload: Bytes, droppable: bool) -> EnqueueResult {
        let held = self.waiting_bytes + self.writing_bytes;
        let bytes = FRAME_HEADER_BYTES + payload.len();
        let limit = if droppable { self.limits.droppable_bytes_max } else { self.limits.bytes_max };
        if held > 0 && held + bytes > limit {
            return if droppable { EnqueueResult::Dropped } else { EnqueueResult::Overflow };
        }
        self.waiting.push(payload);
        self.waiting_bytes += bytes;
        EnqueueResult::Queued
    }

    /// Takes all waiting frames. They still count until [`OutgoingQueue::written`] is called.
    pub fn take(&mut self) -> Vec<Bytes> {
        assert_eq!(self.writing_frames, 0, "invariant: one batch is written at a time");
        self.writing_frames = self.waiting.len();
        self.writing_bytes = std::mem::take(&mut self.waiting_bytes);
        std::mem::take(&mut self.waiting)
    }

    /// Records that the last batch was passed to the kernel; returns its frames and bytes.
    pub fn written(&mut self) -> (usize, usize) {
        (std::mem::take(&mut self.writing_frames), std::mem::take(&mut self.writing_bytes))
    }

    /// Drops everything; returns how many frames are not known to have been written.
    pub fn clear(&mut self) -> usize {
        let (writing, _) = self.written();
        self.waiting_bytes = 0;
        writing + std::mem::take(&mut self.waiting).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(length: usize) -> Bytes {
        Bytes::from(vec![1; length])
    }

    fn queue() -> OutgoingQueue {
        OutgoingQueue::new(QueueLimits { droppable_bytes_max: 100, bytes_max: 200 })
    }

    #[test]
    fn each_kind_of_frame_has_its_limit() {
        let mut queue = queue();
        assert_eq!(queue.offer(payload(92), true), EnqueueResult::Queued);
        assert_eq!(queue.offer(payload(1), true), EnqueueResult::Dropped);
        assert_eq!(queue.offer(payload(92), false), EnqueueResult::Queued);
        assert_eq!(queue.offer(payload(1), false), EnqueueResult::Overflow);
        assert_eq!(queue.take().len(), 2);
    }

    #[test]
    fn bytes_count_until_they_are_written() {
        let mut queue = queue();
        assert_eq!(queue.offer(payload(92), true), EnqueueResult::Queued);
        assert_eq!(queue.take().len(), 1);
        assert_eq!(queue.offer(payload(1), true), EnqueueResult::Dropped);
        assert_eq!(queue.written(), (1, 100));
        assert_eq!(queue.offer(payload(1), true), EnqueueResult::Queued);
    }

    #[test]
    fn an_empty_queue_takes_a_frame_of_any_size() {
        assert_eq!(queue().offer(payload(1000), true), EnqueueResult::Queued);
        assert_eq!(queue().offer(payload(1000), false), EnqueueResult::Queued);
    }

    #[test]
    fn clearing_counts_what_waits_and_what_was_being_written() {
        let mut queue = queue();
        queue.offer(payload(10), true);
        queue.take();
        queue.offer(payload(10), true);
        queue.offer(payload(10), true);
        assert_eq!(queue.clear(), 3);
        assert_eq!(queue.clear(), 0);
        assert_eq!(queue.offer(payload(92), true), EnqueueResult::Queued);
    }
}
