//! Opens connections, and marks the errors of doing so.
//!
//! A request is sent only after the connection, with its TLS handshake, is complete. So an error
//! with this mark shows that the node did not receive the request, which no other error of the HTTP
//! library does.

use ureq::Error;
use ureq::unversioned::transport::{ConnectionDetails, Connector, RustlsConnector, TcpConnector};

/// A chain of connectors whose errors are marked.
#[derive(Debug)]
pub(crate) struct MarkingConnector<C>(C);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotConnected(String);

/// Connections over TCP, with TLS where the URL asks for it.
pub(crate) fn connector() -> MarkingConnector<impl Connector> {
    MarkingConnector(().chain(TcpConnector::default()).chain(RustlsConnector::default()))
}

impl<C: Connector> Connector for MarkingConnector<C> {
    type Out = C::Out;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<()>) -> Result<Option<C::Out>, Error> {
        self.0.connect(details, chained).map_err(|error| {
            let reason = match error {
                Error::Io(error) => error.to_string(),
                other => other.to_string(),
            };
            Error::Other(Box::new(NotConnected(reason)))
        })
    }
}

/// Why there was no connection, if that is why a request failed.
pub(crate) fn not_connected(error: &Error) -> Option<String> {
    match error {
        Error::HostNotFound | Error::ConnectionFailed => Some("no connection".to_owned()),
        Error::Other(other) => Some(other.downcast_ref::<NotConnected>()?.to_string()),
        _ => None,
    }
}
