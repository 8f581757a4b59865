//! Previews: they show the effect or the error of the change, and change nothing.

use super::*;
use crate::command::config::{ChangeView, ConfigPreview, Preview, PreviewedDocument};

type Documents = BTreeMap<Arc<str>, String>;

pub(super) fn preview(config: &Config, operation: ConfigOperation) -> Result<ConfigPreview, ConfigError> {
    preview_at(config, operation, None)
}

fn preview_at(
    config: &Config,
    operation: ConfigOperation,
    expected: Option<u64>,
) -> Result<ConfigPreview, ConfigError> {
    match ask(config, Query::Preview(Preview { expected, operation }.into())) {
        Ok(ConfigReply::Preview(preview)) => Ok(preview),
        Err(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// The documents of all containers.
pub(super) fn documents(config: &Config) -> Documents {
    let namespace = config.namespaces.get(&name());
    let keys = namespace.into_iter().flat_map(|namespace| namespace.contents.containers.keys());
    keys.map(|key| (key.clone(), document(config, key, None).expect("it resolves"))).collect()
}

/// Checks a preview against the effect of the change: the result, the revision and the documents
/// before it, and the state after it.
pub(super) fn assert_came_true(
    preview: &Result<ConfigPreview, ConfigError>,
    result: Result<(u64, bool), ConfigError>,
    (revision, before): (u64, Documents),
    config: &Config,
) {
    let (preview, (newest, changed)) = match (preview, result) {
        (Ok(preview), Ok(result)) => (preview, result),
        (preview, result) => {
            assert_eq!(preview.as_ref().err(), result.as_ref().err());
            return;
        }
    };
    assert_eq!((preview.revision, preview.changed), (revision, changed));
    let history = match ask(config, Query::History { item: None, before: None, limit: 1 }) {
        Ok(ConfigReply::History(page)) => page,
        other => panic!("{other:?}"),
    };
    let made = history.revisions.into_iter().filter(|view| changed && view.number == newest);
    assert_eq!(preview.changes, made.flat_map(|view| view.changes).collect::<Vec<ChangeView>>());
    let after = documents(config);
    let keys: BTreeSet<&Arc<str>> = before.keys().chain(after.keys()).collect();
    let differing = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    let expected = differing.map(|key| PreviewedDocument {
        container: key.clone(),
        before: before.get(key).map(|text| secrets::masked(text).into()),
        after: after.get(key).map(|text| secrets::masked(text).into()),
    });
    assert_eq!(preview.documents, expected.collect::<Vec<_>>());
}

fn of_publish(changes: Vec<Change>, create: bool) -> ConfigOperation {
    ConfigOperation::Publish { changes, create }
}

/// Container, document before, document after.
fn shown_documents(preview: &ConfigPreview) -> Vec<(&str, Option<&str>, Option<&str>)> {
    preview
        .documents
        .iter()
        .map(|document| (&*document.container, document.before.as_deref(), document.after.as_deref()))
        .collect()
}

#[test]
fn a_preview_shows_the_documents_that_would_change() {
    let config = sample();
    let found = preview(&config, of_publish(vec![int("p", 2), int("q", 1)], false)).expect("a preview");
    assert_eq!((found.revision, found.changed, found.changes.len()), (2, true, 2));
    assert_eq!(shown_documents(&found), [("c", Some("{\"f\":1}"), Some("{\"f\":2}"))]);
    let found = preview(&config, of_publish(vec![int("p", 1)], false)).expect("a preview");
    assert_eq!((found.revision, found.changed), (2, false));
    assert!(found.changes.is_empty() && found.documents.is_empty());
    // Another pair with the same value: the container changes, and its document does not.
    let changes = vec![int("q", 1), container("c", vec![one("f", "q")])];
    let found = preview(&config, of_publish(changes, false)).expect("a preview");
    assert_eq!((found.changes.len(), found.documents.len()), (2, 0));
}

#[test]
fn a_preview_of_a_deletion_shows_everything_that_would_be_lost() {
    let config = sample();
    let found = preview(&config, ConfigOperation::Delete { force: true }).expect("a preview");
    assert_eq!((found.revision, found.changed), (2, true));
    let items: Vec<&Item> = found.changes.iter().map(|change| &change.item).collect();
    assert_eq!(items, [&Item::Pair("p".into()), &Item::Container("c".into())]);
    assert!(found.changes.iter().all(|change| change.before.is_some() && change.after.is_none()));
    assert_eq!(shown_documents(&found), [("c", Some("{\"f\":1}"), None)]);
    let refused = preview(&config, ConfigOperation::Delete { force: false });
    assert_eq!(refused, Err(ConfigError::NamespaceNotEmpty { pairs: 1, containers: 1 }));
}

#[test]
fn a_preview_has_the_errors_of_the_change() {
    let config = sample();
    assert_eq!(
        preview_at(&config, of_publish(vec![int("p", 2)], false), Some(1)),
        Err(ConfigError::RevisionMismatch { current: 2 })
    );
    let in_use = ConfigError::PairInUse { pair: "p".into(), container: "c".into() };
    assert_eq!(preview(&config, of_publish(vec![delete_pair("p")], false)), Err(in_use));
    let empty = Config::default();
    assert_eq!(preview(&empty, of_publish(vec![int("p", 1)], false)), Err(ConfigError::NoNamespace));
    assert_eq!(preview(&empty, ConfigOperation::Delete { force: true }), Err(ConfigError::NoNamespace));
    let found = preview(&empty, of_publish(vec![int("p", 1)], true)).expect("a preview");
    assert_eq!((found.revision, found.changed, found.changes.len()), (0, true, 1));
    assert!(empty.namespaces.is_empty(), "a preview creates nothing");
}

#[test]
fn a_preview_counts_all_namespaces_of_the_shard() {
    let mut config = Config::default();
    for number in 0..limits::CONFIG_NAMESPACES_MAX {
        let name = Name::new(&alloc::format!("n{number}")).expect("a name");
        config.namespaces.insert(name, Arc::new(Namespace::above(0)));
    }
    assert_eq!(preview(&config, ConfigOperation::Create), Err(ConfigError::TooManyNamespaces));
}
