//! The Redis protocol over a store in memory: golden scripts in `scripts`, clients that mean harm in `hostile`.

mod client;
mod fuzz;
mod harness;
mod hostile;
mod scripts;
mod store;
