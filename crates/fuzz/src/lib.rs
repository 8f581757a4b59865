//! Fuzz targets: one for each format of bytes that come from a client, a peer, a file of settings
//! or the disk.
//!
//! A target takes any bytes, gives them to a parser of the product, and panics if a property does
//! not hold: what is decoded and encoded again is equal, parsing in pieces finds the same as
//! parsing the whole, a verified file can be used. `engine` runs the targets with libFuzzer;
//! `tests/corpus.rs` runs them over the stored corpus.
//!
//! Owns the properties and the seeds of the corpus. Deliberately has no parser of its own: where a
//! format has checksums, `checksums` only computes them for bytes that the fuzzer has made up,
//! because it would not find them by chance.

mod checksums;
pub mod corpus;
mod memory_disk;
pub mod targets;
