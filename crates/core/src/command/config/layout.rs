//! Layout of configuration in the log and in snapshots.
//!
//! Owns layouts and codes. A code is never given another meaning.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;

use super::answers::{all, put_all, put_text};
use super::{
    Action, Audience, Change, ConfigOperation, ConfigRestoration, ConfigWrite, Container, Content,
    DraftAction, Field, Item, Name, Pair, Policy, Refers, Schema, Stamp, Value, block,
};
use crate::codec::{self, DecodeError, Decoder};
use crate::limits;
use crate::types::ShardId;
use crate::version::ClusterVersion;

impl ConfigWrite {
    pub(in crate::command) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.namespace.routing_key());
        self.stamp.encode(out);
        put_option(out, self.expected);
        self.operation.encode(out);
    }

    pub(in crate::command) fn decode(decoder: &mut Decoder<'_>) -> Result<ConfigWrite, DecodeError> {
        let namespace = Name::decode(decoder)?;
        let stamp = Stamp::decode(decoder)?;
        let expected = option(decoder)?;
        Ok(ConfigWrite { namespace, stamp, expected, operation: ConfigOperation::decode(decoder)? })
    }
}

impl ConfigOperation {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ConfigOperation::Create => out.push(1),
            ConfigOperation::Delete { force } => out.extend_from_slice(&[2, u8::from(*force)]),
            ConfigOperation::Publish { changes, create } => {
                out.extend_from_slice(&[3, u8::from(*create)]);
                codec::put_varint(out, changes.len() as u64);
                changes.iter().for_each(|change| change.encode(out));
            }
            ConfigOperation::Rollback { to, item } => {
                out.push(4);
                codec::put_varint(out, *to);
                match item {
                    None => out.push(0),
                    Some(item) => {
                        out.push(1);
                        item.encode(out);
                    }
                }
            }
            ConfigOperation::SetPolicy(policy) => {
                out.push(5);
                policy.encode(out);
            }
            ConfigOperation::SetParents { parents } => {
                out.push(6);
                encode_names(parents, out);
            }
            ConfigOperation::SetProtected(is_protected) => {
                out.extend_from_slice(&[7, u8::from(*is_protected)]);
            }
            ConfigOperation::Draft { draft, action } => {
                out.push(8);
                codec::put_bytes(out, draft.as_bytes());
                action.encode(out);
            }
            ConfigOperation::Withdraw => out.push(9),
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<ConfigOperation, DecodeError> {
        Ok(match decoder.u8()? {
            1 => ConfigOperation::Create,
            2 => ConfigOperation::Delete { force: decoder.bool()? },
            3 => {
                let create = decoder.bool()?;
                let count = decoder.varint()? as usize;
                let mut changes = Vec::with_capacity(count.min(decoder.rest().len() / 3));
                for _ in 0..count {
                    changes.push(Change::decode(decoder)?);
                }
                ConfigOperation::Publish { changes, create }
            }
            4 => {
                let to = decoder.varint()?;
                let item = if decoder.bool()? { Some(Item::decode(decoder)?) } else { None };
                ConfigOperation::Rollback { to, item }
            }
            5 => ConfigOperation::SetPolicy(Policy::decode(decoder)?),
            6 => ConfigOperation::SetParents { parents: decode_names(decoder)? },
            7 => ConfigOperation::SetProtected(decoder.bool()?),
            8 => {
                let draft = text(decoder)?;
                ConfigOperation::Draft { draft, action: DraftAction::decode(decoder)? }
            }
            9 => ConfigOperation::Withdraw,
            _ => return Err(DecodeError::UnknownTag("change of a namespace")),
        })
    }
}

impl ConfigRestoration {
    pub(in crate::command) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.shard.0);
        out.extend_from_slice(self.backup.as_bytes());
        codec::put_bytes(out, &self.block);
    }

    pub(in crate::command) fn decode(
        decoder: &mut Decoder<'_>,
        owner: &Bytes,
    ) -> Result<ConfigRestoration, DecodeError> {
        let shard = ShardId(decoder.varint()?);
        let backup = decoder.uuid()?;
        Ok(ConfigRestoration { shard, backup, block: decoder.shared(owner)? })
    }
}

/// Appends names of namespaces.
pub(super) fn encode_names(names: &[Name], out: &mut Vec<u8>) {
    codec::put_varint(out, names.len() as u64);
    names.iter().for_each(|name| codec::put_bytes(out, name.routing_key()));
}

/// Reads names of namespaces.
pub(super) fn decode_names(decoder: &mut Decoder<'_>) -> Result<Vec<Name>, DecodeError> {
    let count = decoder.varint()? as usize;
    let mut names = Vec::with_capacity(count.min(decoder.rest().len()));
    for _ in 0..count {
        names.push(Name::decode(decoder)?);
    }
    Ok(names)
}

impl Name {
    /// Reads a name. The bytes are copied, because a name outlives the log entry that it came in.
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Name, DecodeError> {
        let text = core::str::from_utf8(decoder.bytes()?).map_err(|_| DecodeError::Invalid("text"))?;
        Name::new(text).map_err(|_| DecodeError::Invalid("name of a namespace"))
    }
}

/// Set in the time of a stamp that is followed by `on_behalf_of`. The releases before
/// [`ClusterVersion::WITH_CLAIMED_AUTHORS`] have written neither.
const HAS_ON_BEHALF_OF: u64 = 1 << 63;

impl Stamp {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.author.as_bytes());
        let has_on_behalf_of = if self.on_behalf_of.is_empty() { 0 } else { HAS_ON_BEHALF_OF };
        codec::put_varint(out, self.time_ms & !HAS_ON_BEHALF_OF | has_on_behalf_of);
        codec::put_bytes(out, self.message.as_bytes());
        if has_on_behalf_of != 0 {
            codec::put_bytes(out, self.on_behalf_of.as_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Stamp, DecodeError> {
        let author = decoder.text()?.into();
        let time_ms = decoder.varint()?;
        let message = decoder.text()?.into();
        let has_on_behalf_of = time_ms & HAS_ON_BEHALF_OF != 0;
        let on_behalf_of = if has_on_behalf_of { decoder.text()?.into() } else { "".into() };
        Ok(Stamp { author, on_behalf_of, time_ms: time_ms & !HAS_ON_BEHALF_OF, message })
    }
}

impl ConfigWrite {
    /// See [`Write::needed_version`](crate::command::Write::needed_version).
    pub(crate) fn needed_version(&self) -> ClusterVersion {
        let of_stamp = match &*self.stamp.on_behalf_of {
            "" => ClusterVersion::FIRST,
            _ => ClusterVersion::WITH_CLAIMED_AUTHORS,
        };
        let of_operation = self.operation.needed_version();
        of_stamp.max(of_operation).max(self.namespace.needed_version())
    }
}

impl ConfigOperation {
    pub(super) fn needed_version(&self) -> ClusterVersion {
        match self {
            ConfigOperation::Publish { changes, .. } => {
                let versions = changes.iter().map(Change::needed_version);
                versions.max().unwrap_or(ClusterVersion::FIRST)
            }
            ConfigOperation::Rollback { item: Some(item), .. } if is_long(item.key()) => {
                ClusterVersion::WITH_LEAVES
            }
            ConfigOperation::SetParents { .. }
            | ConfigOperation::SetProtected(_)
            | ConfigOperation::Draft { .. }
            | ConfigOperation::Withdraw => ClusterVersion::WITH_DRAFTS,
            ConfigOperation::Create
            | ConfigOperation::Delete { .. }
            | ConfigOperation::Rollback { .. }
            | ConfigOperation::SetPolicy(_) => ClusterVersion::FIRST,
        }
    }
}

impl Name {
    /// The version of the cluster from which on every release can read the name.
    pub(crate) fn needed_version(&self) -> ClusterVersion {
        let is_long = self.as_str().chars().count() > limits::CONFIG_NAMESPACE_CHARACTERS_BEFORE_LEAVES;
        if is_long { ClusterVersion::WITH_LEAVES } else { ClusterVersion::FIRST }
    }
}

impl Change {
    /// Earlier releases know no secrets, no schemas and no nested fields, and only shorter keys.
    fn needed_version(&self) -> ClusterVersion {
        let has_leaves = match self {
            Change::SetSchema { .. } => return ClusterVersion::WITH_SCHEMAS,
            Change::KeepSecret { .. } | Change::PutPair { value: Value::Secret(_), .. } => {
                return ClusterVersion::WITH_SECRETS;
            }
            Change::PutPair { key, .. } => is_long(key),
            Change::PutContainer { key, fields, .. } => {
                let is_new = |field: &Field| field.refers.is_nested() || is_long(&field.key);
                is_long(key) || fields.iter().any(is_new)
            }
            Change::Delete(_) => false,
        };
        if has_leaves { ClusterVersion::WITH_LEAVES } else { ClusterVersion::FIRST }
    }
}

fn is_long(key: &str) -> bool {
    key.chars().count() > limits::CONFIG_KEY_CHARACTERS_BEFORE_LEAVES
}

impl ConfigRestoration {
    /// See [`Write::needed_version`](crate::command::Write::needed_version).
    pub(crate) fn needed_version(&self) -> ClusterVersion {
        block::needed_version(&self.block)
    }
}

impl Policy {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revisions);
        codec::put_varint(out, self.age_ms);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Policy, DecodeError> {
        Ok(Policy { revisions: decoder.varint()?, age_ms: decoder.varint()? })
    }
}

impl Item {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Item::Pair(_) => 1,
            Item::Container(_) => 2,
        });
        codec::put_bytes(out, self.key().as_bytes());
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Item, DecodeError> {
        match decoder.u8()? {
            1 => Ok(Item::Pair(text(decoder)?)),
            2 => Ok(Item::Container(text(decoder)?)),
            _ => Err(DecodeError::UnknownTag("kind of item")),
        }
    }
}

/// Set in the revision of a pair or a container whose schema follows it. The releases before
/// [`ClusterVersion::WITH_SCHEMAS`] have written neither.
const HAS_SCHEMA: u64 = 1 << 63;

/// Set in the revision of an inherited pair or container, whose source follows it. The releases
/// before [`ClusterVersion::WITH_DRAFTS`] have written neither.
const HAS_SOURCE: u64 = 1 << 62;

/// The schema and the source of a pair or a container, which follow it.
type Attributes = (Option<Arc<Schema>>, Option<Arc<Name>>);

/// A revision with the marks of the attributes that follow.
fn marked(revision: u64, schema: Option<&Arc<Schema>>, source: Option<&Arc<Name>>) -> u64 {
    let has_schema = if schema.is_some() { HAS_SCHEMA } else { 0 };
    let has_source = if source.is_some() { HAS_SOURCE } else { 0 };
    unmarked(revision) | has_schema | has_source
}

fn unmarked(marked: u64) -> u64 {
    marked & !(HAS_SCHEMA | HAS_SOURCE)
}

fn put_attributes(schema: Option<&Arc<Schema>>, source: Option<&Arc<Name>>, out: &mut Vec<u8>) {
    schema.iter().for_each(|schema| schema.encode(out));
    source.iter().for_each(|source| codec::put_bytes(out, source.routing_key()));
}

/// Reads the attributes that follow according to the marks of the revision.
fn marked_attributes(marked: u64, decoder: &mut Decoder<'_>) -> Result<Attributes, DecodeError> {
    let schema = if marked & HAS_SCHEMA == 0 { None } else { Some(Arc::new(Schema::decode(decoder)?)) };
    let source = if marked & HAS_SOURCE == 0 { None } else { Some(Arc::new(Name::decode(decoder)?)) };
    Ok((schema, source))
}

impl Pair {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (schema, source) = (self.schema.as_ref(), self.source.as_ref());
        codec::put_varint(out, marked(self.revision, schema, source));
        self.value.encode(out);
        put_attributes(schema, source, out);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Pair, DecodeError> {
        let (marked, value) = (decoder.varint()?, Value::decode(decoder)?.into());
        let (schema, source) = marked_attributes(marked, decoder)?;
        Ok(Pair { value, schema, revision: unmarked(marked), source })
    }
}

impl Container {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        encode_fields(&self.fields, out);
        let (schema, source) = (self.schema.as_ref(), self.source.as_ref());
        let revision = marked(self.revision, schema, source);
        for number in [revision, self.touched, self.changed, self.document_bytes as u64] {
            codec::put_varint(out, number);
        }
        out.extend_from_slice(&self.checksum);
        put_attributes(schema, source, out);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Container, DecodeError> {
        let fields = decode_fields(decoder)?;
        let (marked, touched, changed) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let max = limits::CONFIG_DOCUMENTS_BYTES_MAX as u64;
        let document_bytes = decoder.bounded(max, "length of a document")? as usize;
        let checksum = *decoder.raw(32)?.first_chunk().ok_or(DecodeError::Truncated)?;
        let (schema, source) = marked_attributes(marked, decoder)?;
        let revision = unmarked(marked);
        Ok(Container { fields, schema, revision, touched, changed, checksum, document_bytes, source })
    }
}

impl Content {
    /// Appends the content under a key, or that there is none.
    pub(crate) fn encode(content: Option<&Content>, out: &mut Vec<u8>) {
        match content {
            None => out.push(0),
            Some(Content::Pair(pair)) => {
                out.push(1);
                pair.encode(out);
            }
            Some(Content::Container(container)) => {
                out.push(2);
                container.encode(out);
            }
        }
    }

    /// Reads the content under the key of `item`.
    pub(crate) fn decode(item: &Item, decoder: &mut Decoder<'_>) -> Result<Option<Content>, DecodeError> {
        Ok(match (decoder.u8()?, item) {
            (0, _) => None,
            (1, Item::Pair(_)) => Some(Content::Pair(Arc::new(Pair::decode(decoder)?))),
            (2, Item::Container(_)) => Some(Content::Container(Arc::new(Container::decode(decoder)?))),
            _ => return Err(DecodeError::UnknownTag("content under a key")),
        })
    }
}

impl Action {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Action::Create => out.push(1),
            Action::Publish => out.push(2),
            Action::Rollback { to } => {
                out.push(3);
                codec::put_varint(out, *to);
            }
            Action::SetPolicy => out.push(4),
            Action::SetParents => out.push(5),
            Action::SetProtected(is_protected) => out.extend_from_slice(&[6, u8::from(*is_protected)]),
            Action::Inherit { from, revision } => {
                out.push(7);
                codec::put_bytes(out, from.routing_key());
                codec::put_varint(out, *revision);
            }
            Action::PublishDraft { draft, approved_by } => {
                out.push(8);
                put_text(out, draft);
                put_all(out, approved_by.iter(), |out, name| put_text(out, name));
            }
            Action::Canary { draft, audience } => {
                out.push(9);
                put_text(out, draft);
                audience.encode(out);
            }
            Action::Withdraw { draft, audience, containers } => {
                out.push(10);
                put_text(out, draft);
                audience.encode(out);
                put_all(out, containers.iter(), |out, key| put_text(out, key));
            }
        }
    }

    /// The version of the cluster from which on every release knows the action.
    pub(super) fn needed_version(&self) -> ClusterVersion {
        match self {
            Action::Create | Action::Publish | Action::Rollback { .. } | Action::SetPolicy => {
                ClusterVersion::FIRST
            }
            Action::SetParents
            | Action::SetProtected(_)
            | Action::Inherit { .. }
            | Action::PublishDraft { .. }
            | Action::Canary { .. }
            | Action::Withdraw { .. } => ClusterVersion::WITH_DRAFTS,
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Action, DecodeError> {
        Ok(match decoder.u8()? {
            1 => Action::Create,
            2 => Action::Publish,
            3 => Action::Rollback { to: decoder.varint()? },
            4 => Action::SetPolicy,
            5 => Action::SetParents,
            6 => Action::SetProtected(decoder.bool()?),
            7 => {
                let from = Name::decode(decoder)?;
                Action::Inherit { from, revision: decoder.varint()? }
            }
            8 => {
                let draft = text(decoder)?;
                Action::PublishDraft { draft, approved_by: all(decoder, text)? }
            }
            9 => {
                let draft = text(decoder)?;
                Action::Canary { draft, audience: Audience::decode(decoder)? }
            }
            10 => {
                let (draft, audience) = (text(decoder)?, Audience::decode(decoder)?);
                Action::Withdraw { draft, audience, containers: all(decoder, text)? }
            }
            _ => return Err(DecodeError::UnknownTag("cause of a revision")),
        })
    }
}

impl Change {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::PutPair { key, value, retype } => {
                out.push(if *retype { 1 } else { 4 });
                codec::put_bytes(out, key.as_bytes());
                value.encode(out);
            }
            Change::PutContainer { key, fields, retype } => {
                out.push(if *retype { 2 } else { 5 });
                codec::put_bytes(out, key.as_bytes());
                encode_fields(fields, out);
            }
            Change::Delete(item) => {
                out.push(3);
                item.encode(out);
            }
            Change::SetSchema { item, schema: None } => {
                out.push(6);
                item.encode(out);
            }
            Change::SetSchema { item, schema: Some(schema) } => {
                out.push(7);
                item.encode(out);
                schema.encode(out);
            }
            Change::KeepSecret { key } => {
                out.push(8);
                codec::put_bytes(out, key.as_bytes());
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Change, DecodeError> {
        match decoder.u8()? {
            // Log entries written before pairs kept their datatype have 1 and 2.
            code @ (1 | 4) => {
                let key = text(decoder)?;
                Ok(Change::PutPair { key, value: Value::decode(decoder)?, retype: code == 1 })
            }
            code @ (2 | 5) => {
                let key = text(decoder)?;
                Ok(Change::PutContainer { key, fields: decode_fields(decoder)?, retype: code == 2 })
            }
            3 => Ok(Change::Delete(Item::decode(decoder)?)),
            6 => Ok(Change::SetSchema { item: Item::decode(decoder)?, schema: None }),
            7 => {
                let item = Item::decode(decoder)?;
                Ok(Change::SetSchema { item, schema: Some(Arc::new(Schema::decode(decoder)?)) })
            }
            8 => Ok(Change::KeepSecret { key: text(decoder)? }),
            _ => Err(DecodeError::UnknownTag("change of configuration")),
        }
    }
}

/// Appends the fields of a container.
pub(crate) fn encode_fields(fields: &[Field], out: &mut Vec<u8>) {
    codec::put_varint(out, fields.len() as u64);
    for field in fields {
        codec::put_bytes(out, field.key.as_bytes());
        field.refers.encode(out);
    }
}

/// Reads the fields of a container.
pub(crate) fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Vec<Field>, DecodeError> {
    let count = decoder.varint()? as usize;
    let mut fields = Vec::with_capacity(count.min(decoder.rest().len() / 3));
    for _ in 0..count {
        fields.push(Field { key: text(decoder)?, refers: Refers::decode(decoder)? });
    }
    Ok(fields)
}

/// First byte of a dict whose entries may be anything, since [`ClusterVersion::WITH_LEAVES`].
const NESTED_DICT: u8 = 4;

impl Refers {
    fn encode(&self, out: &mut Vec<u8>) {
        let is_nested = self.is_nested();
        out.push(if is_nested { NESTED_DICT } else { self.field_type() });
        match self {
            Refers::One(pair) => codec::put_bytes(out, pair.as_bytes()),
            Refers::List(pairs) => {
                codec::put_varint(out, pairs.len() as u64);
                pairs.iter().for_each(|pair| codec::put_bytes(out, pair.as_bytes()));
            }
            Refers::Dict(entries) => {
                codec::put_varint(out, entries.len() as u64);
                for (name, entry) in entries {
                    codec::put_bytes(out, name.as_bytes());
                    match entry {
                        Refers::One(pair) if !is_nested => codec::put_bytes(out, pair.as_bytes()),
                        entry => entry.encode(out),
                    }
                }
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Refers, DecodeError> {
        Refers::decode_within(decoder, limits::CONFIG_VALUE_DEPTH_MAX)
    }

    fn decode_within(decoder: &mut Decoder<'_>, levels: usize) -> Result<Refers, DecodeError> {
        match decoder.u8()? {
            1 => Ok(Refers::One(text(decoder)?)),
            2 => {
                let count = decoder.varint()? as usize;
                let mut pairs = Vec::with_capacity(count.min(decoder.rest().len()));
                for _ in 0..count {
                    pairs.push(text(decoder)?);
                }
                Ok(Refers::List(pairs))
            }
            3 | NESTED_DICT if levels == 0 => Err(DecodeError::Invalid("levels of a field")),
            kind @ (3 | NESTED_DICT) => {
                let mut entries = BTreeMap::new();
                for _ in 0..decoder.varint()? {
                    let name = text(decoder)?;
                    let entry = match kind {
                        3 => Refers::One(text(decoder)?),
                        _ => Refers::decode_within(decoder, levels - 1)?,
                    };
                    entries.insert(name, entry);
                }
                Ok(Refers::Dict(entries))
            }
            _ => Err(DecodeError::UnknownTag("field type")),
        }
    }
}

/// Reads text as a reference-counted string.
pub(crate) fn text(decoder: &mut Decoder<'_>) -> Result<Arc<str>, DecodeError> {
    let text = core::str::from_utf8(decoder.bytes()?).map_err(|_| DecodeError::Invalid("text"))?;
    Ok(text.into())
}

pub(super) fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    match number {
        None => out.push(0),
        Some(number) => {
            out.push(1);
            codec::put_varint(out, number);
        }
    }
}

pub(super) fn option(decoder: &mut Decoder<'_>) -> Result<Option<u64>, DecodeError> {
    if decoder.bool()? { decoder.varint().map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::SealedSecret;
    use crate::command::write::fixture::assert_round_trip;
    use crate::command::{RestoreWrite, Write};
    use alloc::vec;
    use uuid::Uuid;

    fn write(operation: ConfigOperation) -> Write {
        let (author, message) = ("ann".into(), "why".into());
        let on_behalf_of = if matches!(operation, ConfigOperation::Create) { "bob" } else { "" }.into();
        let stamp = Stamp { author, on_behalf_of, time_ms: 1 << 40, message };
        Write::from(ConfigWrite {
            namespace: Name::new("grün").expect("a name"),
            stamp,
            expected: Some(7),
            operation,
        })
    }

    fn schema() -> Arc<Schema> {
        let source = Value::Dict([("type".into(), Value::text("integer"))].into());
        Arc::new(Schema::new(source).expect("a schema"))
    }

    #[test]
    fn schemas_and_sources_follow_what_they_belong_to() {
        let pair = Pair { value: Value::Int(1).into(), schema: None, revision: 5, source: None };
        let mut bytes = vec![];
        pair.encode(&mut bytes);
        assert_eq!(bytes, [5, 1, 2], "as before there were schemas");
        let base = || Some(Arc::new(Name::new("base").unwrap()));
        for (schema, source) in
            [(None, None), (Some(schema()), None), (None, base()), (Some(schema()), base())]
        {
            let pair = Pair { schema: schema.clone(), source: source.clone(), ..pair.clone() };
            let (touched, changed) = (6, 7);
            let (checksum, document_bytes) = ([9; 32], 8);
            let fields = vec![];
            let container =
                Container { fields, schema, revision: 5, touched, changed, checksum, document_bytes, source };
            let mut bytes = vec![];
            pair.encode(&mut bytes);
            container.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(Pair::decode(&mut decoder), Ok(pair));
            assert_eq!(Container::decode(&mut decoder), Ok(container));
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn schemas_need_a_version() {
        let set = Change::SetSchema { item: Item::Pair("p".into()), schema: None };
        let write = write(ConfigOperation::Publish { changes: vec![set], create: false });
        assert_eq!(write.needed_version(), ClusterVersion::WITH_SCHEMAS);
        let restored = |schema| {
            let pair = Pair { value: Value::Int(1).into(), schema, revision: 5, source: None };
            let mut block = vec![block::BLOCK, block::NAMESPACE];
            codec::put_bytes(&mut block, b"ns");
            block.extend_from_slice(&[5, 5, 0]);
            Policy::default().encode(&mut block);
            block.push(block::PAIR);
            codec::put_bytes(&mut block, b"p");
            pair.encode(&mut block);
            let (shard, backup) = (ShardId(3), Uuid::from_u128(9));
            let restoration = ConfigRestoration { shard, backup, block: block.into() };
            Write::Restore(RestoreWrite::Config(restoration)).needed_version()
        };
        assert_eq!(restored(None), ClusterVersion::FIRST);
        assert_eq!(restored(Some(schema())), ClusterVersion::WITH_SCHEMAS);
    }

    fn sealed() -> Value {
        Value::Secret(SealedSecret::new("k1", "AAAA").expect("a sealed secret"))
    }

    #[test]
    fn secrets_need_a_version() {
        let needed = |change| {
            write(ConfigOperation::Publish { changes: vec![change], create: false }).needed_version()
        };
        let put = |value| Change::PutPair { key: "p".into(), value, retype: false };
        assert_eq!(needed(put(sealed())), ClusterVersion::WITH_SECRETS);
        assert_eq!(needed(put(Value::text("sealed:v1:k1:AAAA"))), ClusterVersion::FIRST, "text");
        assert_eq!(needed(Change::KeepSecret { key: "p".into() }), ClusterVersion::WITH_SECRETS);
        let mut block = vec![block::BLOCK, block::CONTINUED];
        codec::put_bytes(&mut block, b"ns");
        let undo = block::Undo {
            item: Item::Pair("p".into()),
            before: Some(Content::Pair(Arc::new(Pair {
                value: sealed().into(),
                schema: None,
                revision: 5,
                source: None,
            }))),
        };
        block.extend_from_slice(&[block::UNDO, 7, 0]);
        block::encode_undo(&undo, &mut block);
        let (shard, backup) = (ShardId(3), Uuid::from_u128(9));
        let restoration = ConfigRestoration { shard, backup, block: block.into() };
        assert_eq!(restoration.needed_version(), ClusterVersion::WITH_SECRETS, "also only in the history");
    }

    #[test]
    fn writes_round_trip() {
        let one = |pair: &str| Refers::One(pair.into());
        let inner = Refers::Dict([("z".into(), Refers::List(vec!["p".into()]))].into());
        let fields = vec![
            Field { key: "a".into(), refers: Refers::One("p".into()) },
            Field { key: "b".into(), refers: Refers::List(vec!["p".into(), "q".into()]) },
            Field { key: "c".into(), refers: Refers::Dict([("x".into(), one("q"))].into()) },
            Field {
                key: "d".into(),
                refers: Refers::Dict([("x".into(), one("q")), ("y".into(), inner)].into()),
            },
        ];
        let changes = vec![
            Change::PutPair { key: "p".into(), value: Value::Int(-3), retype: false },
            Change::PutPair { key: "p".into(), value: Value::Bool(true), retype: true },
            Change::PutPair { key: "s".into(), value: sealed(), retype: false },
            Change::KeepSecret { key: "s".into() },
            Change::PutContainer { key: "c".into(), fields: fields.clone(), retype: false },
            Change::PutContainer { key: "c".into(), fields, retype: true },
            Change::Delete(Item::Pair("q".into())),
            Change::Delete(Item::Container("d".into())),
            Change::SetSchema { item: Item::Pair("p".into()), schema: None },
            Change::SetSchema { item: Item::Container("c".into()), schema: Some(schema()) },
        ];
        for write in [
            write(ConfigOperation::Create),
            write(ConfigOperation::Delete { force: true }),
            write(ConfigOperation::Publish { changes, create: true }),
            write(ConfigOperation::Rollback { to: 3, item: None }),
            write(ConfigOperation::Rollback { to: 3, item: Some(Item::Container("c".into())) }),
            write(ConfigOperation::SetPolicy(Policy::default())),
            Write::Restore(RestoreWrite::Config(ConfigRestoration {
                shard: ShardId(3),
                backup: Uuid::from_u128(9),
                block: Bytes::from_static(b"\0x"),
            })),
        ] {
            assert_round_trip(write);
        }
    }
}
