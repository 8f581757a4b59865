//! The command line of `config`: what every change states, drafts, and copies between namespaces.

use clap::{Args, Subcommand};

/// Author, reason and condition of a change.
#[derive(Clone, Debug, Default, Args)]
pub struct TermsArgs {
    /// The author of the change, kept in the history
    #[arg(long, env = "TIDELOCK_AUTHOR", value_name = "NAME")]
    pub author: Option<String>,
    /// The reason for the change, kept in the history
    #[arg(long, short, value_name = "TEXT")]
    pub message: Option<String>,
    /// Change nothing unless the namespace is at this revision
    #[arg(long, value_name = "N")]
    pub expected: Option<u64>,
    /// Change nothing, and print how the documents would change
    #[arg(long)]
    pub dry_run: bool,
}

/// Who changes pairs and containers, why, and when.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Who and why.
    #[command(flatten)]
    pub terms: TermsArgs,
    /// Add the change to this draft, which is published later
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    pub draft: Option<String>,
}

/// The commands of `config draft`.
#[derive(Debug, Subcommand)]
pub enum DraftCommand {
    /// List the drafts of a namespace
    #[command(visible_alias = "ls")]
    List {
        /// The namespace
        namespace: String,
    },
    /// Show a draft with its comments, and how publishing it would change every document
    Show {
        /// The namespace
        namespace: String,
        /// The draft
        draft: String,
    },
    /// Comment on a draft
    Comment {
        /// Which draft.
        #[command(flatten)]
        item: DraftItemArgs,
        /// The comment
        text: String,
    },
    /// Approve a draft that somebody else has edited
    Approve {
        /// Which draft.
        #[command(flatten)]
        item: DraftItemArgs,
        /// Its number of edits when you reviewed it, as `draft show` prints it
        #[arg(long, value_name = "N")]
        edits: u64,
    },
    /// Publish a draft as one revision, to all readers
    Publish {
        /// Which draft.
        #[command(flatten)]
        item: DraftItemArgs,
        /// Only if the draft has this many edits
        #[arg(long, value_name = "N")]
        edits: Option<u64>,
    },
    /// Show a draft to a part of the readers first
    Canary {
        /// Which draft.
        #[command(flatten)]
        item: DraftItemArgs,
        /// A label of readers; with * at its end all labels that begin so
        #[arg(long = "label", value_name = "LABEL", required_unless_present = "percent")]
        labels: Vec<String>,
        /// The share of all other labels, chosen by a hash
        #[arg(long, value_name = "N", default_value_t = 0)]
        percent: u8,
        /// Only if the draft has this many edits
        #[arg(long, value_name = "N")]
        edits: Option<u64>,
    },
    /// Show all readers the newest revision again; the draft stays
    Withdraw {
        /// The namespace
        namespace: String,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Remove a draft
    Discard {
        /// Which draft.
        #[command(flatten)]
        item: DraftItemArgs,
    },
}

/// A draft, and who acts on it.
#[derive(Debug, Args)]
pub struct DraftItemArgs {
    /// The namespace
    pub namespace: String,
    /// The draft
    pub draft: String,
    /// Who and why.
    #[command(flatten)]
    pub terms: TermsArgs,
}

/// Arguments of `config compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The namespace
    pub namespace: String,
    /// The other namespace
    pub other: String,
}

/// Arguments of `config promote`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// The namespace whose content is taken over
    pub from: String,
    /// The namespace that is changed
    pub to: String,
    /// Take over the content of this revision instead of the newest
    #[arg(long, value_name = "N")]
    pub revision: Option<u64>,
    /// Only this pair or container; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub keys: Vec<String>,
    /// Delete what the other namespace does not have
    #[arg(long)]
    pub prune: bool,
    /// Let pairs and fields become ones of other datatypes
    #[arg(long)]
    pub retype: bool,
    /// Who and why.
    #[command(flatten)]
    pub terms: ChangeArgs,
}
