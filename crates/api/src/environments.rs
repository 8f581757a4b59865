//! Environments: namespaces that inherit from others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Terms;

/// From which namespaces a namespace inherits, and how it may be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inheritance {
    /// The namespace's revision.
    pub revision: u64,
    /// The namespaces from which it inherits. The first that has a pair or container gives it.
    pub parents: Vec<String>,
    /// The namespaces that inherit from it directly.
    pub children: Vec<String>,
    /// Whether only approved drafts change it.
    #[serde(rename = "protected")]
    pub is_protected: bool,
    /// The draft that a part of its readers sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Canary")]
    pub canary: Option<Canary>,
}

/// A draft that a part of the readers sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Canary {
    /// The name of the draft.
    pub draft: String,
    /// The labels of these readers. One that ends with `*` stands for all labels that begin so.
    pub labels: Vec<String>,
    /// The share of all other labels that sees it, too.
    pub percent: u8,
}

/// The body of `POST …/parents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParentsRequest {
    /// Existing namespaces that share a hash slot with this one; none: it inherits nothing.
    #[schemars(length(max = 8))]
    pub parents: Vec<String>,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The body of `POST …/protection`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectionRequest {
    /// Whether only approved drafts change the namespace.
    #[serde(rename = "protected")]
    pub is_protected: bool,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}

/// The body of `POST …/promote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromoteRequest {
    /// The namespace whose content is taken over.
    pub from: String,
    /// Its content as of this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub revision: Option<u64>,
    /// Only the pairs and containers of these keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub keys: Option<Vec<String>>,
    /// Whether to delete what the other namespace does not have. What this one inherits stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prune: bool,
    /// Whether pairs and fields may become ones of other datatypes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retype: bool,
    /// Author, message and condition.
    #[serde(flatten)]
    pub terms: Terms,
}
