//! Layout of replies about configuration between nodes.
//!
//! Replies are built from the parts that the log and snapshots contain too, which `layout` owns.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::layout::{decode_names, encode_names, option, put_option, text};
use super::{
    Action, Audience, Blame, ChangeView, Changes, ConfigError, ConfigPreview, ConfigReply, ConfigWritten,
    Container, Content, DocumentChange, Draft, DraftView, Export, Found, HistoryPage, Inheritance, Item,
    Name, NamespaceChanges, NamespaceEvent, NamespaceView, Pair, Policy, PreviewedDocument, RevisionView,
    SearchMatch, SearchPage, Stamp,
};
use crate::codec::{self, DecodeError, Decoder};

impl ConfigWritten {
    /// Appends the answer.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, u8::from(self.changed)]);
        codec::put_varint(out, self.revision);
    }

    /// Reads the answer to a change, or why it failed.
    pub(crate) fn decode(
        decoder: &mut Decoder<'_>,
    ) -> Result<Result<ConfigWritten, ConfigError>, DecodeError> {
        Ok(Ok(match decoder.u8()? {
            0 => {
                let changed = decoder.bool()?;
                ConfigWritten { revision: decoder.varint()?, changed }
            }
            tag => return ConfigError::decode(tag, decoder).map(Err),
        }))
    }
}

impl ConfigReply {
    /// Appends the reply.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ConfigReply::Namespace(view) => {
                out.push(20);
                view.encode(out);
            }
            ConfigReply::Pairs { revision, total, items } => {
                out.push(21);
                put_numbers(out, &[*revision, *total as u64]);
                put_all(out, items.iter(), |out, (key, pair)| {
                    put_text(out, key);
                    pair.encode(out);
                });
            }
            ConfigReply::Pair { revision, pair } => {
                out.push(22);
                codec::put_varint(out, *revision);
                pair.encode(out);
            }
            ConfigReply::Containers { revision, total, items } => {
                out.push(23);
                put_numbers(out, &[*revision, *total as u64]);
                put_all(out, items.iter(), |out, (key, container)| {
                    put_text(out, key);
                    container.encode(out);
                });
            }
            ConfigReply::Container(found) => {
                out.push(24);
                found.encode(out);
            }
            ConfigReply::Unchanged { revision } => {
                out.push(25);
                codec::put_varint(out, *revision);
            }
            ConfigReply::History(page) => {
                out.push(26);
                page.encode(out);
            }
            ConfigReply::Export(export) => {
                out.push(27);
                codec::put_varint(out, export.revision);
                export.policy.encode(out);
                put_pairs(out, &export.pairs);
                put_all(out, export.containers.iter(), |out, (key, container)| {
                    put_text(out, key);
                    container.encode(out);
                });
            }
            ConfigReply::Search(page) => {
                out.push(29);
                page.encode(out);
            }
            ConfigReply::Users { revision, containers } => {
                out.push(30);
                codec::put_varint(out, *revision);
                put_all(out, containers.iter(), |out, key| put_text(out, key));
            }
            ConfigReply::Blame(blame) => {
                out.push(31);
                blame.encode(out);
            }
            ConfigReply::Changes(changes) => {
                out.push(28);
                codec::put_varint(out, changes.revision);
                out.push(u8::from(changes.has_gap));
                put_all(out, changes.events.iter(), |out, event| {
                    codec::put_varint(out, event.revision);
                    out.push(u8::from(event.found.is_some()));
                    event.found.iter().for_each(|found| found.encode(out));
                });
            }
            ConfigReply::NamespaceChanges(changes) => {
                out.push(32);
                changes.encode(out);
            }
            ConfigReply::Preview(_)
            | ConfigReply::Inheritance(_)
            | ConfigReply::Drafts { .. }
            | ConfigReply::Draft(_) => self.encode_of_review(out),
        }
    }

    /// Appends a reply about what would change, and who reviews it.
    fn encode_of_review(&self, out: &mut Vec<u8>) {
        match self {
            ConfigReply::Preview(preview) if preview.inherited_by.is_empty() => {
                out.push(33);
                preview.encode(out);
            }
            // Earlier releases do not know what inherits a change.
            ConfigReply::Preview(preview) => {
                out.push(60);
                preview.encode(out);
                preview.encode_inherited_by(out);
            }
            ConfigReply::Inheritance(inheritance) => {
                out.push(61);
                inheritance.encode(out);
            }
            ConfigReply::Drafts { revision, drafts } => {
                out.push(62);
                codec::put_varint(out, *revision);
                put_all(out, drafts.iter(), |out, (name, draft)| {
                    put_text(out, name);
                    draft.encode(out);
                });
            }
            ConfigReply::Draft(view) => {
                out.push(63);
                view.encode(out);
            }
            _ => unreachable!("invariant: `encode` writes it"),
        }
    }

    /// Reads the answer to a read, or why it failed.
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Result<ConfigReply, ConfigError>, DecodeError> {
        Ok(Ok(match decoder.u8()? {
            20 => ConfigReply::Namespace(NamespaceView::decode(decoder)?),
            21 => {
                let (revision, total) = (decoder.varint()?, decoder.varint()? as usize);
                ConfigReply::Pairs { revision, total, items: all(decoder, keyed_pair)? }
            }
            22 => {
                let revision = decoder.varint()?;
                ConfigReply::Pair { revision, pair: Arc::new(Pair::decode(decoder)?) }
            }
            23 => {
                let (revision, total) = (decoder.varint()?, decoder.varint()? as usize);
                ConfigReply::Containers { revision, total, items: all(decoder, keyed_container)? }
            }
            24 => ConfigReply::Container(Found::decode(decoder)?),
            25 => ConfigReply::Unchanged { revision: decoder.varint()? },
            26 => ConfigReply::History(HistoryPage::decode(decoder)?),
            27 => {
                let (revision, policy) = (decoder.varint()?, Policy::decode(decoder)?);
                let pairs = all(decoder, keyed_pair)?.into_iter().collect();
                let containers = all(decoder, keyed_container)?.into_iter().collect();
                ConfigReply::Export(Export { revision, policy, pairs, containers })
            }
            28 => {
                let (revision, has_gap) = (decoder.varint()?, decoder.bool()?);
                let events = all(decoder, |decoder| {
                    let revision = decoder.varint()?;
                    let found = if decoder.bool()? { Some(Found::decode(decoder)?) } else { None };
                    Ok(DocumentChange { revision, found })
                })?;
                ConfigReply::Changes(Changes { revision, has_gap, events })
            }
            29 => ConfigReply::Search(SearchPage::decode(decoder)?),
            30 => ConfigReply::Users { revision: decoder.varint()?, containers: all(decoder, text)? },
            31 => ConfigReply::Blame(Blame::decode(decoder)?),
            32 => ConfigReply::NamespaceChanges(NamespaceChanges::decode(decoder)?),
            33 => ConfigReply::Preview(ConfigPreview::decode(decoder)?),
            60 => ConfigReply::Preview(ConfigPreview::decode_with_inherited_by(decoder)?),
            61 => ConfigReply::Inheritance(Inheritance::decode(decoder)?.into()),
            62 => {
                let revision = decoder.varint()?;
                let drafts = all(decoder, |decoder| Ok((text(decoder)?, Arc::new(Draft::decode(decoder)?))))?;
                ConfigReply::Drafts { revision, drafts }
            }
            63 => ConfigReply::Draft(DraftView::decode(decoder)?.into()),
            tag => return ConfigError::decode(tag, decoder).map(Err),
        }))
    }
}

impl Blame {
    fn encode(&self, out: &mut Vec<u8>) {
        self.found.encode(out);
        put_all(out, self.stamps.iter(), |out, (revision, stamp)| {
            codec::put_varint(out, *revision);
            stamp.encode(out);
        });
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Blame, DecodeError> {
        let found = Found::decode(decoder)?;
        let stamps = all(decoder, |decoder| Ok((decoder.varint()?, Stamp::decode(decoder)?)))?;
        Ok(Blame { found, stamps: stamps.into_iter().collect() })
    }
}

impl SearchPage {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        put_all(out, self.matches.iter(), |out, found| {
            found.item.encode(out);
            Content::encode(Some(&found.content), out);
            put_all(out, found.containers.iter(), |out, key| put_text(out, key));
        });
        put_item(out, self.next.as_ref());
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<SearchPage, DecodeError> {
        let revision = decoder.varint()?;
        let matches = all(decoder, |decoder| {
            let item = Item::decode(decoder)?;
            let content =
                Content::decode(&item, decoder)?.ok_or(DecodeError::Invalid("match of a search"))?;
            Ok(SearchMatch { item, content, containers: all(decoder, text)? })
        })?;
        Ok(SearchPage { revision, matches, next: optional_item(decoder)? })
    }
}

impl NamespaceChanges {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        out.extend_from_slice(&[u8::from(self.has_gap), u8::from(self.has_more)]);
        put_option(out, self.state);
        put_all(out, self.events.iter(), |out, event| {
            codec::put_varint(out, event.revision);
            put_text(out, &event.container);
            out.push(u8::from(event.found.is_some()));
            event.found.iter().for_each(|found| found.encode(out));
        });
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<NamespaceChanges, DecodeError> {
        let revision = decoder.varint()?;
        let (has_gap, has_more) = (decoder.bool()?, decoder.bool()?);
        let state = option(decoder)?;
        let events = all(decoder, |decoder| {
            let (revision, container) = (decoder.varint()?, text(decoder)?);
            let found = if decoder.bool()? { Some(Found::decode(decoder)?) } else { None };
            Ok(NamespaceEvent { revision, container, found })
        })?;
        Ok(NamespaceChanges { revision, has_gap, state, has_more, events })
    }
}

impl NamespaceView {
    fn encode(&self, out: &mut Vec<u8>) {
        let NamespaceView { revision, oldest, pairs, containers, bytes, history_bytes, policy } = *self;
        put_numbers(out, &[revision, oldest, pairs, containers, bytes, history_bytes]);
        policy.encode(out);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<NamespaceView, DecodeError> {
        Ok(NamespaceView {
            revision: decoder.varint()?,
            oldest: decoder.varint()?,
            pairs: decoder.varint()?,
            containers: decoder.varint()?,
            bytes: decoder.varint()?,
            history_bytes: decoder.varint()?,
            policy: Policy::decode(decoder)?,
        })
    }
}

impl Found {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        self.container.encode(out);
        put_pairs(out, &self.pairs);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Found, DecodeError> {
        let revision = decoder.varint()?;
        let container = Arc::new(Container::decode(decoder)?);
        Ok(Found { revision, container, pairs: all(decoder, keyed_pair)?.into_iter().collect() })
    }
}

impl HistoryPage {
    fn encode(&self, out: &mut Vec<u8>) {
        put_numbers(out, &[self.revision, self.oldest]);
        put_all(out, self.revisions.iter(), |out, revision| revision.encode(out));
        put_option(out, self.next);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<HistoryPage, DecodeError> {
        let (revision, oldest) = (decoder.varint()?, decoder.varint()?);
        let revisions = all(decoder, RevisionView::decode)?;
        Ok(HistoryPage { revision, oldest, revisions, next: option(decoder)? })
    }
}

impl RevisionView {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.number);
        self.stamp.encode(out);
        self.action.encode(out);
        put_all(out, self.changes.iter(), |out, change| change.encode(out));
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<RevisionView, DecodeError> {
        let (number, stamp) = (decoder.varint()?, Stamp::decode(decoder)?);
        let action = Action::decode(decoder)?;
        Ok(RevisionView { number, stamp, action, changes: all(decoder, ChangeView::decode)? })
    }
}

impl ChangeView {
    fn encode(&self, out: &mut Vec<u8>) {
        self.item.encode(out);
        Content::encode(self.before.as_ref(), out);
        Content::encode(self.after.as_ref(), out);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<ChangeView, DecodeError> {
        let item = Item::decode(decoder)?;
        let before = Content::decode(&item, decoder)?;
        let after = Content::decode(&item, decoder)?;
        Ok(ChangeView { item, before, after })
    }
}

impl ConfigPreview {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        out.push(u8::from(self.changed));
        put_all(out, self.changes.iter(), |out, change| change.encode(out));
        put_all(out, self.documents.iter(), |out, document| {
            put_text(out, &document.container);
            for side in [&document.before, &document.after] {
                out.push(u8::from(side.is_some()));
                side.iter().for_each(|text| put_text(out, text));
            }
        });
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<ConfigPreview, DecodeError> {
        let (revision, changed) = (decoder.varint()?, decoder.bool()?);
        let changes = all(decoder, ChangeView::decode)?;
        let side = |decoder: &mut Decoder<'_>| decoder.bool()?.then(|| text(decoder)).transpose();
        let documents = all(decoder, |decoder| {
            let container = text(decoder)?;
            Ok(PreviewedDocument { container, before: side(decoder)?, after: side(decoder)? })
        })?;
        Ok(ConfigPreview { revision, changed, changes, documents, inherited_by: Vec::new() })
    }

    fn encode_inherited_by(&self, out: &mut Vec<u8>) {
        put_all(out, self.inherited_by.iter(), |out, (name, containers)| {
            codec::put_bytes(out, name.routing_key());
            put_all(out, containers.iter(), |out, key| put_text(out, key));
        });
    }

    fn decode_with_inherited_by(decoder: &mut Decoder<'_>) -> Result<ConfigPreview, DecodeError> {
        let preview = ConfigPreview::decode(decoder)?;
        let inherited_by = all(decoder, |decoder| Ok((Name::decode(decoder)?, all(decoder, text)?)))?;
        Ok(ConfigPreview { inherited_by, ..preview })
    }
}

impl Inheritance {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        encode_names(&self.parents, out);
        encode_names(&self.children, out);
        out.extend_from_slice(&[u8::from(self.is_protected), u8::from(self.canary.is_some())]);
        if let Some((draft, audience)) = &self.canary {
            put_text(out, draft);
            audience.encode(out);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Inheritance, DecodeError> {
        let revision = decoder.varint()?;
        let (parents, children) = (decode_names(decoder)?, decode_names(decoder)?);
        let is_protected = decoder.bool()?;
        let canary = if decoder.bool()? { Some((text(decoder)?, Audience::decode(decoder)?)) } else { None };
        Ok(Inheritance { revision, parents, children, is_protected, canary })
    }
}

impl DraftView {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        self.draft.encode(out);
        match &self.effect {
            Ok(preview) => {
                out.push(0);
                preview.encode(out);
                preview.encode_inherited_by(out);
            }
            Err(error) => error.encode(out),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<DraftView, DecodeError> {
        let (revision, draft) = (decoder.varint()?, Arc::new(Draft::decode(decoder)?));
        let effect = match decoder.u8()? {
            0 => Ok(ConfigPreview::decode_with_inherited_by(decoder)?),
            tag => Err(ConfigError::decode(tag, decoder)?.into()),
        };
        Ok(DraftView { revision, draft, effect })
    }
}

pub(super) fn put_item(out: &mut Vec<u8>, item: Option<&Item>) {
    out.push(u8::from(item.is_some()));
    item.iter().for_each(|item| item.encode(out));
}

pub(super) fn optional_item(decoder: &mut Decoder<'_>) -> Result<Option<Item>, DecodeError> {
    if decoder.bool()? { Item::decode(decoder).map(Some) } else { Ok(None) }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    codec::put_bytes(out, text.as_bytes());
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| codec::put_varint(out, *number));
}

pub(super) fn put_all<T>(
    out: &mut Vec<u8>,
    items: impl ExactSizeIterator<Item = T>,
    put: impl Fn(&mut Vec<u8>, T),
) {
    codec::put_varint(out, items.len() as u64);
    items.for_each(|item| put(out, item));
}

fn put_pairs(out: &mut Vec<u8>, pairs: &BTreeMap<Arc<str>, Arc<Pair>>) {
    put_all(out, pairs.iter(), |out, (key, pair)| {
        put_text(out, key);
        pair.encode(out);
    });
}

/// Reads `count` items. Memory grows with the items actually read, not with the count.
pub(super) fn all<T>(
    decoder: &mut Decoder<'_>,
    read: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = decoder.varint()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(decoder)?);
    }
    Ok(items)
}

fn keyed_pair(decoder: &mut Decoder<'_>) -> Result<(Arc<str>, Arc<Pair>), DecodeError> {
    Ok((text(decoder)?, Arc::new(Pair::decode(decoder)?)))
}

fn keyed_container(decoder: &mut Decoder<'_>) -> Result<(Arc<str>, Arc<Container>), DecodeError> {
    Ok((text(decoder)?, Arc::new(Container::decode(decoder)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::Datatype;
    use crate::command::config::{Field, Refers, Value};
    use alloc::vec;
    use core::fmt::Debug;

    fn found() -> Found {
        let pair = Arc::new(Pair { revision: 3, schema: None, source: None, value: Value::Int(-4).into() });
        let fields = vec![Field { key: "f".into(), refers: Refers::One("p".into()) }];
        let container = Container {
            fields,
            schema: None,
            source: None,
            revision: 5,
            touched: 6,
            changed: 7,
            checksum: [9; 32],
            document_bytes: 8,
        };
        Found { revision: 8, container: Arc::new(container), pairs: [("p".into(), pair)].into() }
    }

    fn stamp() -> Stamp {
        Stamp { author: "ann".into(), on_behalf_of: "bob".into(), time_ms: 7, message: "why".into() }
    }

    /// Replies with what was found, in its present state.
    fn replies_with(found: Found) -> Vec<ConfigReply> {
        let Found { container, pairs, .. } = found.clone();
        let pair = pairs.values().next().expect("one").clone();
        let matches = vec![
            SearchMatch {
                item: Item::Pair("p".into()),
                content: Content::Pair(pair.clone()),
                containers: vec!["c".into()],
            },
            SearchMatch {
                item: Item::Container("c".into()),
                content: Content::Container(container.clone()),
                containers: vec![],
            },
        ];
        let policy = Policy::default();
        let containers = [("c".into(), container.clone())].into();
        vec![
            ConfigReply::Pairs { revision: 1, total: 9, items: vec![("p".into(), pair.clone())] },
            ConfigReply::Pair { revision: 1, pair },
            ConfigReply::Containers { revision: 1, total: 9, items: vec![("c".into(), container)] },
            ConfigReply::Container(found.clone()),
            ConfigReply::Unchanged { revision: 3 },
            ConfigReply::Export(Export { revision: 2, policy, pairs, containers }),
            ConfigReply::Users { revision: 3, containers: vec!["c".into(), "d".into()] },
            ConfigReply::Blame(Blame { found, stamps: [(1, stamp())].into() }),
            ConfigReply::Search(SearchPage { revision: 3, matches, next: Some(Item::Pair("p".into())) }),
        ]
    }

    fn replies() -> Vec<ConfigReply> {
        let found = found();
        let Found { container, pairs, .. } = found.clone();
        let pair = pairs["p"].clone();
        let policy = Policy::default();
        let view = NamespaceView {
            revision: 1,
            oldest: 2,
            pairs: 3,
            containers: 4,
            bytes: 5,
            history_bytes: 6,
            policy,
        };
        let changes = vec![
            ChangeView {
                item: Item::Pair("p".into()),
                before: None,
                after: Some(Content::Pair(pair.clone())),
            },
            ChangeView {
                item: Item::Container("c".into()),
                before: Some(Content::Container(container.clone())),
                after: None,
            },
        ];
        let previewed = changes.clone();
        let revisions =
            vec![RevisionView { number: 4, stamp: stamp(), action: Action::Rollback { to: 2 }, changes }];
        let events = vec![
            DocumentChange { revision: 2, found: Some(found.clone()) },
            DocumentChange { revision: 3, found: None },
        ];
        let documents = vec![
            PreviewedDocument { container: "c".into(), before: Some("{}".into()), after: None },
            PreviewedDocument { container: "d".into(), before: None, after: Some("{}".into()) },
        ];
        let preview = ConfigPreview {
            revision: 2,
            changed: true,
            changes: previewed,
            documents,
            inherited_by: Vec::new(),
        };
        let mut replies = vec![
            ConfigReply::Namespace(view),
            ConfigReply::NamespaceChanges(NamespaceChanges {
                revision: 300,
                has_gap: true,
                state: Some(299),
                has_more: false,
                events: vec![
                    NamespaceEvent { revision: 7, container: "c".into(), found: Some(found.clone()) },
                    NamespaceEvent { revision: 8, container: "".into(), found: None },
                ],
            }),
            ConfigReply::History(HistoryPage { revision: 9, oldest: 2, revisions, next: Some(4) }),
            ConfigReply::Changes(Changes { revision: 3, has_gap: true, events }),
            ConfigReply::Preview(preview),
        ];
        replies.extend(replies_with(found));
        replies
    }

    fn errors() -> Vec<ConfigError> {
        vec![
            ConfigError::NoNamespace,
            ConfigError::NamespaceExists,
            ConfigError::NamespaceNotEmpty { pairs: 1, containers: 2 },
            ConfigError::NoPair("p".into()),
            ConfigError::NoContainer("c".into()),
            ConfigError::MissingPair { container: "c".into(), pair: "p".into() },
            ConfigError::PairInUse { pair: "p".into(), container: "c".into() },
            ConfigError::RevisionMismatch { current: 3 },
            ConfigError::NoRevision { revision: 9, oldest: 2, newest: 5 },
            ConfigError::TooManyNamespaces,
            ConfigError::TooManyPairs,
            ConfigError::TooManyContainers,
            ConfigError::NamespaceFull,
            ConfigError::DocumentsTooLong,
            ConfigError::PairRetyped { pair: "p".into(), now: Datatype::Int, wanted: Datatype::Empty },
            ConfigError::FieldRetyped {
                container: "c".into(),
                field: "f".into(),
                now: Datatype::Dict,
                wanted: Datatype::Text,
            },
            ConfigError::SchemaViolated {
                item: Item::Container("c".into()),
                path: "a[0]".into(),
                rule: "minimum 1".into(),
            },
            ConfigError::SchemasTooCostly,
            ConfigError::NoSecret("p".into()),
        ]
    }

    /// Encodes, decodes the bytes, and decodes each beginning of them, which must fail.
    fn assert_round_trip<T: Debug + PartialEq>(
        answer: Result<T, ConfigError>,
        encode: impl Fn(&T, &mut Vec<u8>),
        decode: impl Fn(&mut Decoder<'_>) -> Result<Result<T, ConfigError>, DecodeError>,
    ) {
        let mut out = vec![];
        match &answer {
            Ok(answer) => encode(answer, &mut out),
            Err(error) => error.encode(&mut out),
        }
        let mut decoder = Decoder::new(&out);
        assert_eq!(decode(&mut decoder), Ok(answer));
        assert!(decoder.is_empty());
        for cut in 0..out.len() {
            assert!(decode(&mut Decoder::new(&out[..cut])).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn answers_round_trip() {
        for answer in replies().into_iter().map(Ok).chain(errors().into_iter().map(Err)) {
            assert_round_trip(answer, ConfigReply::encode, ConfigReply::decode);
        }
        let written =
            [(1, true), (1 << 50, false)].map(|(revision, changed)| ConfigWritten { revision, changed });
        for answer in written.into_iter().map(Ok).chain(errors().into_iter().map(Err)) {
            assert_round_trip(answer, ConfigWritten::encode, ConfigWritten::decode);
        }
    }
}
