//! The protocols that a node listens for.

/// A protocol that a node listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerProtocol {
    /// HTTP.
    Http,
    /// The Redis protocol.
    Resp,
    /// The peer protocol, between nodes.
    Peer,
}

impl ListenerProtocol {
    /// Every protocol, in the order of the discriminants.
    pub const ALL: [ListenerProtocol; 3] =
        [ListenerProtocol::Http, ListenerProtocol::Resp, ListenerProtocol::Peer];

    /// Its name in answers, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            ListenerProtocol::Http => "http",
            ListenerProtocol::Resp => "resp",
            ListenerProtocol::Peer => "peer",
        }
    }
}
