//! Channels: messages to the clients that have subscribed, on all nodes.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidelock_core::auth::{Demand, Scope, Verb};
use tidelock_core::command::{Publication, Refusal};
use tidelock_core::limits::CHANNEL_BYTES_MAX;

use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::pub_sub::{PATTERN_BYTES_MAX, Subscriptions, TooManySubscriptions};
use super::super::replies::refusal_text;
use super::super::session::{Action, Session};
use super::scan::{encoded, failure};
use super::{Result, is};
use crate::requests;

/// `PUBLISH channel message`. The reply counts the subscriptions on this node alone.
pub fn publish(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let [channel, message] = [&arguments[1], &arguments[2]].map(Bytes::copy_from_slice);
    let publication = Publication { channel: channel.clone(), message };
    publication.validate().map_err(|refusal| refusal_text(&Refusal::from(refusal)))?;
    let demand = Demand { verb: Verb::Write, scope: Scope::Key(&channel) };
    session.authentication.check_demand(demand, &session.clock)?;
    if session.is_in_multi() {
        return session.queue_publication(publication);
    }
    let (store, protocol, context) = (session.store.clone(), session.protocol, session.context.clone());
    Ok(Action::Wait(Box::pin(async move {
        let published = store.ask(requests::publish(publication)).await;
        encoded(protocol, |encoder| match published {
            Ok(()) => encoder.integer(context.pub_sub.receivers(&channel) as i64),
            Err(no_answer) => encoder.error(&failure(no_answer)),
        })
    })))
}

/// `SUBSCRIBE channel …`
pub fn subscribe(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    for channel in arguments.from(1) {
        if channel.len() > CHANNEL_BYTES_MAX {
            return Err("ERR name of a channel longer than 4 KiB".into());
        }
        session.check_channel(channel)?;
    }
    for channel in arguments.from(1) {
        session.subscriptions.subscribe(Bytes::copy_from_slice(channel)).map_err(too_many)?;
        confirm(session, "subscribe", Some(channel));
    }
    Ok(Action::Done)
}

/// `PSUBSCRIBE pattern …`
pub fn subscribe_patterns(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    for pattern in arguments.from(1) {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err("ERR pattern of channels longer than 256 bytes".into());
        }
        session.check_pattern(pattern)?;
    }
    for pattern in arguments.from(1) {
        session.subscriptions.subscribe_pattern(Bytes::copy_from_slice(pattern)).map_err(too_many)?;
        confirm(session, "psubscribe", Some(pattern));
    }
    Ok(Action::Done)
}

/// `UNSUBSCRIBE [channel …]`
pub fn unsubscribe(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    end(session, arguments, ("unsubscribe", Subscriptions::channels, Subscriptions::unsubscribe))
}

/// `PUNSUBSCRIBE [pattern …]`
pub fn unsubscribe_patterns(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    end(session, arguments, ("punsubscribe", Subscriptions::patterns, Subscriptions::unsubscribe_pattern))
}

/// The name of a command, which subscriptions there are of its kind, and how one of them ends.
type EndOfKind = (&'static str, fn(&Subscriptions) -> &BTreeSet<Bytes>, fn(&mut Subscriptions, &[u8]));

/// Ends the named subscriptions of a kind, or all of them if none is named.
fn end(session: &mut Session, arguments: CommandArguments<'_>, (kind, all, end): EndOfKind) -> Result {
    let mut names: Vec<Bytes> = arguments.from(1).map(Bytes::copy_from_slice).collect();
    if names.is_empty() {
        names = all(&session.subscriptions).iter().cloned().collect();
    }
    if names.is_empty() {
        confirm(session, kind, None);
    }
    for name in names {
        end(&mut session.subscriptions, &name);
        session.take_messages();
        confirm(session, kind, Some(&name));
    }
    Ok(Action::Done)
}

/// `PUBSUB CHANNELS [pattern]|NUMSUB [channel …]|NUMPAT`, of this node alone.
pub fn pubsub(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let (context, subcommand) = (session.context.clone(), &arguments[1]);
    match arguments.len() {
        2 | 3 if is(subcommand, "channels") => {
            let pattern = arguments.get(2).unwrap_or(b"*");
            session.check_pattern(pattern)?;
            let channels = context.pub_sub.channels(pattern);
            session.reply(|encoder| {
                encoder.array(channels.len());
                channels.iter().for_each(|channel| encoder.bulk(channel));
            })
        }
        _ if is(subcommand, "numsub") => {
            arguments.from(2).try_for_each(|channel| session.check_channel(channel))?;
            session.reply(|encoder| {
                encoder.array(2 * (arguments.len() - 2));
                for channel in arguments.from(2) {
                    encoder.bulk(channel);
                    encoder.integer(context.pub_sub.subscribers(channel) as i64);
                }
            })
        }
        2 if is(subcommand, "numpat") => {
            session.reply(|encoder| encoder.integer(context.pub_sub.patterns() as i64))
        }
        _ => Err(format!(
            "ERR unknown subcommand or wrong number of arguments for 'pubsub|{}'; known are CHANNELS, NUMSUB and NUMPAT",
            String::from_utf8_lossy(subcommand)
        )
        .into()),
    }
}

fn too_many(error: TooManySubscriptions) -> String {
    format!("ERR {error}")
}

/// Owes the reply to one channel or pattern of a command, whose subscription has changed.
fn confirm(session: &mut Session, kind: &str, name: Option<&[u8]>) {
    session.follow_redirects();
    let count = session.subscriptions.count() as i64;
    session.owe(|encoder| {
        encoder.push(3);
        encoder.bulk(kind.as_bytes());
        match name {
            Some(name) => encoder.bulk(name),
            None => encoder.null(),
        }
        encoder.integer(count);
    });
}
