//! Search in the keys and values of all namespaces.
//!
//! Owns the order of the namespaces, and how much of them one request reads. The core searches in a
//! namespace. A request reads a bounded number of steps, so a search over much configuration is
//! continued with the position that the answer names.

use std::collections::VecDeque;

use bytes::Bytes;
use tidelock_api::config as api;
use tidelock_core::command::config::{Name, Search};
use tidelock_core::command::{Consistency, Page, Read};
use tidelock_core::limits;

use super::super::response::Response;
use super::super::service::Call;
use super::error::ApiError;
use super::{ask_store, limit, path, queries, show, text};
use crate::requests::{self, NoAnswer};
use crate::store::Store;

/// Default number of matches on a page.
const PAGE_MATCHES: usize = 100;

/// Most steps that one request reads.
const STEPS_MAX: usize = 256;

/// Longest text to search for, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// `GET /search?text=&namespaces=&limit=&after=`: pairs and containers in the order of namespaces.
pub(super) async fn search<S: Store>(call: Call<'_, S>) -> Result<Response, ApiError> {
    let parameters = call.parameters();
    let wanted = text(parameters, "text")?.filter(|text| !text.is_empty());
    let wanted = wanted.ok_or_else(|| ApiError::invalid("text says what to search for"))?;
    if wanted.len() > TEXT_BYTES_MAX {
        return Err(ApiError::invalid(format!("text is at most {TEXT_BYTES_MAX} bytes long")));
    }
    let limit = limit(parameters, PAGE_MATCHES)?;
    let after = text(parameters, "after")?.map(|after| path::parse_position(&after)).transpose()?;
    let mut names = Names {
        prefix: text(parameters, "namespaces")?.unwrap_or_default().into(),
        consistency: parameters.consistency()?,
        last: after.as_ref().map(|(namespace, _)| namespace.clone()),
        page: VecDeque::new(),
        is_last_page: false,
    };
    // The namespace whose rest is searched next, and the item after which it begins.
    let mut unfinished = after.filter(|(_, item)| item.is_some());
    let mut matches = Vec::new();
    for _ in 0..STEPS_MAX {
        let (namespace, after) = match unfinished.take() {
            Some(unfinished) => unfinished,
            None => match names.next(&call).await? {
                Some(namespace) => (namespace, None),
                None => return Ok(show::respond(api::SearchPage { matches, next: None })),
            },
        };
        let search = Search { text: wanted.as_str().into(), after, limit: limit - matches.len() };
        let next = match ask_store(call.store(), &namespace, queries::search(search), names.consistency).await
        {
            Ok(page) => {
                matches.extend(page.matches.iter().map(|found| show::found(&namespace, found)));
                page.next
            }
            // It was deleted since its name was read.
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        unfinished = next.map(|item| (namespace, Some(item)));
        if matches.len() >= limit {
            break;
        }
    }
    let item = unfinished.as_ref().and_then(|(_, item)| item.as_ref());
    let next = names.last.as_ref().map(|namespace| path::position(namespace, item));
    Ok(show::respond(api::SearchPage { matches, next }))
}

/// The names of namespaces, in order.
struct Names {
    prefix: Bytes,
    consistency: Consistency,
    /// The name that was returned last.
    last: Option<Name>,
    /// The names after it that were read.
    page: VecDeque<Bytes>,
    is_last_page: bool,
}

impl Names {
    /// The next name; `None` at the end.
    async fn next<S: Store>(&mut self, call: &Call<'_, S>) -> Result<Option<Name>, ApiError> {
        if self.page.is_empty() && !self.is_last_page {
            let after = self.last.as_ref().map(|name| name.routing_key().clone());
            let limit = limits::LIST_PAGE_ITEMS_MAX;
            let read = Read::ConfigNamespaces { prefix: self.prefix.clone(), after, limit };
            let Page { items, next } = call.store().ask(requests::page(read, self.consistency)).await?;
            self.page = items.into_iter().map(|item| item.key).collect();
            self.is_last_page = next.is_none();
        }
        let Some(name) = self.page.pop_front() else { return Ok(None) };
        let name = std::str::from_utf8(&name).ok().and_then(|name| Name::new(name).ok());
        self.last = Some(name.ok_or_else(NoAnswer::mismatched)?);
        Ok(self.last.clone())
    }
}
