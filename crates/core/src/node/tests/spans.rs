//! Spans of traced requests: which nodes report them, and that each ends.

use super::*;
use crate::slots;
use crate::spans::{SpanEnd, SpanId, SpanStep, TraceContext, TraceId, TracedWork};

fn given() -> TraceContext {
    TraceContext {
        trace: TraceId::new([7; 16]).expect("not zero"),
        parent: SpanId::new(9).expect("not zero"),
    }
}

impl Cluster {
    /// Hands a request to a node, which is not driven yet.
    fn hand(&mut self, node: u64, request: Request, trace: Option<TraceContext>) {
        self.next_token += 1;
        let (token, caller) = (Token(self.next_token), Caller::Anonymous);
        self.nodes[node as usize - 1].handle(Event::Request { token, caller, request, trace });
    }

    /// The spans in the order in which they began: the node, its work, the context, and what
    /// happened then.
    fn reported(&self) -> Vec<(u64, TracedWork, TraceContext, Vec<SpanStep>)> {
        let begun = self.spans.iter().filter_map(|(node, event)| match event.step {
            SpanStep::Begun { context, work } => Some((*node, event.span, work, context)),
            _ => None,
        });
        begun
            .map(|(node, span, work, context)| {
                let later = self.spans.iter().filter(|(at, event)| (*at, event.span) == (node, span)).skip(1);
                (node, work, context, later.map(|(_, event)| event.step).collect())
            })
            .collect()
    }
}

fn shard() -> ShardId {
    slots::shard_of(slots::slot_of(b"a"), 2)
}

#[test]
fn a_forwarded_write_has_a_span_on_both_nodes() {
    let mut cluster = Cluster::of_newest_version();
    let (shard, leader) = (shard(), cluster.leader(shard()));
    let asked = leader % 3 + 1;
    cluster.hand(asked, put("a", "1", Condition::Always), Some(given()));
    // In the same frame, and not traced.
    cluster.hand(asked, put("a", "2", Condition::Always), None);
    cluster.settle();
    let reported = cluster.reported();
    let [(at, work, context, steps), (led_at, led_work, led_context, led_steps)] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert_eq!((*at, *work, *context), (asked, TracedWork::Write, given()));
    let done = SpanStep::Ended(SpanEnd::Done);
    assert_eq!(steps[..], [SpanStep::Forwarded { to: NodeId(leader), shard }, done]);
    let of_asked = cluster.spans.iter().find(|(node, _)| *node == asked).map(|(_, event)| event.span);
    assert_eq!(*led_context, TraceContext { parent: of_asked.expect("a span"), ..given() });
    assert_eq!(*led_work, TracedWork::ForwardedWrite { from: NodeId(asked), shard });
    assert_eq!(*led_at, leader);
    assert!(
        matches!(led_steps[..], [SpanStep::Logged { shard: logged, .. }, end] if logged == shard && end == done)
    );
}

#[test]
fn a_leader_reports_when_its_own_write_is_logged_and_a_follower_its_read() {
    let mut cluster = Cluster::of_newest_version();
    let leader = cluster.leader(shard());
    cluster.hand(leader, put("a", "1", Condition::Always), Some(given()));
    cluster.settle();
    cluster.hand(leader % 3 + 1, get("a"), Some(given()));
    cluster.settle();
    let reported = cluster.reported();
    let [(_, TracedWork::Write, _, write), (_, TracedWork::Read, _, read)] = &reported[..] else {
        panic!("{reported:?}")
    };
    let done = SpanStep::Ended(SpanEnd::Done);
    assert!(matches!(write[..], [SpanStep::Logged { .. }, end] if end == done), "{write:?}");
    assert_eq!(read[..], [done]);
}

#[test]
fn nodes_of_older_clusters_get_no_contexts() {
    let mut cluster = Cluster::elected(3);
    let leader = cluster.leader(shard());
    cluster.hand(leader % 3 + 1, put("a", "1", Condition::Always), Some(given()));
    cluster.settle();
    let nodes: Vec<u64> = cluster.reported().iter().map(|(node, ..)| *node).collect();
    assert_eq!(nodes, [leader % 3 + 1]);
}

#[test]
fn a_write_that_waits_is_held_once_and_its_spans_end_as_unknown() {
    let mut cluster = Cluster::of_newest_version();
    let leader = cluster.leader(shard());
    let asked = leader % 3 + 1;
    // The leader gets the write, and no majority.
    cluster.kill(asked % 3 + 1);
    cluster.hang(asked);
    cluster.hand(asked, put("a", "1", Condition::Always), Some(given()));
    cluster.settle();
    cluster.tick(3 * REQUEST_TICKS);
    let unknown = SpanStep::Ended(SpanEnd::Unknown);
    let reported = cluster.reported();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported.iter().all(|(.., steps)| steps.last() == Some(&unknown)), "{reported:?}");
    // No leader is known any more: the next one waits for one.
    cluster.kill(leader);
    cluster.tick(3 * REQUEST_TICKS);
    cluster.spans.clear();
    cluster.hand(asked, put("a", "2", Condition::Always), Some(given()));
    cluster.settle();
    cluster.tick(2 * REQUEST_TICKS);
    let reported = cluster.reported();
    let held = |(.., steps): &(u64, TracedWork, TraceContext, Vec<SpanStep>)| {
        steps.iter().filter(|step| **step == SpanStep::Held).count()
    };
    assert_eq!(reported.iter().map(held).collect::<Vec<_>>(), [1], "{reported:?}");
    assert_eq!(reported[0].3.last(), Some(&SpanStep::Ended(SpanEnd::Refused)));
}

#[test]
fn so_many_requests_are_traced_at_once_and_no_more() {
    let mut cluster = Cluster::of_newest_version();
    let leader = cluster.leader(shard());
    for _ in 0..2 {
        for _ in 0..limits::SPANS_OPEN_MAX + 10 {
            cluster.hand(leader, put("a", "1", Condition::Always), Some(given()));
        }
        cluster.settle();
        assert_eq!(cluster.reported().len(), limits::SPANS_OPEN_MAX);
        cluster.spans.clear();
    }
}
