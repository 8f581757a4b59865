//! Files with secrets: read only if no other user can, and replaced at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::CliError;

/// Bits of a file's mode that let others read, write or execute it.
const OTHERS: u32 = 0o077;

/// Opens a file that only its owner may use. `what` names its content in the error, such as `key`.
///
/// # Errors
/// When it cannot be opened, or others may use it.
pub fn open(path: &Path, what: &str) -> Result<File, CliError> {
    let name = path.display();
    let file = File::open(path).map_err(CliError::io(name.to_string()))?;
    let mode = file.metadata().map_err(CliError::io(name.to_string()))?.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        let text =
            format!("{name}: others than its owner may use this {what} (mode {mode:03o}): chmod 600 {name}");
        return Err(CliError::Usage(text));
    }
    Ok(file)
}

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
