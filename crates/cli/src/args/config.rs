//! The command line of `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ClientArgs;
use super::config_changes::{ChangeArgs, CompareArgs, DraftCommand, PromoteArgs, TermsArgs};

/// Arguments of `config`.
#[derive(Debug, Args)]
#[command(after_help = "A pair is a typed value, a container a set of fields that refer to pairs:\n  \
    tidelock config ns create shop\n  \
    tidelock config pair set shop timeout 30\n  \
    tidelock config container set shop app timeout=timeout hosts=host-1,host-2\n  \
    tidelock config container get shop app --format yaml\n  \
    tidelock config container edit shop app limit=limit --remove hosts\n\n\
    Every change is a numbered revision of its namespace, and can be taken back:\n  \
    tidelock config diff shop app --from 3\n  \
    tidelock config rollback shop 3 --message 'the old timeout was better'\n\n\
    Several changes as one revision: tidelock config publish shop changes.json")]
pub struct ConfigArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The commands of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List, create, delete and describe namespaces, and set how much history they keep
    Ns {
        /// What to do.
        #[command(subcommand)]
        command: NsCommand,
    },
    /// Read and change pairs: typed values by key
    Pair {
        /// What to do.
        #[command(subcommand)]
        command: PairCommand,
    },
    /// Read and change containers: fields that refer to pairs, and the documents that result
    Container {
        /// What to do.
        #[command(subcommand)]
        command: ContainerCommand,
    },
    /// Find pairs and containers by a text in their keys or values, in all namespaces
    Search(SearchArgs),
    /// Read, set and remove schemas: what a value or a document must be
    Schema {
        /// What to do.
        #[command(subcommand)]
        command: SchemaCommand,
    },
    /// Encrypt secrets with another key
    Secrets {
        /// What to do.
        #[command(subcommand)]
        command: SecretsCommand,
    },
    /// Apply many changes of a namespace as one revision, or none
    ///
    /// The file is JSON: {"changes":[{"pair":"timeout","value":30},{"pair":"old","delete":true},
    /// {"container":"app","fields":[{"key":"timeout","fieldType":1,"value":"timeout"}]}]}.
    Publish(PublishArgs),
    /// List revisions, the newest first: who changed what, when and why
    History(HistoryArgs),
    /// Show the revision that wrote each value of a container: who, when and why
    Blame {
        /// The namespace
        namespace: String,
        /// Key of the container
        container: String,
    },
    /// Show the differences between two revisions
    Diff(DiffArgs),
    /// Changes that are reviewed before they are published, or shown to a part of the readers first
    Draft {
        /// The command.
        #[command(subcommand)]
        command: DraftCommand,
    },
    /// Show how one namespace would change if it had the content of another one
    Compare(CompareArgs),
    /// Give a namespace what another one has, as one revision
    Promote(PromoteArgs),
    /// Restore the content of an earlier revision, as a new revision
    Rollback(RollbackArgs),
    /// Print a container's document, or those of a whole namespace, and again whenever one changes,
    /// until Ctrl-C
    Watch(WatchArgs),
    /// List the clients that watch a namespace now, at all nodes
    Readers(ReadersArgs),
    /// Keep files up to date with containers, and run a command when they change
    Agent(AgentArgs),
    /// Import a file into a container, or an exported namespace
    Import(ImportArgs),
    /// Export a container's document, or a whole namespace
    Export(ExportArgs),
}

/// Arguments of `config search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What a key or a value contains; case matters
    pub text: String,
    /// Only namespaces whose names start with this prefix
    #[arg(long, value_name = "PREFIX")]
    pub namespaces: Option<String>,
    /// Maximum number of matches
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
}

/// The commands of `config ns`.
#[derive(Debug, Subcommand)]
pub enum NsCommand {
    /// List the namespaces
    #[command(visible_alias = "ls")]
    List {
        /// Only names that start with this prefix
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Create a namespace
    Create {
        /// The name, at most 128 characters
        name: String,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Delete a namespace and its history; with --force even if it holds pairs or containers
    #[command(visible_alias = "del")]
    Delete {
        /// The namespace
        namespace: String,
        /// Delete it even if it holds pairs or containers
        #[arg(long)]
        force: bool,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Show how much a namespace holds: revisions, pairs, containers, bytes
    Info {
        /// The namespace
        namespace: String,
    },
    /// Set how much history a namespace keeps
    Policy {
        /// The namespace
        namespace: String,
        /// Maximum number of revisions
        #[arg(long, value_name = "N", required_unless_present = "days")]
        revisions: Option<u64>,
        /// Maximum age of a revision, in days
        #[arg(long, value_name = "N")]
        days: Option<u64>,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Show from which namespaces one inherits, whether it is protected, and its canary
    Inheritance {
        /// The namespace
        namespace: String,
    },
    /// Set the namespaces from which one inherits every pair and container that it does not set
    ///
    /// The first parent that has an item gives it. All of them need the same hash slot: give their
    /// names the same beginning in braces, such as {shop}/base, {shop}/dev and {shop}/prod.
    Parents {
        /// The namespace
        namespace: String,
        /// The parents; none: it inherits nothing
        parents: Vec<String>,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// Let only drafts change a namespace that somebody else has approved
    Protect {
        /// The namespace
        namespace: String,
        /// End the protection
        #[arg(long)]
        off: bool,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
}

/// The commands of `config pair`.
#[derive(Debug, Subcommand)]
pub enum PairCommand {
    /// List the pairs of a namespace
    #[command(visible_alias = "ls")]
    List {
        /// The namespace
        namespace: String,
        /// Only keys that contain this text
        #[arg(default_value = "")]
        key: String,
    },
    /// Print a pair's value: text as it is, anything else as JSON
    Get {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// Read this revision instead of the newest
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        /// Print a secret instead of ********
        #[arg(long)]
        reveal: bool,
    },
    /// Create or replace a pair
    ///
    /// The value is JSON. Anything that is not JSON is text, and so is a number that would be
    /// printed differently, such as 1.10. --type sets the datatype. A pair keeps its datatype
    /// unless --type names another one. With --type secret the value is text. - reads the value
    /// from standard input, without a line break at its end; '"-"' is a dash.
    Set {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// The value: JSON or text; - reads standard input
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// The datatype; duration, bytes and enum are strings that later changes are held to, and a
        /// secret is text that is stored encrypted
        #[arg(long = "type", value_enum)]
        datatype: Option<Datatype>,
        /// The texts of --type enum
        #[arg(long, value_name = "TEXT,…", value_delimiter = ',', required_if_eq("datatype", "enum"))]
        values: Vec<String>,
        /// Who and why.
        #[command(flatten)]
        terms: ChangeArgs,
    },
    /// Delete a pair that no container uses
    #[command(visible_alias = "delete")]
    Del {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// Who and why.
        #[command(flatten)]
        terms: ChangeArgs,
    },
}

/// The commands of `config secrets`.
#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Encrypt every secret of a namespace again, with the first key of the node's key file
    ///
    /// Afterwards no secret of the namespace needs an older key, except those in the history.
    Rotate {
        /// The namespace
        namespace: String,
        /// Who and why.
        #[command(flatten)]
        terms: TermsArgs,
    },
}

/// The commands of `config container`.
#[derive(Debug, Subcommand)]
pub enum ContainerCommand {
    /// List the containers of a namespace, with their checksums
    #[command(visible_alias = "ls")]
    List {
        /// The namespace
        namespace: String,
        /// Only keys that contain this text
        #[arg(default_value = "")]
        key: String,
    },
    /// Print a container's document
    Get {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// The format
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
        /// Read this revision instead of the newest
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
        /// Read as a client with this label, which may be shown a canary
        #[arg(long)]
        label: Option<String>,
        /// Print secrets instead of ********
        #[arg(long)]
        reveal: bool,
    },
    /// Create or replace a container
    ///
    /// Each field is KEY=PAIR, KEY=PAIR,PAIR,… for a list (KEY=PAIR, with a comma at the end for a
    /// list of one), KEY=NAME:PAIR,NAME:PAIR,… for a dict, or KEY={"NAME":{"NAME":"PAIR"}} for a
    /// dict of dicts. --file takes the fields as JSON instead: {"fields":[…]}.
    Set {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// All fields of the container; those left out are removed
        #[arg(value_name = "FIELD", required_unless_present = "file")]
        fields: Vec<String>,
        /// Take the fields from this file; - reads standard input
        #[arg(long, value_name = "FILE", conflicts_with = "fields")]
        file: Option<PathBuf>,
        /// Allow fields to refer to pairs of another datatype than before
        #[arg(long)]
        retype: bool,
        /// Who and why.
        #[command(flatten)]
        terms: ChangeArgs,
    },
    /// Set or remove some fields of a container; its other fields stay
    ///
    /// Fields are as in `set`. If the namespace changes at the same time, nothing is changed and
    /// the exit code is 4: repeat the command.
    Edit(ContainerEditArgs),
    /// Delete a container; the pairs stay
    #[command(visible_alias = "delete")]
    Del {
        /// The namespace
        namespace: String,
        /// The key
        key: String,
        /// Who and why.
        #[command(flatten)]
        terms: ChangeArgs,
    },
}

/// Arguments of `config container edit`.
#[derive(Debug, Args)]
pub struct ContainerEditArgs {
    /// The namespace
    pub namespace: String,
    /// The key of the container
    pub key: String,
    /// Fields to add, or to replace
    #[arg(value_name = "FIELD", required_unless_present = "remove")]
    pub fields: Vec<String>,
    /// Remove the field with this key; repeat it for more
    #[arg(long, value_name = "KEY")]
    pub remove: Vec<String>,
    /// Allow fields to refer to pairs of another datatype than before
    #[arg(long)]
    pub retype: bool,
    /// Who and why.
    #[command(flatten)]
    pub terms: TermsArgs,
}

/// The commands of `config schema`.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Print a schema as JSON; null if there is none
    Get {
        /// What has the schema.
        #[command(flatten)]
        item: SchemaItemArgs,
        /// Read this revision instead of the newest
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
    },
    /// Set a schema; every later change is checked
    Set {
        /// What gets the schema.
        #[command(flatten)]
        item: SchemaItemArgs,
        /// A JSON Schema; - reads standard input
        file: PathBuf,
        /// Who and why.
        #[command(flatten)]
        terms: ChangeArgs,
    },
    /// Remove a schema
    #[command(visible_alias = "delete")]
    Del {
        /// What has the schema.
        #[command(flatten)]
        item: SchemaItemArgs,
        /// Who and why.
        #[command(flatten)]
        terms: ChangeArgs,
    },
}

/// A pair or a container of a namespace.
#[derive(Debug, Args)]
pub struct SchemaItemArgs {
    /// The namespace
    pub namespace: String,
    /// What it is
    #[arg(value_enum)]
    pub kind: ItemKind,
    /// Its key
    pub key: String,
}

/// A pair or a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ItemKind {
    /// A pair.
    Pair,
    /// A container.
    Container,
}

/// A datatype by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Datatype {
    /// Nothing.
    Empty,
    /// A whole number of 64 bits.
    Int,
    /// Text.
    String,
    /// A number.
    Float,
    /// True or false.
    Bool,
    /// Values of one datatype.
    List,
    /// Values by name.
    Dict,
    /// Text that is stored encrypted.
    Secret,
    /// Text such as 30s or 1h30m.
    Duration,
    /// Text such as 512B or 10MiB.
    Bytes,
    /// One of several texts, see --values.
    Enum,
}

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
    /// Java properties.
    Properties,
    /// Environment variables, for shells; written only.
    Env,
}

/// Arguments of `config publish`.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The namespace
    pub namespace: String,
    /// The changes; - reads standard input
    pub file: PathBuf,
    /// Create the namespace if it does not exist
    #[arg(long)]
    pub create: bool,
    /// Allow pairs and fields to change their datatypes
    #[arg(long)]
    pub retype: bool,
    /// Who and why.
    #[command(flatten)]
    pub terms: ChangeArgs,
}

/// One item of a namespace, or all of it.
#[derive(Debug, Args)]
pub struct ItemArgs {
    /// Only this pair
    #[arg(long, value_name = "KEY", conflicts_with = "container")]
    pub pair: Option<String>,
    /// Only this container
    #[arg(long, value_name = "KEY")]
    pub container: Option<String>,
}

/// Arguments of `config history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The namespace
    pub namespace: String,
    /// Of what.
    #[command(flatten)]
    pub item: ItemArgs,
    /// Maximum number of revisions to list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Only revisions before this one
    #[arg(long, value_name = "N")]
    pub before: Option<u64>,
}

/// Arguments of `config diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The namespace
    pub namespace: String,
    /// The container; without it, all pairs and containers
    pub container: Option<String>,
    /// The earlier revision
    #[arg(long, value_name = "N")]
    pub from: u64,
    /// The later revision [default: the newest]
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,
}

/// Arguments of `config rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// The namespace
    pub namespace: String,
    /// The revision whose content is restored
    pub revision: u64,
    /// Of what.
    #[command(flatten)]
    pub item: ItemArgs,
    /// Who and why.
    #[command(flatten)]
    pub terms: ChangeArgs,
}

/// Arguments of `config watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The namespace
    pub namespace: String,
    /// The container; without it, all containers of the namespace
    pub container: Option<String>,
    /// Print only changes after this revision
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,
    /// The name by which `config readers` lists this client
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Exit after this many changes
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Arguments of `config import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The namespace; created if missing
    pub namespace: String,
    /// The file; - reads standard input
    pub file: PathBuf,
    /// Make this container resolve to the document in the file, without fields that are not in it;
    /// without this option, the file is an exported namespace
    #[arg(long, value_name = "KEY")]
    pub container: Option<String>,
    /// The file's format [default: by its extension; of standard input json]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Delete the pairs and containers that the file of an exported namespace does not contain
    #[arg(long, conflicts_with = "container")]
    pub replace: bool,
    /// Allow pairs and fields to change their datatypes
    #[arg(long)]
    pub retype: bool,
    /// Who and why.
    #[command(flatten)]
    pub terms: ChangeArgs,
}

/// Arguments of `config export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The namespace
    pub namespace: String,
    /// This container's document; without it, all of the namespace
    #[arg(long, value_name = "KEY")]
    pub container: Option<String>,
    /// The format [default: by the extension of FILE, or json]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Read this revision instead of the newest
    #[arg(long, value_name = "N")]
    pub revision: Option<u64>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `config readers`.
#[derive(Debug, Args)]
pub struct ReadersArgs {
    /// The namespace
    pub namespace: String,
    /// Only clients that are sent the changes of this container
    pub container: Option<String>,
    /// Maximum number of clients to list
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

/// Arguments of `config agent`.
#[derive(Debug, Args)]
#[command(after_help = "The files of one command:\n  \
    tidelock config agent --file shop/app=/etc/app/config.yaml --exec 'systemctl reload app'\n\n\
    With --config, each file has its own command and permissions:\n  \
    exec = \"systemctl reload app\"     # of all files that state none\n  \
    [[file]]\n  \
    namespace = \"shop\"\n  \
    container = \"app\"\n  \
    path = \"/etc/app/config.yaml\"\n  \
    format = \"yaml\"                  # by default by the name of the file, otherwise json\n  \
    mode = \"0640\"                    # by default 0600\n  \
    exec = \"kill -HUP $(cat /run/app.pid)\"\n  \
    delete = false                   # whether the file goes with the container\n\n\
    SIGHUP reads that file again; SIGTERM ends the agent. If no node answers, the files stay as they\n\
    are, and the agent goes on trying.")]
pub struct AgentArgs {
    /// A container and the file that holds its document; may be repeated. The format is json, yaml,
    /// toml, properties or env [default: by the name of the file, otherwise json]
    #[arg(long = "file", value_name = "NAMESPACE/CONTAINER=PATH[:FORMAT]", conflicts_with = "config")]
    pub files: Vec<String>,
    /// Run this with `sh -c` after files have changed; TIDELOCK_FILES holds their paths, one a line
    #[arg(long, value_name = "COMMAND", conflicts_with = "config")]
    pub exec: Option<String>,
    /// The permissions of the files, octal [default: 0600]
    #[arg(long, value_name = "MODE", conflicts_with = "config")]
    pub mode: Option<String>,
    /// Delete a file when its container is deleted
    #[arg(long, conflicts_with = "config")]
    pub delete: bool,
    /// Write secrets into the files instead of ********
    #[arg(long, conflicts_with = "config")]
    pub reveal: bool,
    /// Take the files and their commands from this file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The name by which `config readers` lists this agent, such as the name of the host
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Write each file once, run the commands of those that changed, and exit
    #[arg(long)]
    pub once: bool,
    /// Keep the states in this directory instead of next to the files
    #[arg(long, value_name = "DIRECTORY")]
    pub state_dir: Option<PathBuf>,
    /// How long no file may have changed before its command runs, in milliseconds [default: 300]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub settle_ms: Option<u64>,
}
