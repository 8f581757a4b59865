//! A disk whose syncs take long while a file says so: a library, preloaded into the node, that delays `fsync` and
//! `fdatasync`.
//!
//! It is compiled with `cc`, which every machine that links Rust programs has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each sync takes up to 1000 steps of 5 ms longer, and ends sooner when the file that the environment names is gone.
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
    /// A disk that is fast at first; `directory` is where its files go.
    pub fn new(directory: &Path) -> SlowDisk {
        fs::create_dir_all(directory).expect("a directory for the library");
        let (source, library) = (directory.join("slow_disk.c"), directory.join("slow_disk.so"));
        fs::write(&source, SOURCE).expect("the source is written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        assert!(compiler.status().expect("cc is installed").success(), "cc compiles the library");
        SlowDisk::at(directory)
    }

    /// The disk that was made in a directory.
    pub fn at(directory: &Path) -> SlowDisk {
        SlowDisk { library: directory.join("slow_disk.so"), switch: directory.join("slow") }
    }

    /// What the environment of the node must hold.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("SLOW_DISK", self.switch.clone())]
    }

    /// From now on each sync takes five seconds longer.
    pub fn hang(&self) {
        fs::write(&self.switch, "").expect("the switch is made");
    }

    /// Syncs are fast again, also those under way.
    pub fn resume(&self) {
        fs::remove_file(&self.switch).expect("the disk is slow");
    }
}
