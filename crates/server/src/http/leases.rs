//! `/v1/leases`: granting, renewing and revoking leases, and showing what depends on them.
//!
//! Owns the translation between the core and `tidelock_api::leases`, tags for leases of clients
//! that name none, and spreading a renewal over the shards of its leases. The core decides when a
//! lease ends.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use tidelock_api::leases::{
    GrantLease, GrantedLease, Lease, LeaseKey, LeasePage, ListedLease, RENEWED_MAX, RenewLeases,
    RenewedLease, RenewedLeases,
};
use tidelock_core::command::{
    Item, LeaseId, LeaseReply, LeaseTag, LeaseView, LeaseWrite, Page, Read, Refusal,
};
use tidelock_core::limits;
use tidelock_core::slots::slot_of;
use tidelock_core::types::UnixMillis;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::body::BodyLimit;
use super::problem::{Problem, ProblemKind};
use super::response::{self, Response};
use super::route::Arguments;
use super::service::Call;
use super::{duration, json, list, ttl, uri};
use crate::requests::{self, NoAnswer};
use crate::store::Store;

/// Operations on leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leases {
    Grant,
    List,
    Get,
    Renew,
    Revoke,
}

/// The lease of a key, in answers with its value.
const LEASE: HeaderName = HeaderName::from_static(tidelock_api::LEASE_HEADER);

/// Characters of an id in a message.
const SHOWN_CHARACTERS_MAX: usize = 64;

pub(super) async fn answer<S: Store>(
    call: Call<'_, S>,
    operation: Leases,
    [raw_id, _]: Arguments<'_>,
) -> Result<Response, Problem> {
    match operation {
        Leases::Grant => grant(call).await,
        Leases::List => list(call).await,
        Leases::Get => show(call, id_in_path(raw_id)?).await,
        Leases::Renew => renew(call).await,
        Leases::Revoke => revoke(call, id_in_path(raw_id)?).await,
    }
}

async fn grant<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let body = read_body(&mut call).await?;
    let GrantLease { ttl, tag } = json::parse_object(&body, "a lease", "`ttl`, such as {\"ttl\":\"10s\"}")?;
    let ttl_ms = duration::parse_ms(ttl.as_bytes())
        .filter(|ttl_ms| (limits::LEASE_TTL_MS_MIN..=limits::LEASE_TTL_MS_MAX).contains(ttl_ms))
        .ok_or_else(|| {
            Problem::invalid("`ttl` must be such as 10s or 1500ms, at least 1s and at most 24h")
        })?;
    let tag = tag.map_or_else(random_tag, |tag| LeaseTag::new(tag.as_bytes()));
    let tag = tag.ok_or_else(|| Problem::invalid("`tag` must have 1 to 256 bytes, and no }"))?;
    let asked = call.context.clock.now();
    let grant = LeaseWrite::Grant { tag, ttl_ms, at: UnixMillis(0) };
    match call.ask(requests::change_leases(grant)).await? {
        LeaseReply::Granted { lease, ttl_ms: lasts_ms } => {
            let valid_for_ms = remaining_ms(&call, lasts_ms, asked);
            let granted = GrantedLease { id: lease.text(), ttl_ms, valid_for_ms };
            Ok(response::typed(StatusCode::CREATED, "application/json", json::encode(&granted)))
        }
        LeaseReply::TooMany => Err(too_many()),
        _ => Err(NoAnswer::mismatched().into()),
    }
}

/// A tag that puts a lease into any slot. It need not be unique: the number in an id is.
fn random_tag() -> Option<LeaseTag> {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    LeaseTag::new(format!("{:08x}", random >> 32).as_bytes())
}

async fn list<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let parameters = call.parameters();
    let tag = parameters.get("tag")?.map(|tag| {
        LeaseTag::new(&tag).ok_or_else(|| Problem::invalid("tag must have 1 to 256 bytes, and no }"))
    });
    let prefix = tag.transpose()?.map_or(Bytes::new(), |tag| Bytes::copy_from_slice(tag.prefix()));
    let after = parameters.get("after")?.map(|after| {
        LeaseId::parse(&after).map(|id| Bytes::from(id.text())).ok_or_else(|| malformed_id(&after))
    });
    let read = Read::Leases { prefix, after: after.transpose()?, limit: list::limit(parameters)? };
    let consistency = parameters.consistency()?;
    let Page { items, next } = call.page(read, consistency).await?;
    let text = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
    let item = |Item { key, expires, .. }: &Item| {
        let ends = expires.unwrap_or_default();
        ListedLease { id: text(key), valid_for_ms: until(&call, ends, key) }
    };
    let page = LeasePage { items: items.iter().map(item).collect(), next: next.as_deref().map(text) };
    Ok(response::json(json::encode(&page)))
}

async fn show<S: Store>(mut call: Call<'_, S>, id: LeaseId) -> Result<Response, Problem> {
    let consistency = call.parameters().consistency()?;
    let found = call.ask(requests::lease(id.clone(), consistency)).await?.ok_or_else(no_such_lease)?;
    let LeaseView { lease, ttl_ms, ends, keys, held, awaited } = &*found;
    let names =
        |names: &[Bytes]| names.iter().map(|name| name.len() + size_of::<LeaseKey<'_>>()).sum::<usize>();
    call.reserve(2 * (names(keys) + names(held) + names(awaited))).await?;
    let answer = Lease {
        id: lease.text().into(),
        ttl_ms: *ttl_ms,
        valid_for_ms: until(&call, *ends, id.tag().prefix()).min(*ttl_ms),
        keys: shown(keys),
        held: shown(held),
        awaited: shown(awaited),
    };
    Ok(response::json(json::encode(&answer)))
}

fn shown(names: &[Bytes]) -> Vec<LeaseKey<'_>> {
    let one = |name| {
        let (key, key_b64) = json::text_or_base64(name);
        LeaseKey { key, key_b64 }
    };
    names.iter().map(|name| one(name)).collect()
}

async fn revoke<S: Store>(call: Call<'_, S>, lease: LeaseId) -> Result<Response, Problem> {
    match call.ask(requests::change_leases(LeaseWrite::Revoke { lease })).await? {
        LeaseReply::Revoked { keys: _ } => Ok(response::empty(StatusCode::NO_CONTENT)),
        LeaseReply::NoLease => Err(no_such_lease()),
        _ => Err(NoAnswer::mismatched().into()),
    }
}

async fn renew<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let body = read_body(&mut call).await?;
    let RenewLeases { ids } = json::parse_object(&body, "a list of leases", "`ids`")?;
    if !(1..=RENEWED_MAX).contains(&ids.len()) {
        return Err(Problem::invalid(format!("`ids` must have 1 to {RENEWED_MAX} items; nothing was done")));
    }
    let leases = ids.iter().map(|id| parse_id(id)).collect::<Result<Vec<_>, _>>()?;
    // Besides the body, each id exists parsed, in its command, and in the answer.
    call.reserve(3 * body.len() + leases.len() * 2 * size_of::<RenewedLease>()).await?;
    drop(body);
    call.charge_operations(leases.len());
    let asked = call.context.clock.now();
    let renewed = Renewals::ask_all(&call, &leases).await?;
    let answers = ids.into_iter().zip(renewed).map(|(id, lasts_ms)| match lasts_ms {
        Ok(Some(lasts_ms)) => {
            RenewedLease { id, valid_for_ms: Some(remaining_ms(&call, lasts_ms, asked)), problem: None }
        }
        Ok(None) => RenewedLease { id, problem: Some(no_such_lease().name().to_owned()), valid_for_ms: None },
        Err(problem) => RenewedLease { id, problem: Some(problem.name().to_owned()), valid_for_ms: None },
    });
    Ok(response::json(json::encode(&RenewedLeases { leases: answers.collect() })))
}

/// How long a lease lasts at least; `None` if there is none.
type Renewed = Option<u64>;

/// The commands of one request that renews leases of several shards.
struct Renewals {
    /// For each lease of the request; `None` until its command was answered.
    renewed: Vec<Option<Result<Renewed, Problem>>>,
}

impl Renewals {
    /// Renews leases, and returns an outcome for each in their order.
    ///
    /// # Errors
    /// If no lease could be renewed, for the reason of one of them.
    async fn ask_all<S: Store>(
        call: &Call<'_, S>,
        leases: &[LeaseId],
    ) -> Result<Vec<Result<Renewed, Problem>>, Problem> {
        let mut renewals = Renewals { renewed: vec![None; leases.len()] };
        let store = call.store();
        let all = 0..leases.len();
        let by_shard = grouped(all, |index| store.shard_of(leases[*index].tag().prefix()));
        let split = renewals.ask(store, leases, by_shard).await;
        // Slots have moved since the node learned its map. Leases of one slot are always together.
        let by_slot = grouped(split.into_iter(), |index| leases[*index].slot());
        for index in renewals.ask(store, leases, by_slot).await {
            renewals.renewed[index] = Some(Err(Refusal::CrossShard.into()));
        }
        let outcomes: Vec<_> = renewals.renewed.into_iter().flatten().collect();
        if outcomes.len() != leases.len() {
            return Err(NoAnswer::mismatched().into());
        }
        match outcomes.iter().all(Result::is_err) {
            true => Err(outcomes.into_iter().find_map(Result::err).unwrap_or_else(no_such_lease)),
            false => Ok(outcomes),
        }
    }

    /// Sends a command for each group of leases. Returns the leases of groups that are in several
    /// shards.
    async fn ask<S: Store>(&mut self, store: &S, leases: &[LeaseId], groups: Vec<Vec<usize>>) -> Vec<usize> {
        let mut commands = JoinSet::new();
        for group in groups {
            let write = LeaseWrite::Renew {
                leases: group.iter().map(|index| leases[*index].clone()).collect(),
                at: UnixMillis(0),
            };
            let store = store.clone();
            commands.spawn_local(async move { (group, store.ask(requests::change_leases(write)).await) });
        }
        let mut split = Vec::new();
        while let Some(answered) = commands.join_next().await {
            // A task that panicked leaves its leases without an outcome.
            let Ok((group, reply)) = answered else { continue };
            match reply {
                Err(NoAnswer::Refused(Refusal::CrossShard)) => split.extend(group),
                Err(error) => {
                    for index in group {
                        self.renewed[index] = Some(Err(error.clone().into()));
                    }
                }
                Ok(LeaseReply::Renewed(lasts_ms)) => {
                    for (index, lasts_ms) in group.into_iter().zip(lasts_ms) {
                        self.renewed[index] = Some(Ok(lasts_ms));
                    }
                }
                Ok(_) => {}
            }
        }
        split
    }
}

/// The leases in groups for one command each, by a property that they have in common.
fn grouped<K: Ord>(leases: impl Iterator<Item = usize>, property: impl Fn(&usize) -> K) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for index in leases {
        groups.entry(property(&index)).or_default().push(index);
    }
    let parts = groups.values().flat_map(|group| group.chunks(limits::LEASES_RENEWED_MAX));
    parts.map(<[usize]>::to_vec).collect()
}

async fn read_body<S: Store>(call: &mut Call<'_, S>) -> Result<Bytes, Problem> {
    call.read_body(BodyLimit::Form(call.context.options.body_bytes_max)).await
}

fn id_in_path(raw: &str) -> Result<LeaseId, Problem> {
    let text: Cow<'_, [u8]> = uri::percent_decode(raw.as_bytes())?;
    LeaseId::parse(&text).ok_or_else(|| malformed_id(&text))
}

/// Reads the id of a lease in a body.
pub(super) fn parse_id(text: &str) -> Result<LeaseId, Problem> {
    LeaseId::parse(text.as_bytes()).ok_or_else(|| malformed_id(text.as_bytes()))
}

/// Says that this is not the id of a lease.
pub(super) fn not_an_id(text: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(text).escape_debug().take(SHOWN_CHARACTERS_MAX).collect();
    format!("\"{shown}\" is not the id of a lease, such as {{orders}}:1f")
}

pub(super) fn malformed_id(text: &[u8]) -> Problem {
    Problem::invalid(format!("{}; nothing was done", not_an_id(text)))
}

/// Refuses a lease of another slot than the key or lock that depends on it.
pub(super) fn check_slot(lease: &LeaseId, key: &[u8]) -> Result<(), Problem> {
    if lease.slot() == slot_of(key) {
        return Ok(());
    }
    let detail = match LeaseTag::of_key(key) {
        Some(tag) => format!(
            "the lease has the tag \"{}\", but needs that of the key, \"{}\": grant it with this `tag`; nothing was \
             done",
            lease.tag().tag().escape_debug(),
            tag.tag().escape_debug()
        ),
        None => {
            "the key has no tag in braces, and is no tag itself, so no lease has its slot; nothing was done"
                .to_owned()
        }
    };
    Err(Problem::new(ProblemKind::CrossShard, detail))
}

/// The refusal of a lease that does not exist.
pub(super) fn no_such_lease() -> Problem {
    let detail = "there is no such lease: it has ended, or never existed; nothing was changed";
    Problem::new(ProblemKind::NoSuchLease, detail)
}

/// The refusal of a shard that has no room for leases and waiters.
pub(super) fn too_many() -> Problem {
    let detail = "the shard has as many leases, or bytes of leases and of waiters for locks, as it may; nothing was \
                  changed";
    Problem::new(ProblemKind::Overloaded, detail)
}

/// How much is left of what lasts so long from the time `asked`, at which it was requested.
pub(super) fn remaining_ms<S: Store>(call: &Call<'_, S>, lasts_ms: u64, asked: UnixMillis) -> u64 {
    lasts_ms.saturating_sub(ttl::remaining_ms(call.context.clock.now(), asked))
}

/// How long it takes until a time by the clock of the leader of a key's shard.
pub(super) fn until<S: Store>(call: &Call<'_, S>, time: UnixMillis, key: &[u8]) -> u64 {
    ttl::remaining_ms(time, ttl::leader_time(call.store(), call.context.clock, key))
}

/// Adds the header with the lease to which the key is bound.
pub(super) fn with_lease(mut response: Response, lease: Option<&LeaseId>) -> Response {
    // A tag may have bytes that a header may not.
    if let Some(lease) = lease
        && let Ok(value) = HeaderValue::from_bytes(lease.text().as_bytes())
    {
        response.headers_mut().insert(LEASE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_grouped_in_commands_of_a_bounded_size() {
        let max = limits::LEASES_RENEWED_MAX;
        let groups = grouped(0..2 * max + 3, |index| index % 2);
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(sizes, [max, 2, max, 1]);
        assert!(groups[0].iter().all(|index| index % 2 == 0) && groups[3] == [2 * max + 1]);
        assert_eq!(grouped(std::iter::empty(), |index| *index), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn random_tags_are_tags() {
        let tag = random_tag().expect("a tag");
        assert_eq!(tag.tag().len(), 8);
        assert_ne!(random_tag(), Some(tag));
    }

    #[test]
    fn what_is_no_id_is_shortened() {
        let detail = malformed_id(&[b'x'; 1_000]).into_detail();
        assert!(detail.starts_with("\"xxx") && detail.len() < 200, "{detail}");
        let detail = malformed_id(b"\xff\n\"").into_detail();
        assert!(detail.contains("\\n\\\""), "{detail}");
    }
}
