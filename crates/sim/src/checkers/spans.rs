//! Spans of traced requests: each belongs to a request that is traced, and ends once, by the time
//! at which the request must be answered.
//!
//! Owns the contexts that clients of the simulator send. A context that is sent to another node
//! begins at most one span there, so a request is not taken for one before it in the same frame.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidelock_core::spans::{SpanEvent, SpanId, SpanStep, TraceContext, TraceId, TracedWork};
use tidelock_core::types::{NodeId, Ticks, Token};

use super::Violation;
use super::online::{Observation, OnlineChecker};
use crate::event_queue::Micros;

/// Ticks by which a span may end later than its request must be answered: a forwarded write arrives
/// later than it was asked, and is given up at a tick.
const SLACK_TICKS: u64 = 2;

/// The context of a client's request; `None` if it is not traced.
pub fn context_of(token: Token) -> Option<TraceContext> {
    if !token.0.is_multiple_of(2) {
        return None;
    }
    let number = token.0 + 1;
    Some(TraceContext {
        trace: TraceId::new(u128::from(number).to_be_bytes())?,
        parent: SpanId::new(number)?,
    })
}

/// What is known of a span that has begun.
struct Known {
    trace: TraceId,
    node: NodeId,
    is_open: bool,
    /// How often its context was sent to another node.
    sent: u64,
    /// Spans that began on other nodes with its context.
    received: u64,
}

/// Judges the spans that nodes report.
pub struct Spans {
    request_ticks: u64,
    known: HashMap<SpanId, Known>,
    /// The spans of each node's process, in the order in which they began.
    begun: BTreeMap<NodeId, VecDeque<(Ticks, SpanId)>>,
}

impl Spans {
    /// For nodes that answer each request within so many ticks.
    pub fn new(request_ticks: u64) -> Spans {
        Spans { request_ticks, known: HashMap::new(), begun: BTreeMap::new() }
    }

    fn step(&mut self, (node, ticks): (NodeId, Ticks), event: &SpanEvent) -> Result<(), Violation> {
        let SpanEvent { span, step } = *event;
        if let SpanStep::Begun { context, work } = step {
            self.admit(context, work, node)?;
            let known = Known { trace: context.trace, node, is_open: true, sent: 0, received: 0 };
            if self.known.insert(span, known).is_some() {
                return Err(violation(node, span, "begins a second time"));
            }
            self.begun.entry(node).or_default().push_back((ticks, span));
            return Ok(());
        }
        let open = self.known.get_mut(&span).filter(|known| known.is_open && known.node == node);
        let known = open.ok_or_else(|| violation(node, span, "is not open, and something happens to it"))?;
        match step {
            SpanStep::Forwarded { .. } => known.sent += 1,
            SpanStep::Ended(_) => known.is_open = false,
            SpanStep::Begun { .. } | SpanStep::Held | SpanStep::Logged { .. } => {}
        }
        Ok(())
    }

    /// Checks that a span may begin with this context.
    fn admit(&mut self, context: TraceContext, work: TracedWork, node: NodeId) -> Result<(), Violation> {
        let TraceContext { trace, parent } = context;
        let is_of_client =
            context_of(Token(parent.number().wrapping_sub(1))).is_some_and(|client| client == context);
        let mut sender = self.known.get_mut(&parent).filter(|known| known.trace == trace);
        let is_admitted = match work {
            TracedWork::Write | TracedWork::Read => {
                is_of_client || sender.is_some_and(|sender| sender.node == node)
            }
            TracedWork::ForwardedWrite { from, .. } | TracedWork::ForwardedRead { from, .. } => {
                sender.as_mut().is_some_and(|sender| {
                    sender.received += 1;
                    sender.node == from && sender.received <= sender.sent
                })
            }
        };
        let text = "has a context that was not sent with its request";
        if is_admitted { Ok(()) } else { Err(violation(node, parent, text)) }
    }

    /// Checks that the spans of a node end in time.
    fn check_ends(&mut self, node: NodeId, now: Ticks) -> Result<(), Violation> {
        let Some(begun) = self.begun.get_mut(&node) else { return Ok(()) };
        while let Some(&(at, span)) = begun.front() {
            let is_open = self.known.get(&span).is_some_and(|known| known.is_open);
            if is_open && now.0 > at.0 + self.request_ticks + SLACK_TICKS {
                return Err(violation(node, span, "does not end"));
            }
            if is_open {
                break;
            }
            begun.pop_front();
        }
        Ok(())
    }
}

impl OnlineChecker for Spans {
    fn observe(&mut self, _: Micros, observation: &Observation<'_>) -> Result<(), Violation> {
        match *observation {
            Observation::Spans { node, ticks, events } => {
                events.iter().try_for_each(|event| self.step((node, ticks), event))
            }
            Observation::TurnEnded { node, ticks, .. } => self.check_ends(node, ticks),
            Observation::ProcessEnded(node) => {
                self.begun.remove(&node);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn violation(node: NodeId, span: SpanId, what: &str) -> Violation {
    Violation::new("spans", format!("node {node}: span {span} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::spans::SpanEnd;
    use tidelock_core::types::ShardId;

    const REQUEST_TICKS: u64 = 50;

    /// A span, and what happens to it.
    type Step = (u64, SpanStep);
    /// What nodes report, with their numbers.
    type Reported<'a> = &'a [(u64, Step)];

    fn begun(span: u64, context: TraceContext, work: TracedWork) -> Step {
        (span, SpanStep::Begun { context, work })
    }

    /// Tells a checker what nodes report, at tick 1, and then that node 1 is at tick `later`.
    fn verdict(reported: Reported<'_>, later: u64) -> Result<(), String> {
        let mut spans = Spans::new(REQUEST_TICKS);
        let told = reported.iter().try_for_each(|&(node, (span, step))| {
            let event = SpanEvent { span: SpanId::new(span).expect("not zero"), step };
            spans.step((NodeId(node), Ticks(1)), &event)
        });
        told.and_then(|()| spans.check_ends(NodeId(1), Ticks(later))).map_err(|violation| violation.message)
    }

    #[test]
    fn spans_belong_to_requests_and_end_once() {
        let context = context_of(Token(8)).expect("an even token");
        let (shard, done) = (ShardId(1), SpanStep::Ended(SpanEnd::Done));
        let child = |parent| TraceContext { parent: SpanId::new(parent).expect("not zero"), ..context };
        let own = begun(100, context, TracedWork::Write);
        let sent = (100, SpanStep::Forwarded { to: NodeId(2), shard });
        let received = |span| begun(span, child(100), TracedWork::ForwardedWrite { from: NodeId(1), shard });
        let sound = [(1, own), (1, sent), (2, received(200)), (2, (200, done)), (1, (100, done))];
        assert_eq!(verdict(&sound, 1_000), Ok(()));
        assert_eq!(verdict(&sound[..4], 1 + REQUEST_TICKS + SLACK_TICKS), Ok(()), "it may still end");
        let refused: [(Reported<'_>, u64, &str); 6] = [
            (&sound[..4], 2 + REQUEST_TICKS + SLACK_TICKS, "node 1: span 0000000000000064 does not end"),
            (&[(1, own), (1, own)], 1, "node 1: span 0000000000000064 begins a second time"),
            (&[(1, own), (1, (100, done)), (1, (100, done))], 1, "is not open"),
            (
                &[(1, own), (1, sent), (2, received(200)), (2, received(201))],
                1,
                "was not sent with its request",
            ),
            (&[(1, begun(100, child(77), TracedWork::Read))], 1, "was not sent with its request"),
            (&[(2, (100, done))], 1, "is not open"),
        ];
        for (reported, later, expected) in refused {
            let message = verdict(reported, later).expect_err(expected);
            assert!(message.contains(expected), "{message}");
        }
        assert_eq!(context_of(Token(7)), None);
    }
}
