//! Connections to servers, with or without TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tidelock_client::{CliError, ClientOptions, NodeUrl};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How servers are reached.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Plain,
    Tls(Arc<ClientConfig>),
}

/// A connection to a server.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// TLS to servers with a certificate of the authorities of `options` if `is_tls`, otherwise
    /// plain TCP.
    pub fn new(is_tls: bool, options: &ClientOptions) -> Result<Transport, CliError> {
        match (is_tls, &options.authorities) {
            (false, _) => Ok(Transport::Plain),
            (true, Some(authorities)) => authorities
                .tls_config(options.certificate.as_ref())
                .map(|config| Transport::Tls(Arc::new(config)))
                .map_err(CliError::Usage),
            (true, None) => Err(CliError::Usage("TLS needs --ca, or a profile with one".to_owned())),
        }
    }

    /// How to reach nodes, all of which must have the same scheme.
    pub fn of_nodes(options: &ClientOptions) -> Result<Transport, CliError> {
        let is_tls = options.urls.first().is_some_and(NodeUrl::is_https);
        if options.urls.iter().any(|url| url.is_https() != is_tls) {
            return Err(CliError::Usage("all URLs must be http://, or all https://".to_owned()));
        }
        Transport::new(is_tls, options)
    }

    /// A connection, or the reason why there is none.
    pub async fn connect(&self, address: &str, timeout: Duration) -> Result<Stream, String> {
        let connecting = self.connect_unlimited(address);
        tokio::time::timeout(timeout, connecting)
            .await
            .map_err(|_| format!("{address}: no connection within {} ms", timeout.as_millis()))?
            .map_err(|error| format!("{address}: {error}"))
    }

    async fn connect_unlimited(&self, address: &str) -> io::Result<Stream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Transport::Tls(config) = self else { return Ok(Stream::Plain(stream)) };
        let name =
            server_name(address).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// The name that a server's certificate must have: the host of `host:port`.
pub(crate) fn server_name(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_are_hosts() {
        for (address, name) in
            [("a.example:1", "a.example"), ("10.0.0.1:80", "10.0.0.1"), ("[::1]:8001", "::1")]
        {
            assert_eq!(server_name(address).expect(address).to_str(), name);
        }
        assert!(server_name("a b:1").is_err());
    }
}
