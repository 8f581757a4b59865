//! The directory of a local cluster: whether `tidelock dev` made it, which cluster it holds, and
//! what `--fresh` may delete.
//!
//! Nothing is deleted that `tidelock dev` did not make. It marks a directory when it creates it or
//! finds it empty. It refuses a directory without the mark. In a marked one it removes only
//! `node-1` to `node-9`, and never a link.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidelock_client::CliError;

/// Name of the file that marks a directory as made by `tidelock dev`.
const MARK: &str = "tidelock-dev.json";

/// Directories of nodes that `--fresh` looks for.
const NODES_MAX: usize = 9;

/// Settings of the founding that cannot change, because the peers know one another by address.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Founding {
    pub nodes: usize,
    /// Peer port of the first node.
    pub peer_base: u16,
    /// Whether the nodes have certificates.
    #[serde(default)]
    pub secure: bool,
}

impl Founding {
    /// The flags that start this cluster.
    fn how_to_start(&self) -> String {
        let flags = format!("give --nodes {} --peer-base {}", self.nodes, self.peer_base);
        if self.secure { format!("{flags} --secure") } else { format!("{flags}, and not --secure") }
    }
}

/// Makes `dir` ready for a cluster founded as `founding`, emptied first if `fresh`.
pub fn prepare(dir: &Path, founding: &Founding, fresh: bool) -> Result<(), CliError> {
    let name = dir.display().to_string();
    fs::create_dir_all(dir).map_err(CliError::io(name.as_str()))?;
    let mark = dir.join(MARK);
    let kept = match fs::read(&mark) {
        Ok(bytes) => Some(serde_json::from_slice::<Founding>(&bytes).map_err(|error| {
            CliError::Stopped(format!(
                "{} is damaged ({error}); --data-dir chooses another directory",
                mark.display()
            ))
        })?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(CliError::io(mark.display().to_string())(error)),
    };
    match kept {
        Some(_) if fresh => remove_nodes(dir)?,
        Some(kept) if kept != *founding => {
            return Err(CliError::Stopped(format!(
                "{name} holds a cluster of {} nodes with peer ports from {}, {} TLS.\n\
                 To start it, {}. To keep it and found another one, name a directory with --data-dir; --fresh \
                 deletes it.",
                kept.nodes,
                kept.peer_base,
                if kept.secure { "with" } else { "without" },
                kept.how_to_start()
            )));
        }
        Some(_) => return Ok(()),
        None if is_empty(dir).map_err(CliError::io(name.as_str()))? => {}
        None => {
            return Err(CliError::Stopped(format!(
                "{name} was not made by `tidelock dev`, so it is left alone; --data-dir chooses another directory"
            )));
        }
    }
    let text = serde_json::to_string(founding).expect("invariant: two numbers are representable as JSON");
    fs::write(&mark, text + "\n").map_err(CliError::io(mark.display().to_string()))
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(dir)?.next().is_none())
}

fn remove_nodes(dir: &Path) -> Result<(), CliError> {
    for number in 1..=NODES_MAX {
        let node = dir.join(format!("node-{number}"));
        let removed = match fs::symlink_metadata(&node) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&node),
            Ok(_) => Err(io::Error::other("not a directory, so it is left alone")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(CliError::io(node.display().to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: Founding = Founding { nodes: 3, peer_base: 9001, secure: false };
    const FIVE: Founding = Founding { nodes: 5, peer_base: 9001, secure: false };

    fn write(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    #[test]
    fn data_stays_from_run_to_run() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        prepare(&dir, &THREE, false).unwrap();
        write(&dir.join("node-1/wal"));
        prepare(&dir, &THREE, false).unwrap();
        assert!(dir.join("node-1/wal").exists());
    }

    #[test]
    fn another_founding_needs_fresh() {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path(), &THREE, false).unwrap();
        write(&root.path().join("node-1/wal"));
        write(&root.path().join("notes.txt"));
        let refusal = prepare(root.path(), &FIVE, false).expect_err("three are not five").to_string();
        assert!(refusal.contains("give --nodes 3 --peer-base 9001, and not --secure."), "{refusal}");
        assert!(root.path().join("node-1/wal").exists());
        prepare(root.path(), &FIVE, true).unwrap();
        assert!(!root.path().join("node-1").exists());
        assert!(root.path().join("notes.txt").exists(), "not a node's directory");
        prepare(root.path(), &FIVE, false).unwrap();
    }

    #[test]
    fn a_strange_directory_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("node-1/thesis.tex"));
        for fresh in [false, true] {
            assert!(matches!(prepare(root.path(), &THREE, fresh), Err(CliError::Stopped(_))));
        }
        assert!(root.path().join("node-1/thesis.tex").exists());
    }

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        write(&elsewhere.path().join("precious"));
        prepare(root.path(), &THREE, false).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join("node-2")).unwrap();
        assert!(prepare(root.path(), &THREE, true).is_err());
        assert!(elsewhere.path().join("precious").exists());
    }
}
