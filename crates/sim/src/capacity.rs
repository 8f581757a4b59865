//! What simulated machines can do at most, so that a run has a throughput.
//!
//! Owns the costs of work, and until when each processor, link and disk is occupied. Ordinary runs
//! have no capacity: in them work takes no time, and only delays are drawn.
//!
//! Model: a host has one processor for its node, one link on which it sends, and one disk. Each
//! does one thing at a time. A turn of the process occupies the processor for a time that depends
//! on what the turn handled and sent; the next turn begins when it is over. What a turn sends
//! leaves at its beginning, which shortens latencies and does not change the throughput.

use tidelock_core::types::NodeId;

use crate::event_queue::Micros;

/// What work costs, and how much links and disks transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Processor time of a turn of the process, whatever it handles, in nanoseconds.
    pub turn_ns: u64,
    /// Processor time of a client's request, from its bytes to those of its reply, in nanoseconds.
    pub request_ns: u64,
    /// Processor time of a frame that is sent to a peer or received, in nanoseconds.
    pub frame_ns: u64,
    /// Processor time of each 1,024 bytes of such frames, in nanoseconds.
    pub kibibyte_ns: u64,
    /// Bytes that a host can send in a second.
    pub link_bytes_per_second: u64,
    /// Bytes that a disk can write in a second, in addition to the planned duration of a sync.
    pub disk_bytes_per_second: u64,
}

/// What a turn of a process handled and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnWork {
    /// Requests of clients.
    pub requests: u64,
    /// Frames, received or sent.
    pub frames: u64,
    /// Bytes of these frames.
    pub frame_bytes: u64,
}

/// The machines of a run with limited capacity.
#[derive(Debug)]
pub struct Machines {
    capacity: Capacity,
    /// By host: until when its processor is occupied, in nanoseconds of simulated time.
    processors: Vec<u64>,
    /// By host: for how many nanoseconds its processor was occupied so far.
    used: Vec<u64>,
    /// By host: bytes that its disk had written at the end of the last sync.
    written: Vec<u64>,
}

impl Capacity {
    /// A machine whose node has one processor as fast as that of the measurements
    /// (`bench/compare/growth`). There a durable HTTP write costs a cluster of one about 14 µs at
    /// 64 connections, and a follower of pipelined writes about 0.4 µs for each, which has 52 bytes
    /// in the log. The link has 10 Gbit/s, the disk 1 GB/s.
    pub const MEASURED: Capacity = Capacity {
        turn_ns: 4_000,
        request_ns: 10_000,
        frame_ns: 3_000,
        kibibyte_ns: 8_000,
        link_bytes_per_second: 1_250_000_000,
        disk_bytes_per_second: 1_000_000_000,
    };
}

impl Machines {
    /// Idle machines.
    pub fn new(capacity: Capacity, hosts: u64) -> Machines {
        let none = vec![0; hosts as usize];
        Machines { capacity, processors: none.clone(), used: none.clone(), written: none }
    }

    /// When a turn can begin that is due at a time.
    pub fn turn_begins(&self, node: NodeId, due: Micros) -> Micros {
        due.max(Micros(self.processors[position(node)].div_ceil(1_000)))
    }

    /// A turn begins and occupies the processor.
    pub fn turn(&mut self, node: NodeId, now: Micros, work: TurnWork) {
        let Capacity { turn_ns, request_ns, frame_ns, kibibyte_ns, .. } = self.capacity;
        let bytes_ns = work.frame_bytes * kibibyte_ns / 1024;
        let took = turn_ns + work.requests * request_ns + work.frames * frame_ns + bytes_ns;
        let until = &mut self.processors[position(node)];
        *until = (*until).max(now.0 * 1_000) + took;
        self.used[position(node)] += took;
    }

    /// By host: for how many nanoseconds its processor was occupied so far.
    pub fn used_ns(&self) -> &[u64] {
        &self.used
    }

    /// How much longer a sync takes because of the bytes that were written since the last one.
    pub fn transfer(&mut self, node: NodeId, bytes_written: u64) -> Micros {
        let before = std::mem::replace(&mut self.written[position(node)], bytes_written);
        Micros((bytes_written - before) * 1_000_000 / self.capacity.disk_bytes_per_second)
    }
}

fn position(node: NodeId) -> usize {
    node.0 as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_waits_until_the_one_before_is_over() {
        let mut machines = Machines::new(Capacity::MEASURED, 2);
        let (node, other) = (NodeId(1), NodeId(2));
        machines.turn(node, Micros(100), TurnWork { requests: 2, frames: 1, frame_bytes: 2_048 });
        // 4 + 2 × 10 + 3 + 2 × 8 µs
        assert_eq!(machines.used_ns(), [43_000, 0]);
        assert_eq!(machines.turn_begins(node, Micros(101)), Micros(143));
        assert_eq!(machines.turn_begins(node, Micros(200)), Micros(200));
        assert_eq!(machines.turn_begins(other, Micros(101)), Micros(101));
    }

    #[test]
    fn a_sync_takes_longer_by_what_was_written_since_the_last_one() {
        let mut machines = Machines::new(Capacity::MEASURED, 1);
        assert_eq!(machines.transfer(NodeId(1), 5_000_000), Micros(5_000));
        assert_eq!(machines.transfer(NodeId(1), 5_000_000), Micros(0));
    }
}
