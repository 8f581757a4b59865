//! Namespaces that inherit from others: their relations, comparison, and promotion.

use tidelock_api::environments::{Inheritance, ParentsRequest, PromoteRequest, ProtectionRequest};
use tidelock_api::revisions::NamespaceDiff;
use tidelock_client::http::Method;
use tidelock_client::{Call, CliError, output};

use super::{Session, Target, data, diff, encode, show};
use crate::args::{CompareArgs, PromoteArgs, TermsArgs};

/// Shows the relations of a namespace.
pub fn inheritance(session: &Session, namespace: &str) -> Result<(), CliError> {
    let inheritance = session.show::<Inheritance>(Target::of(&[namespace, "inheritance"]))?;
    inheritance.map_or(Ok(()), |inheritance| output::write(show::inheritance(&inheritance).as_bytes()))
}

/// Sets the parents of a namespace.
pub fn set_parents(
    session: &Session,
    namespace: &str,
    parents: Vec<String>,
    terms: &TermsArgs,
) -> Result<(), CliError> {
    let target = Target::of(&[namespace, "parents"]).with_terms(terms);
    let body = ParentsRequest { parents, ..ParentsRequest::default() };
    session.change(Method::POST, target, &encode(&body))
}

/// Protects a namespace, or ends its protection. Names parents that are not protected.
pub fn protect(
    session: &Session,
    namespace: &str,
    is_protected: bool,
    terms: &TermsArgs,
) -> Result<(), CliError> {
    let target = Target::of(&[namespace, "protection"]).with_terms(terms);
    let body = ProtectionRequest { is_protected, ..ProtectionRequest::default() };
    session.change(Method::POST, target, &encode(&body))?;
    if is_protected {
        for parent in related(session, namespace).map(|namespace| namespace.parents).unwrap_or_default() {
            if related(session, &parent).is_some_and(|parent| !parent.is_protected) {
                output::progress(&format!(
                    "note: changes of {parent}, which is not protected, arrive here at once"
                ));
            }
        }
    }
    Ok(())
}

/// The relations of a namespace; `None` if the caller may not see them.
pub fn related(session: &Session, namespace: &str) -> Option<Inheritance> {
    let target = Target::of(&[namespace, "inheritance"]).into_text();
    data(&session.client.ask(&Call::get(target)).ok()?).ok()
}

/// Shows what differs between two namespaces.
pub fn compare(session: &Session, args: &CompareArgs) -> Result<(), CliError> {
    let target = Target::of(&[&args.namespace, "compare"]).with("with", Some(&args.other));
    let Some(found) = session.show::<NamespaceDiff>(target)? else { return Ok(()) };
    let title = |name: &str, revision: u64| format!("{} at revision {revision}", show::name(name));
    let titles = (title(&args.namespace, found.from), title(&args.other, found.to));
    diff::items((&titles.0, &titles.1), &found.changes)
}

/// Takes over what another namespace has.
pub fn promote(session: &Session, args: PromoteArgs) -> Result<(), CliError> {
    let PromoteArgs { from, to, revision, keys, prune, retype, terms } = args;
    let keys = (!keys.is_empty()).then_some(keys);
    let target = Target::of(&[&to, "promote"]).with_change(&terms).reporting_effects_in(&to);
    let body = PromoteRequest { from, revision, keys, prune, retype, ..PromoteRequest::default() };
    session.change(Method::POST, target, &encode(&body))
}
