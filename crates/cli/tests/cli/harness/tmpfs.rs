//! Small file systems in memory, so that tests can fill a disk.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that is mounted until this is dropped. Only root may mount one.
pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Creates a directory and mounts a file system of so many bytes on it. The error says why that
    /// failed.
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

    /// Remounts it with other options, such as `ro`.
    pub fn remount(&self, options: &str) {
        let mut command = Command::new("mount");
        let done = command.args(["-o", &format!("remount,{options}")]).arg(&self.path).status();
        assert!(done.is_ok_and(|status| status.success()), "{options}: {}", self.path.display());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Unmounts it even while files are open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}

/// Whether a test that mounts a file system can run here. If not, prints that past the test's
/// captured output.
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
