//! `tidelock config draft`: changes that are reviewed before they are published.

use tidelock_api::drafts::{ApproveRequest, CanaryRequest, Draft, ListedDraft, PublishDraftRequest, Stamp};
use tidelock_client::http::Method;
use tidelock_client::{CliError, output};

use super::environments::related;
use super::{Session, Target, diff, encode, show};
use crate::args::{DraftCommand, DraftItemArgs};

/// Runs one of the `config draft` commands.
pub fn run(session: &Session, command: DraftCommand) -> Result<(), CliError> {
    let action = |item: &DraftItemArgs, action: &str| {
        Target::of(&[&item.namespace, "drafts", &item.draft, action]).with_terms(&item.terms)
    };
    let done = |item: &DraftItemArgs, what: &str| Some(format!("{what} draft {}", show::name(&item.draft)));
    match command {
        DraftCommand::List { namespace } => {
            let drafts = session.show::<Vec<ListedDraft>>(Target::of(&[&namespace, "drafts"]))?;
            match drafts.as_deref() {
                None | Some([]) => Ok(()),
                Some(drafts) => output::line(&show::drafts(drafts)),
            }
        }
        DraftCommand::Show { namespace, draft } => {
            let Some(draft) = session.show::<Draft>(Target::of(&[&namespace, "drafts", &draft]))? else {
                return Ok(());
            };
            show_draft(&namespace, &draft)?;
            let is_protected = related(session, &namespace).is_some_and(|found| found.is_protected);
            if is_protected && draft.draft.approvals.is_empty() {
                return output::line("it cannot be published yet: nobody has approved it");
            }
            Ok(())
        }
        DraftCommand::Comment { item, text } => {
            let target = Target { outcome: done(&item, "commented on"), ..action(&item, "comments") };
            session.change(Method::POST, target.with("message", Some(text)), b"")
        }
        DraftCommand::Approve { item, edits } => {
            let body = ApproveRequest { edits, ..ApproveRequest::default() };
            let target = Target { outcome: done(&item, "approved"), ..action(&item, "approve") };
            session.change(Method::POST, target, &encode(&body))
        }
        DraftCommand::Publish { item, edits } => {
            let body = PublishDraftRequest { edits, ..PublishDraftRequest::default() };
            let target = action(&item, "publish").reporting_effects_in(&item.namespace);
            session.change(Method::POST, target, &encode(&body))
        }
        DraftCommand::Canary { item, labels, percent, edits } => {
            let body = CanaryRequest { labels, percent, edits, ..CanaryRequest::default() };
            session.change(Method::POST, action(&item, "canary"), &encode(&body))
        }
        DraftCommand::Withdraw { namespace, terms } => {
            session.change(Method::DELETE, Target::of(&[&namespace, "canary"]).with_terms(&terms), b"")
        }
        DraftCommand::Discard { item } => {
            let target = Target::of(&[&item.namespace, "drafts", &item.draft]).with_terms(&item.terms);
            let target = Target { outcome: done(&item, "discarded"), ..target };
            session.change(Method::DELETE, target, b"")
        }
    }
}

/// Prints who did what to a draft, and what publishing it would do.
fn show_draft(namespace: &str, Draft { draft, effect, error }: &Draft) -> Result<(), CliError> {
    let lines = |what: &str, stamps: &[Stamp]| -> Result<(), CliError> {
        stamps.iter().try_for_each(|stamp| output::line(&format!("{what} {}", show::stamp(stamp))))
    };
    let authors = draft.authors.iter().map(|author| match author.as_str() {
        "" => "somebody".to_owned(),
        author => show::name(author),
    });
    let authors: Vec<String> = authors.collect();
    let edits = if draft.edits == 1 { "1 edit".to_owned() } else { format!("{} edits", draft.edits) };
    output::line(&format!("draft {}: {edits} by {}", show::name(&draft.name), authors.join(", ")))?;
    lines("comment", &draft.comments)?;
    lines("approval", &draft.approvals)?;
    if let Some(effect) = effect.as_ref().filter(|effect| effect.revision > draft.revision) {
        output::line(&format!(
            "edited at revision {from}; what has changed since then: tidelock config diff {} --from {from} --to {}",
            show::name(namespace),
            effect.revision,
            from = draft.revision,
        ))?;
    }
    match (effect, error) {
        (Some(effect), _) => diff::preview("published", effect),
        (None, error) => output::line(&format!(
            "it cannot be published now: {}",
            error.as_deref().map_or_else(String::new, show::name)
        )),
    }
}
