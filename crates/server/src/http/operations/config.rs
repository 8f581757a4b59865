//! Operations of `/api`, the configuration centre.

use schemars::JsonSchema;
use serde_json::{Value, json};
use tidelock_api::{config as api, drafts, environments, revisions};
use tidelock_core::limits;

use super::native::stale;
use super::operation::{
    Failures, JSON, Operation, Parameter, Tag, flag, header, matching, number, query, text,
};
use super::schemas::schema_of;
use crate::http::config::{Config, Format, READERS_LISTED};

/// Formats in which a namespace can be exported, and those that can be imported.
const EXPORTED: &[Format] = &[Format::Json, Format::Yaml, Format::Toml];
const READ: &[Format] = &[Format::Json, Format::Yaml, Format::Toml, Format::Properties];

const CONFIGURATION: Tag = Tag("configuration", Failures::Envelope);

pub(super) fn operations() -> Vec<Operation> {
    let mut all = namespaces();
    all.extend(pairs());
    all.extend(containers());
    all.extend(watches());
    all.extend(schemas());
    all.extend(changes_of_many());
    all.extend(secrets());
    all.extend(histories());
    all.extend(environments());
    all.extend(drafts());
    all
}

fn operation(route: &'static str, endpoint: Config, id: &'static str, summary: &'static str) -> Operation {
    CONFIGURATION.operation(route, endpoint, id, summary)
}

fn limit(default: u64) -> Parameter {
    let max = limits::CONFIG_PAGE_ITEMS_MAX;
    let schema = json!({ "type": "integer", "minimum": 1, "maximum": max, "default": default });
    query("limit", schema, "Most items of the page")
}

fn page(default: u64, key: &'static str) -> [Parameter; 4] {
    [
        limit(default),
        query("offset", number(), "Items in front of the page"),
        query("key", text(), key),
        stale(),
    ]
}

fn revision() -> Parameter {
    query("revision", number(), "As of this revision")
}

fn reveal() -> Parameter {
    query("reveal", flag(), "Show secrets, which takes a permission of its own")
}

fn format(formats: &[Format]) -> Parameter {
    let names: Vec<&str> = formats.iter().map(|format| format.extension()).collect();
    query("format", json!({ "type": "string", "enum": names, "default": "json" }), "Of the file")
}

fn if_none_match() -> Parameter {
    header("If-None-Match", text(), "304 if the content still has this checksum, quoted")
}

/// The draft to which a change is added.
fn draft() -> Parameter {
    query(
        "draft",
        short(limits::CONFIG_KEY_CHARACTERS_MAX),
        "Add the change to this draft instead of making it",
    )
}

/// Author, message and expected revision of a change, and whether it is only previewed.
fn terms() -> [Parameter; 4] {
    [
        query("author", short(limits::CONFIG_AUTHOR_CHARACTERS_MAX), "Who changes it"),
        query("message", short(limits::CONFIG_MESSAGE_CHARACTERS_MAX), "Why"),
        query("expected", number(), "Only while the namespace is at this revision; 0: is not there"),
        query("dry_run", flag(), "Change nothing, and answer what would change"),
    ]
}

fn short(characters: usize) -> Value {
    json!({ "type": "string", "maxLength": characters })
}

fn retype() -> Parameter {
    query("retype", flag(), "Pairs and fields may become ones of other datatypes")
}

fn create() -> Parameter {
    query("create", flag(), "Make the namespace if there is none")
}

/// An answer in its envelope.
fn envelope<T: JsonSchema>() -> Value {
    schema_of::<api::Success<T>>()
}

/// The answer to a change.
fn done(operation: Operation) -> Operation {
    operation.gives_json(
        envelope::<api::Done>(),
        "The namespace's revision, and whether it is a new one; of a dry run, what would change",
    )
}

/// A file of any of these formats.
fn file(formats: &[Format]) -> Vec<(&'static str, Value)> {
    // The document is whatever the pairs make it.
    formats.iter().map(|format| (format.media_type(), json!({}))).collect()
}

fn namespaces() -> Vec<Operation> {
    vec![
        operation(
            "get /api/namespaces",
            Config::Namespaces,
            "listNamespaces",
            "Names of namespaces, in order",
        )
        .asks(page(100, "Only names that begin with this"))
        .gives_json(envelope::<Vec<String>>(), "The names"),
        operation(
            "get /api/search",
            Config::Search,
            "searchConfiguration",
            "Pairs and containers with a text in their keys or values",
        )
        .asks([
            query("text", json!({ "type": "string", "minLength": 1, "maxLength": 1024 }), "Case matters")
                .required(),
            query("namespaces", text(), "Only in namespaces whose names begin with this"),
            limit(100),
            query("after", text(), "The next of the page before"),
            stale(),
        ])
        .gives_json(envelope::<api::SearchPage>(), "What was found"),
        operation(
            "get /api/namespaces/{namespace}",
            Config::Namespace,
            "getNamespace",
            "Revision, sizes and policy of a namespace",
        )
        .asks([stale()])
        .gives_json(envelope::<api::Namespace>(), "What it is")
        .fails([404]),
        done(operation(
            "post /api/namespaces/{namespace}",
            Config::CreateNamespace,
            "createNamespace",
            "Makes a namespace",
        ))
        .asks(terms())
        .fails([409, 413]),
        done(operation(
            "delete /api/namespaces/{namespace}",
            Config::DeleteNamespace,
            "deleteNamespace",
            "Deletes a namespace and its history",
        ))
        .asks(terms())
        .asks([query("force", flag(), "Also if it is not empty")])
        .fails([404, 409]),
    ]
}

fn pairs() -> Vec<Operation> {
    vec![
        operation(
            "get /api/namespaces/{namespace}/pairs",
            Config::Pairs,
            "listPairs",
            "Pairs of a namespace, by key",
        )
        .asks(page(10, "Only keys that hold this"))
        .gives_json(envelope::<api::PairPage>(), "A page of them")
        .fails([404]),
        operation("get /api/namespaces/{namespace}/pairs/{key}", Config::Pair, "getPair", "One pair")
            .asks([revision(), reveal(), stale()])
            .gives_json(envelope::<api::Pair>(), "The pair")
            .fails([404, 409]),
        operation(
            "get /api/namespaces/{namespace}/pairs/{key}/containers",
            Config::PairContainers,
            "pairContainers",
            "Keys of the containers that refer to a pair, in order",
        )
        .asks([stale()])
        .gives_json(envelope::<Vec<String>>(), "The keys")
        .fails([404]),
        done(operation(
            "post /api/namespaces/{namespace}/pairs/{key}",
            Config::PutPair,
            "putPair",
            "Creates or replaces a pair",
        ))
        .asks(terms())
        .asks([create(), retype(), draft()])
        .takes_json(schema_of::<api::PairContent>())
        .fails([404, 409, 413]),
        done(operation(
            "delete /api/namespaces/{namespace}/pairs/{key}",
            Config::DeletePair,
            "deletePair",
            "Deletes a pair that is not used",
        ))
        .asks(terms())
        .asks([draft()])
        .fails([404, 409]),
    ]
}

fn containers() -> Vec<Operation> {
    vec![
        operation("get /api/namespaces/{namespace}/containers", Config::Containers, "listContainers", "Containers of a namespace, by key")
            .asks(page(10, "Only keys that hold this"))
            .gives_json(envelope::<api::ContainerPage>(), "A page of them")
            .fails([404]),
        operation("get /api/namespaces/{namespace}/containers/{key}", Config::Container, "getContainer", "A container with its pairs")
            .asks([revision(), reveal(), label(), stale(), if_none_match()])
            .gives_json(envelope::<api::Container>(), "The container")
            .with_header(200, "ETag", "The checksum, quoted")
            .gives_nothing(304, "The client has it")
            .fails([404, 409]),
        done(operation(
            "post /api/namespaces/{namespace}/containers/{key}", Config::PutContainer,
            "putContainer",
            "Creates or replaces a container",
        ))
        .asks(terms())
        .asks([create(), retype(), draft()])
        .takes_json(schema_of::<api::ContainerContent>())
        .fails([404, 409, 413]),
        done(operation(
            "delete /api/namespaces/{namespace}/containers/{key}", Config::DeleteContainer,
            "deleteContainer",
            "Deletes a container",
        ))
        .asks(terms())
        .asks([draft()])
        .fails([404, 409]),
        operation(
            "get /api/namespaces/{namespace}/containers/{key}/dl", Config::DownloadContainer,
            "downloadContainer",
            "What a container resolves to, as a file",
        )
        .asks([format(&Format::ALL), query("filename", text(), "Of the attachment"), revision(), reveal(), label(), stale(), if_none_match()])
        .gives(200, file(&Format::ALL), "The document")
        .gives_nothing(304, "The client has it")
        .fails([404, 409]),
        done(operation(
            "post /api/namespaces/{namespace}/containers/{key}/import", Config::ImportContainer,
            "importContainer",
            "Makes a container resolve to a document",
        ))
        .asks(terms())
        .asks([format(READ), create(), retype(), draft()])
        .takes(file(READ))
        .fails([404, 409, 413]),
        operation(
            "get /api/namespaces/{namespace}/containers/{key}/watch", Config::WatchContainer,
            "watchContainer",
            "What a container resolves to, whenever that changes",
        )
        .asks([
            header("Last-Event-ID", matching("^[0-9]{1,20}$"), "Go on behind this revision"),
            query("index", number(), "A long poll: what happened behind this revision"),
            wait(),
            label(),
        ])
        .gives(
            200,
            [("text/event-stream", text()), (JSON, envelope::<api::Changes>())],
            "Server-sent events change, deleted and gap, whose data are of the schema Event; or a long poll's answer",
        )
        .fails([404]),
    ]
}

fn wait() -> Parameter {
    let schema = matching("^[0-9]{1,16}(ms|s|m|h|d)?$");
    query("wait", schema, "A long poll: how long at most, such as 30s or 1500ms")
}

fn label() -> Parameter {
    query(
        "label",
        short(api::LABEL_CHARACTERS_MAX),
        "The name of the client, such as that of its host, in the list of readers and for canaries",
    )
}

/// Watching a whole namespace, and who watches.
fn watches() -> Vec<Operation> {
    vec![
        operation(
            "get /api/namespaces/{namespace}/watch",
            Config::WatchNamespace,
            "watchNamespace",
            "What every container of a namespace resolves to, whenever that changes",
        )
        .asks([
            header("Last-Event-ID", matching(api::POSITION), "Go on behind this event or revision"),
            query("index", matching(api::POSITION), "A long poll: what happened behind this index or revision"),
            wait(),
            label(),
        ])
        .gives(
            200,
            [("text/event-stream", text()), (JSON, envelope::<api::NamespaceChanges>())],
            "Server-sent events change, deleted, gap and current, whose data are of the schema Event; or a long \
             poll's answer",
        )
        .fails([404]),
        operation(
            "get /api/namespaces/{namespace}/readers",
            Config::Readers,
            "namespaceReaders",
            "The clients that watch a namespace or its containers now, at all nodes",
        )
        .asks([
            query("container", text(), "Only clients that are sent the changes of this container"),
            query("local", flag(), "Only clients of the node that answers"),
            limit(READERS_LISTED as u64),
            stale(),
        ])
        .gives_json(envelope::<api::Readers>(), "The clients, and the nodes that did not answer")
        .fails([404]),
    ]
}

fn schemas() -> Vec<Operation> {
    let get = |route, endpoint, id, summary| {
        operation(route, endpoint, id, summary)
            .asks([revision(), stale()])
            .gives_json(envelope::<Option<api::Json>>(), "The schema, or null")
            .fails([404])
    };
    let put = |route, endpoint, id, summary| {
        done(operation(route, endpoint, id, summary))
            .asks(terms())
            .asks([draft()])
            .takes_json(json!({ "type": ["object", "boolean"] }))
            .fails([404, 409, 413])
    };
    let delete = |route, endpoint, id, summary| {
        done(operation(route, endpoint, id, summary)).asks(terms()).asks([draft()]).fails([404, 409])
    };
    vec![
        get(
            "get /api/namespaces/{namespace}/pairs/{key}/schema",
            Config::PairSchema,
            "getPairSchema",
            "What the value of a pair must be",
        ),
        put(
            "post /api/namespaces/{namespace}/pairs/{key}/schema",
            Config::PutPairSchema,
            "putPairSchema",
            "Sets what the value of a pair must be",
        ),
        delete(
            "delete /api/namespaces/{namespace}/pairs/{key}/schema",
            Config::DeletePairSchema,
            "deletePairSchema",
            "Removes the schema of a pair",
        ),
        get(
            "get /api/namespaces/{namespace}/containers/{key}/schema",
            Config::ContainerSchema,
            "getContainerSchema",
            "What the document of a container must be",
        ),
        put(
            "post /api/namespaces/{namespace}/containers/{key}/schema",
            Config::PutContainerSchema,
            "putContainerSchema",
            "Sets what the document of a container must be",
        ),
        delete(
            "delete /api/namespaces/{namespace}/containers/{key}/schema",
            Config::DeleteContainerSchema,
            "deleteContainerSchema",
            "Removes the schema of a container",
        ),
    ]
}

/// Inheritance, comparison and promotion.
fn environments() -> Vec<Operation> {
    vec![
        operation(
            "get /api/namespaces/{namespace}/inheritance",
            Config::Inheritance,
            "getInheritance",
            "From which namespaces a namespace inherits, and whether it is protected",
        )
        .asks([stale()])
        .gives_json(envelope::<environments::Inheritance>(), "Its relations")
        .fails([404]),
        done(operation(
            "post /api/namespaces/{namespace}/parents",
            Config::SetParents,
            "setParents",
            "Sets the namespaces from which a namespace inherits what it does not set itself",
        ))
        .asks(terms())
        .takes_json(schema_of::<environments::ParentsRequest>())
        .fails([404, 409, 413]),
        done(operation(
            "post /api/namespaces/{namespace}/protection",
            Config::SetProtection,
            "setProtection",
            "Sets whether only approved drafts change a namespace",
        ))
        .asks(terms())
        .takes_json(schema_of::<environments::ProtectionRequest>())
        .fails([404, 409]),
        operation(
            "get /api/namespaces/{namespace}/compare",
            Config::Compare,
            "compareNamespaces",
            "What would change if a namespace had the content of another one",
        )
        .asks([
            query("with", text(), "The other namespace").required(),
            revision(),
            query("with_revision", number(), "The other one as of this revision"),
            stale(),
        ])
        .gives_json(envelope::<revisions::NamespaceDiff>(), "The pairs and containers that differ")
        .fails([404]),
        done(operation(
            "post /api/namespaces/{namespace}/promote",
            Config::Promote,
            "promote",
            "Takes over what another namespace has",
        ))
        .asks(terms())
        .asks([draft()])
        .takes_json(schema_of::<environments::PromoteRequest>())
        .fails([404, 409, 413]),
    ]
}

/// Review of changes, and canaries.
fn drafts() -> Vec<Operation> {
    let action = |route, endpoint, id, summary, body| {
        done(operation(route, endpoint, id, summary)).asks(terms()).takes_json(body).fails([404, 409, 413])
    };
    vec![
        operation(
            "get /api/namespaces/{namespace}/drafts",
            Config::Drafts,
            "listDrafts",
            "Drafts of a namespace, by name",
        )
        .asks([stale()])
        .gives_json(envelope::<Vec<drafts::ListedDraft>>(), "The drafts without their changes")
        .fails([404]),
        operation(
            "get /api/namespaces/{namespace}/drafts/{key}",
            Config::Draft,
            "getDraft",
            "A draft, and what publishing it would do",
        )
        .asks([stale()])
        .gives_json(envelope::<drafts::Draft>(), "The draft")
        .fails([404]),
        done(operation(
            "delete /api/namespaces/{namespace}/drafts/{key}",
            Config::DiscardDraft,
            "discardDraft",
            "Removes a draft",
        ))
        .asks(terms())
        .fails([404, 409]),
        action(
            "post /api/namespaces/{namespace}/drafts/{key}/comments",
            Config::CommentDraft,
            "commentDraft",
            "Comments on a draft",
            schema_of::<drafts::CommentRequest>(),
        ),
        action(
            "post /api/namespaces/{namespace}/drafts/{key}/approve",
            Config::ApproveDraft,
            "approveDraft",
            "Approves a draft that somebody else has edited",
            schema_of::<drafts::ApproveRequest>(),
        ),
        action(
            "post /api/namespaces/{namespace}/drafts/{key}/publish",
            Config::PublishDraft,
            "publishDraft",
            "Makes a draft a revision, for all readers",
            schema_of::<drafts::PublishDraftRequest>(),
        ),
        action(
            "post /api/namespaces/{namespace}/drafts/{key}/canary",
            Config::BeginCanary,
            "beginCanary",
            "Shows a draft to a part of the readers first",
            schema_of::<drafts::CanaryRequest>(),
        ),
        done(operation(
            "delete /api/namespaces/{namespace}/canary",
            Config::WithdrawCanary,
            "withdrawCanary",
            "Shows all readers the newest revision again",
        ))
        .asks(terms())
        .fails([404]),
    ]
}

fn changes_of_many() -> Vec<Operation> {
    let rollback = |route, endpoint, id, summary| {
        done(operation(route, endpoint, id, summary))
            .asks(terms())
            .asks([draft()])
            .takes_json(schema_of::<api::RollbackRequest>())
            .fails([404, 409, 413])
    };
    vec![
        done(operation(
            "post /api/namespaces/{namespace}/publish",
            Config::Publish,
            "publish",
            "Many changes as one revision, or none",
        ))
        .asks(terms())
        .asks([create(), retype(), draft()])
        .takes_json(schema_of::<api::Publication>())
        .fails([404, 409, 413]),
        rollback(
            "post /api/namespaces/{namespace}/rollback",
            Config::RollBack,
            "rollBackNamespace",
            "Brings the content as of a revision back",
        ),
        rollback(
            "post /api/namespaces/{namespace}/pairs/{key}/rollback",
            Config::RollBackPair,
            "rollBackPair",
            "Brings one pair as of a revision back",
        ),
        rollback(
            "post /api/namespaces/{namespace}/containers/{key}/rollback",
            Config::RollBackContainer,
            "rollBackContainer",
            "Brings one container as of a revision back",
        ),
        done(operation(
            "post /api/namespaces/{namespace}/policy",
            Config::SetPolicy,
            "setPolicy",
            "How much history is kept",
        ))
        .asks(terms())
        .takes_json(schema_of::<api::PolicyRequest>())
        .fails([404, 409]),
        operation(
            "get /api/namespaces/{namespace}/export",
            Config::Export,
            "exportNamespace",
            "A whole namespace as one file",
        )
        .asks([format(EXPORTED), revision(), stale()])
        .gives(200, file(EXPORTED), "The file")
        .fails([404]),
        done(operation(
            "post /api/namespaces/{namespace}/import",
            Config::Import,
            "importNamespace",
            "A whole namespace from a file",
        ))
        .asks(terms())
        .asks([format(READ), query("replace", flag(), "Delete what the file does not hold"), retype()])
        .takes(file(READ))
        .fails([409, 413]),
    ]
}

fn secrets() -> Vec<Operation> {
    vec![
        done(operation(
            "post /api/namespaces/{namespace}/secrets/rotate",
            Config::RotateSecrets,
            "rotateSecrets",
            "Encrypts the secrets of a namespace again, with the newest key",
        ))
        .asks(terms())
        .fails([404, 409]),
    ]
}

fn histories() -> Vec<Operation> {
    let history = |route, endpoint, id, summary| {
        operation(route, endpoint, id, summary)
            .asks([limit(10), query("before", number(), "Only revisions in front of this one")])
            .asks([query("content", flag(), "Also what was and what became"), stale()])
            .gives_json(envelope::<revisions::History>(), "Revisions, the newest first")
            .fails([404])
    };
    let between = || {
        [
            query("from", number(), "The one revision").required(),
            query("to", number(), "The other; the newest unless told"),
            stale(),
        ]
    };
    vec![
        history(
            "get /api/namespaces/{namespace}/history",
            Config::History,
            "namespaceHistory",
            "Revisions of a namespace",
        ),
        history(
            "get /api/namespaces/{namespace}/pairs/{key}/history",
            Config::PairHistory,
            "pairHistory",
            "Revisions of a pair",
        ),
        history(
            "get /api/namespaces/{namespace}/containers/{key}/history",
            Config::ContainerHistory,
            "containerHistory",
            "Revisions of a container",
        ),
        operation(
            "get /api/namespaces/{namespace}/diff",
            Config::Diff,
            "diffNamespace",
            "Pairs and containers that differ",
        )
        .asks(between())
        .gives_json(envelope::<revisions::NamespaceDiff>(), "What differs")
        .fails([404]),
        operation(
            "get /api/namespaces/{namespace}/containers/{key}/diff",
            Config::ContainerDiff,
            "diffContainer",
            "What differs in what a container resolves to",
        )
        .asks(between())
        .gives_json(envelope::<revisions::ContainerDiff>(), "What differs")
        .fails([404]),
        operation(
            "get /api/namespaces/{namespace}/containers/{key}/blame",
            Config::Blame,
            "blameContainer",
            "The revision that wrote each value of a container",
        )
        .asks([stale()])
        .gives_json(envelope::<Vec<api::BlamedValue>>(), "The values, in the order of the document")
        .fails([404]),
    ]
}
