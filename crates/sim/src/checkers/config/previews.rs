//! Checks previews: the same change at the same revision has exactly the effect that was shown.
//!
//! The effect that was shown is applied to the state at that revision, and documents are compared
//! with those of the two states. That a preview makes no revision needs no check here, because a
//! revision without a request for it is a violation already.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidelock_core::command::config::{
    ConfigError, ConfigOperation, ConfigPreview, ConfigReply, ConfigWritten, Name, Preview, Query,
};
use tidelock_core::command::{Reply, WriteReply};

use super::{Account, ConfigState, States, violation};
use crate::checkers::Violation;

pub(super) fn judge(name: &Name, account: &Account<'_>, states: &States) -> Result<(), Violation> {
    for seen in &account.reads {
        let (Query::Preview(asked), ConfigReply::Preview(shown)) = (seen.query, seen.reply) else { continue };
        let text = |why: String| format!("preview {} {why}: {shown:?}", seen.operation.token);
        let predicted = match states.at(shown.revision).map(|state| predict(state, shown)).transpose() {
            Ok(predicted) => predicted,
            Err(why) => return violation(name, text(why)),
        };
        let deletes = matches!(asked.operation, ConfigOperation::Delete { .. });
        if deletes && predicted.as_ref().is_some_and(|state| *state != ConfigState::default()) {
            return violation(name, text("leaves something of a deleted namespace".into()));
        }
        for (operation, write) in account.writes.values() {
            let is_same = write.expected == Some(shown.revision) && write.operation == asked.operation;
            let Some(Reply::Write(WriteReply::Config(result))) = operation.reply() else { continue };
            if is_same && !came_true(shown, result, predicted.as_ref(), states) {
                let token = operation.token;
                return violation(name, text(format!("is not what {token} did, which got {result:?}")));
            }
        }
        judge_expectation(asked, shown).or_else(|why| violation(name, text(why)))?;
    }
    Ok(())
}

/// The state after the change that was shown, of a namespace in this state.
pub(in super::super) fn predict(state: &ConfigState, shown: &ConfigPreview) -> Result<ConfigState, String> {
    let after = state.changed(&shown.changes).map_err(|text| format!("says that {text}"))?;
    let keys: BTreeSet<&Arc<str>> = state.containers.keys().chain(after.containers.keys()).collect();
    let differs = |key: &&Arc<str>| state.document(key) != after.document(key);
    let expected: Vec<_> = keys
        .into_iter()
        .filter(differs)
        .map(|key| (key.clone(), state.document(key), after.document(key)))
        .collect();
    let owned = |side: &Option<Arc<str>>| side.as_deref().map(str::to_owned);
    let documents = shown.documents.iter();
    let documents: Vec<_> = documents
        .map(|document| (document.container.clone(), owned(&document.before), owned(&document.after)))
        .collect();
    if documents != expected {
        return Err(format!("shows other documents than {expected:?}"));
    }
    Ok(after)
}

/// Whether the change had the effect that was shown. It may have been late.
fn came_true(
    shown: &ConfigPreview,
    result: &Result<ConfigWritten, ConfigError>,
    predicted: Option<&ConfigState>,
    states: &States,
) -> bool {
    match result {
        Err(ConfigError::RevisionMismatch { .. }) => true,
        Err(_) => false,
        Ok(written) => {
            let state = states.at(written.revision).filter(|_| written.revision > shown.revision);
            let is_same = state.zip(predicted).is_none_or(|(state, predicted)| state == predicted);
            written.changed == shown.changed && is_same
        }
    }
}

fn judge_expectation(asked: &Preview, shown: &ConfigPreview) -> Result<(), String> {
    match asked.expected {
        Some(expected) if expected != shown.revision => Err(format!("expected revision {expected}")),
        _ => Ok(()),
    }
}
