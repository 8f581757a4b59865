//! TLS for the connections of clients and between nodes.
//!
//! Owns the certificate that the node shows, how it is replaced without a restart, and the
//! handshakes. Servers and the transport get a [`MaybeTlsStream`] and need not know whether it is
//! encrypted. A client may present a certificate if the node has `--client-ca`. Nodes present
//! theirs to each other over the peer protocol.
//!
//! Invariant: the files are checked as a whole before the first of them is used. What does not pass
//! leaves the certificate in place that the node shows.

mod acceptor;
mod certificate;
mod client;
pub mod issue;
mod peer;
mod stream;

pub use acceptor::{
    AcceptedPeer, EXPIRY_WARNING, HANDSHAKE_RECORD, HandshakeFailure, PeerStream, Reload, TlsAcceptor,
    connect_to_enrol,
};
pub use certificate::{
    AUTHORITY_FILE, CERTIFICATE_FILE, CertificateInUse, KEY_FILE, TlsError, TlsPaths, certified_host,
    check_client_ca_file, fingerprint_of,
};
pub use client::ClientCertificate;
pub use stream::MaybeTlsStream;
