//! Checks what a search found.

use std::sync::Arc;

use tidelock_core::command::config::{Content, Item, SearchMatch, Value};

use super::ConfigState;

/// Whether these are all pairs and containers of the state in which `text` occurs, in order.
pub(in crate::checkers) fn finds(state: &ConfigState, text: &str, found: &[SearchMatch]) -> bool {
    let occurs = |value: &Value| match value {
        Value::Text(own) => own.contains(text),
        other => other.to_json().contains(text),
    };
    let pairs = state.pairs.iter().filter(|(key, value)| key.contains(text) || occurs(value));
    let pairs: Vec<_> = pairs.collect();
    let containers = state
        .containers
        .iter()
        .filter(|(key, fields)| key.contains(text) || fields.iter().any(|(field, _)| field.contains(text)));
    let containers: Vec<_> = containers.map(|(key, _)| key).collect();
    let (found_pairs, found_containers) = found.split_at(pairs.len().min(found.len()));
    let is_pair = |(found, (key, value)): (&SearchMatch, &(&Arc<str>, &Value))| {
        let has_value = matches!(&found.content, Content::Pair(pair) if *pair.value == **value);
        found.item == Item::Pair((*key).clone()) && has_value && found.containers == state.users_of(key)
    };
    let is_container =
        |(found, key): (&SearchMatch, &&Arc<str>)| found.item == Item::Container((*key).clone());
    found.len() == pairs.len() + containers.len()
        && found_pairs.iter().zip(&pairs).all(is_pair)
        && found_containers.iter().zip(&containers).all(is_container)
}
