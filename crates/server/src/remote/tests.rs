//! A node on one worker and clients on others, over a disk that completes everything at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tidelock_core::command::{
    Condition, Consistency, HostInfo, Operation, OperationReply, Publication, Read, ReadReply, StoredValue,
    Write,
};
use tidelock_core::deliberate::Faults;
use tidelock_core::event::{DivisionTiming, Event, NodeOptions, OutgoingFrame, SlowRequest, Timing};
use tidelock_core::node::Node;
use tidelock_core::spans::SpanEvent;
use tidelock_core::storage::group_commit::DiskReport;
use tidelock_core::storage::snapshot::SnapshotTask;
use tidelock_core::storage::{RecoveredShards, WalBatch};
use tidelock_core::trace::TraceEvent;
use tidelock_core::types::NodeId;
use tidelock_core::version::ClusterVersion;
use tokio::runtime::Builder;
use tokio::task::{LocalSet, yield_now};
use uuid::Uuid;

use super::*;
use crate::worker::{ActionSinks, DiskReports, Worker};

/// A disk that completes each operation at once.
struct Instantly(Arc<DiskReports>);

impl ActionSinks for Instantly {
    fn send(&self, _: OutgoingFrame) {}

    fn persist(&self, batch: WalBatch) {
        self.0.report(DiskReport::Durable(batch.sequence));
    }

    fn file(&self, _: SnapshotTask) {}

    fn deliver(&self, publications: &mut Vec<Publication>) {
        publications.clear();
    }

    fn log_slow(&self, _: &mut Vec<SlowRequest>) {}

    fn log_trace(&self, events: &mut Vec<TraceEvent>) {
        events.clear();
    }

    fn record_spans(&self, events: &mut Vec<SpanEvent>) {
        events.clear();
    }

    fn record_version(&self, _: ClusterVersion) {}

    fn set_peers(&self, _: Vec<(NodeId, String)>) {}
}

fn node() -> Node {
    let host = HostInfo {
        node: NodeId(1),
        uuid: Uuid::from_u128(1),
        peer_address: "node-1:9001".into(),
        http_address: String::new(),
        resp_address: String::new(),
        resp_cluster_address: String::new(),
        tags: BTreeMap::new(),
        release: tidelock_core::version::Release::default(),
    };
    let options = NodeOptions {
        founders: vec![host.peer_address.clone()],
        host,
        hosts: BTreeMap::new(),
        data_shards: 4,
        replicas: None,
        shard_tags: BTreeMap::new(),
        automatic_division: false,
        founding_version: ClusterVersion::FIRST,
        version: ClusterVersion::FIRST,
        timing: Timing {
            tick_ms: 25,
            election_ticks: 20,
            heartbeat_ticks: 2,
            request_ticks: 50,
            dead_ticks: 6_000,
            balance_ticks: 1_200,
            slow_request_ticks: 50,
            access_stale_ticks: 3_000,
            founding_ticks: 20,
        },
        division: DivisionTiming {
            report_ticks: 200,
            busy_requests_per_second: u64::MAX,
            busy_intervals: 6,
            memory_ticks: 72_000,
            rest_ticks: 400,
        },
        move_step_keys: 8,
        prime_replica: None,
        snapshot_log_bytes_min: 1 << 20,
        seed: 1,
        faults: Faults::NONE,
    };
    Node::new(options, RecoveredShards::new())
}

/// The owning worker, not driven yet.
fn worker() -> (Worker, Instantly) {
    let reports = Arc::new(DiskReports::default());
    (Worker::new(node(), reports.clone()), Instantly(reports))
}

/// Ticks until every shard has its leader.
async fn elect(worker: &Worker) {
    while !worker.status().await.shards.iter().all(|shard| shard.leads) {
        worker.tell(Event::Tick);
        yield_now().await;
    }
}

/// Runs `test` on one thread with the owning worker and another one, both driven.
fn run<F: Future<Output = ()>>(test: impl FnOnce(Worker, Remote) -> F) {
    let runtime = Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (worker, disk) = worker();
        let remote = Remote::new(worker.attach(), PerWorker::default());
        let (driven, crossing) = (worker.clone(), remote.clone());
        tokio::task::spawn_local(async move { driven.run(disk).await });
        tokio::task::spawn_local(async move { crossing.run().await });
        elect(&worker).await;
        test(worker, remote).await;
    });
}

fn put(key: impl AsRef<[u8]>, value: &str) -> Request {
    let (key, value) = (key.as_ref(), value.as_bytes());
    Request::Write(Write::of(&Operation::Put { key, value, condition: Condition::Always }))
}

/// Whether a reply says that a put happened.
fn wrote(reply: &Reply) -> bool {
    matches!(reply.only(), Some(OperationReply::Written { .. }))
}

fn get(key: &'static str, consistency: Consistency) -> Request {
    Request::Read { read: Read::Get { key: key.into() }, consistency }
}

async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs = Vec::new();
    // All are started before the first is awaited: `submit` submits when it is called.
    for future in &mut futures {
        outputs.push(future.as_mut().await);
    }
    outputs
}

/// More requests than a node takes at once.
const CROWD: usize = 5_000;

/// One client submits many requests at once, and then another client a single one.
async fn a_crowd_and_a_quiet_client<S: Store>(store: &S) {
    let (crowd, quiet) = (store.for_client(ClientId(1)), store.for_client(ClientId(2)));
    let mailbox: Rc<Mailbox> = Rc::default();
    for number in 0..CROWD {
        crowd.submit_to(put(format!("key {number}"), "value"), &mailbox, number as u64);
    }
    let reply = quiet.submit(put("quiet", "value")).await;
    assert!(wrote(&reply), "{reply:?}");
    let mut answered = answered(&mailbox).await;
    assert!(answered < CROWD / 4, "{answered} requests of the other client were answered before");
    while answered < CROWD {
        yield_now().await;
        answered += self::answered(&mailbox).await;
    }
}

/// Number of replies delivered since the last call.
async fn answered(mailbox: &Mailbox) -> usize {
    let mut delivered = Vec::new();
    std::future::poll_fn(|task| {
        mailbox.take(&mut delivered, task);
        Poll::Ready(())
    })
    .await;
    assert!(delivered.iter().all(|(_, reply)| wrote(reply)));
    delivered.len()
}

#[test]
fn a_quiet_client_does_not_wait_for_all_that_another_has_queued() {
    run(|worker, remote| async move {
        a_crowd_and_a_quiet_client(&worker).await;
        a_crowd_and_a_quiet_client(&remote).await;
    });
}

#[test]
fn what_waits_too_long_for_its_turn_is_refused() {
    run(|worker, _| async move {
        let crowd = worker.for_client(ClientId(1));
        let mut replies: Vec<_> =
            (0..CROWD).map(|number| Box::pin(crowd.submit(put(format!("key {number}"), "value")))).collect();
        // Before the node has answered any.
        worker.tick_turns(std::time::Duration::ZERO);
        let waiting = replies.swap_remove(CROWD / 2).await;
        assert_eq!(waiting, Reply::Refused(Refusal::Overloaded));
        let first = replies.swap_remove(0).await;
        assert!(wrote(&first), "{first:?}");
        assert!(worker.turn_gauges().expired.get() > 0);
    });
}

#[test]
fn what_one_turn_asks_crosses_as_one_batch() {
    run(|_, remote| async move {
        let keys = (0..100).map(|number| format!("key {number}"));
        let replies = all(keys.map(|key| remote.submit(put(key, "value")))).await;
        assert!(replies.iter().all(wrote), "{replies:?}");
        let counters = &remote.0.counters;
        assert_eq!((counters.requests.get(), counters.batches.get()), (100, 1));
        assert_eq!(remote.0.waiting.count(), 0);
    });
}

#[test]
fn both_workers_see_one_store() {
    run(|worker, remote| async move {
        assert!(wrote(&worker.submit(put("a", "1")).await));
        for consistency in [Consistency::Linearizable, Consistency::Stale] {
            let reply = remote.submit(get("a", consistency)).await;
            assert!(
                matches!(&reply, Reply::Read(ReadReply::Value(Some(StoredValue { value, .. }))) if &**value == b"1"),
                "{reply:?}"
            );
        }
        assert!(wrote(&remote.submit(put("a", "2")).await));
        let reply = worker.submit(get("a", Consistency::Linearizable)).await;
        assert!(
            matches!(&reply, Reply::Read(ReadReply::Value(Some(StoredValue { value, .. }))) if &**value == b"2"),
            "{reply:?}"
        );
        let (own, others) = (worker.status().await, remote.status().await);
        assert_eq!((own.node, own.shards), (others.node, others.shards));
        for key in ["a", "b", "c", "d", "{a}b"] {
            assert_eq!(worker.shard_of(key.as_bytes()), remote.shard_of(key.as_bytes()));
        }
    });
}

#[test]
fn replies_to_a_mailbox_keep_the_order_of_its_shard() {
    run(|_, remote| async move {
        let mailbox: Rc<Mailbox> = Rc::default();
        for tag in 0..50 {
            remote.submit_to(put("one key", "value"), &mailbox, tag);
        }
        let (mut found, mut taken) = (Vec::new(), Vec::new());
        std::future::poll_fn(|task| {
            mailbox.take(&mut taken, task);
            found.append(&mut taken);
            if found.len() < 50 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let mut last = None;
        for ((tag, reply), expected) in found.into_iter().zip(0..) {
            let Some(OperationReply::Written { version, .. }) = reply.only() else { panic!("{reply:?}") };
            assert!(tag == expected && last < Some(version));
            last = Some(version);
        }
        assert_eq!(remote.0.counters.batches.get(), 1);
    });
}

#[test]
fn a_client_that_is_gone_leaves_nothing_behind() {
    run(|_, remote| async move {
        drop(remote.submit(put("a", "1")));
        let mailbox: Rc<Mailbox> = Rc::default();
        remote.submit_to(put("a", "2"), &mailbox, 1);
        let left = Rc::downgrade(&mailbox);
        drop(mailbox);
        assert_eq!(remote.0.waiting.count(), 2);
        assert!(wrote(&remote.submit(put("a", "3")).await));
        assert_eq!(remote.0.waiting.count(), 0);
        assert!(left.upgrade().is_none());
    });
}

#[test]
fn a_worker_that_ends_takes_nobody_with_it() {
    run(|worker, remote| async move {
        let ending = Remote::new(worker.attach(), PerWorker::default());
        let exchange = ending.0.link.exchange.clone();
        // One request is answered without a receiver, another one is in flight.
        let mut lost = Vec::new();
        for key in ["a", "b"] {
            let (number, receiver) = ending.0.waiting.in_task();
            ending.request(number, put(key, "1"));
            ending.hand_over();
            lost.push(receiver);
            if key == "a" {
                assert!(wrote(&remote.submit(put("c", "1")).await));
            }
        }
        drop(ending);
        for receiver in lost {
            assert!(receiver.await.is_err(), "its task would say that the outcome is unknown");
        }
        assert!(wrote(&remote.submit(put("b", "1")).await));
        assert!(wrote(&worker.submit(put("c", "1")).await));
        let mut messages = Vec::new();
        assert!(!exchange.messages().take(&mut messages) && messages.is_empty());
    });
}

#[test]
fn without_the_nodes_worker_nobody_waits_for_ever() {
    let (worker, _) = worker();
    let remote = Remote::new(worker.attach(), PerWorker::default());
    let mut task = Context::from_waker(Waker::noop());
    {
        let mut running = pin!(remote.run());
        assert!(running.as_mut().poll(&mut task).is_pending());
        worker.detach_all();
        assert!(running.as_mut().poll(&mut task).is_ready());
    }
    let (number, mut lost) = remote.0.waiting.in_task();
    remote.request(number, put("a", "1"));
    {
        let mut status = pin!(remote.status());
        assert!(status.as_mut().poll(&mut task).is_pending());
        remote.hand_over();
        let Poll::Ready(found) = status.as_mut().poll(&mut task) else { panic!("nobody answers") };
        assert_eq!(found.node, NodeId(0));
    }
    drop(remote);
    assert!(lost.try_recv().is_err());
}

#[test]
fn workers_on_threads_of_their_own_are_answered_once_each() {
    const WORKERS: usize = 3;
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 100;
    let runtime = Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (worker, disk) = worker();
        let driven = worker.clone();
        tokio::task::spawn_local(async move { driven.run(disk).await });
        elect(&worker).await;
        let counters: Vec<PerWorker<HandoverCounters>> = PerWorker::of(WORKERS);
        let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let threads = counters.iter().cloned().map(|counters| {
            let (link, sender) = (worker.attach(), sender.clone());
            std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().build().unwrap();
                let written = LocalSet::new().block_on(&runtime, async {
                    let remote = Remote::new(link, counters);
                    let crossing = remote.clone();
                    tokio::task::spawn_local(async move { crossing.run().await });
                    let clients = (0..CLIENTS).map(|_| tokio::task::spawn_local(write(remote.clone())));
                    all(clients).await.into_iter().map(Result::unwrap).sum::<usize>()
                });
                sender.send(written).unwrap();
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut written = 0;
        for _ in 0..WORKERS {
            written += ended.recv().await.unwrap();
        }
        assert_eq!(written, WORKERS * CLIENTS * REQUESTS);
        let (crossed, batches) =
            (counters[0].sum(|own| own.requests.get()), counters[0].sum(|own| own.batches.get()));
        assert_eq!(crossed as usize, written);
        assert!(batches < crossed, "{batches} batches of {crossed} requests");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });

    /// One client, one request after the other. Returns how many were answered.
    async fn write(remote: Remote) -> usize {
        for number in 0..REQUESTS {
            let reply = remote.submit(put(format!("key {number}"), "value")).await;
            assert!(wrote(&reply), "{reply:?}");
        }
        REQUESTS
    }
}
