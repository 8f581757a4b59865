//! End to end: the shipped binary as real processes on loopback, driven as a user would, and broken as the world
//! would.
//!
//! What is proved here is what the simulator cannot reach: sockets, disks, signals, the command line, and that
//! the documents say what happens. Consensus under every interleaving is the simulator's.
//!
//! No test sleeps to synchronise: each waits for a condition, with a deadline that is generous because two cores
//! may be running everything else too. Time is never asserted.

mod backups;
mod bench;
mod bytes;
mod clients;
mod commands;
mod config;
mod descriptors;
mod dev;
mod dialects;
mod disk;
mod documents;
mod faults;
mod founding;
mod full_disk;
mod harness;
mod joining;
mod lifecycle;
mod linearizable;
mod lost_majority;
mod membership;
mod memory;
mod moving;
mod old_copies;
mod outages;
mod placement;
mod replacement;
mod resp;
mod scans;
mod slow_disk;
mod snapshots;
mod workers;
mod wrong_ports;
