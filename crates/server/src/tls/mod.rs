//! TLS for the connections of clients.
//!
//! Owns the certificate that the node shows, how it is replaced without a restart, and the
//! handshake. Servers get a [`ClientStream`] and need not know whether it is encrypted. A node that
//! asks another one by HTTP is a client of it. The connections of the peer protocol are not part of
//! this.
//!
//! Invariant: the files are checked as a whole before the first of them is used. What does not pass
//! leaves the certificate in place that the node shows.

mod acceptor;
mod certificate;
mod stream;

pub use acceptor::{HandshakeFailure, Reload, TlsAcceptor};
pub use certificate::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, TlsError};
pub use stream::ClientStream;
