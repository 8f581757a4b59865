//! The requests and replies of clients, in one total order.
//!
//! Owns the record from which checkers judge client-visible behaviour. A [`Moment`] is a position
//! in the order in which requests entered and replies left the nodes: an operation that completed
//! at an earlier moment than another was invoked came before it in real time. It checks nothing;
//! `checkers` does.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tidelock_core::command::config::{ConfigWritten, Name};
use tidelock_core::command::{OperationReply, Refusal, Reply, Request, Write, WriteReply};
use tidelock_core::types::{NodeId, Token, Version};

/// A position in the order of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Later than everything: when an operation of unknown outcome completes.
    pub const NEVER: Moment = Moment(u64::MAX);
}

/// The process that was asked: a node, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation {
    /// The node that was asked.
    pub node: NodeId,
    /// Number of the start of its process, from 1.
    pub life: u64,
}

/// One request and its outcome.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Identifies it; unique in the run, and contained in every value that it puts.
    pub token: Token,
    /// The process that took the request.
    pub at: Incarnation,
    /// The request as the client sent it.
    pub request: Request,
    /// Position at which the request entered the node.
    pub invoked: Moment,
    /// `Open` until the node replies or its process dies.
    pub outcome: Outcome,
    /// Whether it belongs to the final inspection of a healed cluster.
    pub is_final: bool,
    /// The version of the slot map by which the node that was asked owned all keys, when it was
    /// asked; `None` if it did not own all keys then or at the answer: another node may have
    /// answered.
    pub whole_map: Option<u64>,
    /// Whether the process that was asked answered from its own memory, at once.
    pub is_at_once: bool,
    /// Whether it carries operations of a connection that pipelines. Each of them is an operation
    /// of the history, too.
    pub is_carrier: bool,
}

/// The outcome of an operation, as far as a client without a timeout could know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No reply yet, and the process lives.
    Open,
    /// The node replied.
    Answered {
        /// Position at which the reply left the node.
        at: Moment,
        /// The reply as the client got it.
        reply: Reply,
    },
    /// The process that was asked died before it replied, or the client's connection ended.
    Lost,
}

/// Whether a write happened, as far as its outcome tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Its reply says so.
    Yes,
    /// Certainly not, and it never will.
    No,
    /// It may have happened, or may still happen.
    Unknown,
}

/// All operations of a run, in the order of their tokens.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    moments: u64,
}

impl History {
    /// The token that the next operation will have.
    pub fn next_token(&self) -> Token {
        Token(self.operations.len() as u64 + 1)
    }

    /// Records that a request enters a node.
    pub fn invoke(&mut self, at: Incarnation, request: Request, is_final: bool) -> Token {
        let token = self.next_token();
        let invoked = self.moment();
        let outcome = Outcome::Open;
        let (whole_map, is_at_once) = (Some(0), false);
        self.operations.push(Operation {
            token,
            at,
            request,
            invoked,
            outcome,
            is_final,
            whole_map,
            is_at_once,
            is_carrier: false,
        });
        token
    }

    /// Records a reply. Returns `false` if the operation was not open, and records nothing then.
    pub fn answer(&mut self, token: Token, reply: Reply) -> bool {
        let at = self.moment();
        match self.operation_mut(token) {
            Some(operation) if operation.outcome == Outcome::Open => {
                operation.outcome = Outcome::Answered { at, reply };
                true
            }
            _ => false,
        }
    }

    /// Records that the process that was asked answers from its own memory.
    pub fn answered_at_once(&mut self, token: Token) {
        if let Some(operation) = self.operation_mut(token) {
            operation.is_at_once = true;
        }
    }

    /// Records that an operation carries others, see [`Operation::is_carrier`].
    pub fn carries(&mut self, token: Token) {
        if let Some(operation) = self.operation_mut(token) {
            operation.is_carrier = true;
        }
    }

    /// Records that a client gave up an operation, if it is open: it is never answered.
    pub fn abandon(&mut self, token: Token) {
        if let Some(operation) =
            self.operation_mut(token).filter(|operation| operation.outcome == Outcome::Open)
        {
            operation.outcome = Outcome::Lost;
        }
    }

    /// Records whether a node could answer by itself when it was asked, and by which slot map.
    pub fn asked_of(&mut self, token: Token, whole_map: Option<u64>) {
        if let Some(operation) = self.operation_mut(token) {
            operation.whole_map = whole_map;
        }
    }

    /// Records the same at the answer. If slots were frozen, moved and owned again in between, the
    /// map's version differs.
    pub fn answered_with(&mut self, token: Token, whole_map: Option<u64>) {
        if let Some(operation) =
            self.operation_mut(token).filter(|operation| operation.whole_map != whole_map)
        {
            operation.whole_map = None;
        }
    }

    fn operation_mut(&mut self, token: Token) -> Option<&mut Operation> {
        (token.0 as usize).checked_sub(1).and_then(|index| self.operations.get_mut(index))
    }

    /// Records that a process died: its open operations are never answered.
    pub fn lose(&mut self, at: Incarnation) {
        for operation in &mut self.operations {
            if operation.at == at && operation.outcome == Outcome::Open {
                operation.outcome = Outcome::Lost;
            }
        }
    }

    /// The operation of a token; `None` if there never was one.
    pub fn operation(&self, token: Token) -> Option<&Operation> {
        self.operations.get((token.0 as usize).checked_sub(1)?)
    }

    /// The operations of clients, in the order of their invocation: all but those that only carry
    /// others.
    pub fn of_clients(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(|operation| !operation.is_carrier)
    }

    /// All operations, in the order of their invocation.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    fn moment(&mut self) -> Moment {
        self.moments += 1;
        Moment(self.moments)
    }
}

impl Operation {
    /// The reply, if there was one.
    pub fn reply(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Answered { reply, .. } => Some(reply),
            Outcome::Open | Outcome::Lost => None,
        }
    }

    /// When it was answered, or never.
    pub fn completed(&self) -> Moment {
        match self.outcome {
            Outcome::Answered { at, .. } => at,
            Outcome::Open | Outcome::Lost => Moment::NEVER,
        }
    }

    /// Whether this write changed the state, as far as its reply tells.
    pub fn happened(&self) -> Happened {
        match self.reply() {
            None | Some(Reply::Refused(Refusal::UnknownOutcome)) => Happened::Unknown,
            Some(Reply::Write(
                WriteReply::Branched { .. }
                | WriteReply::Registered
                | WriteReply::Restored
                | WriteReply::Joined { .. }
                | WriteReply::AccessChanged { .. }
                | WriteReply::HostChanged,
            )) => Happened::Yes,
            Some(Reply::Write(WriteReply::Operations(replies))) => match replies.only() {
                Some(
                    OperationReply::Absent
                    | OperationReply::ConditionFailed { .. }
                    | OperationReply::Rejected(_),
                ) => Happened::No,
                _ => Happened::Yes,
            },
            Some(Reply::Write(WriteReply::Config(Ok(ConfigWritten { changed: true, .. })))) => Happened::Yes,
            Some(_) => Happened::No,
        }
    }

    /// The process whose memory a stale read shows: the one that was asked, or, if another node may
    /// have answered, an incarnation that no other operation has.
    pub fn answered_by(&self) -> Incarnation {
        if self.is_at_once || self.whole_map.is_some() {
            self.at
        } else {
            Incarnation { node: NodeId(0), life: self.token.0 }
        }
    }

    /// The write, if it is one.
    pub fn write(&self) -> Option<&Write> {
        if let Request::Write(write) = &self.request { Some(write) } else { None }
    }
}

/// Bytes of a value that name the operation that put it.
pub const VALUE_BYTES_MIN: usize = 8;

/// The value that an operation puts: its token, and filler that depends on the token in every byte,
/// so that bytes of one value inside another are noticed.
pub fn value_of(token: Token, length: usize) -> Bytes {
    let mut value = Vec::with_capacity(length.max(VALUE_BYTES_MIN));
    value.extend_from_slice(&token.0.to_be_bytes());
    let filler = (value.len()..length).map(|offset| (token.0 as usize * 31 + offset) as u8);
    value.extend(filler);
    value.into()
}

/// The operation that put a value, as encoded in the value.
pub fn token_of(value: &[u8]) -> Option<Token> {
    let token = value.first_chunk::<VALUE_BYTES_MIN>()?;
    Some(Token(u64::from_be_bytes(*token)))
}

/// An answered run of a script that adds one to a counter, or only reads it. The counter is kept in
/// two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterRun {
    /// The first key of the counter.
    pub key: Bytes,
    /// The read of the keys.
    pub read: Token,
    /// The version of the first key in that read.
    pub version: Version,
    /// What both keys counted then.
    pub counts: [u64; 2],
    /// The write of the next count; `None`: the script only read.
    pub write: Option<Token>,
}

/// One finished iteration over all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// When its first step was requested.
    pub begun: Moment,
    /// When its last step was answered.
    pub ended: Moment,
    /// All keys that it returned.
    pub keys: BTreeSet<Bytes>,
}

/// An import that was answered with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedDocument {
    /// The namespace of the container.
    pub namespace: Name,
    /// Key of the container.
    pub container: Arc<str>,
    /// The document, as canonical JSON.
    pub document: String,
    /// The pairs of a whole namespace that replaced the content of the namespace; `None`: other
    /// content was kept.
    pub replaced_by: Option<BTreeSet<Arc<str>>>,
    /// The revision that the client expected, if it did.
    pub expected: Option<u64>,
    /// The request that published it.
    pub token: Token,
    /// The revision that the import returned.
    pub revision: u64,
}
