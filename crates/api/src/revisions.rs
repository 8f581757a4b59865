//! Revisions of configuration, and the differences between two of them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{AUTHOR_CHARACTERS_MAX, ItemChange, Json};

/// A page of history.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The namespace's newest revision.
    pub revision: u64,
    /// The oldest revision that history holds.
    pub oldest: u64,
    /// The revisions, the newest first.
    pub revisions: Vec<Revision>,
    /// `before` of the request for the next page; null at the end.
    pub next: Option<u64>,
}

/// A revision of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// Its number.
    pub revision: u64,
    /// Who made it: the principal of the request, or without one the name that the client stated.
    pub author: String,
    /// The name that the client of the principal stated, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = AUTHOR_CHARACTERS_MAX))]
    pub on_behalf_of: Option<String>,
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// Why.
    pub message: String,
    /// The operation that made it.
    #[schemars(extend("enum" = [
        "create", "publish", "policy", "rollback", "parents", "protect", "unprotect", "inherit", "canary", "withdraw"
    ]))]
    pub action: Cow<'static, str>,
    /// The revision whose content became current, of a rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub to: Option<u64>,
    /// The draft that it published, or that a part of the readers began or ceased to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub draft: Option<String>,
    /// Who had approved the draft.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved_by: Vec<String>,
    /// The change of another namespace from which this one inherited it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "InheritedRevision")]
    pub inherited_from: Option<InheritedRevision>,
    /// The pairs and containers that it changed.
    pub changes: Vec<ItemChange>,
}

/// A revision of the namespace from which another one inherits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct InheritedRevision {
    /// The namespace that was changed.
    pub namespace: String,
    /// Its revision.
    pub revision: u64,
}

/// The differences between two revisions of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceDiff {
    /// The first revision.
    pub from: u64,
    /// The second revision.
    pub to: u64,
    /// The pairs and containers that differ.
    pub changes: Vec<ItemChange>,
}

/// The differences between what a container resolved to at two revisions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContainerDiff {
    /// The first revision.
    pub from: u64,
    /// The second revision.
    pub to: u64,
    /// The document at the first revision; null if the container did not exist.
    pub before: Json,
    /// The document at the second revision; null if the container did not exist.
    pub after: Json,
    /// The paths in the document that differ.
    pub changes: Vec<PathChange>,
}

/// A path in a document that differs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PathChange {
    /// Keys, the outermost first.
    pub path: Vec<String>,
    /// How the value has changed.
    #[schemars(extend("enum" = ["create", "update", "delete"]))]
    pub action: Cow<'static, str>,
    /// The value before; null if there was none.
    pub before: Json,
    /// The value after; null if there is none.
    pub after: Json,
}
