//! HTTP for tests: a small client for ordinary requests, and raw sockets for exact bytes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;
use ureq::http;

/// Longer than a node's request timeout, so that every request gets the node's answer.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// The raw `ETag`.
    pub etag: Option<String>,
    /// URL of the node that leads the key's shard, if it is another one.
    pub leader: Option<String>,
    pub content_type: String,
    /// Where a redirection leads.
    pub location: Option<String>,
    /// The raw `Set-Cookie`.
    pub set_cookie: Option<String>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The version in the `ETag`.
    pub fn version(&self) -> u64 {
        let etag = self.etag.as_deref().unwrap_or_else(|| panic!("no ETag: {self:?}"));
        etag.trim_matches('"').parse().unwrap_or_else(|_| panic!("not a version: {etag}"))
    }

    /// Whether this is the problem whose type ends in `/name`.
    pub fn is_problem(&self, name: &str) -> bool {
        self.content_type.starts_with("application/problem+json")
            && self.json()["type"].as_str().is_some_and(|kind| kind.rsplit('/').next() == Some(name))
    }
}

/// A client that opens a connection for each request.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
}

impl Default for Client {
    fn default() -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            // A connection for each request, so that none is left from before a node's restart.
            .max_idle_connections(0)
            .timeout_global(Some(TIMEOUT))
            .build();
        Client { agent: config.into() }
    }
}

impl Client {
    /// One request, sent once. `headers` as `name: value`.
    pub fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Result<Response, ureq::Error> {
        let mut request = http::Request::builder().method(method).uri(url);
        for header in headers {
            let (name, value) = header.split_once(": ").expect("a header is `name: value`");
            request = request.header(name, value);
        }
        let response = match method {
            "PUT" | "POST" => self.agent.run(request.body(body)?),
            _ => self.agent.run(request.body(())?),
        }?;
        let (head, body) = response.into_parts();
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let header = |name| head.headers.get(name).map(text);
        Ok(Response {
            status: head.status.as_u16(),
            etag: header(http::header::ETAG),
            leader: head.headers.get("tidelock-leader").map(text),
            content_type: header(http::header::CONTENT_TYPE).unwrap_or_default(),
            location: header(http::header::LOCATION),
            set_cookie: header(http::header::SET_COOKIE),
            body: body.into_with_config().limit(64 << 20).read_to_vec()?,
        })
    }
}

/// Connects from another address of this machine than the usual one.
pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((source, 0)))?;
    rustix::net::connect(&socket, &address)?;
    Ok(TcpStream::from(socket))
}

/// A connection that sends exactly the given bytes.
pub struct Raw<S = TcpStream> {
    reader: BufReader<S>,
}

impl Raw {
    pub fn connect(address: SocketAddr) -> io::Result<Raw> {
        Raw::with_timeouts(TcpStream::connect(address)?)
    }

    /// As [`connect_from`].
    pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<Raw> {
        Raw::with_timeouts(connect_from(source, address)?)
    }

    fn with_timeouts(stream: TcpStream) -> io::Result<Raw> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Raw { reader: BufReader::new(stream) })
    }

    /// Writes from another thread, so that an answer given before all is sent is not lost in a
    /// reset. Whether all could be written does not matter.
    pub fn write_in_background(&self, bytes: Vec<u8>) -> io::Result<thread::JoinHandle<()>> {
        let mut stream = self.reader.get_ref().try_clone()?;
        Ok(thread::spawn(move || {
            let _ = stream.write_all(&bytes);
        }))
    }
}

impl<S: Read + Write> Raw<S> {
    /// Uses a stream that is connected already.
    pub fn over(stream: S) -> Raw<S> {
        Raw { reader: BufReader::new(stream) }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Reads until the other side closes the connection.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads lines up to one that contains a text.
    pub fn read_until(&mut self, text: &str) -> io::Result<()> {
        while !self.line()?.contains(text) {}
        Ok(())
    }

    /// Reads one response to anything but `HEAD`: its status and its body.
    pub fn read(&mut self) -> io::Result<(u16, Vec<u8>)> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {status_line:?}")))?;
        let mut length = 0;
        let mut chunked = false;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let body = if chunked { self.chunks()? } else { self.exactly(length)? };
        Ok((status, body))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = vec![];
        loop {
            let size = usize::from_str_radix(self.line()?.trim(), 16).map_err(io::Error::other)?;
            body.extend(self.exactly(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}
