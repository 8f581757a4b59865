//! A disk for tests that tracks unsynced writes, and loses, tears or keeps them in a crash.
//!
//! Owns the faults; the seed of a test selects among them. Clones share the same files.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::disk::{Disk, DiskError, DiskErrorKind, DiskFile};

const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
pub struct MemoryDisk(Rc<RefCell<State>>);

#[derive(Debug)]
pub struct MemoryFile {
    disk: MemoryDisk,
    name: String,
    id: u64,
}

#[derive(Debug)]
struct State {
    names: BTreeMap<String, u64>,
    contents: BTreeMap<u64, FileContent>,
    ids: u64,
    rng: fastrand::Rng,
    /// Changes left until the crash; the last one is applied or not.
    fuse: Option<u64>,
    /// Free space in bytes.
    room: u64,
    failing_syncs: bool,
    refusal: Option<FailureMode>,
    no_descriptors: bool,
}

/// How changes other than syncs fail.
#[derive(Clone, Copy, Debug)]
struct FailureMode {
    kind: DiskErrorKind,
    /// Number of changes that still succeed.
    after: u64,
}

#[derive(Clone, Debug, Default)]
struct FileContent {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Unsynced sectors, in the order of writes.
    pending: Vec<(usize, Vec<u8>)>,
}

/// The effect of a crash on unsynced sectors.
#[derive(Clone, Copy, Debug)]
pub enum Crash {
    /// All are kept: the process died, the system did not.
    KeepsAll,
    LosesAll,
    /// Each sector has its content after the last sync, or after any later write.
    Tears,
}

impl MemoryDisk {
    pub fn new(seed: u64) -> MemoryDisk {
        MemoryDisk(Rc::new(RefCell::new(State {
            names: BTreeMap::new(),
            contents: BTreeMap::new(),
            ids: 0,
            rng: fastrand::Rng::with_seed(seed),
            fuse: None,
            room: u64::MAX,
            failing_syncs: false,
            refusal: None,
            no_descriptors: false,
        })))
    }

    /// Crashes during the change after `changes` others.
    pub fn set_fuse(&self, changes: u64) {
        self.0.borrow_mut().fuse = Some(changes + 1);
    }

    pub fn is_dead(&self) -> bool {
        self.0.borrow().fuse == Some(0)
    }

    pub fn set_room(&self, bytes: u64) {
        self.0.borrow_mut().room = bytes;
    }

    /// Makes syncs fail. As on some systems, a failed sync loses the unsynced content, but reads
    /// still show it.
    pub fn fail_syncs(&self, fail: bool) {
        self.0.borrow_mut().failing_syncs = fail;
    }

    /// Makes all changes fail after `after` others, until [`MemoryDisk::allow_changes`]. A failed
    /// write leaves a part of its bytes.
    pub fn refuse_changes(&self, kind: DiskErrorKind, after: u64) {
        self.0.borrow_mut().refusal = Some(FailureMode { kind, after });
    }

    pub fn allow_changes(&self) {
        self.0.borrow_mut().refusal = None;
    }

    /// Sets whether no file descriptor is left, so that files can neither be opened nor created.
    pub fn set_no_descriptors(&self, no_descriptors: bool) {
        self.0.borrow_mut().no_descriptors = no_descriptors;
    }

    /// Crashes and returns the disk as the next process finds it.
    pub fn crash(&self, crash: Crash) -> MemoryDisk {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let disk = MemoryDisk::new(state.rng.u64(..));
        let mut after = disk.0.borrow_mut();
        after.ids = state.ids;
        after.names = state.names.clone();
        for &id in state.names.values() {
            let content = &state.contents[&id];
            let bytes = match crash {
                Crash::KeepsAll => content.visible.clone(),
                Crash::LosesAll => content.durable.clone(),
                Crash::Tears => content.torn(&mut state.rng),
            };
            after
                .contents
                .insert(id, FileContent { visible: bytes.clone(), durable: bytes, pending: vec![] });
        }
        drop(after);
        disk
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.0.borrow();
        state.contents[&state.names[name]].visible.clone()
    }

    /// Stores a file durably, replacing any previous content.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.0.borrow_mut();
        state.ids += 1;
        let id = state.ids;
        state.names.insert(name.to_string(), id);
        state.contents.insert(id, FileContent { visible: bytes.clone(), durable: bytes, pending: vec![] });
    }

    /// Names and bytes of all files.
    pub fn all(&self) -> BTreeMap<String, Vec<u8>> {
        self.list().unwrap().into_iter().map(|name| (name.clone(), self.bytes(&name))).collect()
    }

    fn file(&self, name: &str, id: u64) -> MemoryFile {
        MemoryFile { disk: self.clone(), name: name.to_string(), id }
    }

    /// Makes a change, unless the disk has crashed, and crashes if the fuse ends.
    fn change(
        &self,
        operation: &'static str,
        name: &str,
        change: impl FnOnce(&mut State) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        if operation != "sync" {
            state.expect_allowed(operation, name)?;
        }
        let crashed = error(operation, name, "the disk has crashed");
        match &mut state.fuse {
            Some(0) => Err(crashed),
            Some(fuse) => {
                *fuse -= 1;
                let dies = *fuse == 0;
                if !dies || state.rng.bool() {
                    change(&mut state)?;
                }
                if dies { Err(crashed) } else { Ok(()) }
            }
            None => change(&mut state),
        }
    }
}

fn error(operation: &'static str, file: &str, reason: &str) -> DiskError {
    DiskError { operation, file: file.to_string(), reason: reason.to_string(), kind: DiskErrorKind::Other }
}

impl State {
    fn reserve(&mut self, operation: &'static str, file: &str, bytes: u64) -> Result<(), DiskError> {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Ok(())
            }
            None => Err(DiskError { kind: DiskErrorKind::NoRoom, ..error(operation, file, "no room") }),
        }
    }

    fn expect_descriptor(&self, operation: &'static str, file: &str) -> Result<(), DiskError> {
        if self.no_descriptors {
            let kind = DiskErrorKind::NoDescriptors;
            return Err(DiskError { kind, ..error(operation, file, "too many open files") });
        }
        Ok(())
    }

    fn expect_allowed(&mut self, operation: &'static str, file: &str) -> Result<(), DiskError> {
        match &mut self.refusal {
            None => Ok(()),
            Some(FailureMode { after: 0, kind }) => {
                Err(DiskError { kind: *kind, ..error(operation, file, "nothing can be changed") })
            }
            Some(FailureMode { after, .. }) => {
                *after -= 1;
                Ok(())
            }
        }
    }

    fn content(&mut self, id: u64) -> &mut FileContent {
        self.contents.get_mut(&id).unwrap()
    }
}

impl FileContent {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        assert!(end <= self.visible.len(), "nothing is ever written behind the end of a file");
        self.visible[offset..end].copy_from_slice(bytes);
        let mut sector = offset / SECTOR_BYTES * SECTOR_BYTES;
        while sector < end {
            let sector_end = (sector + SECTOR_BYTES).min(self.visible.len());
            self.pending.push((sector, self.visible[sector..sector_end].to_vec()));
            sector += SECTOR_BYTES;
        }
    }

    fn torn(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let mut versions: BTreeMap<usize, Vec<&Vec<u8>>> = BTreeMap::new();
        for (sector, bytes) in &self.pending {
            versions.entry(*sector).or_default().push(bytes);
        }
        let mut torn = self.durable.clone();
        for (sector, versions) in versions {
            if let Some(version) = versions.get(rng.usize(0..=versions.len())) {
                let end = torn.len().min(sector + version.len());
                torn[sector..end].copy_from_slice(&version[..end - sector]);
            }
        }
        torn
    }
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.0.borrow().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> Result<MemoryFile, DiskError> {
        self.0.borrow().expect_descriptor("create", name)?;
        self.change("create", name, |state| {
            if state.names.contains_key(name) {
                return Err(error("create", name, "it exists"));
            }
            state.reserve("create", name, bytes)?;
            state.ids += 1;
            state.names.insert(name.to_string(), state.ids);
            let zeros = vec![0; bytes as usize];
            let content = FileContent { visible: zeros.clone(), durable: zeros, pending: vec![] };
            state.contents.insert(state.ids, content);
            Ok(())
        })?;
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<MemoryFile, DiskError> {
        self.0.borrow().expect_descriptor("open", name)?;
        match self.0.borrow().names.get(name) {
            Some(&id) => Ok(self.file(name, id)),
            None => Err(error("open", name, "there is no such file")),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.change("rename", from, |state| {
            let id =
                state.names.remove(from).ok_or_else(|| error("rename", from, "there is no such file"))?;
            state.names.insert(to.to_string(), id);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.change("remove", name, |state| {
            let id =
                state.names.remove(name).ok_or_else(|| error("remove", name, "there is no such file"))?;
            let freed = state.contents[&id].visible.len() as u64;
            state.room = state.room.saturating_add(freed);
            Ok(())
        })
    }
}

impl DiskFile for MemoryFile {
    fn size(&self) -> Result<u64, DiskError> {
        Ok(self.disk.0.borrow_mut().content(self.id).visible.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let mut state = self.disk.0.borrow_mut();
        let visible = &state.content(self.id).visible;
        let end = offset as usize + buffer.len();
        let bytes =
            visible.get(offset as usize..end).ok_or_else(|| error("read", &self.name, "end of file"))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let written = self.disk.change("write", &self.name, |state| {
            state.content(self.id).write(offset as usize, bytes);
            Ok(())
        });
        if written.as_ref().is_err_and(|error| error.kind.is_retryable()) {
            let mut state = self.disk.0.borrow_mut();
            let part = state.rng.usize(..bytes.len());
            state.content(self.id).write(offset as usize, &bytes[..part]);
        }
        written
    }

    fn resize(&mut self, bytes: u64) -> Result<(), DiskError> {
        self.disk.change("resize", &self.name, |state| {
            let size = state.content(self.id).visible.len() as u64;
            state.reserve("resize", &self.name, bytes.saturating_sub(size))?;
            let content = state.content(self.id);
            content.visible.resize(bytes as usize, 0);
            content.durable.resize(bytes as usize, 0);
            content.pending.retain_mut(|(sector, written)| {
                written.truncate((bytes as usize).saturating_sub(*sector));
                !written.is_empty()
            });
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.disk.change("sync", &self.name, |state| {
            let fails = state.failing_syncs;
            let content = state.content(self.id);
            if fails {
                content.pending.clear();
                return Err(error("sync", &self.name, "input/output error"));
            }
            for (sector, bytes) in content.pending.drain(..) {
                content.durable[sector..sector + bytes.len()].copy_from_slice(&bytes);
            }
            Ok(())
        })
    }
}
