//! Drafts of configuration: changes under review, and canaries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{AUTHOR_CHARACTERS_MAX, Done, LABEL_CHARACTERS_MAX, Terms};

/// What somebody did to a draft, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Stamp {
    /// The principal of the request, or without one the name that the client stated.
    pub author: String,
    /// The name that the client of the principal stated, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = AUTHOR_CHARACTERS_MAX))]
    pub on_behalf_of: Option<String>,
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// The message of the request.
    pub message: String,
}

/// A draft without its changes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedDraft {
    /// Its name.
    pub name: String,
    /// Who created it.
    pub created: Stamp,
    /// How often it was edited. An approval states this number.
    pub edits: u64,
    /// The revision of the namespace at the last edit.
    pub revision: u64,
    /// All who edited it. They cannot approve it.
    pub authors: Vec<String>,
    /// The comments, the oldest first.
    pub comments: Vec<Stamp>,
    /// Who approved the draft as it is now.
    pub approvals: Vec<Stamp>,
}

/// A draft, and what publishing it would do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Draft {
    /// The draft.
    #[serde(flatten)]
    pub draft: ListedDraft,
    /// What would change, as a dry run shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Done")]
    pub effect: Option<Done>,
    /// Why its changes cannot be applied now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub error: Option<String>,
}

/// The body of `POST …/drafts/:name/comments`. The message is the comment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["message"]))]
pub struct CommentRequest {
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The body of `POST …/drafts/:name/approve`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApproveRequest {
    /// The edits of the draft that was reviewed: a later edit must not be approved unseen.
    pub edits: u64,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The body of `POST …/drafts/:name/publish`, which may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublishDraftRequest {
    /// Only if the draft has this many edits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub edits: Option<u64>,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The body of `POST …/drafts/:name/canary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CanaryRequest {
    /// The labels of the readers that see the draft. One that ends with `*` stands for all labels
    /// that begin so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = LABEL_CHARACTERS_MAX)))]
    pub labels: Vec<String>,
    /// This share of all other labels sees it, too.
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub percent: u8,
    /// Only if the draft has this many edits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub edits: Option<u64>,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}
