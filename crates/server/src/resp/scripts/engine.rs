//! The Lua interpreter that runs scripts, one at a time.
//!
//! Owns the sandbox: the functions that scripts are given, and the limits of a run. `prelude.lua`
//! builds the environment of each script from these functions. An interpreter serves all scripts of
//! its thread, because creating one takes longer than most scripts; it is replaced after a run that
//! exceeded a limit.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mlua::chunk::ChunkMode;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value, Variadic,
    VmState,
};
use rustix::time::{ClockId, clock_gettime};
use tidelock_core::limits::{
    SCRIPT_INSTRUCTIONS_MAX, SCRIPT_LOG_LINES_MAX, SCRIPT_MEMORY_BYTES_MAX, SCRIPT_TEXT_BYTES_MAX,
    SCRIPT_TIME_MS_MAX,
};

use super::super::commands::node::REDIS_VERSION;
use super::super::dispatch::CommandTable;
use super::super::encode::Protocol;
use super::cache::ScriptDigest;
use super::commands::ScriptCommands;
use super::{RunResult, ScriptRun, bits, convert, json, patterns};

const PRELUDE: &str = include_str!("prelude.lua");

/// The name of every script in messages.
const CHUNK_NAME: &str = "@user_script";

/// After this many instructions of Lua the limits are checked.
const INSTRUCTIONS_PER_CHECK: u32 = 100;

/// Garbage of earlier runs is collected before a run once there is this much.
const GARBAGE_BYTES_MAX: usize = 1 << 20;

/// Frames of the stack in which the line of an error is looked for.
const STACK_LEVELS_MAX: usize = 16;

/// An interpreter with its functions.
pub struct Engine {
    lua: Lua,
    /// Bytes that the interpreter takes before any script.
    base_bytes: usize,
    environment: Function,
    run: Function,
    limits: Rc<RunLimits>,
    commands: Commands,
}

/// The commands of the present run, if there is one.
type Commands = Rc<RefCell<Option<ScriptCommands>>>;

/// How far a run may still go.
#[derive(Debug)]
struct RunLimits {
    instructions: Cell<u64>,
    begun: Cell<Duration>,
    log_lines: Cell<u32>,
    exceeded: Cell<Option<&'static str>>,
}

/// How long a processor has worked for this thread. A busy machine does not end scripts.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl RunLimits {
    fn begin(&self) {
        self.instructions.set(0);
        self.begun.set(thread_time());
        self.log_lines.set(0);
        self.exceeded.set(None);
    }

    /// Counts instructions, and returns the error of the limit that is exceeded.
    fn check(&self) -> Option<&'static str> {
        self.instructions.set(self.instructions.get() + u64::from(INSTRUCTIONS_PER_CHECK));
        if self.instructions.get() > SCRIPT_INSTRUCTIONS_MAX
            || thread_time().saturating_sub(self.begun.get()) > Duration::from_millis(SCRIPT_TIME_MS_MAX)
        {
            self.exceeded.set(Some(RAN_TOO_LONG));
        }
        self.exceeded.get()
    }
}

impl Engine {
    /// Creates an interpreter.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> Result<Engine> {
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
        let limits = Rc::new(RunLimits {
            instructions: Cell::new(0),
            begun: Cell::new(thread_time()),
            log_lines: Cell::new(0),
            exceeded: Cell::new(None),
        });
        let commands = Commands::default();
        let host = host(&lua, &limits, &commands)?;
        let prelude = lua.load(PRELUDE).set_name("@prelude").into_function()?;
        let (environment, run) = prelude.call((host,))?;
        let checked = limits.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_CHECK);
        lua.set_hook(triggers, move |_, _| match checked.check() {
            Some(text) => Err(mlua::Error::RuntimeError(text.to_owned())),
            None => Ok(VmState::Continue),
        })?;
        lua.gc_collect()?;
        let base_bytes = lua.used_memory();
        lua.set_memory_limit(base_bytes + SCRIPT_MEMORY_BYTES_MAX)?;
        Ok(Engine { lua, base_bytes, environment, run, limits, commands })
    }

    /// Whether the next script needs another interpreter: a limit may have ended this one anywhere,
    /// or it holds too much garbage.
    pub fn must_be_replaced(&self) -> bool {
        self.limits.exceeded.get().is_some() || self.lua.used_memory() > self.base_bytes + GARBAGE_BYTES_MAX
    }

    /// Bytes that the interpreter takes.
    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Compiles a script without running it.
    ///
    /// # Errors
    /// The text of the error.
    pub fn check(&mut self, source: &[u8]) -> std::result::Result<(), String> {
        self.limits.begin();
        self.compile(source).map(drop)
    }

    /// Runs a script.
    pub fn run(&mut self, run: ScriptRun) -> RunResult {
        self.limits.begin();
        let (protocol, digest) = (run.commands.protocol, run.digest);
        let mut commands = run.commands;
        // Scripts begin with replies in version 2, whatever their client speaks.
        commands.protocol = Protocol::Resp2;
        let function = match self.compile(&run.source) {
            Ok(function) => function,
            Err(text) => return RunResult::NotCompiled(text),
        };
        *self.commands.borrow_mut() = Some(commands);
        let result = self.execute(&function, (&run.keys, &run.arguments));
        let result = result.and_then(|result| match result {
            Ok(value) => convert::encode(&value, protocol).map(Ok),
            Err(failure) => Ok(Err(failure)),
        });
        let commands = self.commands.borrow_mut().take().expect("invariant: the run has begun");
        match result {
            Ok(Ok(reply)) => RunResult::Finished { keys: commands.keys, reply },
            Ok(Err(failure)) => RunResult::Failed(failure.text(digest)),
            Err(_) => RunResult::Failed(match self.limits.exceeded.get() {
                Some(text) => text.to_owned(),
                None => OUT_OF_MEMORY.to_owned(),
            }),
        }
    }

    fn compile(&self, source: &[u8]) -> std::result::Result<Function, String> {
        let source = without_shebang(source)?;
        let chunk = self.lua.load(&*source).set_name(CHUNK_NAME).set_mode(ChunkMode::Text);
        chunk.into_function().map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => {
                format!("ERR Error compiling script (new function): {message}")
            }
            _ => OUT_OF_MEMORY.to_owned(),
        })
    }

    fn execute(
        &self,
        function: &Function,
        (keys, arguments): (&[bytes::Bytes], &[bytes::Bytes]),
    ) -> Result<std::result::Result<Value, ScriptError>> {
        let texts = |texts: &[bytes::Bytes]| -> Result<Table> {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for (place, text) in (1..).zip(texts) {
                table.raw_set(place, self.lua.create_string(text)?)?;
            }
            Ok(table)
        };
        let environment: Table = self.environment.call((texts(keys)?, texts(arguments)?))?;
        function.set_environment(environment)?;
        let (is_done, value): (bool, Value) = self.run.call((function,))?;
        Ok(if is_done { Ok(value) } else { Err(ScriptError::of(&value)?) })
    }
}

const RAN_TOO_LONG: &str =
    "ERR the script ran too long: more than 10000000 instructions, or 1 second; nothing was done";

const OUT_OF_MEMORY: &str = "ERR the script ran out of memory; nothing was done";

/// The error that ended a script.
struct ScriptError {
    text: String,
    line: Option<i64>,
}

impl ScriptError {
    fn of(value: &Value) -> Result<ScriptError> {
        let unknown = || ScriptError { text: OUT_OF_MEMORY.to_owned(), line: None };
        let Value::Table(table) = value else { return Ok(unknown()) };
        let text = match table.raw_get::<Value>("err")? {
            Value::String(text) => text.to_string_lossy(),
            _ => "ERR unknown error".to_owned(),
        };
        let line = match table.raw_get::<Value>("line")? {
            Value::Integer(line) => Some(line),
            _ => None,
        };
        Ok(ScriptError { text, line })
    }

    /// The text in the form of Redis.
    fn text(&self, digest: ScriptDigest) -> String {
        match self.line {
            Some(line) => format!("{} script: {}, on {CHUNK_NAME}:{line}.", self.text, digest.text()),
            None => self.text.clone(),
        }
    }
}

/// The flags that the first line of a script may have. All but `no-writes` allow what is allowed
/// here anyway, or forbid what is not there.
const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// A script without its first line, if that names the engine: `#!lua`, with flags behind it.
fn without_shebang(source: &[u8]) -> std::result::Result<std::borrow::Cow<'_, [u8]>, String> {
    if !source.starts_with(b"#!") {
        return Ok(source.into());
    }
    let end = source.iter().position(|byte| *byte == b'\n').unwrap_or(source.len());
    let line = String::from_utf8_lossy(&source[2..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some("lua") => {}
        other => {
            return Err(format!("ERR Unexpected engine in script shebang: {}", other.unwrap_or_default()));
        }
    }
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        if let Some(flag) = flags.split(',').find(|flag| !flag.is_empty() && !FLAGS.contains(flag)) {
            return Err(format!("ERR Unexpected flag in script shebang: {flag}"));
        }
    }
    // A comment, so that the numbers of lines do not change.
    Ok([b"--".as_slice(), &source[2..]].concat().into())
}

/// Whether the first line of a script forbids it to write.
pub fn forbids_writes(source: &[u8]) -> bool {
    let line = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.strip_prefix(b"#!").unwrap_or_default().split(u8::is_ascii_whitespace);
    words.any(|word| {
        let flags = word.strip_prefix(b"flags=");
        flags.is_some_and(|flags| flags.split(|byte| *byte == b',').any(|flag| flag == b"no-writes"))
    })
}

/// The functions and values that `prelude.lua` takes.
fn host(lua: &Lua, limits: &Rc<RunLimits>, commands: &Commands) -> Result<Table> {
    let host = lua.create_table()?;
    host.set("bit", bits::library(lua)?)?;
    host.set("redis_version", REDIS_VERSION)?;
    host.set("redis_version_number", version_number(REDIS_VERSION))?;
    host.set("sha1hex", lua.create_function(|lua, value: Value| sha1hex(lua, &value))?)?;
    host.set("line", lua.create_function(|lua, ()| Ok(line_of_script(lua)))?)?;
    add_limits(lua, &host, limits)?;
    add_guards(lua, &host)?;
    add_json(lua, &host)?;
    add_commands(lua, &host, commands)?;
    Ok(host)
}

fn add_limits(lua: &Lua, host: &Table, limits: &Rc<RunLimits>) -> Result<()> {
    let exceeded = limits.clone();
    host.set("is_over", lua.create_function(move |_, ()| Ok(exceeded.exceeded.get().is_some()))?)?;
    let exceeded = limits.clone();
    host.set("limit", lua.create_function(move |_, ()| Ok(exceeded.exceeded.get()))?)?;
    let limits = limits.clone();
    let log = move |lua: &Lua, values: Variadic<Value>| {
        limits.log_lines.set(limits.log_lines.get() + 1);
        if limits.log_lines.get() <= SCRIPT_LOG_LINES_MAX {
            let text: Vec<String> = values.iter().filter_map(|value| text_of(lua, value)).collect();
            let message: String = text.join(" ").chars().take(1_024).collect();
            tracing::debug!(message, "a script logged");
        }
        Ok(())
    };
    host.set("log", lua.create_function(log)?)
}

fn add_guards(lua: &Lua, host: &Table) -> Result<()> {
    let check_pattern = |lua: &Lua, (text, pattern, is_plain): (Value, Value, bool)| {
        let texts = (lua.coerce_string(text)?, lua.coerce_string(pattern)?);
        // The library refuses what is no text.
        let (Some(text), Some(pattern)) = texts else { return Ok(None) };
        Ok(patterns::refuse_pattern(&text.as_bytes(), &pattern.as_bytes(), is_plain))
    };
    host.set("check_pattern", lua.create_function(check_pattern)?)?;
    let check_repetition = |lua: &Lua, (text, count): (Value, Value)| {
        let (text, count) = (lua.coerce_string(text)?, lua.coerce_number(count)?);
        let (Some(text), Some(count)) = (text, count) else { return Ok(None) };
        Ok(patterns::refuse_repetition(&text.as_bytes(), count))
    };
    host.set("check_repetition", lua.create_function(check_repetition)?)
}

fn add_json(lua: &Lua, host: &Table) -> Result<()> {
    let encode = |lua: &Lua, value: Value| match json::encode(lua, &value) {
        Ok(text) => Ok((Some(lua.create_string(text)?), None)),
        Err(failure) => Ok((None, Some(failure))),
    };
    host.set("json_encode", lua.create_function(encode)?)?;
    let decode = |lua: &Lua, value: Value| {
        let Some(text) = lua.coerce_string(value)? else {
            return Ok((Value::Nil, Some("bad argument #1 to 'decode' (string expected)".to_owned())));
        };
        Ok(match json::decode(lua, &text.as_bytes()) {
            Ok(value) => (value, None),
            Err(failure) => (Value::Nil, Some(failure)),
        })
    };
    host.set("json_decode", lua.create_function(decode)?)?;
    host.set("json_null", Value::NULL)
}

fn add_commands(lua: &Lua, host: &Table, commands: &Commands) -> Result<()> {
    let (table, running) = (CommandTable::new(), commands.clone());
    let call = move |lua: &Lua, values: MultiValue| {
        let arguments = match arguments(lua, &values) {
            Ok(arguments) => arguments,
            Err(text) => return convert::value_of_reply(lua, format!("-ERR {text}\r\n").as_bytes()),
        };
        let reply = running.borrow_mut().as_mut().map(|commands| commands.call(&table, &arguments));
        convert::value_of_reply(lua, &reply.unwrap_or_default())
    };
    host.set("call", lua.create_function(call)?)?;
    let running = commands.clone();
    let set_resp = move |_: &Lua, version: u8| {
        if let Some(commands) = running.borrow_mut().as_mut() {
            commands.protocol = if version == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
        }
        Ok(())
    };
    host.set("set_resp", lua.create_function(set_resp)?)
}

/// The arguments of a command, or why they are none. A script may name one long text many times, so
/// they are counted before they are copied.
fn arguments(lua: &Lua, values: &MultiValue) -> std::result::Result<Vec<Vec<u8>>, &'static str> {
    let mut arguments = Vec::with_capacity(values.len());
    let mut bytes = 0;
    for value in values {
        bytes += if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
        if bytes > SCRIPT_TEXT_BYTES_MAX {
            return Err("a command of a script has at most 8 MiB");
        }
        let argument =
            argument(lua, value).ok_or("Lua redis lib command arguments must be strings or integers")?;
        arguments.push(argument);
    }
    Ok(arguments)
}

/// An argument of a command: a text, or a number as Redis writes it.
fn argument(lua: &Lua, value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        // With 17 digits, so that no digit of a number is lost.
        Value::Number(number) if number.is_finite() => Some(format_number(*number).into_bytes()),
        Value::Number(_) => text_of(lua, value).map(String::into_bytes),
        _ => None,
    }
}

/// The shortest of the forms `%.17g` that reads as the same number: exponents only for numbers that
/// would take many zeros.
fn format_number(number: f64) -> String {
    if number == number.trunc() && number.abs() < 1e17 {
        return format!("{number:.0}");
    }
    let magnitude = number.abs();
    if (1e-4..1e17).contains(&magnitude) { format!("{number}") } else { format!("{number:e}") }
}

fn text_of(lua: &Lua, value: &Value) -> Option<String> {
    let text: Option<LuaString> = lua.coerce_string(value.clone()).ok()?;
    text.map(|text| text.to_string_lossy())
}

fn sha1hex(lua: &Lua, value: &Value) -> Result<String> {
    let text = lua.coerce_string(value.clone())?;
    Ok(ScriptDigest::of(text.as_ref().map(|text| text.as_bytes()).as_deref().unwrap_or_default()).text())
}

/// The line at which the innermost function of the script is.
fn line_of_script(lua: &Lua) -> Option<usize> {
    (0..STACK_LEVELS_MAX)
        .map_while(|level| {
            lua.inspect_stack(level, |frame| {
                let is_script = frame.source().source.as_deref() == Some(CHUNK_NAME);
                frame.current_line().filter(|_| is_script)
            })
        })
        .flatten()
        .next()
}

/// A release as a number: a byte each for its three parts.
fn version_number(release: &str) -> u32 {
    release.split('.').filter_map(|part| part.parse::<u32>().ok()).fold(0, |number, part| number << 8 | part)
}
