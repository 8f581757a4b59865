//! JSON bodies of the HTTP API: every type of a request, and the answers that nodes read of each
//! other.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_api as api;
use tidelock_core::codec::Decoder;
use tidelock_core::command::Write;
use tidelock_server::http::parsers;

use super::{Target, text, texts};

pub const TARGETS: &[Target] = &[
    Target { name: "api-bodies", run: bodies, seeds: body_seeds },
    Target { name: "api-transactions", run: transactions, seeds: transaction_seeds },
];

type Check = fn(&str);

/// One check for each type.
const CHECKS: &[Check] = &[
    check::<api::atomics::ExchangeRequest>,
    check::<api::atomics::CompareExchangeRequest>,
    check::<api::auth::PutRole>,
    check::<api::auth::PutPrincipal>,
    check::<api::auth::CreateToken>,
    check::<api::authorities::CreateJoinToken>,
    check::<api::cluster::Cluster>,
    check::<api::config::Change>,
    check::<api::config::Content>,
    check::<api::config::ContainerContent>,
    check::<api::config::FieldContent>,
    check::<api::config::PairContent>,
    check::<api::config::PolicyRequest>,
    check::<api::config::Publication>,
    check::<api::config::RollbackRequest>,
    check::<api::config::Terms>,
    check::<api::drafts::ApproveRequest>,
    check::<api::drafts::CanaryRequest>,
    check::<api::drafts::CommentRequest>,
    check::<api::drafts::PublishDraftRequest>,
    check::<api::environments::ParentsRequest>,
    check::<api::environments::PromoteRequest>,
    check::<api::environments::ProtectionRequest>,
    check::<api::leases::GrantLease>,
    check::<api::leases::RenewLeases>,
    check::<api::locks::AcquireLock>,
    check::<api::locks::ReleaseLock>,
    check::<api::shards::AddShardRequest>,
    check::<api::shards::TagChanges>,
    check::<api::snapshots::Snapshots>,
    check::<api::transactions::TransactionRequest>,
];

/// A body that is parsed serializes to a body that is parsed to the same.
fn check<T: Serialize + DeserializeOwned>(body: &str) {
    let Ok(parsed) = serde_json::from_str::<T>(body) else { return };
    let name = std::any::type_name::<T>();
    let written = serde_json::to_string(&parsed).unwrap_or_else(|error| panic!("{name}: {error}"));
    let again: T =
        serde_json::from_str(&written).unwrap_or_else(|error| panic!("{name}: {error}: {written}"));
    assert_eq!(serde_json::to_string(&again).expect("it was serialized before"), written, "{name}");
}

fn bodies(input: &[u8]) {
    let body = text(input);
    CHECKS.iter().for_each(|check| check(body));
}

fn body_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"if":[{"key":"a","ver":0}],"then":[{"op":"put","key":"a","val":"1","ttl":"5s"}],"else":[],"id":"x"}"#,
        r#"{"value":{"a":[1,2.5,null,true]},"datatype":6,"message":"why","author":"ann"}"#,
        r#"{"fields":[{"key":"port","fieldType":1,"value":"p"}],"schema":{"type":"object"}}"#,
        r#"{"changes":[{"pair":"p","value":1},{"container":"c","delete":true}],"expected":3}"#,
        r#"{"grants":["read keys:app/","cluster:read"],"limits":{"requests_per_second":10}}"#,
        r#"{"roles":["admin"],"ttl":"7d"}"#,
        r#"{"tag":"orders","ttl":"10s"}"#,
        r#"{"leases":["{orders}:1f"]}"#,
        r#"{"lease":"{orders}:1f","wait":"5s","val":"me"}"#,
        r#"{"value":7}"#,
        r#"{"expected":7,"desired":8}"#,
        r#"{"placement:member":"3","owner":null}"#,
        r#"{"parents":["base"],"expected":1}"#,
        r#"{"labels":["a"],"share":10}"#,
        r#"{"revision":3}"#,
    ])
}

/// A transaction that is accepted is the same in the log.
fn transactions(input: &[u8]) {
    let Ok(transaction) = parsers::transaction(input) else { return };
    let write = Write::Conditional(Box::new(transaction));
    if write.validate().is_err() {
        return;
    }
    let mut out = Vec::new();
    write.encode(&mut out);
    let bytes = bytes::Bytes::from(out);
    let mut decoder = Decoder::new(&bytes);
    assert_eq!(Write::decode(&mut decoder, &bytes), Ok(write));
    assert!(decoder.is_empty());
}

fn transaction_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"if":[{"key":"a","ver":0}],"then":[{"put":{"key":"a","val":"1","ttl":"5s"}}],"else":[]}"#,
        r#"{"if":[{"key":"{t}a","exists":true},{"key_b64":"e3R9Yg==","val_b64":"/w=="},{"key":"{t}l","fence":3}],
           "then":[{"get":{"key":"{t}a"}},{"delete":{"key":"{t}b"}}],
           "else":[{"put":{"key":"{t}a","val":"","lease":"{t}:1f"}}],"id":"once"}"#,
        r#"{"then":[{"get":{"key":"a"}}]}"#,
    ])
}
