//! `/v1/keys?delimiter=`: the keys directly below a prefix, and the folders among them.
//!
//! A folder is the common beginning of keys up to and with the first delimiter behind the prefix,
//! as the common prefixes of S3's `ListObjectsV2`. Owns how pages of keys become a listing, and its
//! bounds: a folder with more keys than [`FOLDER_KEYS_MAX`] is not counted to its end, and one
//! request reads at most [`PAGES_MAX`] pages. So its cost depends on neither the number of keys nor
//! the size of values.

use bytes::Bytes;
use tidelock_core::command::{Item, Page, Read};
use tidelock_core::limits;

/// Once so many keys of a folder are counted, the listing continues behind the folder.
const FOLDER_KEYS_MAX: u64 = limits::LIST_PAGE_ITEMS_MAX as u64;

/// Pages that one request reads at most.
const PAGES_MAX: usize = 20;

/// Keys with a common beginning that ends with the delimiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub prefix: Bytes,
    /// Number of its keys that were seen.
    pub keys: u64,
    /// Whether these are all.
    pub is_complete: bool,
}

/// A listing that reads one page of keys after the other.
#[derive(Debug)]
pub(super) struct FolderListing {
    prefix: Bytes,
    delimiter: Bytes,
    limit: usize,
    /// Number of pages that were read.
    pub pages: usize,
    after: Option<Bytes>,
    /// Keys directly below the prefix.
    pub items: Vec<Item>,
    pub folders: Vec<Folder>,
    /// Where the next request goes on.
    pub next: Option<Bytes>,
}

impl FolderListing {
    /// A listing that begins behind the key `after`, or, if that is the prefix of a folder, behind
    /// all keys of the folder. It has at most `limit` keys and folders together.
    pub fn new(prefix: Bytes, delimiter: Bytes, after: Option<Bytes>, limit: usize) -> FolderListing {
        let after = after.map(|after| {
            let is_folder =
                after.len() > prefix.len() && after.starts_with(&prefix) && after.ends_with(&delimiter);
            if is_folder { end_of(&after) } else { after }
        });
        let (items, folders) = Default::default();
        FolderListing { prefix, delimiter, limit, pages: 0, after, items, folders, next: None }
    }

    /// The next page that it needs.
    pub fn read(&self) -> Read {
        let (prefix, after) = (self.prefix.clone(), self.after.clone());
        Read::List { prefix, after, limit: limits::LIST_PAGE_ITEMS_MAX, keys_only: true }
    }

    /// Bytes of what it has listed so far.
    pub fn bytes(&self) -> usize {
        let items = self.items.iter().map(|item| item.key.len() + size_of::<Item>());
        let folders = self.folders.iter().map(|folder| folder.prefix.len() + size_of::<Folder>());
        items.sum::<usize>() + folders.sum::<usize>()
    }

    /// Takes that page. Returns whether it needs another one.
    pub fn take(&mut self, page: Page) -> bool {
        self.pages += 1;
        let Page { items, next } = page;
        for item in items {
            if !self.add(item) {
                self.next = self.last_entry();
                return false;
            }
        }
        let Some(next) = next else {
            self.next = None;
            return false;
        };
        self.after = Some(next.clone());
        if let Some(folder) = self.folders.last_mut()
            && next.starts_with(&folder.prefix)
        {
            folder.is_complete = folder.keys < FOLDER_KEYS_MAX && self.pages < PAGES_MAX;
            if !folder.is_complete {
                self.after = Some(end_of(&folder.prefix));
            }
        }
        if self.pages == PAGES_MAX {
            self.next = self.last_entry();
        }
        self.pages < PAGES_MAX
    }

    /// Adds a key. Returns false if the listing is full, which then ends before this key.
    fn add(&mut self, item: Item) -> bool {
        let rest = &item.key[self.prefix.len()..];
        let found = rest.windows(self.delimiter.len()).position(|window| window == self.delimiter);
        let folder = found.map(|start| item.key.slice(..self.prefix.len() + start + self.delimiter.len()));
        let is_full = self.items.len() + self.folders.len() == self.limit;
        match (folder, self.folders.last_mut()) {
            (Some(prefix), Some(last)) if last.prefix == prefix => last.keys += 1,
            _ if is_full => return false,
            (Some(prefix), _) => self.folders.push(Folder { prefix, keys: 1, is_complete: true }),
            (None, _) => self.items.push(item),
        }
        true
    }

    /// The greater one of the last key and the last folder.
    fn last_entry(&self) -> Option<Bytes> {
        let item = self.items.last().map(|item| item.key.clone());
        item.max(self.folders.last().map(|folder| folder.prefix.clone()))
    }
}

/// The greatest possible key with this prefix, or one that is greater.
fn end_of(prefix: &Bytes) -> Bytes {
    let mut end = prefix.to_vec();
    end.resize(limits::KEY_BYTES_MAX.max(prefix.len()), 0xff);
    end.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidelock_core::types::Version;

    use super::*;

    /// What a store with these keys answers.
    fn page(keys: &BTreeSet<Bytes>, read: &Read) -> Page {
        let Read::List { prefix, after, limit, .. } = read else { panic!("{read:?}") };
        let is_wanted =
            |key: &&Bytes| key.starts_with(prefix) && after.as_ref().is_none_or(|after| *key > after);
        let mut found = keys.iter().filter(is_wanted);
        let item = |key: &Bytes| Item { key: key.clone(), version: Version(1), value: None, expires: None };
        let items: Vec<Item> = found.by_ref().take(*limit).map(item).collect();
        let next = found.next().and(items.last()).map(|item| item.key.clone());
        Page { items, next }
    }

    fn fold(keys: &BTreeSet<Bytes>, mut folders: FolderListing) -> (FolderListing, usize) {
        let mut pages = 1;
        while folders.take(page(keys, &folders.read())) {
            pages += 1;
        }
        (folders, pages)
    }

    fn keys(texts: impl IntoIterator<Item = String>) -> BTreeSet<Bytes> {
        texts.into_iter().map(Bytes::from).collect()
    }

    fn new(prefix: &'static str, after: Option<&'static str>, limit: usize) -> FolderListing {
        FolderListing::new(prefix.into(), "/".into(), after.map(Bytes::from), limit)
    }

    fn shown(folders: &FolderListing) -> (Vec<String>, Vec<(String, u64, bool)>) {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("a text");
        let items = folders.items.iter().map(|item| text(&item.key)).collect();
        let folder = |folder: &Folder| (text(&folder.prefix), folder.keys, folder.is_complete);
        (items, folders.folders.iter().map(folder).collect())
    }

    #[test]
    fn keys_are_folded_at_the_first_delimiter_behind_the_prefix() {
        let stored = keys(["a", "app/", "app/b", "app/c/d", "app/c/e", "apple", "z/z"].map(String::from));
        let (whole, _) = fold(&stored, new("", None, 1_000));
        let folders = vec![("app/".to_owned(), 4, true), ("z/".to_owned(), 1, true)];
        assert_eq!(shown(&whole), (vec!["a".into(), "apple".into()], folders));
        assert_eq!(whole.next, None);
        let (below, _) = fold(&stored, new("app/", None, 1_000));
        let folders = vec![("app/c/".to_owned(), 2, true)];
        assert_eq!(shown(&below), (vec!["app/".into(), "app/b".into()], folders));
    }

    #[test]
    fn every_entry_is_on_one_page_whatever_the_limit() {
        let texts = (0..40).map(|number| match number % 4 {
            0 => format!("k{number}"),
            kind => format!("d{}/{number}", kind * (number / 8)),
        });
        let stored = keys(texts);
        let (whole, _) = fold(&stored, new("", None, 1_000));
        for limit in 1..8 {
            let (mut items, mut folders, mut after) = (Vec::new(), Vec::new(), None);
            loop {
                let (part, _) = fold(&stored, FolderListing::new("".into(), "/".into(), after, limit));
                assert!(part.items.len() + part.folders.len() <= limit);
                items.extend(part.items);
                folders.extend(part.folders);
                after = part.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!((&items, &folders), (&whole.items, &whole.folders), "{limit}");
        }
    }

    #[test]
    fn a_large_folder_is_counted_up_to_a_limit_and_passed_over() {
        let large = (0..5_000).map(|number| format!("large/{number:05}"));
        let stored = keys(large.chain(["last".to_owned()]));
        let (whole, pages) = fold(&stored, new("", None, 1_000));
        let folders = vec![("large/".to_owned(), FOLDER_KEYS_MAX, false)];
        assert_eq!((shown(&whole), pages), ((vec!["last".into()], folders), 2));
        let (behind, _) = fold(&stored, new("", Some("large/"), 1_000));
        assert_eq!(shown(&behind), (vec!["last".into()], vec![]));
    }

    #[test]
    fn one_request_reads_a_bounded_number_of_pages() {
        let many = (0..40).flat_map(|folder| (0..1_500).map(move |key| format!("{folder:02}/{key:04}")));
        let stored = keys(many);
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (part, pages) = fold(&stored, FolderListing::new("".into(), "/".into(), after, 1_000));
            assert!(pages <= PAGES_MAX);
            seen.extend(part.folders.into_iter().map(|folder| folder.prefix));
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..40).map(|folder| Bytes::from(format!("{folder:02}/"))).collect::<Vec<_>>());
    }
}
