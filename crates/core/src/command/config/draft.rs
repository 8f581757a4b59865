//! Drafts of changes, and the audiences that see one first.
//!
//! Owns their layout and the limits that can be checked without state. `machine::config::drafts`
//! owns what happens to them.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use crc::{CRC_64_XZ, Crc};

use super::answers::{all, put_all};
use super::layout::{option, put_option, text};
use super::{Change, ConfigError, ConfigPreview, Item, Stamp};
use crate::codec::{self, DecodeError, Decoder};
use crate::command::ShardRefusal;
use crate::limits;

/// What a request does to a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftAction {
    /// Adds a step at the end, and removes all approvals. Creates the draft if there is none.
    Edit(DraftStep),
    /// Adds the message of the request as a comment.
    Comment,
    /// Approves the draft as it is after this many edits. The author must be none of those who
    /// edited it.
    Approve {
        /// [`Draft::edits`] of the draft that was reviewed.
        edits: u64,
    },
    /// Removes the draft.
    Discard,
    /// Applies the draft as one revision, and removes it.
    Publish {
        /// Only if the draft has this many edits.
        edits: Option<u64>,
    },
    /// Shows the draft to a part of the readers. The namespace takes no other change until the
    /// draft is published, or the canary withdrawn.
    Canary {
        /// Only if the draft has this many edits.
        edits: Option<u64>,
        /// Who sees the draft.
        audience: Audience,
    },
}

/// A part of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftStep {
    /// These changes.
    Publish(Vec<Change>),
    /// The content of an earlier revision.
    Rollback {
        /// A revision that is kept when the draft is published.
        to: u64,
        /// The only item to restore; `None`: the whole namespace.
        item: Option<Item>,
    },
}

/// A named set of changes that is not published yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Who created it, when, and why.
    pub created: Stamp,
    /// Number of edits so far; at least 1.
    pub edits: u64,
    /// The revision of the namespace at the last edit.
    pub revision: u64,
    /// All who edited it. They cannot approve it.
    pub authors: BTreeSet<Arc<str>>,
    /// In the order in which they are applied.
    pub steps: Vec<DraftStep>,
    /// Who commented, when, and what; at most [`limits::CONFIG_DRAFT_COMMENTS_MAX`].
    pub comments: Vec<Stamp>,
    /// Who approved the draft as it is now, when, and with which message.
    pub approvals: Vec<Stamp>,
}

/// A draft, and what publishing it now would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftView {
    /// The namespace's revision.
    pub revision: u64,
    /// The draft.
    pub draft: Arc<Draft>,
    /// The effect of its changes, or why they cannot be applied.
    pub effect: Result<ConfigPreview, Box<ConfigError>>,
}

/// The readers that see a canary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// Labels of readers. One that ends with `*` stands for all labels that begin so.
    pub labels: Vec<Arc<str>>,
    /// This share of all other labels, 0 to 100 percent, chosen by a hash of the label.
    pub percent: u8,
}

impl Audience {
    /// Whether a reader with this label sees a canary of `draft`. Different drafts choose different
    /// readers.
    pub fn contains(&self, draft: &str, label: &str) -> bool {
        const CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);
        if label.is_empty() {
            return false;
        }
        let is_named = |known: &Arc<str>| match known.strip_suffix('*') {
            Some(prefix) => label.starts_with(prefix),
            None => **known == *label,
        };
        if self.labels.iter().any(is_named) {
            return true;
        }
        let mut digest = CRC.digest();
        digest.update(draft.as_bytes());
        digest.update(&[0]);
        digest.update(label.as_bytes());
        digest.finalize() % 100 < u64::from(self.percent)
    }

    fn validate(&self) -> Result<(), ShardRefusal> {
        if self.percent > 100 {
            return Err(ShardRefusal::invalid("a canary for more than 100 percent of the readers"));
        }
        if self.labels.is_empty() && self.percent == 0 {
            return Err(ShardRefusal::invalid("a canary for no readers"));
        }
        let is_valid = |label: &Arc<str>| {
            let characters = label.chars().count();
            (1..=limits::CONFIG_LABEL_CHARACTERS_MAX).contains(&characters)
        };
        if self.labels.len() > limits::CONFIG_AUDIENCE_LABELS_MAX || !self.labels.iter().all(is_valid) {
            return Err(ShardRefusal::invalid("more than 64 labels, or a label that no reader can have"));
        }
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_all(out, self.labels.iter(), |out, label| codec::put_bytes(out, label.as_bytes()));
        out.push(self.percent);
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Audience, DecodeError> {
        Ok(Audience { labels: all(decoder, text)?, percent: decoder.u8()? })
    }
}

impl DraftAction {
    pub(super) fn validate(&self) -> Result<(), ShardRefusal> {
        match self {
            DraftAction::Edit(DraftStep::Publish(changes)) => super::validate_changes(changes),
            DraftAction::Canary { audience, .. } => audience.validate(),
            DraftAction::Edit(DraftStep::Rollback { .. })
            | DraftAction::Comment
            | DraftAction::Approve { .. }
            | DraftAction::Discard
            | DraftAction::Publish { .. } => Ok(()),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            DraftAction::Edit(step) => {
                out.push(1);
                step.encode(out);
            }
            DraftAction::Comment => out.push(2),
            DraftAction::Approve { edits } => {
                out.push(3);
                codec::put_varint(out, *edits);
            }
            DraftAction::Discard => out.push(4),
            DraftAction::Publish { edits } => {
                out.push(5);
                put_option(out, *edits);
            }
            DraftAction::Canary { edits, audience } => {
                out.push(6);
                put_option(out, *edits);
                audience.encode(out);
            }
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<DraftAction, DecodeError> {
        Ok(match decoder.u8()? {
            1 => DraftAction::Edit(DraftStep::decode(decoder)?),
            2 => DraftAction::Comment,
            3 => DraftAction::Approve { edits: decoder.varint()? },
            4 => DraftAction::Discard,
            5 => DraftAction::Publish { edits: option(decoder)? },
            6 => {
                let edits = option(decoder)?;
                DraftAction::Canary { edits, audience: Audience::decode(decoder)? }
            }
            _ => return Err(DecodeError::UnknownTag("action on a draft")),
        })
    }
}

impl DraftStep {
    /// Its size in bytes, as limits count it.
    pub(crate) fn bytes(&self) -> usize {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            DraftStep::Publish(changes) => {
                out.push(1);
                put_all(out, changes.iter(), |out, change| change.encode(out));
            }
            DraftStep::Rollback { to, item } => {
                out.push(2);
                codec::put_varint(out, *to);
                out.push(u8::from(item.is_some()));
                item.iter().for_each(|item| item.encode(out));
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<DraftStep, DecodeError> {
        Ok(match decoder.u8()? {
            1 => DraftStep::Publish(all(decoder, Change::decode)?),
            2 => {
                let to = decoder.varint()?;
                let item = if decoder.bool()? { Some(Item::decode(decoder)?) } else { None };
                DraftStep::Rollback { to, item }
            }
            _ => return Err(DecodeError::UnknownTag("step of a draft")),
        })
    }
}

impl Draft {
    /// Its size in bytes, as limits count it.
    pub(crate) fn bytes(&self) -> usize {
        self.steps.iter().map(DraftStep::bytes).sum()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.created.encode(out);
        codec::put_varint(out, self.edits);
        codec::put_varint(out, self.revision);
        put_all(out, self.authors.iter(), |out, author| codec::put_bytes(out, author.as_bytes()));
        put_all(out, self.steps.iter(), |out, step| step.encode(out));
        put_all(out, self.comments.iter(), |out, stamp| stamp.encode(out));
        put_all(out, self.approvals.iter(), |out, stamp| stamp.encode(out));
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Draft, DecodeError> {
        Ok(Draft {
            created: Stamp::decode(decoder)?,
            edits: decoder.varint()?,
            revision: decoder.varint()?,
            authors: all(decoder, text)?.into_iter().collect(),
            steps: all(decoder, DraftStep::decode)?,
            comments: all(decoder, Stamp::decode)?,
            approvals: all(decoder, Stamp::decode)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::config::Value;
    use alloc::format;
    use alloc::vec;

    fn audience(labels: &[&str], percent: u8) -> Audience {
        Audience { labels: labels.iter().map(|label| (*label).into()).collect(), percent }
    }

    #[test]
    fn an_audience_has_named_labels_and_a_share_of_the_others() {
        let named = audience(&["web-1", "db-*"], 0);
        assert!(named.contains("d", "web-1") && named.contains("d", "db-7"));
        assert!(!named.contains("d", "web-10") && !named.contains("d", ""));
        let chosen = |draft: &str| {
            let share = audience(&[], 20);
            (0..1_000).filter(|number| share.contains(draft, &format!("host-{number}"))).collect::<Vec<_>>()
        };
        assert!((120..280).contains(&chosen("a").len()), "{}", chosen("a").len());
        assert_ne!(chosen("a"), chosen("b"));
        assert!(audience(&[], 100).contains("d", "any") && !audience(&[], 100).contains("d", ""));
    }

    #[test]
    fn what_no_audience_can_be_is_refused() {
        assert!(audience(&[], 0).validate().is_err());
        assert!(audience(&["a"], 101).validate().is_err());
        assert!(audience(&[""], 1).validate().is_err());
        assert!(audience(&["a"; 65], 1).validate().is_err());
        assert_eq!(audience(&["a"], 100).validate(), Ok(()));
    }

    #[test]
    fn a_draft_is_decoded_as_it_was_encoded() {
        let put = Change::PutPair { key: "p".into(), value: Value::Int(1), retype: false };
        let item = Some(Item::Container("c".into()));
        let draft = Draft {
            created: Stamp { author: "a".into(), time_ms: 7, ..Stamp::default() },
            edits: 2,
            revision: 5,
            authors: ["a".into(), "b".into()].into(),
            steps: vec![DraftStep::Publish(vec![put]), DraftStep::Rollback { to: 3, item }],
            comments: vec![Stamp { message: "why?".into(), ..Stamp::default() }],
            approvals: vec![Stamp { author: "c".into(), ..Stamp::default() }],
        };
        let mut out = Vec::new();
        draft.encode(&mut out);
        assert_eq!(Draft::decode(&mut Decoder::new(&out)), Ok(draft));
    }
}
