//! Integration tests of the server: one binary, because each would link everything again.
//!
//! Golden scripts (`scripts/http/*`) record requests and answers; the modules test what a script
//! cannot express, such as concurrency. `UPDATE_GOLDENFILES=1 cargo test -p tidelock-server`
//! rewrites the scripts' output.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod client;
mod harness;
mod http;
mod openapi;
mod resp;
mod scripts;
mod store;
mod watchers;
