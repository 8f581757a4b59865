//! Ports for servers that must know each other's ports before they start.
//!
//! Binding port 0 and closing it would give out ephemeral ports, which connections of other tests
//! use too: a node that is down for a moment could lose its port. These ports are below the
//! ephemeral range, each is given out once in this process and checked to be free. After a clash
//! with another process the cluster is started again.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

/// Linux hands out ephemeral ports from 32768 on. Tests that may run at the same time have other
/// ports: from 10000 those of the console, from 22000 the clients, examples and chaos.
const RANGE: Range<u16> = 24_000..32_000;

static NEXT: Mutex<Option<u16>> = Mutex::new(None);

/// The first of `count` consecutive ports that nothing listens on.
pub fn reserve(count: u16) -> u16 {
    let mut next = NEXT.lock().expect("no test panics while it holds this");
    // Concurrent test runs on one machine start at distant ports.
    let start = std::process::id().wrapping_mul(211) % u32::from(RANGE.end - RANGE.start);
    let start = RANGE.start + u16::try_from(start).expect("less than the width of the range");
    let mut base = next.unwrap_or(start);
    for _ in RANGE {
        if base + count > RANGE.end {
            base = RANGE.start;
        }
        // All are bound at once, so that the ports are free together.
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
