//! One import of configuration: a document into a container, an exported namespace, or the content
//! of another namespace.
//!
//! Owns the cycle of an import and its condition. An import reads the namespace, compares its
//! content with the import, and publishes the changes on the condition that the namespace is
//! unchanged; otherwise it reads again. Comparing takes processor time in proportion to the
//! namespace, so it is a [job](ImportJob): the shell decides where it runs, and may refuse it. A
//! dry run asks for a preview of the same change instead.
//!
//! `document` owns how a document becomes pairs and fields, `promotion` what differs between two
//! namespaces. The shell parses files.

mod document;
mod promotion;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use self::document::ContainerDocument;
pub use self::promotion::Promotion;
use super::asking::{self, Unanswered};
use crate::command::config::{
    Change, ConfigError, ConfigOperation, ConfigPreview, ConfigReply, ConfigWritten, DraftAction, DraftStep,
    Export, Item, Name, NameError, Policy, Preview, Query, SECRET_MASK, Stamp, ValueError,
};
use crate::command::{ConfigRead, ConfigWrite, Consistency, Read, ReadReply, Reply, Request, WriteReply};
use crate::deliberate::{Fault, Faults};
use crate::limits;
use crate::types::UnixMillis;

/// How often an import reads again because the namespace has changed.
const RETRIES_MAX: usize = 8;

/// The next action of an [`ImportRequest`].
#[derive(Debug)]
pub enum ImportAction {
    /// Submit this to the node, and report the reply to [`ImportRequest::answered`].
    Ask(Request),
    /// Run the job, and report its result to [`ImportRequest::finished`], or that it was not taken
    /// to [`ImportRequest::refused`].
    Run(ImportJob),
    /// The result.
    Done(Result<ImportOutcome, ImportFailure>),
}

/// The result of an import that succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The namespace has the content of the import at this revision.
    Written(ConfigWritten),
    /// What the import would do, of a dry run.
    Previewed(ConfigPreview),
}

/// Why an import fails. Only [`Unanswered`] with an unknown outcome leaves open whether it took
/// effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportFailure {
    /// A document is not a dict.
    #[error("a document is a dict of fields")]
    NotADocument,
    /// A document has more fields than a container may have.
    #[error("the document has {0} fields, and a container at most {max}", max = limits::CONFIG_FIELDS_MAX)]
    TooManyFields(usize),
    /// A key of a field or a pair.
    #[error("key {key:?} cannot be: {error}")]
    Key {
        /// The invalid key.
        key: String,
        /// Why it is invalid.
        error: NameError,
    },
    /// A value of a field that is invalid.
    #[error("field {field:?}: {error}")]
    FieldValue {
        /// Key of the field.
        field: Arc<str>,
        /// Why no pair can hold the value.
        error: ValueError,
    },
    /// A value of a pair that is invalid.
    #[error("{name:?}: {error}")]
    PairValue {
        /// Name of the pair in its container.
        name: String,
        /// Why the pair cannot hold the value.
        error: ValueError,
    },
    /// A value is the mask of a secret, where the container has none.
    #[error(
        "{0:?} is {SECRET_MASK}, and there is no secret for which it could stand; set the pair first (--type secret)"
    )]
    Masked(String),
    /// A key that is to be taken over, and that neither namespace has.
    #[error("there is no pair or container {0:?} in either namespace")]
    UnknownKey(Arc<str>),
    /// A pair would change that another container uses.
    #[error("pair {0:?} would change, and another container uses it")]
    PairInUse(Arc<str>),
    /// The namespace refuses the read or the change.
    #[error(transparent)]
    Refused(#[from] ConfigError),
    /// A request has no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The shell did not take the job. Nothing was done.
    #[error("too many large documents are being worked on; nothing was done")]
    Busy,
}

/// The content that an import gives to a namespace or a container.
#[derive(Clone, Debug)]
pub enum ImportContent {
    /// An exported namespace.
    Namespace {
        /// Puts of its pairs and containers.
        file: Vec<Change>,
        /// Whether to delete what the file does not contain.
        replaces: bool,
    },
    /// A document for one container.
    Container(ContainerDocument),
    /// The content of another namespace.
    Promotion(Promotion),
}

/// Where an import goes, and under which conditions.
#[derive(Clone, Debug)]
pub struct ImportTarget {
    /// The namespace to change.
    pub namespace: Name,
    /// Whether to create the namespace if it does not exist.
    pub create: bool,
    /// Author and message of the change. The time is set when the change is submitted.
    pub stamp: Stamp,
    /// The revision that the client expects. If the namespace has another one, the import fails
    /// instead of reading again.
    pub expected: Option<u64>,
    /// Whether the import only shows what it would do.
    pub is_dry_run: bool,
    /// The draft to which the changes are added instead of being published.
    pub draft: Option<Arc<str>>,
}

/// Imports one document or namespace.
#[derive(Debug)]
pub struct ImportRequest {
    target: ImportTarget,
    content: Arc<ImportContent>,
    /// The revision with which the content was compared last.
    compared: u64,
    /// Whether the last request was for the preview of a dry run.
    awaits_preview: bool,
    retries: usize,
    faults: Faults,
}

/// Comparison of an import with a namespace's content. It needs no node and takes processor time in
/// proportion to both.
#[derive(Debug)]
pub struct ImportJob {
    content: Arc<ImportContent>,
    export: Export,
}

impl ImportRequest {
    /// Begins with a read of the namespace.
    pub fn begin(
        target: ImportTarget,
        content: ImportContent,
        faults: Faults,
    ) -> (ImportRequest, ImportAction) {
        let content = Arc::new(content);
        let (compared, awaits_preview, retries) = (0, false, 0);
        let mut request = ImportRequest { target, content, compared, awaits_preview, retries, faults };
        let action = request.read();
        (request, action)
    }

    /// Takes the reply to the last request.
    pub fn answered(&mut self, reply: Reply) -> ImportAction {
        match reply {
            Reply::Read(ReadReply::Config(Ok(ConfigReply::Export(export)))) => self.compare(export),
            Reply::Read(ReadReply::Config(Err(ConfigError::NoNamespace))) if !self.awaits_preview => {
                self.compare(absent())
            }
            Reply::Read(ReadReply::Config(Ok(ConfigReply::Preview(preview)))) => {
                ImportAction::Done(Ok(ImportOutcome::Previewed(preview)))
            }
            Reply::Write(WriteReply::Config(Ok(written))) => {
                ImportAction::Done(Ok(ImportOutcome::Written(written)))
            }
            Reply::Read(ReadReply::Config(Err(ConfigError::RevisionMismatch { .. })))
            | Reply::Write(WriteReply::Config(Err(ConfigError::RevisionMismatch { .. })))
                if self.target.expected.is_none() && self.retries < RETRIES_MAX =>
            {
                self.retries += 1;
                self.read()
            }
            Reply::Read(ReadReply::Config(Err(error))) | Reply::Write(WriteReply::Config(Err(error))) => {
                ImportAction::Done(Err(error.into()))
            }
            other => ImportAction::Done(Err(asking::mismatched(other).into())),
        }
    }

    /// Takes the result of the job, and the wall-clock time for the stamp of the change.
    pub fn finished(&mut self, changes: Result<Vec<Change>, ImportFailure>, now: UnixMillis) -> ImportAction {
        let changes = match changes {
            Ok(changes) => changes,
            Err(failure) => return ImportAction::Done(Err(failure)),
        };
        let ImportTarget { namespace, create, stamp, expected, is_dry_run, draft } = &self.target;
        let namespace = namespace.clone();
        let is_conditional = !self.faults.has(Fault::ImportWithoutCondition);
        let expected = expected.or(is_conditional.then_some(self.compared));
        let operation = match draft.clone() {
            Some(draft) => {
                ConfigOperation::Draft { draft, action: DraftAction::Edit(DraftStep::Publish(changes)) }
            }
            None => ConfigOperation::Publish { changes, create: *create },
        };
        if *is_dry_run {
            self.awaits_preview = true;
            return self.ask(Query::Preview(Preview { expected, operation }.into()));
        }
        let stamp = Stamp { time_ms: now.0, ..stamp.clone() };
        let write = ConfigWrite { namespace, stamp, expected, operation };
        ImportAction::Ask(Request::Write(write.into()))
    }

    /// Takes the news that the job was not taken.
    pub fn refused(&mut self) -> ImportAction {
        ImportAction::Done(Err(ImportFailure::Busy))
    }

    fn read(&mut self) -> ImportAction {
        self.awaits_preview = false;
        self.ask(Query::Export { at: None })
    }

    fn ask(&self, query: Query) -> ImportAction {
        let read = Read::Config(ConfigRead { namespace: self.target.namespace.clone(), query });
        ImportAction::Ask(Request::Read { read, consistency: Consistency::Linearizable })
    }

    fn compare(&mut self, export: Export) -> ImportAction {
        self.compared = export.revision;
        ImportAction::Run(ImportJob { content: self.content.clone(), export })
    }
}

impl ImportJob {
    /// The content with which the import is compared. Its size decides where the job runs.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Computes the changes that make the namespace contain the import.
    ///
    /// # Errors
    /// When no changes do that.
    pub fn run(self) -> Result<Vec<Change>, ImportFailure> {
        match &*self.content {
            ImportContent::Container(document) => document.changes(&self.export),
            ImportContent::Promotion(promotion) => match promotion.unknown_key(&self.export) {
                Some(key) => Err(ImportFailure::UnknownKey(key.clone())),
                None => Ok(promotion.changes(&self.export)),
            },
            ImportContent::Namespace { file, replaces } => {
                let changes = if *replaces { replacement(file, &self.export) } else { file.clone() };
                Ok(without_inherited(changes, &self.export))
            }
        }
    }
}

/// The content of a namespace that does not exist.
fn absent() -> Export {
    let (pairs, containers) = (BTreeMap::new(), BTreeMap::new());
    Export { revision: 0, policy: Policy::default(), pairs, containers }
}

/// The changes of a file, and deletions of everything else, also of schemas.
fn replacement(file: &[Change], export: &Export) -> Vec<Change> {
    let kept: BTreeSet<Item> = file.iter().map(item_of).collect();
    let pairs = export.pairs.keys().cloned().map(Item::Pair);
    let all = pairs.chain(export.containers.keys().cloned().map(Item::Container));
    let deletions = all.filter(|item| !kept.contains(item)).map(Change::Delete);
    let has_schema = |item: &&Item| match item {
        Item::Pair(key) => export.pairs.get(key).is_some_and(|pair| pair.schema.is_some()),
        Item::Container(key) => {
            export.containers.get(key).is_some_and(|container| container.schema.is_some())
        }
    };
    let sets_schema = |change: &Change| match change {
        Change::SetSchema { item, .. } => Some(item.clone()),
        _ => None,
    };
    let stated: BTreeSet<Item> = file.iter().filter_map(sets_schema).collect();
    let without = kept.iter().filter(has_schema).filter(|item| !stated.contains(*item));
    let removals = without.map(|item| Change::SetSchema { item: item.clone(), schema: None });
    file.iter().cloned().chain(deletions).chain(removals).collect()
}

/// The changes without those that repeat what the namespace inherits, which stays inherited, and
/// without deletions of what it inherits.
fn without_inherited(changes: Vec<Change>, export: &Export) -> Vec<Change> {
    let pair = |key: &Arc<str>| export.pairs.get(key).filter(|pair| pair.source.is_some());
    let container = |key: &Arc<str>| export.containers.get(key).filter(|held| held.source.is_some());
    let is_needed = |change: &Change| match change {
        Change::PutPair { key, value, .. } => pair(key).is_none_or(|now| *now.value != *value),
        Change::PutContainer { key, fields, .. } => container(key).is_none_or(|now| now.fields != *fields),
        Change::KeepSecret { .. } => true,
        Change::Delete(Item::Pair(key)) => pair(key).is_none(),
        Change::Delete(Item::Container(key)) => container(key).is_none(),
        Change::SetSchema { item: Item::Pair(key), schema } => {
            pair(key).is_none_or(|now| now.schema != *schema)
        }
        Change::SetSchema { item: Item::Container(key), schema } => {
            container(key).is_none_or(|now| now.schema != *schema)
        }
    };
    changes.into_iter().filter(is_needed).collect()
}

fn item_of(change: &Change) -> Item {
    match change {
        Change::PutPair { key, .. } | Change::KeepSecret { key } => Item::Pair(key.clone()),
        Change::PutContainer { key, .. } => Item::Container(key.clone()),
        Change::Delete(item) | Change::SetSchema { item, .. } => item.clone(),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::command::config::{Pair, Value};
    use crate::command::{Refusal, Write};

    const NOW: UnixMillis = UnixMillis(77);

    fn put(key: &str, number: i64) -> Change {
        Change::PutPair { key: key.into(), value: Value::Int(number), retype: false }
    }

    fn begin(expected: Option<u64>, replaces: bool) -> ImportRequest {
        let namespace = Name::new("ns").unwrap();
        let (stamp, is_dry_run) = (Stamp::default(), false);
        let target = ImportTarget { namespace, create: true, stamp, expected, is_dry_run, draft: None };
        let content = ImportContent::Namespace { file: vec![put("a", 1)], replaces };
        let (import, action) = ImportRequest::begin(target, content, Faults::NONE);
        assert_reads(&action);
        import
    }

    fn assert_reads(action: &ImportAction) {
        let ImportAction::Ask(Request::Read { read: Read::Config(read), consistency }) = action else {
            panic!("{action:?} is no read");
        };
        assert_eq!((&read.query, *consistency), (&Query::Export { at: None }, Consistency::Linearizable));
    }

    fn export(revision: u64) -> Reply {
        let pair = |key: &str| {
            (
                Arc::from(key),
                Arc::new(Pair { value: Value::Int(0).into(), schema: None, revision, source: None }),
            )
        };
        let pairs = [pair("a"), pair("b")].into();
        Reply::Read(ReadReply::Config(Ok(ConfigReply::Export(Export { revision, pairs, ..absent() }))))
    }

    fn written(result: Result<u64, ConfigError>) -> Reply {
        let written = result.map(|revision| ConfigWritten { revision, changed: true });
        Reply::Write(WriteReply::Config(written))
    }

    fn mismatch() -> Reply {
        written(Err(ConfigError::RevisionMismatch { current: 9 }))
    }

    /// The write after a read with this reply.
    fn compared(import: &mut ImportRequest, reply: Reply) -> ConfigWrite {
        let ImportAction::Run(job) = import.answered(reply) else { panic!("compares") };
        match import.finished(job.run(), NOW) {
            ImportAction::Ask(Request::Write(Write::Config(write))) => *write,
            other => panic!("{other:?} is no write"),
        }
    }

    #[test]
    fn an_import_is_published_at_the_revision_that_it_was_compared_with() {
        let mut import = begin(None, true);
        let write = compared(&mut import, export(7));
        assert_eq!((write.expected, write.stamp.time_ms), (Some(7), NOW.0));
        let changes = vec![put("a", 1), Change::Delete(Item::Pair("b".into()))];
        assert_eq!(write.operation, ConfigOperation::Publish { changes, create: true });
        let done = import.answered(written(Ok(8)));
        let ImportAction::Done(Ok(ImportOutcome::Written(done))) = done else { panic!("{done:?}") };
        assert_eq!(done, ConfigWritten { revision: 8, changed: true });
    }

    /// The preview that a dry run asks for after a read with this reply.
    fn previewed(import: &mut ImportRequest, reply: Reply) -> Preview {
        let ImportAction::Run(job) = import.answered(reply) else { panic!("compares") };
        match import.finished(job.run(), NOW) {
            ImportAction::Ask(Request::Read { read: Read::Config(read), consistency }) => {
                assert_eq!(consistency, Consistency::Linearizable);
                let Query::Preview(preview) = read.query else { panic!("{read:?} is no preview") };
                *preview
            }
            other => panic!("{other:?} is no read"),
        }
    }

    #[test]
    fn a_dry_run_asks_what_the_change_would_do() {
        let refused = |error| Reply::Read(ReadReply::Config(Err(error)));
        let mut import = begin(None, false);
        import.target.is_dry_run = true;
        let operation = ConfigOperation::Publish { changes: vec![put("a", 1)], create: true };
        let asked = previewed(&mut import, export(7));
        assert_eq!(asked, Preview { expected: Some(7), operation: operation.clone() });
        assert_reads(&import.answered(refused(ConfigError::RevisionMismatch { current: 8 })));
        let asked = previewed(&mut import, refused(ConfigError::NoNamespace));
        assert_eq!(asked, Preview { expected: Some(0), operation });
        let preview = ConfigPreview {
            revision: 0,
            changed: true,
            changes: Vec::new(),
            documents: Vec::new(),
            inherited_by: Vec::new(),
        };
        let reply = Reply::Read(ReadReply::Config(Ok(ConfigReply::Preview(preview.clone()))));
        let done = import.answered(reply);
        let ImportAction::Done(Ok(ImportOutcome::Previewed(done))) = done else { panic!("{done:?}") };
        assert_eq!(done, preview);
    }

    #[test]
    fn a_dry_run_fails_as_the_import_does() {
        let mut import = begin(Some(3), false);
        import.target.is_dry_run = true;
        for error in [ConfigError::NoNamespace, ConfigError::RevisionMismatch { current: 9 }] {
            assert_eq!(previewed(&mut import, export(7)).expected, Some(3));
            let done = import.answered(Reply::Read(ReadReply::Config(Err(error.clone()))));
            let ImportAction::Done(Err(failure)) = done else { panic!("{done:?}") };
            assert_eq!(failure, ImportFailure::Refused(error));
            assert_reads(&import.read());
        }
    }

    #[test]
    fn without_replacement_nothing_is_deleted() {
        let write = compared(&mut begin(None, false), export(7));
        assert_eq!(write.operation, ConfigOperation::Publish { changes: vec![put("a", 1)], create: true });
    }

    #[test]
    fn a_namespace_that_does_not_exist_is_empty() {
        let absent = Reply::Read(ReadReply::Config(Err(ConfigError::NoNamespace)));
        assert_eq!(compared(&mut begin(None, true), absent).expected, Some(0));
    }

    #[test]
    fn a_changed_namespace_is_read_again_a_limited_number_of_times() {
        let mut import = begin(None, false);
        for revision in 0..RETRIES_MAX as u64 {
            assert_eq!(compared(&mut import, export(revision)).expected, Some(revision));
            assert_reads(&import.answered(mismatch()));
        }
        compared(&mut import, export(100));
        let ImportAction::Done(Err(failure)) = import.answered(mismatch()) else { panic!("gives up") };
        assert_eq!(failure, ImportFailure::Refused(ConfigError::RevisionMismatch { current: 9 }));
    }

    #[test]
    fn an_expected_revision_is_not_replaced_by_a_later_one() {
        let mut import = begin(Some(3), false);
        assert_eq!(compared(&mut import, export(7)).expected, Some(3));
        assert!(matches!(import.answered(mismatch()), ImportAction::Done(Err(ImportFailure::Refused(_)))));
    }

    #[test]
    fn failures_end_the_import() {
        let failed = |action| match action {
            ImportAction::Done(Err(failure)) => failure,
            other => panic!("{other:?} is no failure"),
        };
        assert_eq!(failed(begin(None, false).refused()), ImportFailure::Busy);
        let refusal = Reply::Refused(Refusal::UnknownOutcome);
        let unknown = ImportFailure::Unanswered(Unanswered::Refused(Refusal::UnknownOutcome));
        assert_eq!(failed(begin(None, false).answered(refusal)), unknown);
        let failure = ImportFailure::PairInUse("a".into());
        assert_eq!(failed(begin(None, false).finished(Err(failure.clone()), NOW)), failure);
        let other = failed(begin(None, false).answered(Reply::SlotsMoved));
        assert_eq!(other, ImportFailure::Unanswered(Unanswered::Mismatched));
    }
}
