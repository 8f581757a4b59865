//! Ports for servers that must know one another's before they start.
//!
//! Binding port 0 and letting go again would hand out ports of the ephemeral range, which the connections of
//! every other test draw from: a node that is down for a moment would find its port taken. These come from below
//! that range, each given out once in this process and seen free; a clash with another process is met by
//! starting the cluster again.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

/// Linux hands out ephemeral ports from 32768 on.
const RANGE: Range<u16> = 10_000..32_000;

static NEXT: Mutex<Option<u16>> = Mutex::new(None);

/// The first of `count` consecutive ports that nothing listens on.
pub fn reserve(count: u16) -> u16 {
    let mut next = NEXT.lock().expect("no test panics while it holds this");
    // Two test runs on one machine start far apart.
    let start = std::process::id().wrapping_mul(211) % u32::from(RANGE.end - RANGE.start);
    let start = RANGE.start + u16::try_from(start).expect("less than the width of the range");
    let mut base = next.unwrap_or(start);
    for _ in RANGE {
        if base + count > RANGE.end {
            base = RANGE.start;
        }
        // All at once, so that the ports are free together.
        let listeners: Vec<_> = (base..base + count)
            .map_while(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .collect();
        if listeners.len() == usize::from(count) {
            *next = Some(base + count);
            return base;
        }
        base += 1;
    }
    panic!("no {count} consecutive ports are free in {RANGE:?}");
}
