//! The deterministic simulator: the store that ships, in a world where everything that can go wrong does.
//!
//! One seed is one run, byte for byte. A [`plan::Plan`] is drawn from it: a cluster, its network, its disks, its
//! clients and a schedule of [faults]. The [`world`] then runs real `tidelock_core` nodes and their real write-ahead
//! log on simulated [disks](disk) and over a simulated [network](net), with simulated time. [Clients](workload) ask
//! everything that can be asked, on few keys; all they are told goes into a [`history`]. [Checkers](checkers) watch
//! the nodes and judge the history. At the end everything heals and the cluster has to [show](inspection) that it
//! serves, agrees and forgot nothing.
//!
//! Where to add what: a fault, in [`faults`] (the data) and [`nemesis`] (the deed); a property, as a room of
//! [`checkers`], with a test that shows it a violation; a command, in [`workload`] and, if it touches keys, in
//! [`checkers::lineage`]; an operation, in [`compound`] and in the model of [`checkers::operations`].
//!
//! Finding a bug: `tidelock-sim --seeds 1000`; making it [shorter](shrink): `tidelock-sim --seed S --shrink`; looking at it:
//! `tidelock-sim --seed S --trace`. A seed that once failed goes into `tests/regressions.txt`.
//!
//! That it would find bugs is shown with bugs: `tests/deliberate_faults.rs` breaks the core's promises one by one.
//!
//! Not simulated: the codecs of client protocols and the frames of the peer transport, which the shell owns.

pub mod agenda;
pub mod checkers;
pub mod compound;
pub mod config;
mod describe;
pub mod disk;
pub mod faults;
pub mod history;
pub mod host;
pub mod inspection;
pub mod nemesis;
pub mod net;
pub mod operator;
pub mod plan;
pub mod run;
pub mod scanning;
pub mod shrink;
pub mod slots;
pub mod trace;
pub mod watching;
pub mod workload;
pub mod world;
