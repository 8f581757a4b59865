//! Where a node listens, and where others reach it.
//!
//! Owns the relation of the three settings of each listener. `http` (and `resp`, `peer`) is both:
//! the address that the node binds, and the one that it advertises, in the registry and to clients.
//! `listen_http` replaces the first, `advertise_http` the second. They differ where the node has no
//! socket at the address by which others know it: behind NAT, in a container, or by a name.
//!
//! Invariant: no advertised address is unspecified (`0.0.0.0`, `[::]`). For clients' listeners the
//! host is then that of the advertised peer address, which leads to the same machine. For the peer
//! listener there is nothing to derive it from: the machine may have many addresses.

use super::{Address, ConfigError, RESP_CLUSTER_OFF, RESP_CLUSTER_PORT_OFFSET, RawSettings};
use super::{DEFAULT_HTTP, DEFAULT_PEER, DEFAULT_RESP};

/// The addresses of a node's listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddresses {
    /// For HTTP clients.
    pub http: Address,
    /// For Redis clients.
    pub resp: Address,
    /// For Redis Cluster clients; `None` if disabled.
    pub resp_cluster: Option<Address>,
    /// For the other nodes.
    pub peer: Address,
}

impl ListenerAddresses {
    /// Each address with the name of its listener.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, &Address)> {
        let always = [("http", &self.http), ("resp", &self.resp), ("peer", &self.peer)];
        always.into_iter().chain(self.resp_cluster.iter().map(|address| ("resp_cluster", address)))
    }
}

/// One listener's settings.
struct Listener<'a> {
    /// Where it listens.
    listen: Address,
    /// The address that was given for both purposes, or else `listen`.
    both: Address,
    advertise: (&'static str, Option<&'a str>),
}

impl<'a> Listener<'a> {
    /// `names` are those of the three settings, as `given`.
    fn parse(
        names: [&'static str; 3],
        [both, listen, advertise]: [&'a Option<String>; 3],
        default: &str,
    ) -> Result<Listener<'a>, ConfigError> {
        let parse =
            |name, text: &Option<String>| text.as_deref().map(|text| Address::parse(name, text)).transpose();
        let (both, listen) = (parse(names[0], both)?, parse(names[1], listen)?);
        let listen = match (listen, &both) {
            (Some(listen), _) => listen,
            (None, Some(both)) => both.clone(),
            (None, None) => Address::parse(names[0], default)?,
        };
        let both = both.unwrap_or_else(|| listen.clone());
        Ok(Listener { listen, both, advertise: (names[2], advertise.as_deref()) })
    }

    /// The address to advertise; it may be unspecified if none was given.
    fn advertised(&self) -> Result<Address, ConfigError> {
        match self.advertise {
            (name, Some(text)) => Address::parse_advertised(name, text, self.listen.port()),
            (_, None) => Ok(self.both.clone()),
        }
    }

    /// The address to advertise, at the host of the peer address if it would be unspecified.
    fn advertised_beside(&self, peer: &Address) -> Result<Address, ConfigError> {
        let advertised = self.advertised()?;
        Ok(if advertised.is_unspecified() { advertised.with_host(peer.host()) } else { advertised })
    }
}

/// The addresses at which a node listens, all different, and those that it advertises.
///
/// # Errors
/// When an address is malformed, two listeners have the same one, or other nodes could not reach
/// the advertised peer address.
pub(super) fn parse(raw: &RawSettings) -> Result<(ListenerAddresses, ListenerAddresses), ConfigError> {
    let http = Listener::parse(
        ["http", "listen_http", "advertise_http"],
        [&raw.http, &raw.listen_http, &raw.advertise_http],
        DEFAULT_HTTP,
    )?;
    let resp = Listener::parse(
        ["resp", "listen_resp", "advertise_resp"],
        [&raw.resp, &raw.listen_resp, &raw.advertise_resp],
        DEFAULT_RESP,
    )?;
    let peer = Listener::parse(
        ["peer", "listen_peer", "advertise_peer"],
        [&raw.peer, &raw.listen_peer, &raw.advertise_peer],
        DEFAULT_PEER,
    )?;
    let resp_cluster = parse_resp_cluster(raw.resp_cluster.as_deref(), &resp.listen)?;
    let listen = ListenerAddresses {
        http: http.listen.clone(),
        resp: resp.listen.clone(),
        resp_cluster,
        peer: peer.listen.clone(),
    };
    check_distinct(&listen.by_name().collect::<Vec<_>>())?;

    let peer = peer.advertised()?;
    if peer.is_unspecified() {
        return Err(ConfigError::UnspecifiedPeer(peer.to_string()));
    }
    let resp = resp.advertised_beside(&peer)?;
    let resp_cluster = advertised_resp_cluster(raw, listen.resp_cluster.as_ref(), &resp)?;
    Ok((listen, ListenerAddresses { http: http.advertised_beside(&peer)?, resp, resp_cluster, peer }))
}

/// The listen address for Redis Cluster clients: the given one, or derived from that of `resp`.
fn parse_resp_cluster(given: Option<&str>, resp: &Address) -> Result<Option<Address>, ConfigError> {
    match given.map(str::trim) {
        Some(RESP_CLUSTER_OFF) => Ok(None),
        Some(text) => Address::parse("resp_cluster", text).map(Some),
        None if resp.has_any_port() => Ok(Some(resp.clone())),
        None => {
            let port = resp.port().checked_add(RESP_CLUSTER_PORT_OFFSET);
            let port = port.ok_or_else(|| ConfigError::NoRespClusterPort { resp: resp.to_string() })?;
            Ok(Some(resp.with_port(port)))
        }
    }
}

/// The address to tell Redis Cluster clients. Without a setting it is at the host of the advertised
/// `resp`, unless the listener has a particular host of its own.
fn advertised_resp_cluster(
    raw: &RawSettings,
    listen: Option<&Address>,
    resp: &Address,
) -> Result<Option<Address>, ConfigError> {
    let Some(listen) = listen else { return Ok(None) };
    let advertised = match raw.advertise_resp_cluster.as_deref() {
        Some(text) => Address::parse_advertised("advertise_resp_cluster", text, listen.port())?,
        None if raw.resp_cluster.is_some() && !listen.is_unspecified() => listen.clone(),
        None => listen.with_host(resp.host()),
    };
    Ok(Some(advertised))
}

/// Refuses two listeners with the same address. The system's own error, "address in use", would
/// make the user look for another process.
fn check_distinct(addresses: &[(&'static str, &Address)]) -> Result<(), ConfigError> {
    for (position, (one, address)) in addresses.iter().enumerate() {
        for (other, same) in &addresses[..position] {
            if address == same && !address.has_any_port() {
                return Err(ConfigError::SameAddress {
                    one: other,
                    other: one,
                    address: address.to_string(),
                });
            }
        }
    }
    Ok(())
}
