//! Who sends a request, and whether that is enough for its route.
//!
//! Owns the only place that turns the header `Authorization`, or without it the cookie of a browser
//! that has signed in, or the certificate of the client, into a caller, and the demand of each
//! route. The core checks every request that it is asked. A route that shows or does something
//! without such a request is checked here, so that none escapes: the demand of an endpoint is an
//! exhaustive match.
//!
//! While authentication is not required nothing is refused. A valid token still says who makes the
//! request, for `whoami` and as the author of a change; an invalid one is ignored.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use tidelock_core::auth::{Caller, Demand, Scope, Verb};
use tidelock_core::command::Refusal;

use super::HttpContext;
use super::atomics::Registers;
use super::auth::Auth;
use super::cluster::Cluster;
use super::config::Config;
use super::console::Console;
use super::fields::{Field, Fields};
use super::health::Health;
use super::kv1::Kv1;
use super::leases::Leases;
use super::locks::Locks;
use super::native::Keys;
use super::negotiate;
use super::problem::{Problem, ProblemKind};
use super::raftdb::Raftdb;
use super::route::Endpoint;
use super::session;
use super::transactions::Transactions;
use super::uri::Parameters;
use crate::access::{AccessState, Proof, ProtectedModeError, PublishedAccess};
use crate::clock::WallClock;
use crate::requests;
use crate::store::Store;
use crate::tls::ClientCertificate;
use crate::token::BearerToken;

/// What an endpoint needs from its caller, once authentication is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointDemand {
    /// Nothing.
    Open,
    /// Nothing, or [`EndpointDemand::NodeState`] with the parameter `verbose`.
    OpenUnlessVerbose,
    /// [`EndpointDemand::NodeState`], but nothing for a browser that wants a page: it is sent to
    /// the console.
    NodeStateOrPage,
    /// A valid token.
    ValidToken,
    /// A valid token, and the demands of its requests to the core.
    ByRequest,
    /// [`EndpointDemand::ByRequest`], and with the parameter `reveal` the permission to see the
    /// secrets of the namespace. The handler, which knows the namespace, checks that.
    ByRequestOrReveal,
    /// [`EndpointDemand::ByRequest`], and always the permission to see the secrets.
    ByRequestAndReveal,
    /// `cluster:read`. The node shows its own state without a request to the core, so that it can
    /// be observed under any load and without a leader. The rows that it knows decide.
    NodeState,
    /// `cluster:admin`, which the core checks even if there is no other request to it.
    Administrator,
}

impl Endpoint {
    /// Whether rate limits apply. They do not apply to requests about the cluster and about
    /// permissions, because an administrator must be able to raise a limit.
    pub fn is_limited(self) -> bool {
        match self {
            Endpoint::Keys(_)
            | Endpoint::Registers(_)
            | Endpoint::Transactions(_)
            | Endpoint::Leases(_)
            | Endpoint::Locks(_)
            | Endpoint::Raftdb(_)
            | Endpoint::Kv1(_)
            | Endpoint::Config(_) => true,
            Endpoint::Cluster(_) | Endpoint::Auth(_) | Endpoint::Health(_) | Endpoint::Console(_) => false,
        }
    }

    /// What the endpoint needs from its caller.
    pub fn demand(self) -> EndpointDemand {
        match self {
            Endpoint::Keys(Keys::Get | Keys::Put | Keys::Delete | Keys::List | Keys::Watch)
            | Endpoint::Registers(Registers::Get | Registers::Exchange | Registers::CompareExchange)
            | Endpoint::Transactions(Transactions::Execute)
            | Endpoint::Leases(Leases::Grant | Leases::List | Leases::Get | Leases::Renew | Leases::Revoke)
            | Endpoint::Locks(Locks::Show | Locks::Acquire | Locks::Release)
            | Endpoint::Raftdb(Raftdb::Get | Raftdb::Put)
            | Endpoint::Kv1(Kv1::Get | Kv1::Put) => EndpointDemand::ByRequest,
            Endpoint::Config(operation) => of_config(operation),
            Endpoint::Cluster(operation) => of_cluster(operation),
            Endpoint::Auth(operation) => match operation {
                Auth::Whoami | Auth::SignIn => EndpointDemand::ValidToken,
                Auth::SignOut => EndpointDemand::Open,
                Auth::Show
                | Auth::Require
                | Auth::Roles
                | Auth::PutRole
                | Auth::DeleteRole
                | Auth::Principals
                | Auth::PutPrincipal
                | Auth::DeletePrincipal
                | Auth::Tokens
                | Auth::CreateToken
                | Auth::RotateToken
                | Auth::DeleteToken => EndpointDemand::Administrator,
            },
            Endpoint::Health(operation) => match operation {
                Health::Live | Health::OpenApi => EndpointDemand::Open,
                Health::Ready => EndpointDemand::OpenUnlessVerbose,
                Health::Welcome => EndpointDemand::NodeStateOrPage,
                Health::Metrics | Health::MetricsHistory => EndpointDemand::NodeState,
            },
            Endpoint::Console(Console::Begin | Console::File) => EndpointDemand::Open,
        }
    }
}

fn of_config(operation: Config) -> EndpointDemand {
    match operation {
        Config::Namespaces
        | Config::Search
        | Config::Namespace
        | Config::CreateNamespace
        | Config::DeleteNamespace
        | Config::Pairs
        | Config::PutPair
        | Config::DeletePair
        | Config::RollBackPair
        | Config::PairHistory
        | Config::PairContainers
        | Config::PairSchema
        | Config::PutPairSchema
        | Config::DeletePairSchema
        | Config::Containers
        | Config::PutContainer
        | Config::DeleteContainer
        | Config::RollBackContainer
        | Config::ContainerHistory
        | Config::ContainerSchema
        | Config::PutContainerSchema
        | Config::DeleteContainerSchema
        | Config::ContainerDiff
        | Config::Blame
        | Config::ImportContainer
        | Config::WatchContainer
        | Config::WatchNamespace
        | Config::Readers
        | Config::Publish
        | Config::RollBack
        | Config::SetPolicy
        | Config::Export
        | Config::Import
        | Config::History
        | Config::Diff
        | Config::Inheritance
        | Config::SetParents
        | Config::SetProtection
        | Config::Compare
        | Config::Promote
        | Config::Drafts
        | Config::Draft
        | Config::DiscardDraft
        | Config::CommentDraft
        | Config::ApproveDraft
        | Config::PublishDraft
        | Config::BeginCanary
        | Config::WithdrawCanary => EndpointDemand::ByRequest,
        Config::Pair | Config::Container | Config::DownloadContainer => EndpointDemand::ByRequestOrReveal,
        Config::RotateSecrets => EndpointDemand::ByRequestAndReveal,
    }
}

fn of_cluster(operation: Cluster) -> EndpointDemand {
    match operation {
        Cluster::View
        | Cluster::Host(_)
        | Cluster::Progress(_)
        | Cluster::Dump
        | Cluster::Explain
        | Cluster::Tag
        | Cluster::Default
        | Cluster::SetDefault
        | Cluster::Load
        | Cluster::Moves
        | Cluster::AddShard
        | Cluster::RemoveShard
        | Cluster::Rebalance
        | Cluster::MoveSlots
        | Cluster::Transfer
        | Cluster::TransferProgress
        | Cluster::Version
        | Cluster::HoldVersion
        | Cluster::ResumeVersion
        | Cluster::Checkpoint => EndpointDemand::ByRequest,
        Cluster::Clients => EndpointDemand::NodeState,
        Cluster::ReloadCertificate
        | Cluster::CreateJoinToken
        | Cluster::Authorities
        | Cluster::AddAuthority
        | Cluster::UseAuthority
        | Cluster::RemoveAuthority
        | Cluster::Backup
        | Cluster::Snapshots
        | Cluster::BeginSnapshots
        | Cluster::PartialBackup
        | Cluster::Restore
        | Cluster::Audit => EndpointDemand::Administrator,
    }
}

/// Who a client is, as far as it has proved that.
#[derive(Clone, Debug, Default)]
pub(super) enum ClientIdentity {
    /// It sent no token, and no certificate that proves a principal.
    #[default]
    Unknown,
    /// It sent something that is not a valid token.
    Refuted,
    Proved(Arc<Proof>),
}

impl ClientIdentity {
    /// What the client has proved.
    pub fn proof(&self) -> Option<&Arc<Proof>> {
        match self {
            ClientIdentity::Proved(proof) => Some(proof),
            ClientIdentity::Unknown | ClientIdentity::Refuted => None,
        }
    }

    /// The caller of the client's requests.
    pub fn caller(&self) -> Caller {
        self.proof().map_or(Caller::Anonymous, |proof| proof.caller())
    }
}

/// The last header of a connection, and who that proved the client to be.
struct CachedIdentity {
    header: HeaderValue,
    state: AccessState,
    identity: ClientIdentity,
}

/// The authentication of one connection, which usually sends the same header again and again.
pub(super) struct Authentication {
    address: Option<IpAddr>,
    last: RefCell<Option<CachedIdentity>>,
    /// The certificate that the client presented.
    certificate: Option<Arc<ClientCertificate>>,
    /// Who the certificate proved the client to be, and at which state of the rows.
    by_certificate: RefCell<Option<(AccessState, ClientIdentity)>>,
    /// Whether the client is on another machine, and the node in protected mode.
    pub is_protected_from: bool,
}

impl Authentication {
    /// The authentication of a client at an address, which may have presented a certificate.
    pub fn new(address: Option<IpAddr>, certificate: Option<Arc<ClientCertificate>>) -> Authentication {
        Authentication {
            address,
            last: RefCell::default(),
            certificate,
            by_certificate: RefCell::default(),
            is_protected_from: false,
        }
    }

    /// The address of the client, if it is known.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Who sends a request with these fields.
    #[inline]
    pub fn identify(
        &self,
        fields: &Fields<'_>,
        access: &PublishedAccess,
        clock: WallClock,
    ) -> ClientIdentity {
        match (fields.authorization, fields.cookie) {
            (Field::Once(header), _) => self.identify_by(header, bearer, (access, clock)),
            (Field::Repeated, _) => ClientIdentity::Refuted,
            (Field::Absent, Field::Once(header)) if session::is_in(header) => {
                self.identify_by(header, session::token, (access, clock))
            }
            (Field::Absent, _) => match &self.certificate {
                None => ClientIdentity::Unknown,
                Some(certificate) => self.identify_by_certificate(certificate, access, clock),
            },
        }
    }

    fn identify_by(
        &self,
        header: &HeaderValue,
        token_in: impl Fn(&HeaderValue) -> Option<BearerToken>,
        (access, clock): (&PublishedAccess, WallClock),
    ) -> ClientIdentity {
        let state = access.state();
        let mut last = self.last.borrow_mut();
        if let Some(checked) = &*last
            && checked.state == state
            && checked.header == *header
            && !checked.identity.proof().is_some_and(|proof| proof.has_expired(|| clock.now()))
        {
            return checked.identity.clone();
        }
        let proof = token_in(header).and_then(|token| Proof::of(&token, access, clock.now()));
        let identity = proof.map_or(ClientIdentity::Refuted, |proof| ClientIdentity::Proved(proof.into()));
        *last = Some(CachedIdentity { header: header.clone(), state, identity: identity.clone() });
        identity
    }

    fn identify_by_certificate(
        &self,
        certificate: &Arc<ClientCertificate>,
        access: &PublishedAccess,
        clock: WallClock,
    ) -> ClientIdentity {
        let state = access.state();
        let mut last = self.by_certificate.borrow_mut();
        if let Some((checked, identity)) = &*last
            && *checked == state
            && !identity.proof().is_some_and(|proof| proof.has_expired(|| clock.now()))
        {
            return identity.clone();
        }
        let proof = Proof::of_certificate(certificate, access, clock.now());
        let identity = proof.map_or(ClientIdentity::Unknown, |proof| ClientIdentity::Proved(proof.into()));
        *last = Some((state, identity.clone()));
        identity
    }

    /// Checks whether a client may use an endpoint. `store` makes the client's requests.
    ///
    /// # Errors
    /// Why it may not. A client that sent a wrong token, repeatedly, waits for it.
    pub async fn check<S: Store>(
        &self,
        endpoint: Endpoint,
        (identity, store): (&ClientIdentity, &S),
        (head, context): (&Parts, &HttpContext),
    ) -> Result<(), Problem> {
        let demand = demand_of(endpoint, head)?;
        if demand == EndpointDemand::Open {
            return Ok(());
        }
        let state = store.access().state();
        if !state.is_required() {
            if !self.is_protected_from {
                return Ok(());
            }
            return state.check_protected_mode().map_err(|error| match error {
                ProtectedModeError::Unconfirmed => Refusal::PermissionsUnknown.into(),
                ProtectedModeError::TokensNotRequired => {
                    Problem::new(ProblemKind::ProtectedMode, ProtectedModeError::ADVICE)
                }
            });
        }
        let ClientIdentity::Proved(proof) = identity else {
            if matches!(identity, ClientIdentity::Refuted) && state.is_unconfirmed() {
                // The token may have been made after the last entry that this node has applied.
                return Err(Refusal::PermissionsUnknown.into());
            }
            if matches!(identity, ClientIdentity::Refuted) {
                context.throttle.failed(self.address).await;
            }
            return Err(Problem::unauthenticated(matches!(identity, ClientIdentity::Refuted)));
        };
        match demand {
            EndpointDemand::NodeState => {
                let read = Demand { verb: Verb::Read, scope: Scope::Cluster };
                let rows = store.access().rows();
                if rows.covers(&proof.caller(), &read, Some(context.clock.now())) {
                    return Ok(());
                }
                Err(Refusal::Forbidden(read.to_string().into()).into())
            }
            EndpointDemand::Administrator => {
                Box::pin(store.ask(requests::access())).await.map(drop).map_err(Problem::from)
            }
            EndpointDemand::Open
            | EndpointDemand::OpenUnlessVerbose
            | EndpointDemand::NodeStateOrPage
            | EndpointDemand::ValidToken
            | EndpointDemand::ByRequest
            | EndpointDemand::ByRequestOrReveal
            | EndpointDemand::ByRequestAndReveal => Ok(()),
        }
    }
}

/// What a request to an endpoint needs from its caller.
fn demand_of(endpoint: Endpoint, head: &Parts) -> Result<EndpointDemand, Problem> {
    Ok(match endpoint.demand() {
        EndpointDemand::OpenUnlessVerbose => {
            let is_verbose = Parameters::of_query(head.uri.query()).flag("verbose")?;
            if is_verbose { EndpointDemand::NodeState } else { EndpointDemand::Open }
        }
        EndpointDemand::NodeStateOrPage => {
            let wants_page = negotiate::wants_page(&head.headers);
            if wants_page { EndpointDemand::Open } else { EndpointDemand::NodeState }
        }
        demand => demand,
    })
}

/// The token of a header `Authorization: Bearer …`.
pub(super) fn bearer(header: &HeaderValue) -> Option<BearerToken> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = header.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| BearerToken::parse(token.trim_ascii()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::path::Path;

    use super::super::operations;
    use super::*;

    #[test]
    fn only_bearers_are_read() {
        let token = BearerToken::generate().expect("random numbers");
        for (text, is_token) in [
            (format!("Bearer {}", token.reveal()), true),
            (format!("bearer  {} ", token.reveal()), true),
            (format!("Basic {}", token.reveal()), false),
            (token.reveal(), false),
            ("Bearer".to_owned(), false),
            ("Bearer x".to_owned(), false),
        ] {
            let header = HeaderValue::from_str(&text).expect("a header");
            assert_eq!(bearer(&header).is_some(), is_token);
        }
    }

    /// Where the generated part of the document begins and ends.
    const MARKERS: [&str; 2] = [
        "<!-- generated from http/operations: begin -->\n",
        "<!-- generated from http/operations: end -->\n",
    ];

    fn table() -> String {
        let mut out = "\n| path | method | demands |\n|---|---|---|\n".to_owned();
        for operation in operations::all() {
            let demand = match operation.endpoint.demand() {
                EndpointDemand::Open => "nothing",
                EndpointDemand::OpenUnlessVerbose => "nothing; with `verbose` `cluster:read`",
                EndpointDemand::NodeStateOrPage => {
                    "`cluster:read`; nothing for a browser, which is sent to the console"
                }
                EndpointDemand::ValidToken => "a valid token",
                EndpointDemand::ByRequest => "what its requests demand, see above",
                EndpointDemand::ByRequestOrReveal => {
                    "what its requests demand; with `reveal` also `reveal config:NAMESPACE`"
                }
                EndpointDemand::ByRequestAndReveal => {
                    "what its requests demand, and `reveal config:NAMESPACE`"
                }
                EndpointDemand::NodeState => "`cluster:read`",
                EndpointDemand::Administrator => "`cluster:admin`",
            };
            let method = operation.method.to_ascii_uppercase();
            out += &format!("| `{}` | {method} | {demand} |\n", operation.path);
        }
        out + "\n"
    }

    #[test]
    fn the_document_lists_every_route() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/permissions.md");
        let document = fs::read_to_string(&path).expect("the document");
        let (before, rest) = document.split_once(MARKERS[0]).expect("the first marker");
        let (_, after) = rest.split_once(MARKERS[1]).expect("the second marker");
        let expected = [before, MARKERS[0], &table(), MARKERS[1], after].concat();
        if env::var_os("UPDATE_GOLDENFILES").is_some() {
            fs::write(&path, &expected).expect("written");
            return;
        }
        assert_eq!(document, expected, "UPDATE_GOLDENFILES=1 writes it anew");
    }
}
