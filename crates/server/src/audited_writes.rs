//! Writes of the keys that `--audit-writes` names, for the audit log.
//!
//! Owns what becomes a line: one for each operation that has changed a key with one of the
//! prefixes, whichever protocol it came by, once the client's node has the reply. An operation that
//! changed nothing is not recorded. If the outcome is unknown, the line says so. The reply to a
//! repeated transaction with an id is that of the first, so the repetition is recorded too.

use std::cell::RefCell;
use std::collections::HashMap;

use tidelock_core::auth::Caller;
use tidelock_core::command::{Operation, Operations, Refusal, Reply, Request, Write, WriteReply};
use tidelock_core::types::{ClientId, Token};

use crate::audit_log::{AuditEvent, AuditEventKind, AuditLog};
use crate::clients::Clients;
use crate::turns::Turn;

/// Records the writes of some keys that clients of this node make.
#[derive(Debug)]
pub struct AuditedWrites {
    prefixes: Box<[Box<[u8]>]>,
    log: AuditLog,
    clients: Clients,
    /// Requests without a reply that write such keys.
    pending: RefCell<HashMap<Token, PendingWrites>>,
}

#[derive(Debug)]
struct PendingWrites {
    client: ClientId,
    principal: Option<String>,
    /// Of a transaction with two branches `then` and `else`, otherwise only the first.
    branches: [PendingOperations; 2],
}

/// The positions of operations in their branch, and what the log says of each.
type PendingOperations = Vec<(usize, String)>;

impl AuditedWrites {
    /// Records the writes of keys that begin with one of `prefixes`.
    pub fn new(prefixes: &[String], (log, clients): (AuditLog, Clients)) -> AuditedWrites {
        let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes().into()).collect();
        AuditedWrites { prefixes, log, clients, pending: RefCell::default() }
    }

    /// Takes note of a request of a client.
    pub(crate) fn begin(&self, client: ClientId, Turn { token, caller, request, .. }: &Turn) {
        let branches = match request {
            Request::Write(Write::Keys(transaction)) => [self.audited(&transaction.operations), Vec::new()],
            Request::Write(Write::Conditional(transaction)) => {
                [&transaction.then, &transaction.otherwise].map(|branch| self.audited(branch))
            }
            _ => return,
        };
        if branches.iter().any(|branch| !branch.is_empty()) {
            let principal = match caller {
                Caller::Principal(name) => Some(name.to_string()),
                Caller::Anonymous | Caller::Node => None,
            };
            self.pending.borrow_mut().insert(*token, PendingWrites { client, principal, branches });
        }
    }

    fn audited(&self, operations: &Operations) -> PendingOperations {
        let is_audited = |key: &[u8]| self.prefixes.iter().any(|prefix| key.starts_with(prefix));
        let audited = operations.iter().enumerate().filter(|(_, operation)| is_audited(operation.key()));
        audited.filter_map(|(position, operation)| Some((position, described(operation)?))).collect()
    }

    /// Records what a reply says that was written.
    pub(crate) fn end(&self, token: Token, reply: &Reply) {
        let Some(pending) = self.pending.borrow_mut().remove(&token) else { return };
        let PendingWrites { client, principal, branches: [then, otherwise] } = pending;
        let mut replies = reply.operations().into_iter().flat_map(|replies| replies.iter()).enumerate();
        // Operations and replies are in the same order.
        let mut has_changed = |position| {
            let reply = replies.find(|(at, _)| *at == position);
            reply.is_some_and(|(_, reply)| reply.has_changed())
        };
        let (kind, operations) = match reply {
            Reply::Refused(Refusal::UnknownOutcome) => {
                (AuditEventKind::MaybeWritten, [then, otherwise].concat())
            }
            Reply::Write(WriteReply::Branched { succeeded: false, .. }) => {
                (AuditEventKind::Written, otherwise)
            }
            _ => (AuditEventKind::Written, then),
        };
        let client = self.clients.get(client);
        for (position, detail) in operations {
            if kind == AuditEventKind::MaybeWritten || has_changed(position) {
                self.log.record(AuditEvent {
                    kind,
                    protocol: client.as_ref().map(|client| client.protocol),
                    address: client.as_ref().and_then(|client| Some(client.address?.ip())),
                    principal: principal.clone(),
                    detail,
                });
            }
        }
    }
}

/// The name and the key of an operation; `None` if it never writes.
fn described(operation: Operation<'_>) -> Option<String> {
    let name = match operation {
        Operation::Get { .. } | Operation::Describe { .. } | Operation::SkipIfExists { .. } => return None,
        Operation::Put { .. } | Operation::Set(_) | Operation::PutBound { .. } => "put",
        Operation::Delete { .. } | Operation::DeleteIf { .. } | Operation::Take { .. } => "delete",
        Operation::Add { .. } | Operation::AddDecimal { .. } => "add",
        Operation::Append { .. } => "append",
        Operation::SetRange { .. } => "set-range",
        Operation::Expire { .. } | Operation::ExpireAfter { .. } => "expire",
        Operation::Exchange { .. } | Operation::CompareExchange { .. } => "exchange",
    };
    let key = operation.key();
    Some(match std::str::from_utf8(key) {
        Ok(key) => format!("{name} {key}"),
        Err(_) => format!("{name} {}", key.escape_ascii()),
    })
}
