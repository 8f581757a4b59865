//! Scripts: `EVAL`, `EVALSHA`, `SCRIPT` and related commands.
//!
//! Owns how a script gets from a command to its reply. [`ScriptRequest`] decides what is asked of
//! the store.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tidelock_core::clients::Unanswered;
use tidelock_core::clients::script::{ScriptAction, ScriptFailure, ScriptKeys, ScriptRequest};
use tidelock_core::command::Consistency;
use tidelock_core::deliberate::Faults;
use tidelock_core::limits::SCRIPT_BYTES_MAX;
use tidelock_core::slots::slot_of;

use super::super::RespContext;
use super::super::authentication::OperationPermissions;
use super::super::dyn_store::DynStore;
use super::super::encode::Protocol;
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::replies::refusal_text;
use super::super::scripts::cache::ScriptDigest;
use super::super::scripts::latches::ScriptLatch;
use super::super::scripts::{RunResult, ScriptCommands, ScriptRun, forbids_writes};
use super::super::session::{Action, Failure, Session};
use super::scan::{consistency, encoded};
use super::{Result, integer, is};
use crate::memory::Reservation;

/// `EVAL script numkeys [key …] [argument …]`
pub fn eval(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    run(session, arguments, Script::sent(&arguments[1], false)?)
}

/// `EVAL_RO script numkeys [key …] [argument …]`
pub fn eval_ro(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    run(session, arguments, Script::sent(&arguments[1], true)?)
}

/// `EVALSHA digest numkeys [key …] [argument …]`
pub fn evalsha(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let script = Script::cached(session, &arguments[1], false)?;
    run(session, arguments, script)
}

/// `EVALSHA_RO digest numkeys [key …] [argument …]`
pub fn evalsha_ro(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let script = Script::cached(session, &arguments[1], true)?;
    run(session, arguments, script)
}

/// `SCRIPT LOAD script|EXISTS digest [digest …]|FLUSH [ASYNC|SYNC]`
pub fn script(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let subcommand = &arguments[1];
    match arguments.len() {
        3 if is(subcommand, "load") => load(session, &arguments[2]),
        3.. if is(subcommand, "exists") => {
            let cache = &session.context.scripts.cache;
            let is_cached = |text| ScriptDigest::parse(text).is_some_and(|digest| cache.contains(digest));
            let found: Vec<bool> = arguments.from(2).map(is_cached).collect();
            session.reply(|encoder| {
                encoder.array(found.len());
                found.iter().for_each(|found| encoder.integer((*found).into()));
            })
        }
        2 | 3 if is(subcommand, "flush") => {
            if arguments.get(2).is_some_and(|mode| !is(mode, "async") && !is(mode, "sync")) {
                return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
            }
            session.context.scripts.cache.clear();
            session.ok()
        }
        _ => {
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for 'script|{}'; known are LOAD, EXISTS and FLUSH",
                String::from_utf8_lossy(subcommand)
            );
            Err(text.into())
        }
    }
}

fn load(session: &mut Session, source: &[u8]) -> Result {
    let Script { source, digest, .. } = Script::sent(source, false)?;
    let (scripts, protocol) = (session.context.scripts.clone(), session.protocol);
    Ok(Action::Wait(Box::pin(async move {
        let checked = scripts.check(source.clone()).await;
        encoded(protocol, |encoder| match checked {
            Ok(()) => {
                scripts.cache.insert(digest, source);
                encoder.bulk(digest.text().as_bytes());
            }
            Err(failure) => encoder.error(&failure),
        })
    })))
}

/// A script to run.
struct Script {
    source: Arc<[u8]>,
    digest: ScriptDigest,
    is_readonly: bool,
    /// Whether the node remembers it already.
    is_cached: bool,
}

impl Script {
    fn sent(source: &[u8], is_readonly: bool) -> Result<Script> {
        if source.len() > SCRIPT_BYTES_MAX {
            return Err("ERR a script has at most 1 MiB".into());
        }
        let digest = ScriptDigest::of(source);
        Ok(Script {
            digest,
            is_readonly: is_readonly || forbids_writes(source),
            source: source.into(),
            is_cached: false,
        })
    }

    fn cached(session: &Session, digest: &[u8], is_readonly: bool) -> Result<Script> {
        const UNKNOWN: &str = "NOSCRIPT No matching script. Please use EVAL.";
        let digest = ScriptDigest::parse(digest).ok_or(UNKNOWN)?;
        let source = session.context.scripts.cache.get(digest).ok_or(UNKNOWN)?;
        let is_readonly = is_readonly || forbids_writes(&source);
        Ok(Script { source, digest, is_readonly, is_cached: true })
    }
}

/// A script on its way to its reply.
struct Execution {
    script: Script,
    keys: Arc<[Bytes]>,
    arguments: Arc<[Bytes]>,
    consistency: Consistency,
    protocol: Protocol,
    permissions: Option<OperationPermissions>,
    store: Rc<dyn DynStore>,
    context: Rc<RespContext>,
    memory: Reservation,
}

fn run(session: &mut Session, arguments: CommandArguments<'_>, script: Script) -> Result {
    let count = integer(&arguments[2])?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    if count > arguments.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let mut texts = arguments.from(3).map(Bytes::copy_from_slice);
    let keys: Arc<[Bytes]> = texts.by_ref().take(count).collect();
    session.track_keys(&keys);
    // What it writes depends on what it reads.
    let consistency = if script.is_readonly { consistency(session) } else { Consistency::Linearizable };
    let execution = Execution {
        script,
        keys,
        arguments: texts.collect(),
        consistency,
        protocol: session.protocol,
        permissions: session.authentication.operation_permissions(&session.clock),
        store: session.store.clone(),
        context: session.context.clone(),
        memory: session.context.memory.request(),
    };
    Ok(Action::Wait(Box::pin(async move {
        let protocol = execution.protocol;
        execution.run().await.unwrap_or_else(|failure| encoded(protocol, |encoder| encoder.error(&failure)))
    })))
}

impl Execution {
    async fn run(mut self) -> Result<Vec<u8>> {
        self.hold(0).await?;
        let begun = ScriptRequest::begin(self.keys.iter().cloned(), self.consistency, Faults::NONE);
        let (mut request, mut action) = begun.map_err(failure)?;
        let mut latch = match self.keys.first() {
            Some(key) => self.context.script_latches.join(slot_of(key)).await,
            None => None,
        };
        let mut reply = Vec::new();
        loop {
            action = match action {
                ScriptAction::Ask(asked) => {
                    if latch.is_none() && request.is_repeated() {
                        latch = self.take_latch().await;
                    }
                    request.answered(self.store.submit(asked).await)
                }
                ScriptAction::Run(keys) => {
                    self.hold(keys.value_bytes()).await?;
                    let (keys, returned) = self.run_once(keys).await?;
                    self.hold(keys.value_bytes()).await?;
                    reply = returned;
                    request.finished(&keys)
                }
                ScriptAction::Done(result) => return result.map(|()| reply).map_err(failure),
            }
        }
    }

    async fn take_latch(&self) -> Option<ScriptLatch> {
        let slot = slot_of(self.keys.first()?);
        Some(self.context.script_latches.begin(slot).await)
    }

    async fn run_once(&mut self, keys: Box<ScriptKeys>) -> Result<(Box<ScriptKeys>, Vec<u8>)> {
        let shard = self.keys.first().map(|key| self.store.shard_of(key));
        let commands = ScriptCommands {
            keys,
            permissions: self.permissions.clone(),
            is_readonly: self.script.is_readonly,
            now: self.context.clock.now(),
            leader_ahead_ms: shard.map_or(0, |shard| self.store.leader_ahead_ms(shard)),
            protocol: self.protocol,
        };
        let run = ScriptRun {
            source: self.script.source.clone(),
            digest: self.script.digest,
            keys: self.keys.clone(),
            arguments: self.arguments.clone(),
            commands,
        };
        let result = self.context.scripts.run(run).await?;
        if !self.script.is_cached && !matches!(result, RunResult::NotCompiled(_)) {
            self.context.scripts.cache.insert(self.script.digest, self.script.source.clone());
            self.script.is_cached = true;
        }
        match result {
            RunResult::Finished { keys, reply } => Ok((keys, reply)),
            RunResult::Failed(text) | RunResult::NotCompiled(text) => Err(text.into()),
        }
    }

    /// Holds memory for the script, its arguments and the values of its keys, twice: a copy of the
    /// keys becomes the effect. What the interpreter takes is not counted: it is bounded, and there
    /// is one.
    async fn hold(&mut self, value_bytes: usize) -> Result<()> {
        let texts: usize = self.keys.iter().chain(&*self.arguments).map(Bytes::len).sum();
        let bytes = self.script.source.len() + texts + 2 * value_bytes;
        self.memory.grow_to(bytes).await.map_err(|exhausted| format!("TRYAGAIN {exhausted}").into())
    }
}

fn failure(failure: ScriptFailure) -> Failure {
    let code = match &failure {
        ScriptFailure::CrossSlot => "CROSSSLOT",
        ScriptFailure::Conflict => "TRYAGAIN",
        ScriptFailure::Unanswered(Unanswered::Refused(refusal)) => return refusal_text(refusal).into(),
        ScriptFailure::TooManyKeys
        | ScriptFailure::BoundKey
        | ScriptFailure::ValuesTooLong
        | ScriptFailure::Unanswered(Unanswered::Mismatched) => "ERR",
    };
    format!("{code} {failure}").into()
}
