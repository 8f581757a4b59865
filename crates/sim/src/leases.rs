//! Requests of clients with leases: they renew and revoke them, bind keys to them, hold locks and
//! wait for them, and write what a lock guards, sometimes long after they have lost it.
//!
//! Owns the choice of the next request, and what a client believes: its lease, and the last fence
//! that it got. It neither delivers nor checks; `checkers::leases` and the model of
//! `checkers::operations` do.

use bytes::Bytes;
use tidelock_core::command::{
    Comparison, Condition, ConditionalTransaction, Consistency, ExpectedState, LeaseId, LeaseReply, LeaseTag,
    LeaseWrite, LockOperation, LockReply, LockWrite, Operation, OperationsBuilder, Read, Reply, Request,
    Transaction, Write, WriteReply,
};
use tidelock_core::types::{Token, UnixMillis, Version};

use crate::faults::choose;
use crate::history::{token_of, value_of};

/// Longest time to live of a lease, in milliseconds.
pub const TTL_MS_MAX: u64 = 4_000;

/// The time that a request has until a leader proposes it.
pub const UNPROPOSED: UnixMillis = UnixMillis(0);

/// Locks of each tag: few, so that clients contend.
const LOCKS: u64 = 2;

/// Numbers of leases that never were, which name an operation in a renewal.
const MARKS_BEGIN: u64 = 1 << 50;

/// A client with a lease.
#[derive(Debug)]
pub struct LeaseClient {
    /// The hash tags of the shards.
    tags: Vec<String>,
    lease: Option<LeaseId>,
    /// A lock that it held, perhaps still, with its fence.
    held: Option<(Bytes, Version)>,
    /// Chooses requests and pauses.
    pub random: fastrand::Rng,
}

impl LeaseClient {
    /// A client without a lease. The keys of one shard have one of these tags.
    pub fn new(tags: Vec<String>, random: fastrand::Rng) -> LeaseClient {
        LeaseClient { tags, lease: None, held: None, random }
    }

    /// The client's next request.
    pub fn request(&mut self, token: Token) -> Request {
        // A client that lost its lease may write what its lock guarded.
        if self.held.is_some() && self.random.u8(0..4) == 0 {
            return Request::Write(self.guarded(token));
        }
        let Some(lease) = self.lease.clone() else {
            let first = self.tags[0].clone();
            let tag = if self.random.bool() { first } else { choose(&mut self.random, &self.tags).clone() };
            let tag = LeaseTag::new(tag.as_bytes()).expect("invariant: the tags are short texts");
            let ttl_ms = self.random.u64(1_000..=TTL_MS_MAX);
            return Request::Write(LeaseWrite::Grant { tag, ttl_ms, at: UNPROPOSED }.into());
        };
        let waits = self.random.bool();
        Request::Write(match self.random.u8(0..20) {
            0..=6 => {
                let mark = LeaseId::new(lease.tag().clone(), Version(MARKS_BEGIN + token.0));
                LeaseWrite::Renew { leases: vec![lease, mark], at: UNPROPOSED }.into()
            }
            7..=11 => {
                let value = value_of(token, 0);
                self.of_lock(lease, LockOperation::Acquire { value, waits, at: UNPROPOSED })
            }
            12 => self.of_lock(lease, LockOperation::Release),
            13 => self.of_lock(lease, LockOperation::Cancel { at: UNPROPOSED }),
            14 => LeaseWrite::Revoke { lease }.into(),
            15 => {
                // Refused while the lock is held. The name is never a plain key.
                let name = self.lock_of(&lease);
                let value = value_of(token, 0);
                let put = Operation::Put { key: &name, value: &value, condition: Condition::Exists };
                Write::Keys(Transaction::of(marked(lease.tag(), token, &[put])))
            }
            16 | 17 => {
                let key = format!("{{{}}}bound/{}", lease.tag().tag(), self.random.u8(0..3));
                let (value, lease_text) = (value_of(token, 0), lease.text());
                let bind = Operation::PutBound {
                    key: key.as_bytes(),
                    value: &value,
                    condition: Condition::Always,
                    lease: lease_text.as_bytes(),
                };
                Write::Keys(Transaction::of(marked(lease.tag(), token, &[bind])))
            }
            other => return self.read(lease, other),
        })
    }

    fn read(&mut self, lease: LeaseId, kind: u8) -> Request {
        let read = match kind {
            18 => Read::Lease { lease },
            _ => Read::Lock { name: self.lock_of(&lease) },
        };
        Request::Read { read, consistency: Consistency::Linearizable }
    }

    fn lock_of(&mut self, lease: &LeaseId) -> Bytes {
        format!("{{{}}}lock/{}", lease.tag().tag(), self.random.u64(0..LOCKS)).into()
    }

    fn of_lock(&mut self, lease: LeaseId, operation: LockOperation) -> Write {
        LockWrite { name: self.lock_of(&lease), lease, operation }.into()
    }

    /// A write that must only happen while the client holds its lock.
    fn guarded(&mut self, token: Token) -> Write {
        let (name, fence) = self.held.clone().expect("invariant: the client has held a lock");
        let tag = LeaseTag::of_key(&name).expect("invariant: the tags are short texts");
        let (key, value) = ([&name[..], b"/guarded"].concat(), value_of(token, 0));
        let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
        Write::Conditional(Box::new(ConditionalTransaction {
            comparisons: vec![Comparison { key: name, expected: ExpectedState::Fence(fence) }],
            then: marked(&tag, token, &[put]),
            otherwise: marked(&tag, token, &[]),
            id: None,
        }))
    }

    /// The client receives the reply to its request. Returns whether it got or kept something.
    pub fn hears(&mut self, request: &Request, reply: &Reply) -> bool {
        match (request, reply) {
            (Request::Write(Write::Lease(_)), Reply::Write(WriteReply::Lease(reply))) => match reply {
                LeaseReply::Granted { lease, .. } => {
                    self.lease = Some(lease.clone());
                    true
                }
                LeaseReply::Renewed(left) if left.first().is_some_and(Option::is_some) => true,
                _ => {
                    self.lease = None;
                    false
                }
            },
            (Request::Write(Write::Lock(write)), Reply::Write(WriteReply::Lock(reply))) => match reply {
                LockReply::Held { fence, .. } => {
                    self.held = Some((write.name.clone(), *fence));
                    true
                }
                LockReply::NoLease => {
                    self.lease = None;
                    false
                }
                _ => false,
            },
            _ => false,
        }
    }
}

/// The operations of a command, with the mark by which the log names the operation in the history
/// (see [`compound::token_in`](crate::compound::token_in)).
fn marked(tag: &LeaseTag, token: Token, operations: &[Operation<'_>]) -> tidelock_core::command::Operations {
    let mut marked = OperationsBuilder::default();
    operations.iter().for_each(|operation| marked.push(operation));
    let mark = format!("{{{}}}#{}", tag.tag(), token.0);
    marked.push(&Operation::Describe { key: mark.as_bytes() });
    marked.finish()
}

/// The operation in the history to which a change of leases or locks belongs, if it names one.
pub fn token_in(write: &Write) -> Option<Token> {
    match write {
        Write::Lease(write) => match &**write {
            LeaseWrite::Renew { leases, .. } => leases.last()?.number().0.checked_sub(MARKS_BEGIN).map(Token),
            LeaseWrite::Grant { .. } | LeaseWrite::Revoke { .. } => None,
        },
        Write::Lock(write) => match &write.operation {
            LockOperation::Acquire { value, .. } => token_of(value),
            LockOperation::Release | LockOperation::Cancel { .. } => None,
        },
        _ => None,
    }
}

/// The time at which the log says that a change of leases or locks was proposed.
pub fn proposed_at(write: &Write) -> Option<UnixMillis> {
    match write {
        Write::Lease(write) => match &**write {
            LeaseWrite::Grant { at, .. } | LeaseWrite::Renew { at, .. } => Some(*at),
            LeaseWrite::Revoke { .. } => None,
        },
        Write::Lock(write) => match &write.operation {
            LockOperation::Acquire { at, .. } | LockOperation::Cancel { at } => Some(*at),
            LockOperation::Release => None,
        },
        _ => None,
    }
}

/// A change of leases or locks as a client sends it.
pub fn without_time(write: &Write) -> Write {
    let mut write = write.clone();
    match &mut write {
        Write::Lease(write) => {
            if let LeaseWrite::Grant { at, .. } | LeaseWrite::Renew { at, .. } = &mut **write {
                *at = UNPROPOSED;
            }
        }
        Write::Lock(write) => {
            if let LockOperation::Acquire { at, .. } | LockOperation::Cancel { at } = &mut write.operation {
                *at = UNPROPOSED;
            }
        }
        _ => {}
    }
    write
}

/// Whether a key must not exist without its lease.
pub fn ends_with_lease(key: &[u8]) -> bool {
    let name = key.split(|&byte| byte == b'}').nth(1).unwrap_or_default();
    name.starts_with(b"bound/") || (name.starts_with(b"lock/") && !name.ends_with(b"/guarded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compound;

    #[test]
    fn requests_are_valid_and_name_their_operation() {
        let mut client = LeaseClient::new(vec!["7".into(), "8".into()], fastrand::Rng::with_seed(1));
        let lease = LeaseId::parse(b"{7}:1f").expect("an id");
        let (mut named, mut others) = (0, 0);
        for token in (1..500).map(Token) {
            client.lease = Some(lease.clone());
            client.held = Some((Bytes::from_static(b"{7}lock/1"), Version(9)));
            let Request::Write(write) = client.request(token) else { continue };
            assert_eq!(write.validate(), Ok(()));
            match compound::token_in(&write).or_else(|| token_in(&write)) {
                Some(named_token) => {
                    assert_eq!(named_token, token);
                    named += 1;
                }
                None => others += 1,
            }
        }
        assert!(named > 200 && others > 20, "{named} {others}");
        assert!(ends_with_lease(b"{7}bound/1") && ends_with_lease(b"{7}lock/1"));
        assert!(!ends_with_lease(b"{7}lock/1/guarded") && !ends_with_lease(b"bound/1"));
    }
}
