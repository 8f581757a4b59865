//! `tidelock backup save`: saves a backup of a node into a file that is either complete or absent.
//!
//! Owns the creation of the file: under a temporary name, verified while it is written, synced,
//! renamed, and the directory synced. An earlier backup of the same name stays until then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidelock_client::CliError;

use super::inspect;
use super::progress::Progress;
use super::stall::StallGuard;
use crate::args::SaveArgs;

/// A node that sends nothing for this long is taken to hang. It reads from a disk that others may
/// use, too.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `backup save`.
pub fn run(args: SaveArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let target = if args.stale { "/v1/backup?stale=true" } else { "/v1/backup" };
    let progress = Progress::begin("waiting for the node's snapshots");
    let (url, answer) = client.download(target)?;
    drop(progress);
    let source = StallGuard::new(answer, READ_TIMEOUT);
    let progress = Progress::begin("saving");
    if args.out == Path::new("-") {
        let mut out = io::stdout().lock();
        let write = |bytes: &[u8]| out.write_all(bytes).map_err(CliError::io("standard output"));
        let summary = super::read(&url, source, &progress, |_| Ok(()), write)?;
        io::stdout().flush().map_err(CliError::io("standard output"))?;
        drop(progress);
        eprintln!("{}", inspect::line(&summary));
        return Ok(());
    }
    let mut out = NewFile::create(&args.out)?;
    let summary = super::read(&url, source, &progress, |_| Ok(()), |bytes| out.write(bytes))?;
    out.finish()?;
    drop(progress);
    inspect::print("saved", &args.out, &summary, args.client.output)
}

/// A file that gets its name when it is complete, and is removed otherwise.
struct NewFile {
    file: File,
    temporary: PathBuf,
    name: PathBuf,
    is_finished: bool,
}

impl NewFile {
    fn create(name: &Path) -> Result<NewFile, CliError> {
        let Some(file_name) = name.file_name() else {
            return Err(CliError::Usage(format!("{} is no name for a file", name.display())));
        };
        // In the same directory, because only there is a rename atomic. With a unique name, because
        // two backups may be made at a time.
        let mut temporary_name = file_name.to_owned();
        temporary_name.push(format!(".{}.part", std::process::id()));
        let temporary = name.with_file_name(temporary_name);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let file = file.map_err(CliError::io(temporary.display().to_string()))?;
        Ok(NewFile { file, temporary, name: name.to_owned(), is_finished: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.file.write_all(bytes).map_err(CliError::io(self.temporary.display().to_string()))
    }

    fn finish(&mut self) -> Result<(), CliError> {
        let directory = match self.name.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let durable = self
            .file
            .sync_all()
            .and_then(|()| fs::rename(&self.temporary, &self.name))
            .and_then(|()| File::open(directory)?.sync_all());
        durable.map_err(CliError::io(self.name.display().to_string()))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // The earlier failure is the one that is reported.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("b");
        fs::write(&name, "earlier").unwrap();
        let mut broken_off = NewFile::create(&name).unwrap();
        broken_off.write(b"half").unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"earlier");
        drop(broken_off);
        assert_eq!(names(directory.path()), ["b"]);
        let mut complete = NewFile::create(&name).unwrap();
        complete.write(b"whole").unwrap();
        complete.finish().unwrap();
        drop(complete);
        assert_eq!((names(directory.path()), fs::read(&name).unwrap()), (vec!["b".into()], b"whole".into()));
        assert!(NewFile::create(&directory.path().join("missing/b")).is_err());
        assert!(NewFile::create(Path::new("/")).is_err());
    }
}
