//! Maps a command's name to its handler.
//!
//! Owns the table of commands (name, number of arguments, keys, when it may run) and the rules for
//! all of them. The handlers are in [`commands`](super::commands), one file for each family.

use crate::metrics::Family;

use tidelock_core::auth::Usage;

use super::authentication::CommandDemand;
use super::commands::{
    acl, channels, cluster, connection, expiry, flush, keys, node, numbers, scan, scripts, strings,
    transactions, versions,
};
use super::frame::CommandArguments;
use super::scripts::ScriptCommands;
use super::session::{Action, Failure, Session};
use crate::wrong_port::{WrongPort, is_http_request_line};

type Handler = fn(&mut Session, CommandArguments<'_>) -> Result<Action, Failure>;

/// Executes a command within a script, and returns the encoded reply.
type ScriptHandler = fn(&mut ScriptCommands, CommandArguments<'_>) -> Result<Vec<u8>, Failure>;

/// When a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Behind all earlier ones; inside of `MULTI` it waits for `EXEC`.
    InOrder,
    /// After all earlier ones; within `MULTI` it runs at once, because it controls the transaction.
    Control,
    /// Once every watched key's version is known.
    Watched,
    /// Once all earlier ones are answered, also within `MULTI`.
    Settled,
    /// Once all earlier ones are answered; not within `MULTI`.
    Alone,
}

/// The table entry of a command.
pub struct CommandSpec {
    /// Its name, in lower case.
    pub name: &'static str,
    /// The number of arguments including the name; negative: at least that many.
    pub arity: i64,
    /// Its flags, as `COMMAND` reports them.
    pub flags: &'static [&'static str],
    /// The first key, the last (negative: from the end), and the step; all 0 without keys.
    pub keys: (i64, i64, i64),
    /// The metric that counts its executions.
    pub family: Family,
    pub when: When,
    /// What it needs from its client.
    demand: CommandDemand,
    handler: Handler,
    /// How a script executes it; `None`: scripts may not.
    pub in_scripts: Option<ScriptHandler>,
}

/// A group of commands, as `ACL CAT` and `COMMAND` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Commands that read the keys in their arguments.
    Read,
    /// Commands that change the keys in their arguments.
    Write,
    /// Commands that read all keys.
    Keyspace,
    /// Commands that group other commands.
    Transaction,
    /// Commands that run programs of other commands.
    Scripting,
    /// Commands on channels.
    PubSub,
    /// Commands that show or set nothing but their own connection, or what any client may know.
    Connection,
    /// Commands that show the state of the node or of the cluster, or remove all keys.
    Dangerous,
}

impl Category {
    /// Every category.
    pub const ALL: [Category; 8] = [
        Category::Read,
        Category::Write,
        Category::Keyspace,
        Category::Transaction,
        Category::Scripting,
        Category::PubSub,
        Category::Connection,
        Category::Dangerous,
    ];

    /// Its name, without the `@`.
    pub fn name(self) -> &'static str {
        match self {
            Category::Read => "read",
            Category::Write => "write",
            Category::Keyspace => "keyspace",
            Category::Transaction => "transaction",
            Category::Scripting => "scripting",
            Category::PubSub => "pubsub",
            Category::Connection => "connection",
            Category::Dangerous => "dangerous",
        }
    }
}

/// Creates a table entry. `demand` has no default, so that no command can be added without one.
const fn spec(
    demand: CommandDemand,
    (name, arity): (&'static str, i64),
    family: Family,
    handler: Handler,
) -> CommandSpec {
    let (flags, keys, when) = (&["fast"], (0, 0, 0), When::InOrder);
    CommandSpec { name, arity, flags, keys, family, when, demand, handler, in_scripts: None }
}

/// A command whose operations on keys, or requests to the core, are checked one by one.
const fn by_request(name: &'static str, arity: i64, family: Family, handler: Handler) -> CommandSpec {
    spec(CommandDemand::ByRequest, (name, arity), family, handler)
}

/// A command that shows nothing but its own connection, or what any client may know.
const fn plain(name: &'static str, arity: i64, family: Family, handler: Handler) -> CommandSpec {
    spec(CommandDemand::ValidToken, (name, arity), family, handler)
}

/// A command that works without authentication: `AUTH`, `HELLO` and `QUIT`.
const fn open(name: &'static str, arity: i64, handler: Handler) -> CommandSpec {
    spec(CommandDemand::Open, (name, arity), Family::Node, handler)
}

/// A command that shows the state of the node.
const fn node_state(name: &'static str, arity: i64, handler: Handler) -> CommandSpec {
    spec(CommandDemand::NodeState, (name, arity), Family::Node, handler)
}

/// A command that runs a script. Its keys, and each of its commands, are checked one by one.
const fn script(name: &'static str, arity: i64, handler: Handler) -> CommandSpec {
    let flags = &["noscript", "movablekeys"];
    let spec = spec(CommandDemand::ByRequest, (name, arity), Family::Scripts, handler);
    CommandSpec { flags, ..spec }.when(When::Alone)
}

/// A command that begins or ends subscriptions to channels.
const fn channel(name: &'static str, arity: i64, handler: Handler) -> CommandSpec {
    let spec = spec(CommandDemand::ValidToken, (name, arity), Family::PubSub, handler);
    CommandSpec { flags: &["pubsub", "noscript", "loading", "stale"], ..spec }.when(When::Alone)
}

/// A command that reads all keys.
const fn of_all_keys(name: &'static str, arity: i64, handler: Handler) -> CommandSpec {
    spec(CommandDemand::AllKeys, (name, arity), Family::Scan, handler).when(When::Alone)
}

/// A command that changes data as a whole.
const fn administrative(name: &'static str, arity: i64, family: Family, handler: Handler) -> CommandSpec {
    spec(CommandDemand::Administer, (name, arity), family, handler).when(When::Alone)
}

impl CommandSpec {
    /// What the command is charged against the rate limits of its principal: an operation for each
    /// of its keys, or one if it has none, and the bytes of its arguments. `None` for commands that
    /// are not limited, because they neither read nor write keys.
    pub fn usage(&self, arguments: CommandArguments<'_>) -> Option<Usage> {
        let is_of_keys = match self.demand {
            CommandDemand::ByRequest => self.family != Family::Cluster,
            CommandDemand::AllKeys | CommandDemand::Administer => true,
            CommandDemand::Open | CommandDemand::ValidToken | CommandDemand::NodeState => false,
        };
        let (first, last, step) = match self.keys.0 {
            0 if self.family == Family::Scripts => self.keys_among(&arguments.from(0).collect::<Vec<_>>()),
            _ => self.key_positions(arguments.len()),
        };
        let operations = if first == 0 { 1 } else { (last - first) / step.max(1) + 1 };
        let bytes = || arguments.from(0).map(|argument| argument.len() as u64).sum();
        is_of_keys.then(|| Usage { operations: operations.max(1).unsigned_abs(), bytes: bytes() })
    }

    /// The first key of a command with this many arguments, the last, and the step; all 0 if the
    /// arguments say how many keys there are.
    fn key_positions(&self, count: usize) -> (i64, i64, i64) {
        let (first, last, step) = self.keys;
        (first, if last < 0 { count as i64 + last } else { last }, step)
    }

    /// As [`CommandSpec::keys`], for a command with these arguments: the last key counts from the
    /// start, and the keys of a script follow their number.
    pub fn keys_among(&self, arguments: &[&[u8]]) -> (i64, i64, i64) {
        if !self.flags.contains(&"movablekeys") {
            return self.key_positions(arguments.len());
        }
        let number = arguments.get(2).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
        match number.filter(|number| (1..=arguments.len() as i64 - 3).contains(number)) {
            Some(number) => (3, 2 + number, 1),
            None => (0, 0, 0),
        }
    }

    /// The group to which it belongs.
    pub fn category(&self) -> Category {
        match self.demand {
            _ if self.family == Family::Scripts => Category::Scripting,
            _ if self.family == Family::PubSub => Category::PubSub,
            CommandDemand::AllKeys => Category::Keyspace,
            CommandDemand::NodeState | CommandDemand::Administer => Category::Dangerous,
            CommandDemand::Open | CommandDemand::ValidToken => match self.family {
                Family::Transactions => Category::Transaction,
                _ => Category::Connection,
            },
            CommandDemand::ByRequest if self.flags.contains(&"write") => Category::Write,
            CommandDemand::ByRequest if self.keys.0 > 0 => Category::Read,
            // `CLUSTER`, whose requests read the state of the cluster.
            CommandDemand::ByRequest => Category::Dangerous,
        }
    }

    const fn reads(self) -> CommandSpec {
        CommandSpec { flags: &["readonly", "fast"], keys: (1, 1, 1), ..self }
    }

    const fn writes(self) -> CommandSpec {
        CommandSpec { flags: &["write", "denyoom", "fast"], keys: (1, 1, 1), ..self }
    }

    const fn of_keys(self, last: i64, step: i64) -> CommandSpec {
        CommandSpec { keys: (1, last, step), ..self }
    }

    const fn when(self, when: When) -> CommandSpec {
        CommandSpec { when, ..self }
    }

    /// Scripts may execute it, with this handler: the same function, for another executor.
    const fn in_scripts(self, handler: ScriptHandler) -> CommandSpec {
        CommandSpec { in_scripts: Some(handler), ..self }
    }
}

/// Every command that this server knows.
pub const COMMANDS: &[CommandSpec] = &[
    by_request("get", 2, Family::Strings, strings::get).reads().in_scripts(strings::get),
    by_request("set", -3, Family::Strings, strings::set).writes().in_scripts(strings::set),
    by_request("mget", -2, Family::Strings, strings::mget).reads().of_keys(-1, 1).in_scripts(strings::mget),
    by_request("mset", -3, Family::Strings, strings::mset).writes().of_keys(-1, 2).in_scripts(strings::mset),
    by_request("msetnx", -3, Family::Strings, strings::msetnx)
        .writes()
        .of_keys(-1, 2)
        .in_scripts(strings::msetnx),
    by_request("getset", 3, Family::Strings, strings::getset).writes().in_scripts(strings::getset),
    by_request("getdel", 2, Family::Strings, strings::getdel).writes().in_scripts(strings::getdel),
    by_request("getex", -2, Family::Strings, strings::getex).writes().in_scripts(strings::getex),
    by_request("setnx", 3, Family::Strings, strings::setnx).writes().in_scripts(strings::setnx),
    by_request("setex", 4, Family::Strings, strings::setex).writes().in_scripts(strings::setex),
    by_request("psetex", 4, Family::Strings, strings::psetex).writes().in_scripts(strings::psetex),
    by_request("strlen", 2, Family::Strings, strings::strlen).reads().in_scripts(strings::strlen),
    by_request("getrange", 4, Family::Strings, strings::getrange).reads().in_scripts(strings::getrange),
    by_request("substr", 4, Family::Strings, strings::getrange).reads().in_scripts(strings::getrange),
    by_request("setrange", 4, Family::Strings, strings::setrange).writes().in_scripts(strings::setrange),
    by_request("digest", 2, Family::Strings, strings::digest).reads().in_scripts(strings::digest),
    by_request("append", 3, Family::Strings, strings::append).writes().in_scripts(strings::append),
    by_request("tl.get", 2, Family::Strings, versions::get).reads(),
    by_request("tl.set", 4, Family::Strings, versions::set).writes(),
    by_request("del", -2, Family::Keys, keys::del).writes().of_keys(-1, 1).in_scripts(keys::del),
    by_request("unlink", -2, Family::Keys, keys::del).writes().of_keys(-1, 1).in_scripts(keys::del),
    by_request("delex", -2, Family::Keys, keys::delex).writes().in_scripts(keys::delex),
    by_request("exists", -2, Family::Keys, keys::exists).reads().of_keys(-1, 1).in_scripts(keys::exists),
    by_request("touch", -2, Family::Keys, keys::exists).reads().of_keys(-1, 1).in_scripts(keys::exists),
    by_request("type", 2, Family::Keys, keys::kind).reads().in_scripts(keys::kind),
    by_request("incr", 2, Family::Numbers, numbers::incr).writes().in_scripts(numbers::incr),
    by_request("decr", 2, Family::Numbers, numbers::decr).writes().in_scripts(numbers::decr),
    by_request("incrby", 3, Family::Numbers, numbers::incrby).writes().in_scripts(numbers::incrby),
    by_request("decrby", 3, Family::Numbers, numbers::decrby).writes().in_scripts(numbers::decrby),
    by_request("incrbyfloat", 3, Family::Numbers, numbers::incrbyfloat)
        .writes()
        .in_scripts(numbers::incrbyfloat),
    by_request("expire", -3, Family::Expiry, expiry::expire).writes().in_scripts(expiry::expire),
    by_request("pexpire", -3, Family::Expiry, expiry::pexpire).writes().in_scripts(expiry::pexpire),
    by_request("expireat", -3, Family::Expiry, expiry::expireat).writes().in_scripts(expiry::expireat),
    by_request("pexpireat", -3, Family::Expiry, expiry::pexpireat).writes().in_scripts(expiry::pexpireat),
    by_request("ttl", 2, Family::Expiry, expiry::ttl).reads().in_scripts(expiry::ttl),
    by_request("pttl", 2, Family::Expiry, expiry::pttl).reads().in_scripts(expiry::pttl),
    by_request("expiretime", 2, Family::Expiry, expiry::expiretime).reads().in_scripts(expiry::expiretime),
    by_request("pexpiretime", 2, Family::Expiry, expiry::pexpiretime).reads().in_scripts(expiry::pexpiretime),
    by_request("persist", 2, Family::Expiry, expiry::persist).writes().in_scripts(expiry::persist),
    plain("multi", 1, Family::Transactions, transactions::multi).when(When::Control),
    plain("exec", 1, Family::Transactions, transactions::exec).when(When::Watched),
    plain("discard", 1, Family::Transactions, transactions::discard).when(When::Control),
    by_request("watch", -2, Family::Transactions, transactions::watch)
        .reads()
        .of_keys(-1, 1)
        .when(When::Control),
    plain("unwatch", 1, Family::Transactions, transactions::unwatch),
    script("eval", -3, scripts::eval),
    script("eval_ro", -3, scripts::eval_ro),
    script("evalsha", -3, scripts::evalsha),
    script("evalsha_ro", -3, scripts::evalsha_ro),
    plain("script", -2, Family::Scripts, scripts::script).when(When::Alone),
    by_request("publish", 3, Family::PubSub, channels::publish).when(When::Settled),
    channel("subscribe", -2, channels::subscribe),
    channel("unsubscribe", -1, channels::unsubscribe),
    channel("psubscribe", -2, channels::subscribe_patterns),
    channel("punsubscribe", -1, channels::unsubscribe_patterns),
    plain("pubsub", -2, Family::PubSub, channels::pubsub),
    of_all_keys("scan", -2, scan::scan),
    of_all_keys("keys", 2, scan::keys),
    of_all_keys("dbsize", 1, scan::dbsize),
    administrative("flushall", -1, Family::Keys, flush::flush),
    administrative("flushdb", -1, Family::Keys, flush::flush),
    by_request("cluster", -2, Family::Cluster, cluster::cluster).when(When::Alone),
    plain("readonly", 1, Family::Cluster, cluster::readonly).when(When::Alone),
    plain("readwrite", 1, Family::Cluster, cluster::readwrite).when(When::Alone),
    plain("asking", 1, Family::Cluster, cluster::asking),
    open("hello", -1, connection::hello).when(When::Alone),
    open("auth", -2, connection::auth).when(When::Alone),
    plain("acl", -2, Family::Node, acl::acl).when(When::Alone),
    plain("client", -2, Family::Node, connection::client),
    plain("select", 2, Family::Node, connection::select),
    plain("ping", -1, Family::Node, connection::ping_client).in_scripts(connection::ping),
    plain("echo", 2, Family::Node, connection::echo).in_scripts(connection::echo),
    open("quit", -1, connection::quit).when(When::Settled),
    plain("reset", 1, Family::Node, connection::reset).when(When::Settled),
    plain("command", -1, Family::Node, node::command),
    node_state("config", -2, node::config),
    node_state("info", -1, node::info).when(When::Alone),
    plain("time", 1, Family::Node, node::time).in_scripts(node::time),
];

/// Looks up commands by name. Every command needs that, and a search in a sorted table takes fewer
/// instructions than hashing the name for a `HashMap`.
pub struct CommandTable(Vec<(PaddedName, &'static CommandSpec)>);

/// The bytes of a name in lower case, padded with zeros, as a big-endian number.
type PaddedName = u128;

/// The result of dispatching a command.
pub enum Dispatched {
    /// It was executed; the connection does this next.
    Action(Action),
    /// It must wait until earlier ones are answered, and be dispatched again then.
    NotYet,
}

/// Longest name of a command, in bytes.
const NAME_BYTES_MAX: usize = size_of::<PaddedName>();

/// `None` if the name is longer than [`NAME_BYTES_MAX`].
fn padded(name: &[u8]) -> Option<PaddedName> {
    let mut padded = [0; NAME_BYTES_MAX];
    padded.get_mut(..name.len())?.copy_from_slice(name);
    padded.make_ascii_lowercase();
    Some(PaddedName::from_be_bytes(padded))
}

impl CommandTable {
    pub fn new() -> CommandTable {
        let named = |spec: &'static CommandSpec| {
            let name = padded(spec.name.as_bytes()).expect("invariant: the names of commands are short");
            (name, spec)
        };
        let mut table: Vec<_> = COMMANDS.iter().map(named).collect();
        table.sort_unstable_by_key(|(name, _)| *name);
        CommandTable(table)
    }

    /// Looks up a command, ignoring case.
    pub fn find(&self, name: &[u8]) -> Option<&'static CommandSpec> {
        let wanted = padded(name)?;
        let at = self.0.binary_search_by_key(&wanted, |(name, _)| *name).ok()?;
        let (_, spec) = self.0.get(at)?;
        // `get` and `get\0` are padded to the same number.
        (spec.name.len() == name.len()).then_some(*spec)
    }

    /// Executes a client's next command.
    pub fn dispatch(&self, session: &mut Session, arguments: CommandArguments<'_>) -> Dispatched {
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
        let admitted = session.check_command(spec.map_or(CommandDemand::ValidToken, |spec| spec.demand));
        let result = match spec {
            _ if admitted.is_err() => admitted.map(|()| Action::Done),
            None => Err(unknown(name, arguments)),
            Some(spec) if !admits(spec.arity, arguments.len()) => Err(wrong_arity(spec.name)),
            Some(spec) if spec.when == When::Alone && session.is_in_multi() => {
                Err(format!("ERR '{}' is not allowed inside of MULTI", spec.name).into())
            }
            Some(spec) if session.expects_messages_only() && !is_allowed_to_subscribers(spec) => {
                Err(format!(
                    "ERR Can't execute '{}': only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                     this context",
                    spec.name
                )
                .into())
            }
            Some(spec) => session.charge(spec, arguments).and_then(|()| (spec.handler)(session, arguments)),
        };
        if spec.is_none_or(|spec| spec.name != "client") {
            session.end_caching_exception();
        }
        Dispatched::Action(result.unwrap_or_else(|failure| {
            session.fail(&failure);
            // Browsers can be made to send such lines to any port; what follows them is not a
            // command.
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

/// Whether a client of RESP2 may send the command while it has subscribed to a channel.
fn is_allowed_to_subscribers(spec: &CommandSpec) -> bool {
    ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ping", "quit", "reset"].contains(&spec.name)
}

/// Whether a command of this arity may have so many arguments.
pub fn admits(arity: i64, count: usize) -> bool {
    let count = count as i64;
    if arity >= 0 { count == arity } else { count >= -arity }
}

/// Whether this is an HTTP request, which is answered in HTTP.
fn is_http_request(arguments: CommandArguments<'_>) -> bool {
    let words = (arguments.get(0), arguments.get(1), arguments.get(2));
    let (Some(method), Some(target), Some(version)) = words else { return false };
    arguments.len() == 3 && is_http_request_line(method, target, version)
}

fn is_of_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The error for too few or too many arguments.
pub fn wrong_arity(name: &str) -> Failure {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

fn unknown(name: &[u8], arguments: CommandArguments<'_>) -> Failure {
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
        let table = CommandTable::new();
        for name in ["get", "GET", "Get", "tl.GET", "pexpiretime"] {
            assert_eq!(table.find(name.as_bytes()).unwrap().name, name.to_ascii_lowercase());
        }
        for name in ["", "gett", "get\0", "a name that is longer than any"] {
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
