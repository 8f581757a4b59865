//! A new file that receives a secret later.
//!
//! The file is created before the secret is requested: a secret that could not be stored would be
//! valid and lost. Only its owner can read it. It is deleted if no secret is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidelock_client::CliError;

/// An empty file; removed when it is dropped.
pub struct NewFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl NewFile {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path) -> Result<NewFile, CliError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CliError::Stopped(format!(
                "{} exists: delete it or name another file; nothing was done",
                path.display()
            )),
            _ => CliError::io(path.display().to_string())(error),
        })?;
        Ok(NewFile { path: path.to_owned(), file, is_written: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the secret and a line end, and keeps the file.
    pub fn write(mut self, secret: &str) -> Result<(), CliError> {
        // A partly written file is kept, so that its owner can inspect it.
        self.is_written = true;
        let written =
            self.file.write_all(format!("{secret}\n").as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(CliError::io(self.path.display().to_string()))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_written {
            // Ignored: the error that led here matters more than an empty file.
            let _ = fs::remove_file(&self.path);
        }
    }
}
