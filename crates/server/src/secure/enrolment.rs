//! Enrolment: a joining host sends a join token and a certificate signing request (CSR) to a
//! member, which signs its first certificate. Contains both sides.
//!
//! The member uses only the public key of the CSR. It sets the other fields itself: the URI with
//! the cluster name and the host's uuid, and DNS names and IP addresses that it has checked. The
//! join token is checked and marked as used when its log entry is applied.

use std::fs;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidelock_core::auth::Caller;
use tidelock_core::certified_host::CertifiedHost;
use tidelock_core::command::{AuthorityChange, Denial, Refusal};
use tidelock_core::types::UnixMillis;
use uuid::Uuid;

use super::files::CertificateDirectory;
use super::{NodeCertificateError, names};
use crate::config::{HOST_BYTES_MAX, Settings};
use crate::identity_store::IdentityStore;
use crate::requests::{self, NoAnswer};
use crate::store::Store;
use crate::tls::issue::{CertificateAuthority, HOST_DAYS, Validity, signing_request};
use crate::token::JoinTokenText;
use crate::transport::enrol::{EnrolHandler, EnrolRefusal, EnrolRequest, Enrolment, ask};
use crate::worker::Worker;

/// How long a member waits until an unknown join token appears: it may have been created a moment
/// ago, and this node may not have applied that entry yet.
const UNKNOWN_TOKEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Poll interval meanwhile.
const UNKNOWN_TOKEN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Requests a certificate from the members, and writes it to the data directory.
pub(super) async fn enrol(
    settings: &Settings,
    files: &CertificateDirectory,
) -> Result<(), NodeCertificateError> {
    let path = settings.join_token_file.clone().ok_or(NodeCertificateError::NoJoinToken)?;
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) => return Err(NodeCertificateError::JoinTokenFile { path, error }),
    };
    let token = JoinTokenText::parse(text.trim_ascii());
    let token = token.map_err(|error| NodeCertificateError::JoinToken { path, error })?;
    files.begin()?;
    let known = files.host()?.and_then(|text| Uuid::try_parse(text.trim()).ok());
    let host = known.unwrap_or_else(Uuid::new_v4);
    // Written before the request is sent: once a member has accepted the token, it is valid for
    // this uuid only.
    files.write_host(&host.to_string())?;
    let (key, signing_request) = signing_request()?;
    let request = EnrolRequest { token, host, names: names(settings), signing_request };
    let Enrolment { certificate, authorities } = ask(&settings.join(), &request).await?;
    files.write_all((&certificate, key.as_bytes()), &authorities)
}

/// The member's side: handles enrolment requests.
pub fn enrolment_handler(worker: &Worker, store: &Rc<IdentityStore>) -> EnrolHandler {
    let (worker, store) = (worker.clone(), store.clone());
    Rc::new(move |request| {
        let (worker, store) = (worker.clone(), store.clone());
        Box::pin(async move {
            check(&request)?;
            check_token(&worker, &request).await?;
            let cluster_name = store.identity().cluster_name.clone();
            admit(&worker.for_caller(Caller::Node), &request).await?;
            sign(&worker, request, cluster_name)
        })
    })
}

/// Checks the names and the uuid that the certificate would contain.
fn check(request: &EnrolRequest) -> Result<(), EnrolRefusal> {
    let refused = |reason: &str| Err(EnrolRefusal::Refused(reason.to_owned()));
    if request.host.is_nil() {
        return refused("the host has no uuid");
    }
    if request.names.is_empty() {
        return refused("the host has no names");
    }
    match request.names.iter().find(|name| !is_name(name)) {
        Some(name) => {
            let shown: String = name.chars().take(HOST_BYTES_MAX).collect();
            refused(&format!("{shown:?} is not the name or the IP address of a host"))
        }
        None => Ok(()),
    }
}

/// Whether the text is an IP address or a host name. Wildcards are rejected, because they match
/// other hosts.
fn is_name(text: &str) -> bool {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return !ip.is_unspecified();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Rejects an invalid join token before anything is proposed, so that unauthenticated callers
/// cannot grow the log. Applying the entry checks the token again, including its expiry.
async fn check_token(worker: &Worker, request: &EnrolRequest) -> Result<(), EnrolRefusal> {
    let token = &request.token.token;
    let (digest, begun) = (token.digest(), Instant::now());
    loop {
        let authorities = worker.authorities();
        match authorities.check_join_token((token.id, &digest), request.host, UnixMillis(0)) {
            Ok(()) => return Ok(()),
            Err(Denial::JoinTokenUnknown | Denial::NoAuthority)
                if begun.elapsed() < UNKNOWN_TOKEN_TIMEOUT =>
            {
                tokio::time::sleep(UNKNOWN_TOKEN_POLL_INTERVAL).await;
            }
            Err(denial) => return Err(EnrolRefusal::Refused(denial.to_string())),
        }
    }
}

/// Proposes that the token is marked as used by the host.
async fn admit(node: &Worker, request: &EnrolRequest) -> Result<(), EnrolRefusal> {
    let token = &request.token.token;
    let change = AuthorityChange::Enrol { id: token.id, digest: token.digest(), host: request.host };
    match node.ask(requests::change_authorities(change)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(denial)) => Err(EnrolRefusal::Refused(denial.to_string())),
        Err(NoAnswer::Refused(Refusal::Invalid(reason))) => Err(EnrolRefusal::Refused(reason.into_owned())),
        Err(_) => Err(EnrolRefusal::NoLeader),
    }
}

fn sign(worker: &Worker, request: EnrolRequest, cluster_name: String) -> Result<Enrolment, EnrolRefusal> {
    let authorities = worker.authorities();
    // This node may not have applied the entry that adds the CA yet.
    let (_, authority) = authorities.signing().ok_or(EnrolRefusal::NoLeader)?;
    let refused =
        |error: rcgen::Error| EnrolRefusal::Refused(format!("the certificate cannot be made: {error}"));
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let signer =
        CertificateAuthority::load(text(&authority.certificate), &text(&authority.key.0)).map_err(refused)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let EnrolRequest { host, names, signing_request, .. } = request;
    let host = CertifiedHost { cluster_name, host };
    let validity = Validity::of_days(now, HOST_DAYS);
    let certificate = signer.sign(&signing_request, &names, &host, validity).map_err(refused)?;
    Ok(Enrolment { certificate: certificate.into_bytes(), authorities: authorities.bundle() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certified_host;
    use crate::token::BearerToken;

    fn request(names: &[&str]) -> EnrolRequest {
        let token = BearerToken::generate().unwrap();
        EnrolRequest {
            token: JoinTokenText { token, authority: [0; 32] },
            host: Uuid::from_u128(7),
            names: names.iter().map(ToString::to_string).collect(),
            signing_request: signing_request().unwrap().1,
        }
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(check(&request(&["kv-1.example", "10.0.0.1", "::1"])), Ok(()));
        let long = "a".repeat(HOST_BYTES_MAX + 1);
        for name in ["", "*", "*.example", "a b", "a\0b", "tidelock://a/host/b", "0.0.0.0", "ä", &long] {
            assert!(matches!(check(&request(&["a", name])), Err(EnrolRefusal::Refused(_))), "{name}");
        }
        assert!(check(&request(&[])).is_err());
        assert!(check(&EnrolRequest { host: Uuid::nil(), ..request(&["a"]) }).is_err());
    }

    #[test]
    fn nothing_of_a_signing_request_but_its_key_is_signed() {
        let (authority, _) = CertificateAuthority::new("blue", 0).unwrap();
        let host = CertifiedHost { cluster_name: "blue".to_owned(), host: Uuid::from_u128(7) };
        let key = rcgen::KeyPair::generate().unwrap();
        let mut claimed = rcgen::CertificateParams::new(vec!["other.example".to_owned()]).unwrap();
        claimed.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let name = format!("tidelock://blue/host/{}", Uuid::from_u128(8));
        claimed.subject_alt_names.push(rcgen::SanType::URI(name.try_into().unwrap()));
        let signing_request = claimed.serialize_request(&key).unwrap();
        let (names, validity) = (["a.example".to_owned()], Validity::of_days(0, 1));
        let signed = authority.sign(signing_request.der(), &names, &host, validity).unwrap();
        assert_eq!(certified_host(signed.as_bytes()).unwrap(), host);
        let parsed = x509_parser::pem::parse_x509_pem(signed.as_bytes()).unwrap().1;
        let certificate = parsed.parse_x509().unwrap();
        assert!(!certificate.is_ca());
        let shown = format!("{:?}", certificate.subject_alternative_name());
        assert!(shown.contains("a.example") && !shown.contains("other.example"), "{shown}");
        let mut forged = signing_request.der().to_vec();
        *forged.last_mut().unwrap() ^= 1;
        assert!(authority.sign(&forged, &names, &host, validity).is_err());
    }
}
