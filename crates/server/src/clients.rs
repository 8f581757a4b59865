//! The open client connections of all protocols: their addresses, their load, and their limit.
//!
//! Owns the table of connections and their counters. A connection is in the table until its
//! `ClientEntry` is dropped. The worker that serves a connection raises its counters; they are read
//! to list the busiest clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidelock_core::types::ClientId;

use crate::counters::Counter;
use crate::descriptors::{ClientDescriptors, DescriptorPermit};
use crate::protocol::ListenerProtocol;

/// Bytes that weigh as much as one operation when clients are ordered by load.
const BYTES_PER_OPERATION: u64 = 256;

/// An open connection of a client, as operators see it.
#[derive(Debug)]
pub struct Client {
    /// Its number on this node, valid until this node restarts.
    pub id: ClientId,
    /// Its remote address; unknown for a connection that ended while it was accepted.
    pub address: Option<SocketAddr>,
    /// Its protocol.
    pub protocol: ListenerProtocol,
    /// When it was accepted.
    pub since: Instant,
    /// Requests or commands that were executed.
    pub operations: Counter,
    /// Bytes received on it.
    pub bytes_received: Counter,
    /// Bytes sent on it.
    pub bytes_sent: Counter,
    /// Number of its requests that are not answered yet.
    pub open_requests: Counter,
    /// Bytes of requests and replies in memory, as far as the protocol's server counts them.
    pub held_bytes: Counter,
}

impl Client {
    pub(crate) fn new(id: ClientId, protocol: ListenerProtocol, address: Option<SocketAddr>) -> Client {
        Client {
            id,
            address,
            protocol,
            since: Instant::now(),
            operations: Counter::default(),
            bytes_received: Counter::default(),
            bytes_sent: Counter::default(),
            open_requests: Counter::default(),
            held_bytes: Counter::default(),
        }
    }

    /// Its load so far, in operations.
    pub fn taken(&self) -> u64 {
        let bytes = self.bytes_received.get() + self.bytes_sent.get();
        self.operations.get() + bytes / BYTES_PER_OPERATION
    }
}

/// All open connections of a node. Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    descriptors: ClientDescriptors,
    open: Arc<Mutex<HashMap<ClientId, Arc<Client>>>>,
}

/// A connection's entry in the table, removed when dropped.
#[derive(Debug)]
pub(crate) struct ClientEntry {
    client: Arc<Client>,
    clients: Clients,
    _descriptor: DescriptorPermit,
}

impl Clients {
    /// An empty table, limited by these descriptors.
    pub fn new(descriptors: ClientDescriptors) -> Clients {
        Clients { descriptors, open: Arc::default() }
    }

    /// A permit for one more connection of a protocol that has `of_protocol` connections, if one is
    /// available.
    pub(crate) fn permit(&self, of_protocol: usize) -> Option<DescriptorPermit> {
        self.descriptors.permit(of_protocol)
    }

    /// Adds a connection that has a permit.
    pub(crate) fn enter(
        &self,
        id: ClientId,
        protocol: ListenerProtocol,
        address: Option<SocketAddr>,
        descriptor: DescriptorPermit,
    ) -> ClientEntry {
        let client = Arc::new(Client::new(id, protocol, address));
        self.lock().insert(id, client.clone());
        ClientEntry { client, clients: self.clone(), _descriptor: descriptor }
    }

    /// The open connection with this number.
    pub fn get(&self, id: ClientId) -> Option<Arc<Client>> {
        self.lock().get(&id).cloned()
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The connections with the highest load, at most `most`, the busiest first.
    pub fn busiest(&self, most: usize) -> Vec<Arc<Client>> {
        let mut clients: Vec<(u64, Arc<Client>)> =
            self.lock().values().map(|client| (client.taken(), client.clone())).collect();
        clients.sort_unstable_by_key(|(taken, client)| (std::cmp::Reverse(*taken), client.id));
        clients.truncate(most);
        clients.into_iter().map(|(_, client)| client).collect()
    }

    /// The largest number of unanswered requests of one connection.
    pub fn most_open_requests(&self) -> u64 {
        self.lock().values().map(|client| client.open_requests.get()).max().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Arc<Client>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientEntry {
    /// Returns the connection's counters.
    pub fn client(&self) -> Arc<Client> {
        self.client.clone()
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.client.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_come_first_and_those_that_are_gone_not_at_all() {
        let clients = Clients::default();
        let enter = |number: u64| {
            let permit = clients.permit(0).unwrap();
            clients.enter(ClientId(number), ListenerProtocol::Http, None, permit)
        };
        let entries: Vec<ClientEntry> = (1..=4).map(enter).collect();
        entries[0].client().operations.add(5);
        entries[1].client().bytes_sent.add(10 * BYTES_PER_OPERATION);
        entries[2].client().operations.add(7);
        entries[2].client().open_requests.set(3);
        let order = |most| clients.busiest(most).iter().map(|client| client.id.0).collect::<Vec<_>>();
        assert_eq!(order(10), [2, 3, 1, 4]);
        assert_eq!(order(2), [2, 3]);
        assert_eq!((clients.count(), clients.most_open_requests()), (4, 3));
        drop(entries);
        assert_eq!((clients.count(), clients.most_open_requests()), (0, 0));
    }
}
