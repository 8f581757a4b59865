//! All operations of the HTTP interface, one row each.
//!
//! Owns what there is: paths, methods, parameters, bodies and answers. `route` finds the endpoint
//! of a request by these tables, and `openapi` shows them as a document; tests check every answer
//! in the golden scripts against them.

mod auth;
mod config;
mod console;
mod coordination;
mod dialects;
mod keys;
mod native;
mod operation;
pub(super) mod schemas;

pub(super) use operation::{Operation, matching, number, number_in};

/// All rows. They are built for each call.
pub(super) fn all() -> Vec<Operation> {
    let mut all = native::operations();
    all.extend(coordination::operations());
    all.extend(auth::operations());
    all.extend(dialects::operations());
    all.extend(config::operations());
    all.extend(console::operations());
    all
}
