//! The ports of a node: bound at its start, listened on when it serves.

use std::io;

use tokio::net::TcpListener;

use super::ServeError;
use crate::config::{Address, Settings};
use crate::listen::{self, BoundPort};

/// Bound ports, by protocol.
pub(super) struct Ports {
    http: BoundPort,
    resp: BoundPort,
    resp_cluster: Option<BoundPort>,
    peer: BoundPort,
}

/// Listening sockets, by protocol.
pub(super) struct Listeners {
    pub(super) http: TcpListener,
    pub(super) resp: TcpListener,
    pub(super) resp_cluster: Option<TcpListener>,
    pub(super) peer: TcpListener,
}

/// Binds the port of a setting, which an error names.
async fn bind(setting: &str, address: &Address) -> Result<BoundPort, ServeError> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{setting}: {error}"));
    Ok(listen::bind(address.as_str()).await.map_err(named)?)
}

impl Ports {
    pub(super) async fn bind(settings: &Settings) -> Result<Ports, ServeError> {
        let addresses = &settings.listen;
        let http = bind("http", &addresses.http).await?;
        let resp = bind("resp", &addresses.resp).await?;
        let resp_cluster = match &addresses.resp_cluster {
            Some(address) => Some(bind("resp_cluster", address).await?),
            None => None,
        };
        Ok(Ports { http, resp, resp_cluster, peer: bind("peer", &addresses.peer).await? })
    }

    /// Replaces port 0 of the addresses for clients by the port that the system chose. The peer
    /// address remains as it is: other nodes know this one by it, also after a restart.
    pub(super) fn fill_in(&self, settings: &mut Settings) -> Result<(), ServeError> {
        let (http, resp) = (self.http.port()?, self.resp.port()?);
        let resp_cluster = self.resp_cluster.as_ref().map(BoundPort::port).transpose()?;
        for addresses in [&mut settings.listen, &mut settings.advertise] {
            addresses.http.set_chosen_port(http);
            addresses.resp.set_chosen_port(resp);
            if let (Some(address), Some(port)) = (&mut addresses.resp_cluster, resp_cluster) {
                address.set_chosen_port(port);
            }
        }
        Ok(())
    }

    /// Starts to listen on these ports.
    pub(super) fn listening(self) -> Result<Ports, ServeError> {
        let resp_cluster = self.resp_cluster.map(BoundPort::listening).transpose()?;
        Ok(Ports {
            http: self.http.listening()?,
            resp: self.resp.listening()?,
            resp_cluster,
            peer: self.peer.listening()?,
        })
    }

    pub(super) fn listen(self) -> Result<Listeners, ServeError> {
        let resp_cluster = self.resp_cluster.map(BoundPort::listen).transpose()?;
        Ok(Listeners {
            http: self.http.listen()?,
            resp: self.resp.listen()?,
            resp_cluster,
            peer: self.peer.listen()?,
        })
    }
}
