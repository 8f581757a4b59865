//! Binds a socket to an address, which may be a name, and listens on it later.
//!
//! Owns the choice among the addresses of a name; owns no protocol.
//!
//! Binding and listening are two steps because a start takes time: it reads the log, or waits until
//! a cluster admits the host. A bound port belongs to this process, so a start that cannot bind
//! fails before anything is written. Until the node listens, clients and probes are refused at once
//! instead of waiting in the backlog.
//!
//! One socket is bound, not one for each address. The important name is `localhost`: it commonly
//! means both `::1` and `127.0.0.1`, with `::1` first, while everything that Tidelock prints and
//! defaults to says `127.0.0.1`. So IPv4 loopback is preferred among loopback addresses. Clients
//! that try `::1` first (curl, browsers) are refused there at once and continue with `127.0.0.1`.
//! Listening on both would need two sockets for each protocol, on one port that may be free on only
//! one of them. To listen on all addresses of a machine, use `[::]:PORT`, which on Linux includes
//! IPv4.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel completes before they are accepted; the value of the standard
/// library and tokio.
const BACKLOG: u32 = 1_024;

/// Binds `address` (`HOST:PORT`, port 0 for any), resolving a name. Takes the first address that
/// can be bound, IPv4 loopback before others. Sets `SO_REUSEADDR`, so that a restart need not wait
/// for old connections.
///
/// # Errors
/// When the name does not resolve or none of its addresses can be bound; the text names the
/// address.
pub async fn bind(address: &str) -> io::Result<BoundPort> {
    let looked_up = tokio::net::lookup_host(address).await.map_err(|error| in_context(address, &error))?;
    let mut candidates: Vec<SocketAddr> = looked_up.collect();
    prefer_ipv4_loopback(&mut candidates);
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for candidate in candidates {
        outcome = bind_to(candidate);
        if outcome.is_ok() {
            break;
        }
    }
    match outcome {
        Ok(socket) => Ok(BoundPort { state: PortState::Bound(socket), address: address.to_owned() }),
        Err(error) => Err(in_context(address, &error)),
    }
}

fn bind_to(candidate: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if candidate.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(candidate)?;
    Ok(socket)
}

fn in_context(address: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

/// A bound port. With `SO_REUSEADDR` two processes can bind a port at the same time; only the first
/// one to listen gets it.
pub struct BoundPort {
    state: PortState,
    /// The address as it was written.
    address: String,
}

enum PortState {
    /// Connections are refused.
    Bound(TcpSocket),
    /// The kernel completes connections, which wait to be accepted.
    Listening(TcpListener),
}

impl BoundPort {
    /// The number of the port.
    ///
    /// # Errors
    /// When the system does not know it.
    pub fn port(&self) -> io::Result<u16> {
        let address = match &self.state {
            PortState::Bound(socket) => socket.local_addr(),
            PortState::Listening(listener) => listener.local_addr(),
        };
        address.map(|address| address.port()).map_err(|error| in_context(&self.address, &error))
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// When another process has begun to listen on the port meanwhile; the text names the address.
    pub fn listen(self) -> io::Result<TcpListener> {
        match self.state {
            PortState::Bound(socket) => {
                socket.listen(BACKLOG).map_err(|error| in_context(&self.address, &error))
            }
            PortState::Listening(listener) => Ok(listener),
        }
    }

    /// Starts to listen without returning the listener, for a port whose connections are accepted
    /// later.
    ///
    /// # Errors
    /// As [`BoundPort::listen`].
    pub fn listening(self) -> io::Result<BoundPort> {
        let address = self.address.clone();
        Ok(BoundPort { state: PortState::Listening(self.listen()?), address })
    }
}

/// The sort is stable, so the resolver's order decides otherwise.
fn prefer_ipv4_loopback(candidates: &mut [SocketAddr]) {
    candidates.sort_by_key(|candidate| !(candidate.is_ipv4() && candidate.ip().is_loopback()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_loopback_comes_first_and_the_rest_keeps_its_order() {
        let mut candidates: Vec<SocketAddr> = ["[::1]:1", "10.0.0.2:1", "127.0.0.1:1", "10.0.0.1:1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        prefer_ipv4_loopback(&mut candidates);
        let order: Vec<String> = candidates.iter().map(ToString::to_string).collect();
        assert_eq!(order, ["127.0.0.1:1", "[::1]:1", "10.0.0.2:1", "10.0.0.1:1"]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn names_and_literals_are_bound() {
        for address in ["localhost:0", "127.0.0.1:0"] {
            let bound = bind(address).await.unwrap().listen().unwrap().local_addr().unwrap();
            assert!(bound.ip().is_loopback() && bound.port() != 0, "{bound}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_port_in_use_is_an_error_that_names_it() {
        let taken = bind("127.0.0.1:0").await.unwrap().listen().unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let Err(error) = bind(&address).await else { panic!("the port is taken") };
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address), "{error}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_bound_port_refuses_connections_until_it_listens() {
        let bound = bind("127.0.0.1:0").await.unwrap();
        let PortState::Bound(socket) = &bound.state else { panic!("it listens") };
        let address = socket.local_addr().unwrap();
        let refused = tokio::net::TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let listening = bound.listening().unwrap();
        tokio::net::TcpStream::connect(address).await.unwrap();
        assert_eq!(listening.listen().unwrap().local_addr().unwrap(), address);
    }
}
