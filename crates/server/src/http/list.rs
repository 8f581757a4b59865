//! `/v1/keys`: pages of keys in byte order over all shards.
//!
//! Owns the parameters, and writing a page with the members of `tidelock_api::keys`. The next page
//! begins after the last key of this one, so the server holds nothing between pages.

use bytes::Bytes;
use tidelock_core::command::{Page, Read};
use tidelock_core::limits;
use tidelock_core::types::UnixMillis;

use super::json;
use super::problem::Problem;
use super::response::{self, Response};
use super::service::Call;
use super::ttl;
use super::uri::{self, Parameters};
use crate::store::Store;

pub(super) async fn answer<S: Store>(mut call: Call<'_, S>) -> Result<Response, Problem> {
    let parameters = call.parameters();
    let read = Read::List {
        prefix: parameters.key_bytes("prefix")?.unwrap_or_default(),
        // The empty key does not exist and nothing precedes it: after it means from the start.
        after: parameters.key_bytes("after")?.filter(|after: &Bytes| !after.is_empty()),
        limit: limit(parameters)?,
        keys_only: parameters.flag("keys")?,
    };
    let consistency = parameters.consistency()?;
    let page = call.page(read, consistency).await?;
    let now = |key: &[u8]| ttl::leader_time(call.store(), call.context.clock, key);
    Ok(response::json(encode(&page, now)))
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
fn encode(page: &Page, now: impl Fn(&[u8]) -> UnixMillis) -> Vec<u8> {
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
    match &page.next {
        Some(next) => json::push_bytes_member(&mut out, "next", next),
        None => out.extend_from_slice(b",\"next\":null"),
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use tidelock_api::keys::{KeyItem, KeyPage};
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
            serde_json::from_slice(&encode(page, |_| UnixMillis(2_000))).expect("a page")
        };
        let text = KeyItem { key: Some("a".into()), val: Some("x".into()), ttl_ms: Some(3_000), ..seven() };
        let base64 = KeyItem { key_b64: Some("/w==".into()), val_b64: Some("/g==".into()), ..seven() };
        let items = vec![text, base64];
        assert_eq!(parse(&page), KeyPage { items: items.clone(), ..KeyPage::default() });
        page.next = Some(bytes(b"b"));
        let next = Some("b".to_owned());
        assert_eq!(parse(&page), KeyPage { items: items.clone(), next, next_b64: None });
        page.next = Some(bytes(b"\xff"));
        let next_b64 = Some("/w==".to_owned());
        assert_eq!(parse(&page), KeyPage { items, next: None, next_b64 });
    }

    fn seven() -> KeyItem {
        KeyItem { ver: 7, ..KeyItem::default() }
    }
}
