//! `/db/{key}`: the raftdb dialect, with two operations: store a value, and read it.
//!
//! Owns its statuses. Keys and values are those of `/v1/keys`. The content type of a body is
//! ignored, because `curl -d` declares everything a form.

use hyper::StatusCode;
use tidelock_core::command::{Condition, Operation};

use super::native;
use super::problem::Problem;
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::uri;
use crate::requests;
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
            let stored = call.get(key, consistency).await?.ok_or_else(Problem::key_not_found)?;
            Ok(response::octets(stored.value))
        }
        Raftdb::Put => {
            let value = native::read_value(&mut call).await?;
            let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
            let request = requests::store(&put, None);
            drop(value);
            call.ask(request).await??;
            Ok(response::empty(StatusCode::OK))
        }
    }
}
