//! State machines that decide for one client's connection or long request; the server and the
//! simulator drive them.

mod asking;
pub mod backup;
pub mod checkpoint;
pub mod import;
pub mod key_poll;
pub mod key_tracking;
pub mod key_watcher;
pub mod lock_wait;
pub mod operation_queues;
pub mod pipeline;
pub mod restore;
pub mod script;
pub mod watch_hub;
pub mod watcher;

pub use asking::{NextAction, Unanswered, snapshots_here};
