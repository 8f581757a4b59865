//! Traced requests: which nodes worked on a request, and on what.
//!
//! The shell decides which requests are traced, and gives each a [`TraceContext`]. Every node that
//! works on such a request reports one span: [`Actions::spans`](crate::event::Actions::spans) says
//! when it begins and ends, and what happened in between. The shell adds times and exports them.
//! The context is sent along when a request is forwarded, so spans of several nodes form a tree.
//!
//! People read spans. No decision depends on them, and a shell may drop them.
//!
//! Trace and span ids are those of W3C Trace Context, section 3.2.2.

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;

use crate::codec::{DecodeError, Decoder};
use crate::types::{LogIndex, NodeId, ShardId};

/// Identifies all spans of one request. Not all of its bytes are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// Identifies one span of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(NonZeroU64);

/// The trace of a request, and the span of the one who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span to which the spans of the request belong.
    pub parent: SpanId,
}

impl TraceId {
    /// The id with these bytes; `None` if all are zero.
    pub fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// The id with this number, whose bytes are big-endian; `None` for zero.
    pub fn new(number: u64) -> Option<SpanId> {
        NonZeroU64::new(number).map(SpanId)
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

impl TraceContext {
    /// Appends the context: the id of the trace, then that of the span.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trace.0);
        out.extend_from_slice(&self.parent.number().to_be_bytes());
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<TraceContext, DecodeError> {
        let trace = TraceId::new(decoder.array()?).ok_or(DecodeError::Invalid("id of a trace"))?;
        let number = u64::from_be_bytes(decoder.array()?);
        let parent = SpanId::new(number).ok_or(DecodeError::Invalid("id of a span"))?;
        Ok(TraceContext { trace, parent })
    }
}

/// A step of the work of this node on a traced request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanEvent {
    /// The span of this node's work.
    pub span: SpanId,
    /// What happened.
    pub step: SpanStep,
}

/// What happened to a traced request on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanStep {
    /// The first event of a span: this node accepted the request.
    Begun {
        /// The trace, and the span of the one who made the request.
        context: TraceContext,
        /// What is done.
        work: TracedWork,
    },
    /// No leader is known, or no node can be asked. The request waits here.
    Held,
    /// The request was sent to another node.
    Forwarded {
        /// The node.
        to: NodeId,
        /// The shard that should execute it.
        shard: ShardId,
    },
    /// The write is in the log of this node, which leads the shard, and is sent to the other
    /// replicas. Before, it waited for earlier writes.
    Logged {
        /// The shard.
        shard: ShardId,
        /// The index of its entry.
        index: LogIndex,
    },
    /// The last event of a span.
    Ended(SpanEnd),
}

/// What a node does for a traced request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedWork {
    /// It handles a write of a client.
    Write,
    /// It handles a read of a client.
    Read,
    /// It leads the shard and proposes the write of another node.
    ForwardedWrite {
        /// The node that handles the client's request.
        from: NodeId,
        /// The shard.
        shard: ShardId,
    },
    /// It has a replica of the shard and answers the read of another node.
    ForwardedRead {
        /// The node that handles the client's request.
        from: NodeId,
        /// The shard.
        shard: ShardId,
    },
}

/// How the work on a traced request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanEnd {
    /// It was done. A condition of the request that did not hold is an answer, too.
    Done,
    /// It was refused and had no effect.
    Refused,
    /// This node could not do it, and the node that handles the client's request tries again.
    Retried,
    /// This node does not know whether it was done.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn contexts_round_trip_and_zero_is_refused() {
        let trace = TraceId::new(*b"0123456789abcdef").expect("not zero");
        let context = TraceContext { trace, parent: SpanId::new(7).expect("not zero") };
        let mut out = vec![];
        context.encode(&mut out);
        assert_eq!(out.len(), 24);
        assert_eq!(TraceContext::decode(&mut Decoder::new(&out)), Ok(context));
        assert_eq!(context.trace.to_string(), "30313233343536373839616263646566");
        assert_eq!(context.parent.to_string(), "0000000000000007");
        let zero_span = [&out[..16], &[0; 8]].concat();
        let no_span = TraceContext::decode(&mut Decoder::new(&zero_span));
        assert_eq!(no_span, Err(DecodeError::Invalid("id of a span")));
        let zero_trace = [&[0; 16], &out[16..]].concat();
        let no_trace = TraceContext::decode(&mut Decoder::new(&zero_trace));
        assert_eq!(no_trace, Err(DecodeError::Invalid("id of a trace")));
    }
}
