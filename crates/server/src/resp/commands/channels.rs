//! The subscription to invalidations. There is no other channel, because nothing is published.

use super::super::frame::CommandArguments;
use super::super::session::{Action, Session};
use super::super::tracking::INVALIDATION_CHANNEL;
use super::Result;

const NO_MESSAGES: &str = "ERR nothing is published to other channels than __redis__:invalidate, because there is no PUBLISH; \
                           watch keys over HTTP instead";

/// `SUBSCRIBE channel …`
pub fn subscribe(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    if arguments.from(1).any(|channel| channel != INVALIDATION_CHANNEL) {
        return Err(NO_MESSAGES.into());
    }
    session.is_subscribed = true;
    session.follow_redirects();
    for channel in arguments.from(1) {
        confirm(session, "subscribe", Some(channel));
    }
    Ok(Action::Done)
}

/// `UNSUBSCRIBE [channel …]`
pub fn unsubscribe(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    if arguments.len() == 1 {
        let channel = session.is_subscribed.then_some(INVALIDATION_CHANNEL);
        session.is_subscribed = false;
        confirm(session, "unsubscribe", channel);
    }
    for channel in arguments.from(1) {
        session.is_subscribed &= channel != INVALIDATION_CHANNEL;
        confirm(session, "unsubscribe", Some(channel));
    }
    session.follow_redirects();
    Ok(Action::Done)
}

/// Owes the reply to one channel of a command.
fn confirm(session: &mut Session, kind: &str, channel: Option<&[u8]>) {
    let count = i64::from(session.is_subscribed);
    session.owe(|encoder| {
        encoder.push(3);
        encoder.bulk(kind.as_bytes());
        match channel {
            Some(channel) => encoder.bulk(channel),
            None => encoder.null(),
        }
        encoder.integer(count);
    });
}
