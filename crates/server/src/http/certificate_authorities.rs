//! `/v1/cluster/join-tokens` and `/v1/tls/authorities`: the cluster's certificate authorities
//! (CAs), and join tokens.
//!
//! Owns the translation between the core and `tidelock_api::authorities`, and generates the keys of
//! CAs and the secrets of join tokens. The core decides the order of steps of a rotation.
//! Invariant: no answer contains a private key.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use tidelock_api::authorities as api;
use tidelock_core::auth::{Authorities, AuthorityId, PrivateKey};
use tidelock_core::command::{AuthorityChange, Denial};

use super::body::BodyLimit;
use super::membership::{denied, number};
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::service::Call;
use crate::hex;
use crate::requests;
use crate::store::Store;
use crate::tls::fingerprint_of;
use crate::tls::issue::CertificateAuthority;
use crate::token::{BearerToken, JoinTokenText};

/// Longest body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 10;

/// Default lifetime of a join token in seconds: one day.
const JOIN_TOKEN_LIFETIME_S: u64 = 24 * 3600;

pub(super) async fn create_join_token<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let body = call.read_body(BodyLimit::Form(BODY_BYTES_MAX)).await?;
    let malformed = |_| Problem::invalid("the body must be a JSON object, perhaps with `expires_in_s`");
    let api::CreateJoinToken { expires_in_s } = match &body[..] {
        b"" => api::CreateJoinToken::default(),
        body => serde_json::from_slice(body).map_err(malformed)?,
    };
    let expires_in_s = expires_in_s.unwrap_or(JOIN_TOKEN_LIFETIME_S);
    let authorities = call.ask(requests::authorities()).await?;
    let authority = signing_fingerprint(&authorities)?;
    let token = BearerToken::generate().map_err(|error| failed(&error))?;
    let (id, digest) = (token.id, token.digest());
    let lifetime_ms = expires_in_s.saturating_mul(1000);
    let change = AuthorityChange::AddJoinToken { id, digest, lifetime_ms };
    call.ask(requests::change_authorities(change)).await?.map_err(denied)?;
    let token = JoinTokenText { token, authority }.reveal();
    let issued = api::IssuedJoinToken { id: id.to_string(), token, expires_in_s };
    let mut response = json(&issued);
    *response.status_mut() = StatusCode::CREATED;
    // The answer contains a secret and must not be cached.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

pub(super) async fn show<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    Ok(json(&shown(&*call.ask(requests::authorities()).await?)))
}

/// Generates a second CA, which nodes trust from then on.
pub(super) async fn add<S: Store>(call: Call<'_, S>) -> Result<Response, Problem> {
    // A cluster without a CA uses `--tls-dir`, and its nodes would not renew their certificates.
    signing_fingerprint(&*call.ask(requests::authorities()).await?)?;
    let name = call.context.tls.as_ref().map_or("", |tls| &tls.host().cluster_name);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (authority, key) = CertificateAuthority::new(name, now).map_err(|error| failed(&error))?;
    let certificate = authority.certificate().as_bytes().to_vec();
    change(call, AuthorityChange::Add { certificate, key: PrivateKey(key.into_bytes()) }).await
}

pub(super) async fn sign_by<S: Store>(call: Call<'_, S>, raw_id: &str) -> Result<Response, Problem> {
    let id = AuthorityId(number("an authority", raw_id)?);
    change(call, AuthorityChange::Use { id }).await
}

pub(super) async fn remove<S: Store>(call: Call<'_, S>, raw_id: &str) -> Result<Response, Problem> {
    let id = AuthorityId(number("an authority", raw_id)?);
    change(call, AuthorityChange::Remove { id }).await
}

async fn change<S: Store>(call: Call<'_, S>, change: AuthorityChange) -> Result<Response, Problem> {
    call.ask(requests::change_authorities(change)).await?.map_err(denied)?;
    show(call).await
}

fn signing_fingerprint(authorities: &Authorities) -> Result<[u8; 32], Problem> {
    let (_, authority) = authorities.signing().ok_or_else(|| denied(Denial::NoAuthority))?;
    let fingerprint = fingerprint_of(&authority.certificate);
    fingerprint
        .ok_or_else(|| Problem::new(ProblemKind::Internal, "the certificate of the authority is damaged"))
}

fn shown(authorities: &Authorities) -> api::Authorities {
    let signing = authorities.signing().map(|(id, _)| id);
    let rows = authorities.rows().iter().map(|(&id, row)| api::Authority {
        id: id.0,
        signs: signing == Some(id),
        fingerprint: fingerprint_of(&row.certificate).map_or_else(String::new, |digest| hex::encode(&digest)),
        added_unix_ms: row.added.0,
        certificate: String::from_utf8_lossy(&row.certificate).into_owned(),
    });
    api::Authorities { authorities: rows.collect() }
}

fn failed(error: &dyn std::error::Error) -> Problem {
    tracing::error!(error = %error, "no key was made");
    Problem::new(ProblemKind::Internal, "this node cannot make a key; nothing was changed")
}

fn json(answer: &impl serde::Serialize) -> Response {
    response::json(serde_json::to_vec(answer).expect("invariant: texts, numbers and lists are JSON"))
}
