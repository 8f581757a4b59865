//! The shell around the core: it decodes, encodes and moves bytes; it decides nothing.

pub mod metrics;
pub mod store;
