//! Integration tests of the server: one binary, because each links everything again.
//!
//! Golden scripts (`scripts/http/*`) hold what is said; the modules hold what a script cannot say, such as two
//! things at once. `UPDATE_GOLDENFILES=1 cargo test -p tidelock-server` rewrites the scripts' output.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod client;
mod harness;
mod http;
mod openapi;
mod resp;
mod scripts;
mod store;
mod watchers;
