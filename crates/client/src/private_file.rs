//! Files that are replaced at once, with the mode that they shall have from the beginning.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::CliError;

/// Replaces a file at once, so that a reader never sees half of it.
///
/// # Errors
/// When it cannot be written; the former file is then as before.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> Result<(), CliError> {
    let partial = path.with_extension("new");
    let write = || {
        // A file of an interrupted run may have another mode.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(CliError::io(path.display().to_string()))
}
