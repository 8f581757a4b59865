//! Tests of leases, bound keys and locks on a shard, through its commands.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::command::{
    Comparison, Condition, ConditionalTransaction, ExpectedState, Expiry, ExpiryCondition, LeaseExpiry,
    LeaseId, LeaseReply, LeaseTag, LeaseWrite, LockOperation, LockReply, LockWrite, Operation,
    OperationReply, Operations, Read, ReadReply, Rejection, Set, SetCondition, Write, WriteReply,
};
use crate::limits;
use crate::machine::{Machine, Restore};
use crate::membership::Membership;
use crate::types::{LogIndex, ShardId, UnixMillis, Version};

const LOCK: &[u8] = b"{t}lock";

/// A shard with the commands of these tests.
struct Shard(Machine);

impl Shard {
    fn new() -> Shard {
        Shard(Machine::Data(Box::default()))
    }

    fn apply(&mut self, write: impl Into<Write>) -> WriteReply {
        let write = write.into();
        assert_eq!(write.validate(), Ok(()));
        self.0.apply(LogIndex(1), write).expect("applied")
    }

    fn grant(&mut self, ttl_ms: u64, at: u64) -> LeaseId {
        let tag = LeaseTag::new(b"t").expect("a tag");
        match self.apply(LeaseWrite::Grant { tag, ttl_ms, at: UnixMillis(at) }) {
            WriteReply::Lease(LeaseReply::Granted { lease, ttl_ms: granted }) if granted == ttl_ms => lease,
            other => panic!("{other:?}"),
        }
    }

    fn lock(&mut self, lease: &LeaseId, operation: LockOperation) -> LockReply {
        match self.apply(LockWrite { name: LOCK.into(), lease: lease.clone(), operation }) {
            WriteReply::Lock(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn acquire(&mut self, lease: &LeaseId, waits: bool) -> LockReply {
        let value = Bytes::from(lease.text());
        self.lock(lease, LockOperation::Acquire { value, waits, at: UnixMillis(500) })
    }

    fn fence(&mut self, lease: &LeaseId) -> Version {
        match self.acquire(lease, true) {
            LockReply::Held { fence, .. } => fence,
            other => panic!("{other:?}"),
        }
    }

    /// Executes one operation, and returns whether it was executed or why it was rejected.
    fn operate(&mut self, operation: &Operation<'_>) -> Result<(), Rejection> {
        let WriteReply::Operations(replies) = self.apply(Write::of(operation)) else { panic!("operations") };
        match replies.only().expect("one reply") {
            OperationReply::Rejected(rejection) => Err(rejection),
            _ => Ok(()),
        }
    }

    fn bind(&mut self, key: &[u8], lease: &LeaseId) -> Result<(), Rejection> {
        let lease = lease.text();
        let condition = Condition::Always;
        self.operate(&Operation::PutBound { key, value: b"v", condition, lease: lease.as_bytes() })
    }

    /// Ends what is overdue, for a leader that has led long enough.
    fn expire(&mut self, now: u64, led_since: u64) -> u64 {
        self.expire_leases(now, LeaseExpiry { led_since: UnixMillis(led_since), shortens: false })
    }

    fn expire_leases(&mut self, now: u64, leases: LeaseExpiry) -> u64 {
        let (shard, limit) = (ShardId(1), limits::EXPIRED_KEYS_MAX);
        match self.apply(Write::Expire { shard, now: UnixMillis(now), limit, leases: Some(leases) }) {
            WriteReply::Expired { keys } => keys,
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, read: Read) -> ReadReply {
        self.0.read(&read).expect("a reply").reply
    }

    /// The value of a key, and the lease to which it is bound.
    fn held(&self, key: &[u8]) -> Option<(Bytes, Option<LeaseId>)> {
        let ReadReply::Value(stored) = self.read(Read::Get { key: Bytes::copy_from_slice(key) }) else {
            panic!("a value")
        };
        stored.map(|stored| (stored.value, stored.lease.map(|lease| *lease)))
    }

    fn holder(&self) -> Option<LeaseId> {
        let ReadReply::Lock(lock) = self.read(Read::Lock { name: LOCK.into() }) else { panic!("a lock") };
        lock.map(|lock| lock.holder.lease)
    }

    /// The same state, from a snapshot.
    fn restored(&mut self) -> Shard {
        self.0.begin_snapshot(&Membership::default());
        let mut restore = Restore::default();
        while let Some(block) = self.0.next_block() {
            restore.block(&block).expect("a block");
        }
        let copy = restore.finish().expect("a snapshot").machine;
        assert_eq!(copy.digest(), self.0.digest());
        Shard(copy)
    }
}

#[test]
fn keys_end_with_their_lease_unless_they_are_unbound_before() {
    let mut shard = Shard::new();
    let (short, long) = (shard.grant(1_000, 100), shard.grant(60_000, 100));
    for key in [&b"{t}a"[..], b"{t}b", b"{t}c", b"{t}d", b"{t}e"] {
        assert_eq!(shard.bind(key, &short), Ok(()));
    }
    assert_eq!(shard.held(b"{t}a"), Some((Bytes::from_static(b"v"), Some(short.clone()))));
    shard.operate(&Operation::Put { key: b"{t}b", value: b"w", condition: Condition::Always }).expect("put");
    shard.operate(&Operation::Append { key: b"{t}c", suffix: b"w" }).expect("appended");
    assert_eq!(shard.bind(b"{t}d", &long), Ok(()));
    shard.operate(&Operation::Delete { key: b"{t}e", condition: Condition::Always }).expect("deleted");
    assert_eq!(shard.expire(1_099, 0), 0);
    assert_eq!(shard.expire(1_100, 0), 2, "the key that was appended to is still bound");
    assert_eq!(shard.held(b"{t}a"), None);
    assert_eq!(shard.held(b"{t}c"), None);
    assert_eq!(shard.held(b"{t}b"), Some((Bytes::from_static(b"w"), None)));
    assert_eq!(shard.held(b"{t}d"), Some((Bytes::from_static(b"v"), Some(long.clone()))));
    assert_eq!(shard.bind(b"{t}a", &short), Err(Rejection::NoLease));
    assert_eq!(shard.apply(LeaseWrite::Revoke { lease: short }), WriteReply::Lease(LeaseReply::NoLease));
    let revoked = WriteReply::Lease(LeaseReply::Revoked { keys: 1 });
    assert_eq!(shard.apply(LeaseWrite::Revoke { lease: long }), revoked);
    assert_eq!(shard.held(b"{t}d"), None);
}

#[test]
fn a_bound_key_has_no_expiry() {
    let mut shard = Shard::new();
    let lease = shard.grant(1_000, 100);
    shard.bind(b"{t}a", &lease).expect("bound");
    let (key, at) = (&b"{t}a"[..], Some(UnixMillis(9)));
    let expire = Operation::Expire { key, at, condition: ExpiryCondition::Always };
    assert_eq!(shard.operate(&expire), Err(Rejection::KeyBound));
    let set = |expiry| {
        let condition = SetCondition::Version(Condition::Always);
        Operation::Set(Set { key, value: b"v", condition, expiry, previous: false })
    };
    shard.operate(&set(Expiry::Keep)).expect("set");
    assert_eq!(shard.held(key).expect("a key").1, Some(lease));
    shard.operate(&set(Expiry::At(UnixMillis(9)))).expect("set");
    assert_eq!(shard.held(key).expect("a key").1, None, "an explicit expiry unbinds");
}

#[test]
fn a_renewal_prolongs_many_leases_and_names_those_that_are_gone() {
    let mut shard = Shard::new();
    let (one, two) = (shard.grant(1_000, 100), shard.grant(2_000, 100));
    shard.apply(LeaseWrite::Revoke { lease: one.clone() });
    let renew = LeaseWrite::Renew { leases: vec![one, two.clone()], at: UnixMillis(5_000) };
    assert_eq!(shard.apply(renew), WriteReply::Lease(LeaseReply::Renewed(vec![None, Some(2_000)])));
    shard.bind(b"{t}a", &two).expect("bound");
    assert_eq!(shard.expire(6_999, 0), 0);
    assert_eq!(shard.expire(7_000, 5_001), 0, "the leader has not led for the time to live");
    assert_eq!(shard.expire(7_001, 5_001), 1);
}

#[test]
fn a_lock_of_a_clock_that_was_ahead_passes_on_after_its_time_to_live() {
    let mut shard = Shard::new();
    let (one, two) = (shard.grant(5_000, 3_600_000), shard.grant(5_000, 10_000));
    let fence = shard.fence(&one);
    let held = LockReply::Held { fence, valid_for_ms: 5_000 };
    assert_eq!(shard.acquire(&one, false), held, "asked again, of a leader whose clock is not ahead");
    assert_eq!(shard.acquire(&two, true), LockReply::Queued { position: 0 });
    let mut copy = shard.restored();
    for shard in [&mut shard, &mut copy] {
        let renew = LeaseWrite::Renew { leases: vec![two.clone()], at: UnixMillis(20_000) };
        shard.apply(renew);
        let expiry = |shortens| LeaseExpiry { led_since: UnixMillis(9_000), shortens };
        shard.expire_leases(20_000, expiry(false));
        shard.expire_leases(20_000, expiry(true));
        shard.expire_leases(24_999, expiry(true));
        assert_eq!(shard.holder(), Some(one.clone()));
        let renew = LeaseWrite::Renew { leases: vec![two.clone()], at: UnixMillis(24_999) };
        shard.apply(renew);
        shard.expire_leases(25_000, expiry(true));
        assert_eq!(shard.holder(), Some(two.clone()));
    }
    assert_eq!(shard.0.digest(), copy.0.digest());
}

#[test]
fn a_lock_passes_to_those_who_wait_in_their_order_with_rising_fences() {
    let mut shard = Shard::new();
    let leases: Vec<LeaseId> = (0..4).map(|_| shard.grant(1_000, 100)).collect();
    let first = shard.fence(&leases[0]);
    assert_eq!(shard.acquire(&leases[0], false), LockReply::Held { fence: first, valid_for_ms: 600 });
    assert_eq!(shard.acquire(&leases[1], false), LockReply::HeldByOther { fence: first });
    for (position, lease) in leases[1..].iter().enumerate() {
        let queued = LockReply::Queued { position: position as u64 };
        assert_eq!(shard.acquire(lease, true), queued);
        assert_eq!(shard.acquire(lease, true), queued, "twice is once");
    }
    let cancel = || LockOperation::Cancel { at: UnixMillis(500) };
    assert_eq!(shard.lock(&leases[2], cancel()), LockReply::Cancelled);
    assert_eq!(shard.lock(&leases[2], cancel()), LockReply::NotHeld);
    assert_eq!(shard.lock(&leases[0], LockOperation::Release), LockReply::Released);
    assert_eq!(shard.holder(), Some(leases[1].clone()));
    let second = shard.fence(&leases[1]);
    assert!(second > first);
    let late = LockReply::Held { fence: second, valid_for_ms: 600 };
    assert_eq!(shard.lock(&leases[1], cancel()), late, "a cancellation that comes too late");
    assert_eq!(shard.held(LOCK), Some((leases[1].text().into(), Some(leases[1].clone()))));
    // A holder whose lease ends loses the lock, and so does one that waits.
    shard.apply(LeaseWrite::Revoke { lease: leases[1].clone() });
    assert_eq!(shard.holder(), Some(leases[3].clone()));
    assert_eq!(shard.lock(&leases[3], LockOperation::Release), LockReply::Released);
    assert_eq!((shard.holder(), shard.held(LOCK)), (None, None));
    assert_eq!(shard.acquire(&leases[1], true), LockReply::NoLease);
    assert!(shard.fence(&leases[0]) > second);
}

#[test]
fn a_waiter_whose_lease_ends_leaves_the_queue() {
    let mut shard = Shard::new();
    let (holder, dead, alive) = (shard.grant(9_000, 100), shard.grant(1_000, 100), shard.grant(9_000, 100));
    shard.fence(&holder);
    shard.acquire(&dead, true);
    shard.acquire(&alive, true);
    shard.expire(2_000, 0);
    assert_eq!(shard.acquire(&alive, true), LockReply::Queued { position: 0 });
    shard.lock(&holder, LockOperation::Release);
    assert_eq!(shard.holder(), Some(alive));
}

#[test]
fn only_changes_of_a_lock_change_its_key() {
    let mut shard = Shard::new();
    let lease = shard.grant(1_000, 100);
    shard.operate(&Operation::Put { key: LOCK, value: b"w", condition: Condition::Always }).expect("put");
    assert!(matches!(shard.acquire(&lease, true), LockReply::KeyExists { .. }));
    shard.operate(&Operation::Delete { key: LOCK, condition: Condition::Always }).expect("deleted");
    shard.fence(&lease);
    let id = lease.text();
    let (key, condition) = (LOCK, Condition::Always);
    for operation in [
        Operation::Put { key, value: b"w", condition },
        Operation::PutBound { key, value: b"w", condition, lease: id.as_bytes() },
        Operation::Delete { key, condition },
        Operation::Take { key },
        Operation::Append { key, suffix: b"w" },
        Operation::Expire { key, at: None, condition: ExpiryCondition::Always },
    ] {
        assert_eq!(shard.operate(&operation), Err(Rejection::LockHeld), "{operation:?}");
    }
    shard.operate(&Operation::Get { key }).expect("read");
    shard.lock(&lease, LockOperation::Release);
    shard.operate(&Operation::Put { key, value: b"w", condition }).expect("put");
}

#[test]
fn a_fence_holds_only_for_the_present_holder() {
    let mut shard = Shard::new();
    let (one, two) = (shard.grant(1_000, 100), shard.grant(1_000, 100));
    let paused = shard.fence(&one);
    shard.acquire(&two, true);
    let guarded = |shard: &mut Shard, fence| {
        let put = Operation::Put { key: b"{t}a", value: b"v", condition: Condition::Always };
        let comparison = Comparison { key: LOCK.into(), expected: ExpectedState::Fence(fence) };
        let (comparisons, then) = (vec![comparison], Operations::of(&[put]));
        let transaction = ConditionalTransaction { comparisons, then, ..Default::default() };
        match shard.apply(Write::Conditional(Box::new(transaction))) {
            WriteReply::Branched { succeeded, .. } => succeeded,
            other => panic!("{other:?}"),
        }
    };
    assert!(guarded(&mut shard, paused));
    shard.lock(&one, LockOperation::Release);
    let next = shard.fence(&two);
    assert!(!guarded(&mut shard, paused) && guarded(&mut shard, next));
    shard.lock(&two, LockOperation::Release);
    assert!(!guarded(&mut shard, next), "nobody holds it");
    assert!(!guarded(&mut shard, Version::ABSENT));
}

#[test]
fn a_lock_whose_key_is_taken_out_is_not_held() {
    let mut shard = Shard::new();
    let (one, two) = (shard.grant(1_000, 100), shard.grant(1_000, 100));
    shard.fence(&one);
    shard.acquire(&two, true);
    let Machine::Data(data) = &mut shard.0 else { panic!("a data shard") };
    data.kv.take_out(LOCK);
    assert_eq!(shard.holder(), None);
    assert_eq!(shard.lock(&two, LockOperation::Release), LockReply::NotHeld);
    shard.apply(LeaseWrite::Revoke { lease: one });
    shard.fence(&two);
}

#[test]
fn leases_keys_and_queues_are_in_a_snapshot() {
    let mut shard = Shard::new();
    let leases: Vec<LeaseId> = (0..3).map(|_| shard.grant(1_000, 100)).collect();
    for lease in &leases {
        shard.acquire(lease, true);
    }
    shard.bind(b"{t}a", &leases[0]).expect("bound");
    let mut copy = shard.restored();
    for shard in [&mut shard, &mut copy] {
        assert_eq!(shard.expire(1_100, 0), 1);
        assert_eq!(shard.holder(), None);
        assert!(!shard.0.has_leases());
    }
    assert_eq!(copy.0.digest(), shard.0.digest());
}

#[test]
fn a_snapshot_shows_the_leases_of_its_beginning() {
    let mut shard = Shard::new();
    let lease = shard.grant(1_000, 100);
    shard.bind(b"{t}a", &lease).expect("bound");
    shard.fence(&lease);
    let digest = shard.0.digest();
    shard.0.begin_snapshot(&Membership::default());
    shard.expire(1_100, 0);
    let mut restore = Restore::default();
    while let Some(block) = shard.0.next_block() {
        restore.block(&block).expect("a block");
    }
    assert_eq!(restore.finish().expect("a snapshot").machine.digest(), digest);
}

#[test]
fn what_reads_show() {
    let mut shard = Shard::new();
    let (one, two) = (shard.grant(1_000, 100), shard.grant(2_000, 100));
    shard.fence(&one);
    shard.acquire(&two, true);
    shard.bind(b"{t}b", &one).expect("bound");
    shard.bind(b"{t}a", &one).expect("bound");
    let view = |lease: &LeaseId| match shard.read(Read::Lease { lease: lease.clone() }) {
        ReadReply::Lease(view) => view,
        other => panic!("{other:?}"),
    };
    let shown = view(&one).expect("a lease");
    assert_eq!((shown.ttl_ms, shown.ends), (1_000, UnixMillis(1_100)));
    assert_eq!(shown.keys, ["{t}a", "{t}b"]);
    assert_eq!((shown.held, shown.awaited), (vec![Bytes::from(LOCK)], vec![]));
    assert_eq!(view(&two).expect("a lease").awaited, [LOCK]);
    assert_eq!(view(&LeaseId::parse(b"{u}:1").expect("an id")), None);
    let list = |after: Option<&LeaseId>| {
        let (prefix, after) = (Bytes::from_static(b"{t}:"), after.map(|lease| lease.text().into()));
        match shard.read(Read::Leases { prefix, after, limit: 1 }) {
            ReadReply::Page(page) => (page.items[0].key.clone(), page.next.is_some()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list(None), (one.text().into(), true));
    assert_eq!(list(Some(&one)), (two.text().into(), false));
    let ReadReply::Lock(Some(lock)) = shard.read(Read::Lock { name: LOCK.into() }) else { panic!("a lock") };
    assert_eq!((&lock.holder.lease, lock.holder.value), (&one, one.text().into()));
    assert_eq!(lock.queue.iter().map(|waiter| &waiter.lease).collect::<Vec<_>>(), [&two]);
}

#[test]
fn the_bounds_of_leases_and_queues_are_kept() {
    let mut shard = Shard::new();
    let lease = shard.grant(1_000, 100);
    for number in 0..limits::LEASE_KEYS_MAX {
        assert_eq!(shard.bind(format!("{{t}}{number}").as_bytes(), &lease), Ok(()));
    }
    assert_eq!(shard.bind(b"{t}more", &lease), Err(Rejection::LeaseFull));
    assert_eq!(shard.bind(b"{t}0", &lease), Ok(()), "a key that is bound already");
    assert_eq!(shard.acquire(&lease, true), LockReply::QueueFull);
    let holder = shard.grant(1_000, 100);
    shard.fence(&holder);
    for _ in 0..limits::LOCK_WAITERS_MAX {
        let waiter = shard.grant(1_000, 100);
        assert!(matches!(shard.acquire(&waiter, true), LockReply::Queued { .. }));
    }
    let late = shard.grant(1_000, 100);
    assert_eq!(shard.acquire(&late, true), LockReply::QueueFull);
    let mut granted = 0;
    let tag = LeaseTag::new(b"t").expect("a tag");
    let grant = LeaseWrite::Grant { tag, ttl_ms: 1_000, at: UnixMillis(100) };
    while matches!(shard.apply(grant.clone()), WriteReply::Lease(LeaseReply::Granted { .. })) {
        granted += 1;
    }
    assert_eq!(granted + limits::LOCK_WAITERS_MAX + 3, limits::LEASES_MAX);
    // Everything ends, in commands of a bounded size.
    let commands = (1..).find(|_| {
        shard.expire(2_000, 0);
        !shard.0.has_leases()
    });
    assert_eq!(commands, Some(limits::LEASES_MAX.div_ceil(limits::EXPIRED_KEYS_MAX) + 1));
}
