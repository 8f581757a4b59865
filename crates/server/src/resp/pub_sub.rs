//! The subscribers of channels on this node, and the messages that wait for them.
//!
//! Owns which connections a publication concerns, and a bounded queue for each. The core decides
//! which nodes a publication reaches. One table serves all workers, because `PUBLISH` and `PUBSUB`
//! count the subscribers of the whole node. A message is shared by its subscribers, not copied.
//!
//! A connection that does not take its messages is closed once more than [`WAITING_BYTES_MAX`] wait
//! for it, as Redis closes it: a client would not notice that a message was left out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use tidelock_core::command::Publication;

use super::glob;

/// Most bytes of messages that wait for one connection.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// Most channels and patterns of one connection.
pub const SUBSCRIPTIONS_MAX: usize = 1_024;

/// Most different patterns of a node: each of them is compared with the channel of every message.
pub const PATTERNS_MAX: usize = 4_096;

/// Longest pattern. The time of a comparison grows with it.
pub const PATTERN_BYTES_MAX: usize = 256;

/// Bytes that a waiting message takes besides its content.
const OVERHEAD_BYTES: usize = 64;

/// All subscribers of a node.
#[derive(Debug, Default)]
pub struct PubSub(Mutex<ChannelTable>);

#[derive(Debug, Default)]
struct ChannelTable {
    channels: BTreeMap<Bytes, Vec<Arc<Subscriber>>>,
    patterns: BTreeMap<Bytes, Vec<Arc<Subscriber>>>,
}

/// A connection that may get messages.
#[derive(Debug, Default)]
struct Subscriber(Mutex<MessageQueue>);

#[derive(Debug, Default)]
struct MessageQueue {
    messages: VecDeque<ChannelMessage>,
    bytes: usize,
    waker: Option<Waker>,
    /// Too many messages waited; the connection must end.
    is_overrun: bool,
}

/// A message for one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelMessage {
    /// To the subscribers of a channel.
    Message(Publication),
    /// To the subscribers of a pattern that matches the channel.
    PatternMessage {
        /// The pattern.
        pattern: Bytes,
        /// What was published.
        publication: Publication,
    },
}

/// The subscriptions of one connection. Dropping this ends them.
#[derive(Debug)]
pub struct Subscriptions {
    pub_sub: Arc<PubSub>,
    subscriber: Arc<Subscriber>,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
}

/// Why there is no further subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManySubscriptions {
    /// See [`SUBSCRIPTIONS_MAX`].
    #[error("a connection has at most 1024 channels and patterns")]
    OfConnection,
    /// See [`PATTERNS_MAX`].
    #[error("the clients of a node have at most 4096 different patterns")]
    OfNode,
}

impl ChannelMessage {
    fn bytes(&self) -> usize {
        OVERHEAD_BYTES
            + match self {
                ChannelMessage::Message(publication) => publication.content_bytes(),
                ChannelMessage::PatternMessage { pattern, publication } => {
                    pattern.len() + publication.content_bytes()
                }
            }
    }
}

impl Subscriber {
    fn lock(&self) -> MutexGuard<'_, MessageQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: ChannelMessage) {
        let mut queue = self.lock();
        let bytes = message.bytes();
        if queue.is_overrun || queue.bytes + bytes > WAITING_BYTES_MAX {
            queue.is_overrun = true;
            (queue.messages, queue.bytes) = (VecDeque::new(), 0);
        } else {
            queue.messages.push_back(message);
            queue.bytes += bytes;
        }
        if let Some(waker) = queue.waker.take() {
            drop(queue);
            waker.wake();
        }
    }
}

impl PubSub {
    fn lock(&self) -> MutexGuard<'_, ChannelTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection, which has no subscriptions yet.
    pub fn connect(self: &Arc<Self>) -> Subscriptions {
        Subscriptions {
            pub_sub: self.clone(),
            subscriber: Arc::default(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
        }
    }

    /// Passes a publication to its subscribers.
    pub fn deliver(&self, publication: &Publication) {
        let table = self.lock();
        for subscriber in table.channels.get(&publication.channel).into_iter().flatten() {
            subscriber.push(ChannelMessage::Message(publication.clone()));
        }
        for (pattern, subscribers) in &table.patterns {
            if glob::matches(pattern, &publication.channel) {
                let (pattern, publication) = (pattern.clone(), publication.clone());
                let message = ChannelMessage::PatternMessage { pattern, publication };
                subscribers.iter().for_each(|subscriber| subscriber.push(message.clone()));
            }
        }
    }

    /// Number of subscriptions that a publication to a channel concerns.
    pub fn receivers(&self, channel: &[u8]) -> usize {
        let table = self.lock();
        let matching = table.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        let by_pattern: usize = matching.map(|(_, subscribers)| subscribers.len()).sum();
        table.channels.get(channel).map_or(0, Vec::len) + by_pattern
    }

    /// Number of subscribers of a channel, without those of patterns.
    pub fn subscribers(&self, channel: &[u8]) -> usize {
        self.lock().channels.get(channel).map_or(0, Vec::len)
    }

    /// The channels with subscribers whose names match a pattern.
    pub fn channels(&self, pattern: &[u8]) -> Vec<Bytes> {
        self.lock().channels.keys().filter(|channel| glob::matches(pattern, channel)).cloned().collect()
    }

    /// Number of different patterns.
    pub fn patterns(&self) -> usize {
        self.lock().patterns.len()
    }
}

impl Subscriptions {
    /// Number of channels and patterns.
    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// The channels, in order.
    pub fn channels(&self) -> &BTreeSet<Bytes> {
        &self.channels
    }

    /// The patterns, in order.
    pub fn patterns(&self) -> &BTreeSet<Bytes> {
        &self.patterns
    }

    /// Whether it has subscribed to a channel of this name.
    pub fn has_channel(&self, channel: &[u8]) -> bool {
        self.channels.contains(channel)
    }

    /// Bytes of the names and of the waiting messages.
    pub fn held_bytes(&self) -> usize {
        let names = self.channels.iter().chain(&self.patterns).map(|name| name.len() + OVERHEAD_BYTES);
        names.sum::<usize>() + self.subscriber.lock().bytes
    }

    /// Subscribes to a channel.
    ///
    /// # Errors
    /// If there are too many subscriptions.
    pub fn subscribe(&mut self, channel: Bytes) -> Result<(), TooManySubscriptions> {
        if self.channels.contains(&channel) {
            return Ok(());
        }
        if self.count() >= SUBSCRIPTIONS_MAX {
            return Err(TooManySubscriptions::OfConnection);
        }
        self.pub_sub.lock().channels.entry(channel.clone()).or_default().push(self.subscriber.clone());
        self.channels.insert(channel);
        Ok(())
    }

    /// Subscribes to all channels that match a pattern.
    ///
    /// # Errors
    /// If there are too many subscriptions.
    pub fn subscribe_pattern(&mut self, pattern: Bytes) -> Result<(), TooManySubscriptions> {
        if self.patterns.contains(&pattern) {
            return Ok(());
        }
        if self.count() >= SUBSCRIPTIONS_MAX {
            return Err(TooManySubscriptions::OfConnection);
        }
        let mut table = self.pub_sub.lock();
        if table.patterns.len() >= PATTERNS_MAX && !table.patterns.contains_key(&pattern) {
            return Err(TooManySubscriptions::OfNode);
        }
        table.patterns.entry(pattern.clone()).or_default().push(self.subscriber.clone());
        drop(table);
        self.patterns.insert(pattern);
        Ok(())
    }

    /// Ends the subscription to a channel, if there is one.
    pub fn unsubscribe(&mut self, channel: &[u8]) {
        if let Some(channel) = self.channels.take(channel) {
            leave(&mut self.pub_sub.lock().channels, channel, &self.subscriber);
        }
    }

    /// Ends the subscription to a pattern, if there is one.
    pub fn unsubscribe_pattern(&mut self, pattern: &[u8]) {
        if let Some(pattern) = self.patterns.take(pattern) {
            leave(&mut self.pub_sub.lock().patterns, pattern, &self.subscriber);
        }
    }

    /// Ends all subscriptions, and drops the messages that wait.
    pub fn clear(&mut self) {
        if self.count() == 0 {
            return;
        }
        let mut table = self.pub_sub.lock();
        for channel in std::mem::take(&mut self.channels) {
            leave(&mut table.channels, channel, &self.subscriber);
        }
        for pattern in std::mem::take(&mut self.patterns) {
            leave(&mut table.patterns, pattern, &self.subscriber);
        }
        drop(table);
        let mut queue = self.subscriber.lock();
        (queue.messages, queue.bytes, queue.is_overrun) = (VecDeque::new(), 0, false);
    }

    /// Takes the next message.
    pub fn next(&self) -> Option<ChannelMessage> {
        let mut queue = self.subscriber.lock();
        let message = queue.messages.pop_front()?;
        queue.bytes -= message.bytes();
        Some(message)
    }

    /// Whether too many messages waited, so that some are lost and the connection must end.
    pub fn is_overrun(&self) -> bool {
        self.subscriber.lock().is_overrun
    }

    /// As [`Subscriptions::is_overrun`]. `task` is woken by the next message, so it looks for
    /// messages after this.
    pub fn poll_overrun(&self, task: &Context<'_>) -> bool {
        let mut queue = self.subscriber.lock();
        if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            queue.waker = Some(task.waker().clone());
        }
        queue.is_overrun
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.clear();
    }
}

fn leave(table: &mut BTreeMap<Bytes, Vec<Arc<Subscriber>>>, name: Bytes, subscriber: &Arc<Subscriber>) {
    if let Entry::Occupied(mut entry) = table.entry(name) {
        entry.get_mut().retain(|other| !Arc::ptr_eq(other, subscriber));
        if entry.get().is_empty() {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(channel: &'static str, message: &'static str) -> Publication {
        Publication { channel: channel.into(), message: message.into() }
    }

    #[test]
    fn messages_reach_those_who_subscribed() {
        let pub_sub = Arc::new(PubSub::default());
        let [mut one, mut other] = [pub_sub.connect(), pub_sub.connect()];
        one.subscribe("news".into()).expect("few");
        one.subscribe("news".into()).expect("few");
        one.subscribe_pattern("n*".into()).expect("few");
        other.subscribe_pattern("x*".into()).expect("few");
        let sent = publication("news", "hello");
        assert_eq!((pub_sub.receivers(b"news"), pub_sub.subscribers(b"news"), pub_sub.patterns()), (2, 1, 2));
        pub_sub.deliver(&sent);
        assert_eq!(one.next(), Some(ChannelMessage::Message(sent.clone())));
        let by_pattern = ChannelMessage::PatternMessage { pattern: "n*".into(), publication: sent.clone() };
        assert_eq!((one.next(), one.next(), other.next()), (Some(by_pattern), None, None));
        one.unsubscribe(b"news");
        one.unsubscribe_pattern(b"n*");
        pub_sub.deliver(&sent);
        assert_eq!((one.next(), pub_sub.channels(b"*").len(), one.count()), (None, 0, 0));
        drop(other);
        assert_eq!(pub_sub.patterns(), 0);
    }

    #[test]
    fn what_waits_is_bounded_and_an_overrun_is_final() {
        let pub_sub = Arc::new(PubSub::default());
        let mut slow = pub_sub.connect();
        slow.subscribe("c".into()).expect("few");
        let large = Publication { channel: "c".into(), message: vec![0; 1 << 20].into() };
        for _ in 0..7 {
            pub_sub.deliver(&large);
        }
        assert!(!slow.is_overrun() && slow.held_bytes() > 7 << 20);
        pub_sub.deliver(&large);
        pub_sub.deliver(&publication("c", "small"));
        assert!(slow.is_overrun() && slow.next().is_none() && slow.held_bytes() < 1 << 10);
    }

    #[test]
    fn subscriptions_are_limited() {
        let pub_sub = Arc::new(PubSub::default());
        let mut one = pub_sub.connect();
        for number in 0..SUBSCRIPTIONS_MAX {
            one.subscribe(number.to_string().into()).expect("few");
        }
        assert_eq!(one.subscribe("more".into()), Err(TooManySubscriptions::OfConnection));
        assert_eq!(one.subscribe_pattern("more".into()), Err(TooManySubscriptions::OfConnection));
        one.clear();
        let mut patterns = 0;
        let mut many = Vec::new();
        while patterns < PATTERNS_MAX {
            let mut connection = pub_sub.connect();
            for _ in 0..SUBSCRIPTIONS_MAX.min(PATTERNS_MAX - patterns) {
                connection.subscribe_pattern(format!("{patterns}*").into()).expect("few");
                patterns += 1;
            }
            many.push(connection);
        }
        assert_eq!(one.subscribe_pattern("more".into()), Err(TooManySubscriptions::OfNode));
        one.subscribe_pattern("7*".into()).expect("a pattern that there is already");
    }
}
