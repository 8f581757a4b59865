//! `tidelock bench atomic`: each thread increments a separate register, one compare-and-exchange at
//! a time.
//!
//! Owns the loop and the check of its answers. No other client writes the register, so every answer
//! is predictable: a thread knows the value of its register, or, after a lost answer, that it is
//! that value or one more. Anything else is a lost or repeated write, and ends the run with an
//! error.
//!
//! Threads follow leaders: the cluster is asked once a second, and whenever a request fails.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use serde::Deserialize;
use tidelock_client::{CliError, Client, NodeUrl, Output, Token, output};

use crate::args::AtomicBenchArgs;
use crate::http::Message;
use crate::load::Outcome;
use crate::protocol::{Kind, Status};
use crate::record::Record;
use crate::report::{Report, Setting};
use crate::routes::Routes;
use crate::token;
use crate::transport::{Transport, server_name};

/// Interval between output lines, and between polls of the leaders.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// How long nodes that have just started may take to report their addresses.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between attempts after a failure: short compared with an election.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Default duration if the report is for a program, which waits for the end.
const JSON_DURATION: Duration = Duration::from_secs(10);

/// A thread's knowledge of its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    /// The value after the last answered exchange.
    value: i64,
    /// Whether it may be one more: the answer to an exchange is unknown.
    in_doubt: bool,
}

/// The server's answer to an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Exchanged {
    success: bool,
    old_value: i64,
    new_value: i64,
}

impl Counter {
    /// Records an answer to `value -> value + 1`; an error if it is impossible.
    fn settle(&mut self, answer: Exchanged) -> Result<(), String> {
        let Exchanged { success, old_value: old, new_value: new } = answer;
        let expected = self.value;
        let next = expected.wrapping_add(1);
        let explained = match success {
            true => old == expected && new == next,
            false => self.in_doubt && old == next && new == next,
        };
        if !explained {
            let doubt = if self.in_doubt { " or one more" } else { "" };
            return Err(format!("expected {expected}{doubt}, but got {answer:?}"));
        }
        *self = Counter { value: next, in_doubt: false };
        Ok(())
    }
}

struct Shared {
    stop: AtomicBool,
    routes: RwLock<(u64, Routes)>,
    /// Number of exchanges in the present second.
    exchanges: AtomicU64,
    nanos: AtomicU64,
    unexplained: Mutex<Option<String>>,
    record: Mutex<Record>,
    connector: Connector,
}

/// How each thread connects to nodes.
struct Connector {
    transport: Transport,
    timeout: Duration,
    token: Option<Token>,
}

/// Runs until its time is over, or without end.
pub(crate) fn run(args: &AtomicBenchArgs) -> Result<(), CliError> {
    let format = if args.json { Output::Json } else { args.output };
    let duration = args.duration_s.or((format == Output::Json).then_some(JSON_DURATION));
    let timeout = Duration::from_millis(args.timeout_ms);
    let options = args.connection.resolve()?;
    let connector =
        Connector { transport: Transport::of_nodes(&options)?, timeout, token: options.token.clone() };
    let names = options.urls.iter().map(NodeUrl::address).collect::<Vec<_>>().join(",");
    let client = Arc::new(Client::new(options, timeout));
    let shared = Shared {
        stop: AtomicBool::new(false),
        routes: RwLock::new((0, Routes::ask_for_all(&client, START_TIMEOUT)?)),
        exchanges: AtomicU64::new(0),
        nanos: AtomicU64::new(0),
        unexplained: Mutex::new(None),
        record: Mutex::new(Record::new()),
        connector,
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        for index in 0..args.threads {
            let (shared, client) = (&shared, Arc::clone(&client));
            let id = format!("{}{index}", args.id_prefix);
            scope.spawn(move || count(&id, shared, &client));
        }
        let lines = Lines { nodes: &names, format, end: duration.map(|duration| begun + duration) };
        report_each_second(&shared, &client, lines)
    })?;
    if let Some(what) = shared.unexplained.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(CliError::Failed(format!("STOPPED, a value that cannot be explained: {what}")));
    }
    let record = shared.record.into_inner().unwrap_or_else(PoisonError::into_inner);
    let setting = Setting {
        load: format!("compare-and-exchange of {} registers, following leaders, via {names}", args.threads),
        connections: args.threads as usize,
        pipeline: 1,
        rate: None,
    };
    Report::new(setting, &Outcome { record, elapsed: begun.elapsed() }).print(format)
}

/// The lines that a run prints.
struct Lines<'a> {
    /// The nodes as a line names them.
    nodes: &'a str,
    /// None are printed for a program.
    format: Output,
    /// When the run ends; `None`: never.
    end: Option<Instant>,
}

fn report_each_second(shared: &Shared, client: &Client, lines: Lines<'_>) -> Result<(), CliError> {
    let Lines { nodes, format, end } = lines;
    let mut since = Instant::now();
    let outcome = loop {
        let next = since + LINE_INTERVAL;
        thread::sleep(end.map_or(next, |end| end.min(next)).saturating_duration_since(Instant::now()));
        let over = end.is_some_and(|end| Instant::now() >= end) || shared.stop.load(Ordering::Relaxed);
        let (exchanges, nanos) =
            (shared.exchanges.swap(0, Ordering::Relaxed), shared.nanos.swap(0, Ordering::Relaxed));
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        if format == Output::Text && seconds > 0.5 {
            let latency_us = nanos.checked_div(exchanges).unwrap_or(0) / 1_000;
            let qps = exchanges as f64 / seconds;
            let line = format!("Sending Request to Atomic ({nodes}) at qps={qps:.0} latency={latency_us}");
            if let Err(error) = output::line(&line) {
                break Err(error);
            }
        }
        if over {
            break Ok(());
        }
        shared.look(client);
    };
    shared.stop.store(true, Ordering::Relaxed);
    outcome
}

impl Shared {
    /// Asks for the leaders. If a leader is unknown, any node is asked, since every node forwards.
    fn look(&self, client: &Client) {
        if let Ok(found) = Routes::ask(client) {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            *routes = (routes.0 + 1, found);
        }
    }

    /// The address of the register's leader, else of the next node; and the number of route updates
    /// so far.
    fn leader(&self, id: &str, attempt: usize) -> (u64, Option<String>) {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        // A node that has just started has not reported its addresses yet.
        let nodes: Vec<_> = routes.1.nodes.iter().filter(|node| !node.http.is_empty()).collect();
        let leader = routes.1.leader(id.as_bytes()).and_then(|at| nodes.iter().find(|node| node.node == at));
        let other = nodes.get(attempt % nodes.len().max(1));
        // A leader that does not answer may be down; every other attempt asks another node.
        let chosen = if attempt.is_multiple_of(2) { leader.or(other) } else { other };
        (routes.0, chosen.map(|node| node.http.clone()))
    }

    fn give_up(&self, what: String) {
        self.stop.store(true, Ordering::Relaxed);
        self.unexplained.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }
}

/// Increments one register until it is told to stop.
fn count(id: &str, shared: &Shared, client: &Client) {
    let mut register = Register { id, shared, counter: None, record: Record::new() };
    let mut attempt = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let outcome = match shared.leader(id, attempt) {
            (seen, Some(address)) => NodeConnection::open(&address, &shared.connector)
                .and_then(|mut line| register.exchange_while_it_leads(&mut line, seen)),
            (_, None) => Err("no node is known".to_owned()),
        };
        match outcome {
            Ok(()) => attempt = 0,
            Err(reason) => {
                register.record.failed(&reason, 1);
                attempt += 1;
                thread::sleep(RETRY_PAUSE);
                shared.look(client);
            }
        }
    }
    shared.record.lock().unwrap_or_else(PoisonError::into_inner).merge(register.record);
}

/// One register, with the thread that increments it.
struct Register<'a> {
    id: &'a str,
    shared: &'a Shared,
    counter: Option<Counter>,
    record: Record,
}

impl Register<'_> {
    /// Returns when another node may lead; an error if a request failed. `seen` is the
    /// number of route updates that were known when the line was opened.
    fn exchange_while_it_leads(&mut self, line: &mut NodeConnection, mut seen: u64) -> Result<(), String> {
        let (id, shared) = (self.id, self.shared);
        while !shared.stop.load(Ordering::Relaxed) {
            let (now_seen, leader) = shared.leader(id, 0);
            if now_seen != seen && leader.is_some_and(|leader| leader != line.address) {
                return Ok(());
            }
            seen = now_seen;
            let Some(known) = &mut self.counter else {
                self.counter = Some(Counter { value: line.value(id)?, in_doubt: false });
                continue;
            };
            let begun = Instant::now();
            let was_in_doubt = known.in_doubt;
            known.in_doubt = true;
            let (status, answer) = line.compare_exchange(id, known.value)?;
            self.record.answered(Status::Http(status));
            let Some(answer) = answer else {
                // Only 503 says for certain that nothing happened.
                known.in_doubt = was_in_doubt || status != 503;
                return Err(format!("{status}: {}", line.said));
            };
            known.in_doubt = was_in_doubt;
            if let Err(what) = known.settle(answer) {
                shared.give_up(format!("register {id}: {what}"));
                return Ok(());
            }
            let latency = begun.elapsed();
            self.record.last = Some(Instant::now());
            self.record.succeeded(Kind::Write, latency, 0);
            shared.exchanges.fetch_add(1, Ordering::Relaxed);
            shared.nanos.fetch_add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A connection with or without TLS.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// A connection to one node, one request at a time.
struct NodeConnection {
    address: String,
    stream: Box<dyn ReadWrite>,
    /// Lines that the head of every request has.
    headers: String,
    out: String,
    input: Vec<u8>,
    /// The last answer that was a refusal.
    said: String,
}

impl NodeConnection {
    fn open(address: &str, connector: &Connector) -> Result<NodeConnection, String> {
        let timeout = connector.timeout;
        if connector.token.is_some() {
            token::check_path(address, &connector.transport)?;
        }
        let failed = |error: std::io::Error| format!("{address}: {error}");
        let mut found = address.to_socket_addrs().map_err(failed)?;
        let found = found.next().ok_or_else(|| format!("{address}: the name has no address"))?;
        let stream = TcpStream::connect_timeout(&found, timeout).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        let stream: Box<dyn ReadWrite> = match &connector.transport {
            Transport::Plain => Box::new(stream),
            Transport::Tls(config) => {
                let tls = ClientConnection::new(Arc::clone(config), server_name(address)?);
                Box::new(StreamOwned::new(tls.map_err(|error| format!("{address}: {error}"))?, stream))
            }
        };
        let headers = format!("host: {address}\r\n{}", token::header(connector.token.as_ref()));
        let (address, out) = (address.to_owned(), String::new());
        Ok(NodeConnection { address, stream, headers, out, input: vec![], said: String::new() })
    }

    fn value(&mut self, id: &str) -> Result<i64, String> {
        #[derive(Deserialize)]
        struct Content {
            value: i64,
        }
        self.out.clear();
        let headers = &self.headers;
        write!(self.out, "GET /v1/atomics/{id} HTTP/1.1\r\n{headers}\r\n").map_err(|e| e.to_string())?;
        match self.ask()? {
            (200, content) => {
                serde_json::from_slice::<Content>(&content).map(|read| read.value).map_err(|e| e.to_string())
            }
            (status, _) => Err(format!("{status}: {}", self.said)),
        }
    }

    fn compare_exchange(&mut self, id: &str, value: i64) -> Result<(u16, Option<Exchanged>), String> {
        let body = format!(r#"{{"expected_value":{value},"new_value":{}}}"#, value.wrapping_add(1));
        self.out.clear();
        let (headers, bytes) = (&self.headers, body.len());
        write!(
            self.out,
            "POST /v1/atomics/{id}/compare-exchange HTTP/1.1\r\n{headers}content-length: {bytes}\r\n\r\n{body}"
        )
        .map_err(|error| error.to_string())?;
        match self.ask()? {
            (200, content) => {
                let answer = serde_json::from_slice(&content).map_err(|error| error.to_string())?;
                Ok((200, Some(answer)))
            }
            (status, _) => Ok((status, None)),
        }
    }

    fn ask(&mut self) -> Result<(u16, Vec<u8>), String> {
        let failed = |error: std::io::Error| error.to_string();
        self.stream.write_all(self.out.as_bytes()).map_err(failed)?;
        self.input.clear();
        let mut block = [0; 4096];
        loop {
            let bytes = self.stream.read(&mut block).map_err(failed)?;
            if bytes == 0 {
                return Err("the server closed the connection".to_owned());
            }
            self.input.extend_from_slice(&block[..bytes]);
            if let Some(message) = Message::parse(&self.input, false)? {
                if message.status != 200 {
                    let text = &message.content[..message.content.len().min(160)];
                    self.said = String::from_utf8_lossy(text).into_owned();
                }
                return Ok((message.status, message.content.to_vec()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(in_doubt: bool, success: bool, old_value: i64, new_value: i64) -> Result<Counter, String> {
        let mut counter = Counter { value: 5, in_doubt };
        counter.settle(Exchanged { success, old_value, new_value }).map(|()| counter)
    }

    #[test]
    fn what_can_be_explained() {
        let six = Ok(Counter { value: 6, in_doubt: false });
        assert_eq!(settle(false, true, 5, 6), six);
        assert_eq!(settle(true, true, 5, 6), six, "the one in doubt did not happen");
        assert_eq!(settle(true, false, 6, 6), six, "the one in doubt happened");
    }

    #[test]
    fn what_cannot() {
        for (in_doubt, success, old, new) in [
            (false, false, 6, 6),
            (false, false, 5, 5),
            (true, false, 5, 5),
            (true, false, 7, 7),
            (true, false, 4, 4),
            (false, true, 4, 6),
            (false, true, 5, 7),
            (true, true, 6, 7),
        ] {
            assert!(settle(in_doubt, success, old, new).is_err(), "{in_doubt} {success} {old} {new}");
        }
    }
}
