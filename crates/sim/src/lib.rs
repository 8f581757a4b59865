//! The deterministic simulator: the store that ships, in a world where everything that can go wrong does.

pub mod agenda;
pub mod checkers;
pub mod disk;
pub mod history;
pub mod net;
pub mod slots;
pub mod trace;
