//! Previews: what a change would do to a namespace.
//!
//! Invariant: a preview is the change itself, applied to a copy that is then dropped. So the errors
//! and the effects of both are the same.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Config;
use super::namespace::Namespace;
use crate::command::ConfigWrite;
use crate::command::config::{
    ChangeView, ConfigError, ConfigOperation, ConfigPreview, ConfigWritten, Content, Item, Name, Preview,
    PreviewedDocument, Stamp, write_masked_document,
};

/// What a change would do, or the error that it would have.
pub(super) fn preview(config: &Config, name: &Name, change: &Preview) -> Result<ConfigPreview, ConfigError> {
    let Preview { expected, operation } = change.clone();
    let before = config.namespaces.get(name);
    let is_related =
        config.is_related(name) || matches!(change.operation, ConfigOperation::SetParents { .. });
    let mut copy = config.copy_for(name, is_related);
    // The history keeps revisions by the times in their stamps. A preview shows no history.
    let stamp = Stamp::default();
    let write = ConfigWrite { namespace: name.clone(), stamp, expected, operation };
    let ConfigWritten { changed, .. } = copy.apply(write)?;
    let inherited_by = copy.take_updates().into_iter().filter(|update| update.namespace != *name);
    let inherited_by = inherited_by.map(|update| (update.namespace, update.containers)).collect();
    let revision = before.map_or(0, |namespace| namespace.revision);
    let mut preview =
        ConfigPreview { revision, changed, changes: Vec::new(), documents: Vec::new(), inherited_by };
    let after = copy.namespaces.get(name);
    // A change of a draft makes no revision.
    if !changed || after.is_some_and(|after| after.revision == revision) {
        return Ok(preview);
    }
    let containers = match (before, after) {
        (_, Some(after)) => {
            let mut newest = after.page(None, None, 1).revisions;
            preview.changes = newest.pop().map(|revision| revision.changes).unwrap_or_default();
            after.changed_by(after.revision)
        }
        (Some(before), None) => {
            preview.changes = deletions(before);
            before.contents.containers.keys().cloned().collect()
        }
        (None, None) => Vec::new(),
    };
    preview.documents = containers
        .into_iter()
        .map(|container| PreviewedDocument {
            before: before.and_then(|before| document(before, &container)),
            after: after.and_then(|after| document(after, &container)),
            container,
        })
        .collect();
    Ok(preview)
}

impl Config {
    /// A copy that answers a change of a namespace as the original does. It shares the content,
    /// which a change copies as far as needed.
    pub(super) fn copy_for(&self, name: &Name, is_related: bool) -> Config {
        let (namespaces, children) = match self.namespaces.get_key_value(name) {
            Some((name, namespace)) if !is_related => {
                (BTreeMap::from([(name.clone(), namespace.clone())]), BTreeMap::new())
            }
            // Whether another namespace may be created depends on their number.
            _ => (self.namespaces.clone(), self.children.clone()),
        };
        let Config { floor, touched, faults, .. } = *self;
        Config { namespaces, children, floor, touched, news: Vec::new(), copy_on_write: None, faults }
    }
}

fn deletions(before: &Namespace) -> Vec<ChangeView> {
    let contents = &before.contents;
    let pairs =
        contents.pairs.iter().map(|(key, pair)| (Item::Pair(key.clone()), Content::Pair(pair.clone())));
    let containers = contents
        .containers
        .iter()
        .map(|(key, container)| (Item::Container(key.clone()), Content::Container(container.clone())));
    pairs
        .chain(containers)
        .map(|(item, content)| ChangeView { item, before: Some(content), after: None })
        .collect()
}

fn document(namespace: &Namespace, container: &str) -> Option<Arc<str>> {
    let contents = &namespace.contents;
    let container = contents.containers.get(container)?;
    let mut text = String::with_capacity(container.document_bytes);
    write_masked_document(container, |key| contents.pairs.get(key).map(|pair| &**pair), &mut text);
    Some(text.into())
}
