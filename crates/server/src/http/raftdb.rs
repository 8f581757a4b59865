//! `/db/{key}`: the raftdb dialect, with two operations: store a value, and read it.
//!
//! Owns its statuses. Keys and values are those of `/v1/keys`. The content type of a body is
//! ignored, because `curl -d` declares everything a form.

use hyper::StatusCode;
use tidelock_core::command::{Condition, Operation, OperationReply, Read, Reply, Request, Write};

use super::native;
use super::problem::Problem;
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::uri;
use crate::store::Store;

/// Operations of the dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raftdb {
    Get,
    Put,
}

pub(super) async fn answer<S: Store>(
    mut call: Call<'_, S>,
    operation: Raftdb,
    [raw_key, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    let key = uri::key(raw_key)?;
    match operation {
        Raftdb::Get => {
            let consistency = call.parameters().consistency()?;
            match call.read(Read::Get { key }, consistency).await? {
                Reply::Value { value, .. } => Ok(response::octets(value)),
                Reply::NotFound => Err(Problem::key_not_found()),
                _ => Err(Problem::mismatched_reply()),
            }
        }
        Raftdb::Put => {
            let value = native::read_value(&mut call).await?;
            let write = Write::of(&Operation::Put { key: &key, value: &value, condition: Condition::Always });
            drop(value);
            match call.submit(Request::Write(write)).await?.only() {
                Some(OperationReply::Written { .. }) => Ok(response::empty(StatusCode::OK)),
                _ => Err(Problem::mismatched_reply()),
            }
        }
    }
}
