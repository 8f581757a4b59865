//! Operations on leases and locks.

use serde_json::{Value, json};
use tidelock_api as api;
use tidelock_core::limits;

use super::super::leases::Leases;
use super::super::locks::Locks;
use super::native::stale;
use super::operation::{Failures, JSON, Operation, Tag, matching, query};
use super::schemas::schema_of;

const LEASES: Tag = Tag("leases", Failures::Problems);
const LOCKS: Tag = Tag("locks", Failures::Problems);

pub(super) fn operations() -> Vec<Operation> {
    let mut all = leases();
    all.extend(locks());
    all
}

fn tag() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": api::leases::TAG_BYTES_MAX })
}

fn leases() -> Vec<Operation> {
    let page = json!({ "type": "integer", "minimum": 1, "maximum": limits::LIST_PAGE_ITEMS_MAX });
    vec![
        LEASES
            .operation("post /v1/leases", Leases::Grant, "grantLease", "Grants a lease")
            .takes_json(schema_of::<api::leases::GrantLease>())
            .gives(201, [(JSON, schema_of::<api::leases::GrantedLease>())], "The lease")
            .fails([409]),
        LEASES
            .operation("get /v1/leases", Leases::List, "listLeases", "A page of leases, by their ids")
            .asks([
                query("tag", tag(), "Only leases with this tag"),
                query("after", matching(api::LEASE_ID), "Only leases behind this one"),
                query("limit", page, "Most items"),
                stale(),
            ])
            .gives_json(schema_of::<api::leases::LeasePage>(), "The page, and where the next one begins")
            .fails([409]),
        LEASES
            .operation("post /v1/leases/renew", Leases::Renew, "renewLeases", "Lets leases begin again")
            .takes_json(schema_of::<api::leases::RenewLeases>())
            .gives_json(schema_of::<api::leases::RenewedLeases>(), "What became of each")
            .fails([409]),
        LEASES
            .operation(
                "get /v1/leases/{id}",
                Leases::Get,
                "getLease",
                "A lease, with the keys and locks that depend on it",
            )
            .asks([stale()])
            .gives_json(schema_of::<api::leases::Lease<'static>>(), "The lease")
            .fails([404, 409]),
        LEASES
            .operation("delete /v1/leases/{id}", Leases::Revoke, "revokeLease", "Ends a lease now")
            .gives_nothing(204, "It has ended, with its keys and locks")
            .fails([404, 409]),
    ]
}

fn locks() -> Vec<Operation> {
    vec![
        LOCKS
            .operation(
                "get /v1/locks/{key}",
                Locks::Show,
                "getLock",
                "Who holds a lock, and who waits for it",
            )
            .asks([stale()])
            .gives_json(schema_of::<api::locks::Lock<'static>>(), "The lock, whether or not it is held")
            .fails([409]),
        LOCKS
            .operation(
                "post /v1/locks/{key}/acquire",
                Locks::Acquire,
                "acquireLock",
                "Acquires a lock for a lease, at once or after waiting",
            )
            .takes_json(schema_of::<api::locks::AcquireLock>())
            .gives_json(schema_of::<api::locks::AcquiredLock>(), "The lease holds the lock, with this fence")
            .fails([404, 409]),
        LOCKS
            .operation(
                "post /v1/locks/{key}/release",
                Locks::Release,
                "releaseLock",
                "Releases a lock, or leaves its queue",
            )
            .takes_json(schema_of::<api::locks::ReleaseLock>())
            .gives_nothing(204, "The lease does not hold the lock any more")
            .fails([404, 409]),
    ]
}
