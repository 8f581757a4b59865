//! `GET /v1/cluster/clients`: the connections of the answering node with the highest load.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clients of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// Number of the answering node.
    pub node: u64,
    /// Number of open connections, listed or not.
    pub connections: u64,
    /// Number of requests that wait for their turn.
    pub requests_waiting: u64,
    /// The busiest connections, at most as many as the request asked for.
    pub clients: Vec<ClientConnection>,
}

/// A connection of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ClientConnection {
    /// Its number on this node, valid until this node restarts.
    pub id: u64,
    /// The client's address, `host:port`; null if it is not known.
    pub address: Option<String>,
    /// `http` or `resp`.
    #[schemars(extend("enum" = ["http", "resp"]))]
    pub protocol: Cow<'static, str>,
    /// Milliseconds since it was accepted.
    pub age_ms: u64,
    /// Requests or commands of it that were executed.
    pub operations: u64,
    /// Bytes received from it so far.
    pub bytes_received: u64,
    /// Bytes sent to it so far.
    pub bytes_sent: u64,
    /// Requests of it that are not answered yet.
    pub open_requests: u64,
    /// Bytes of memory that its requests and answers take, as far as the node counts them.
    pub held_bytes: u64,
}
