//! State machines that decide for one client's connection or long request; the server and the
//! simulator drive them.

pub mod operation_queues;
pub mod pipeline;
pub mod watcher;
