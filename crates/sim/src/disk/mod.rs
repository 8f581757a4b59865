//! A simulated disk in memory that loses, tears and refuses writes as real disks do.
//!
//! Owns the contract of [`Disk`] and everything that it leaves open. After a power loss, each
//! unsynced 512-byte sector has any of the contents that it had since its last sync, independently
//! of all other sectors. Unsynced changes of size may be lost or kept. A killed *process* loses
//! nothing, because the operating system keeps its pages. A later power loss can still lose its
//! unsynced data, which is why recovery has to sync the data that it accepts. Synced bytes change
//! only through [`SimDisk::flip_bit`].
//!
//! It deliberately has no latency: the host decides how long a write takes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tidelock_core::storage::disk::{Disk, DiskError, DiskErrorKind, DiskFile};

/// The unit in which unsynced bytes are kept or lost.
pub const SECTOR_BYTES: usize = 512;

/// A handle to a host's disk; clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Rc<RefCell<DiskState>>,
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    state: Rc<RefCell<DiskState>>,
    name: String,
    inode: u64,
    session: u64,
}

/// The files of a disk at one moment.
#[derive(Debug, Default)]
pub struct DiskCopy(BTreeMap<String, Vec<u8>>);

/// Totals of a disk since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Operations, reads excepted.
    pub operations: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Bytes written, synced or not.
    pub bytes_written: u64,
    /// Sectors that a power loss reverted to an earlier state.
    pub sectors_lost: u64,
    /// Operations that failed because there was no room, because the file system is read-only, or
    /// by an injected sync failure: the only disk errors for which a process may stop.
    pub refusals: u64,
}

#[derive(Debug)]
struct DiskState {
    names: BTreeMap<String, u64>,
    inodes: BTreeMap<u64, Inode>,
    inodes_created: u64,
    /// Handles of earlier sessions belong to dead processes; their operations have no effect.
    session: u64,
    faults: Faults,
    counters: DiskCounters,
    random: fastrand::Rng,
}

#[derive(Debug, Default)]
struct Faults {
    /// Bytes by which files may still grow; `None` for no limit.
    free_bytes: Option<u64>,
    /// Nothing can be changed; earlier writes can still be synced.
    read_only: bool,
    /// The process has no descriptor for another file.
    no_descriptors: bool,
    fail_next_sync: bool,
    /// Operations until the process dies inside one.
    operations_to_live: Option<u64>,
    dead: bool,
}

#[derive(Debug, Default)]
struct Inode {
    visible: Vec<u8>,
    /// The content at the last sync.
    durable: Vec<u8>,
    /// Every content of a sector since the last sync, oldest first; the last one is visible.
    unsynced: BTreeMap<usize, Vec<[u8; SECTOR_BYTES]>>,
}

/// How much unsynced data a power loss takes. Real disks do all of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsyncedLoss {
    Everything,
    Nothing,
    /// Sectors survive in order up to one that is torn.
    Tail,
    Scattered,
}

impl SimDisk {
    /// An empty disk without faults; `seed` decides which data power losses take.
    pub fn new(seed: u64) -> SimDisk {
        let state = DiskState {
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            inodes_created: 0,
            session: 0,
            faults: Faults::default(),
            counters: DiskCounters::default(),
            random: fastrand::Rng::with_seed(seed),
        };
        SimDisk { state: Rc::new(RefCell::new(state)) }
    }

    /// All files as they are now, as in a copy of the directory.
    pub fn copy(&self) -> DiskCopy {
        let state = self.state.borrow();
        let files =
            state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[inode].visible.clone()));
        DiskCopy(files.collect())
    }

    /// Replaces all files by a copy. No process may use the disk.
    pub fn put_back(&self, copy: DiskCopy) {
        let state = &mut *self.state.borrow_mut();
        state.session += 1;
        (state.names, state.inodes) = Default::default();
        for (name, bytes) in copy.0 {
            state.inodes_created += 1;
            state.names.insert(name, state.inodes_created);
            let inode = Inode { durable: bytes.clone(), visible: bytes, unsynced: BTreeMap::new() };
            state.inodes.insert(state.inodes_created, inode);
        }
    }

    /// Ends the process that used the disk. Its handles are dead; its writes stay visible and
    /// unsynced.
    pub fn kill(&self) {
        let state = &mut *self.state.borrow_mut();
        state.session += 1;
        state.faults.dead = false;
        state.faults.operations_to_live = None;
        // The next process starts with free descriptors.
        state.faults.no_descriptors = false;
        let names = &state.names;
        state.inodes.retain(|inode, _| names.values().any(|named| named == inode));
    }

    /// Ends the process by a power loss: a part of its unsynced data is lost.
    pub fn power_loss(&self) {
        self.kill();
        let state = &mut *self.state.borrow_mut();
        let loss = match state.random.u8(0..8) {
            0 => UnsyncedLoss::Everything,
            1 => UnsyncedLoss::Nothing,
            2..=4 => UnsyncedLoss::Tail,
            _ => UnsyncedLoss::Scattered,
        };
        for inode in state.inodes.values_mut() {
            state.counters.sectors_lost += inode.lose(loss, &mut state.random);
        }
    }

    /// The process dies inside the `operations`-th mutating operation from now: it is executed in
    /// part or not at all, and it and all later ones fail until [`SimDisk::kill`] or
    /// [`SimDisk::power_loss`] ends the session.
    pub fn die_after(&self, operations: u64) {
        self.state.borrow_mut().faults.operations_to_live = Some(operations);
    }

    /// Withdraws [`SimDisk::die_after`], if the process has not died yet.
    pub fn survive(&self) {
        self.state.borrow_mut().faults.operations_to_live = None;
    }

    /// Whether the process has died inside an operation.
    pub fn is_dead(&self) -> bool {
        self.state.borrow().faults.dead
    }

    /// Limits how much files may grow from now on; `None` lifts the limit.
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.state.borrow_mut().faults.free_bytes = free_bytes;
    }

    /// Makes the file system read-only, or writable again.
    pub fn set_read_only(&self, read_only: bool) {
        self.state.borrow_mut().faults.read_only = read_only;
    }

    /// Takes the process' last descriptor, or gives some back.
    pub fn set_no_descriptors(&self, no_descriptors: bool) {
        self.state.borrow_mut().faults.no_descriptors = no_descriptors;
    }

    /// Makes the next sync fail; an arbitrary part of the unsynced data is kept.
    pub fn fail_next_sync(&self) {
        self.state.borrow_mut().faults.fail_next_sync = true;
    }

    /// Withdraws [`SimDisk::fail_next_sync`].
    pub fn forgive_sync(&self) {
        self.state.borrow_mut().faults.fail_next_sync = false;
    }

    /// Flips one bit of a file, in the visible and in the durable content. Panics if the offset is
    /// outside of the file.
    pub fn flip_bit(&self, name: &str, bit: u64) {
        let mut state = self.state.borrow_mut();
        let inode = state.names[name];
        let inode = state.inodes.get_mut(&inode).expect("invariant: every name has its inode");
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        inode.visible[byte] ^= mask;
        if let Some(durable) = inode.durable.get_mut(byte) {
            *durable ^= mask;
        }
        for version in inode.unsynced.get_mut(&(byte / SECTOR_BYTES)).into_iter().flatten() {
            version[byte % SECTOR_BYTES] ^= mask;
        }
    }

    /// A file's visible bytes, for tests and for the trace of a failure.
    pub fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.borrow();
        Some(state.inodes[state.names.get(name)?].visible.clone())
    }

    /// Counts of the disk's operations.
    pub fn counters(&self) -> DiskCounters {
        self.state.borrow().counters
    }

    fn file(&self, name: &str, inode: u64, session: u64) -> SimFile {
        SimFile { state: Rc::clone(&self.state), name: name.into(), inode, session }
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.state.borrow().names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> Result<SimFile, DiskError> {
        let mut state = self.state.borrow_mut();
        state.expect_descriptor("create", name)?;
        let fate = state.begin("create", name)?;
        if state.names.contains_key(name) {
            return Err(error("create", name, "the file exists"));
        }
        state.reserve("create", name, bytes)?;
        if fate.takes_place(&mut state.random) {
            state.inodes_created += 1;
            let inode = state.inodes_created;
            let zeros = vec![0; bytes as usize];
            let file = Inode { visible: zeros.clone(), durable: zeros, unsynced: BTreeMap::new() };
            state.inodes.insert(inode, file);
            state.names.insert(name.into(), inode);
        }
        fate.verdict("create", name)?;
        Ok(self.file(name, state.names[name], state.session))
    }

    fn open(&self, name: &str) -> Result<SimFile, DiskError> {
        let mut state = self.state.borrow_mut();
        state.expect_descriptor("open", name)?;
        let inode = *state.names.get(name).ok_or_else(|| error("open", name, "no such file"))?;
        Ok(self.file(name, inode, state.session))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state.borrow_mut();
        let fate = state.begin("rename", from)?;
        let inode = *state.names.get(from).ok_or_else(|| error("rename", from, "no such file"))?;
        if fate.takes_place(&mut state.random) {
            state.names.remove(from);
            state.names.insert(to.into(), inode);
        }
        fate.verdict("rename", from)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state.borrow_mut();
        let fate = state.begin("remove", name)?;
        if !state.names.contains_key(name) {
            return Err(error("remove", name, "no such file"));
        }
        if fate.takes_place(&mut state.random)
            && let Some(inode) = state.names.remove(name)
        {
            // Open handles keep working on the orphan until the session ends, as under POSIX.
            let bytes = state.inodes.get(&inode).map_or(0, |file| file.visible.len() as u64);
            state.faults.release(bytes);
        }
        fate.verdict("remove", name)
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> Result<u64, DiskError> {
        let mut state = self.state.borrow_mut();
        Ok(state.inode("size", self)?.visible.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let mut state = self.state.borrow_mut();
        let visible = &state.inode("read", self)?.visible;
        let start = offset as usize;
        let source = visible
            .get(start..start + buffer.len())
            .ok_or_else(|| error("read", &self.name, "the file ends inside what was asked"))?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut state = self.state.borrow_mut();
        let size = state.inode("write", self)?.visible.len() as u64;
        let fate = state.begin("write", &self.name)?;
        let end = offset + bytes.len() as u64;
        if end > size {
            state.reserve("write", &self.name, end - size)?;
        }
        let written = match fate {
            Fate::Lives => bytes.len(),
            Fate::Dies => state.random.usize(0..=bytes.len()),
        };
        state.counters.bytes_written += written as u64;
        state.inode("write", self)?.write(offset as usize, &bytes[..written]);
        fate.verdict("write", &self.name)
    }

    fn resize(&mut self, bytes: u64) -> Result<(), DiskError> {
        let mut state = self.state.borrow_mut();
        let size = state.inode("resize", self)?.visible.len() as u64;
        let fate = state.begin("resize", &self.name)?;
        if bytes > size {
            state.reserve("resize", &self.name, bytes - size)?;
        } else {
            state.faults.release(size - bytes);
        }
        if fate.takes_place(&mut state.random) {
            state.inode("resize", self)?.resize(bytes as usize);
        }
        fate.verdict("resize", &self.name)
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        let mut state = self.state.borrow_mut();
        state.inode("sync", self)?;
        let fate = state.begin("sync", &self.name)?;
        if std::mem::take(&mut state.faults.fail_next_sync) {
            let mut random = state.random.fork();
            let lost = state.inode("sync", self)?.lose(UnsyncedLoss::Scattered, &mut random);
            state.counters.sectors_lost += lost;
            state.counters.refusals += 1;
            return Err(error("sync", &self.name, "input/output error"));
        }
        if fate.takes_place(&mut state.random) {
            state.inode("sync", self)?.sync();
        }
        state.counters.syncs += 1;
        fate.verdict("sync", &self.name)
    }
}

/// Whether the process survives the present operation.
#[derive(Clone, Copy)]
enum Fate {
    Lives,
    Dies,
}

impl Fate {
    fn takes_place(self, random: &mut fastrand::Rng) -> bool {
        match self {
            Fate::Lives => true,
            Fate::Dies => random.bool(),
        }
    }

    fn verdict(self, operation: &'static str, file: &str) -> Result<(), DiskError> {
        match self {
            Fate::Lives => Ok(()),
            Fate::Dies => Err(error(operation, file, "the process died here")),
        }
    }
}

impl Faults {
    fn release(&mut self, bytes: u64) {
        if let Some(free) = &mut self.free_bytes {
            *free += bytes;
        }
    }
}

impl DiskState {
    fn begin(&mut self, operation: &'static str, file: &str) -> Result<Fate, DiskError> {
        if self.faults.dead {
            return Err(error(operation, file, "the process is dead"));
        }
        if self.faults.read_only && operation != "sync" {
            self.counters.refusals += 1;
            let reason = "read-only file system";
            return Err(DiskError { kind: DiskErrorKind::ReadOnly, ..error(operation, file, reason) });
        }
        self.counters.operations += 1;
        if let Some(left) = &mut self.faults.operations_to_live {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.faults.dead = true;
                return Ok(Fate::Dies);
            }
        }
        Ok(Fate::Lives)
    }

    fn expect_descriptor(&mut self, operation: &'static str, file: &str) -> Result<(), DiskError> {
        if self.faults.no_descriptors {
            self.counters.refusals += 1;
            let kind = DiskErrorKind::NoDescriptors;
            return Err(DiskError { kind, ..error(operation, file, "too many open files") });
        }
        Ok(())
    }

    fn inode(&mut self, operation: &'static str, file: &SimFile) -> Result<&mut Inode, DiskError> {
        if file.session != self.session {
            return Err(error(operation, &file.name, "the process is dead"));
        }
        self.inodes.get_mut(&file.inode).ok_or_else(|| error(operation, &file.name, "no such file"))
    }

    fn reserve(&mut self, operation: &'static str, file: &str, bytes: u64) -> Result<(), DiskError> {
        match &mut self.faults.free_bytes {
            Some(free) if *free < bytes => {
                self.counters.refusals += 1;
                let reason = "no space left on device";
                Err(DiskError { kind: DiskErrorKind::NoRoom, ..error(operation, file, reason) })
            }
            Some(free) => {
                *free -= bytes;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn error(operation: &'static str, file: &str, reason: &str) -> DiskError {
    DiskError { operation, file: file.into(), reason: reason.into(), kind: DiskErrorKind::Other }
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if end > self.visible.len() {
            self.visible.resize(end, 0);
        }
        self.visible[offset..end].copy_from_slice(bytes);
        for sector in offset / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES {
            let content = sector_of(&self.visible, sector);
            self.unsynced.entry(sector).or_default().push(content);
        }
    }

    fn resize(&mut self, bytes: usize) {
        let kept = self.visible.len().min(bytes);
        self.visible.resize(bytes, 0);
        // The sectors of the difference change: their old content must not come back after a sync.
        for sector in kept / SECTOR_BYTES..self.visible.len().div_ceil(SECTOR_BYTES) {
            let content = sector_of(&self.visible, sector);
            self.unsynced.entry(sector).or_default().push(content);
        }
        self.unsynced.retain(|&sector, _| sector * SECTOR_BYTES < bytes);
    }

    fn sync(&mut self) {
        self.durable.resize(self.visible.len(), 0);
        for sector in std::mem::take(&mut self.unsynced).into_keys() {
            put_sector(&mut self.durable, sector, &sector_of(&self.visible, sector));
        }
    }

    /// Chooses the content of each unsynced sector and makes it both visible and durable. Returns
    /// how many sectors changed.
    fn lose(&mut self, loss: UnsyncedLoss, random: &mut fastrand::Rng) -> u64 {
        let resized = self.visible.len() != self.durable.len();
        if resized && (loss == UnsyncedLoss::Nothing || (loss != UnsyncedLoss::Everything && random.bool())) {
            self.durable.resize(self.visible.len(), 0);
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        let torn = random.usize(0..=unsynced.len());
        let mut lost = 0;
        for (order, (sector, versions)) in unsynced.into_iter().enumerate() {
            let survivors = match loss {
                UnsyncedLoss::Everything => 0,
                UnsyncedLoss::Nothing => versions.len(),
                UnsyncedLoss::Tail if order < torn => versions.len(),
                UnsyncedLoss::Tail if order > torn => 0,
                UnsyncedLoss::Tail | UnsyncedLoss::Scattered => random.usize(0..=versions.len()),
            };
            lost += u64::from(survivors < versions.len());
            if let Some(content) = survivors.checked_sub(1).and_then(|last| versions.get(last)) {
                put_sector(&mut self.durable, sector, content);
            }
        }
        self.visible.clone_from(&self.durable);
        lost
    }
}

/// One sector, padded with zeros after the end of the file.
fn sector_of(bytes: &[u8], sector: usize) -> [u8; SECTOR_BYTES] {
    let mut content = [0; SECTOR_BYTES];
    let start = (sector * SECTOR_BYTES).min(bytes.len());
    let end = (start + SECTOR_BYTES).min(bytes.len());
    content[..end - start].copy_from_slice(&bytes[start..end]);
    content
}

fn put_sector(bytes: &mut [u8], sector: usize, content: &[u8; SECTOR_BYTES]) {
    let start = (sector * SECTOR_BYTES).min(bytes.len());
    let end = (start + SECTOR_BYTES).min(bytes.len());
    bytes[start..end].copy_from_slice(&content[..end - start]);
}

#[cfg(test)]
mod tests;
