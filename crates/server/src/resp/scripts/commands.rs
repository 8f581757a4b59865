//! The commands of a running script.
//!
//! Owns how a call of `redis.call` finds its command, and what a script may not do. The commands
//! are those of clients ([`COMMANDS`](super::super::dispatch::COMMANDS)); their operations are
//! executed on the script's copy of its keys.

use tidelock_core::clients::operation_queues::OperationResult;
use tidelock_core::clients::script::{ScriptKeys, ScriptOperationError};
use tidelock_core::command::{Operation, OperationReplies, Operations};
use tidelock_core::types::UnixMillis;

use super::super::authentication::OperationPermissions;
use super::super::dispatch::{CommandTable, admits};
use super::super::encode::{Encoder, Protocol};
use super::super::executor::Executor;
use super::super::frame::Parser;
use super::super::replies::{Gathered, Render, RenderMany, Style, refusal_text};
use super::super::session::Failure;

const UNDECLARED: &str =
    "ERR Script attempted to access a key that it does not declare; name all keys of a script in KEYS";

/// Executes the commands of one run of a script.
#[derive(Debug)]
pub struct ScriptCommands {
    /// The keys of the script.
    pub keys: Box<ScriptKeys>,
    /// What the client of the script may do; `None`: everything.
    pub permissions: Option<OperationPermissions>,
    /// Whether commands that write are refused.
    pub is_readonly: bool,
    /// The time of the run by this node's clock. It does not pass during the run.
    pub now: UnixMillis,
    /// By how many milliseconds the clock of the leader of the keys is ahead of this node's.
    pub leader_ahead_ms: i64,
    /// In which the script gets replies.
    pub protocol: Protocol,
}

impl ScriptCommands {
    /// Executes one command, and returns its encoded reply.
    pub fn call(&mut self, table: &CommandTable, arguments: &[Vec<u8>]) -> Vec<u8> {
        self.execute(table, arguments).unwrap_or_else(|failure| {
            let mut out = Vec::new();
            Encoder::new(&mut out, self.protocol).error(&failure);
            out
        })
    }

    fn execute(&mut self, table: &CommandTable, arguments: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
        let Some(name) = arguments.first() else {
            return Err("ERR Please specify at least one argument for this redis lib call".into());
        };
        let spec = table.find(name).ok_or("ERR Unknown Redis command called from script")?;
        let handler = spec.in_scripts.ok_or("ERR This Redis command is not allowed from script")?;
        if !admits(spec.arity, arguments.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if self.is_readonly && spec.flags.contains(&"write") {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        let frame = frame_of(arguments);
        let mut parser = Parser::default();
        match parser.parse(&frame) {
            Ok(Some(_)) => handler(self, parser.arguments(&frame)),
            Ok(None) => Err("ERR the command is incomplete".into()),
            Err(error) => Err(format!("ERR {error}").into()),
        }
    }

    fn apply(&mut self, operations: &Operations) -> Result<OperationReplies, Failure> {
        for operation in operations.iter() {
            operation.validate().map_err(|refusal| refusal_text(&refusal.into()))?;
            if let Some(permissions) = &self.permissions {
                permissions.check(operation)?;
            }
        }
        let leader_time = UnixMillis(self.now.0.saturating_add_signed(self.leader_ahead_ms));
        self.keys.execute(operations, leader_time).map_err(|error| match error {
            ScriptOperationError::UndeclaredKey => UNDECLARED.into(),
            ScriptOperationError::ValuesTooLong => format!("ERR {error}").into(),
        })
    }
}

/// A script gets the encoded reply at once.
impl Executor for ScriptCommands {
    type Output = Vec<u8>;

    fn one(&mut self, operation: &Operation<'_>, render: Render) -> Result<Vec<u8>, Failure> {
        let replies = self.apply(&Operations::of(&[*operation]))?;
        let style = Style { protocol: self.protocol, now: self.now };
        let mut out = Vec::new();
        for reply in replies.iter() {
            render.encode(OperationResult::Reply(reply), style, &mut Encoder::new(&mut out, self.protocol));
        }
        Ok(out)
    }

    fn many<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Vec<u8>, Failure> {
        let operations: Vec<Operation<'a>> = operations.collect();
        let replies = self.apply(&Operations::of(&operations))?;
        let mut gathered = Gathered::new(render);
        replies.iter().for_each(|reply| gathered.add(OperationResult::Reply(reply), self.protocol));
        let mut out = Vec::new();
        gathered.encode(&mut Encoder::new(&mut out, self.protocol));
        Ok(out)
    }

    fn together<'a>(
        &mut self,
        operations: impl ExactSizeIterator<Item = Operation<'a>> + Clone,
        render: RenderMany,
    ) -> Result<Vec<u8>, Failure> {
        self.many(operations, render)
    }

    fn reply(&mut self, encode: impl FnOnce(&mut Encoder<'_>)) -> Result<Vec<u8>, Failure> {
        let mut out = Vec::new();
        encode(&mut Encoder::new(&mut out, self.protocol));
        Ok(out)
    }

    fn now(&self) -> UnixMillis {
        self.now
    }

    fn leader_ahead_ms(&self, _: &[u8]) -> i64 {
        self.leader_ahead_ms
    }
}

/// The command as a client would send it.
fn frame_of(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut encoder = Encoder::new(&mut frame, Protocol::Resp2);
    encoder.array(arguments.len());
    arguments.iter().for_each(|argument| encoder.bulk(argument));
    frame
}
