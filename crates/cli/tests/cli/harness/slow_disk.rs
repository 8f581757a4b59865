//! A disk whose syncs are slow while a file exists: a library, preloaded into the node, delays
//! `fsync` and `fdatasync`.
//!
//! It is compiled with `cc`, which every machine that links Rust programs has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each sync takes up to 1000 steps of 5 ms longer, and ends sooner when the file that the
/// environment names is gone.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int delayed(const char *name, int fd) {
    const char *slow = getenv("SLOW_DISK");
    struct timespec step = { 0, 5000000 };
    for (int steps = 0; slow && steps < 1000 && access(slow, F_OK) == 0; steps++)
        nanosleep(&step, NULL);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}

int fsync(int fd) { return delayed("fsync", fd); }
int fdatasync(int fd) { return delayed("fdatasync", fd); }
"#;

/// A switch for the disk of one node.
pub struct SlowDisk {
    library: PathBuf,
    switch: PathBuf,
}

impl SlowDisk {
    /// A disk that is fast at first; its files are in `directory`.
    pub fn new(directory: &Path) -> SlowDisk {
        fs::create_dir_all(directory).expect("a directory for the library");
        let (source, library) = (directory.join("slow_disk.c"), directory.join("slow_disk.so"));
        fs::write(&source, SOURCE).expect("the source is written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        assert!(compiler.status().expect("cc is installed").success(), "cc compiles the library");
        SlowDisk::at(directory)
    }

    /// The existing disk in a directory.
    pub fn at(directory: &Path) -> SlowDisk {
        SlowDisk { library: directory.join("slow_disk.so"), switch: directory.join("slow") }
    }

    /// The environment variables of the node.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("SLOW_DISK", self.switch.clone())]
    }

    /// Makes each sync take five seconds longer from now on.
    pub fn hang(&self) {
        fs::write(&self.switch, "").expect("the switch is made");
    }

    /// Makes syncs fast again, also those in progress.
    pub fn resume(&self) {
        fs::remove_file(&self.switch).expect("the disk is slow");
    }
}
