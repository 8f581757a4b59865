//! The binary `tidelock`.
fn main() {}
