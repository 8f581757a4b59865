//! Principals: the requests of ordinary clients are theirs, and an administrator grants and revokes
//! all the time, as a principal. Everything else in the world asks as a node does, and is always
//! allowed.

use std::collections::BTreeSet;

use tidelock_core::auth::{ADMIN_ROLE, Caller, Grants, Principal, RateLimits, Role, SecretDigest, TokenId};
use tidelock_core::command::{AccessChange, AccessWrite, RegistryWrite, Reply, Request, Write, WriteReply};
use tidelock_core::event::Event;
use tidelock_core::types::{NodeId, Token};

use super::World;
use super::enrolment::Enrolments;
use crate::checkers::Violation;
use crate::checkers::audit::AuditRecords;
use crate::checkers::online::Observation;
use crate::checkers::permissions::{Entering, Permissions};
use crate::checkers::spans;
use crate::describe::brief;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::host::Host;

/// Principals that share the requests of clients.
const PRINCIPALS: usize = 3;

/// The principal that changes permissions.
const ADMINISTRATOR: &str = "root";

/// What roles are granted. Compound keys begin with a brace.
const GRANTS: [&str; 14] = [
    "read keys:",
    "write keys:",
    "read keys:",
    "write keys:",
    "read keys:a",
    "write keys:a",
    "read keys:b",
    "write keys:b",
    "read keys:{",
    "write keys:{",
    "read config:*",
    "write config:*",
    "cluster:operate",
    "cluster:admin",
];

/// The administrator, and the checkers.
#[derive(Debug)]
pub struct Administrator {
    pub(super) checker: Permissions,
    audit: AuditRecords,
    /// The changes that set everything up, the next one last.
    setup: Vec<RegistryWrite>,
    enrolments: Enrolments,
    waits_for: Option<Token>,
    random: fastrand::Rng,
}

impl Administrator {
    /// The administrator of a plan with principals.
    pub fn new((stale_ticks, founders): (u64, u64), random: fastrand::Rng) -> Administrator {
        let setup = (0..PRINCIPALS).flat_map(|number| {
            let role = AccessChange::PutRole { name: name(number), role: Role::default() };
            [role, principal(&name(number), &name(number))]
        });
        let token = AccessChange::AddToken {
            id: TokenId(1),
            principal: ADMINISTRATOR.into(),
            digest: SecretDigest::of(b"secret"),
            lifetime_ms: None,
        };
        let setup = setup.chain([principal(ADMINISTRATOR, ADMIN_ROLE), token, AccessChange::Require(true)]);
        let mut setup: Vec<RegistryWrite> = setup.map(access).chain([Enrolments::authority()]).collect();
        setup.reverse();
        Administrator {
            checker: Permissions::new(stale_ticks, founders),
            audit: AuditRecords::default(),
            setup,
            enrolments: Enrolments::default(),
            waits_for: None,
            random,
        }
    }

    /// The next change: of the setup, of the grants of a role, or of join tokens. Now and then,
    /// authentication is switched off and on.
    fn change(&mut self) -> RegistryWrite {
        self.enrolments.forget();
        if let Some(change) = self.setup.last() {
            return change.clone();
        }
        let random = &mut self.random;
        if random.u8(0..20) == 0 {
            self.setup.push(access(AccessChange::Require(true)));
            return access(AccessChange::Require(false));
        }
        if random.u8(0..4) == 0 {
            return self.enrolments.next(random);
        }
        let count = random.usize(0..=6);
        let grants = (0..count).map(|_| choose(random, &GRANTS).parse().expect("invariant: a grant"));
        let grants: Grants = grants.collect();
        // Limits need a newer version of the cluster.
        let operations_per_s = (count % 2 == 1).then_some(count as u64);
        let rates = RateLimits { operations_per_s, ..RateLimits::default() };
        let role = Role { grants, rates, ..Role::default() };
        access(AccessChange::PutRole { name: name(random.usize(0..PRINCIPALS)), role })
    }
}

fn access(change: AccessChange) -> RegistryWrite {
    RegistryWrite::Access(AccessWrite::new(change))
}

fn name(number: usize) -> String {
    format!("client-{number}")
}

fn principal(name: &str, role: &str) -> AccessChange {
    let principal = Principal { roles: [role.to_owned()].into(), certificate_names: BTreeSet::new() };
    AccessChange::PutPrincipal { name: name.to_owned(), principal }
}

impl World<'_> {
    pub(super) fn start_administrator(&mut self) {
        if self.administrator.is_some() {
            self.event_queue.after(Micros::MILLISECOND, SimEvent::Administer);
        }
    }

    /// The administrator takes its next step, unless it waits for an answer.
    pub(super) fn administer(&mut self) {
        let up: Vec<NodeId> = self.hosts.iter().filter(|host| host.is_up()).map(Host::node).collect();
        let Some(administrator) = &mut self.administrator else { return };
        let pause = Micros(administrator.random.u64(1_000..300_000));
        self.event_queue.after(pause, SimEvent::Administer);
        let open = administrator.waits_for.and_then(|token| self.history.operation(token));
        if up.is_empty() || open.is_some_and(|open| open.outcome == crate::history::Outcome::Open) {
            return;
        }
        let node = *choose(&mut administrator.random, &up);
        let write = administrator.change();
        let caller = Caller::Principal(ADMINISTRATOR.into());
        let token = self.ask_as(caller, node, Request::Write(Write::from(write)), false);
        if let Some(administrator) = &mut self.administrator {
            administrator.waits_for = Some(token);
        }
    }

    /// An answer arrives: the administrator learns of it, and it is judged.
    pub(super) fn judge_permission(&mut self, token: Token, reply: &Reply) -> Result<(), Violation> {
        let Some(administrator) = &mut self.administrator else { return Ok(()) };
        administrator.audit.answered(token, reply);
        if administrator.waits_for == Some(token) {
            administrator.waits_for = None;
            if matches!(reply, Reply::Write(WriteReply::HostChanged)) {
                administrator.setup.pop();
                administrator.enrolments.served()?;
            }
            if matches!(reply, Reply::Write(WriteReply::AccessChanged { .. })) {
                administrator.setup.pop();
                self.tally.permission_changes += 1;
            }
        }
        match administrator.checker.answered(token, !matches!(reply, Reply::Refused(_)))? {
            Some(true) => self.tally.permitted += 1,
            Some(false) => {
                let is_forbidden =
                    matches!(reply, Reply::Refused(tidelock_core::command::Refusal::Forbidden(_)));
                self.tally.forbidden += u64::from(is_forbidden);
            }
            None => {}
        }
        Ok(())
    }

    /// Shows the checker what a node has applied.
    ///
    /// # Errors
    /// When its audit records are wrong.
    pub(super) fn observe_permissions(&mut self, node: NodeId) -> Result<(), Violation> {
        let host = &self.hosts[(node.0 - 1) as usize];
        if let Some(administrator) = &mut self.administrator
            && let (Some(access), Some(audit), Some(status)) = (host.access(), host.audit(), host.status())
        {
            let leads = status.shards.iter().filter(|shard| shard.leads).map(|shard| shard.shard);
            administrator.checker.observe((host.incarnation(), host.ticks()), access, leads);
            administrator.audit.observe(host.incarnation(), audit, access.revision())?;
        }
        Ok(())
    }

    /// Sends a request to a node, as another node would if there are principals.
    pub(crate) fn ask(&mut self, node: NodeId, request: Request, is_final: bool) -> Token {
        let caller = if self.administrator.is_some() { Caller::Node } else { Caller::Anonymous };
        self.ask_as(caller, node, request, is_final)
    }

    /// Sends a client's request to a node.
    pub(super) fn ask_of_client(&mut self, client: usize, node: NodeId, request: Request) -> Token {
        let caller = match &self.administrator {
            Some(_) => Caller::Principal(name(client % PRINCIPALS).into()),
            None => Caller::Anonymous,
        };
        self.ask_as(caller, node, request, false)
    }

    /// Sends a request of a caller to a node.
    fn ask_as(&mut self, caller: Caller, node: NodeId, request: Request, is_final: bool) -> Token {
        let host = self.host(node);
        let (at, ticks) = (host.incarnation(), host.ticks());
        let token = self.history.invoke(at, request.clone(), is_final);
        if request.is_stale_read() {
            let whole_map = self.host(node).whole_map();
            self.history.asked_of(token, whole_map);
        }
        let shard = self.written_shard(token);
        self.tell_checkers(&Observation::Asked { node, token, ticks, written: shard });
        self.note(&[1, node.0, token.0], || format!("node {node} <- {token}: {}", brief(&request)));
        if let Some(administrator) = &mut self.administrator {
            administrator.audit.asked(token, &caller, &request);
        }
        // A process on an old copy of its disk serves stale reads from it until a peer rejects its
        // handshake. The copy may predate all permissions, so its answers are not judged.
        let is_on_old_copy = self.host(node).awaits_its_disk();
        if let (Some(administrator), Caller::Principal(_)) = (&mut self.administrator, &caller)
            && !is_on_old_copy
        {
            let (caller, request) = (caller.clone(), request.clone());
            administrator.checker.asked(Entering { token, caller, request, at, ticks, shard });
        }
        if let Some(reply) = self.answer_at_once(node, &caller, &request) {
            let life = self.host(node).incarnation().life;
            self.at_once.insert(token, reply);
            self.event_queue.after(Micros(0), SimEvent::AnsweredAtOnce { node, life, token });
        } else {
            let trace = spans::context_of(token);
            self.post(node, Event::Request { token, caller, request, trace });
        }
        token
    }

    /// The answer to a stale read from a node's memory, for a request that reaches the worker which
    /// owns the node. Other workers pass on what they receive, as an event.
    fn answer_at_once(&mut self, node: NodeId, caller: &Caller, request: &Request) -> Option<Reply> {
        let is_at_owner = request.is_stale_read() && self.host(node).is_running() && self.pace.bool();
        if is_at_owner { self.host(node).answer_at_once(caller, request) } else { None }
    }
}
