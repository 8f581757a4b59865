//! Changes of roles, principals and tokens, and what a caller may do.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::auth::{Caller, Demand, Grants, Scope, Verb};
use crate::codec::Decoder;

/// The rows of a cluster, changed by one command after another.
#[derive(Default)]
struct Rows {
    access: Access,
    index: u64,
    now: u64,
}

impl Rows {
    fn make(&mut self, change: AccessChange) -> WriteReply {
        self.make_if(None, change)
    }

    fn make_if(&mut self, seen: Option<LogIndex>, change: AccessChange) -> WriteReply {
        self.index += 1;
        let revision = LogIndex(self.index);
        match self.access.changed(revision, AccessWrite { at: UnixMillis(self.now), seen, change }) {
            Ok(access) => {
                self.access = access;
                WriteReply::AccessChanged { revision }
            }
            Err(reply) => reply,
        }
    }

    fn denial(&mut self, change: AccessChange) -> Option<Denial> {
        match self.make(change) {
            WriteReply::Denied(denial) => Some(denial),
            _ => None,
        }
    }

    /// A cluster whose administrator has token 1.
    fn administered() -> Rows {
        let mut rows = Rows::default();
        assert_eq!(rows.denial(principal("root", &["admin"])), None);
        assert_eq!(rows.denial(token(1, "root", None)), None);
        rows
    }

    fn covers(&self, name: &str, verb: Verb, scope: Scope<'_>) -> bool {
        let caller = Caller::Principal(name.into());
        self.access.covers(&caller, &Demand { verb, scope }, Some(UnixMillis(self.now)))
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn role(name: &str, grants: &[&str]) -> AccessChange {
    let grants: Grants = grants.iter().map(|grant| grant.parse().expect("a grant")).collect();
    AccessChange::PutRole { name: name.to_string(), role: Role { grants, ..Role::default() } }
}

fn principal(name: &str, roles: &[&str]) -> AccessChange {
    let principal = Principal { roles: names(roles), certificate_names: BTreeSet::new() };
    AccessChange::PutPrincipal { name: name.to_string(), principal }
}

fn certified(name: &str, certificate_name: &str) -> AccessChange {
    let principal = Principal { roles: names(&["admin"]), certificate_names: names(&[certificate_name]) };
    AccessChange::PutPrincipal { name: name.to_string(), principal }
}

fn secret(id: u64) -> SecretDigest {
    SecretDigest::of(&id.to_le_bytes())
}

fn token(id: u64, principal: &str, lifetime_ms: Option<u64>) -> AccessChange {
    let (principal, digest) = (principal.to_string(), secret(id));
    AccessChange::AddToken { id: TokenId(id), principal, digest, lifetime_ms }
}

#[test]
fn rows_refer_to_rows_that_exist() {
    let mut rows = Rows::default();
    assert_eq!(rows.denial(principal("web", &["reader"])), Some(Denial::UnknownRole));
    assert_eq!(rows.denial(token(1, "web", None)), Some(Denial::UnknownPrincipal));
    assert_eq!(rows.denial(role("reader", &["read keys:app/"])), None);
    assert_eq!(rows.denial(principal("web", &["reader"])), None);
    assert_eq!(rows.denial(token(1, "web", None)), None);
    let delete = |name: &str| AccessChange::DeleteRole { name: name.to_string() };
    assert_eq!(rows.denial(delete("reader")), Some(Denial::RoleInUse));
    assert_eq!(rows.denial(delete("other")), Some(Denial::UnknownRole));
    assert_eq!(rows.denial(delete("admin")), Some(Denial::BuiltInRole));
    assert_eq!(rows.denial(role("admin", &[])), Some(Denial::BuiltInRole));
    assert_eq!(rows.denial(AccessChange::DeletePrincipal { name: "web".to_string() }), None);
    assert_eq!(rows.access.tokens().len(), 0, "they go with their principal");
    assert_eq!(rows.denial(delete("reader")), None);
    assert_eq!(rows.denial(AccessChange::DeleteToken { id: TokenId(1) }), Some(Denial::UnknownToken));
}

#[test]
fn a_repeated_change_is_harmless_and_a_condition_is_on_all_rows() {
    let mut rows = Rows::administered();
    let revision = rows.access.revision();
    assert_eq!(rows.make(token(1, "root", None)), WriteReply::AccessChanged { revision });
    let other = AccessChange::AddToken {
        id: TokenId(1),
        principal: "root".to_string(),
        digest: secret(2),
        lifetime_ms: None,
    };
    assert_eq!(rows.denial(other), Some(Denial::TokenExists));
    let stale = rows.make_if(Some(LogIndex(1)), role("a", &[]));
    assert_eq!(stale, WriteReply::ConditionFailed { current: Version(revision.0) });
    let next = LogIndex(rows.index + 1);
    assert_eq!(rows.make_if(Some(revision), role("a", &[])), WriteReply::AccessChanged { revision: next });
}

#[test]
fn nobody_is_locked_out() {
    let mut rows = Rows::default();
    assert_eq!(rows.denial(AccessChange::Require(true)), Some(Denial::NoAdministrator));
    assert_eq!(rows.denial(principal("root", &["admin"])), None);
    assert_eq!(rows.denial(AccessChange::Require(true)), Some(Denial::NoAdministrator), "no token");
    assert_eq!(rows.denial(token(1, "root", Some(10))), None);
    assert_eq!(rows.denial(AccessChange::Require(true)), None);
    for change in [
        AccessChange::DeleteToken { id: TokenId(1) },
        AccessChange::DeletePrincipal { name: "root".to_string() },
        principal("root", &[]),
    ] {
        assert_eq!(rows.denial(change.clone()), Some(Denial::LastAdministrator), "{change:?}");
    }
    assert_eq!(rows.denial(certified("ops", "spiffe://a/ops")), None);
    let delete = AccessChange::DeleteToken { id: TokenId(1) };
    assert_eq!(rows.denial(delete.clone()), Some(Denial::LastAdministrator), "a certificate does not count");
    assert_eq!(rows.denial(token(2, "ops", None)), None);
    assert_eq!(rows.denial(delete), None);
    assert_eq!(rows.denial(principal("ops", &[])), Some(Denial::LastAdministrator));
    assert_eq!(rows.denial(AccessChange::Require(false)), None);
    assert_eq!(rows.denial(principal("ops", &[])), None);
}

#[test]
fn an_expired_administrator_does_not_count() {
    let mut rows = Rows::default();
    rows.make(principal("root", &["admin"]));
    rows.make(token(1, "root", Some(10)));
    rows.now = 10;
    assert_eq!(rows.denial(AccessChange::Require(true)), Some(Denial::NoAdministrator));
    rows.make(token(2, "root", Some(10)));
    assert_eq!(rows.denial(AccessChange::Require(true)), None);
    rows.now = 20;
    // Only a node can still make changes, and nothing is lost by them.
    assert_eq!(rows.denial(AccessChange::DeleteToken { id: TokenId(2) }), None);
}

#[test]
fn a_rotated_token_has_two_secrets() {
    let mut rows = Rows::administered();
    let rotate = |digest| AccessChange::RotateToken { id: TokenId(1), digest };
    let accepted = |rows: &Rows| -> Vec<u64> {
        let authenticates = |secret_of: &u64| {
            rows.access.authenticate(TokenId(1), &secret(*secret_of), UnixMillis(0)) == Some("root")
        };
        (1..=4).filter(authenticates).collect()
    };
    assert_eq!(accepted(&rows), [1]);
    rows.make(rotate(secret(2)));
    assert_eq!(accepted(&rows), [1, 2]);
    rows.make(rotate(secret(2)));
    assert_eq!(accepted(&rows), [1, 2], "repeated");
    rows.make(rotate(secret(3)));
    assert_eq!(accepted(&rows), [2, 3]);
    let unknown = AccessChange::RotateToken { id: TokenId(9), digest: secret(9) };
    assert_eq!(rows.denial(unknown), Some(Denial::UnknownToken));
}

#[test]
fn tokens_are_accepted_until_they_expire() {
    let mut rows = Rows::administered();
    rows.make(token(2, "root", Some(10)));
    let is_accepted =
        |id, digest, now| rows.access.authenticate(TokenId(id), &digest, UnixMillis(now)).is_some();
    assert!(is_accepted(2, secret(2), 9));
    assert!(!is_accepted(2, secret(2), 10));
    assert!(!is_accepted(2, secret(1), 9), "the secret of another token");
    assert!(!is_accepted(3, secret(3), 9));
}

#[test]
fn a_principal_has_the_grants_of_its_roles() {
    let mut rows = Rows::administered();
    rows.make(role("reader", &["read keys:app/"]));
    rows.make(role("watcher", &["watch keys:app/"]));
    rows.make(principal("web", &["reader"]));
    rows.make(principal("feed", &["reader", "watcher"]));
    rows.make(principal("blind", &["watcher"]));
    rows.make(principal("none", &[]));
    let key = Scope::Key(b"app/1");
    assert!(rows.covers("web", Verb::Read, key));
    assert!(!rows.covers("web", Verb::Write, key));
    assert!(!rows.covers("web", Verb::Read, Scope::Key(b"b")));
    assert!(!rows.covers("web", Verb::Watch, key));
    assert!(rows.covers("feed", Verb::Watch, key), "two roles together");
    assert!(!rows.covers("blind", Verb::Watch, key), "a watch shows what a read shows");
    assert!(!rows.covers("none", Verb::Read, key));
    assert!(!rows.covers("unknown", Verb::Read, key));
    for scope in
        [key, Scope::Keys { prefix: b"" }, Scope::Namespace("web"), Scope::Namespaces { prefix: b"" }]
    {
        assert!(rows.covers("root", Verb::Read, scope) && rows.covers("root", Verb::Write, scope));
    }
    assert!(rows.covers("root", Verb::Administer, Scope::Cluster));
    assert!(!rows.covers("root", Verb::Internal, Scope::Cluster), "only nodes");
    let internal = Demand { verb: Verb::Internal, scope: Scope::Cluster };
    assert!(rows.access.covers(&Caller::Node, &internal, None));
    assert!(!rows.access.covers(&Caller::Anonymous, &internal, None));
}

#[test]
fn a_role_that_has_ended_allows_nothing() {
    let mut rows = Rows::administered();
    let ending = Role { ends: Some(UnixMillis(10)), ..Role::admin() };
    rows.make(AccessChange::PutRole { name: "guest".to_string(), role: ending });
    rows.make(principal("web", &["guest"]));
    let demand = Demand { verb: Verb::Read, scope: Scope::Key(b"a") };
    let caller = Caller::Principal("web".into());
    let covers = |now| rows.access.covers(&caller, &demand, now);
    assert!(covers(Some(UnixMillis(9))));
    assert!(!covers(Some(UnixMillis(10))));
    assert!(!covers(None), "the time is not known");
}

#[test]
fn a_certificate_name_proves_one_principal() {
    let mut rows = Rows::default();
    assert_eq!(rows.denial(certified("a", "spiffe://a/b")), None);
    assert_eq!(rows.denial(certified("b", "spiffe://a/b")), Some(Denial::CertificateNameTaken));
    assert_eq!(rows.denial(certified("a", "spiffe://a/b")), None, "its own");
    assert_eq!(rows.access.principal_of_certificate("spiffe://a/b"), Some("a"));
    assert_eq!(rows.access.principal_of_certificate("spiffe://a/"), None);
}

#[test]
fn numbers_of_rows_are_bounded() {
    let mut rows = Rows::default();
    rows.access.roles = (0..limits::ROLES_MAX).map(|n| (n.to_string(), Role::default().into())).collect();
    let others = 0..limits::PRINCIPALS_MAX;
    rows.access.principals = others.map(|n| (n.to_string(), Principal::default())).collect();
    let row =
        Token { principal: "0".to_string(), digests: Vec::new(), created: UnixMillis(0), expires: None };
    rows.access.tokens = (0..limits::TOKENS_MAX as u64).map(|n| (TokenId(n), row.clone())).collect();
    assert_eq!(rows.denial(role("new", &[])), Some(Denial::TooManyRoles));
    assert_eq!(rows.denial(role("1", &["read keys:"])), None, "it exists");
    assert_eq!(rows.denial(principal("new", &[])), Some(Denial::TooManyPrincipals));
    assert_eq!(rows.denial(token(u64::MAX, "0", None)), Some(Denial::TooManyTokens));
}

#[test]
fn rows_round_trip() {
    let mut rows = Rows::administered();
    rows.make(role("reader", &["read keys:app/", "read config:web*"]));
    rows.make(certified("ops", "spiffe://a/b"));
    rows.make(token(2, "ops", Some(300)));
    rows.make(AccessChange::RotateToken { id: TokenId(2), digest: secret(3) });
    rows.make(AccessChange::Require(true));
    let mut encoded = Vec::new();
    rows.access.encode(&mut encoded);
    let mut decoder = Decoder::new(&encoded);
    assert_eq!(Access::decode(&mut decoder), Ok(rows.access));
    assert!(decoder.is_empty());
}
