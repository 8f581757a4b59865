//! What a client is sent that answers none of its commands: invalidations of the keys that it
//! caches, and messages of the channels to which it has subscribed.
//!
//! Owns their order and encoding, and the permission to get them. A push is owed like a reply, so
//! it goes behind the replies to all commands that were taken before it: a client that puts a value
//! into its cache when it gets the reply is told afterwards that it has changed.

use std::task::{Context, Poll};

use bytes::Bytes;
use tidelock_core::auth::{Demand, Scope, Verb};
use tidelock_core::clients::key_tracking::Invalidation;

use super::encode::{Encoder, Protocol};
use super::glob::literal_prefix;
use super::pub_sub::ChannelMessage;
use super::session::{Failure, Session};
use super::tracking::{INVALIDATION_CHANNEL, TrackingMode};

const OVERRUN: &str = "the client does not take the messages of its channels";

impl Session {
    /// Owes the next messages to the client. Returns whether there were any. If there were none,
    /// `task` is woken by the next one.
    pub fn poll_pushes(&mut self, task: &Context<'_>) -> bool {
        let any = self.poll_invalidation(task) | self.poll_redirected(task);
        any | (self.subscriptions.count() > 0 && self.take_message())
    }

    /// Why the connection must end, if its subscriptions demand it. `task` is woken when that
    /// changes, and by the next message.
    pub fn poll_subscriptions(&self, task: &Context<'_>) -> Option<&'static str> {
        let is_overrun = self.subscriptions.count() > 0 && self.subscriptions.poll_overrun(task);
        self.broken_subscription.or(is_overrun.then_some(OVERRUN))
    }

    /// Owes all messages that wait, before the client is told that a subscription has ended.
    pub fn take_messages(&mut self) {
        while self.take_message() {}
        if self.subscriptions.is_overrun() {
            self.broken_subscription = Some(OVERRUN);
        }
    }

    fn take_message(&mut self) -> bool {
        let Some(message) = self.subscriptions.next() else { return false };
        self.follow_access();
        let checked = match &message {
            ChannelMessage::Message(publication) => self.check_channel(&publication.channel),
            ChannelMessage::PatternMessage { pattern, .. } => self.check_pattern(pattern),
        };
        if checked.is_err() {
            self.broken_subscription =
                Some("the client may no longer read a channel to which it has subscribed");
            return false;
        }
        self.owe(|encoder| encode_message(encoder, &message));
        true
    }

    /// Checks whether the client may get the messages of a channel, which counts as a key.
    pub fn check_channel(&self, channel: &[u8]) -> Result<(), Failure> {
        if channel == INVALIDATION_CHANNEL {
            return self.authentication.check_token();
        }
        let demand = Demand { verb: Verb::Read, scope: Scope::Key(channel) };
        self.authentication.check_demand(demand, &self.clock)
    }

    /// Checks whether the client may get the messages of all channels that match a pattern.
    pub fn check_pattern(&self, pattern: &[u8]) -> Result<(), Failure> {
        let demand = Demand { verb: Verb::Read, scope: Scope::Keys { prefix: literal_prefix(pattern) } };
        self.authentication.check_demand(demand, &self.clock)
    }

    fn poll_redirected(&mut self, task: &Context<'_>) -> bool {
        if !self.takes_redirected() {
            return false;
        }
        let Poll::Ready(invalidation) = self.redirected.poll(task) else { return false };
        self.owe_invalidation(&invalidation);
        true
    }

    /// Bytes of the messages that are held for the client.
    pub fn held_for_pushes_bytes(&self) -> usize {
        let own = self.tracking.as_ref().map_or(0, |tracking| tracking.tracker.waiting_bytes());
        let redirected = if self.takes_redirected() { self.redirected.waiting_bytes() } else { 0 };
        let messages = if self.subscriptions.count() > 0 { self.subscriptions.held_bytes() } else { 0 };
        own + redirected + messages
    }

    /// Whether the client can be sent the invalidations of another one.
    fn takes_redirected(&self) -> bool {
        self.protocol == Protocol::Resp3 || self.subscriptions.has_channel(INVALIDATION_CHANNEL)
    }

    /// The client has subscribed, ended its subscription, or changed its protocol.
    pub fn follow_redirects(&self) {
        self.redirected.set_open(self.takes_redirected());
    }

    fn poll_invalidation(&mut self, task: &Context<'_>) -> bool {
        let Some(tracking) = &self.tracking else { return false };
        let Poll::Ready(invalidation) = tracking.tracker.poll_invalidation(task) else { return false };
        let redirect = tracking.redirect;
        let is_allowed = self.may_track().is_ok();
        let invalidation = if is_allowed { invalidation } else { Invalidation::All };
        match redirect {
            None => self.owe_invalidation(&invalidation),
            Some(client) if self.context.redirects.send(client, &invalidation) => {}
            Some(client) => self.owe_broken_redirect(client),
        }
        if !is_allowed {
            self.end_tracking();
        }
        true
    }

    /// Checks whether the client may be notified of changes of its prefixes. Of other keys it is
    /// notified only if it could read them.
    fn may_track(&mut self) -> Result<(), Failure> {
        self.follow_access();
        let Some(tracking) = &self.tracking else { return Ok(()) };
        if tracking.mode != TrackingMode::Broadcast {
            return self.authentication.check_token();
        }
        let prefixes = tracking.prefixes();
        prefixes
            .iter()
            .try_for_each(|prefix| self.authentication.check_watch(Scope::Keys { prefix }, &self.clock))
    }

    /// A client of RESP2 gets invalidations as messages of a channel to which it has subscribed.
    fn owe_invalidation(&mut self, invalidation: &Invalidation) {
        let is_message = self.protocol == Protocol::Resp2;
        if is_message && !self.subscriptions.has_channel(INVALIDATION_CHANNEL) {
            return;
        }
        self.owe(|encoder| {
            if is_message {
                encoder.push(3);
                encoder.bulk(b"message");
                encoder.bulk(INVALIDATION_CHANNEL);
            } else {
                encoder.push(2);
                encoder.bulk(b"invalidate");
            }
            match invalidation {
                Invalidation::Keys(keys) => encode_keys(encoder, keys),
                Invalidation::All => encoder.null(),
            }
        });
    }

    /// Tells the client once that the one that got its invalidations is gone. RESP2 has no form for
    /// that; `CLIENT TRACKINGINFO` shows it.
    fn owe_broken_redirect(&mut self, client: u64) {
        let was_broken = self.tracking.as_ref().is_none_or(|tracking| tracking.is_broken.replace(true));
        if !was_broken && self.protocol == Protocol::Resp3 {
            self.owe(|encoder| {
                encoder.push(2);
                encoder.bulk(b"tracking-redir-broken");
                encoder.unsigned(client);
            });
        }
    }
}

fn encode_message(encoder: &mut Encoder<'_>, message: &ChannelMessage) {
    let publication = match message {
        ChannelMessage::Message(publication) => {
            encoder.push(3);
            encoder.bulk(b"message");
            publication
        }
        ChannelMessage::PatternMessage { pattern, publication } => {
            encoder.push(4);
            encoder.bulk(b"pmessage");
            encoder.bulk(pattern);
            publication
        }
    };
    encoder.bulk(&publication.channel);
    encoder.bulk(&publication.message);
}

fn encode_keys(encoder: &mut Encoder<'_>, keys: &[Bytes]) {
    encoder.array(keys.len());
    keys.iter().for_each(|key| encoder.bulk(key));
}
