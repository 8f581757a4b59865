//! `tidelock backup`: saves the states of all shards into one file, restores them, and inspects
//! files.
//!
//! Owns the commands and their shared code: reading a backup with every check, and describing its
//! content. The core owns the format and its checks.

mod inspect;
mod progress;
mod restore;
mod save;
mod stall;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tidelock_client::CliError;
use tidelock_core::storage::backup::{BackupError, BackupReader, Part, Summary};

use crate::args::{BackupArgs, BackupCommand};
use progress::Progress;

/// Bytes read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Runs one of the `backup` commands.
pub fn run(args: BackupArgs) -> Result<(), CliError> {
    match args.command {
        BackupCommand::Save(args) => save::run(args),
        BackupCommand::Restore(args) => restore::run(args),
        BackupCommand::Verify(args) => inspect::verify(&args),
        BackupCommand::Inspect(args) => inspect::run(&args),
    }
}

/// Reads a backup, called `name` in errors, to its end. Each piece of bytes goes to `pass_on` once
/// every part that it completes has been verified and given to `take`.
fn read(
    name: &str,
    mut source: impl Read,
    progress: &Progress,
    mut take: impl FnMut(Part) -> Result<(), CliError>,
    mut pass_on: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<Summary, CliError> {
    let failed = |source: BackupError| CliError::Damaged { file: name.to_owned(), source: Box::new(source) };
    let mut reader = BackupReader::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let bytes = source.read(&mut piece).map_err(CliError::io(name))?;
        if bytes == 0 {
            return reader.finish().map_err(failed);
        }
        reader.push(&piece[..bytes]);
        while let Some(part) = reader.next_part().map_err(failed)? {
            if let Part::Header(header) = &part {
                progress.expect(header.about_bytes);
            }
            take(part)?;
        }
        pass_on(&piece[..bytes])?;
        progress.advance(bytes);
    }
}

/// Reads a backup from a file.
fn read_file(
    path: &Path,
    doing: &'static str,
    take: impl FnMut(Part) -> Result<(), CliError>,
) -> Result<Summary, CliError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(CliError::io(name.as_str()))?;
    read(&name, file, &Progress::begin(doing), take, |_| Ok(()))
}
