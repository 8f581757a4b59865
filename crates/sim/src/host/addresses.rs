//! The addresses of a simulated host, and where it looks for its peers.

use std::collections::BTreeMap;

use tidelock_core::address_book::AddressBook;
use tidelock_core::command::HostInfo;
use tidelock_core::handshake::{HandshakeRefusal, HandshakeSide};
use tidelock_core::types::NodeId;

use super::Host;
use crate::addressing;

impl Host {
    /// Advertises a location, from its next start on.
    pub fn advertise(&mut self, location: String) {
        let (address, _) = location.rsplit_once(':').expect("invariant: a location has a port");
        let info = &mut self.options.host;
        info.http_address = format!("{address}:8001");
        info.resp_address = format!("{address}:7001");
        info.resp_cluster_address = format!("{address}:7101");
        info.peer_address = location;
    }

    /// Advertises its name, from its next start on.
    pub fn advertise_name(&mut self) {
        self.advertise(addressing::name(self.node()));
    }

    /// The addresses at which its process looks for a peer now.
    pub fn candidates(&mut self, peer: NodeId) -> Vec<String> {
        let process = self.process.as_mut();
        process.map_or_else(Vec::new, |process| process.addresses.candidates(peer))
    }

    /// Its process judged an introduction, which states an address. If it dialed, the address at
    /// which the other one answered is given too.
    pub fn learn(
        &mut self,
        (node, stated): (NodeId, &str),
        (role, dialed): (HandshakeSide, Option<&str>),
        verdict: Result<(), HandshakeRefusal>,
    ) {
        let Some(process) = &mut self.process else { return };
        process.addresses.introduced(node, verdict, Some(stated), dialed);
        if let (HandshakeSide::Dialer(expected), Some(address)) = (role, dialed)
            && node != expected
        {
            process.addresses.missed(expected, address);
        }
        // Each pair of hosts tries again by itself, soon.
        process.addresses.take_news();
    }

    /// Whether its registry has a host's present addresses.
    pub fn knows_address(&self, info: &HostInfo) -> bool {
        let host_entry = self.process.as_ref().and_then(|process| process.node.host_entry(info.node));
        host_entry.and_then(|entry| entry.host.as_ref()).is_some_and(|host| host.info == *info)
    }

    /// What its process knows of its peers at its start.
    pub(super) fn remembered_addresses(&self) -> AddressBook {
        let (own, options) = (self.node(), &self.options);
        let address = options.host.peer_address.clone();
        let mut addresses = AddressBook::new(own, address, Vec::new(), options.faults);
        let mut peers: BTreeMap<NodeId, &str> = BTreeMap::new();
        if own.0 <= options.founders.len() as u64 {
            peers.extend((1..).map(NodeId).zip(options.founders.iter().map(String::as_str)));
        }
        peers.extend(options.hosts.iter().map(|(node, address)| (*node, address.as_str())));
        peers.remove(&own);
        peers.extend(self.registered_address.as_deref().map(|address| (own, address)));
        addresses.set_peers(peers);
        addresses
    }

    /// Remembers its address in the registry, as its process knows it now.
    pub(super) fn remember_own_address(&mut self) {
        let own = self.node();
        let known = self.process.as_ref().and_then(|process| {
            let (_, _, address) = process.node.known_hosts().find(|(node, ..)| *node == own)?;
            Some(address.to_owned())
        });
        self.registered_address = known.or(self.registered_address.take());
    }
}
