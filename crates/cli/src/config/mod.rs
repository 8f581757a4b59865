//! `tidelock config`: typed configuration over HTTP.
//!
//! Owns the requests that read and change namespaces, pairs and containers. `show` prints them,
//! `diff` shows differences, `watch` waits for changes, `agent` keeps files up to date, `readers`
//! lists who watches, `secrets` encrypts secrets again, `drafts` and `environments` are about
//! review and inheritance, `fields` parses and edits the fields of containers. The node decides the
//! type of a value, so that every client gets the same result.

mod agent;
mod diff;
mod drafts;
mod environments;
mod fields;
mod readers;
mod secrets;
mod show;
mod watch;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;
use tidelock_api::config::{
    ConfigError, ContainerContent, ContainerPage, Done, Pair, PairPage, PolicyRequest, RollbackRequest,
    SearchMatch, SearchPage, Success,
};
use tidelock_api::revisions::History;
use tidelock_client::http::Method;
use tidelock_client::{Call, CliError, Client, Response, keys, output};

use self::agent::{format_by_name, format_of};
use crate::args::{
    ChangeArgs, ConfigArgs, ConfigCommand, ContainerCommand, Datatype, ExportArgs, Format, HistoryArgs,
    ImportArgs, ItemArgs, ItemKind, NsCommand, Output, PairCommand, PublishArgs, RollbackArgs, SchemaCommand,
    SchemaItemArgs, SearchArgs, TermsArgs,
};

/// The largest file that is sent: a node's limit of a request body.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Items per request.
const PAGE_ITEMS: usize = 1000;

/// The context that all commands share.
struct Session {
    client: Client,
    format: Output,
    timeout: Duration,
}

/// Runs one of the `config` commands.
pub fn run(args: ConfigArgs) -> Result<(), CliError> {
    if let ConfigCommand::Agent(agent) = &args.command {
        return agent::run(&args.client, agent);
    }
    let timeout = Duration::from_millis(args.client.timeout_ms);
    let session = Session { client: args.client.client()?, format: args.client.output, timeout };
    match args.command {
        ConfigCommand::Ns { command } => session.namespaces(command),
        ConfigCommand::Pair { command } => session.pairs(command),
        ConfigCommand::Container { command } => session.containers(command),
        ConfigCommand::Search(args) => session.search(&args),
        ConfigCommand::Schema { command } => session.schemas(command),
        ConfigCommand::Secrets { command } => secrets::run(&session, command),
        ConfigCommand::Publish(args) => session.publish(&args),
        ConfigCommand::History(args) => session.history(&args),
        ConfigCommand::Blame { namespace, container } => {
            let values = session.show(Target::of(&[&namespace, "containers", &container, "blame"]))?;
            values.map_or(Ok(()), |values: Vec<_>| output::line(&show::blame(&values)))
        }
        ConfigCommand::Diff(args) => diff::run(&session, &args),
        ConfigCommand::Draft { command } => drafts::run(&session, command),
        ConfigCommand::Compare(args) => environments::compare(&session, &args),
        ConfigCommand::Promote(args) => environments::promote(&session, args),
        ConfigCommand::Rollback(args) => session.roll_back(&args),
        ConfigCommand::Watch(args) => watch::run(&session, &args),
        ConfigCommand::Readers(args) => readers::run(&session, &args),
        ConfigCommand::Agent(_) => unreachable!("invariant: handled above"),
        ConfigCommand::Import(args) => session.import(&args),
        ConfigCommand::Export(args) => session.export(&args),
    }
}

/// A path below `/api`, with its parameters.
struct Target {
    path: String,
    parameters: Vec<String>,
    /// Whether the change is only previewed.
    is_dry_run: bool,
    /// What is printed of a change that makes no revision.
    outcome: Option<String>,
    /// The namespace of the change, if the command reports what the change deletes in it, and
    /// whether the change created it.
    reported_in: Option<String>,
}

impl Target {
    fn at(path: String) -> Target {
        Target { path, parameters: Vec::new(), is_dry_run: false, outcome: None, reported_in: None }
    }

    /// `/api/namespaces/…`, of these segments.
    fn of(segments: &[&str]) -> Target {
        let path = segments.iter().fold(String::from("/api/namespaces"), |mut path, segment| {
            path.push('/');
            path.push_str(&keys::query_value(segment.as_bytes()));
            path
        });
        Target::at(path)
    }

    /// The path of one item of a kind, or of all items.
    fn of_item(namespace: &str, item: &ItemArgs, verb: &str) -> Target {
        match (&item.pair, &item.container) {
            (Some(key), _) => Target::of(&[namespace, "pairs", key, verb]),
            (None, Some(key)) => Target::of(&[namespace, "containers", key, verb]),
            (None, None) => Target::of(&[namespace, verb]),
        }
    }

    fn with(mut self, name: &str, value: Option<impl ToString>) -> Target {
        if let Some(value) = value {
            self.parameters.push(format!("{name}={}", keys::query_value(value.to_string().as_bytes())));
        }
        self
    }

    fn with_terms(mut self, terms: &TermsArgs) -> Target {
        self.is_dry_run = terms.dry_run;
        self.with("author", terms.author.as_ref())
            .with("message", terms.message.as_ref())
            .with("expected", terms.expected)
            .with("dry_run", terms.dry_run.then_some(true))
    }

    fn with_change(mut self, change: &ChangeArgs) -> Target {
        let added = |draft: &String| format!("added to draft {}", show::name(draft));
        self.outcome = change.draft.as_ref().map(added);
        self.with_terms(&change.terms).with("draft", change.draft.as_ref())
    }

    fn reporting_effects_in(self, namespace: &str) -> Target {
        Target { reported_in: Some(namespace.to_owned()), ..self }
    }

    fn into_text(self) -> String {
        if self.parameters.is_empty() {
            self.path
        } else {
            format!("{}?{}", self.path, self.parameters.join("&"))
        }
    }
}

/// The data of an envelope, or the error that it reports.
fn data<T: DeserializeOwned>(answer: &Response) -> Result<T, CliError> {
    if answer.status == 200 {
        return Ok(answer.json::<Success<T>>()?.data);
    }
    match answer.json::<ConfigError>() {
        Ok(ConfigError { errmsg, .. }) => Err(CliError::Refused(Box::new(answer.refused_because(&errmsg)))),
        Err(_) => Err(answer.refusal()),
    }
}

impl Session {
    /// Reads data: for people it is returned, for programs it is printed as the node wrote it.
    fn show<T: DeserializeOwned>(&self, target: Target) -> Result<Option<T>, CliError> {
        self.parse_or_print(&self.client.ask(&Call::get(target.into_text()))?)
    }

    fn parse_or_print<T: DeserializeOwned>(&self, answer: &Response) -> Result<Option<T>, CliError> {
        match self.format {
            Output::Json => output::line(data::<Box<RawValue>>(answer)?.get()).map(|()| None),
            Output::Text => data(answer).map(Some),
        }
    }

    /// Sends a change, once.
    fn change(&self, method: Method, target: Target, body: &[u8]) -> Result<(), CliError> {
        let (is_dry_run, outcome, reported_in) =
            (target.is_dry_run, target.outcome.clone(), target.reported_in.clone());
        let call =
            Call { method, target: target.into_text(), conditions: vec![], body, may_repeat: is_dry_run };
        let answer = self.client.ask(&call)?;
        let Some(done) = self.parse_or_print::<Done>(&answer)? else { return Ok(()) };
        done.notes.iter().for_each(|note| eprintln!("note: {note}"));
        if is_dry_run {
            return diff::preview("dry run", &done);
        }
        let revision = done.revision;
        if let Some(outcome) = outcome {
            return output::line(&outcome);
        }
        if !done.changed {
            return output::line(&format!("nothing changed; still revision {revision}"));
        }
        output::line(&format!("revision {revision}"))?;
        if let Some(namespace) = reported_in {
            self.report_effects(&namespace, revision);
        }
        Ok(())
    }

    /// Reports what a revision deleted, or that it created the namespace. The user may have left
    /// out a field by mistake, or mistyped the name.
    fn report_effects(&self, namespace: &str, revision: u64) {
        if revision == 1 {
            return eprintln!("note: created namespace {}", show::name(namespace));
        }
        let target = Target::of(&[namespace, "history"]).with("limit", Some(1));
        let answer = self.client.ask(&Call::get(target.with("before", Some(revision + 1)).into_text()));
        // The change has succeeded: an error of this request is not reported.
        let Ok(page) = answer.and_then(|answer| data::<History>(&answer)) else { return };
        let deletions = page.revisions.first().map(|made| show::deletions(&made.changes)).unwrap_or_default();
        if !deletions.is_empty() {
            eprintln!("note: it deletes: {}", show::effects(&deletions));
        }
    }

    fn namespaces(&self, command: NsCommand) -> Result<(), CliError> {
        match command {
            NsCommand::List { prefix } => self.list_namespaces(&prefix),
            NsCommand::Create { name, terms } => {
                self.change(Method::POST, Target::of(&[&name]).with_terms(&terms), b"")
            }
            NsCommand::Delete { namespace, force, terms } => {
                let target =
                    Target::of(&[&namespace]).with("force", force.then_some(true)).with_terms(&terms);
                self.change(Method::DELETE, target, b"")
            }
            NsCommand::Info { namespace } => {
                let info = self.show(Target::of(&[&namespace]))?;
                info.map_or(Ok(()), |info| output::write(show::namespace(&info).as_bytes()))
            }
            NsCommand::Inheritance { namespace } => environments::inheritance(self, &namespace),
            NsCommand::Parents { namespace, parents, terms } => {
                environments::set_parents(self, &namespace, parents, &terms)
            }
            NsCommand::Protect { namespace, off, terms } => {
                environments::protect(self, &namespace, !off, &terms)
            }
            NsCommand::Policy { namespace, revisions, days, terms } => {
                let policy = PolicyRequest { revisions, days, ..PolicyRequest::default() };
                let target = Target::of(&[&namespace, "policy"]).with_terms(&terms);
                self.change(Method::POST, target, &encode(&policy))
            }
        }
    }

    fn list_namespaces(&self, prefix: &str) -> Result<(), CliError> {
        let mut offset = 0;
        loop {
            let target = Target::at("/api/namespaces".to_owned());
            let target = target.with("limit", Some(PAGE_ITEMS)).with("offset", Some(offset));
            let answer = self.client.ask(&Call::get(target.with("key", Some(prefix)).into_text()))?;
            let names: Vec<String> = data(&answer)?;
            match self.format {
                Output::Json => output::line(data::<Box<RawValue>>(&answer)?.get())?,
                Output::Text => names.iter().try_for_each(|name| output::line(name))?,
            }
            if names.len() < PAGE_ITEMS {
                return Ok(());
            }
            offset += names.len();
        }
    }

    /// All pages of pairs or containers; `items` takes those of a page.
    fn list_items<P: DeserializeOwned, T: Serialize>(
        &self,
        target: impl Fn() -> Target,
        items: impl Fn(P) -> Vec<T>,
        table: impl Fn(&[T]) -> String,
    ) -> Result<(), CliError> {
        let mut all = Vec::new();
        loop {
            let target = target().with("limit", Some(PAGE_ITEMS)).with("offset", Some(all.len()));
            let answer = self.client.ask(&Call::get(target.into_text()))?;
            let found = items(data(&answer)?);
            let is_last = found.len() < PAGE_ITEMS;
            all.extend(found);
            if is_last {
                break;
            }
        }
        match self.format {
            Output::Json => {
                all.iter().try_for_each(|item| output::line(&String::from_utf8_lossy(&encode(item))))
            }
            Output::Text if all.is_empty() => Ok(()),
            Output::Text => output::line(&table(&all)),
        }
    }

    fn pairs(&self, command: PairCommand) -> Result<(), CliError> {
        match command {
            PairCommand::List { namespace, key } => self.list_items(
                || Target::of(&[&namespace, "pairs"]).with("key", Some(&key)),
                |page: PairPage| page.pairs,
                show::pairs,
            ),
            PairCommand::Get { namespace, key, revision, reveal } => {
                let target = Target::of(&[&namespace, "pairs", &key]).with("revision", revision);
                let target = target.with("reveal", reveal.then_some(true));
                let Some(pair) = self.show::<Pair>(target)? else { return Ok(()) };
                match pair.value.value() {
                    Value::String(text) => output::line(&text),
                    value => output::line(&value.to_string()),
                }
            }
            PairCommand::Set { namespace, key, value, datatype, values, terms } => {
                let target = Target::of(&[&namespace, "pairs", &key]).with_change(&terms);
                let value = if value == "-" { read_value()? } else { value };
                self.change(Method::POST, target, pair_body(&value, datatype, &values).as_bytes())?;
                if !terms.terms.dry_run && terms.draft.is_none() {
                    self.warn_of_unused(&namespace, &key);
                }
                Ok(())
            }
            PairCommand::Del { namespace, key, terms } => {
                let target = Target::of(&[&namespace, "pairs", &key]).with_change(&terms);
                self.change(Method::DELETE, target, b"")
            }
        }
    }

    /// Says so if a pair that was set changes nothing that programs read.
    fn warn_of_unused(&self, namespace: &str, key: &str) {
        let target = Target::of(&[namespace, "pairs", key, "containers"]);
        let answer = self.client.ask(&Call::get(target.into_text()));
        // The change has succeeded: an error of this request is not reported.
        let users = answer.and_then(|answer| data::<Vec<String>>(&answer));
        if users.is_ok_and(|users| users.is_empty()) {
            eprintln!("note: no container refers to pair {key:?}");
        }
    }

    /// All pages of a search, up to a number of matches.
    fn search(&self, args: &SearchArgs) -> Result<(), CliError> {
        let mut matches: Vec<SearchMatch> = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let target = Target::at("/api/search".to_owned());
            let target = target.with("text", Some(&args.text)).with("namespaces", args.namespaces.as_ref());
            let limit = PAGE_ITEMS.min(args.limit.saturating_sub(matches.len())).max(1);
            let target = target.with("limit", Some(limit)).with("after", after.take());
            let page: SearchPage = data(&self.client.ask(&Call::get(target.into_text()))?)?;
            matches.extend(page.matches);
            after = page.next;
            if after.is_none() || matches.len() >= args.limit {
                break;
            }
        }
        match self.format {
            Output::Json => {
                matches
                    .iter()
                    .try_for_each(|found| output::line(&String::from_utf8_lossy(&encode(found))))?;
            }
            Output::Text if matches.is_empty() => {}
            Output::Text => output::line(&show::matches(&matches))?,
        }
        if after.is_some() {
            eprintln!("note: there may be more; --limit shows them");
        }
        Ok(())
    }

    fn containers(&self, command: ContainerCommand) -> Result<(), CliError> {
        match command {
            ContainerCommand::List { namespace, key } => self.list_items(
                || Target::of(&[&namespace, "containers"]).with("key", Some(&key)),
                |page: ContainerPage| page.containers,
                show::containers,
            ),
            ContainerCommand::Get { namespace, key, format, revision, label, reveal } => {
                let target = Target::of(&[&namespace, "containers", &key, "dl"]);
                let target = target.with("format", Some(name_of(format))).with("revision", revision);
                let target = target.with("label", label).with("reveal", reveal.then_some(true));
                output::write(&self.download(target)?)
            }
            ContainerCommand::Set { namespace, key, fields, file, retype, terms } => {
                let body = match file {
                    Some(file) => read_file(&file)?,
                    None => {
                        let fields = fields.iter().map(|field| fields::parse(field));
                        encode(&ContainerContent { fields: fields.collect::<Result<_, _>>()?, schema: None })
                    }
                };
                let target = Target::of(&[&namespace, "containers", &key]).with_change(&terms);
                let target = target.with("retype", retype.then_some(true)).reporting_effects_in(&namespace);
                self.change(Method::POST, target, &body)
            }
            ContainerCommand::Edit(args) => fields::edit(self, &args),
            ContainerCommand::Del { namespace, key, terms } => {
                let target = Target::of(&[&namespace, "containers", &key]).with_change(&terms);
                self.change(Method::DELETE, target, b"")
            }
        }
    }

    fn schemas(&self, command: SchemaCommand) -> Result<(), CliError> {
        let target = |item: &SchemaItemArgs| {
            let kind = match item.kind {
                ItemKind::Pair => "pairs",
                ItemKind::Container => "containers",
            };
            Target::of(&[&item.namespace, kind, &item.key, "schema"])
        };
        match command {
            SchemaCommand::Get { item, revision } => {
                let target = target(&item).with("revision", revision);
                let Some(schema) = self.show::<Value>(target)? else { return Ok(()) };
                output::line(&serde_json::to_string_pretty(&schema).expect("invariant: it was JSON"))
            }
            SchemaCommand::Set { item, file, terms } => {
                self.change(Method::POST, target(&item).with_change(&terms), &read_file(&file)?)
            }
            SchemaCommand::Del { item, terms } => {
                self.change(Method::DELETE, target(&item).with_change(&terms), b"")
            }
        }
    }

    fn publish(&self, args: &PublishArgs) -> Result<(), CliError> {
        let target = Target::of(&[&args.namespace, "publish"]).with("create", args.create.then_some(true));
        let target = target.with("retype", args.retype.then_some(true)).reporting_effects_in(&args.namespace);
        self.change(Method::POST, target.with_change(&args.terms), &read_file(&args.file)?)
    }

    fn history(&self, args: &HistoryArgs) -> Result<(), CliError> {
        let target = Target::of_item(&args.namespace, &args.item, "history");
        let page = self.show(target.with("limit", Some(args.limit)).with("before", args.before))?;
        page.map_or(Ok(()), |page| output::line(&show::history(&page)))
    }

    fn roll_back(&self, args: &RollbackArgs) -> Result<(), CliError> {
        let target = Target::of_item(&args.namespace, &args.item, "rollback").with_change(&args.terms);
        let target = target.reporting_effects_in(&args.namespace);
        let body = RollbackRequest { revision: args.revision, ..RollbackRequest::default() };
        self.change(Method::POST, target, &encode(&body))
    }

    fn import(&self, args: &ImportArgs) -> Result<(), CliError> {
        let format = args.format.map_or_else(|| imported_format(&args.file), Ok)?;
        let target = match &args.container {
            Some(key) => {
                Target::of(&[&args.namespace, "containers", key, "import"]).with("create", Some(true))
            }
            None => Target::of(&[&args.namespace, "import"]).with("replace", args.replace.then_some(true)),
        };
        let target = target.with("format", Some(name_of(format)));
        let target = target.with("retype", args.retype.then_some(true)).reporting_effects_in(&args.namespace);
        self.change(Method::POST, target.with_change(&args.terms), &read_file(&args.file)?)
    }

    fn export(&self, args: &ExportArgs) -> Result<(), CliError> {
        let target = match &args.container {
            Some(key) => Target::of(&[&args.namespace, "containers", key, "dl"]),
            None => Target::of(&[&args.namespace, "export"]),
        };
        let by_name = || args.file.as_deref().map_or(Format::Json, format_of);
        let format = name_of(args.format.unwrap_or_else(by_name));
        let target = target.with("format", Some(format)).with("revision", args.revision);
        let file = self.download(target)?;
        match &args.file {
            Some(path) => std::fs::write(path, file).map_err(CliError::io(path.display().to_string())),
            None => output::write(&file),
        }
    }

    /// Downloads a file, unchanged.
    fn download(&self, target: Target) -> Result<Vec<u8>, CliError> {
        let answer = self.client.ask(&Call::get(target.into_text()))?;
        if answer.status == 200 {
            Ok(answer.body)
        } else {
            Err(data::<IgnoredAny>(&answer).err().unwrap_or_else(|| answer.refusal()))
        }
    }
}

/// The format of a file to import, by its name. Standard input is JSON.
fn imported_format(file: &Path) -> Result<Format, CliError> {
    match format_by_name(file) {
        None if file == Path::new("-") => Ok(Format::Json),
        None | Some(Format::Env) => Err(CliError::Usage(format!(
            "the name of {} tells no format that can be imported: state --format json, yaml, toml or properties",
            file.display()
        ))),
        Some(format) => Ok(format),
    }
}

fn encode(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("invariant: the types of the API are JSON")
}

fn name_of(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Yaml => "yaml",
        Format::Toml => "toml",
        Format::Properties => "properties",
        Format::Env => "env",
    }
}

/// The value on standard input, without the line break that `echo` adds. A secret that is passed so
/// shows neither in `ps` nor in the history of the shell.
fn read_value() -> Result<String, CliError> {
    let value = String::from_utf8(read_file(Path::new("-"))?)
        .map_err(|_| CliError::Usage("the value on standard input is not UTF-8".into()))?;
    Ok(without_line_break(&value).to_owned())
}

fn without_line_break(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// The body that sets a pair. JSON is sent unchanged, so that no digit is lost.
///
/// Without a datatype, text is a number only if that number is printed as the same text: `1.10` may
/// be a version and `7e4` a commit.
fn pair_body(value: &str, datatype: Option<Datatype>, values: &[String]) -> String {
    let is_text = match datatype {
        // Never parsed: a secret that looks like JSON stays what it is.
        Some(Datatype::Secret) => true,
        Some(Datatype::String | Datatype::Duration | Datatype::Bytes | Datatype::Enum) => {
            !value.starts_with('"')
        }
        Some(_) => false,
        None => is_number_printed_otherwise(value),
    };
    let is_json = !is_text && serde_json::from_str::<IgnoredAny>(value).is_ok();
    let shown = if is_json { value.to_owned() } else { Value::from(value).to_string() };
    match datatype {
        Some(Datatype::Duration) => format!(r#"{{"value":{shown},"type":"duration"}}"#),
        Some(Datatype::Bytes) => format!(r#"{{"value":{shown},"type":"bytes"}}"#),
        Some(Datatype::Secret) => format!(r#"{{"value":{shown},"type":"secret"}}"#),
        Some(Datatype::Enum) => {
            let values = Value::from(values.to_vec());
            format!(r#"{{"value":{shown},"type":"enum","values":{values}}}"#)
        }
        // By number, because earlier releases know no names.
        Some(datatype) => format!(r#"{{"value":{shown},"datatype":{}}}"#, datatype as u8),
        None => format!(r#"{{"value":{shown}}}"#),
    }
}

fn is_number_printed_otherwise(text: &str) -> bool {
    let Ok(Value::Number(number)) = serde_json::from_str(text) else { return false };
    match number.as_i64() {
        Some(number) => number.to_string() != text,
        // Debug, because that is how a node prints floats: with a point or an exponent.
        None => number.as_f64().is_none_or(|number| format!("{number:?}") != text),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let mut file = Vec::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(CliError::io(name.as_str()))?)
    };
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut file).map_err(CliError::io(name.as_str()))?;
    if file.len() as u64 > FILE_BYTES_MAX {
        return Err(CliError::Usage(format!("{name} is longer than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_or_else_text() {
        for (value, datatype, body) in [
            ("30", None, r#"{"value":30}"#),
            ("1.5", None, r#"{"value":1.5}"#),
            ("1.10", None, r#"{"value":"1.10"}"#),
            ("7e4", None, r#"{"value":"7e4"}"#),
            ("-0", None, r#"{"value":"-0"}"#),
            ("1e300", None, r#"{"value":1e300}"#),
            ("9223372036854775808", None, r#"{"value":"9223372036854775808"}"#),
            ("1.10", Some(Datatype::Float), r#"{"value":1.10,"datatype":3}"#),
            ("[1.10]", None, r#"{"value":[1.10]}"#),
            ("prod", None, r#"{"value":"prod"}"#),
            ("a \"b\"", None, r#"{"value":"a \"b\""}"#),
            ("[1,2]", None, r#"{"value":[1,2]}"#),
            ("30", Some(Datatype::String), r#"{"value":"30","datatype":2}"#),
            ("\"30\"", Some(Datatype::String), r#"{"value":"30","datatype":2}"#),
            ("30", Some(Datatype::Float), r#"{"value":30,"datatype":3}"#),
            ("-1", Some(Datatype::Int), r#"{"value":-1,"datatype":1}"#),
            ("null", Some(Datatype::Empty), r#"{"value":null,"datatype":0}"#),
            ("30", Some(Datatype::Secret), r#"{"value":"30","type":"secret"}"#),
            ("\"a\"", Some(Datatype::Secret), r#"{"value":"\"a\"","type":"secret"}"#),
            ("30s", Some(Datatype::Duration), r#"{"value":"30s","type":"duration"}"#),
            ("10", Some(Datatype::Bytes), r#"{"value":"10","type":"bytes"}"#),
            ("01234", None, r#"{"value":"01234"}"#),
            ("1e10", None, r#"{"value":"1e10"}"#),
            (r#"["1.10","7e4"]"#, None, r#"{"value":["1.10","7e4"]}"#),
            (r#"{"a":"01234","b":"1e10"}"#, None, r#"{"value":{"a":"01234","b":"1e10"}}"#),
        ] {
            assert_eq!(pair_body(value, datatype, &[]), body);
        }
        let values = ["dev".to_owned(), "1".to_owned()];
        assert_eq!(
            pair_body("1", Some(Datatype::Enum), &values),
            r#"{"value":"1","type":"enum","values":["dev","1"]}"#
        );
    }

    #[test]
    fn a_file_to_import_has_a_format_by_its_name_or_states_one() {
        for (file, format) in
            [("a.yml", Format::Yaml), ("a.properties", Format::Properties), ("-", Format::Json)]
        {
            assert_eq!(imported_format(Path::new(file)).expect("a format"), format);
        }
        for file in ["a.conf", ".env", "a.env", "a"] {
            assert!(matches!(imported_format(Path::new(file)), Err(CliError::Usage(_))), "{file}");
        }
    }

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_a_value() {
        for (text, value) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\na ", "\na "), ("", "")]
        {
            assert_eq!(without_line_break(text), value, "{text:?}");
        }
    }

    #[test]
    fn targets_hold_any_name() {
        let target = Target::of(&["a/b", "pairs", "ü?"]).with("key", Some("x&y")).with("at", None::<u64>);
        assert_eq!(target.into_text(), "/api/namespaces/a%2Fb/pairs/%C3%BC%3F?key=x%26y");
    }
}
