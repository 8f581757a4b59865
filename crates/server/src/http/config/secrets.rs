//! Secrets in requests and answers: sealing what clients send, and revealing it to those who may
//! see it.
//!
//! Owns which answers show secrets: those of a pair, a container and a download with `reveal=true`,
//! to principals with the grant `reveal`. Every other answer shows the mask, because the core
//! writes it into all JSON and `formats` into all files. Revealed answers are never cached.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use tidelock_core::auth::{Caller, Demand, Scope, Verb};
use tidelock_core::command::Refusal;
use tidelock_core::command::config::{
    Change, ConfigError, ConfigOperation, ConfigPreview, Content, Export, Found, Item, Name, Pair,
    SECRET_MASK, Value,
};
use tidelock_core::limits;

use super::super::response::{self, Response};
use super::super::service::Call;
use super::error::ApiError;
use super::queries;
use super::show;
use super::writes::{WriteOptions, submit_and_show};
use super::{ask, measured_export, offload};
use crate::audit_log::{AuditEvent, AuditEventKind};
use crate::protocol::ListenerProtocol;
use crate::secrets::{Keyring, PlainSecret, SecretPair};
use crate::store::Store;

/// How often a rotation reads again because the namespace has changed.
const RETRIES_MAX: usize = 8;

/// The keys of this node, or what to do without them.
fn required(keyring: Option<&Keyring>) -> Result<&Keyring, ApiError> {
    keyring.ok_or_else(|| {
        ApiError::secret_keys(
            "this node has no keys for secrets; start it with --secret-key-file, or ask a node that has them",
        )
    })
}

/// Seals the secrets of one namespace that a client sends.
#[derive(Clone)]
pub(super) struct Sealer {
    keyring: Option<Arc<Keyring>>,
    namespace: Name,
}

impl Sealer {
    pub fn of<S: Store>(call: &Call<'_, S>, namespace: &Name) -> Sealer {
        Sealer { keyring: call.context.secret_keys.keyring(), namespace: namespace.clone() }
    }

    /// A sealer without keys, which refuses secrets.
    pub fn without_keys() -> Sealer {
        Sealer { keyring: None, namespace: Name::new("ns").expect("a name") }
    }

    #[cfg(test)]
    pub fn with_keys(keyring: Keyring) -> Sealer {
        Sealer { keyring: Some(keyring.into()), ..Sealer::without_keys() }
    }

    /// The change that gives a pair a secret. The mask, as answers show it, keeps the present one.
    pub fn change(&self, key: Arc<str>, secret: &PlainSecret, retype: bool) -> Result<Change, ApiError> {
        if secret.expose() == SECRET_MASK {
            return Ok(Change::KeepSecret { key });
        }
        let pair = SecretPair { namespace: &self.namespace, key: &key };
        let sealed = required(self.keyring.as_deref())?.seal(pair, secret);
        Ok(Change::PutPair { key, value: Value::Secret(sealed), retype })
    }
}

/// Checks the length of a secret.
pub(super) fn plain(text: &str) -> Result<PlainSecret, ApiError> {
    let max = limits::CONFIG_SECRET_BYTES_MAX;
    if text.len() > max {
        return Err(ApiError::value(format!("a secret is longer than {max} bytes")));
    }
    Ok(PlainSecret::new(text.to_owned()))
}

/// What an answer says of the secrets that a change keeps.
pub(super) fn notes(changes: &[Change]) -> Vec<String> {
    let kept = changes.iter().filter_map(|change| match change {
        Change::KeepSecret { key } => Some(key),
        _ => None,
    });
    kept.map(|key| format!("pair {key:?}: {SECRET_MASK} keeps the secret that it holds")).collect()
}

/// Notes on what a previewed change does to secrets: pairs that hold a secret and will hold a
/// readable value, and secrets that need a key which this node does not have. A rollback can do
/// both, because it restores each pair as it was.
pub(super) fn effects(preview: &ConfigPreview, keyring: Option<&Keyring>) -> Vec<String> {
    let has_key = |id: &str| keyring.is_some_and(|keyring| keyring.ids().any(|known| known == id));
    let notes = preview.changes.iter().filter_map(|change| {
        let Item::Pair(key) = &change.item else { return None };
        let (before, after) = (change.before.as_ref().and_then(value), value(change.after.as_ref()?)?);
        match (before, after) {
            (_, Value::Secret(sealed)) if before != Some(after) && !has_key(sealed.key_id()) => {
                Some(format!(
                    "pair {key:?}: its secret needs the key {:?}, which this node does not have",
                    sealed.key_id()
                ))
            }
            (_, Value::Secret(_)) => None,
            (Some(Value::Secret(_)), _) => Some(format!(
                "pair {key:?}: no longer a secret; everyone with access to the namespace can read its value"
            )),
            _ => None,
        }
    });
    notes.collect()
}

fn value(content: &Content) -> Option<&Value> {
    match content {
        Content::Pair(pair) => Some(&pair.value),
        Content::Container(_) => None,
    }
}

/// A request to reveal the secrets of a namespace, which its client may do.
pub(super) struct Reveal {
    keyring: Option<Arc<Keyring>>,
    namespace: Name,
}

impl Reveal {
    /// Checks the permission if the request has `reveal=true`; `None` without it.
    pub fn of<S: Store>(call: &Call<'_, S>, namespace: &Name) -> Result<Option<Reveal>, ApiError> {
        if !call.parameters().flag("reveal")? {
            return Ok(None);
        }
        check_permission(call, namespace)?;
        let keyring = call.context.secret_keys.keyring();
        Ok(Some(Reveal { keyring, namespace: namespace.clone() }))
    }

    /// A pair as an answer shows it, with its secret.
    fn shown(&self, key: &str, pair: &Pair) -> Result<tidelock_api::config::Pair, ApiError> {
        let mut shown = show::pair(&self.namespace, key, pair);
        if let Some(secret) = self.opened(key, pair)? {
            shown.value = show::value(Some(&Value::text(secret.expose())));
        }
        Ok(shown)
    }

    /// The secret of a pair; `None` if it holds none.
    fn opened(&self, key: &str, pair: &Pair) -> Result<Option<PlainSecret>, ApiError> {
        let Value::Secret(sealed) = &*pair.value else { return Ok(None) };
        let namespace = pair.source.as_deref().unwrap_or(&self.namespace);
        let place = SecretPair { namespace, key };
        Ok(Some(required(self.keyring.as_deref())?.open(place, sealed)?))
    }

    /// The answer of a pair.
    pub fn pair<S: Store>(&self, call: &Call<'_, S>, key: &str, pair: &Pair) -> Result<Response, ApiError> {
        check_source(call, pair)?;
        let shown = self.shown(key, pair)?;
        if matches!(*pair.value, Value::Secret(_)) {
            record(call, &format!("secret of pair {}/{key}", self.namespace));
        }
        Ok(uncached(show::respond(shown)))
    }

    /// The answer of a container.
    pub async fn container<S: Store>(
        self,
        call: &Call<'_, S>,
        key: &Arc<str>,
        found: Found,
    ) -> Result<Response, ApiError> {
        found.pairs.values().try_for_each(|pair| check_source(call, pair))?;
        if has_secrets(&found) {
            record(call, &format!("secrets of container {}/{key}", self.namespace));
        }
        let key = key.clone();
        let body = offload(call, found.container.document_bytes, move || {
            let pairs = found.pairs.iter().map(|(key, pair)| Ok((key, self.shown(key, pair)?)));
            let pairs = pairs.collect::<Result<BTreeMap<_, _>, ApiError>>()?;
            let pair = |key: &Arc<str>| pairs.get(key).cloned();
            Ok(show::success(show::container_of(&self.namespace, &key, &found.container, &pair)))
        });
        Ok(uncached(response::typed(StatusCode::OK, "application/json", body.await?)))
    }

    /// A container for a file: its secrets have become texts.
    pub fn document<S: Store>(
        &self,
        call: &Call<'_, S>,
        key: &str,
        mut found: Found,
    ) -> Result<Found, ApiError> {
        found.pairs.values().try_for_each(|pair| check_source(call, pair))?;
        if has_secrets(&found) {
            record(call, &format!("secrets of container {}/{key}", self.namespace));
        }
        for (key, pair) in &mut found.pairs {
            if let Some(secret) = self.opened(key, pair)? {
                let value = Value::text(secret.expose());
                *pair = Arc::new(Pair { value: value.into(), ..Pair::clone(pair) });
            }
        }
        Ok(found)
    }
}

fn has_secrets(found: &Found) -> bool {
    found.pairs.values().any(|pair| matches!(*pair.value, Value::Secret(_)))
}

/// Forbids caches to keep an answer.
pub(super) fn uncached(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Checks that the client may see the secrets of a namespace. The core checks everything else that
/// the request needs.
fn check_permission<S: Store>(call: &Call<'_, S>, namespace: &Name) -> Result<(), ApiError> {
    let access = call.store().access();
    if !access.state().is_required() {
        return Ok(());
    }
    let demand = Demand { verb: Verb::Reveal, scope: Scope::Namespace(namespace.as_str()) };
    if access.rows().covers(&call.identity().caller(), &demand, Some(call.context.clock.now())) {
        return Ok(());
    }
    Err(Refusal::Forbidden(demand.to_string().into()).into())
}

/// Checks that the client may see an inherited secret where it is set.
fn check_source<S: Store>(call: &Call<'_, S>, pair: &Pair) -> Result<(), ApiError> {
    match (&*pair.value, &pair.source) {
        (Value::Secret(_), Some(source)) => check_permission(call, source),
        _ => Ok(()),
    }
}

/// Records in the audit log that secrets were shown.
fn record<S: Store>(call: &Call<'_, S>, detail: &str) {
    let principal = match call.identity().caller() {
        Caller::Principal(name) => Some(name.to_string()),
        Caller::Anonymous | Caller::Node => None,
    };
    call.context.audit_log.record(AuditEvent {
        kind: AuditEventKind::Revealed,
        protocol: Some(ListenerProtocol::Http),
        address: call.connection().client_address().map(|address| address.ip()),
        principal,
        detail: detail.to_owned(),
    });
}

/// `POST /namespaces/:ns/secrets/rotate`: seals every secret of a namespace with the first key of
/// this node's file, in one revision. Secrets that have that key already stay.
pub(super) async fn rotate<S: Store>(call: Call<'_, S>, namespace: Name) -> Result<Response, ApiError> {
    check_permission(&call, &namespace)?;
    let mut retries = 0;
    loop {
        let keyring = call.context.secret_keys.keyring();
        let export = ask(&call, &namespace, queries::export(None)).await?;
        let mut options = WriteOptions::of(&call)?;
        let (revision, is_conditional) = (export.revision, options.expected.is_some());
        if options.expected.is_some_and(|expected| expected != revision) {
            return Err(ConfigError::RevisionMismatch { current: revision }.into());
        }
        let bytes = measured_export(&export);
        let name = namespace.clone();
        let rotation = offload(&call, bytes, move || Rotation::of(keyring, &name, &export)).await?;
        options.expected = Some(revision);
        options.notes.push(rotation.note());
        let operation = ConfigOperation::Publish { changes: rotation.changes, create: false };
        match submit_and_show(&call, namespace.clone(), options, operation).await {
            Err(error) if error.is_revision_mismatch() && !is_conditional && retries < RETRIES_MAX => {
                retries += 1;
            }
            result => return result,
        }
    }
}

/// What a rotation does with the secrets of a namespace.
struct Rotation {
    /// Number of secrets that have the sealing key already.
    current: usize,
    /// New seals of the others.
    changes: Vec<Change>,
}

impl Rotation {
    fn of(keyring: Option<Arc<Keyring>>, namespace: &Name, export: &Export) -> Result<Rotation, ApiError> {
        let mut rotation = Rotation { current: 0, changes: Vec::new() };
        for (key, pair) in &export.pairs {
            let Value::Secret(sealed) = &*pair.value else { continue };
            // Rotated where it is set.
            if pair.source.is_some() {
                continue;
            }
            let keyring = required(keyring.as_deref())?;
            if sealed.key_id() == keyring.sealing_id() {
                rotation.current += 1;
                continue;
            }
            let place = SecretPair { namespace, key };
            let value = Value::Secret(keyring.seal(place, &keyring.open(place, sealed)?));
            rotation.changes.push(Change::PutPair { key: key.clone(), value, retype: false });
        }
        Ok(rotation)
    }

    fn note(&self) -> String {
        let Rotation { current, changes } = self;
        format!(
            "secrets sealed again: {}; secrets that have the newest key already: {current}",
            changes.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidelock_core::command::config::{ChangeView, Policy};

    use super::*;

    const KEYS: [&str; 2] = [
        "k1:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n",
        "k2:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n",
    ];

    fn keyring(lines: &[&str]) -> Arc<Keyring> {
        Arc::new(Keyring::parse(&lines.concat()).expect("keys"))
    }

    fn pair(value: Value) -> Arc<Pair> {
        Arc::new(Pair { value: value.into(), schema: None, revision: 1, source: None })
    }

    fn export(pairs: BTreeMap<Arc<str>, Value>) -> Export {
        let pairs = pairs.into_iter().map(|(key, value)| (key, pair(value))).collect();
        Export { revision: 1, policy: Policy::default(), pairs, containers: BTreeMap::new() }
    }

    #[test]
    fn a_rotation_seals_again_what_has_another_key() {
        let namespace = Name::new("ns").expect("a name");
        let place = |key| SecretPair { namespace: &namespace, key };
        let secret = PlainSecret::new("horse".to_owned());
        let (old, both) = (keyring(&KEYS[..1]), keyring(&[KEYS[1], KEYS[0]]));
        let held = export(BTreeMap::from([
            ("a".into(), Value::Secret(old.seal(place("a"), &secret))),
            ("b".into(), Value::Secret(both.seal(place("b"), &secret))),
            ("c".into(), Value::text("plain")),
        ]));
        let rotation = Rotation::of(Some(both.clone()), &namespace, &held).expect("it opens");
        assert_eq!(rotation.current, 1);
        let [Change::PutPair { key, value: Value::Secret(sealed), retype: false }] = &rotation.changes[..]
        else {
            panic!("{:?}", rotation.changes);
        };
        assert_eq!((&**key, sealed.key_id()), ("a", "k2"));
        assert_eq!(keyring(&KEYS[1..]).open(place("a"), sealed), Ok(secret));
        let missing = Rotation::of(Some(keyring(&KEYS[1..])), &namespace, &held).map(|_| ()).unwrap_err();
        assert!(format!("{missing:?}").contains("k1"), "{missing:?}");
        assert!(Rotation::of(None, &namespace, &held).is_err(), "without keys");
        assert!(Rotation::of(None, &namespace, &export(BTreeMap::new())).is_ok(), "there is no secret");
    }

    #[test]
    fn a_change_tells_which_secrets_become_readable_or_need_a_missing_key() {
        let namespace = Name::new("ns").expect("a name");
        let place = SecretPair { namespace: &namespace, key: "p" };
        let sealed = |key| Value::Secret(keyring(&[key]).seal(place, &PlainSecret::new("horse".to_owned())));
        let notes = |before: Option<&Value>, after: Option<&Value>| {
            let content = |value: &Value| Content::Pair(pair(value.clone()));
            let (before, after) = (before.map(content), after.map(content));
            let changes = vec![ChangeView { item: Item::Pair("p".into()), before, after }];
            let preview = ConfigPreview {
                revision: 1,
                changed: true,
                changes,
                documents: Vec::new(),
                inherited_by: Vec::new(),
            };
            effects(&preview, Some(&keyring(&KEYS[..1])))
        };
        let (plain, known, unknown) = (Value::text("plain"), sealed(KEYS[0]), sealed(KEYS[1]));
        let readable = notes(Some(&known), Some(&plain));
        assert!(readable[0].contains("no longer a secret"), "{readable:?}");
        for before in [None, Some(&plain), Some(&known)] {
            let closed = notes(before, Some(&unknown));
            assert!(closed[0].contains("k2"), "{closed:?}");
        }
        assert_eq!(notes(Some(&unknown), Some(&unknown)), [""; 0], "its schema has changed");
        assert_eq!(notes(Some(&plain), Some(&known)), [""; 0]);
        assert_eq!(notes(None, Some(&plain)), [""; 0]);
        assert_eq!(notes(Some(&known), None), [""; 0]);
    }
}
