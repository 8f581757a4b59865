//! The HTTP client of all commands: sends one request to the given nodes in order, until one
//! answers.
//!
//! Owns the decision when another node may be asked. It guarantees that a write is never sent
//! twice, unless repeating it has no effect. It knows neither the meaning of requests nor of
//! answers, beyond their status.
//!
//! Invariants:
//! - A write is sent to the next node only if this one certainly did not do it: no connection could
//!   be made, or the node answered 503, which in Tidelock means "it did not happen and will not".
//! - A read may go to the next node after any failure; it changes nothing.
//!
//! A node that answers for a key names the leader of its shard if that is another node. The client
//! asks that node first from then on, which saves a forward; the given nodes follow in their order.
//! A client with a token does so only if that node was given too. It follows no redirects, so the
//! token reaches only nodes that were given to it or to [`Client::of`], with TLS or on this
//! machine.

use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use serde::Deserialize;
use tidelock_api::LEADER_HEADER;
use tidelock_api::etag::EntityTag;
use tidelock_api::problem::{ErrorClass, Problem, ProblemKind};
use ureq::http;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;

use crate::connection::{ClientOptions, DEFAULT_URL};
use crate::connector::{connector, not_connected};
use crate::error::{CliError, Refusal};
use crate::node_url::NodeUrl;
use crate::token::Token;

/// Timeout of a connection attempt: long enough for any network of a cluster, short enough to try
/// the next node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest answer that is read. A page of a list holds at most 4 MiB of keys and values, and
/// JSON needs at most six bytes for one (`\u0000`).
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// How long a node may take to begin a download: it makes snapshots first, which takes as long as
/// its disk needs to write all of its state.
const DOWNLOAD_HEAD_TIMEOUT: Duration = Duration::from_secs(3600);

/// A request to any node.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// `GET`, `PUT`, `POST` or `DELETE`.
    pub method: http::Method,
    /// Path and query.
    pub target: String,
    /// `If-Match`, `If-None-Match` and `If-Fence` with their values.
    pub conditions: Vec<(http::HeaderName, String)>,
    /// The body of a `PUT` or `POST`.
    pub body: &'a [u8],
    /// Whether doing it twice is the same as doing it once, as with a read.
    pub may_repeat: bool,
}

impl<'a> Call<'a> {
    /// A `GET` of `target`, which may be repeated.
    pub fn get(target: impl Into<String>) -> Call<'static> {
        let (method, target) = (http::Method::GET, target.into());
        Call { method, target, conditions: vec![], body: &[], may_repeat: true }
    }

    /// A removal of `target`. It is not repeated: the second answer would be 404.
    pub fn delete(target: impl Into<String>) -> Call<'static> {
        let (method, target) = (http::Method::DELETE, target.into());
        Call { method, target, conditions: vec![], body: &[], may_repeat: false }
    }

    /// A `POST` to `target` that may be repeated.
    pub fn post(target: impl Into<String>, body: &'a [u8]) -> Call<'a> {
        let (method, target) = (http::Method::POST, target.into());
        Call { method, target, conditions: vec![], body, may_repeat: true }
    }
}

/// A complete answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// URL of the node that answered.
    pub url: String,
    /// The HTTP status, such as 200.
    pub status: u16,
    /// The version in the `ETag`, if there is one.
    pub version: Option<u64>,
    /// The node that leads the key's shard, if the answering node says that another one does.
    pub leader: Option<NodeUrl>,
    /// The whole body, without its transfer coding.
    pub body: Vec<u8>,
    /// Whether the request had a token.
    pub had_token: bool,
    /// Whether the connection may have presented a certificate.
    pub had_certificate: bool,
}

impl Response {
    /// Parses the body as JSON.
    pub fn json<'de, T: Deserialize<'de>>(&'de self) -> Result<T, CliError> {
        serde_json::from_slice(&self.body).map_err(|error| self.unintelligible(&error.to_string()))
    }

    /// This answer if it has the status, otherwise its refusal.
    pub fn accept(self, status: u16) -> Result<Response, CliError> {
        if self.status == status { Ok(self) } else { Err(self.refusal()) }
    }

    /// The version; an error if the answer has none.
    pub fn expect_version(&self) -> Result<u64, CliError> {
        self.version.ok_or_else(|| self.unintelligible("no version in its ETag"))
    }

    /// The last segment of a problem's type, which identifies the error for programs.
    pub fn problem(&self) -> Option<String> {
        Some(self.json::<Problem<'_>>().ok()?.name().to_owned())
    }

    /// The error for a status other than success, with the node's explanation.
    pub fn refusal(&self) -> CliError {
        let problem: Option<Problem<'static>> = self.json().ok();
        let explanation = match &problem {
            Some(Problem { title, detail, .. }) => format!("{title}: {detail}"),
            None => String::from_utf8_lossy(&self.body).trim().chars().take(200).collect(),
        };
        let mut refusal = self.refused_because(&explanation);
        if let Some(kind) = problem.as_ref().and_then(|problem| ProblemKind::named(problem.name())) {
            refusal.class = kind.class();
        }
        CliError::Refused(Box::new(Refusal { problem, ..refusal }))
    }

    /// A refusal with this explanation, and advice. Its class follows from the status.
    pub fn refused_because(&self, explanation: &str) -> Refusal {
        let advice = self.advice().map(|advice| format!("\n{advice}")).unwrap_or_default();
        let message = format!("{} answered {}: {explanation}{advice}", self.url, self.status);
        Refusal { class: ErrorClass::of_status(self.status), message, problem: None }
    }

    /// What to do about a refusal that concerns the token.
    fn advice(&self) -> Option<&'static str> {
        let problem = self.problem().unwrap_or_default();
        Some(match (self.status, problem.as_str(), self.had_token) {
            (401, _, false) if self.had_certificate => {
                "no name of the certificate belongs to a principal, or the nodes have no --client-ca: \
                 `tidelock auth principal put NAME --certificate-name …` gives a principal a name"
            }
            (403, "forbidden", false) if self.had_certificate => {
                "`tidelock auth whoami` shows what you may do"
            }
            (401, _, false) => "no token: run `tidelock login`, or give --token-file",
            (401, _, true) => "the token is wrong, expired or deleted: run `tidelock login` with another one",
            (403, "forbidden", true) => "`tidelock auth whoami` shows what the token allows",
            (403, "forbidden", false) => "no token: run `tidelock login`, or give --token-file",
            (503, "permissions-unknown", _) => {
                "nothing was done: the node has no recent permissions; try again, or ask another node"
            }
            _ => return None,
        })
    }

    /// The error for an answer that no Tidelock node gives.
    pub fn unintelligible(&self, reason: &str) -> CliError {
        CliError::Unintelligible { url: self.url.clone(), reason: reason.to_owned() }
    }
}

/// The result of the attempt at one node.
#[derive(Debug)]
enum Attempt {
    Answered(Response),
    /// The node did not receive the request: no connection.
    NotSent(String),
    /// The node may have received the request.
    Broken(String),
}

/// A client of the nodes of one cluster.
pub struct Client {
    agent: ureq::Agent,
    nodes: Vec<NodeUrl>,
    /// The leader that the last answer named, until it cannot be reached.
    leader: Mutex<Option<NodeUrl>>,
    token: Option<Token>,
    has_certificate: bool,
}

impl Client {
    /// A client that asks the nodes of `options` in their order, each for at most `timeout`. Nodes
    /// with TLS must show a certificate of one of its authorities. Opens no connection yet.
    pub fn new(options: ClientOptions, timeout: Duration) -> Client {
        let ClientOptions { urls: nodes, authorities, token, certificate } = options;
        let has_certificate = certificate.is_some();
        let trusted = authorities.as_ref().map_or(&[][..], |authorities| authorities.certificates());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .root_certs(RootCerts::new_with_certs(trusted))
            .client_cert(certificate.map(|certificate| certificate.parsed))
            .build();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls)
            // A proxy between the client and a node could repeat a request, and would see every
            // value.
            .proxy(None)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(CONNECT_TIMEOUT.min(timeout)))
            .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = ureq::Agent::with_parts(agent, connector(), DefaultResolver::default());
        Client { agent, nodes, leader: Mutex::default(), token, has_certificate }
    }

    /// The nodes that are asked, in this order.
    pub fn nodes(&self) -> &[NodeUrl] {
        &self.nodes
    }

    /// A client that asks other nodes of the same cluster, otherwise as this one.
    pub fn of(&self, nodes: Vec<NodeUrl>) -> Client {
        let (agent, token) = (self.agent.clone(), self.token.clone());
        Client { agent, nodes, leader: Mutex::default(), token, has_certificate: self.has_certificate }
    }

    /// The first answer that settles the call.
    pub fn ask(&self, call: &Call<'_>) -> Result<Response, CliError> {
        let leader = self.leader().clone();
        let given = self.nodes.iter().filter(|node| Some(*node) != leader.as_ref());
        first_answer(leader.iter().chain(given), !call.may_repeat, |node| {
            let attempt = self.attempt(node, call);
            self.learn(leader.as_ref() == Some(node), &attempt);
            attempt
        })
    }

    /// Takes the leader out of an answer. One that gave no answer, or refused, is not asked first
    /// again.
    fn learn(&self, was_leader: bool, attempt: &Attempt) {
        match attempt {
            Attempt::Answered(Response { leader: Some(leader), .. })
                if self.token.is_none() || self.nodes.contains(leader) =>
            {
                *self.leader() = Some(leader.clone());
            }
            Attempt::Answered(answer) if answer.status < 500 => {}
            _ if was_leader => *self.leader() = None,
            _ => {}
        }
    }

    fn leader(&self) -> MutexGuard<'_, Option<NodeUrl>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first answer that settles the call, if it has this status; otherwise its refusal.
    pub fn ask_for(&self, status: u16, call: &Call<'_>) -> Result<Response, CliError> {
        self.ask(call)?.accept(status)
    }

    fn attempt(&self, node: &NodeUrl, call: &Call<'_>) -> Attempt {
        if let Err(error) = self.check_token_path(node) {
            return Attempt::NotSent(error);
        }
        match self.send(node, call) {
            Ok(answer) => Attempt::Answered(answer),
            Err(error) => match not_connected(&error) {
                Some(reason) => Attempt::NotSent(reason),
                None => Attempt::Broken(reason(&error)),
            },
        }
    }

    /// Fails if the token must not be sent to the node.
    fn check_token_path(&self, node: &NodeUrl) -> Result<(), String> {
        if self.token.is_some() { node.check_token_path() } else { Ok(()) }
    }

    /// A request with the token, if there is one.
    fn request(&self, method: http::Method, url: String) -> http::request::Builder {
        let request = http::Request::builder().method(method).uri(url);
        match &self.token {
            Some(token) => request.header(http::header::AUTHORIZATION, token.authorization()),
            None => request,
        }
    }

    fn send(&self, node: &NodeUrl, call: &Call<'_>) -> Result<Response, ureq::Error> {
        let mut request = self.request(call.method.clone(), format!("{node}{}", call.target));
        for (name, value) in &call.conditions {
            request = request.header(name, value);
        }
        let response = if matches!(call.method, http::Method::PUT | http::Method::POST) {
            self.agent
                .run(request.header(http::header::CONTENT_TYPE, "application/octet-stream").body(call.body)?)
        } else {
            self.agent.run(request.body(())?)
        }?;
        let (head, body) = response.into_parts();
        Ok(Response {
            url: node.to_string(),
            status: head.status.as_u16(),
            version: head.headers.get(http::header::ETAG).and_then(|value| version(value.as_bytes())),
            leader: head.headers.get(LEADER_HEADER).and_then(|value| value.to_str().ok()?.parse().ok()),
            body: body.into_with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?,
            had_token: self.token.is_some(),
            had_certificate: self.has_certificate,
        })
    }
}

impl Client {
    /// An answer of any size, from the first node that gives one: the node, and the bytes as they
    /// arrive. Waits up to `DOWNLOAD_HEAD_TIMEOUT` for the answer to begin, and without limit
    /// afterwards.
    pub fn download(&self, target: &str) -> Result<(String, impl Read + Send + use<>), CliError> {
        let mut body = None;
        let answer = first_answer(&self.nodes, false, |node| {
            if let Err(error) = self.check_token_path(node) {
                return Attempt::NotSent(error);
            }
            let (url, had_token) = (node.to_string(), self.token.is_some());
            match self.begin_download(format!("{node}{target}")) {
                Ok((200, found)) => {
                    body = Some(found);
                    Attempt::Answered(Response { url, status: 200, ..Response::default() })
                }
                Ok((status, found)) => {
                    // Only the first bytes of a refusal are read.
                    let said = found.into_with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
                    let body = said.unwrap_or_default();
                    let had_certificate = self.has_certificate;
                    let answer =
                        Response { url, status, body, had_token, had_certificate, ..Response::default() };
                    Attempt::Answered(answer)
                }
                Err(error) => Attempt::Broken(reason(&error)),
            }
        })?;
        match body {
            Some(body) if answer.status == 200 => Ok((answer.url, body.into_reader())),
            _ => Err(answer.refusal()),
        }
    }

    fn begin_download(&self, url: String) -> Result<(u16, ureq::Body), ureq::Error> {
        let request = self.request(http::Method::GET, url).body(())?;
        let request = self.agent.configure_request(request).timeout_global(None);
        let request = request.timeout_recv_response(Some(DOWNLOAD_HEAD_TIMEOUT)).build();
        let response = self.agent.run(request)?;
        let (head, body) = response.into_parts();
        Ok((head.status.as_u16(), body))
    }
}

/// Why there is no answer, in words.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => {
            "no answer in time; its process may hang, or the network loses packets".to_owned()
        }
        error => {
            let text = error.to_string();
            let is_untrusted = text.contains("UnknownIssuer");
            let hint = if is_untrusted {
                "; name the authority of its cluster with --ca, or log in there"
            } else {
                ""
            };
            text + hint
        }
    }
}

/// Tries the nodes in order until one settles the request; see the module's invariants.
fn first_answer<'a>(
    nodes: impl IntoIterator<Item = &'a NodeUrl>,
    is_write: bool,
    mut attempt: impl FnMut(&NodeUrl) -> Attempt,
) -> Result<Response, CliError> {
    let mut unreachable = vec![];
    let mut unavailable = None;
    for node in nodes {
        match attempt(node) {
            Attempt::Answered(answer) if answer.status == 503 => unavailable = Some(answer),
            Attempt::Answered(answer) => return Ok(answer),
            Attempt::NotSent(reason) => unreachable.push(format!("  {node}: {reason}")),
            Attempt::Broken(reason) if is_write => {
                return Err(CliError::OutcomeUnknown { url: node.to_string(), reason });
            }
            Attempt::Broken(reason) => unreachable.push(format!("  {node}: {reason}")),
        }
    }
    if unreachable.len() == 1 && unreachable[0].starts_with(&format!("  {DEFAULT_URL}: ")) {
        unreachable.push(
            "  (the default address; name your nodes with --url, TIDELOCK_URL or `tidelock login`)"
                .to_owned(),
        );
    }
    unavailable.ok_or_else(|| CliError::Unreachable(unreachable.join("\n")))
}

/// The version in an `ETag`. A weak tag is not the version of a value that a node sent.
fn version(etag: &[u8]) -> Option<u64> {
    EntityTag::parse(etag).filter(|tag| !tag.is_weak)?.version()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<NodeUrl> {
        ["http://a:1", "http://b:2", "http://c:3"].map(|url| url.parse().unwrap()).to_vec()
    }

    fn answered(status: u16) -> Attempt {
        Attempt::Answered(Response { status, ..Response::default() })
    }

    fn not_sent() -> Attempt {
        Attempt::NotSent("connection refused".to_owned())
    }

    fn broken() -> Attempt {
        Attempt::Broken("connection reset".to_owned())
    }

    /// Plays `attempts` and returns how it ended, and how many nodes were asked.
    fn play(is_write: bool, attempts: Vec<Attempt>) -> (Result<Response, CliError>, usize) {
        let given = attempts.len();
        let mut attempts = attempts.into_iter();
        let outcome = first_answer(&nodes(), is_write, |_| attempts.next().expect("one attempt too many"));
        (outcome, given - attempts.len())
    }

    #[test]
    fn the_first_answer_is_final() {
        for status in [200, 201, 404, 412, 500, 504] {
            let (outcome, asked) = play(true, vec![answered(status), answered(200)]);
            assert_eq!((outcome.unwrap().status, asked), (status, 1));
        }
    }

    #[test]
    fn an_unreachable_node_is_passed_over() {
        for is_write in [false, true] {
            let (outcome, asked) = play(is_write, vec![not_sent(), not_sent(), answered(200)]);
            assert_eq!((outcome.unwrap().status, asked), (200, 3));
        }
    }

    #[test]
    fn a_node_that_did_nothing_is_passed_over() {
        for is_write in [false, true] {
            let (outcome, asked) = play(is_write, vec![answered(503), not_sent(), answered(201)]);
            assert_eq!((outcome.unwrap().status, asked), (201, 3));
            let (outcome, asked) = play(is_write, vec![answered(503), not_sent(), not_sent()]);
            assert_eq!((outcome.unwrap().status, asked), (503, 3), "an answer says more than silence");
        }
    }

    #[test]
    fn a_read_is_asked_again_and_a_write_is_not() {
        let (outcome, asked) = play(false, vec![broken(), answered(200)]);
        assert_eq!((outcome.unwrap().status, asked), (200, 2));
        let (outcome, asked) = play(true, vec![not_sent(), broken(), answered(200)]);
        assert!(matches!(outcome, Err(CliError::OutcomeUnknown { url, .. }) if url == "http://b:2"));
        assert_eq!(asked, 2);
    }

    #[test]
    fn all_unreachable_names_each() {
        let (outcome, _) = play(true, vec![not_sent(), not_sent(), not_sent()]);
        let text = outcome.expect_err("nobody answered").to_string();
        for url in ["http://a:1", "http://b:2", "http://c:3"] {
            assert!(text.contains(url), "{text}");
        }
    }

    #[test]
    fn the_leader_is_asked_first_until_it_fails() {
        let connection = ClientOptions { urls: nodes(), authorities: None, token: None, certificate: None };
        let client = Client::new(connection, Duration::from_secs(1));
        let named = |url: &str| {
            Attempt::Answered(Response {
                status: 200,
                leader: Some(url.parse().unwrap()),
                ..Response::default()
            })
        };
        let first = || client.leader().as_ref().map(NodeUrl::to_string);
        client.learn(false, &named("http://b:2"));
        client.learn(true, &answered(404));
        assert_eq!(first().as_deref(), Some("http://b:2"));
        client.learn(true, &named("http://d:4"));
        assert_eq!(first().as_deref(), Some("http://d:4"), "also a node that was not given");
        for failure in [not_sent(), broken(), answered(503)] {
            client.learn(false, &failure);
            assert!(first().is_some(), "another node failed");
            client.learn(true, &failure);
            assert_eq!(first(), None);
            client.learn(false, &named("http://d:4"));
        }
    }

    #[test]
    fn urls() {
        for good in ["http://127.0.0.1:8001", "http://[::1]:8001", "http://node-1.example:80", "https://h:1"]
        {
            assert_eq!(good.parse::<NodeUrl>().unwrap().to_string(), good);
        }
        assert_eq!("http://h:1/".parse::<NodeUrl>().unwrap().to_string(), "http://h:1");
        assert_eq!(
            "http://[::1]".parse::<NodeUrl>().map(|url| (url.host().to_owned(), url.port())),
            Ok(("::1".to_owned(), 80))
        );
        let secure: NodeUrl = "https://h".parse().unwrap();
        assert_eq!((secure.is_https(), secure.port()), (true, 443));
        assert_eq!(secure.at("other:8001").map(|url| url.to_string()), Ok("https://other:8001".to_owned()));
        assert!(secure.at("").is_err());
        for bad in [
            "",
            "127.0.0.1:8001",
            "ftp://h:1",
            "https://h:1/v1",
            "http://h:1/v1",
            "http://h:1?x",
            "http://u@h:1",
        ] {
            assert!(bad.parse::<NodeUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_are_strong_tags() {
        for (etag, expected) in [(&b"\"6\""[..], Some(6)), (b"6", None), (b"W/\"6\"", None), (b"\"x\"", None)]
        {
            assert_eq!(version(etag), expected);
        }
    }

    #[test]
    fn a_refusal_carries_the_nodes_words() {
        let answer = |body: &str| Response {
            url: "http://a:1".to_owned(),
            status: 503,
            body: body.into(),
            ..Response::default()
        };
        for (body, said) in [
            (
                r#"{"type":"…/no-leader","title":"No leader","status":503,"detail":"nothing was done"}"#,
                "No leader: nothing was done",
            ),
            (r#"{"title":"No leader"}"#, r#"{"title":"No leader"}"#),
            ("plain text\n", "plain text"),
            ("", ""),
        ] {
            assert_eq!(answer(body).refusal().to_string(), format!("http://a:1 answered 503: {said}"));
        }
        let problem = |body| answer(body).problem();
        assert_eq!(problem(
                r#"{"type":"https://x/problems/no-leader","title":"No leader","status":503,"detail":"","more":1}"#
            )
            .as_deref(), Some("no-leader"));
        assert_eq!((problem(r#"{"type":"x/y"}"#), problem("")), (None, None));
    }
}
