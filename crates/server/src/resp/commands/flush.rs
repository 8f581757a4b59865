//! `FLUSHALL` and `FLUSHDB`: the removal of all keys.

use tidelock_core::command::{AdminAction, Denial, FlushReply, Refusal, RegistryWrite};

use super::super::encode::Encoder;
use super::super::frame::CommandArguments;
use super::super::replies::refusal_text;
use super::super::session::{Action, Failure, Session};
use super::scan::{encoded, failure};
use super::{Result, is, syntax};
use crate::requests::{self, NoAnswer};
use crate::resp::dyn_store::DynStore;

/// `FLUSHALL [ASYNC|SYNC]`, `FLUSHDB [ASYNC|SYNC]`: the same, because there is one database. Memory
/// is always freed later, and the reply always comes once no key is left, so both options mean the
/// same.
pub fn flush(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    match arguments.get(1) {
        None => {}
        Some(option) if arguments.len() == 2 && (is(option, "async") || is(option, "sync")) => {}
        Some(_) => return syntax(),
    }
    let (protocol, store) = (session.protocol, session.store.clone());
    Ok(Action::Wait(Box::pin(async move {
        let flushed = flush_all(&*store).await;
        encoded(protocol, |encoder: &mut Encoder<'_>| match flushed {
            Ok(()) => encoder.ok(),
            Err(failure) => encoder.error(&failure),
        })
    })))
}

async fn flush_all(store: &dyn DynStore) -> std::result::Result<(), Failure> {
    let record = RegistryWrite::Announce(AdminAction::RemoveAllKeys);
    match store.ask(requests::change_registry(record)).await {
        Ok(Ok(())) => {}
        Ok(Err(Denial::VersionTooLow)) => return Err(refusal_text(&Refusal::VersionTooLow).into()),
        Ok(Err(denial)) => return Err(format!("ERR {denial}; nothing was done").into()),
        Err(NoAnswer::Refused(Refusal::UnknownOutcome)) => {
            return Err("CLUSTERDOWN nothing was done: the leader of the prime shard has not recorded in time who asks \
                        for this"
                .into());
        }
        Err(error) => return Err(failure(error)),
    }
    match store.ask(requests::flush()).await {
        Ok(FlushReply::Complete(_)) => Ok(()),
        Ok(FlushReply::Incomplete { slots, cause }) => {
            let cause = cause.to_string();
            let cause = cause.trim_end_matches("; nothing was done");
            Err(format!(
                "INCOMPLETE the keys of {slots} of 16384 slots were removed; for the others, {cause}; repeat the command"
            )
            .into())
        }
        Err(error) => Err(failure(error)),
    }
}
