//! Checks imports that were answered with success: each is a conditional write of the revision that
//! it returned, at which the container resolves to exactly the document. It had the condition that
//! its client gave. An import that replaces a namespace without parents leaves nothing else in it.

use tidelock_core::command::config::{ConfigWritten, Name};
use tidelock_core::command::{Reply, WriteReply};

use super::{Account, States, violation};
use crate::checkers::Violation;
use crate::config::is_inheriting;
use crate::history::ImportedDocument;

pub(super) fn judge(
    name: &Name,
    account: &Account<'_>,
    imports: &[ImportedDocument],
    states: &States,
) -> Result<(), Violation> {
    for import in imports.iter().filter(|import| import.namespace == *name) {
        let ImportedDocument { container, document, token, revision, expected, .. } = import;
        if let Some(state) = states.at(*revision) {
            let found = state.document(container);
            if found.as_deref().map(untyped) != Some(untyped(document)) {
                let text = format!(
                    "{token} imported {document} into {container} as revision {revision}, which has {found:?}"
                );
                return violation(name, text);
            }
            if let Some(pairs) = &import.replaced_by
                && !is_inheriting(name)
                && !(state.pairs.keys().eq(pairs) && state.containers.keys().eq([container]))
            {
                let text = format!("{token} replaced all content by {container} and {pairs:?}: {state:?}");
                return violation(name, text);
            }
        }
        let written = account.writes.get(token).map(|(operation, write)| (operation.reply(), write.expected));
        match written {
            Some((
                Some(Reply::Write(WriteReply::Config(Ok(ConfigWritten { revision: made, .. })))),
                Some(condition),
            )) if made == revision && expected.is_none_or(|expected| expected == condition) => {}
            other => {
                let text = format!("{token} imported {container} as revision {revision}, and is {other:?}");
                return violation(name, text);
            }
        }
    }
    Ok(())
}

/// A document in which floats without a fraction are ints: an import may turn an int into a float
/// where a float was. No text of a simulated document contains these characters.
fn untyped(document: &str) -> String {
    document.replace(".0", "")
}
