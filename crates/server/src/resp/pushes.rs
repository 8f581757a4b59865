//! What a client is sent that answers none of its commands: invalidations of the keys that it
//! caches.
//!
//! Owns their order and encoding, and the permission to get them. A push is owed like a reply, so
//! it goes behind the replies to all commands that were taken before it: a client that puts a value
//! into its cache when it gets the reply is told afterwards that it has changed.

use std::task::{Context, Poll};

use bytes::Bytes;
use tidelock_core::auth::Scope;
use tidelock_core::clients::key_tracking::Invalidation;

use super::encode::{Encoder, Protocol};
use super::session::{Failure, Session};
use super::tracking::{INVALIDATION_CHANNEL, TrackingMode};

impl Session {
    /// Owes the next messages to the client. Returns whether there were any. If there were none,
    /// `task` is woken by the next one.
    pub fn poll_pushes(&mut self, task: &Context<'_>) -> bool {
        let any = self.poll_invalidation(task);
        if !self.takes_redirected() {
            return any;
        }
        let Poll::Ready(invalidation) = self.redirected.poll(task) else { return any };
        self.owe_invalidation(&invalidation);
        true
    }

    /// Bytes of the messages that are held for the client.
    pub fn held_for_pushes_bytes(&self) -> usize {
        let own = self.tracking.as_ref().map_or(0, |tracking| tracking.tracker.waiting_bytes());
        own + if self.takes_redirected() { self.redirected.waiting_bytes() } else { 0 }
    }

    /// Whether the client can be sent the invalidations of another one.
    fn takes_redirected(&self) -> bool {
        self.protocol == Protocol::Resp3 || self.is_subscribed
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
        if is_message && !self.is_subscribed {
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

fn encode_keys(encoder: &mut Encoder<'_>, keys: &[Bytes]) {
    encoder.array(keys.len());
    keys.iter().for_each(|key| encoder.bulk(key));
}
