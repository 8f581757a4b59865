//! `/v1/cluster/clients`: the connections of this node with the highest load.
//!
//! Owns the limit of the list; `crate::clients` owns the counters.

use tidelock_api::clients::{ClientConnection, Clients};

use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use super::uri::parse_u64;
use crate::clients::Client;
use crate::store::Store;

/// Connections that are listed without a limit.
const LISTED: usize = 20;

/// Most connections that can be listed: their addresses and numbers fill about 200 KiB.
pub(super) const LISTED_MAX: usize = 1_000;

fn row(client: &Client) -> ClientConnection {
    ClientConnection {
        id: client.id.0,
        address: client.address.map(|address| address.to_string()),
        protocol: client.protocol.name().into(),
        age_ms: u64::try_from(client.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        operations: client.operations.get(),
        bytes_received: client.bytes_received.get(),
        bytes_sent: client.bytes_sent.get(),
        open_requests: client.open_requests.get(),
        held_bytes: client.held_bytes.get(),
    }
}

pub(super) async fn answer<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let limit = match call.parameters().get("limit")? {
        None => LISTED,
        Some(digits) => parse_u64(&digits)
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| (1..=LISTED_MAX).contains(limit))
            .ok_or_else(|| Problem::invalid(format!("limit must be 1 to {LISTED_MAX}")))?,
    };
    let clients = Clients {
        node: call.store().status().await.node.0,
        connections: call.context.clients.count() as u64,
        requests_waiting: call.context.turns.waiting.get(),
        clients: call.context.clients.busiest(limit).iter().map(|client| row(client)).collect(),
    };
    let body = serde_json::to_vec(&clients).expect("invariant: numbers and texts are JSON");
    Ok(response::json(body))
}
