//! A small HTTP server in place of a node: it records requests, and gives the answers of a test.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// A request as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method and the target, such as `GET /v1/auth`.
    pub line: String,
    /// The value of `Authorization`; empty without one.
    pub authorization: String,
    /// The body as JSON; null without one.
    pub body: Value,
}

/// The server. Its thread ends with the process.
pub struct Recorder {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Recorder {
    /// `answer` gives the status and the body of the answer to a request.
    pub fn start(answer: impl Fn(&Request) -> (u16, Value) + Send + 'static) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.expect("a connection"));
                // A client that checks only whether a node can be reached sends nothing.
                let Some(request) = read(&mut reader) else { continue };
                let (status, body) = answer(&request);
                recorded.lock().expect("no panic").push(request);
                let body = body.to_string();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                reader.into_inner().write_all((head + &body).as_bytes()).expect("written");
            }
        });
        Recorder { address, requests }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests since the last call.
    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().expect("no panic"))
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let (mut authorization, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => authorization = value.to_owned(),
            "content-length" => length = value.parse().expect("a length"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("JSON") };
    let line = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    Some(Request { line, authorization, body })
}
