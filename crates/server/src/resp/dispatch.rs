//! From a command's name to what it does.
//!
//! Owns the table of commands (name, number of arguments, keys, when it may run) and what holds for all of them. What each
//! does stands in [`commands`](super::commands), a file for each family.

use std::collections::HashMap;

use super::commands::{
    cluster, connection, expiry, keys, node, numbers, scan, strings, transactions, versions,
};
use super::frame::Arguments;
use super::session::{Action, Failure, Session};
use crate::wrong_port::{WrongPort, is_http_request_line};

/// What a command does.
type Handler = fn(&mut Session, Arguments<'_>) -> Result<Action, Failure>;

/// Which metric counts a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Values as a whole.
    Strings,
    /// Keys, whatever they hold.
    Keys,
    /// Numbers in values.
    Numbers,
    /// When keys expire.
    Expiry,
    /// Several commands as one.
    Transactions,
    /// Walks over all keys.
    Scan,
    /// About the cluster.
    Cluster,
    /// About the connection or the node.
    Node,
    /// Nothing of the table.
    Unknown,
}

impl Family {
    /// Every family, in the order of their numbers.
    pub const ALL: [Family; 9] = [
        Family::Strings,
        Family::Keys,
        Family::Numbers,
        Family::Expiry,
        Family::Transactions,
        Family::Scan,
        Family::Cluster,
        Family::Node,
        Family::Unknown,
    ];

    /// The label's value.
    pub fn text(self) -> &'static str {
        match self {
            Family::Strings => "strings",
            Family::Keys => "keys",
            Family::Numbers => "numbers",
            Family::Expiry => "expiry",
            Family::Transactions => "transactions",
            Family::Scan => "scan",
            Family::Cluster => "cluster",
            Family::Node => "node",
            Family::Unknown => "unknown",
        }
    }
}

/// When a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Behind all earlier ones; inside of `MULTI` it waits for `EXEC`.
    InOrder,
    /// The same, and inside of `MULTI` it runs at once: it is about the transaction.
    Control,
    /// Once every watched key's version is known.
    Watched,
    /// Once all earlier ones are answered, inside of `MULTI`, too.
    Settled,
    /// Once all earlier ones are answered; not inside of `MULTI`.
    Alone,
}

/// A command.
pub struct Spec {
    /// Its name in small letters.
    pub name: &'static str,
    /// How many arguments, the name among them; negative: at least so many.
    pub arity: i64,
    /// What clients are told of it.
    pub flags: &'static [&'static str],
    /// The first key, the last (negative: from the end), the distance between them; all 0 without keys.
    pub keys: (i64, i64, i64),
    /// Which metric counts it.
    pub family: Family,
    /// When it may run.
    pub when: When,
    handler: Handler,
}

const fn spec(name: &'static str, arity: i64, family: Family, handler: Handler) -> Spec {
    Spec { name, arity, flags: &["fast"], keys: (0, 0, 0), family, when: When::InOrder, handler }
}

impl Spec {
    const fn reads(self) -> Spec {
        Spec { flags: &["readonly", "fast"], keys: (1, 1, 1), ..self }
    }

    const fn writes(self) -> Spec {
        Spec { flags: &["write", "denyoom", "fast"], keys: (1, 1, 1), ..self }
    }

    const fn of_keys(self, last: i64, step: i64) -> Spec {
        Spec { keys: (1, last, step), ..self }
    }

    const fn when(self, when: When) -> Spec {
        Spec { when, ..self }
    }
}

/// Every command.
pub const COMMANDS: &[Spec] = &[
    spec("get", 2, Family::Strings, strings::get).reads(),
    spec("set", -3, Family::Strings, strings::set).writes(),
    spec("mget", -2, Family::Strings, strings::mget).reads().of_keys(-1, 1),
    spec("mset", -3, Family::Strings, strings::mset).writes().of_keys(-1, 2),
    spec("getset", 3, Family::Strings, strings::getset).writes(),
    spec("getdel", 2, Family::Strings, strings::getdel).writes(),
    spec("setnx", 3, Family::Strings, strings::setnx).writes(),
    spec("setex", 4, Family::Strings, strings::setex).writes(),
    spec("psetex", 4, Family::Strings, strings::psetex).writes(),
    spec("strlen", 2, Family::Strings, strings::strlen).reads(),
    spec("append", 3, Family::Strings, strings::append).writes(),
    spec("tl.get", 2, Family::Strings, versions::get).reads(),
    spec("tl.set", 4, Family::Strings, versions::set).writes(),
    spec("del", -2, Family::Keys, keys::del).writes().of_keys(-1, 1),
    spec("unlink", -2, Family::Keys, keys::del).writes().of_keys(-1, 1),
    spec("exists", -2, Family::Keys, keys::exists).reads().of_keys(-1, 1),
    spec("touch", -2, Family::Keys, keys::exists).reads().of_keys(-1, 1),
    spec("type", 2, Family::Keys, keys::kind).reads(),
    spec("incr", 2, Family::Numbers, numbers::incr).writes(),
    spec("decr", 2, Family::Numbers, numbers::decr).writes(),
    spec("incrby", 3, Family::Numbers, numbers::incrby).writes(),
    spec("decrby", 3, Family::Numbers, numbers::decrby).writes(),
    spec("expire", -3, Family::Expiry, expiry::expire).writes(),
    spec("pexpire", -3, Family::Expiry, expiry::pexpire).writes(),
    spec("expireat", -3, Family::Expiry, expiry::expireat).writes(),
    spec("pexpireat", -3, Family::Expiry, expiry::pexpireat).writes(),
    spec("ttl", 2, Family::Expiry, expiry::ttl).reads(),
    spec("pttl", 2, Family::Expiry, expiry::pttl).reads(),
    spec("expiretime", 2, Family::Expiry, expiry::expiretime).reads(),
    spec("pexpiretime", 2, Family::Expiry, expiry::pexpiretime).reads(),
    spec("persist", 2, Family::Expiry, expiry::persist).writes(),
    spec("multi", 1, Family::Transactions, transactions::multi).when(When::Control),
    spec("exec", 1, Family::Transactions, transactions::exec).when(When::Watched),
    spec("discard", 1, Family::Transactions, transactions::discard).when(When::Control),
    spec("watch", -2, Family::Transactions, transactions::watch).reads().of_keys(-1, 1).when(When::Control),
    spec("unwatch", 1, Family::Transactions, transactions::unwatch),
    spec("scan", -2, Family::Scan, scan::scan).when(When::Alone),
    spec("keys", 2, Family::Scan, scan::keys).when(When::Alone),
    spec("dbsize", 1, Family::Scan, scan::dbsize).when(When::Alone),
    spec("cluster", -2, Family::Cluster, cluster::cluster).when(When::Alone),
    spec("readonly", 1, Family::Cluster, cluster::readonly).when(When::Alone),
    spec("readwrite", 1, Family::Cluster, cluster::readwrite).when(When::Alone),
    spec("asking", 1, Family::Cluster, cluster::asking),
    spec("hello", -1, Family::Node, connection::hello).when(When::Alone),
    spec("auth", -2, Family::Node, connection::auth),
    spec("client", -2, Family::Node, connection::client),
    spec("select", 2, Family::Node, connection::select),
    spec("ping", -1, Family::Node, connection::ping),
    spec("echo", 2, Family::Node, connection::echo),
    spec("quit", -1, Family::Node, connection::quit).when(When::Settled),
    spec("reset", 1, Family::Node, connection::reset).when(When::Settled),
    spec("command", -1, Family::Node, node::command),
    spec("config", -2, Family::Node, node::config),
    spec("info", -1, Family::Node, node::info).when(When::Alone),
    spec("time", 1, Family::Node, node::time),
];

/// Finds commands by their names.
#[derive(Default)]
pub struct Table(HashMap<&'static [u8], &'static Spec>);

/// What became of a command.
pub enum Dispatched {
    /// It was taken; this is to be done.
    Action(Action),
    /// It has to wait until earlier ones are answered, and is to be brought again then.
    NotYet,
}

/// Longest name of a command.
const NAME_BYTES_MAX: usize = 16;

impl Table {
    /// All commands.
    pub fn new() -> Table {
        Table(COMMANDS.iter().map(|spec| (spec.name.as_bytes(), spec)).collect())
    }

    /// The command of a name in any letters.
    pub fn find(&self, name: &[u8]) -> Option<&'static Spec> {
        let mut small = [0; NAME_BYTES_MAX];
        let small = small.get_mut(..name.len())?;
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        self.0.get(&*small).copied()
    }

    /// Takes a client's next command.
    pub fn dispatch(&self, session: &mut Session, arguments: Arguments<'_>) -> Dispatched {
        let Some(name) = arguments.get(0) else { return Dispatched::Action(Action::Done) };
        let spec = self.find(name);
        if spec.is_some_and(|spec| !may_run(spec.when, session)) {
            return Dispatched::NotYet;
        }
        session.context.counters.commands.raise(spec.map_or(Family::Unknown, |spec| spec.family));
        if is_http_request(arguments) {
            session.owe_encoded(WrongPort::Resp.answer());
            return Dispatched::Action(Action::Close);
        }
        let result = match spec {
            None => Err(unknown(name, arguments)),
            Some(spec) if !admits(spec.arity, arguments.len()) => Err(wrong_arity(spec.name)),
            Some(spec) if spec.when == When::Alone && session.is_in_multi() => {
                Err(format!("ERR '{}' is not allowed inside of MULTI", spec.name).into())
            }
            Some(spec) => (spec.handler)(session, arguments),
        };
        Dispatched::Action(result.unwrap_or_else(|failure| {
            session.fail(&failure);
            // Browsers can be made to send such lines to any port; nothing behind them is a command.
            if is_of_http(name) { Action::Close } else { Action::Done }
        }))
    }
}

fn may_run(when: When, session: &Session) -> bool {
    match when {
        When::InOrder | When::Control => true,
        When::Watched => session.knows_watches(),
        When::Settled | When::Alone => session.is_settled(),
    }
}

fn admits(arity: i64, count: usize) -> bool {
    let count = count as i64;
    if arity >= 0 { count == arity } else { count >= -arity }
}

/// An HTTP client at this port: it is told so in its own protocol.
fn is_http_request(arguments: Arguments<'_>) -> bool {
    let words = (arguments.get(0), arguments.get(1), arguments.get(2));
    let (Some(method), Some(target), Some(version)) = words else { return false };
    arguments.len() == 3 && is_http_request_line(method, target, version)
}

fn is_of_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// What a client is told that gave too few arguments, or too many.
pub fn wrong_arity(name: &str) -> Failure {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

fn unknown(name: &[u8], arguments: Arguments<'_>) -> Failure {
    const SHOWN_BYTES_MAX: usize = 128;
    let shown =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned();
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name));
    for argument in arguments.from(1) {
        if text.len() > SHOWN_BYTES_MAX {
            break;
        }
        text.push_str(&format!("'{}' ", shown(argument)));
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_letters() {
        let table = Table::new();
        for name in ["get", "GET", "Get", "tl.GET", "pexpiretime"] {
            assert_eq!(table.find(name.as_bytes()).unwrap().name, name.to_ascii_lowercase());
        }
        for name in ["", "gett", "a name that is longer than any"] {
            assert!(table.find(name.as_bytes()).is_none());
        }
    }

    #[test]
    fn the_table_is_sound() {
        for spec in COMMANDS {
            assert!(spec.name.len() <= NAME_BYTES_MAX && spec.name == spec.name.to_ascii_lowercase());
            assert_eq!(COMMANDS.iter().filter(|other| other.name == spec.name).count(), 1, "{}", spec.name);
            let has_keys = spec.flags.iter().any(|flag| ["readonly", "write"].contains(flag));
            assert_eq!(spec.keys.0 > 0, has_keys, "{}", spec.name);
        }
        for (index, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family as usize, index);
        }
    }
}
