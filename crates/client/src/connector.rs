//! Opens connections, and marks the errors of doing so.
//!
//! A request is sent only after the connection, with its TLS handshake, is complete. So an error
//! with this mark shows that the node did not receive the request, which no other error of the HTTP
//! library does.

use std::io;

use rustls::{CertificateError, InvalidMessage};
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
                Error::Io(error) => with_advice(error.to_string(), tls_error(&error)),
                Error::Rustls(error) => with_advice(error.to_string(), Some(&error)),
                other => other.to_string(),
            };
            Error::Other(Box::new(NotConnected(reason)))
        })
    }
}

/// The failure of a TLS handshake in an error of reading or writing.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What is wrong with a TLS handshake, and what to do about it.
fn with_advice(reason: String, error: Option<&rustls::Error>) -> String {
    match error {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            format!("it does not speak TLS: for a cluster without TLS, write http:// ({reason})")
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
            "its certificate is of no known CA: name that of the cluster with --ca, or once with `tidelock login \
             --ca` ({reason})"
        ),
        _ => reason,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_handshakes_say_what_to_do() {
        let plain = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let error = io::Error::new(io::ErrorKind::InvalidData, plain);
        assert!(with_advice(error.to_string(), tls_error(&error)).contains("write http://"));
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = io::Error::new(io::ErrorKind::InvalidData, unknown);
        assert!(with_advice(error.to_string(), tls_error(&error)).contains("--ca"));
        assert_eq!(
            with_advice("refused".into(), tls_error(&io::ErrorKind::ConnectionRefused.into())),
            "refused"
        );
    }
}
