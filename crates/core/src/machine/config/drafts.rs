//! Drafts of a namespace, their review, and the canary: a draft that a part of the readers sees.
//!
//! While a canary is open, the content of its namespace does not change. So the audience is
//! answered from a copy of the namespace that has the draft as its newest revision, and the numbers
//! of both agree: revision N of the namespace records the beginning of the canary and changes
//! nothing, revision N of the copy is the draft.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Config;
use super::history::Revision;
use super::inheritance::Parents;
use super::namespace::Namespace;
use super::publish::{PreparedRevision, Staged};
use crate::command::config::block::CanaryRecord;
use crate::command::config::{
    Action, Audience, Change, ConfigError, ConfigOperation, Draft, DraftAction, DraftStep, DraftView, Name,
    Preview, Stamp,
};
use crate::deliberate::{Fault, Faults};
use crate::limits;

/// A draft that a part of the readers sees.
#[derive(Clone, Debug)]
pub(super) struct Canary {
    pub record: CanaryRecord,
    /// The namespace as the audience sees it.
    view: Namespace,
}

impl Canary {
    /// The draft and its audience.
    pub(super) fn shown(&self) -> (Arc<str>, Audience) {
        (self.record.draft.clone(), self.record.audience.clone())
    }
}

/// What publishing a draft, or beginning a canary of it, needs.
pub(super) struct ReviewedDraft {
    /// All its changes, for the namespace as it is now.
    changes: Vec<Change>,
    draft: Arc<Draft>,
}

impl Namespace {
    /// Fails while a canary is open.
    pub(super) fn check_no_canary(&self) -> Result<(), ConfigError> {
        match &self.canary {
            Some(canary) => Err(ConfigError::CanaryOpen(canary.record.draft.clone())),
            None => Ok(()),
        }
    }

    /// Fails unless changes may be made without a draft.
    pub(super) fn check_open(&self) -> Result<(), ConfigError> {
        if self.is_protected {
            return Err(ConfigError::Protected);
        }
        self.check_no_canary()
    }

    fn draft(&self, name: &Arc<str>) -> Result<&Arc<Draft>, ConfigError> {
        self.drafts.get(name).ok_or_else(|| ConfigError::NoDraft(name.clone()))
    }

    /// The draft, if no canary shows it.
    fn editable(&mut self, name: &Arc<str>) -> Result<&mut Draft, ConfigError> {
        if self.canary.as_ref().is_some_and(|canary| canary.record.draft == *name) {
            return Err(ConfigError::CanaryOpen(name.clone()));
        }
        let draft = self.drafts.get_mut(name).ok_or_else(|| ConfigError::NoDraft(name.clone()))?;
        Ok(Arc::make_mut(draft))
    }

    /// Applies an action that changes nothing but the draft.
    pub(super) fn edit_draft(
        &mut self,
        name: Arc<str>,
        action: DraftAction,
        stamp: Stamp,
    ) -> Result<(), ConfigError> {
        match action {
            DraftAction::Edit(step) if self.drafts.contains_key(&name) => {
                let revision = self.revision;
                let draft = self.editable(&name)?;
                if draft.bytes() + step.bytes() > limits::CONFIG_DRAFT_BYTES_MAX {
                    return Err(ConfigError::DraftFull);
                }
                draft.authors.insert(stamp.author);
                draft.edits += 1;
                draft.revision = revision;
                draft.approvals.clear();
                push_step(&mut draft.steps, step);
            }
            DraftAction::Edit(step) => {
                if self.drafts.len() >= limits::CONFIG_DRAFTS_MAX {
                    return Err(ConfigError::TooManyDrafts);
                }
                if step.bytes() > limits::CONFIG_DRAFT_BYTES_MAX {
                    return Err(ConfigError::DraftFull);
                }
                let draft = Draft {
                    authors: BTreeSet::from([stamp.author.clone()]),
                    created: stamp,
                    edits: 1,
                    revision: self.revision,
                    steps: Vec::from([step]),
                    comments: Vec::new(),
                    approvals: Vec::new(),
                };
                self.drafts.insert(name, Arc::new(draft));
            }
            DraftAction::Comment => {
                if stamp.message.is_empty() {
                    return Err(ConfigError::EmptyComment);
                }
                let draft = Arc::make_mut(self.drafts.get_mut(&name).ok_or(ConfigError::NoDraft(name))?);
                if draft.comments.len() >= limits::CONFIG_DRAFT_COMMENTS_MAX {
                    return Err(ConfigError::DraftFull);
                }
                draft.comments.push(stamp);
            }
            DraftAction::Approve { edits } => {
                let draft = Arc::make_mut(self.drafts.get_mut(&name).ok_or(ConfigError::NoDraft(name))?);
                if draft.edits != edits {
                    return Err(ConfigError::DraftEdited { edits: draft.edits });
                }
                if stamp.author.is_empty() || draft.authors.contains(&stamp.author) {
                    return Err(ConfigError::OwnApproval);
                }
                draft.approvals.retain(|known| known.author != stamp.author);
                draft.approvals.push(stamp);
            }
            DraftAction::Discard => {
                self.editable(&name)?;
                self.drafts.remove(&name);
            }
            DraftAction::Publish { .. } | DraftAction::Canary { .. } => {
                unreachable!("invariant: these are not edits")
            }
        }
        Ok(())
    }

    /// The changes of a draft that may be published.
    fn review(
        &self,
        name: &Arc<str>,
        edits: Option<u64>,
        faults: Faults,
    ) -> Result<ReviewedDraft, ConfigError> {
        let draft = self.draft(name)?.clone();
        if edits.is_some_and(|edits| edits != draft.edits) {
            return Err(ConfigError::DraftEdited { edits: draft.edits });
        }
        if self.is_protected && draft.approvals.is_empty() && !faults.has(Fault::UnapprovedDraftPublished) {
            return Err(ConfigError::NotApproved);
        }
        Ok(ReviewedDraft { changes: self.changes_of(&draft.steps)?, draft })
    }

    /// The changes of a draft. A rollback also takes back what earlier steps change, and a deletion
    /// what they do to the schema.
    fn changes_of(&self, steps: &[DraftStep]) -> Result<Vec<Change>, ConfigError> {
        let mut changes: Vec<Change> = Vec::new();
        for step in steps {
            match step {
                DraftStep::Publish(more) => {
                    for change in more {
                        if let Change::Delete(item) = change {
                            let sets_schema = |change: &Change| matches!(change, Change::SetSchema { .. });
                            changes.retain(|change| !(sets_schema(change) && change.is_of(item)));
                        }
                        changes.push(change.clone());
                    }
                }
                DraftStep::Rollback { to, item } => {
                    let count = changes.len();
                    changes.retain(|change| item.as_ref().is_some_and(|item| !change.is_of(item)));
                    let is_taken_back = changes.len() < count;
                    match self.restoring(*to, item.clone()) {
                        // The draft itself has created it.
                        Err(ConfigError::NoPair(_) | ConfigError::NoContainer(_)) if is_taken_back => {}
                        restoring => changes.extend(restoring?),
                    }
                }
            }
        }
        Ok(changes)
    }

    /// The revision that publishes a draft.
    pub(super) fn prepare_draft(
        &self,
        (name, edits): (&Arc<str>, Option<u64>),
        stamp: Stamp,
        parents: &Parents<'_>,
        faults: Faults,
    ) -> Result<PreparedRevision, ConfigError> {
        if let Some(canary) = self.canary.as_ref().filter(|canary| canary.record.draft != *name) {
            return Err(ConfigError::CanaryOpen(canary.record.draft.clone()));
        }
        let ReviewedDraft { changes, draft } = self.review(name, edits, faults)?;
        let approved_by = draft.approvals.iter().map(|approval| approval.author.clone()).collect();
        let action = Action::PublishDraft { draft: name.clone(), approved_by };
        let stamp = with_message(stamp, &draft);
        let staged = self.stage(changes, parents)?;
        self.prepare(staged, (action, stamp), faults)?.ok_or(ConfigError::DraftChangesNothing)
    }

    /// Begins to show a draft to an audience.
    pub(super) fn begin_canary(
        &mut self,
        (name, edits, audience): (Arc<str>, Option<u64>, Audience),
        stamp: Stamp,
        parents: &Parents<'_>,
        faults: Faults,
    ) -> Result<(), ConfigError> {
        self.check_no_canary()?;
        let ReviewedDraft { changes, draft } = self.review(&name, edits, faults)?;
        let staged = self.stage(changes, parents)?;
        let action = Action::PublishDraft { draft: name.clone(), approved_by: Vec::new() };
        let stamp = with_message(stamp, &draft);
        let contents = staged.contents();
        let prepared = self.prepare(staged, (action, stamp.clone()), faults)?;
        let prepared = prepared.ok_or(ConfigError::DraftChangesNothing)?;
        let mut view = self.clone();
        view.install(prepared);
        let action = Action::Canary { draft: name.clone(), audience: audience.clone() };
        self.remember(Revision { number: self.numbered + 1, stamp: stamp.clone(), action, undo: Vec::new() });
        let record = CanaryRecord { draft: name, audience, stamp, contents };
        self.canary = Some(Arc::new(Canary { record, view }));
        Ok(())
    }

    /// Continues a canary from its record, once all other content is there.
    pub(super) fn take_canary(&mut self, record: CanaryRecord) {
        let mut view = self.clone();
        view.canary = None;
        // The revision that records the beginning of the canary.
        if let Some(begin) = view.history.pop_back() {
            view.history_bytes -= begin.bytes();
            view.numbered = begin.number - 1;
        }
        let staged = Staged::of(&record.contents, view.numbered + 1);
        let approved_by = Vec::new();
        let action = Action::PublishDraft { draft: record.draft.clone(), approved_by };
        // The draft passed all checks when the canary began, and the content is the same.
        if let Ok(Some(prepared)) = view.prepare(staged, (action, record.stamp.clone()), Faults::default()) {
            view.install(prepared);
        }
        view.numbered = self.numbered;
        self.canary = Some(Arc::new(Canary { record, view }));
    }

    /// Ends the canary without publishing its draft. Returns the containers that its audience saw
    /// resolve to other documents.
    pub(super) fn withdraw(&mut self, stamp: Stamp, faults: Faults) -> Result<Vec<Arc<str>>, ConfigError> {
        let Some(canary) = self.canary.take() else { return Err(ConfigError::NoCanary) };
        let mut containers = canary.view.changed_by(canary.view.revision);
        if faults.has(Fault::WithdrawalNotReported) {
            containers.clear();
        }
        let (draft, audience) = canary.shown();
        let action = Action::Withdraw { draft, audience, containers: containers.clone() };
        self.remember(Revision { number: self.numbered + 1, stamp, action, undo: Vec::new() });
        Ok(containers)
    }

    /// The containers that any reader sees.
    pub(super) fn watched_containers(&self) -> BTreeSet<Arc<str>> {
        let view = self.canary.iter().flat_map(|canary| canary.view.contents.containers.keys());
        self.contents.containers.keys().chain(view).cloned().collect()
    }

    /// The containers that the audience of the canary sees resolve to other documents.
    pub(super) fn shown_by_canary(&self) -> Vec<Arc<str>> {
        self.canary.as_ref().map_or_else(Vec::new, |canary| canary.view.changed_by(canary.view.revision))
    }

    /// The namespace as a reader with a label sees it.
    pub(super) fn for_label(&self, label: &str, faults: Faults) -> &Namespace {
        match &self.canary {
            Some(canary)
                if faults.has(Fault::CanaryShownToAll)
                    || canary.record.audience.contains(&canary.record.draft, label) =>
            {
                &canary.view
            }
            _ => self,
        }
    }
}

impl Config {
    /// A draft, and what publishing it would do.
    pub(super) fn draft_view(&self, namespace: &Name, name: &Arc<str>) -> Result<DraftView, ConfigError> {
        let found = self.namespaces.get(namespace).ok_or(ConfigError::NoNamespace)?;
        let draft = found.draft(name)?.clone();
        let mut found = Namespace::clone(found);
        // The effect of the changes, whether or not they may be published already.
        (found.is_protected, found.canary) = (false, None);
        let mut copy = self.copy_for(namespace, self.is_related(namespace));
        copy.namespaces.insert(namespace.clone(), Arc::new(found));
        let action = DraftAction::Publish { edits: None };
        let operation = ConfigOperation::Draft { draft: name.clone(), action };
        let effect = super::preview::preview(&copy, namespace, &Preview { expected: None, operation });
        let revision = self.namespaces[namespace].revision;
        Ok(DraftView { revision, draft, effect: effect.map_err(Into::into) })
    }
}

/// Adds a step. Changes that follow changes become one step.
fn push_step(steps: &mut Vec<DraftStep>, step: DraftStep) {
    match (steps.last_mut(), step) {
        (Some(DraftStep::Publish(changes)), DraftStep::Publish(more)) => changes.extend(more),
        (_, step) => steps.push(step),
    }
}

/// A revision without a message has that of its draft.
fn with_message(stamp: Stamp, draft: &Draft) -> Stamp {
    if stamp.message.is_empty() { Stamp { message: draft.created.message.clone(), ..stamp } } else { stamp }
}
