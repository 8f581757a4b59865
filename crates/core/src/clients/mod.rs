//! State machines that decide for one client's connection or long request; the server and the
//! simulator drive them.

mod asking;
pub mod backup;
pub mod checkpoint;
pub mod import;
pub mod restore;

pub use asking::{NextAction, Unanswered};
