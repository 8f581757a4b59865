//! End to end: the shipped binary as real processes on loopback, driven as by a user, under real
//! faults.
//!
//! These tests cover what the simulator cannot: sockets, disks, signals, the command line, and the
//! examples in the documents. The simulator covers consensus under many interleavings.
//!
//! No test sleeps to synchronise: each waits for a condition, with a generous deadline, because two
//! cores may run everything else too. Durations are never asserted.

mod advisories;
mod audit;
mod auth;
mod auth_commands;
mod backups;
mod bench;
mod bytes;
mod caching;
mod client_certificates;
mod clients;
mod cluster_ca;
mod commands;
mod config;
mod config_agent;
mod config_environments;
mod config_files;
mod config_secrets;
mod config_watches;
mod console_blocks;
mod coordination;
mod demands;
mod descriptors;
mod dev;
mod dialects;
mod disk;
mod division;
mod doctor;
mod documents;
mod exit_codes;
mod faults;
mod founding;
mod full_disk;
mod harness;
mod imports;
mod joining;
mod key_watches;
mod lifecycle;
mod limits;
mod line_shell;
mod linearizable;
mod lost_majority;
mod machines;
mod membership;
mod memory;
mod moving;
mod networks;
mod old_copies;
mod outages;
mod packaging;
mod peer_tls;
mod placement;
mod pub_sub;
mod replacement;
mod resp;
mod scans;
mod service_manager;
mod slow_disk;
mod snapshots;
mod tls;
mod traces;
mod transactions;
mod upgrades;
mod workers;
mod wrong_ports;
