//! A file that the agent keeps up to date, and what it remembers about it.
//!
//! Owns the lock, which keeps a second agent away, the replacement of the content, and the state.
//! The content is replaced by a rename, so a reader sees the old document or the new one, never a
//! part of one, whenever the agent is killed.
//!
//! The state says up to which revision the file is written, and whether its command has to run.
//! That is stored before the file is replaced. So a command is not forgotten if the agent is killed
//! between the two, and may run once more than needed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidelock_client::CliError;

use super::settings::FileSettings;

/// What is remembered about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    namespace: String,
    container: String,
    /// The revision that the file holds; 0: unknown.
    revision: u64,
    /// The command has not run since the file changed, or has failed.
    is_command_due: bool,
}

/// A file that this process keeps up to date.
#[derive(Debug)]
pub struct ManagedFile {
    settings: FileSettings,
    state_path: PathBuf,
    state: FileState,
    /// Held as long as this process keeps the file up to date.
    _lock: File,
}

/// What a document did to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The file has new content.
    Changed,
    /// The file had this content already.
    Same,
    /// The document is older than the file.
    Outdated,
}

impl ManagedFile {
    /// Takes the lock of a file, and reads the state.
    ///
    /// # Errors
    /// When another agent has the lock, or the directory cannot be written.
    pub fn open(settings: FileSettings, state_dir: Option<&Path>) -> Result<ManagedFile, CliError> {
        let path = &settings.path;
        let lock_path = beside(path, "lock");
        let describe = |path: &Path| CliError::io(path.display().to_string());
        // Never removed: another process may have opened it, and would lock a file without a name.
        let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
        let lock = options.open(&lock_path).map_err(describe(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = format!("another agent keeps {} up to date", path.display());
                return Err(CliError::Stopped(text));
            }
            Err(TryLockError::Error(error)) => return Err(describe(&lock_path)(error)),
        }
        let state_path = match state_dir {
            None => beside(path, "state"),
            Some(directory) => {
                fs::create_dir_all(directory).map_err(describe(directory))?;
                directory.join(state_name(path))
            }
        };
        let mut file = ManagedFile { settings, state_path, state: FileState::default(), _lock: lock };
        file.state = file.read_state();
        Ok(file)
    }

    /// What was asked for.
    pub fn settings(&self) -> &FileSettings {
        &self.settings
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// The revision that the file holds; 0 if it is unknown.
    pub fn revision(&self) -> u64 {
        self.state.revision
    }

    /// Whether the command has to run.
    pub fn is_command_due(&self) -> bool {
        self.state.is_command_due && self.settings.exec.is_some()
    }

    /// The state of the same container, if the file is still there. An unreadable state is none.
    fn read_state(&self) -> FileState {
        let fresh = FileState {
            namespace: self.settings.namespace.clone(),
            container: self.settings.container.clone(),
            ..FileState::default()
        };
        let stored = fs::read(&self.state_path).ok();
        let stored = stored.and_then(|bytes| serde_json::from_slice::<FileState>(&bytes).ok());
        let is_same =
            |stored: &FileState| stored.namespace == fresh.namespace && stored.container == fresh.container;
        stored.filter(|stored| is_same(stored) && self.path().exists()).unwrap_or(fresh)
    }

    /// Writes a document, unless the file has this content or a newer one. A revision of another
    /// cluster state (`is_gap`) may be lower than that of the file.
    pub fn apply(&mut self, revision: u64, document: &[u8], is_gap: bool) -> io::Result<ApplyOutcome> {
        if revision < self.state.revision && !is_gap {
            return Ok(ApplyOutcome::Outdated);
        }
        let is_same = fs::read(self.path()).is_ok_and(|content| content == document);
        if is_same {
            if fs::metadata(self.path())?.permissions().mode() & 0o777 != self.settings.mode {
                fs::set_permissions(self.path(), Permissions::from_mode(self.settings.mode))?;
            }
        } else {
            self.note_change()?;
            replace(self.path(), document, self.settings.mode)?;
        }
        self.store(FileState { revision, ..self.state.clone() })?;
        Ok(if is_same { ApplyOutcome::Same } else { ApplyOutcome::Changed })
    }

    /// Deletes the file. Returns whether it existed.
    pub fn delete(&mut self) -> io::Result<bool> {
        if !self.path().exists() {
            return Ok(false);
        }
        self.note_change()?;
        fs::remove_file(self.path())?;
        sync_directory(self.path())?;
        Ok(true)
    }

    /// The command ran successfully.
    pub fn command_done(&mut self) -> io::Result<()> {
        self.store(FileState { is_command_due: false, ..self.state.clone() })
    }

    fn note_change(&mut self) -> io::Result<()> {
        let is_command_due = self.settings.exec.is_some();
        self.store(FileState { is_command_due, ..self.state.clone() })
    }

    fn store(&mut self, state: FileState) -> io::Result<()> {
        if state != self.state {
            let text = serde_json::to_vec(&state).expect("invariant: texts and numbers are JSON");
            replace(&self.state_path, &text, 0o600)?;
            self.state = state;
        }
        Ok(())
    }
}

/// A hidden file next to another one.
fn beside(path: &Path, kind: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".tidelock-{kind}"));
    path.with_file_name(name)
}

/// The name of a state in a directory with the states of other files: the end of the path for
/// people, and a checksum of all of it (FNV-1a), because two files may have the same name.
fn state_name(path: &Path) -> OsString {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let checksum = absolute
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{checksum:016x}.state"));
    name
}

/// Replaces the content of a file at once. The new content is durable before it gets the name.
fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let temporary = beside(path, "new");
    // A rest of an agent that was killed may have other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    // Independent of the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    sync_directory(path)
}

/// Makes the names in the directory of a file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Format;

    fn settings(path: PathBuf) -> FileSettings {
        FileSettings {
            namespace: "shop".into(),
            container: "app".into(),
            path,
            format: Format::Json,
            mode: 0o640,
            exec: Some("true".into()),
            delete: false,
            reveal: false,
        }
    }

    fn open(directory: &Path) -> Result<ManagedFile, CliError> {
        ManagedFile::open(settings(directory.join("app.json")), None)
    }

    #[test]
    fn a_file_changes_only_with_its_content_and_never_goes_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path()).unwrap();
        assert_eq!(file.apply(3, b"three", false).unwrap(), ApplyOutcome::Changed);
        assert!(file.is_command_due());
        let metadata = fs::metadata(file.path()).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        file.command_done().unwrap();
        assert_eq!(file.apply(4, b"three", false).unwrap(), ApplyOutcome::Same);
        assert!(!file.is_command_due());
        assert_eq!(file.apply(2, b"two", false).unwrap(), ApplyOutcome::Outdated);
        assert_eq!(fs::read(file.path()).unwrap(), b"three");
        assert_eq!(file.apply(2, b"two", true).unwrap(), ApplyOutcome::Changed, "of another cluster state");
    }

    #[test]
    fn another_agent_is_kept_away_and_a_later_one_knows_the_state() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = open(directory.path()).unwrap();
        file.apply(3, b"three", false).unwrap();
        let refused = open(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("another agent"), "{refused}");
        drop(file);
        let file = open(directory.path()).unwrap();
        assert_eq!((file.revision(), file.is_command_due()), (3, true));
        // A file of another container has no state yet, and neither has one that is gone.
        drop(file);
        let other = FileSettings { container: "other".into(), ..settings(directory.path().join("app.json")) };
        assert_eq!(ManagedFile::open(other, None).unwrap().revision(), 0);
        fs::remove_file(directory.path().join("app.json")).unwrap();
        assert_eq!(open(directory.path()).unwrap().revision(), 0);
    }

    #[test]
    fn a_torn_state_and_a_rest_of_a_killed_agent_do_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.json");
        fs::write(&path, "old").unwrap();
        fs::write(beside(&path, "state"), "{\"names").unwrap();
        fs::write(beside(&path, "new"), "half of a docu").unwrap();
        let mut file = open(directory.path()).unwrap();
        assert_eq!(file.revision(), 0);
        assert_eq!(file.apply(1, b"new", false).unwrap(), ApplyOutcome::Changed);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!beside(&path, "new").exists());
    }

    #[test]
    fn states_in_a_directory_have_names_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let states = directory.path().join("states");
        for name in ["a", "b"] {
            let parent = directory.path().join(name);
            fs::create_dir(&parent).unwrap();
            let mut file = ManagedFile::open(settings(parent.join("app.json")), Some(&states)).unwrap();
            file.apply(3, b"x", false).unwrap();
        }
        assert_eq!(fs::read_dir(&states).unwrap().count(), 2);
    }
}
