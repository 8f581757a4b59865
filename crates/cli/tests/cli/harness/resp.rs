//! The Redis protocol for tests: sends inline commands and reads replies, with pipelines of any
//! depth.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::client::connect_from;

/// Longer than a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection.
pub struct Client<S = TcpStream>(BufReader<S>);

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        Client::with_timeout(TcpStream::connect(address)?)
    }

    /// Connects from another address of this machine than the usual one.
    pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<Client> {
        Client::with_timeout(connect_from(source, address)?)
    }

    fn with_timeout(stream: TcpStream) -> io::Result<Client> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }
}

impl<S: Read + Write> Client<S> {
    /// Uses a stream that is connected already.
    pub fn over(stream: S) -> Client<S> {
        Client(BufReader::new(stream))
    }

    /// Sends commands, each on a line of its own.
    pub fn send(&mut self, lines: &str) -> io::Result<()> {
        self.0.get_mut().write_all(lines.as_bytes())
    }

    /// The next reply: a line, or the content of a bulk string.
    pub fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_owned();
        match line.strip_prefix('$').map(str::parse::<usize>) {
            Some(Ok(length)) => {
                let mut body = vec![0; length + 2];
                self.0.read_exact(&mut body)?;
                body.truncate(length);
                Ok(String::from_utf8_lossy(&body).into_owned())
            }
            _ => Ok(line),
        }
    }

    /// The replies to one command that answers with an array of strings.
    pub fn ask_many(&mut self, line: &str) -> Vec<String> {
        let count = self.ask(line);
        let count: usize =
            count.trim_start_matches('*').parse().unwrap_or_else(|_| panic!("{line}: {count}"));
        (0..count).map(|_| self.reply().expect("an element")).collect()
    }

    /// The reply to one command that answers with a map of `fields` names. Arrays among the values
    /// are returned as their header, followed by their elements.
    pub fn ask_fields(&mut self, line: &str, fields: usize) -> Vec<String> {
        let header = self.ask(line);
        assert_eq!(header, format!("*{}", fields * 2), "{line}");
        let (mut all, mut open) = (vec![], fields * 2);
        while open > 0 {
            let element = self.reply().expect("an element");
            open += element.strip_prefix('*').map_or(0, |count| count.parse().expect("a number"));
            all.push(element);
            open -= 1;
        }
        all
    }

    /// The reply to one command, of a node that is up.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(&format!("{line}\r\n")).expect("the node takes a command");
        self.reply().expect("the node answers")
    }
}

/// The Redis Cluster address of the node with this HTTP address.
pub fn cluster_address_of(http: SocketAddr) -> SocketAddr {
    SocketAddr::new(http.ip(), http.port() + 3)
}

/// The Redis address of the node with this HTTP address: its ports are consecutive.
pub fn address_of(http: SocketAddr) -> SocketAddr {
    SocketAddr::new(http.ip(), http.port() + 1)
}
