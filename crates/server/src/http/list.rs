//! `/v1/keys`: pages of keys in byte order over all shards.
//!
//! Owns the parameters, and writing a page with the members of `tidelock_api::keys`. The next page
//! begins after the last key of this one, so the server holds nothing between pages. With a
//! delimiter the keys are folded (`folders`).

use bytes::Bytes;
use tidelock_core::command::{Page, Read};
use tidelock_core::limits;
use tidelock_core::types::UnixMillis;

use super::folders::{Folder, FolderListing};
use super::json;
use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use super::ttl;
use super::uri::{self, Parameters};
use crate::store::Store;

/// Longest delimiter in bytes.
const DELIMITER_BYTES_MAX: usize = 16;

pub(super) async fn answer<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let parameters = call.parameters();
    let prefix: Bytes = parameters.key_bytes("prefix")?.unwrap_or_default();
    // The empty key does not exist and nothing precedes it: after it means from the start.
    let after = parameters.key_bytes("after")?.filter(|after: &Bytes| !after.is_empty());
    let (limit, keys_only) = (limit(parameters)?, parameters.flag("keys")?);
    let consistency = parameters.consistency()?;
    let (page, folders) = match parameters.get("delimiter")? {
        None => (call.page(Read::List { prefix, after, limit, keys_only }, consistency).await?, None),
        Some(delimiter) => {
            if !(1..=DELIMITER_BYTES_MAX).contains(&delimiter.len()) {
                let detail = format!("delimiter must have 1 to {DELIMITER_BYTES_MAX} bytes");
                return Err(Problem::invalid(detail));
            }
            let delimiter = Bytes::copy_from_slice(&delimiter);
            let mut folders = FolderListing::new(prefix, delimiter, after, limit);
            let held = call.held_bytes();
            while folders.take(call.page(folders.read(), consistency).await?) {
                // Most of the page is counted and dropped.
                call.set_held_bytes(held + folders.bytes());
            }
            call.charge_operations(folders.pages);
            (Page { items: folders.items, next: folders.next }, Some(folders.folders))
        }
    };
    let now = |key: &[u8]| ttl::leader_time(call.store(), call.context.clock, key);
    Ok(response::json(encode(&page, folders.as_deref(), now)))
}

/// The number of items that a page may have at most.
pub(super) fn limit(parameters: Parameters<'_>) -> Result<usize, Problem> {
    let Some(digits) = parameters.get("limit")? else { return Ok(limits::LIST_PAGE_ITEMS_MAX) };
    uri::parse_u64(&digits)
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| (1..=limits::LIST_PAGE_ITEMS_MAX).contains(limit))
        .ok_or_else(|| Problem::invalid(format!("limit must be 1 to {}", limits::LIST_PAGE_ITEMS_MAX)))
}

/// `{"items":[{"key":"a","ver":1,"val":"x"}],"next":null}`; keys that expire also have `ttl_ms`.
/// `now` returns the time by the clock of a key's leader.
fn encode(page: &Page, folders: Option<&[Folder]>, now: impl Fn(&[u8]) -> UnixMillis) -> Vec<u8> {
    let item_bytes = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    let bytes: usize = page.items.iter().map(|item| item.key.len() + item_bytes(&item.value) + 48).sum();
    let mut out = Vec::with_capacity(bytes + 64);
    out.extend_from_slice(b"{\"items\":[");
    for (position, item) in page.items.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.push(b'{');
        json::push_bytes_member(&mut out, "key", &item.key);
        json::push_number_member(&mut out, "ver", item.version.0);
        if let Some(expires) = item.expires {
            json::push_number_member(&mut out, "ttl_ms", ttl::remaining_ms(expires, now(&item.key)));
        }
        if let Some(value) = &item.value {
            json::push_bytes_member(&mut out, "val", value);
        }
        out.push(b'}');
    }
    out.push(b']');
    if let Some(folders) = folders {
        push_folders(&mut out, folders);
    }
    match &page.next {
        Some(next) => json::push_bytes_member(&mut out, "next", next),
        None => out.extend_from_slice(b",\"next\":null"),
    }
    out.push(b'}');
    out
}

fn push_folders(out: &mut Vec<u8>, folders: &[Folder]) {
    out.extend_from_slice(b",\"folders\":[");
    for (position, folder) in folders.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.push(b'{');
        json::push_bytes_member(out, "prefix", &folder.prefix);
        json::push_number_member(out, "keys", folder.keys);
        out.extend_from_slice(if folder.is_complete {
            b",\"complete\":true}"
        } else {
            b",\"complete\":false}"
        });
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use tidelock_api::keys::{KeyFolder, KeyItem, KeyPage};
    use tidelock_core::command::Item;
    use tidelock_core::types::Version;

    use super::*;

    #[test]
    fn pages_are_what_the_api_says() {
        let bytes = |bytes: &'static [u8]| Bytes::from_static(bytes);
        let item = |key, value, expires| Item {
            key: bytes(key),
            version: Version(7),
            value: Some(bytes(value)),
            expires,
        };
        let text = item(b"a", b"x", Some(UnixMillis(5_000)));
        let mut page = Page { items: vec![text, item(b"\xff", b"\xfe", None)], next: None };
        let parse = |page: &Page| -> KeyPage {
            serde_json::from_slice(&encode(page, None, |_| UnixMillis(2_000))).expect("a page")
        };
        let text = KeyItem { key: Some("a".into()), val: Some("x".into()), ttl_ms: Some(3_000), ..seven() };
        let base64 = KeyItem { key_b64: Some("/w==".into()), val_b64: Some("/g==".into()), ..seven() };
        let items = vec![text, base64];
        assert_eq!(parse(&page), KeyPage { items: items.clone(), ..KeyPage::default() });
        page.next = Some(bytes(b"b"));
        let next = Some("b".to_owned());
        assert_eq!(parse(&page), KeyPage { items: items.clone(), next, ..KeyPage::default() });
        page.next = Some(bytes(b"\xff"));
        let next_b64 = Some("/w==".to_owned());
        assert_eq!(parse(&page), KeyPage { items, next_b64, ..KeyPage::default() });
    }

    #[test]
    fn folders_are_what_the_api_says() {
        let folder =
            |prefix: &'static [u8], is_complete| Folder { prefix: prefix.into(), keys: 3, is_complete };
        let folders = [folder(b"a/", true), folder(b"\xff/", false)];
        let body = encode(&Page { items: vec![], next: None }, Some(&folders), |_| UnixMillis(0));
        let page: KeyPage = serde_json::from_slice(&body).expect("a page");
        let text = KeyFolder { prefix: Some("a/".into()), keys: 3, complete: true, ..KeyFolder::default() };
        let base64 = KeyFolder { prefix_b64: Some("/y8=".into()), keys: 3, ..KeyFolder::default() };
        assert_eq!(page, KeyPage { folders: Some(vec![text, base64]), ..KeyPage::default() });
    }

    fn seven() -> KeyItem {
        KeyItem { ver: 7, ..KeyItem::default() }
    }
}
