//! Blocks of configuration, as in snapshots, backups and moves of slots.
//!
//! Owns the layout of a block: a zero byte, with which no block of keys begins, followed by
//! records. A record of a namespace's content belongs to the last namespace record before it in the
//! same block. So a block can be applied independently, after the blocks before it. Every record
//! states content instead of a change, so applying it twice changes nothing.
//!
//! `docs/reference/files-snapshots.md` documents the same bytes.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::answers::{all, put_all, put_text};
use super::layout::decode_names;
use super::{
    Action, Audience, Container, Content, Draft, Item, Name, Pair, Policy, Stamp, Value, decode_text,
};
use crate::codec::{self, DecodeError, Decoder};
use crate::version::ClusterVersion;

/// First byte of a block.
pub(crate) const BLOCK: u8 = 0;

pub(crate) const SHARD: u8 = 1;
pub(crate) const NAMESPACE: u8 = 2;
pub(crate) const CONTINUED: u8 = 3;
pub(crate) const PAIR: u8 = 4;
pub(crate) const CONTAINER: u8 = 5;
pub(crate) const REVISION: u8 = 6;
pub(crate) const UNDO: u8 = 7;
pub(crate) const SETTINGS: u8 = 8;
pub(crate) const DRAFT: u8 = 9;
pub(crate) const CANARY: u8 = 10;

/// Whether a block of a snapshot holds configuration.
pub fn is_block(block: &[u8]) -> bool {
    block.first() == Some(&BLOCK)
}

/// One record of a block.
pub(crate) enum ConfigRecord {
    /// Properties of the whole shard.
    Shard { floor: u64, touched: bool },
    /// Begins a namespace; the following records belong to it.
    Namespace { revision: u64, numbered: u64, began: u64, policy: Policy },
    /// A pair of the namespace.
    Pair { key: Arc<str>, pair: Arc<Pair> },
    /// A container of the namespace.
    Container { key: Arc<str>, container: Arc<Container> },
    /// A revision in the history, without its changes.
    Revision(Revision),
    /// One change of that revision: its position, and the previous content of the key.
    Undo { revision: u64, position: u64, undo: Undo },
    /// The parents of the namespace, and whether it is protected.
    Settings { parents: Vec<Name>, is_protected: bool },
    /// A draft.
    Draft { name: Arc<str>, draft: Arc<Draft> },
    /// The canary. It follows everything else of the namespace.
    Canary(CanaryRecord),
}

/// One revision of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Rises with each revision of the namespace.
    pub number: u64,
    /// Who made it, when and why.
    pub stamp: Stamp,
    /// The operation that made it.
    pub action: Action,
    /// Previous content of each key that it changed. Each key occurs once.
    pub undo: Vec<Undo>,
}

/// Content of a key before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The key, and whether it is a pair or a container.
    pub item: Item,
    /// The content before the change; `None` if there was none.
    pub before: Option<Content>,
}

/// A draft that a part of the readers sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryRecord {
    /// The name of the draft.
    pub draft: Arc<str>,
    /// Who sees it.
    pub audience: Audience,
    /// Who began it, when and why.
    pub stamp: Stamp,
    /// The content that the audience sees under the keys that the draft changes; `None`: nothing.
    /// Containers are not resolved.
    pub contents: Vec<(Item, Option<Content>)>,
}

/// Reads a block, record by record, and passes each with the name of its namespace to `take`.
pub(crate) fn of_block(
    block: &[u8],
    mut take: impl FnMut(Option<&Name>, ConfigRecord) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    scan(block, |name, record, _| take(name, record))
}

/// As [`of_block`], and also passes the bytes after each record.
fn scan(
    block: &[u8],
    mut take: impl FnMut(Option<&Name>, ConfigRecord, &[u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut decoder = Decoder::new(block);
    if decoder.u8()? != BLOCK {
        return Err(DecodeError::UnknownTag("block of configuration"));
    }
    let mut name = None;
    while !decoder.is_empty() {
        let record = match decoder.u8()? {
            SHARD => ConfigRecord::Shard { floor: decoder.varint()?, touched: decoder.bool()? },
            NAMESPACE => {
                name = Some(Name::decode(&mut decoder)?);
                let (revision, numbered) = (decoder.varint()?, decoder.varint()?);
                let began = decoder.varint()?;
                ConfigRecord::Namespace { revision, numbered, began, policy: Policy::decode(&mut decoder)? }
            }
            CONTINUED => {
                name = Some(Name::decode(&mut decoder)?);
                continue;
            }
            PAIR => {
                let key = decode_text(&mut decoder)?;
                ConfigRecord::Pair { key, pair: Arc::new(Pair::decode(&mut decoder)?) }
            }
            CONTAINER => {
                let key = decode_text(&mut decoder)?;
                ConfigRecord::Container { key, container: Arc::new(Container::decode(&mut decoder)?) }
            }
            REVISION => {
                let number = decoder.varint()?;
                let stamp = Stamp::decode(&mut decoder)?;
                let action = Action::decode(&mut decoder)?;
                ConfigRecord::Revision(Revision { number, stamp, action, undo: Vec::new() })
            }
            UNDO => {
                let (revision, position) = (decoder.varint()?, decoder.varint()?);
                ConfigRecord::Undo { revision, position, undo: decode_undo(&mut decoder)? }
            }
            SETTINGS => {
                let is_protected = decoder.bool()?;
                ConfigRecord::Settings { parents: decode_names(&mut decoder)?, is_protected }
            }
            DRAFT => {
                let name = decode_text(&mut decoder)?;
                ConfigRecord::Draft { name, draft: Arc::new(Draft::decode(&mut decoder)?) }
            }
            CANARY => ConfigRecord::Canary(CanaryRecord::decode(&mut decoder)?),
            _ => return Err(DecodeError::UnknownTag("record of configuration")),
        };
        if name.is_none() && !matches!(record, ConfigRecord::Shard { .. }) {
            return Err(DecodeError::Invalid("record of no namespace"));
        }
        take(name.as_ref(), record, decoder.rest())?;
    }
    Ok(())
}

/// Records of one namespace as a block; without a name, those of the whole shard.
pub type NamespaceBlock = (Option<Name>, Vec<u8>);

/// Splits a block by namespace, so that namespaces can go to different shards. The records of the
/// shard come without a name.
///
/// # Errors
/// When it is not a block of configuration.
pub fn split_block(block: &[u8]) -> Result<Vec<NamespaceBlock>, DecodeError> {
    let mut parts: Vec<(Option<Name>, Vec<u8>)> = Vec::new();
    let mut rest = block.get(1..).unwrap_or_default();
    scan(block, |name, record, behind| {
        let (bytes, left) = rest.split_at(rest.len() - behind.len());
        rest = left;
        let name = if matches!(record, ConfigRecord::Shard { .. }) { None } else { name.cloned() };
        if parts.last().is_none_or(|(last, _)| *last != name) {
            let mut part = alloc::vec![BLOCK];
            if let Some(name) = &name
                && !bytes.starts_with(&[NAMESPACE])
                && !bytes.starts_with(&[CONTINUED])
            {
                part.push(CONTINUED);
                codec::put_bytes(&mut part, name.routing_key());
            }
            parts.push((name, part));
        }
        if let Some((_, part)) = parts.last_mut() {
            part.extend_from_slice(bytes);
        }
        Ok(())
    })?;
    Ok(parts)
}

/// Checks that a block decodes.
pub(crate) fn check_block(block: &[u8]) -> Result<(), DecodeError> {
    of_block(block, |_, _| Ok(()))
}

/// The version of the cluster from which on every release can read the records of a block.
pub(crate) fn needed_version(block: &[u8]) -> ClusterVersion {
    let mut needed = ClusterVersion::FIRST;
    // Whether the block is one is checked elsewhere.
    let _ = of_block(block, |_, record| {
        needed = needed.max(match &record {
            ConfigRecord::Pair { pair, .. } => of_pair(pair),
            ConfigRecord::Container { container, .. } => of_container(container),
            ConfigRecord::Undo { undo, .. } => match &undo.before {
                Some(Content::Pair(pair)) => of_pair(pair),
                Some(Content::Container(container)) => of_container(container),
                None => ClusterVersion::FIRST,
            },
            ConfigRecord::Revision(revision) => revision.action.needed_version(),
            ConfigRecord::Shard { .. } | ConfigRecord::Namespace { .. } => ClusterVersion::FIRST,
            ConfigRecord::Settings { .. } | ConfigRecord::Draft { .. } | ConfigRecord::Canary(_) => {
                ClusterVersion::WITH_DRAFTS
            }
        });
        Ok(())
    });
    needed
}

fn of_pair(pair: &Pair) -> ClusterVersion {
    let of_value = match *pair.value {
        Value::Secret(_) => ClusterVersion::WITH_SECRETS,
        _ => ClusterVersion::FIRST,
    };
    of_value.max(of_attributes(pair.schema.is_some(), pair.source.is_some()))
}

fn of_container(container: &Container) -> ClusterVersion {
    of_attributes(container.schema.is_some(), container.source.is_some())
}

fn of_attributes(has_schema: bool, has_source: bool) -> ClusterVersion {
    match (has_source, has_schema) {
        (true, _) => ClusterVersion::WITH_DRAFTS,
        (false, true) => ClusterVersion::WITH_SCHEMAS,
        (false, false) => ClusterVersion::FIRST,
    }
}

impl CanaryRecord {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.draft);
        self.audience.encode(out);
        self.stamp.encode(out);
        put_all(out, self.contents.iter(), |out, (item, content)| {
            item.encode(out);
            Content::encode(content.as_ref(), out);
        });
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<CanaryRecord, DecodeError> {
        let (draft, audience) = (decode_text(decoder)?, Audience::decode(decoder)?);
        let stamp = Stamp::decode(decoder)?;
        let contents = all(decoder, |decoder| {
            let item = Item::decode(decoder)?;
            let content = Content::decode(&item, decoder)?;
            Ok((item, content))
        })?;
        Ok(CanaryRecord { draft, audience, stamp, contents })
    }
}

/// The namespaces in a block.
pub(crate) fn namespaces_of(block: &[u8]) -> Result<BTreeSet<Name>, DecodeError> {
    let mut names = BTreeSet::new();
    of_block(block, |name, _| {
        if let Some(name) = name
            && !names.contains(name)
        {
            names.insert(name.clone());
        }
        Ok(())
    })?;
    Ok(names)
}

pub(crate) fn encode_undo(undo: &Undo, out: &mut Vec<u8>) {
    undo.item.encode(out);
    Content::encode(undo.before.as_ref(), out);
}

fn decode_undo(decoder: &mut Decoder<'_>) -> Result<Undo, DecodeError> {
    let item = Item::decode(decoder)?;
    let before = Content::decode(&item, decoder)?;
    Ok(Undo { item, before })
}
