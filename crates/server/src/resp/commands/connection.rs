//! The connection: its setup, its settings and its end.

use bytes::Bytes;
use tidelock_core::command::Refusal;

use super::super::encode::{Encoder, Protocol};
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::refusal_text;
use super::super::session::{Action, Session};
use super::super::tracking::TrackingMode;
use super::node::{ModeAndRole, REDIS_VERSION, mode_and_role};
use super::scan::{encoded, led_of};
use super::tracking;
use super::{Result, integer, is, syntax};

/// Longest name of a client or its library, in bytes.
const NAME_BYTES_MAX: usize = 256;

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
                           sure your configuration is correct?";
const HELLO_NOAUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
                            <pass> option can be used to authenticate the client and select the RESP protocol version at the \
                            same time";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`
pub fn hello(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let protocol = match arguments.get(1) {
        None => session.protocol,
        Some(b"2") => Protocol::Resp2,
        Some(b"3") => Protocol::Resp3,
        Some(text) if integer(text).is_ok() => return Err("NOPROTO unsupported protocol version".into()),
        Some(_) => return Err("ERR Protocol version is not an integer or out of range".into()),
    };
    let mut rest = arguments.from(2);
    let (mut name, mut credentials) = (None, None);
    while let Some(option) = rest.next() {
        if is(option, "auth") {
            let (Some(user), Some(token)) = (rest.next(), rest.next()) else { return syntax() };
            credentials = Some((user, token));
        } else if is(option, "setname") {
            name = Some(checked_name(rest.next().ok_or(super::SYNTAX)?)?);
        } else {
            let text = format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option));
            return Err(text.into());
        }
    }
    if let Some((user, token)) = credentials
        && let Err(refused) = authenticate(session, Some(user), token)
    {
        return refused;
    }
    if session.authentication.is_awaited() {
        return Err(HELLO_NOAUTH.into());
    }
    if protocol == Protocol::Resp2
        && session.tracking.as_ref().is_some_and(|tracking| tracking.redirect.is_none())
    {
        return Err("ERR CLIENT TRACKING is on, and RESP2 has no messages for invalidations".into());
    }
    session.protocol = protocol;
    session.follow_redirects();
    if let Some(name) = name {
        session.name = name;
    }
    let id = session.id;
    if !session.is_cluster {
        return session.reply(|encoder| greeting(encoder, protocol, id, mode_and_role(None)));
    }
    let store = session.store.clone();
    Ok(Action::Wait(Box::pin(async move {
        let status = store.status().await;
        let led: Vec<_> = led_of(&status, &store.slot_map()).cloned().collect();
        let shown = mode_and_role(Some(&led));
        encoded(protocol, |encoder| greeting(encoder, protocol, id, shown))
    })))
}

fn greeting(encoder: &mut Encoder<'_>, protocol: Protocol, id: u64, shown: ModeAndRole) {
    let ModeAndRole { mode, role } = shown;
    // The other name of a slave, which only `HELLO` uses.
    let role = if role == "slave" { "replica" } else { role };
    encoder.map(7);
    // Clients cache keys only if the server is a Redis of a release that can invalidate them.
    for (field, text) in [("server", "redis"), ("version", REDIS_VERSION)] {
        encoder.bulk(field.as_bytes());
        encoder.bulk(text.as_bytes());
    }
    encoder.bulk(b"proto");
    encoder.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    encoder.bulk(b"id");
    encoder.unsigned(id);
    for (field, text) in [("mode", mode), ("role", role)] {
        encoder.bulk(field.as_bytes());
        encoder.bulk(text.as_bytes());
    }
    encoder.bulk(b"modules");
    encoder.array(0);
}

/// `AUTH [principal] token`
pub fn auth(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let authenticated = match arguments.len() {
        2 => authenticate(session, None, &arguments[1]),
        3 => authenticate(session, Some(&arguments[1]), &arguments[2]),
        _ => return syntax(),
    };
    match authenticated {
        Ok(()) => session.ok(),
        Err(refused) => refused,
    }
}

/// Checks a token, and takes the client for its principal. While authentication is not required,
/// what is no valid token is answered as by a Redis without a password.
fn authenticate(session: &mut Session, user: Option<&[u8]>, token: &[u8]) -> std::result::Result<(), Result> {
    let store = session.store.clone();
    if session.authentication.prove(user, token, (store.access(), &session.clock)) {
        session.adopt_caller();
        return Ok(());
    }
    let is_required = session.authentication.is_required();
    if !is_required && user == Some(b"default") {
        return Ok(());
    }
    if store.access().state().is_unconfirmed() {
        // The token may have been made after the last entry that this node has applied.
        return Err(Err(refusal_text(&Refusal::PermissionsUnknown).into()));
    }
    if !is_required {
        return Err(Err(user.map_or(NO_PASSWORD, |_| WRONG_PASSWORD).into()));
    }
    let (context, address, protocol) = (session.context.clone(), session.address, session.protocol);
    Err(Ok(Action::Wait(Box::pin(async move {
        context.throttle.failed(address).await;
        encoded(protocol, |encoder| encoder.error(WRONG_PASSWORD))
    }))))
}

/// `CLIENT subcommand`
pub fn client(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let subcommand = &arguments[1];
    match arguments.len() {
        2 if is(subcommand, "id") => {
            let id = session.id;
            session.reply(|encoder| encoder.unsigned(id))
        }
        2 if is(subcommand, "getname") => {
            let name = session.name.clone();
            session.reply(|encoder| if name.is_empty() { encoder.null() } else { encoder.bulk(&name) })
        }
        2 if is(subcommand, "info") || is(subcommand, "list") => {
            let line = describe(session);
            session.reply(|encoder| encoder.verbatim(&line))
        }
        3 if is(subcommand, "setname") => {
            session.name = checked_name(&arguments[2])?;
            session.ok()
        }
        4 if is(subcommand, "setinfo") => {
            let value = checked_name(&arguments[3])?;
            match &arguments[2] {
                field if is(field, "lib-name") => session.library[0] = value,
                field if is(field, "lib-ver") => session.library[1] = value,
                _ => return Err("ERR Unrecognized option: LIB-NAME and LIB-VER are known".into()),
            }
            session.ok()
        }
        3.. if is(subcommand, "tracking") => tracking::tracking(session, arguments),
        3 if is(subcommand, "caching") => tracking::caching(session, arguments),
        2 if is(subcommand, "getredir") => tracking::redirect(session),
        2 if is(subcommand, "trackinginfo") => tracking::info(session),
        3 if is(subcommand, "no-evict") || is(subcommand, "no-touch") => session.ok(),
        3 if is(subcommand, "reply") && is(&arguments[2], "on") => session.ok(),
        _ => {
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for 'client|{}'; known are ID, INFO, LIST, GETNAME, \
                 SETNAME, SETINFO, TRACKING, CACHING, GETREDIR, TRACKINGINFO, NO-EVICT, NO-TOUCH and REPLY ON",
                String::from_utf8_lossy(subcommand)
            );
            Err(text.into())
        }
    }
}

/// The line of this client; others are not shown.
fn describe(session: &Session) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let [library, version] = &session.library;
    let protocol = if session.protocol == Protocol::Resp3 { 3 } else { 2 };
    let flags = flags(session);
    let (channels, patterns) =
        (session.subscriptions.channels().len(), session.subscriptions.patterns().len());
    let redirect = tracking::shown_redirect(session);
    let (id, name) = (session.id, text(&session.name));
    let (library, version) = (text(library), text(version));
    format!(
        "id={id} name={name} db=0 sub={channels} psub={patterns} flags={flags} redir={redirect} resp={protocol} \
         lib-name={library} lib-ver={version}\n"
    )
}

fn flags(session: &Session) -> String {
    let tracking = session.tracking.as_ref();
    let flags = [
        (session.is_readonly, 'r'),
        (session.subscriptions.count() > 0, 'P'),
        (tracking.is_some(), 't'),
        (tracking.is_some_and(|tracking| tracking.is_broken.get()), 'R'),
        (tracking.is_some_and(|tracking| tracking.mode == TrackingMode::Broadcast), 'B'),
    ];
    let flags: String = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    if flags.is_empty() { "N".into() } else { flags }
}

/// Names appear in lines separated by spaces, so they contain neither spaces nor line ends.
fn checked_name(name: &[u8]) -> Result<Bytes> {
    if name.len() > NAME_BYTES_MAX || name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err("ERR names of clients are up to 256 printable ASCII characters without spaces".into());
    }
    Ok(Bytes::copy_from_slice(name))
}

/// `SELECT 0`
pub fn select(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    match integer(&arguments[1]) {
        Ok(0) => session.ok(),
        Ok(_) => Err("ERR DB index is out of range: there is database 0 alone".into()),
        Err(_) => Err("ERR invalid DB index".into()),
    }
}

/// `PING [text]` of a client, which may expect messages alone.
pub fn ping_client(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    if !session.expects_messages_only() || arguments.len() > 2 {
        return ping(session, arguments);
    }
    session.reply(|encoder| {
        encoder.array(2);
        encoder.bulk(b"pong");
        encoder.bulk(arguments.get(1).unwrap_or_default());
    })
}

/// `PING [text]`
pub fn ping<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    match arguments.len() {
        1 => executor.reply(|encoder| encoder.simple("PONG")),
        2 => executor.reply(|encoder| encoder.bulk(&arguments[1])),
        _ => Err(super::super::dispatch::wrong_arity("ping")),
    }
}

/// `ECHO text`
pub fn echo<E: Executor>(executor: &mut E, arguments: CommandArguments<'_>) -> Result<E::Output> {
    executor.reply(|encoder| encoder.bulk(&arguments[1]))
}

/// `QUIT`
pub fn quit(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.reset();
    session.ok()?;
    Ok(Action::Close)
}

/// `RESET`
pub fn reset(session: &mut Session, _: CommandArguments<'_>) -> Result {
    session.reset();
    session.reply(|encoder| encoder.simple("RESET"))
}
