//! Runs the target that `TIDELOCK_FUZZ_TARGET` names with libFuzzer, whose options are arguments.
//!
//! Owns the bound of memory, which no target can see: an allocator that counts. A run that holds
//! more than [`BASE_BYTES`] and [`BYTES_PER_INPUT_BYTE`] for each byte of its input is a finding.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidelock_fuzz::targets;

/// What a run may hold whatever its input: windows of readers, files in memory, a slot map.
const BASE_BYTES: usize = 32 << 20;

/// Decoded values are larger than their bytes; a value of a byte takes some hundred.
const BYTES_PER_INPUT_BYTE: usize = 1 << 10;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: the caller's duty is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's duty is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fn select() {
    let name = std::env::var("TIDELOCK_FUZZ_TARGET").expect("TIDELOCK_FUZZ_TARGET names a target");
    if name == "list" {
        targets::all().for_each(|target| println!("{}", target.name));
        std::process::exit(0);
    }
    let target = targets::named(&name).unwrap_or_else(|| panic!("there is no target {name}"));
    TARGET.get_or_init(|| target.run);
}

libfuzzer_sys::fuzz_target!(init: select(), |input: &[u8]| {
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    TARGET.get().expect("a target was selected")(input);
    let held = PEAK.load(Relaxed).saturating_sub(before);
    let most = BASE_BYTES + BYTES_PER_INPUT_BYTE * input.len();
    assert!(held <= most, "{held} bytes were held for an input of {} bytes", input.len());
});
