//! The deterministic simulator: runs the shipped core under simulated faults.
//!
//! One seed is one run, byte for byte. A [`plan::Plan`] is drawn from it: a cluster, its network,
//! its disks, its clients and a schedule of [faults]. The [`world`] then runs real `tidelock_core`
//! nodes and their real write-ahead log on simulated [disks](disk) and over a simulated
//! [network](net), with simulated time. [Clients](workload) send every kind of request, on few
//! keys; some [pipeline](pipelines) on connections that break, and [others](watcher) watch
//! configuration. Requests and replies go into a [`history`]. [Checkers](checkers) watch the nodes
//! and check the history. At the end all faults are relieved, and the final [inspection](world)
//! checks that the cluster serves, agrees and has lost nothing.
//!
//! Some clients drive the core's machines for long requests. Importers give containers documents;
//! the jobs that compare documents end late and in any order, are refused, or never end. Backups
//! are taken at any node during any fault, from its real snapshot files, and restored into a fresh
//! cluster whose content must follow from the history.
//!
//! Where to add what: a fault, as a type and a row of the table in [`faults`]; a property, as a
//! module of [`checkers`] and an entry of its list or of that in [`checkers::online`], with a test
//! that shows it a violation; a command, in [`workload`] and, if it touches keys, in
//! [`checkers::lineage`]; an operation, in [`compound`] and in the model of
//! [`checkers::operations`].
//!
//! To find a bug: `tidelock-sim --seeds 1000`. To [`shrink`] it: `tidelock-sim --seed S
//! --shrink`. To see its trace: `tidelock-sim --seed S --trace`. A seed that once failed goes into
//! `tests/regressions.txt`.
//!
//! `tests/deliberate_faults` proves that the simulator finds bugs: it breaks the core's promises
//! one by one.
//!
//! Not simulated, because the shell owns it: the codecs of client protocols, the formats of
//! configuration files, the frames of the peer transport and the system calls of files and sockets.

pub mod addressing;
pub mod busy_shards;
pub mod busy_votes;
pub mod capacity;
pub mod checkers;
pub mod compound;
pub mod config;
pub mod density;
mod describe;
pub mod disk;
pub mod event_queue;
pub mod faults;
pub mod frames;
pub mod history;
pub mod host;
pub mod hot_slots;
pub mod key_watcher;
pub mod leases;
pub mod net;
pub mod operator_actions;
pub mod pipelines;
pub mod plan;
pub mod report;
pub mod run;
pub mod shrink;
pub mod slots;
pub mod throughput;
pub mod trace;
pub mod watcher;
pub mod workload;
pub mod world;
