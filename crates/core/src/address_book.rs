//! Where a node looks for its peers: the policy of dialing.
//!
//! Owns the addresses at which each peer may be, the order in which they are tried, and what an
//! introduction teaches about them. Deliberately not here: names are resolved and connections are
//! made by the shell, and [`handshake`](crate::handshake) decides who is accepted.
//!
//! Addresses are texts, `HOST:PORT`; the host may be a name. They are hints and prove nothing: who
//! answers is known only after the handshake. So a stale address costs an attempt and never leads
//! to a wrong peer. A node finds a peer that has moved in one of these ways:
//!
//! - The registry changes: a host announces its addresses after each start.
//! - The peer says so itself. Each introduction carries the address that the peer advertises, also
//!   a wake-up, with which a lower node asks a higher one for a connection.
//! - Another host answers at the peer's former address. That host's own address is news too, so
//!   hosts that have exchanged their addresses find each other.
//! - A peer that has a link to both reports it: a host tells its own address through each new link,
//!   and its peers pass that on.
//! - At a fallback: the addresses given at the start (`--join`, `--peers`), and the address that
//!   this node had before, where a host may be now that has exchanged addresses with it.
//!
//! If several hosts get new addresses at a time, and nobody knows any of them, they need names or
//! fallbacks.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::deliberate::{Fault, Faults};
use crate::handshake::HandshakeRefusal;
use crate::types::NodeId;

/// The prefix of a DNS SRV name, whose records name hosts and ports. It may be a fallback.
pub const SRV_PREFIX: &str = "srv:";

/// Most addresses remembered for one peer: the registered one, and the latest that it has stated.
pub const ADDRESSES_MAX: usize = 4;

/// A fallback is tried in the first of so many rounds. A peer may be down for days, and those who
/// answer there are usually other peers, which log that they are not the expected one.
const ROUNDS_TO_FALLBACK: usize = 8;

/// The addresses at which a node looks for its peers.
#[derive(Debug, Default)]
pub struct AddressBook {
    own: NodeId,
    own_address: String,
    peers: BTreeMap<NodeId, KnownAddresses>,
    /// Addresses at which any peer may be.
    fallbacks: Vec<String>,
    /// Peers with a new address since the last call of [`AddressBook::take_news`].
    news: Vec<NodeId>,
    faults: Faults,
}

/// The addresses at which one peer may be.
#[derive(Debug)]
struct KnownAddresses {
    /// The address in the registry, or a later one that a peer reported or, until the registry is
    /// known, the address on this node's disk.
    registered: String,
    /// Latest evidence first, without duplicates, at most [`ADDRESSES_MAX`].
    recent: Vec<String>,
    /// How often [`AddressBook::candidates`] was called for it.
    rounds: usize,
}

/// Whether an address can be dialed: it is an SRV name, or it has a port and its host is not
/// unspecified (`0.0.0.0` or `[::]`), which would lead back to the dialing host.
pub fn is_dialable(address: &str) -> bool {
    if address.starts_with(SRV_PREFIX) {
        return true;
    }
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let has_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    has_port && !host.is_empty() && !ip.is_ok_and(|ip| ip.is_unspecified())
}

impl AddressBook {
    /// The book of a node that advertises `own_address`, without peers. `faults` is
    /// [`Faults::NONE`], except in tests of the simulator.
    pub fn new(own: NodeId, own_address: String, fallbacks: Vec<String>, faults: Faults) -> AddressBook {
        AddressBook { own, own_address, fallbacks, faults, ..AddressBook::default() }
    }

    /// Replaces the peers and their registered addresses. An entry of this node itself is the
    /// address that it had before.
    pub fn set_peers<'a>(&mut self, peers: impl IntoIterator<Item = (NodeId, &'a str)>) {
        let mut wanted: BTreeMap<NodeId, &str> = peers.into_iter().collect();
        if let Some(former) = wanted.remove(&self.own)
            && former != self.own_address
            && !self.fallbacks.iter().any(|known| known == former)
        {
            self.fallbacks.push(former.to_owned());
        }
        self.peers.retain(|node, _| wanted.contains_key(node));
        for (node, address) in wanted {
            match self.peers.get_mut(&node) {
                Some(known) if known.registered == address => {}
                // The former address stays known: after a restart the registry may be older than
                // what was remembered, until a leader is known.
                Some(known) => {
                    address.clone_into(&mut known.registered);
                    if known.prefer(address) {
                        self.news.push(node);
                    }
                }
                None => {
                    let known = KnownAddresses::new(address.to_owned());
                    self.peers.insert(node, known);
                }
            }
        }
    }

    /// The addresses to try now, in order, to reach a peer: those at which it may be and, in some
    /// rounds, the next of the fallbacks. A fallback that is the best known address of a peer is
    /// left out, because connecting to that peer shows which host is there.
    pub fn candidates(&mut self, peer: NodeId) -> Vec<String> {
        let is_sought =
            |address: &String| self.peers.values().any(|known| known.recent.first() == Some(address));
        let fallbacks: Vec<String> =
            self.fallbacks.iter().filter(|address| !is_sought(address)).cloned().collect();
        let Some(known) = self.peers.get_mut(&peer) else { return Vec::new() };
        let mut candidates = known.recent.clone();
        let (round, turn) = (known.rounds % ROUNDS_TO_FALLBACK, known.rounds / ROUNDS_TO_FALLBACK);
        known.rounds = known.rounds.wrapping_add(1);
        if round == 0 && !fallbacks.is_empty() {
            let fallback = &fallbacks[turn % fallbacks.len()];
            candidates.extend(Some(fallback.clone()).filter(|fallback| !known.recent.contains(fallback)));
        }
        candidates.retain(|address| *address != self.own_address && is_dialable(address));
        candidates
    }

    /// Records the introduction of a host and its verdict. `stated` is the address that the host
    /// advertises; a host of an earlier version states none. `dialed` is the address at which it
    /// answered, unless it made the connection.
    pub fn introduced(
        &mut self,
        node: NodeId,
        verdict: Result<(), HandshakeRefusal>,
        stated: Option<&str>,
        dialed: Option<&str>,
    ) {
        if self.faults.has(Fault::StaleAddressKept) {
            return;
        }
        // After these, the host is the peer that it claims to be.
        let is_peer = matches!(
            verdict,
            Ok(()) | Err(HandshakeRefusal::UnexpectedNode | HandshakeRefusal::WrongDirection)
        );
        let address = stated.filter(|stated| is_dialable(stated)).or(dialed);
        if let (true, Some(address), Some(known)) = (is_peer, address, self.peers.get_mut(&node))
            && known.prefer(address)
        {
            self.news.push(node);
        }
    }

    /// Records that another host answered at an address where a peer was expected: it is tried
    /// last, or no more if the registry does not contain it.
    pub fn missed(&mut self, peer: NodeId, address: &str) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        if self.faults.has(Fault::StaleAddressKept) || !known.recent.iter().any(|known| known == address) {
            return;
        }
        known.recent.retain(|known| known != address);
        if known.registered == address {
            known.recent.push(address.to_owned());
        }
    }

    /// Returns the peers with a new address since the last call. They should be dialed now.
    pub fn take_news(&mut self) -> Vec<NodeId> {
        core::mem::take(&mut self.news)
    }
}

impl KnownAddresses {
    fn new(registered: String) -> KnownAddresses {
        KnownAddresses { recent: [registered.clone()].into(), registered, rounds: 0 }
    }

    /// Makes an address the first to try. Returns whether it was not the first before.
    fn prefer(&mut self, address: &str) -> bool {
        if self.recent.first().is_some_and(|first| first == address) {
            return false;
        }
        self.recent.retain(|known| known != address);
        self.recent.insert(0, address.to_owned());
        while self.recent.len() > ADDRESSES_MAX {
            let oldest = self.recent.iter().rposition(|known| *known != self.registered);
            self.recent.remove(oldest.expect("invariant: one address is registered, there are more"));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const PEER: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(3);

    /// The book of node 2 at `b:1`, with peers 1 and 3.
    fn book(fallbacks: &[&str]) -> AddressBook {
        let fallbacks = fallbacks.iter().map(|fallback| (*fallback).to_owned()).collect();
        let mut book = AddressBook::new(NodeId(2), "b:1".to_owned(), fallbacks, Faults::NONE);
        book.set_peers([(PEER, "a:1"), (OTHER, "c:1")]);
        assert!(book.take_news().is_empty());
        book
    }

    #[test]
    fn only_addresses_that_lead_to_another_host_are_dialed() {
        for address in [
            "a:1",
            "srv:_peer._tcp.example",
            "10.0.0.1:9001",
            "[::1]:9001",
            "[fd00::1]:1",
            "0.0.0.0.example:1",
        ] {
            assert!(is_dialable(address), "{address}");
        }
        for address in ["", "a", ":1", "a:0", "a:x", "0.0.0.0:9001", "[::]:9001", "[0:0::0]:1"] {
            assert!(!is_dialable(address), "{address}");
        }
        let mut book = AddressBook::new(NodeId(2), "b:1".to_owned(), Vec::new(), Faults::NONE);
        book.set_peers([(PEER, "0.0.0.0:9001"), (OTHER, "b:1")]);
        assert!(book.candidates(PEER).is_empty());
        assert!(book.candidates(OTHER).is_empty(), "it is this node's own address");
    }

    #[test]
    fn the_latest_evidence_is_tried_first() {
        let mut book = book(&[]);
        assert_eq!(book.candidates(PEER), ["a:1"]);
        book.introduced(PEER, Err(HandshakeRefusal::WrongDirection), Some("x:1"), None);
        assert_eq!(
            (book.candidates(PEER), book.take_news()),
            (["x:1", "a:1"].map(Into::into).into(), [PEER].into())
        );
        book.introduced(PEER, Ok(()), Some("x:1"), None);
        assert!(book.take_news().is_empty());
        // The registry follows, and then the host moves again.
        book.set_peers([(PEER, "x:1"), (OTHER, "c:1")]);
        assert_eq!(
            (book.candidates(PEER), book.take_news().len()),
            (["x:1", "a:1"].map(Into::into).into(), 0)
        );
        book.set_peers([(PEER, "y:1"), (OTHER, "c:1")]);
        assert_eq!((book.candidates(PEER)[0].as_str(), book.take_news()), ("y:1", [PEER].into()));
        // A registry that is read from an older log does not hide what was known.
        book.set_peers([(PEER, "x:1"), (OTHER, "c:1")]);
        assert_eq!(book.candidates(PEER)[..2], ["x:1", "y:1"]);
    }

    #[test]
    fn a_host_that_answers_for_another_one_is_found_there() {
        let mut book = book(&[]);
        let unexpected = Err(HandshakeRefusal::UnexpectedNode);
        book.introduced(OTHER, unexpected, None, Some("a:1"));
        book.missed(PEER, "a:1");
        assert_eq!(
            (book.candidates(OTHER), book.take_news()),
            (["a:1", "c:1"].map(Into::into).into(), [OTHER].into())
        );
        assert_eq!(book.candidates(PEER), ["a:1"], "nothing better is known");
        book.introduced(PEER, unexpected, Some("c:1"), Some("c:1"));
        book.missed(OTHER, "c:1");
        assert_eq!(book.candidates(PEER), ["c:1", "a:1"]);
        assert_eq!(book.candidates(OTHER), ["a:1", "c:1"]);
        // Its own statement is better evidence than the address at which it answered.
        book.introduced(PEER, unexpected, Some("kv-1:9001"), Some("c:1"));
        assert_eq!(book.candidates(PEER)[0], "kv-1:9001");
        book.missed(PEER, "kv-1:9001");
        assert!(!book.candidates(PEER).contains(&"kv-1:9001".to_owned()));
    }

    #[test]
    fn strangers_teach_nothing() {
        let mut book = book(&[]);
        for refusal in [
            HandshakeRefusal::WrongCluster,
            HandshakeRefusal::HostMismatch,
            HandshakeRefusal::Outdated,
            HandshakeRefusal::UnknownNode,
        ] {
            book.introduced(PEER, Err(refusal), Some("x:1"), Some("x:1"));
        }
        book.introduced(NodeId(9), Ok(()), Some("x:1"), None);
        book.introduced(PEER, Ok(()), Some("0.0.0.0:9001"), None);
        assert_eq!((book.candidates(PEER), book.candidates(NodeId(9))), (["a:1".into()].into(), [].into()));
        assert!(book.take_news().is_empty());
    }

    #[test]
    fn fallbacks_are_tried_in_turn() {
        let mut book = book(&["s:1", "a:1", "c:1"]);
        // This node had another address when it stopped, and another host may have it now.
        book.set_peers([(PEER, "a:1"), (OTHER, "c:1"), (NodeId(2), "old:1")]);
        for fallback in ["s:1", "old:1", "s:1"] {
            assert_eq!(book.candidates(PEER), ["a:1", fallback], "other peers are sought at the others");
            for _ in 1..ROUNDS_TO_FALLBACK {
                assert_eq!(book.candidates(PEER), ["a:1"]);
            }
        }
        assert_eq!(book.candidates(OTHER), ["c:1", "s:1"]);
        book.set_peers([(PEER, "s:1"), (NodeId(2), "b:1")]);
        assert_eq!(book.candidates(PEER), ["s:1", "a:1"]);
    }

    #[test]
    fn few_addresses_are_remembered_and_the_registered_one_always() {
        let mut book = book(&[]);
        for number in 0..10 {
            book.introduced(PEER, Ok(()), Some(&format!("x:{}", number + 1)), None);
        }
        assert_eq!(book.candidates(PEER), ["x:10", "x:9", "x:8", "a:1"]);
    }
}
