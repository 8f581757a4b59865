//! `CLIENT TRACKING` and what belongs to it: the client caches keys, and learns of their changes.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use tidelock_core::auth::Caller;
use tidelock_core::auth::Scope;
use tidelock_core::command::{Consistency, KeyScope, Read, Reply, Request};
use tidelock_core::limits::{KEY_BYTES_MAX, TRACKED_PREFIXES_MAX};

use super::super::encode::Protocol;
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::refusal_text;
use super::super::session::{Action, Session};
use super::super::tracking::{Tracking, TrackingMode};
use super::scan::encoded;
use super::{Result, integer, is, syntax};

const OTHER_MODE: &str = "ERR You can't switch BCAST, OPTIN or OPTOUT mode on/off before disabling tracking for this client, \
                          and then re-enabling it with a different mode.";
const CACHING_WITHOUT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
                                        OPTOUT mode enabled";
const NO_PUSHES: &str = "ERR RESP2 has no messages for invalidations: send HELLO 3, or REDIRECT them to a client that has \
                         subscribed to __redis__:invalidate";

/// The arguments of `CLIENT TRACKING ON`.
#[derive(Debug, Default)]
struct TrackingOptions {
    redirect: Option<u64>,
    prefixes: Vec<Bytes>,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix …] [BCAST] [OPTIN] [OPTOUT]`
pub fn tracking(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    outside_of_multi(session)?;
    let options = TrackingOptions::parse(session, arguments)?;
    match &arguments[2] {
        switch if is(switch, "on") => begin(session, options),
        switch if is(switch, "off") => {
            session.end_tracking();
            session.ok()
        }
        _ => syntax(),
    }
}

impl TrackingOptions {
    fn parse(session: &Session, arguments: CommandArguments<'_>) -> Result<TrackingOptions> {
        let mut options = TrackingOptions::default();
        let mut rest = arguments.from(3);
        while let Some(option) = rest.next() {
            if is(option, "redirect") {
                let text = rest.next().ok_or(super::SYNTAX)?;
                let id = u64::try_from(integer(text)?).unwrap_or_default();
                if options.redirect.is_some() {
                    return Err("ERR A client can only redirect to a single other client".into());
                }
                if !session.context.redirects.has(id) {
                    return Err("ERR The client ID you want redirect to does not exist".into());
                }
                options.redirect = Some(id);
            } else if is(option, "prefix") {
                let prefix = rest.next().ok_or(super::SYNTAX)?;
                if prefix.len() > KEY_BYTES_MAX {
                    return Err("ERR prefix longer than 4 KiB".into());
                }
                options.prefixes.push(Bytes::copy_from_slice(prefix));
            } else if is(option, "bcast") {
                options.is_broadcast = true;
            } else if is(option, "optin") {
                options.is_opt_in = true;
            } else if is(option, "optout") {
                options.is_opt_out = true;
            } else if is(option, "noloop") {
                return Err(
                    "ERR NOLOOP is not supported: a client also learns of the changes that it makes itself"
                        .into(),
                );
            } else {
                return syntax();
            }
        }
        Ok(options)
    }

    fn mode(&self) -> Result<TrackingMode> {
        match (self.is_broadcast, self.is_opt_in, self.is_opt_out) {
            (false, true, true) => Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into()),
            (true, true, _) | (true, _, true) => {
                Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into())
            }
            (false, ..) if !self.prefixes.is_empty() => {
                Err("ERR PREFIX option requires BCAST mode to be enabled".into())
            }
            (true, false, false) => Ok(TrackingMode::Broadcast),
            (false, true, false) => Ok(TrackingMode::OptIn),
            (false, false, true) => Ok(TrackingMode::OptOut),
            (false, false, false) => Ok(TrackingMode::Reads),
        }
    }
}

fn begin(session: &mut Session, mut options: TrackingOptions) -> Result {
    let mode = options.mode()?;
    if session.tracking.as_ref().is_some_and(|tracking| tracking.mode != mode) {
        return Err(OTHER_MODE.into());
    }
    let before = session.tracking.as_ref().map(|tracking| tracking.prefixes()).unwrap_or_default();
    if mode == TrackingMode::Broadcast && options.prefixes.is_empty() && before.is_empty() {
        options.prefixes.push(Bytes::new());
    }
    check_prefixes(&before, &options.prefixes)?;
    for prefix in &options.prefixes {
        session.authentication.check_watch(Scope::Keys { prefix }, &session.clock)?;
    }
    if session.protocol == Protocol::Resp2 && options.redirect.is_none() {
        return Err(NO_PUSHES.into());
    }
    match &mut session.tracking {
        Some(tracking) => {
            options.prefixes.into_iter().for_each(|prefix| tracking.tracker.add_prefix(prefix));
            tracking.redirect = options.redirect;
            tracking.is_broken.set(false);
            session.ok()
        }
        None => {
            let tracker = session.store.watch_registry().track(&options.prefixes);
            let (redirect, is_broken, is_exception) = (options.redirect, false.into(), false);
            let is_refused = Rc::new(Cell::new(false));
            let begun = begin_reports(session, is_refused.clone());
            let tracking = Tracking { tracker, mode, redirect, is_broken, is_refused, is_exception };
            session.tracking = Some(tracking.into());
            Ok(begun)
        }
    }
}

/// Makes the node report changed keys, before the client is told that they are tracked.
fn begin_reports(session: &Session, is_refused: Rc<Cell<bool>>) -> Action {
    let scope = KeyScope::Prefix(Bytes::new());
    let read = Read::Changes { scope, after: None, limit: 1, keys_only: true };
    let (store, protocol) = (session.store.for_caller(Caller::Node), session.protocol);
    Action::Wait(Box::pin(async move {
        // The request of the node begins the reports, and its answer is not needed. It proves that
        // the node serves reads at present, without which there is nothing to cache.
        let request = Request::Read { read, consistency: Consistency::Linearizable };
        let reply = store.submit(request).await;
        encoded(protocol, |encoder| match reply {
            Reply::Refused(refusal) => {
                is_refused.set(true);
                encoder.error(&refusal_text(&refusal));
            }
            _ => encoder.ok(),
        })
    }))
}

/// A key with two prefixes would be invalidated twice.
fn check_prefixes(before: &[Bytes], added: &[Bytes]) -> Result<()> {
    if before.len() + added.len() > TRACKED_PREFIXES_MAX {
        return Err("ERR a client has at most 64 prefixes".into());
    }
    for (number, prefix) in added.iter().enumerate() {
        let others = before.iter().filter(|other| *other != prefix).chain(&added[..number]);
        if let Some(other) =
            others.into_iter().find(|other| other.starts_with(prefix) || prefix.starts_with(other))
        {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            return Err(format!(
                "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client must not overlap.",
                text(prefix),
                text(other)
            )
            .into());
        }
    }
    Ok(())
}

/// `CLIENT CACHING YES|NO`
pub fn caching(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    outside_of_multi(session)?;
    let mode = session.tracking.as_ref().map(|tracking| tracking.mode);
    let needed = match &arguments[2] {
        choice if is(choice, "yes") => TrackingMode::OptIn,
        choice if is(choice, "no") => TrackingMode::OptOut,
        _ => return syntax(),
    };
    match (mode, needed) {
        (Some(TrackingMode::OptIn | TrackingMode::OptOut), _) if mode == Some(needed) => {}
        (Some(TrackingMode::OptOut), _) => {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into());
        }
        (Some(TrackingMode::OptIn), _) => {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into());
        }
        _ => return Err(CACHING_WITHOUT_TRACKING.into()),
    }
    if let Some(tracking) = &mut session.tracking {
        tracking.is_exception = true;
    }
    session.ok()
}

/// `CLIENT GETREDIR`
pub fn redirect(session: &mut Session) -> Result {
    let shown = shown_redirect(session);
    session.reply(|encoder| encoder.integer(shown))
}

/// `CLIENT TRACKINGINFO`
pub fn info(session: &mut Session) -> Result {
    let tracking = session.tracking.as_ref();
    let flags = tracking.map_or(vec!["off"], |tracking| tracking.flags());
    let prefixes = tracking.map(|tracking| tracking.prefixes()).unwrap_or_default();
    let redirect = shown_redirect(session);
    session.reply(|encoder| {
        encoder.map(3);
        encoder.bulk(b"flags");
        encoder.set(flags.len());
        flags.iter().for_each(|flag| encoder.bulk(flag.as_bytes()));
        encoder.bulk(b"redirect");
        encoder.integer(redirect);
        encoder.bulk(b"prefixes");
        encoder.array(prefixes.len());
        prefixes.iter().for_each(|prefix| encoder.bulk(prefix));
    })
}

/// The client that gets the invalidations; 0: this one; -1: none.
pub fn shown_redirect(session: &Session) -> i64 {
    session.tracking.as_ref().map_or(-1, |tracking| tracking.redirect.unwrap_or_default() as i64)
}

fn outside_of_multi(session: &Session) -> Result<()> {
    if session.is_in_multi() {
        return Err("ERR CLIENT TRACKING and CLIENT CACHING are not allowed inside of MULTI".into());
    }
    Ok(())
}
