//! The shell around the core: it decodes, encodes and moves bytes; it decides nothing.

pub mod http;
pub mod metrics;
pub mod clock;
pub mod config;
pub mod listen;
pub mod shutdown;
pub mod store;
pub mod transport;
