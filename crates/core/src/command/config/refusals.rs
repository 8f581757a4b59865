//! Layout of the errors of configuration between nodes.
//!
//! Their codes differ from those of replies, which begin with the same byte.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::answers::put_text;
use super::layout::text;
use super::{ConfigError, Datatype, Item, Name};
use crate::codec::{self, DecodeError, Decoder};

impl ConfigError {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ConfigError::SchemaViolated { item, path, rule } => {
                out.push(17);
                item.encode(out);
                put_text(out, path);
                put_text(out, rule);
            }
            ConfigError::Inherited { item, from } => {
                out.push(48);
                item.encode(out);
                codec::put_bytes(out, from.routing_key());
            }
            ConfigError::InChild { namespace, error } => {
                out.push(49);
                codec::put_bytes(out, namespace.routing_key());
                error.encode(out);
            }
            _ => self.encode_plain(out),
        }
    }

    /// Appends an error that consists of texts and numbers.
    fn encode_plain(&self, out: &mut Vec<u8>) {
        let put_name = |tag: u8, name: &Name, out: &mut Vec<u8>| {
            out.push(tag);
            codec::put_bytes(out, name.routing_key());
        };
        let put = |tag: u8, texts: &[&Arc<str>], numbers: &[u64], out: &mut Vec<u8>| {
            out.push(tag);
            texts.iter().for_each(|text| codec::put_bytes(out, text.as_bytes()));
            numbers.iter().for_each(|number| codec::put_varint(out, *number));
        };
        match self {
            ConfigError::NoNamespace => put(1, &[], &[], out),
            ConfigError::NamespaceExists => put(2, &[], &[], out),
            ConfigError::NamespaceNotEmpty { pairs, containers } => put(3, &[], &[*pairs, *containers], out),
            ConfigError::NoPair(key) => put(4, &[key], &[], out),
            ConfigError::NoContainer(key) => put(5, &[key], &[], out),
            ConfigError::MissingPair { container, pair } => put(6, &[container, pair], &[], out),
            ConfigError::PairInUse { pair, container } => put(7, &[pair, container], &[], out),
            ConfigError::RevisionMismatch { current } => put(8, &[], &[*current], out),
            ConfigError::NoRevision { revision, oldest, newest } => {
                put(9, &[], &[*revision, *oldest, *newest], out);
            }
            ConfigError::TooManyNamespaces => put(10, &[], &[], out),
            ConfigError::TooManyPairs => put(11, &[], &[], out),
            ConfigError::TooManyContainers => put(12, &[], &[], out),
            ConfigError::NamespaceFull => put(13, &[], &[], out),
            ConfigError::DocumentsTooLong => put(14, &[], &[], out),
            ConfigError::PairRetyped { pair, now, wanted } => {
                put(15, &[pair], &[*now as u64, *wanted as u64], out);
            }
            ConfigError::SchemaViolated { .. }
            | ConfigError::Inherited { .. }
            | ConfigError::InChild { .. } => {
                unreachable!("invariant: `encode` writes it")
            }
            ConfigError::SchemasTooCostly => put(18, &[], &[], out),
            ConfigError::FieldRetyped { container, field, now, wanted } => {
                put(16, &[container, field], &[*now as u64, *wanted as u64], out);
            }
            ConfigError::NoSecret(key) => put(51, &[key], &[], out),
            ConfigError::NoParent(name) => put_name(19, name, out),
            ConfigError::ParentElsewhere(name) => put_name(50, name, out),
            ConfigError::ParentCycle(name) => put_name(34, name, out),
            ConfigError::InheritanceTooLarge => put(35, &[], &[], out),
            ConfigError::HasChildren(name) => put_name(36, name, out),
            ConfigError::Protected => put(37, &[], &[], out),
            ConfigError::NoDraft(draft) => put(38, &[draft], &[], out),
            ConfigError::TooManyDrafts => put(39, &[], &[], out),
            ConfigError::DraftFull => put(40, &[], &[], out),
            ConfigError::DraftEdited { edits } => put(41, &[], &[*edits], out),
            ConfigError::DraftChangesNothing => put(42, &[], &[], out),
            ConfigError::NotApproved => put(43, &[], &[], out),
            ConfigError::OwnApproval => put(44, &[], &[], out),
            ConfigError::EmptyComment => put(45, &[], &[], out),
            ConfigError::CanaryOpen(draft) => put(46, &[draft], &[], out),
            ConfigError::NoCanary => put(47, &[], &[], out),
        }
    }

    pub(super) fn decode(tag: u8, decoder: &mut Decoder<'_>) -> Result<ConfigError, DecodeError> {
        Ok(match tag {
            1 => ConfigError::NoNamespace,
            2 => ConfigError::NamespaceExists,
            3 => ConfigError::NamespaceNotEmpty { pairs: decoder.varint()?, containers: decoder.varint()? },
            4 => ConfigError::NoPair(text(decoder)?),
            5 => ConfigError::NoContainer(text(decoder)?),
            6 => ConfigError::MissingPair { container: text(decoder)?, pair: text(decoder)? },
            7 => ConfigError::PairInUse { pair: text(decoder)?, container: text(decoder)? },
            8 => ConfigError::RevisionMismatch { current: decoder.varint()? },
            9 => {
                let (revision, oldest) = (decoder.varint()?, decoder.varint()?);
                ConfigError::NoRevision { revision, oldest, newest: decoder.varint()? }
            }
            10 => ConfigError::TooManyNamespaces,
            11 => ConfigError::TooManyPairs,
            12 => ConfigError::TooManyContainers,
            13 => ConfigError::NamespaceFull,
            14 => ConfigError::DocumentsTooLong,
            18 => ConfigError::SchemasTooCostly,
            15..=17 => return ConfigError::decode_typed(tag, decoder),
            _ => return ConfigError::decode_of_drafts(tag, decoder),
        })
    }

    /// Reads an error about datatypes and schemas.
    fn decode_typed(tag: u8, decoder: &mut Decoder<'_>) -> Result<ConfigError, DecodeError> {
        Ok(match tag {
            15 => {
                let (pair, now) = (text(decoder)?, datatype(decoder)?);
                ConfigError::PairRetyped { pair, now, wanted: datatype(decoder)? }
            }
            16 => {
                let (container, field) = (text(decoder)?, text(decoder)?);
                let now = datatype(decoder)?;
                ConfigError::FieldRetyped { container, field, now, wanted: datatype(decoder)? }
            }
            17 => {
                let item = Item::decode(decoder)?;
                let path = text(decoder)?;
                ConfigError::SchemaViolated { item, path, rule: text(decoder)? }
            }
            _ => return Err(DecodeError::UnknownTag("refusal of a change")),
        })
    }

    /// Reads an error about inheritance, drafts and canaries.
    fn decode_of_drafts(tag: u8, decoder: &mut Decoder<'_>) -> Result<ConfigError, DecodeError> {
        Ok(match tag {
            19 => ConfigError::NoParent(Name::decode(decoder)?),
            51 => ConfigError::NoSecret(text(decoder)?),
            50 => ConfigError::ParentElsewhere(Name::decode(decoder)?),
            34 => ConfigError::ParentCycle(Name::decode(decoder)?),
            35 => ConfigError::InheritanceTooLarge,
            36 => ConfigError::HasChildren(Name::decode(decoder)?),
            37 => ConfigError::Protected,
            38 => ConfigError::NoDraft(text(decoder)?),
            39 => ConfigError::TooManyDrafts,
            40 => ConfigError::DraftFull,
            41 => ConfigError::DraftEdited { edits: decoder.varint()? },
            42 => ConfigError::DraftChangesNothing,
            43 => ConfigError::NotApproved,
            44 => ConfigError::OwnApproval,
            45 => ConfigError::EmptyComment,
            46 => ConfigError::CanaryOpen(text(decoder)?),
            47 => ConfigError::NoCanary,
            48 => {
                let item = Item::decode(decoder)?;
                ConfigError::Inherited { item, from: Name::decode(decoder)? }
            }
            49 => {
                let namespace = Name::decode(decoder)?;
                let tag = decoder.u8()?;
                // The error in a namespace that inherits is not itself such an error.
                if tag == 49 {
                    return Err(DecodeError::Invalid("refusal of a change"));
                }
                ConfigError::InChild { namespace, error: ConfigError::decode(tag, decoder)?.into() }
            }
            _ => return Err(DecodeError::UnknownTag("refusal of a change")),
        })
    }
}

fn datatype(decoder: &mut Decoder<'_>) -> Result<Datatype, DecodeError> {
    Datatype::of(decoder.varint()?).ok_or(DecodeError::UnknownTag("datatype"))
}
