//! `/v1/auth`: roles, principals and tokens, and who makes a request.
//!
//! Owns the translation between the core and `tidelock_api::auth`, the secrets of new tokens, and
//! the answer to a change: which nodes have applied it. The core decides what is allowed, and
//! stores digests only.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_api::auth as api;
use tidelock_core::auth::{Caller, Grant, Grants, Principal, RateLimits, Role, TokenId};
use tidelock_core::command::{AccessChange, ClusterView, HostRole};
use tidelock_core::types::{LogIndex, NodeId, ShardId, UnixMillis};

use super::authentication::bearer;
use super::body::BodyLimit;
use super::fields::Field;
use super::membership::denied;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::session;
use crate::requests;
use crate::store::Store;
use crate::token::BearerToken;

/// Longest body in bytes: more than the grants of a role may take.
const BODY_BYTES_MAX: usize = 128 << 10;

/// How long an answer waits until all nodes have confirmed that they apply a change.
const CONFIRMATION_MAX: Duration = Duration::from_secs(2);

/// How often it asks which nodes have.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(10);

/// Operations on roles, principals and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Auth {
    Show,
    Require,
    Whoami,
    SignIn,
    SignOut,
    Roles,
    PutRole,
    DeleteRole,
    Principals,
    PutPrincipal,
    DeletePrincipal,
    Tokens,
    CreateToken,
    RotateToken,
    DeleteToken,
}

pub(super) async fn answer<S: Store>(
    mut call: Call<'_, S>,
    operation: Auth,
    [raw_name, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    let name = || name(raw_name);
    match operation {
        Auth::Show => show(call).await,
        Auth::Require => {
            let api::Authentication { required } = object(&mut call, "`required`").await?;
            change(call, AccessChange::Require(required)).await
        }
        Auth::Whoami => Ok(json(&whoami(&call))),
        Auth::SignIn => sign_in(&call),
        Auth::SignOut => Ok(session::end(call.context.tls.is_some())),
        Auth::Roles => roles(call).await,
        Auth::PutRole => {
            let members = "`grants` and perhaps `ends_unix_ms`, `operations_per_s` and `bytes_per_s`";
            let role = role_of(object(&mut call, members).await?)?;
            change(call, AccessChange::PutRole { name: name()?, role }).await
        }
        Auth::DeleteRole => change(call, AccessChange::DeleteRole { name: name()? }).await,
        Auth::Principals => principals(call).await,
        Auth::PutPrincipal => put_principal(call, name()?).await,
        Auth::DeletePrincipal => change(call, AccessChange::DeletePrincipal { name: name()? }).await,
        Auth::Tokens => tokens(call).await,
        Auth::CreateToken => create_token(call).await,
        Auth::RotateToken => rotate_token(call, raw_name).await,
        Auth::DeleteToken => {
            let id = token_id(raw_name)?;
            change(call, AccessChange::DeleteToken { id }).await
        }
    }
}

async fn show<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let required = call.ask(requests::access()).await?.is_required();
    Ok(json(&api::Authentication { required }))
}

fn whoami<S: Store>(call: &Call<'_, S>) -> api::Whoami {
    let (rows, now) = (call.store().access().rows(), call.context.clock.now());
    let proof = call.identity().proof();
    let principal = proof.and_then(|proof| rows.principals().get(&*proof.principal));
    let roles: Vec<String> =
        principal.map(|principal| principal.roles.iter().cloned().collect()).unwrap_or_default();
    let in_force = roles.iter().filter_map(|role| rows.role(role)).filter(|role| role.is_in_force(now));
    let grants: Grants = in_force.flat_map(|role| role.grants.iter().cloned()).collect();
    api::Whoami {
        required: rows.is_required(),
        principal: proof.map(|proof| proof.principal.to_string()),
        token: proof.and_then(|proof| proof.token()).map(|id| id.to_string()),
        certificate_name: proof.and_then(|proof| proof.certificate_name()).map(ToOwned::to_owned),
        expires_unix_ms: proof.and_then(|proof| proof.expires).map(|expires| expires.0),
        roles,
        grants: texts(&grants),
    }
}

/// Gives a browser a cookie that stands for the token with which it signs in.
fn sign_in<S: Store>(call: &Call<'_, S>) -> Result<Response, Problem> {
    let token = match call.fields().authorization {
        Field::Once(header) => bearer(header).filter(|_| call.identity().proof().is_some()),
        Field::Absent | Field::Repeated => None,
    };
    let token =
        token.ok_or_else(|| Problem::unauthenticated(call.fields().authorization != Field::Absent))?;
    let mut response = json(&whoami(call));
    session::begin(&mut response, &token, call.context.tls.is_some());
    Ok(response)
}

async fn roles<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let rows = call.ask(requests::access()).await?;
    let mut roles: Vec<api::Role> = rows.roles().map(|(name, role)| shown_role(name, role)).collect();
    roles.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(json(&api::Roles { roles }))
}

fn shown_role(name: &str, role: &Role) -> api::Role {
    let ends_unix_ms = role.ends.map(|ends| ends.0);
    let RateLimits { operations_per_s, bytes_per_s } = role.rates;
    let (name, grants) = (name.to_owned(), texts(&role.grants));
    api::Role { name, grants, ends_unix_ms, operations_per_s, bytes_per_s }
}

fn texts(grants: &Grants) -> Vec<String> {
    grants.iter().map(Grant::to_string).collect()
}

fn role_of(body: api::PutRole) -> Result<Role, Problem> {
    let grant = |text: &String| {
        let parsed = text.parse::<Grant>();
        parsed.map_err(|error| Problem::invalid(format!("{text:?} is no grant: {error}")))
    };
    let grants = body.grants.iter().map(grant).collect::<Result<Grants, Problem>>()?;
    if body.operations_per_s == Some(0) || body.bytes_per_s == Some(0) {
        return Err(Problem::invalid("a limit is at least 1 a second; leave it out for none"));
    }
    let rates = RateLimits { operations_per_s: body.operations_per_s, bytes_per_s: body.bytes_per_s };
    Ok(Role { grants, ends: body.ends_unix_ms.map(UnixMillis), rates })
}

async fn principals<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let rows = call.ask(requests::access()).await?;
    let shown = rows.principals().iter().map(|(name, principal)| api::Principal {
        name: name.clone(),
        roles: principal.roles.iter().cloned().collect(),
        certificate_names: principal.certificate_names.iter().cloned().collect(),
    });
    Ok(json(&api::Principals { principals: shown.collect() }))
}

async fn put_principal<S: Store>(mut call: Call<'_, S>, name: String) -> Result<Response, Problem> {
    let api::PutPrincipal { roles, certificate_names } =
        object(&mut call, "`roles` and perhaps `certificate_names`").await?;
    let rows = call.ask(requests::access()).await?;
    if let Some(unknown) = roles.iter().find(|role| rows.role(role).is_none()) {
        let detail = format!("there is no role {unknown:?}; nothing was changed");
        return Err(Problem::new(ProblemKind::NotFound, detail));
    }
    let certificate_names = match certificate_names {
        Some(names) => names.into_iter().collect(),
        None => rows.principals().get(&name).map(|known| known.certificate_names.clone()).unwrap_or_default(),
    };
    let principal = Principal { roles: roles.into_iter().collect(), certificate_names };
    change(call, AccessChange::PutPrincipal { name, principal }).await
}

async fn tokens<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    let rows = call.ask(requests::access()).await?;
    let shown = rows.tokens().iter().map(|(id, token)| api::Token {
        id: id.to_string(),
        principal: token.principal.clone(),
        created_unix_ms: token.created.0,
        expires_unix_ms: token.expires.map(|expires| expires.0),
        secrets: token.digests.len() as u64,
    });
    Ok(json(&api::Tokens { tokens: shown.collect() }))
}

async fn create_token<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let body = object(&mut call, "`principal` and perhaps `expires_in_s`").await?;
    let api::CreateToken { principal, expires_in_s } = body;
    let token = BearerToken::generate().map_err(no_random)?;
    let lifetime_ms = expires_in_s.map(|seconds| seconds.saturating_mul(1000));
    let (id, digest) = (token.id, token.digest());
    let revision = apply(&call, AccessChange::AddToken { id, principal, digest, lifetime_ms }).await?;
    issued(&call, StatusCode::CREATED, (&token, revision)).await
}

async fn rotate_token<S: Store>(call: Call<'_, S>, raw_id: &str) -> Result<Response, Problem> {
    let token = BearerToken::with_id(token_id(raw_id)?).map_err(no_random)?;
    let (id, digest) = (token.id, token.digest());
    let revision = apply(&call, AccessChange::RotateToken { id, digest }).await?;
    issued(&call, StatusCode::OK, (&token, revision)).await
}

fn no_random(error: std::io::Error) -> Problem {
    tracing::error!(%error, "no token was created");
    Problem::new(ProblemKind::Internal, "this node has no random numbers for a secret; nothing was changed")
}

/// The answer that shows a secret. It must not stay in a cache.
async fn issued<S: Store>(
    call: &Call<'_, S>,
    status: StatusCode,
    (token, revision): (&BearerToken, LogIndex),
) -> Result<Response, Problem> {
    let change = confirmed(call, revision).await;
    let body = api::IssuedToken { id: token.id.to_string(), token: token.reveal(), change };
    let mut response = json(&body);
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn change<S: Store>(call: Call<'_, S>, change: AccessChange) -> Result<Response, Problem> {
    let revision = apply(&call, change).await?;
    Ok(json(&confirmed(&call, revision).await))
}

async fn apply<S: Store>(call: &Call<'_, S>, change: AccessChange) -> Result<LogIndex, Problem> {
    call.ask(requests::change_access(change)).await?.map_err(denied)
}

/// Waits until all nodes have confirmed that they apply the change, or until the time is over.
async fn confirmed<S: Store>(call: &Call<'_, S>, revision: LogIndex) -> api::Change {
    // The node's own request: the caller may have taken its own permissions away.
    let node = call.store().for_caller(Caller::Node);
    let deadline = Instant::now() + CONFIRMATION_MAX;
    loop {
        let answer = node.ask(requests::cluster()).await;
        let (in_force, not_yet) = answer.map_or_else(|_| Default::default(), |view| applied(&view, revision));
        if (not_yet.is_empty() && !in_force.is_empty()) || Instant::now() >= deadline {
            let numbers = |nodes: BTreeSet<NodeId>| nodes.into_iter().map(|node| node.0).collect();
            let revision = revision.0;
            return api::Change { revision, in_force: numbers(in_force), not_yet: numbers(not_yet) };
        }
        tokio::time::sleep(CONFIRMATION_INTERVAL).await;
    }
}

/// The nodes that have applied the prime shard's log up to an index, and those that have not.
fn applied(view: &ClusterView, index: LogIndex) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
    let has_applied = |node: NodeId| {
        view.replicas.iter().any(|replica| {
            let is_of_prime = replica.shard == ShardId::PRIME && replica.node == node;
            is_of_prime && replica.applied.is_some_and(|applied| applied >= index)
        })
    };
    let members = view.hosts.iter().filter(|host| host.standing != HostRole::Removed);
    members.map(|host| host.info.node).partition(|&node| has_applied(node))
}

/// A name in a path.
fn name(raw: &str) -> Result<String, Problem> {
    let decoded = percent_decode_str(raw).decode_utf8();
    decoded.map(Into::into).map_err(|_| Problem::invalid("a name must be UTF-8"))
}

fn token_id(raw: &str) -> Result<TokenId, Problem> {
    let detail = "a token is named by its number, 16 hexadecimal digits";
    raw.parse().map_err(|_| Problem::invalid(detail))
}

/// A body with these members.
async fn object<S: Store, T: DeserializeOwned>(call: &mut Call<'_, S>, members: &str) -> Result<T, Problem> {
    let body = call.read_body(BodyLimit::Form(BODY_BYTES_MAX)).await?;
    // serde would also accept a list of the values in order.
    let fields: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_slice(&body).ok();
    let parsed = fields.and_then(|fields| serde_json::from_value(fields.into()).ok());
    parsed.ok_or_else(|| Problem::invalid(format!("the body must be a JSON object with {members}")))
}

fn json(answer: &impl Serialize) -> Response {
    response::json(serde_json::to_vec(answer).expect("invariant: texts, numbers and lists are JSON"))
}
