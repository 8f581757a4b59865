//! The addresses of simulated hosts: which host is at which location, and what names resolve to.
//!
//! A location stands for an IP address with a port. A host advertises its location, or a name that
//! resolves to one. Hosts move while they are down: some exchange their locations, others get one
//! that was never used. A name follows late, and may be without an address meanwhile.

use std::collections::BTreeMap;

use tidelock_core::types::NodeId;

/// Where hosts are.
#[derive(Debug, Default)]
pub struct Addressing {
    /// The host at each location in use.
    hosts: BTreeMap<String, NodeId>,
    /// What each name resolves to, if anything.
    names: BTreeMap<String, Option<String>>,
    locations_used: u64,
}

impl Addressing {
    /// Hosts 1 to `hosts`, each at its own location, with a name that resolves to it.
    pub fn new(hosts: u64) -> Addressing {
        let mut addressing = Addressing::default();
        for node in (1..=hosts).map(NodeId) {
            let location = addressing.unused();
            addressing.names.insert(name(node), Some(location.clone()));
            addressing.hosts.insert(location, node);
        }
        addressing
    }

    /// The host that answers at an address, if any.
    pub fn host_at(&self, address: &str) -> Option<NodeId> {
        let location = match self.names.get(address) {
            Some(resolved) => resolved.as_deref()?,
            None => address,
        };
        self.hosts.get(location).copied()
    }

    /// The location of a host.
    pub fn location(&self, node: NodeId) -> &str {
        let found = self.hosts.iter().find(|(_, host)| **host == node);
        found.map(|(location, _)| location.as_str()).expect("invariant: every host is at a location")
    }

    /// Moves each host to the location of the next one.
    pub fn rotate(&mut self, nodes: &[NodeId]) {
        let locations: Vec<String> = nodes.iter().map(|node| self.location(*node).to_owned()).collect();
        for (position, node) in nodes.iter().enumerate() {
            self.hosts.insert(locations[(position + 1) % locations.len()].clone(), *node);
        }
    }

    /// Moves a host to a location that was never used.
    pub fn renew(&mut self, node: NodeId) {
        self.hosts.retain(|_, host| *host != node);
        let location = self.unused();
        self.hosts.insert(location, node);
    }

    /// A host that joins is known by this name until it knows its number.
    pub fn add_name(&mut self, name: String, node: NodeId) {
        let location = self.location(node).to_owned();
        self.names.insert(name, Some(location));
    }

    /// A host's name has no address.
    pub fn lose_name(&mut self, node: NodeId) {
        self.names.insert(name(node), None);
    }

    /// A host's name resolves to its location.
    pub fn update_name(&mut self, node: NodeId) {
        let location = self.location(node).to_owned();
        self.names.insert(name(node), Some(location));
    }

    fn unused(&mut self) -> String {
        self.locations_used += 1;
        format!("10.0.{}.{}:9001", self.locations_used / 256, self.locations_used % 256)
    }
}

/// The name of a host that does not know its number yet, by the operator action that lets it join.
pub fn name_of_candidate(index: usize) -> String {
    format!("candidate-{index}:9001")
}

/// The name of a host, as an address.
pub fn name(node: NodeId) -> String {
    format!("host-{node}:9001")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_exchange_locations_and_names_follow_late() {
        let mut addressing = Addressing::new(3);
        let [one, two, three] = [1, 2, 3].map(NodeId);
        let locations: Vec<String> =
            [one, two, three].map(|node| addressing.location(node).to_owned()).into();
        addressing.rotate(&[one, two, three]);
        assert_eq!(addressing.location(one), locations[1]);
        assert_eq!(addressing.location(three), locations[0]);
        assert_eq!(addressing.host_at(&locations[0]), Some(three));
        assert_eq!(addressing.host_at(&name(one)), Some(three), "its name is stale");
        addressing.update_name(one);
        assert_eq!(addressing.host_at(&name(one)), Some(one));
        addressing.lose_name(two);
        assert_eq!(addressing.host_at(&name(two)), None);
        addressing.renew(two);
        assert_eq!(addressing.host_at(&locations[2]), None, "nobody is where it was");
        addressing.update_name(two);
        assert_eq!(addressing.host_at(&name(two)), Some(two));
    }
}
