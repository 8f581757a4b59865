//! Permissions of every HTTP route and every Redis command, checked against a running cluster at
//! every node.
//!
//! `golden/demands.txt` lists a request for each of them. A route or a command without a line fails
//! the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::{env, fs};

use serde_json::json;

use crate::harness::client::Raw;
use crate::harness::guarded::Guarded;
use crate::harness::resp::{Client, address_of};

/// Commands without a line: those that the test itself uses, and those that need no token.
const OTHER_COMMANDS: [&str; 7] = ["hello", "auth", "quit", "reset", "multi", "exec", "discard"];

/// The last column of a request that needs no token.
const OPEN: &str = "nothing";

/// Levels of access to the cluster, each with the next lower one.
const LOWER_LEVELS: [(&str, &str); 2] =
    [("cluster:operate", "cluster:read"), ("cluster:admin", "cluster:operate")];

/// A line of the file.
struct Row {
    request: String,
    body: String,
    demands: String,
}

/// Whether a node admits a request.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Unauthenticated,
    /// This permission is missing.
    Forbidden(String),
    /// The request cannot be read.
    Malformed,
    /// The permission check passed. The request may still have failed.
    Admitted,
}

impl Row {
    fn parse(line: &str) -> Row {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [request, body, demands] = parts[..] else { panic!("three columns: {line}") };
        Row { request: request.to_owned(), body: body.to_owned(), demands: demands.to_owned() }
    }

    fn line(&self) -> String {
        format!("{} | {} | {}", self.request, self.body, self.demands)
            .replace("|  |", "| |")
            .trim()
            .to_owned()
    }

    /// The command, if it is one of the Redis protocol.
    fn command(&self) -> Option<&str> {
        self.request.strip_prefix("redis: ")
    }

    /// Whether this is a request to a path of the document.
    fn is_for(&self, method: &str, path: &str) -> bool {
        let Some((own_method, target)) = self.request.split_once(" /") else { return false };
        let target = target.split('?').next().unwrap_or_default();
        let (mut rest, mut parts) = (target, path.trim_start_matches('/').split(['{', '}']));
        let starts = parts.next().is_some_and(|literal| {
            rest = rest.strip_prefix(literal).unwrap_or("\0");
            rest != "\0"
        });
        // Each parameter with the literal text behind it.
        let parts: Vec<&str> = parts.collect();
        let ends = parts.chunks(2).all(|pair| match pair.get(1) {
            Some(literal) if !literal.is_empty() => match rest.find(literal) {
                Some(at) => {
                    rest = &rest[at + literal.len()..];
                    true
                }
                None => false,
            },
            _ => {
                let found = !rest.is_empty();
                rest = "";
                found
            }
        });
        own_method.eq_ignore_ascii_case(method) && starts && ends && rest.is_empty()
    }
}

/// A cluster, and its principals by their grants.
struct DemandMatrix {
    guarded: Guarded,
    tokens: BTreeMap<BTreeSet<String>, String>,
    wrong: String,
}

impl DemandMatrix {
    fn start() -> DemandMatrix {
        let guarded = Guarded::start(3);
        let wrong = guarded.deleted_token();
        guarded.administer("POST /api/namespaces/web", &json!({}));
        let publication = json!({ "changes": [
            { "pair": "p", "value": 1 },
            { "container": "c", "fields": [{ "key": "f", "fieldType": 1, "value": "p" }] },
        ]});
        guarded.administer("POST /api/namespaces/web/publish", &publication);
        DemandMatrix { guarded, tokens: BTreeMap::new(), wrong }
    }

    /// A token with exactly these grants.
    fn token(&mut self, grants: &BTreeSet<String>) -> String {
        let (count, guarded) = (self.tokens.len(), &self.guarded);
        let create = || {
            let texts: Vec<&str> = grants.iter().map(String::as_str).collect();
            guarded.principal(&format!("probe-{count}"), &texts).0
        };
        self.tokens.entry(grants.clone()).or_insert_with(create).clone()
    }

    fn ask(&self, node: usize, row: &Row, token: Option<&str>) -> Admission {
        if let Some(command) = row.command() {
            return self.burst(node, &[command], token).remove(0);
        }
        let header = token.map(|token| format!("Authorization: Bearer {token}"));
        let headers: Vec<&str> = header.iter().map(String::as_str).collect();
        let answer = self.guarded.cluster.send(node, &row.request, &headers, row.body.as_bytes());
        admission(answer.status, &answer.text())
    }

    /// As [`burst`], on a connection with this token.
    fn burst(&self, node: usize, commands: &[&str], token: Option<&str>) -> Vec<Admission> {
        let mut client = match token {
            Some(token) => self.guarded.redis_as(node, token),
            None => self.guarded.redis(node),
        };
        burst(&mut client, commands)
    }

    /// Finds the permissions that the request needs, by adding each one that a refusal names.
    /// `None` if it needs no token.
    fn demands(&mut self, row: &Row) -> Option<BTreeSet<String>> {
        if self.ask(1, row, None) == Admission::Admitted {
            return None;
        }
        let mut grants = BTreeSet::new();
        loop {
            let token = self.token(&grants);
            match self.ask(1, row, Some(&token)) {
                Admission::Forbidden(missing) => {
                    // Each level includes the ones before it.
                    grants
                        .retain(|grant| !(missing.starts_with("cluster:") && grant.starts_with("cluster:")));
                    assert!(grants.insert(missing), "{}: {grants:?}", row.request);
                }
                Admission::Admitted => return Some(grants),
                // The node checks permissions before it parses the rest of the request.
                Admission::Malformed if !grants.is_empty() => return Some(grants),
                other => panic!("{}: {other:?}", row.request),
            }
        }
    }

    /// Sends each request with a wrong token to every node, each from an address of its own: a node
    /// answers ten failures a minute of one address at once and spreads the others.
    fn check_wrong_token(&self, rows: &[Row]) {
        for (number, row) in rows.iter().enumerate() {
            let expected = if row.demands == OPEN { Admission::Admitted } else { Admission::Unauthenticated };
            let source = Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number as u32);
            for node in self.guarded.nodes() {
                let answer = self.ask_with_wrong_token(source, node, row);
                assert_eq!(answer, expected, "{} with a wrong token at node {node}", row.request);
            }
        }
    }

    fn ask_with_wrong_token(&self, source: Ipv4Addr, node: usize, row: &Row) -> Admission {
        let address = self.guarded.cluster.address(node);
        if let Some(command) = row.command() {
            let mut client = Client::connect_from(source, address_of(address)).expect("the node listens");
            let refusal = client.ask(&format!("AUTH {}", self.wrong));
            assert!(refusal.starts_with("-WRONGPASS"), "{refusal}");
            return burst(&mut client, &[command]).remove(0);
        }
        let (request, body) = (&row.request, &row.body);
        let headers = format!(
            "Host: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}",
            self.wrong,
            body.len()
        );
        let mut raw = Raw::connect_from(source, address).expect("the node listens");
        raw.write(format!("{request} HTTP/1.1\r\n{headers}\r\n\r\n{body}").as_bytes()).expect("sent");
        let (status, body) = raw.read().expect("an answer");
        admission(status, &String::from_utf8_lossy(&body))
    }

    /// Sends the request without a token, with each permission missing, with exactly the
    /// permissions and with all of them, at every node.
    fn check(&mut self, row: &Row, demands: &BTreeSet<String>, all: &str) {
        let exact = self.token(demands);
        let narrow: Vec<(String, String)> = demands
            .iter()
            .map(|missing| {
                let others = demands.iter().filter(|other| *other != missing);
                let lower = LOWER_LEVELS.iter().find(|(level, _)| level == missing);
                let others = others.cloned().chain(lower.map(|(_, lower)| (*lower).to_owned()));
                (missing.clone(), self.token(&others.collect()))
            })
            .collect();
        for node in self.guarded.nodes() {
            let answers = |token| self.ask(node, row, token);
            let request = &row.request;
            assert_eq!(answers(None), Admission::Unauthenticated, "{request} without a token");
            for (missing, token) in &narrow {
                let forbidden = Admission::Forbidden(missing.clone());
                assert_eq!(answers(Some(token)), forbidden, "{request} at node {node}");
                if let Some(command) = row.command() {
                    let burst = self.burst(node, &["PING", command, "PING"], Some(token));
                    assert_eq!(burst, [Admission::Admitted, forbidden, Admission::Admitted], "{request}");
                    let queued = self.burst(node, &["MULTI", command], Some(token)).remove(1);
                    // Commands that are not allowed in `MULTI` get another error.
                    let is_refused = matches!(queued, Admission::Forbidden(_) | Admission::Malformed);
                    assert!(is_refused, "{request} in a transaction");
                }
            }
            let is_admitted =
                |token| matches!(answers(Some(token)), Admission::Admitted | Admission::Malformed);
            assert!(is_admitted(&exact), "{request} at node {node}");
            assert!(is_admitted(all), "{request} of an administrator");
        }
    }
}

/// What a response says.
fn admission(status: u16, text: &str) -> Admission {
    match status {
        401 => Admission::Unauthenticated,
        403 => Admission::Forbidden(permission(text)),
        400 => Admission::Malformed,
        _ => Admission::Admitted,
    }
}

/// Sends commands in one pipeline. Replies must be one line each, except for the last.
fn burst(client: &mut Client, commands: &[&str]) -> Vec<Admission> {
    let lines: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
    client.send(&lines).expect("sent");
    let mut answers = vec![];
    for command in commands {
        let reply = client.reply().unwrap_or_else(|error| panic!("{command}: {error}"));
        answers.push(match reply.split(' ').next() {
            Some("-NOAUTH") => Admission::Unauthenticated,
            Some("-NOPERM") => Admission::Forbidden(permission(&reply)),
            Some("-ERR") => Admission::Malformed,
            _ => Admission::Admitted,
        });
    }
    answers
}

/// The permission that the text of an error names.
fn permission(text: &str) -> String {
    let named = text.split('`').nth(1);
    named.unwrap_or_else(|| panic!("a permission is named: {text}")).to_owned()
}

/// Every route and every command has a row.
fn check_coverage(guarded: &Guarded, rows: &[Row]) {
    let document = guarded.send(1, "GET /openapi.json", &guarded.admin, b"").json();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let methods = item.as_object().expect("methods").keys();
        for method in methods.filter(|method| ["get", "put", "post", "delete"].contains(&method.as_str())) {
            assert!(rows.iter().any(|row| row.is_for(method, path)), "no line for {method} {path}");
        }
    }
    let mut client = guarded.redis(1);
    assert_eq!(client.ask(&format!("AUTH {}", guarded.admin)), "+OK");
    let names = rows.iter().filter_map(|row| row.command()?.split(' ').next()).map(str::to_lowercase);
    let named: BTreeSet<String> = names.collect();
    for command in client.ask_many("COMMAND LIST") {
        let is_known = named.contains(&command) || OTHER_COMMANDS.contains(&command.as_str());
        assert!(is_known, "no line for {command}");
    }
}

#[test]
fn every_request_is_admitted_with_exactly_its_permissions() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/demands.txt");
    let text = fs::read_to_string(&path).expect("the file");
    let (comments, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let mut rows: Vec<Row> = lines.into_iter().map(Row::parse).collect();
    let mut matrix = DemandMatrix::start();
    check_coverage(&matrix.guarded, &rows);
    let everything = [
        "read keys:",
        "write keys:",
        "watch keys:",
        "read config:*",
        "write config:*",
        "reveal config:*",
        "cluster:admin",
    ];
    let everything = matrix.token(&everything.iter().map(ToString::to_string).collect());
    for row in &mut rows {
        let demands = matrix.demands(row);
        if let Some(demands) = &demands {
            matrix.check(row, demands, &everything);
        }
        row.demands = match demands {
            None => OPEN.to_owned(),
            Some(demands) if demands.is_empty() => "a token".to_owned(),
            Some(demands) => demands.into_iter().collect::<Vec<_>>().join(", "),
        };
    }
    matrix.check_wrong_token(&rows);
    let lines = comments.into_iter().map(str::to_owned).chain(rows.iter().map(Row::line));
    let found: String = lines.map(|line| line + "\n").collect();
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, &found).expect("written");
    }
    let text = fs::read_to_string(&path).expect("the file");
    assert_eq!(text, found, "UPDATE_GOLDENFILES=1 writes it anew");
}
