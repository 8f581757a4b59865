//! The query parameters of requests that change something.
//!
//! A change with a misspelt parameter is another change: a lock with `tll=30s` would stay forever.
//! So these requests refuse unknown parameters. Reads ignore them, because clients add some to
//! bypass caches.

use hyper::Method;
use hyper::http::request::Parts;

use super::config;
use super::problem::Problem;
use super::route::Route;
use super::uri::Parameters;

/// Checks the query of a request.
///
/// # Errors
/// 400 if the query of a change has a parameter that its route does not take.
pub(super) fn check(head: &Parts, route: Route<'_>) -> Result<(), Problem> {
    let Some(query) = head.uri.query() else { return Ok(()) };
    let Some(known) = of(route, &head.method) else { return Ok(()) };
    match Parameters::of_query(Some(query)).first_besides(known)? {
        None => Ok(()),
        Some(name) => {
            let name = name.chars().take(64).collect::<String>();
            let detail = match known {
                [] => format!("there is no parameter {name:?} here, nor any other; nothing was done"),
                _ => format!(
                    "there is no parameter {name:?} here, only {}; nothing was done",
                    known.join(", ")
                ),
            };
            Err(Problem::invalid(detail))
        }
    }
}

/// The parameters of a change; `None` if the route has no such method, or changes nothing with it.
fn of(route: Route<'_>, method: &Method) -> Option<&'static [&'static str]> {
    match (route, method) {
        (_, &Method::GET | &Method::HEAD | &Method::OPTIONS) => None,
        (Route::Key(_), &Method::PUT) => Some(&["ttl"]),
        (Route::Key(_), &Method::DELETE) => Some(&[]),
        (Route::Kv1(_), &Method::PUT) => Some(&["val", "ver"]),
        (Route::Raftdb(_), &Method::PUT | &Method::POST) => Some(&[]),
        (Route::Config(rest), method) => config::parameters_of_change(rest, method),
        (Route::Shard(_), &Method::DELETE) => Some(&[]),
        (Route::Transfer(_), &Method::POST) => Some(&["to"]),
        (Route::Restore, &Method::POST) => Some(&["backup", "revision", "expiring", "discard"]),
        (
            Route::Atomic(_)
            | Route::Tags(_)
            | Route::Rebalance
            | Route::AddShard
            | Route::MoveSlots(_)
            | Route::Checkpoint
            | Route::Host { .. },
            &Method::POST,
        ) => Some(&[]),
        _ => None,
    }
}
