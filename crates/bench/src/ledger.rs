//! The known state of every key during a run, which determines the answers that are impossible.
//!
//! Each key has a floor, below which a later read must not fall. What the floor counts depends on
//! the protocol:
//!
//! - Versions (HTTP). A linearizable read must not have a version below the highest version of any
//!   answer before it was sent; a write must get a version above that. This holds even if other
//!   clients write. A stale read must not fall below what the same node has answered before.
//! - Numbers of writes (RESP shows no versions). When a write is acknowledged, all writes that had
//!   been answered when it was *sent* are overwritten. Those are the ones numbered below the oldest
//!   write in flight at that moment. A linearizable read sent afterwards must not return one of
//!   them. A write whose outcome is unknown may happen at any time, so its value is never wrong.
//!   Stale reads are only checked for key and checksum.
//!
//! Invariant: an answer of a linearizable store is never called wrong, however threads interleave.
//! A floor is read before the request is sent and raised after the answer has arrived; every bound
//! also holds in the slower order.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::args::Freshness;
use crate::protocol::{Answer, Kind, Ticket};
use crate::stamp::Stamp;

/// What orders the writes of a key, as far as the protocol shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Versions that the server assigns.
    Versions,
    /// Numbers that the bench gives its writes.
    Sequences,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerPlan {
    pub marks: Marks,
    pub freshness: Freshness,
    pub keys: u64,
    /// Number of nodes that are asked.
    pub nodes: usize,
    /// Most connections that write at a time.
    pub connections: usize,
    /// Distinguishes this run's values from others.
    pub run: u32,
}

/// The ledger; see the module.
#[derive(Debug)]
pub(crate) struct Ledger {
    plan: LedgerPlan,
    /// One row for all nodes, or one for each node with stale reads.
    floors: Vec<Vec<AtomicU64>>,
    next_sequence: AtomicU64,
    /// For each connection a number at or below its oldest write in flight; `u64::MAX` while it has
    /// none.
    oldest: Vec<AtomicU64>,
    unknown: Mutex<HashSet<u64>>,
}

impl Ledger {
    pub fn new(plan: LedgerPlan) -> Ledger {
        let rows = match plan.freshness {
            Freshness::Stale => plan.nodes,
            Freshness::Linearizable => 1,
        };
        let row = || (0..plan.keys).map(|_| AtomicU64::new(0)).collect();
        Ledger {
            floors: (0..rows).map(|_| row()).collect(),
            next_sequence: AtomicU64::new(1),
            oldest: (0..plan.connections).map(|_| AtomicU64::new(u64::MAX)).collect(),
            unknown: Mutex::new(HashSet::new()),
            plan,
        }
    }

    /// To be called before a batch of requests is numbered. Every write numbered below the result
    /// has been answered.
    pub fn begin(&self, connection: usize, idle: bool) -> u64 {
        if self.plan.marks == Marks::Versions {
            return 0;
        }
        if idle {
            // Before any number is drawn: a thread that sees one of these numbers also sees this
            // bound below it.
            let bound = self.next_sequence.load(Ordering::SeqCst);
            self.oldest[connection].store(bound, Ordering::SeqCst);
        }
        let next = self.next_sequence.load(Ordering::SeqCst);
        self.oldest.iter().map(|bound| bound.load(Ordering::SeqCst)).fold(next, u64::min)
    }

    /// To be called after a batch of answers; `oldest` is the number of the oldest request still in
    /// flight.
    pub fn end(&self, connection: usize, oldest: Option<u64>) {
        if self.plan.marks == Marks::Sequences {
            self.oldest[connection].store(oldest.unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }

    /// A number for a request of this kind.
    pub fn sequence(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Write => self.next_sequence.fetch_add(1, Ordering::SeqCst),
            Kind::Read => self.next_sequence.load(Ordering::SeqCst),
        }
    }

    /// The present floor of a key.
    pub fn floor(&self, node: usize, key: u64) -> u64 {
        self.row(node)[key as usize].load(Ordering::SeqCst)
    }

    /// A write has an unknown outcome: it may happen at any time, or never.
    pub fn unknown(&self, sequence: u64) {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).insert(sequence);
    }

    /// A node may have restarted, and then has older state until it has caught up.
    pub fn forget(&self, node: usize) {
        if self.plan.freshness == Freshness::Stale {
            self.row(node).iter().for_each(|floor| floor.store(0, Ordering::SeqCst));
        }
    }

    /// Whether the answer is possible; records it if so.
    pub fn judge(&self, node: usize, ticket: &Ticket, answer: &Answer<'_>) -> Result<(), String> {
        match (ticket.operation.kind, answer) {
            (Kind::Read, Answer::Value { version, value }) => self.judge_value(node, ticket, *version, value),
            (Kind::Read, Answer::Absent) if ticket.floor == 0 || self.lags_unseen() => Ok(()),
            (Kind::Read, Answer::Absent) => Err("an absent key, though it had been written".to_owned()),
            (Kind::Write, Answer::Written { version }) => self.judge_written(node, ticket, *version),
            (kind, answer) => Err(format!("an answer of the wrong kind to a {kind:?}: {answer:?}")),
        }
    }

    /// Whether a read may miss any write: a stale one, of a protocol that shows no versions.
    fn lags_unseen(&self) -> bool {
        self.plan.marks == Marks::Sequences && self.plan.freshness == Freshness::Stale
    }

    fn judge_value(
        &self,
        node: usize,
        ticket: &Ticket,
        version: Option<u64>,
        value: &[u8],
    ) -> Result<(), String> {
        let key = ticket.operation.key;
        let Some(stamp) = Stamp::read(value) else {
            return Err(format!("{} bytes that no run has written, or that were damaged", value.len()));
        };
        if stamp.key != key {
            return Err(format!("key {key} has the value of key {}", stamp.key));
        }
        let ours = stamp.run == self.plan.run;
        if ours && stamp.sequence >= self.next_sequence.load(Ordering::SeqCst) {
            return Err(format!("a value with the number {}, which was never given out", stamp.sequence));
        }
        match self.plan.marks {
            Marks::Versions => {
                let version = version.ok_or_else(|| "a value without a version".to_owned())?;
                if version < ticket.floor {
                    let floor = ticket.floor;
                    return Err(format!(
                        "key {key}: version {version}, though {floor} had been answered before"
                    ));
                }
                self.raise(node, key, version);
            }
            Marks::Sequences if self.lags_unseen() => {}
            Marks::Sequences if ours => {
                if stamp.sequence < ticket.floor && !self.is_unknown(stamp.sequence) {
                    let (found, floor) = (stamp.sequence, ticket.floor);
                    return Err(format!(
                        "key {key}: write {found}, though one from {floor} on had replaced it"
                    ));
                }
            }
            Marks::Sequences if ticket.floor > 0 => {
                return Err(format!("key {key}: a value of another run, though this one had replaced it"));
            }
            Marks::Sequences => {}
        }
        Ok(())
    }

    fn judge_written(&self, node: usize, ticket: &Ticket, version: Option<u64>) -> Result<(), String> {
        let key = ticket.operation.key;
        match (self.plan.marks, self.plan.freshness) {
            (Marks::Versions, freshness) => {
                let version = version.ok_or_else(|| "a write without a version".to_owned())?;
                if version <= ticket.floor {
                    let floor = ticket.floor;
                    return Err(format!(
                        "key {key}: a write got version {version}, which is not above {floor}"
                    ));
                }
                // Another node need not have yet what a leader acknowledged.
                if freshness == Freshness::Linearizable {
                    self.raise(node, key, version);
                }
            }
            (Marks::Sequences, _) => self.raise(node, key, ticket.settled_below),
        }
        Ok(())
    }

    fn is_unknown(&self, sequence: u64) -> bool {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).contains(&sequence)
    }

    fn raise(&self, node: usize, key: u64, mark: u64) {
        self.row(node)[key as usize].fetch_max(mark, Ordering::SeqCst);
    }

    fn row(&self, node: usize) -> &[AtomicU64] {
        &self.floors[node.min(self.floors.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::protocol::Operation;

    fn ledger(marks: Marks, freshness: Freshness) -> Ledger {
        Ledger::new(LedgerPlan { marks, freshness, keys: 4, nodes: 2, connections: 2, run: 9 })
    }

    fn send(ledger: &Ledger, connection: usize, kind: Kind, key: u64) -> Ticket {
        let settled_below = ledger.begin(connection, true);
        let sequence = ledger.sequence(kind);
        let floor = ledger.floor(0, key);
        Ticket { operation: Operation { kind, key, sequence }, due: Instant::now(), floor, settled_below }
    }

    fn value_of(run: u32, key: u64, sequence: u64) -> Vec<u8> {
        let mut value = vec![0; 32];
        Stamp { run, key, sequence }.fill(&mut value);
        value
    }

    fn value(bytes: &[u8], version: u64) -> Answer<'_> {
        Answer::Value { version: Some(version), value: bytes }
    }

    #[test]
    fn versions_never_fall() {
        let ledger = ledger(Marks::Versions, Freshness::Linearizable);
        let write = send(&ledger, 0, Kind::Write, 1);
        let early = send(&ledger, 1, Kind::Read, 1);
        ledger.judge(0, &write, &Answer::Written { version: Some(6) }).unwrap();
        let late = send(&ledger, 1, Kind::Read, 1);
        let old = value_of(8, 1, 50);
        ledger.judge(0, &early, &value(&old, 5)).expect("sent before the write was acknowledged");
        ledger.judge(0, &early, &Answer::Absent).expect("as above");
        assert!(ledger.judge(0, &late, &value(&old, 5)).is_err());
        assert!(ledger.judge(0, &late, &Answer::Absent).is_err());
        ledger.judge(0, &late, &value(&old, 7)).expect("somebody else's write");
        let later = send(&ledger, 0, Kind::Read, 1);
        assert!(ledger.judge(0, &later, &value(&old, 6)).is_err(), "7 was read");
        let write = send(&ledger, 0, Kind::Write, 1);
        assert!(ledger.judge(0, &write, &Answer::Written { version: Some(7) }).is_err(), "not above 7");
        assert!(ledger.judge(0, &write, &Answer::Written { version: None }).is_err());
    }

    #[test]
    fn what_was_overwritten_does_not_come_back() {
        let ledger = ledger(Marks::Sequences, Freshness::Linearizable);
        let first = send(&ledger, 0, Kind::Write, 1);
        let beside = send(&ledger, 1, Kind::Write, 1);
        ledger.judge(0, &first, &Answer::Written { version: None }).unwrap();
        ledger.end(0, None);
        ledger.judge(0, &beside, &Answer::Written { version: None }).unwrap();
        ledger.end(1, None);
        let bytes = |ticket: &Ticket| value_of(9, 1, ticket.operation.sequence);
        let read = send(&ledger, 0, Kind::Read, 1);
        for either in [&first, &beside] {
            ledger.judge(0, &read, &value(&bytes(either), 0)).expect("they were in flight together");
        }
        assert!(ledger.judge(0, &read, &Answer::Absent).is_err());
        assert!(ledger.judge(0, &read, &value(&value_of(8, 1, 1), 0)).is_err(), "of another run");
        let second = send(&ledger, 1, Kind::Write, 1);
        ledger.judge(0, &second, &Answer::Written { version: None }).unwrap();
        ledger.end(1, None);
        // The read is still in flight, which holds the bound of its connection down but not that of
        // the second write.
        ledger.end(0, None);
        let third = send(&ledger, 1, Kind::Write, 1);
        ledger.judge(0, &third, &Answer::Written { version: None }).unwrap();
        ledger.end(1, None);
        let read = send(&ledger, 0, Kind::Read, 1);
        ledger.judge(0, &read, &value(&bytes(&third), 0)).unwrap();
        assert!(ledger.judge(0, &read, &value(&bytes(&first), 0)).is_err());
        ledger.unknown(first.operation.sequence);
        ledger.judge(0, &read, &value(&bytes(&first), 0)).expect("it may happen at any time");
    }

    #[test]
    fn a_write_in_flight_holds_the_bound_down() {
        let ledger = ledger(Marks::Sequences, Freshness::Linearizable);
        let slow = send(&ledger, 0, Kind::Write, 1);
        for _ in 0..5 {
            let quick = send(&ledger, 1, Kind::Write, 1);
            ledger.judge(0, &quick, &Answer::Written { version: None }).unwrap();
            ledger.end(1, None);
        }
        let read = send(&ledger, 1, Kind::Read, 1);
        let bytes = value_of(9, 1, slow.operation.sequence);
        ledger.judge(0, &read, &value(&bytes, 0)).expect("it may have happened last");
    }

    #[test]
    fn stale_reads_do_not_go_back_on_their_node() {
        let ledger = ledger(Marks::Versions, Freshness::Stale);
        let write = send(&ledger, 0, Kind::Write, 1);
        ledger.judge(0, &write, &Answer::Written { version: Some(6) }).unwrap();
        let bytes = value_of(9, 1, 1);
        let at = |node| Ticket { floor: ledger.floor(node, 1), ..send(&ledger, 0, Kind::Read, 1) };
        ledger.judge(0, &at(0), &value(&bytes, 4)).expect("it may lag behind what was acknowledged");
        assert!(ledger.judge(0, &at(0), &value(&bytes, 3)).is_err());
        ledger.judge(1, &at(1), &value(&bytes, 3)).expect("another node");
        ledger.forget(0);
        ledger.judge(0, &at(0), &value(&bytes, 3)).expect("it may have restarted");
    }

    #[test]
    fn foreign_values_are_wrong_in_every_mode() {
        for marks in [Marks::Versions, Marks::Sequences] {
            for freshness in [Freshness::Stale, Freshness::Linearizable] {
                let ledger = ledger(marks, freshness);
                let read = send(&ledger, 0, Kind::Read, 1);
                let mut damaged = value_of(9, 1, 1);
                damaged[30] ^= 1;
                for wrong in [value_of(9, 2, 1), damaged, vec![], value_of(9, 1, 1000)] {
                    assert!(ledger.judge(0, &read, &value(&wrong, 5)).is_err(), "{marks:?} {freshness:?}");
                }
                assert!(ledger.judge(0, &read, &Answer::Written { version: Some(1) }).is_err());
            }
        }
    }
}
