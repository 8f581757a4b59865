//! Encodes answers of the configuration centre as JSON: the envelope, and the objects of the
//! reference in it.
//!
//! Owns the shape of answers. Objects are written directly into the answer's buffer, keys in the
//! order of the reference.

use std::fmt::Write as _;

use tidelock_core::command::config::{
    Action, ChangeView, Container, Content, DocumentChange as Event, Field, Found, HistoryPage, Item, Name,
    NamespaceView, Pair, Refers, RevisionView, write_json_text,
};

use super::super::response::{self, Response};

/// What a page of history shows of each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryDetail {
    /// What was changed.
    Names,
    /// The content before and after, too.
    Contents,
}

/// The JSON text of an answer under construction.
pub(super) struct Show(pub String);

impl Show {
    /// Begins the envelope of a success.
    pub fn success() -> Show {
        Show(String::from(r#"{"errcode":0,"errmsg":"success","data":"#))
    }

    /// Ends the envelope and returns the text.
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// Ends the envelope and makes it an answer.
    pub fn respond(self) -> Response {
        response::json(self.finish().into_bytes())
    }

    pub fn raw(&mut self, text: &str) {
        self.0.push_str(text);
    }

    pub fn text(&mut self, text: &str) {
        write_json_text(text, &mut self.0);
    }

    pub fn number(&mut self, number: impl std::fmt::Display) {
        write!(self.0, "{number}").expect("invariant: a string takes every number");
    }

    /// Writes items with commas between them.
    pub fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut each: impl FnMut(&mut Show, T)) {
        self.raw("[");
        for (position, item) in items.into_iter().enumerate() {
            if position > 0 {
                self.raw(",");
            }
            each(self, item);
        }
        self.raw("]");
    }

    /// `{"key":…,"value":…,"datatype":…,"namespace":…}`.
    pub fn pair(&mut self, namespace: &Name, key: &str, pair: &Pair) {
        self.raw(r#"{"key":"#);
        self.text(key);
        self.raw(r#","value":"#);
        pair.value.write_json(&mut self.0);
        self.raw(r#","datatype":"#);
        self.number(pair.value.datatype() as u8);
        self.raw(r#","namespace":"#);
        self.text(namespace.as_str());
        self.raw("}");
    }

    /// A container in a list: its fields with their types only.
    pub fn container_in_list(&mut self, namespace: &Name, key: &str, container: &Container) {
        self.container_head(namespace, key, container);
        self.list(&container.fields, |show, field| {
            show.raw(r#"{"key":"#);
            show.text(&field.key);
            show.raw(r#","fieldType":"#);
            show.number(field.refers.field_type());
            show.raw("}");
        });
        self.raw("}");
    }

    fn container_head(&mut self, namespace: &Name, key: &str, container: &Container) {
        self.raw(r#"{"key":"#);
        self.text(key);
        self.raw(r#","namespace":"#);
        self.text(namespace.as_str());
        self.raw(r#","checkSum":""#);
        self.raw(&hex(&container.checksum));
        self.raw(r#"","fields":"#);
    }

    /// A container with every pair that it refers to.
    pub fn container(&mut self, namespace: &Name, key: &str, found: &Found) {
        self.container_head(namespace, key, &found.container);
        self.list(&found.container.fields, |show, field| {
            show.raw(r#"{"key":"#);
            show.text(&field.key);
            show.raw(r#","fieldType":"#);
            show.number(field.refers.field_type());
            show.raw(r#","value":"#);
            let pair = |show: &mut Show, key: &str| match found.pairs.get(key) {
                Some(pair) => show.pair(namespace, key, pair),
                None => show.raw("null"),
            };
            show.refers(&field.refers, pair);
            show.raw("}");
        });
        self.raw("}");
    }

    /// A field as a client sends it: its pairs by key.
    pub fn field_definition(&mut self, field: &Field) {
        self.raw(r#"{"key":"#);
        self.text(&field.key);
        self.raw(r#","fieldType":"#);
        self.number(field.refers.field_type());
        self.raw(r#","value":"#);
        self.refers(&field.refers, |show, key| show.text(key));
        self.raw("}");
    }

    fn refers(&mut self, refers: &Refers, mut pair: impl FnMut(&mut Show, &str)) {
        match refers {
            Refers::One(key) => pair(self, key),
            Refers::List(keys) => self.list(keys, |show, key| pair(show, key)),
            Refers::Dict(keys) => {
                self.raw("{");
                for (position, (name, key)) in keys.iter().enumerate() {
                    if position > 0 {
                        self.raw(",");
                    }
                    self.text(name);
                    self.raw(":");
                    pair(self, key);
                }
                self.raw("}");
            }
        }
    }

    pub fn namespace(&mut self, name: &Name, view: &NamespaceView) {
        self.raw(r#"{"namespace":"#);
        self.text(name.as_str());
        let NamespaceView { revision, oldest, pairs, containers, bytes, history_bytes, policy } = view;
        let (revisions, age_ms) = (policy.revisions, policy.age_ms);
        self.raw(&format!(
            r#","revision":{revision},"oldest":{oldest},"pairs":{pairs},"containers":{containers},"bytes":{bytes},"historyBytes":{history_bytes},"policy":{{"revisions":{revisions},"ageMs":{age_ms}}}}}"#
        ));
    }

    /// A page of history.
    pub fn history(&mut self, page: &HistoryPage, detail: HistoryDetail) {
        self.raw(r#"{"revision":"#);
        self.number(page.revision);
        self.raw(r#","oldest":"#);
        self.number(page.oldest);
        self.raw(r#","revisions":"#);
        self.list(&page.revisions, |show, view| show.revision(view, detail));
        self.raw(r#","next":"#);
        match page.next {
            Some(next) => self.number(next),
            None => self.raw("null"),
        }
        self.raw("}");
    }

    fn revision(&mut self, view: &RevisionView, detail: HistoryDetail) {
        self.raw(r#"{"revision":"#);
        self.number(view.number);
        self.raw(r#","author":"#);
        self.text(&view.stamp.author);
        self.raw(r#","time":"#);
        self.number(view.stamp.time_ms);
        self.raw(r#","message":"#);
        self.text(&view.stamp.message);
        self.raw(r#","action":"#);
        match view.action {
            Action::Create => self.raw(r#""create""#),
            Action::Publish => self.raw(r#""publish""#),
            Action::SetPolicy => self.raw(r#""policy""#),
            Action::Rollback { to } => self.raw(&format!(r#""rollback","to":{to}"#)),
        }
        self.raw(r#","changes":"#);
        self.list(&view.changes, |show, change| show.change(change, detail));
        self.raw("}");
    }

    fn change(&mut self, change: &ChangeView, detail: HistoryDetail) {
        let (kind, key) = match &change.item {
            Item::Pair(key) => ("pair", key),
            Item::Container(key) => ("container", key),
        };
        let action = action(change.before.as_ref(), change.after.as_ref());
        self.raw(&format!(r#"{{"kind":"{kind}","key":"#));
        self.text(key);
        self.raw(&format!(r#","action":"{action}""#));
        if detail == HistoryDetail::Contents {
            self.raw(r#","before":"#);
            self.content(change.before.as_ref());
            self.raw(r#","after":"#);
            self.content(change.after.as_ref());
        }
        self.raw("}");
    }

    /// The content of a pair or container, as a client would send it; `null` for none.
    pub fn content(&mut self, content: Option<&Content>) {
        match content {
            None => self.raw("null"),
            Some(Content::Pair(pair)) => {
                self.raw(r#"{"value":"#);
                pair.value.write_json(&mut self.0);
                self.raw(r#","datatype":"#);
                self.number(pair.value.datatype() as u8);
                self.raw("}");
            }
            Some(Content::Container(container)) => {
                self.raw(r#"{"fields":"#);
                self.list(&container.fields, |show, field| show.field_definition(field));
                self.raw("}");
            }
        }
    }

    /// An event of a container, as a watcher receives it.
    pub fn event(&mut self, namespace: &Name, key: &str, event: &Event) {
        self.raw(r#"{"namespace":"#);
        self.text(namespace.as_str());
        self.raw(r#","key":"#);
        self.text(key);
        self.raw(r#","revision":"#);
        self.number(event.revision);
        match &event.found {
            None => self.raw(r#","deleted":true}"#),
            Some(found) => {
                self.raw(r#","checkSum":""#);
                self.raw(&hex(&found.container.checksum));
                self.raw(r#"","data":"#);
                self.raw(&found.document());
                self.raw("}");
            }
        }
    }
}

/// What happened to something that was `before` and is `after`.
pub(super) fn action<T>(before: Option<T>, after: Option<T>) -> &'static str {
    match (before, after) {
        (None, _) => "create",
        (_, None) => "delete",
        _ => "update",
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("invariant: a string takes every digit");
        out
    })
}
