//! Configuration: documents in every format, namespaces, schemas, numbers, and the settings file of
//! a node.

use tidelock_core::command::config::{
    Change, ConfigOperation, ConfigReply, Export, Name, Query, Schema, SchemaChecker, Stamp, Value,
};
use tidelock_core::command::{ConfigRead, ConfigWrite, Read, ReadReply, Write, WriteReply};
use tidelock_core::decimal::Decimal;
use tidelock_core::founding::Founding;
use tidelock_core::machine::Machine;
use tidelock_core::types::{LogIndex, ShardId};
use tidelock_server::config::{RawSettings, Settings};
use tidelock_server::http::parsers;
use tidelock_server::secrets::Keyring;

use super::{Target, text, texts};

pub const TARGETS: &[Target] = &[
    Target { name: "config-json", run: |input| document("json", input), seeds: json_seeds },
    Target { name: "config-yaml", run: |input| document("yaml", input), seeds: yaml_seeds },
    Target { name: "config-toml", run: |input| document("toml", input), seeds: toml_seeds },
    Target { name: "config-properties", run: |input| document("properties", input), seeds: properties_seeds },
    Target { name: "config-namespaces", run: namespaces, seeds: namespace_seeds },
    Target { name: "config-changes", run: changes, seeds: change_seeds },
    Target { name: "config-schemas", run: schemas, seeds: schema_seeds },
    Target { name: "decimals", run: decimals, seeds: decimal_seeds },
    Target { name: "settings-file", run: settings, seeds: settings_seeds },
    Target { name: "secret-keys", run: secret_keys, seeds: secret_key_seeds },
];

/// Values of a file, at most.
const VALUES_MAX: usize = 10_000;

const FORMATS: [&str; 4] = ["json", "yaml", "toml", "properties"];

/// A file that is read is bounded, and its document is the same after an export in any format that
/// can carry it.
fn document(format: &str, input: &[u8]) {
    let file = text(input);
    let Ok((value, _)) = parsers::document_of(format, file, VALUES_MAX) else { return };
    assert!(value.count() <= VALUES_MAX, "{} values", value.count());
    if !matches!(value, Value::Dict(_)) || value.validate().is_err() {
        return;
    }
    for format in FORMATS {
        let Ok(file) = parsers::write_document(format, &value) else { continue };
        match parsers::document_of(format, &file, VALUES_MAX) {
            Ok((again, _)) => assert_eq!(again, value, "{format}: {file}"),
            Err(error) => panic!("{format} is not read again: {error}: {file}"),
        }
    }
    // A shell reads this; there is nothing to compare it with.
    let _ = parsers::write_document("env", &value);
}

fn json_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"b":true,"d":{"df":1.123,"di":123,"ds":"string"},"l":[123,1.0,true],"n":"1","e":null}"#,
        r#"{"a":"\u00e9\ud83d\ude00\n","x y":-9223372036854775808,"f":1e300,"z":-0.0}"#,
        r#"{"a":[[1],[2,[]],{}],"":"","a.b":{"c[0]":1}}"#,
    ])
}

fn yaml_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "b: true\nd:\n  df: 1.123\n  ds: string\nl:\n- 123\n- 1.0\n- ~\n\"n\": \"1\"\n",
        "a: &x [1, 2]\nb: *x\nc: |\n  text\n  more\nd: >-\n  folded\n  line\n",
        "---\na: !!str 1\nb: 0x1F\nc: 2026-11-21\n# comment\n? key\n: value\n...\n",
        "{a: 'it''s', b: \"\\u00e9\\n\", <<: {c: 1}}\n",
    ])
}

fn toml_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "b = true\nl = [123, 1.0, true]\nn = \"1\"\n\n[d]\ndf = 1.123\ndi = 0x1f\n\n[[t]]\na = 1\n[[t]]\n",
        "a.b.c = 1_000\n\"x y\" = '''\nraw'''\ni = { k = \"\"\"\nm \\\n  n\"\"\" }\n",
        "f = [1e300, -0.0]\ns = \"\\u00e9\\t\"\n",
    ])
}

fn properties_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "b=true\nd.df=1.123\nl[0]=123\nl[1]=1.0\n#@ {\"type\":\"string\"}\nn=1\n",
        "! comment\na\\ b : c\\\n  d\nu=\\u00e9\n=empty\n",
        "#@ {\"type\":\"list\"}\ne=\nd.k[0].x=y\n",
    ])
}

/// The export of what was imported is imported to the same.
fn namespaces(input: &[u8]) {
    let file = text(input);
    for format in ["json", "yaml", "toml"] {
        let Ok((value, _)) = parsers::document_of(format, file, VALUES_MAX) else { continue };
        let Ok(changes) = parsers::namespace_changes(value) else { continue };
        let Some(export) = published(changes) else { continue };
        let name = Name::new("ns").expect("a name");
        let tree = parsers::export_of(&name, &export);
        for format in ["json", "yaml"] {
            let written = parsers::write_document(format, &tree).expect("an export can be written");
            let (again, _) = parsers::document_of(format, &written, VALUES_MAX).expect("and read");
            let changes = parsers::namespace_changes(again).expect("and it is a namespace");
            let again = published(changes).expect("and can be published");
            assert_eq!((&again.pairs, &again.containers), (&export.pairs, &export.containers), "{written}");
        }
    }
}

/// Publishes changes in a new namespace, and exports it; `None` if they are refused.
fn published(changes: Vec<Change>) -> Option<Export> {
    let name = Name::new("ns").expect("a name");
    let operation = ConfigOperation::Publish { changes, create: true };
    let write = ConfigWrite { namespace: name.clone(), stamp: Stamp::default(), expected: None, operation };
    let write = Write::from(write);
    write.validate().ok()?;
    let mut machine = Machine::new(ShardId(1), &Founding::new(1, 1));
    match machine.apply(LogIndex(1), write) {
        Ok(WriteReply::Config(Ok(_))) => {}
        Ok(WriteReply::Config(Err(_))) => return None,
        other => panic!("{other:?} is no reply to a publication"),
    }
    let read = Read::Config(ConfigRead { namespace: name, query: Query::Export { at: None } });
    match machine.read(&read).map(|answer| answer.reply) {
        Ok(ReadReply::Config(Ok(ConfigReply::Export(export)))) => Some(export),
        other => panic!("{other:?} is no export"),
    }
}

fn namespace_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"namespace":"ns","revision":1,"pairs":[{"key":"p","value":1,"datatype":1,"type":"int"},
           {"key":"q","value":{"a":[1,2]},"type":"dict","schema":{"type":"object"}}],
           "containers":[{"key":"c","fields":[{"key":"f","fieldType":1,"value":"p"},
           {"key":"g","fieldType":2,"value":["p","q"]},{"key":"h","fieldType":3,"value":{"x":"p"}}]}]}"#,
        "pairs:\n- key: p\n  value: text\n  type: string\n",
        "[[pairs]]\nkey = \"p\"\nvalue = 1.5\n",
    ])
}

/// Changes of a publication are the same in the log.
fn changes(input: &[u8]) {
    let Ok(changes) = parsers::changes_of(text(input), VALUES_MAX) else { return };
    let operation = ConfigOperation::Publish { changes, create: true };
    let namespace = Name::new("ns").expect("a name");
    let write = Write::from(ConfigWrite { namespace, stamp: Stamp::default(), expected: Some(3), operation });
    if write.validate().is_ok() {
        super::commands::check_write(&write);
    }
}

fn change_seeds() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"pair":"p","value":1,"type":"int"}"#,
        r#"{"pair":"p","value":"5s","type":"duration"}"#,
        r#"{"pair":"p","value":"a","type":"enum","values":["a","b"]}"#,
        r#"{"container":"c","fields":[{"key":"f","fieldType":"list","value":["p"]}],"schema":null}"#,
        r#"{"container":"c","delete":true}"#,
    ])
}

/// A schema is a value and a schema again; a check of a value ends.
fn schemas(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (source, value) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    let Ok((source, _)) = parsers::document_of("json", text(source), VALUES_MAX) else { return };
    let Ok(schema) = Schema::new(source) else { return };
    let again = Schema::new(schema.source().clone()).expect("the source of a schema is one");
    if let Ok((value, _)) = parsers::document_of("json", text(value), VALUES_MAX) {
        let verdict = SchemaChecker::default().check(&schema, &value);
        assert_eq!(SchemaChecker::default().check(&again, &value), verdict);
    }
}

fn schema_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}\x007",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^a\"}},\"required\":[\"a\"]}\0{\"a\":\"ab\"}",
        "{\"type\":\"array\",\"items\":{\"enum\":[1,\"x\"]},\"minItems\":1}\0[1]",
        "{\"type\":\"string\",\"format\":\"duration\",\"maxLength\":5}\0\"5s\"",
    ])
}

/// A number is read as it is shown, and adding nothing does not change it.
fn decimals(input: &[u8]) {
    let Ok(number) = Decimal::parse(input) else { return };
    assert_eq!(Decimal::parse(number.to_string().as_bytes()), Ok(number));
    let zero = Decimal::parse(b"0").expect("a number");
    assert_eq!(number.checked_add(zero), Some(number));
}

fn decimal_seeds() -> Vec<Vec<u8>> {
    texts(&["0", "-1.5", "1e3", "+.5", "12345678901234567.5", "1e-17", "9999999999999999999e10", "3.0e3"])
}

/// A settings file that is read is validated, and overrides nothing by itself.
fn settings(input: &[u8]) {
    let Ok(raw) = RawSettings::parse(text(input)) else { return };
    assert_eq!(raw.clone().or(RawSettings::default()), raw);
    assert_eq!(RawSettings::default().or(raw.clone()), raw);
    if let Ok(settings) = Settings::new(raw) {
        assert!(settings.tick().as_nanos() > 0 && settings.timing().tick_ms > 0);
        let _ = (settings.founding_terms(), settings.http_hosts().count());
    }
}

fn settings_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "http = \"127.0.0.1:8001\"\nresp_cluster = \"off\"\npeers = [\"a:9001\", \"b:9001,c:9001\"]\n",
        "data_dir = \"/var/lib/tidelock\"\nshards = 4\nreplicas = 3\ntags = [\"geo:zone=a\"]\nsync = false\n",
        "memory_limit = \"512MiB\"\nlog_filter = \"info,tidelock_server=debug\"\nlog_format = \"json\"\n",
        "peers = [\"srv:_peer._tcp.example.com/3\"]\ncluster_name = \"blue\"\nelection_timeout_ms = 100\n",
        "secure = true\nadvertise_http = \"node-1\"\nallowed_hosts = [\"a.example\"]\njoin = [\"srv:x\"]\n",
    ])
}

/// A file of keys that is accepted opens what it seals, and an error names a line that exists.
fn secret_keys(input: &[u8]) {
    use tidelock_server::secrets::{KeyringError, PlainSecret, SecretPair};
    let file = text(input);
    let namespace = Name::new("ns").expect("a name");
    let pair = SecretPair { namespace: &namespace, key: "p" };
    match Keyring::parse(file) {
        Ok(keys) => {
            let secret = PlainSecret::new("secret".to_owned());
            assert_eq!(keys.open(pair, &keys.seal(pair, &secret)), Ok(secret));
        }
        Err(KeyringError::Line(line) | KeyringError::Twice(line)) => {
            assert!((1..=file.lines().count()).contains(&line), "line {line} of {file:?}");
        }
        Err(KeyringError::Empty | KeyringError::TooMany) => {}
    }
}

fn secret_key_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "k1:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n",
        "# keys\n\nk2:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\nk1:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
    ])
}
