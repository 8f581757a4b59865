//! Leases: their ids, the changes of leases with their limits and layout, and the replies.
//!
//! A lease belongs to one slot, which the tag in its id decides, and moves with that slot. Keys of
//! the slot can be bound to it ([`Operation::PutBound`](super::Operation::PutBound)), and it can
//! hold locks of the slot ([`LockWrite`](super::LockWrite)). When it ends, the shard removes these
//! keys and passes on the locks. The time at which a lease ends is a part of the state: renewals go
//! through the log, and only a log entry ends a lease.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

use super::ShardRefusal;
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::slots::{hash_tag, slot_of};
use crate::types::{UnixMillis, Version};

/// The beginning of the ids of leases: `{tag}:`. Its slot is the slot of the tag, so that a lease
/// has the slot of the keys with the hash tag `{tag}`, and of the key `tag`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseTag(Bytes);

/// The id of a lease: its tag and a number, as text `{tag}:1f` with the number in hexadecimal. The
/// shard assigns the number, and never assigns it again within the slot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    tag: LeaseTag,
    number: Version,
}

impl LeaseTag {
    /// The tag, if it is text of 1 to [`limits::LEASE_TAG_BYTES_MAX`] bytes without `}`.
    pub fn new(tag: &[u8]) -> Option<LeaseTag> {
        let is_tag = (1..=limits::LEASE_TAG_BYTES_MAX).contains(&tag.len())
            && !tag.contains(&b'}')
            && core::str::from_utf8(tag).is_ok();
        is_tag.then(|| LeaseTag([b"{", tag, b"}:"].concat().into()))
    }

    /// The tag of leases with the slot of a key: the hash tag of the key, or else the whole key.
    /// `None` if that is not a tag of leases.
    pub fn of_key(key: &[u8]) -> Option<LeaseTag> {
        LeaseTag::new(hash_tag(key).unwrap_or(key))
    }

    /// The tag itself, without braces.
    pub fn tag(&self) -> &str {
        let inner = &self.0[1..self.0.len() - 2];
        core::str::from_utf8(inner).expect("invariant: a tag is text")
    }

    /// The text with which the ids of its leases begin: `{tag}:`. Permissions treat it as a prefix
    /// of keys.
    pub fn prefix(&self) -> &[u8] {
        &self.0
    }

    /// The slot of its leases.
    pub fn slot(&self) -> u16 {
        slot_of(&self.0)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.tag().as_bytes());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<LeaseTag, DecodeError> {
        LeaseTag::new(decoder.bytes()?).ok_or(DecodeError::Invalid("tag of a lease"))
    }
}

impl LeaseId {
    /// The id of the lease of this tag and number.
    pub fn new(tag: LeaseTag, number: Version) -> LeaseId {
        LeaseId { tag, number }
    }

    /// Reads the text of an id; `None` if it is not exactly what [`LeaseId::text`] returns.
    pub fn parse(text: &[u8]) -> Option<LeaseId> {
        let inner = text.strip_prefix(b"{")?;
        let end = inner.iter().position(|&byte| byte == b'}')?;
        let tag = LeaseTag::new(&inner[..end])?;
        let digits = core::str::from_utf8(inner[end..].strip_prefix(b"}:")?).ok()?;
        let is_canonical = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
            && !digits.starts_with('0');
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_canonical)?;
        Some(LeaseId { tag, number: Version(number) })
    }

    /// The text of the id. Ids of the same tag are in no particular order as texts.
    pub fn text(&self) -> String {
        format!("{{{}}}:{:x}", self.tag.tag(), self.number.0)
    }

    /// The tag.
    pub fn tag(&self) -> &LeaseTag {
        &self.tag
    }

    /// The number: the revision of the shard at which the lease was granted.
    pub fn number(&self) -> Version {
        self.number
    }

    /// The slot of the lease, and of everything that depends on it.
    pub fn slot(&self) -> u16 {
        self.tag.slot()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.tag.encode(out);
        codec::put_varint(out, self.number.0);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<LeaseId, DecodeError> {
        Ok(LeaseId { tag: LeaseTag::decode(decoder)?, number: Version(decoder.varint()?) })
    }
}

impl fmt::Debug for LeaseTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tag().fmt(f)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// A change of leases. Answered by [`WriteReply::Lease`](super::WriteReply::Lease).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseWrite {
    /// Creates a lease. A repetition creates another one.
    Grant {
        /// Decides the slot.
        tag: LeaseTag,
        /// How long the lease lasts without a renewal, in milliseconds:
        /// [`limits::LEASE_TTL_MS_MIN`] to [`limits::LEASE_TTL_MS_MAX`].
        ttl_ms: u64,
        /// The time at which the shard's leader proposed it; 0 until then.
        at: UnixMillis,
    },
    /// Begins the time to live of leases again. The leases must belong to one shard.
    Renew {
        /// 1 to [`limits::LEASES_RENEWED_MAX`].
        leases: Vec<LeaseId>,
        /// The time at which the shard's leader proposed it; 0 until then.
        at: UnixMillis,
    },
    /// Ends a lease now.
    Revoke {
        /// It need not exist.
        lease: LeaseId,
    },
}

/// The reply to a [`LeaseWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// The lease exists.
    Granted {
        /// Its id.
        lease: LeaseId,
        /// It lasts at least this long after the command was sent, in milliseconds.
        ttl_ms: u64,
    },
    /// The leases of the command in their order: how long each lasts at least after the command was
    /// sent, in milliseconds; `None` if there is no such lease.
    Renewed(Vec<Option<u64>>),
    /// The lease has ended.
    Revoked {
        /// How many keys were removed that were bound to it, not counting locks.
        keys: u64,
    },
    /// There is no such lease; nothing changed.
    NoLease,
    /// The shard has [`limits::LEASES_MAX`] leases, or [`limits::LEASES_BYTES_MAX`] bytes of leases
    /// and waiters; nothing changed.
    TooMany,
}

/// A lease, as a read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its id.
    pub lease: LeaseId,
    /// How long it lasts without a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// When it ends, by the clock of the leader that granted or renewed it. After a change of the
    /// leader it may last longer ([`limits::LEASE_FLOOR_MS`]), or be shortened if that clock was
    /// ahead ([`LeaseExpiry::shortens`](super::LeaseExpiry::shortens)).
    pub ends: UnixMillis,
    /// The keys that are bound to it by puts, at most [`limits::LEASE_KEYS_MAX`], in byte order.
    pub keys: Vec<Bytes>,
    /// The names of the locks that it holds, in byte order.
    pub held: Vec<Bytes>,
    /// The names of the locks in whose queues it waits, in byte order.
    pub awaited: Vec<Bytes>,
}

const STEP_GRANT: u8 = 1;
const STEP_RENEW: u8 = 2;
const STEP_REVOKE: u8 = 3;

impl LeaseWrite {
    /// Each tag of its leases. There is at least one in a valid command.
    pub fn tags(&self) -> impl Iterator<Item = &LeaseTag> {
        let (one, many) = match self {
            LeaseWrite::Grant { tag, .. } => (Some(tag), &[][..]),
            LeaseWrite::Renew { leases, .. } => (None, &leases[..]),
            LeaseWrite::Revoke { lease } => (Some(&lease.tag), &[][..]),
        };
        one.into_iter().chain(many.iter().map(|lease| &lease.tag))
    }

    /// The change as the log holds it, proposed at `now` by the clock of the shard's leader.
    pub(super) fn at(&self, now: UnixMillis) -> LeaseWrite {
        let mut write = self.clone();
        match &mut write {
            LeaseWrite::Grant { at, .. } | LeaseWrite::Renew { at, .. } => *at = now,
            LeaseWrite::Revoke { .. } => {}
        }
        write
    }

    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        match self {
            LeaseWrite::Grant { ttl_ms, .. }
                if !(limits::LEASE_TTL_MS_MIN..=limits::LEASE_TTL_MS_MAX).contains(ttl_ms) =>
            {
                Err(ShardRefusal::invalid("the time to live of a lease must be 1 second to 24 hours"))
            }
            LeaseWrite::Renew { leases, .. } if !(1..=limits::LEASES_RENEWED_MAX).contains(&leases.len()) => {
                Err(ShardRefusal::invalid("one command must renew 1 to 4096 leases"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LeaseWrite::Grant { tag, ttl_ms, at } => {
                out.push(STEP_GRANT);
                tag.encode(out);
                codec::put_varint(out, *ttl_ms);
                codec::put_varint(out, at.0);
            }
            LeaseWrite::Renew { leases, at } => {
                out.push(STEP_RENEW);
                codec::put_varint(out, at.0);
                codec::put_varint(out, leases.len() as u64);
                leases.iter().for_each(|lease| lease.encode(out));
            }
            LeaseWrite::Revoke { lease } => {
                out.push(STEP_REVOKE);
                lease.encode(out);
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<LeaseWrite, DecodeError> {
        Ok(match decoder.u8()? {
            STEP_GRANT => {
                let (tag, ttl_ms) = (LeaseTag::decode(decoder)?, decoder.varint()?);
                LeaseWrite::Grant { tag, ttl_ms, at: UnixMillis(decoder.varint()?) }
            }
            STEP_RENEW => {
                let at = UnixMillis(decoder.varint()?);
                let count = decoder.bounded(limits::LEASES_RENEWED_MAX as u64, "number of leases")?;
                let leases = (0..count).map(|_| LeaseId::decode(decoder)).collect::<Result<_, _>>()?;
                LeaseWrite::Renew { leases, at }
            }
            STEP_REVOKE => LeaseWrite::Revoke { lease: LeaseId::decode(decoder)? },
            _ => return Err(DecodeError::UnknownTag("change of leases")),
        })
    }
}

const REPLY_GRANTED: u8 = 1;
const REPLY_RENEWED: u8 = 2;
const REPLY_REVOKED: u8 = 3;
const REPLY_NO_LEASE: u8 = 4;
const REPLY_TOO_MANY: u8 = 5;

impl LeaseReply {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LeaseReply::Granted { lease, ttl_ms } => {
                out.push(REPLY_GRANTED);
                lease.encode(out);
                codec::put_varint(out, *ttl_ms);
            }
            LeaseReply::Renewed(ttls_ms) => {
                out.push(REPLY_RENEWED);
                codec::put_varint(out, ttls_ms.len() as u64);
                // No lease has a time to live of 0.
                ttls_ms.iter().for_each(|ttl_ms| codec::put_varint(out, ttl_ms.unwrap_or_default()));
            }
            LeaseReply::Revoked { keys } => {
                out.push(REPLY_REVOKED);
                codec::put_varint(out, *keys);
            }
            LeaseReply::NoLease => out.push(REPLY_NO_LEASE),
            LeaseReply::TooMany => out.push(REPLY_TOO_MANY),
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<LeaseReply, DecodeError> {
        Ok(match decoder.u8()? {
            REPLY_GRANTED => {
                let lease = LeaseId::decode(decoder)?;
                LeaseReply::Granted { lease, ttl_ms: decoder.varint()? }
            }
            REPLY_RENEWED => {
                let count = decoder.bounded(limits::LEASES_RENEWED_MAX as u64, "number of leases")?;
                let ttl_ms = |_| Ok(Some(decoder.varint()?).filter(|&ttl_ms| ttl_ms > 0));
                LeaseReply::Renewed((0..count).map(ttl_ms).collect::<Result<_, DecodeError>>()?)
            }
            REPLY_REVOKED => LeaseReply::Revoked { keys: decoder.varint()? },
            REPLY_NO_LEASE => LeaseReply::NoLease,
            REPLY_TOO_MANY => LeaseReply::TooMany,
            _ => return Err(DecodeError::UnknownTag("reply to a change of leases")),
        })
    }
}

impl LeaseView {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.lease.encode(out);
        codec::put_varint(out, self.ttl_ms);
        codec::put_varint(out, self.ends.0);
        for names in [&self.keys, &self.held, &self.awaited] {
            codec::put_varint(out, names.len() as u64);
            names.iter().for_each(|name| codec::put_bytes(out, name));
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>, owner: &Bytes) -> Result<LeaseView, DecodeError> {
        let lease = LeaseId::decode(decoder)?;
        let (ttl_ms, ends) = (decoder.varint()?, UnixMillis(decoder.varint()?));
        let mut names = || -> Result<Vec<Bytes>, DecodeError> {
            let count = decoder.bounded(limits::LEASE_KEYS_MAX as u64, "number of keys of a lease")?;
            (0..count).map(|_| decoder.shared(owner)).collect()
        };
        Ok(LeaseView { lease, ttl_ms, ends, keys: names()?, held: names()?, awaited: names()? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::fixture::assert_round_trip;
    use super::*;
    use crate::command::Write;
    use crate::version::ClusterVersion;
    use alloc::vec;

    fn lease(tag: &str, number: u64) -> LeaseId {
        LeaseId::new(LeaseTag::new(tag.as_bytes()).expect("a tag"), Version(number))
    }

    #[test]
    fn ids_are_text_in_one_form() {
        let id = lease("orders", 0x1f);
        assert_eq!(id.text(), "{orders}:1f");
        assert_eq!(LeaseId::parse(b"{orders}:1f"), Some(id.clone()));
        assert_eq!(id.slot(), slot_of(b"{orders}/any"));
        assert_eq!(id.slot(), slot_of(b"orders"));
        assert_eq!(lease("a{b", 1).slot(), slot_of(b"{a{b}x"));
        for text in
            ["{orders}:01f", "{orders}:1F", "{orders}:", "{}:1", "orders:1", "{a}1", "{a}:+1", "{a}:0"]
        {
            assert_eq!(LeaseId::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(LeaseTag::new(b"\xff"), None);
        assert_eq!(LeaseTag::new(&[b'a'; limits::LEASE_TAG_BYTES_MAX + 1]), None);
        let tag_of = |key: &str| LeaseTag::of_key(key.as_bytes()).map(|tag| String::from(tag.tag()));
        assert_eq!(tag_of("{orders}/lock").as_deref(), Some("orders"));
        assert_eq!(tag_of("orders/lock").as_deref(), Some("orders/lock"));
        assert_eq!(tag_of("a}b"), None);
    }

    #[test]
    fn changes_and_replies_round_trip() {
        let tag = LeaseTag::new(b"t").expect("a tag");
        for change in [
            LeaseWrite::Grant { tag, ttl_ms: 10_000, at: UnixMillis(1 << 41) },
            LeaseWrite::Renew { leases: vec![lease("t", 3), lease("u", 1 << 40)], at: UnixMillis(300) },
            LeaseWrite::Revoke { lease: lease("t", 3) },
        ] {
            let write = Write::from(change);
            assert_eq!(write.needed_version(), ClusterVersion::WITH_COORDINATION);
            assert_round_trip(write);
        }
        for reply in [
            LeaseReply::Granted { lease: lease("t", 3), ttl_ms: 1_000 },
            LeaseReply::Renewed(vec![Some(300), None]),
            LeaseReply::Revoked { keys: 7 },
            LeaseReply::NoLease,
            LeaseReply::TooMany,
        ] {
            let mut out = vec![];
            reply.encode(&mut out);
            assert_eq!(LeaseReply::decode(&mut Decoder::new(&out)), Ok(reply));
        }
    }

    #[test]
    fn limits_of_changes_hold() {
        let grant = |ttl_ms| {
            let tag = LeaseTag::new(b"t").expect("a tag");
            Write::from(LeaseWrite::Grant { tag, ttl_ms, at: UnixMillis(0) }).validate().is_ok()
        };
        assert!(grant(limits::LEASE_TTL_MS_MIN) && grant(limits::LEASE_TTL_MS_MAX));
        assert!(!grant(limits::LEASE_TTL_MS_MIN - 1) && !grant(limits::LEASE_TTL_MS_MAX + 1));
        let renew = |count| {
            let leases = vec![lease("t", 1); count];
            Write::from(LeaseWrite::Renew { leases, at: UnixMillis(0) }).validate().is_ok()
        };
        assert!(renew(1) && renew(limits::LEASES_RENEWED_MAX));
        assert!(!renew(0) && !renew(limits::LEASES_RENEWED_MAX + 1));
    }
}
