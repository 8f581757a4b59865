//! A directory of files in memory, of bounded size.
//!
//! Every write is durable at once: the targets damage files, not the order of writes, which the
//! tests of `storage` do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tidelock_core::storage::disk::{Disk, DiskError, DiskErrorKind, DiskFile};

/// A header may state a file of many gigabytes, which no test has room for.
const FILE_BYTES_MAX: u64 = 4 << 20;

type Content = Rc<RefCell<Vec<u8>>>;

/// The directory. Clones share the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Rc<RefCell<BTreeMap<String, Content>>>);

/// An open file.
#[derive(Debug)]
pub struct MemoryFile {
    name: String,
    content: Content,
}

impl MemoryDisk {
    /// Creates or replaces a file.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.0.borrow_mut().insert(name.to_owned(), Rc::new(RefCell::new(bytes)));
    }

    /// The content of a file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.0.borrow().get(name).map(|content| content.borrow().clone())
    }

    fn find(&self, operation: &'static str, name: &str) -> Result<Content, DiskError> {
        let files = self.0.borrow();
        let content = files.get(name).cloned();
        content.ok_or_else(|| failure(operation, name, DiskErrorKind::Other, "no such file"))
    }
}

fn failure(operation: &'static str, file: &str, kind: DiskErrorKind, reason: &str) -> DiskError {
    DiskError { operation, file: file.to_owned(), reason: reason.to_owned(), kind }
}

fn check_size(operation: &'static str, file: &str, bytes: u64) -> Result<usize, DiskError> {
    if bytes > FILE_BYTES_MAX {
        return Err(failure(operation, file, DiskErrorKind::NoRoom, "the disk is full"));
    }
    Ok(bytes as usize)
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.0.borrow().keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> Result<MemoryFile, DiskError> {
        if self.0.borrow().contains_key(name) {
            return Err(failure("create", name, DiskErrorKind::Other, "the file exists"));
        }
        self.put(name, vec![0; check_size("create", name, bytes)?]);
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<MemoryFile, DiskError> {
        Ok(MemoryFile { name: name.to_owned(), content: self.find("open", name)? })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let content = self.find("rename", from)?;
        let mut files = self.0.borrow_mut();
        files.remove(from);
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.find("remove", name)?;
        self.0.borrow_mut().remove(name);
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn size(&self) -> Result<u64, DiskError> {
        Ok(self.content.borrow().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let content = self.content.borrow();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        match content.get(from..from.saturating_add(buffer.len())) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(failure("read", &self.name, DiskErrorKind::Other, "the file ends before")),
        }
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let end = check_size("write", &self.name, offset.saturating_add(bytes.len() as u64))?;
        let mut content = self.content.borrow_mut();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn resize(&mut self, bytes: u64) -> Result<(), DiskError> {
        let bytes = check_size("resize", &self.name, bytes)?;
        self.content.borrow_mut().resize(bytes, 0);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}
