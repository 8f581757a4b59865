//! The Redis protocol over a store in memory: golden scripts in `scripts`, malicious clients in
//! `hostile`.

mod client;
mod harness;
mod hostile;
mod scripts;
mod store;
