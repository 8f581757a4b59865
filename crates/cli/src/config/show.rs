//! Configuration as tables for people.

use tidelock_api::config::{
    BlamedValue, ContainerContent, Content, FieldContent, ItemChange, Key, ListedContainer, Namespace, Pair,
    Policy, SearchMatch,
};
use tidelock_api::drafts::{ListedDraft, Stamp};
use tidelock_api::environments::Inheritance;
use tidelock_api::revisions::{History, Revision};
use tidelock_client::{keys, output};

use crate::time::rfc3339;

/// Characters of a value or a message that a table shows.
const PREVIEW_CHARACTERS: usize = 60;

/// Characters of a checksum that a table shows: enough to distinguish two.
const CHECKSUM_CHARACTERS: usize = 12;

/// Names of datatypes by number.
const DATATYPES: [&str; 8] = ["empty", "int", "string", "float", "bool", "list", "dict", "secret"];

fn text(text: &str) -> String {
    keys::printable(text.as_bytes())
}

fn preview(text: &str) -> String {
    match text.char_indices().nth(PREVIEW_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A name that a client has chosen, without control characters.
pub fn name(name: &str) -> String {
    text(name)
}

/// Table of drafts.
pub fn drafts(items: &[ListedDraft]) -> String {
    let row = |draft: &ListedDraft| {
        let names = |names: &[String]| names.iter().map(|name| text(name)).collect::<Vec<_>>().join(", ");
        let approvals: Vec<String> = draft.approvals.iter().map(|approval| approval.author.clone()).collect();
        vec![
            text(&draft.name),
            draft.edits.to_string(),
            preview(&names(&draft.authors)),
            preview(&names(&approvals)),
            draft.comments.len().to_string(),
            preview(&text(&draft.created.message)),
        ]
    };
    let titles = ["DRAFT", "EDITS", "AUTHORS", "APPROVED BY", "COMMENTS", "MESSAGE"];
    output::table(&titles, items.iter().map(row).collect())
}

/// What somebody did, in one line.
pub fn stamp(Stamp { author, on_behalf_of, time, message }: &Stamp) -> String {
    let author = if author.is_empty() { "somebody".to_owned() } else { text(author) };
    let for_whom = on_behalf_of.as_ref().map(|name| format!(" for {}", text(name))).unwrap_or_default();
    let message = if message.is_empty() { String::new() } else { format!(": {}", text(message)) };
    format!("by {author}{for_whom} at {}{message}", rfc3339(*time))
}

/// Table of the relations of a namespace.
pub fn inheritance(inheritance: &Inheritance) -> String {
    let names = |names: &[String]| match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| text(name)).collect::<Vec<_>>().join(", "),
    };
    let canary = inheritance.canary.as_ref().map_or_else(
        || "none".to_owned(),
        |canary| {
            let others = if canary.percent > 0 {
                format!(", {} % of the others", canary.percent)
            } else {
                String::new()
            };
            format!("draft {} for {}{others}", text(&canary.draft), names(&canary.labels))
        },
    );
    let facts = [
        ("revision", inheritance.revision.to_string()),
        ("inherits from", names(&inheritance.parents)),
        ("inherited by", names(&inheritance.children)),
        ("protected", if inheritance.is_protected { "yes" } else { "no" }.to_owned()),
        ("canary", canary),
    ];
    let rows = facts.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]);
    output::table(&[], rows.collect()) + "\n"
}

/// Table of pairs; of those of a namespace that inherits, with where they are set.
pub fn pairs(items: &[Pair]) -> String {
    let inherits = items.iter().any(|pair| pair.inherited_from.is_some());
    let row = |pair: &Pair| {
        let datatype = DATATYPES.get(usize::from(pair.datatype)).copied().unwrap_or("?");
        let mut cells = vec![text(&pair.key), datatype.to_owned(), preview(&pair.value.value().to_string())];
        if inherits {
            cells.push(pair.inherited_from.as_deref().map(text).unwrap_or_default());
        }
        cells
    };
    let titles = ["KEY", "TYPE", "VALUE", "INHERITED FROM"];
    output::table(&titles[..if inherits { 4 } else { 3 }], items.iter().map(row).collect())
}

/// Table of what a search found.
pub fn matches(items: &[SearchMatch]) -> String {
    let row = |found: &SearchMatch| {
        let value = found.value.as_ref().map(|value| value.value().to_string());
        let containers: Vec<String> = found.containers.iter().map(|key| text(key)).collect();
        vec![
            text(&found.namespace),
            text(&found.kind),
            text(&found.key),
            preview(&value.unwrap_or_default()),
            preview(&containers.join(", ")),
        ]
    };
    output::table(&["NAMESPACE", "KIND", "KEY", "VALUE", "CONTAINERS"], items.iter().map(row).collect())
}

/// Table of containers.
pub fn containers(items: &[ListedContainer]) -> String {
    let row = |item: &ListedContainer| {
        let fields: Vec<String> = item.fields.iter().map(|field| text(&field.key)).collect();
        let checksum: String = text(&item.check_sum).chars().take(CHECKSUM_CHARACTERS).collect();
        vec![text(&item.key), checksum, preview(&fields.join(", "))]
    };
    output::table(&["KEY", "CHECKSUM", "FIELDS"], items.iter().map(row).collect())
}

/// Table of one namespace.
pub fn namespace(info: &Namespace) -> String {
    let Policy { revisions, age_ms } = info.policy;
    let days = age_ms as f64 / 86_400_000.0;
    let facts = [
        ("namespace", text(&info.namespace)),
        ("revision", info.revision.to_string()),
        ("oldest kept", info.oldest.to_string()),
        ("pairs", info.pairs.to_string()),
        ("containers", info.containers.to_string()),
        ("bytes", info.bytes.to_string()),
        ("history", format!("{} bytes; at most {revisions} revisions, {days} days", info.history_bytes)),
    ];
    let rows = facts.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]);
    output::table(&[], rows.collect()) + "\n"
}

/// Table of the values of a container, with who wrote them.
pub fn blame(values: &[BlamedValue]) -> String {
    let row = |value: &BlamedValue| {
        let optional = |field: &Option<String>| text(field.as_deref().unwrap_or_default());
        vec![
            value.revision.to_string(),
            value.time.map(rfc3339).unwrap_or_default(),
            match &value.on_behalf_of {
                Some(name) => format!("{} for {}", optional(&value.author), text(name)),
                None => optional(&value.author),
            },
            text(&value.path),
            preview(&value.value.value().to_string()),
            preview(&optional(&value.message)),
        ]
    };
    let rows = values.iter().map(row).collect();
    output::table(&["REVISION", "TIME", "AUTHOR", "PATH", "VALUE", "MESSAGE"], rows)
}

/// Changes in one line: `+` for what is created, `-` for what is deleted.
fn changes(changes: &[ItemChange]) -> String {
    changes.iter().map(change).collect::<Vec<_>>().join(" ")
}

fn change(change: &ItemChange) -> String {
    let sign = match &*change.action {
        "create" => '+',
        "delete" => '-',
        _ => '~',
    };
    let kind = if change.kind == "container" { "container " } else { "" };
    format!("{sign}{kind}{}", text(&change.key))
}

/// Changes in one line, with the values of pairs and the fields of containers that they change:
/// `~timeout (30 -> 60) ~container app (-name +hosts)`.
pub fn effects(changes: &[ItemChange]) -> String {
    let shown = changes.iter().map(|item| {
        let effect = match (value(item.before.as_ref()), value(item.after.as_ref())) {
            (Some(before), Some(after)) if before == after => String::new(),
            (Some(before), Some(after)) => format!("{before} -> {after}"),
            (Some(value), None) | (None, Some(value)) => value,
            (None, None) => changed_fields(item),
        };
        if effect.is_empty() { change(item) } else { format!("{} ({effect})", change(item)) }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The value of a pair.
fn value(content: Option<&Content>) -> Option<String> {
    match content? {
        Content::Pair(pair) => pair.value.as_ref().map(|value| preview(&text(&value.value().to_string()))),
        Content::Container(_) | Content::None => None,
    }
}

/// The fields that a change of a container creates, removes or changes; empty if it is created or
/// deleted as a whole.
fn changed_fields(change: &ItemChange) -> String {
    let (Some(Content::Container(before)), Some(Content::Container(after))) = (&change.before, &change.after)
    else {
        return String::new();
    };
    let find = |content: &ContainerContent, key: &Key| -> Option<FieldContent> {
        content.fields.iter().find(|field| field.key == *key).cloned()
    };
    let removed = before.fields.iter().filter(|field| find(after, &field.key).is_none());
    let removed = removed.map(|field| format!("-{}", text(&field.key.0)));
    let others = after.fields.iter().filter_map(|field| match find(before, &field.key) {
        None => Some(format!("+{}", text(&field.key.0))),
        Some(found) if found != *field => Some(format!("~{}", text(&field.key.0))),
        Some(_) => None,
    });
    removed.chain(others).collect::<Vec<_>>().join(" ")
}

/// The changes that delete pairs, containers or fields.
pub fn deletions(changes: &[ItemChange]) -> Vec<ItemChange> {
    let deletes = |change: &&ItemChange| change.action == "delete" || changed_fields(change).starts_with('-');
    changes.iter().filter(deletes).cloned().collect()
}

/// Table of revisions; with the drafts that they published, if there are any.
pub fn history(page: &History) -> String {
    let has_drafts = page.revisions.iter().any(|revision| revision.draft.is_some());
    let row = |revision: &Revision| {
        let action = match revision.to {
            Some(to) => format!("{} to {to}", text(&revision.action)),
            None => text(&revision.action),
        };
        let mut cells = vec![
            revision.revision.to_string(),
            rfc3339(revision.time),
            match &revision.on_behalf_of {
                Some(name) => format!("{} for {}", text(&revision.author), text(name)),
                None => text(&revision.author),
            },
            action,
            preview(&changes(&revision.changes)),
            preview(&text(&revision.message)),
        ];
        if has_drafts {
            cells.push(revision.draft.as_deref().map(text).unwrap_or_default());
            cells.push(revision.approved_by.iter().map(|name| text(name)).collect::<Vec<_>>().join(", "));
        }
        cells
    };
    let titles = ["REVISION", "TIME", "AUTHOR", "ACTION", "CHANGES", "MESSAGE", "DRAFT", "APPROVED BY"];
    let shown = if has_drafts { &titles[..] } else { &titles[..6] };
    output::table(shown, page.revisions.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_name_values_and_fields() {
        let field = |key: &str, pair: &str| serde_json::json!({"key": key, "fieldType": 1, "value": pair});
        let changes: Vec<ItemChange> = serde_json::from_value(serde_json::json!([
            {"kind": "pair", "key": "a", "action": "update", "before": {"value": 2}, "after": {"value": 9}},
            {"kind": "pair", "key": "b", "action": "create", "before": null, "after": {"value": "x"}},
            {"kind": "pair", "key": "c", "action": "delete", "before": {"value": true}, "after": null},
            {"kind": "pair", "key": "d", "action": "update"},
            {"kind": "container", "key": "app", "action": "update",
             "before": {"fields": [field("kept", "a"), field("gone", "a"), field("other", "a")]},
             "after": {"fields": [field("kept", "a"), field("other", "b"), field("new", "b")]}},
            {"kind": "container", "key": "web", "action": "create", "before": null, "after": {"fields": []}},
        ]))
        .expect("changes");
        assert_eq!(
            effects(&changes),
            r#"~a (2 -> 9) +b ("x") -c (true) ~d ~container app (-gone ~other +new) +container web"#
        );
        assert_eq!(effects(&deletions(&changes)), "-c (true) ~container app (-gone ~other +new)");
    }

    #[test]
    fn history_is_a_table() {
        let page = serde_json::json!({"revision": 3, "oldest": 1, "next": null, "revisions": [
            {"revision": 3, "author": "ci", "on_behalf_of": "ann", "time": 1_795_219_200_000u64, "message": "better", "action": "rollback",
             "to": 1, "changes": [{"kind": "pair", "key": "p", "action": "update"},
                                  {"kind": "container", "key": "c", "action": "delete"}]},
            {"revision": 2, "author": "", "time": 0, "message": "", "action": "publish",
             "changes": [{"kind": "pair", "key": "p", "action": "create"}]},
        ]});
        let expected = "\
REVISION  TIME                  AUTHOR      ACTION         CHANGES          MESSAGE
3         2026-11-21T00:00:00Z  ci for ann  rollback to 1  ~p -container c  better
2         1970-01-01T00:00:00Z              publish        +p";
        let shown = history(&serde_json::from_value(page).expect("a page"));
        let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert_eq!(shown.join("\n"), expected);
    }
}
