//! Small file systems in memory, so that a disk can be filled without filling the machine's.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that is mounted until this is dropped. Only root may mount one.
pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Mounts one of so many bytes on a directory, which is made. The error says why it cannot be.
    pub fn mount(path: &Path, bytes: u64) -> Result<Tmpfs, String> {
        fs::create_dir_all(path).map_err(|error| error.to_string())?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(path);
        let done = command.output().map_err(|error| format!("mount: {error}"))?;
        if done.status.success() {
            return Ok(Tmpfs { path: path.to_owned() });
        }
        Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
    }

    /// Mounts it anew with other options, such as `ro`.
    pub fn remount(&self, options: &str) {
        let mut command = Command::new("mount");
        let done = command.args(["-o", &format!("remount,{options}")]).arg(&self.path).status();
        assert!(done.is_ok_and(|status| status.success()), "{options}: {}", self.path.display());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Also while something of it is open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}

/// Whether a test that needs a file system of its own can run here; says so past the test's captured output if not.
pub fn can_mount(test: &str) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    match Tmpfs::mount(&directory.path().join("probe"), 1 << 20) {
        Ok(_) => true,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "SKIPPED {test}: a tmpfs cannot be mounted here: {reason}");
            false
        }
    }
}
