//! Layout of queries of configuration between nodes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::answers::{optional_item, put_item, put_text};
use super::layout::{option, put_option, text};
use super::{ConfigOperation, ConfigRead, Name, Preview, Query, Search, Selection, WatchPosition};
use crate::codec::{self, DecodeError, Decoder};

impl ConfigRead {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_bytes(out, self.namespace.routing_key());
        self.query.encode(out);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<ConfigRead, DecodeError> {
        Ok(ConfigRead { namespace: Name::decode(decoder)?, query: Query::decode(decoder)? })
    }
}

impl Query {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Query::Namespace => out.push(1),
            Query::Pairs(selection) => {
                out.push(2);
                selection.encode(out);
            }
            Query::Pair { key, at } => {
                out.push(3);
                put_text(out, key);
                put_option(out, *at);
            }
            Query::Containers(selection) => {
                out.push(4);
                selection.encode(out);
            }
            Query::Container { key, at, known } => {
                out.push(5);
                put_text(out, key);
                put_option(out, *at);
                put_option(out, *known);
            }
            Query::History { item, before, limit } => {
                out.push(6);
                put_item(out, item.as_ref());
                put_option(out, *before);
                codec::put_varint(out, *limit as u64);
            }
            Query::Export { at } => {
                out.push(7);
                put_option(out, *at);
            }
            Query::Search(search) => {
                out.push(9);
                search.encode(out);
            }
            Query::Users { key } => {
                out.push(10);
                put_text(out, key);
            }
            Query::Blame { key } => {
                out.push(11);
                put_text(out, key);
            }
            Query::Changes { key, after } => {
                out.push(8);
                put_text(out, key);
                codec::put_varint(out, *after);
            }
            Query::NamespaceChanges { after } => {
                out.push(12);
                out.push(u8::from(after.is_some()));
                after.iter().for_each(|position| position.encode(out));
            }
            Query::Preview(preview) => {
                out.push(13);
                put_option(out, preview.expected);
                preview.operation.encode(out);
            }
            Query::Inheritance => out.push(14),
            Query::Drafts => out.push(15),
            Query::Draft { draft } => {
                out.push(16);
                put_text(out, draft);
            }
            Query::Labelled { label, query } => {
                out.push(17);
                put_text(out, label);
                query.encode(out);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Query, DecodeError> {
        Ok(match decoder.u8()? {
            1 => Query::Namespace,
            2 => Query::Pairs(Selection::decode(decoder)?),
            3 => Query::Pair { key: text(decoder)?, at: option(decoder)? },
            4 => Query::Containers(Selection::decode(decoder)?),
            5 => Query::Container { key: text(decoder)?, at: option(decoder)?, known: option(decoder)? },
            6 => {
                let item = optional_item(decoder)?;
                Query::History { item, before: option(decoder)?, limit: decoder.varint()? as usize }
            }
            7 => Query::Export { at: option(decoder)? },
            8 => Query::Changes { key: text(decoder)?, after: decoder.varint()? },
            9 => Query::Search(Search::decode(decoder)?),
            10 => Query::Users { key: text(decoder)? },
            11 => Query::Blame { key: text(decoder)? },
            12 => Query::NamespaceChanges {
                after: if decoder.bool()? { Some(WatchPosition::decode(decoder)?) } else { None },
            },
            13 => {
                let expected = option(decoder)?;
                let operation = ConfigOperation::decode(decoder)?;
                Query::Preview(Box::new(Preview { expected, operation }))
            }
            14 => Query::Inheritance,
            15 => Query::Drafts,
            16 => Query::Draft { draft: text(decoder)? },
            17 => {
                let (label, query) = (text(decoder)?, Query::decode(decoder)?);
                if !query.depends_on_label() {
                    return Err(DecodeError::Invalid("question about configuration"));
                }
                Query::Labelled { label, query: query.into() }
            }
            _ => return Err(DecodeError::UnknownTag("question about configuration")),
        })
    }
}

impl Search {
    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.text);
        put_item(out, self.after.as_ref());
        codec::put_varint(out, self.limit as u64);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Search, DecodeError> {
        let (text, after) = (text(decoder)?, optional_item(decoder)?);
        Ok(Search { text, after, limit: decoder.varint()? as usize })
    }
}

impl Selection {
    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.contains);
        codec::put_varint(out, self.offset as u64);
        codec::put_varint(out, self.limit as u64);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Selection, DecodeError> {
        let (contains, offset) = (text(decoder)?, decoder.varint()? as usize);
        Ok(Selection { contains, offset, limit: decoder.varint()? as usize })
    }
}

impl WatchPosition {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::put_varint(out, self.revision);
        out.push(u8::from(self.container.is_some()));
        self.container.iter().for_each(|key| put_text(out, key));
        out.push(u8::from(self.is_state));
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<WatchPosition, DecodeError> {
        let revision = decoder.varint()?;
        let container = if decoder.bool()? { Some(text(decoder)?) } else { None };
        Ok(WatchPosition { revision, container, is_state: decoder.bool()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: Query) -> ConfigRead {
        ConfigRead { namespace: Name::new("ns").expect("a name"), query }
    }

    #[test]
    fn only_what_programs_read_is_asked_with_a_label() {
        let container = Query::Container { key: "c".into(), at: None, known: None };
        for (query, is_read) in [(container, true), (Query::Namespace, false), (Query::Drafts, false)] {
            let read = read(Query::Labelled { label: "web-1".into(), query: query.into() });
            let mut bytes = Vec::new();
            read.encode(&mut bytes);
            let decoded = ConfigRead::decode(&mut Decoder::new(&bytes));
            assert_eq!(decoded.ok(), is_read.then_some(read));
        }
    }
}
