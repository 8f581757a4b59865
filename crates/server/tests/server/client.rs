//! A client that writes exactly the given bytes and reads exactly one message.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any step takes: a test that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// One answer, byte for byte.
#[derive(Debug)]
pub struct Answer {
    pub status_line: String,
    /// As sent, names in lower case as hyper writes them.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn status(&self) -> u16 {
        self.status_line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// Sends all of `bytes`; fails if the server has stopped reading.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Closes this side of the connection.
    pub fn stop_sending(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, request: &[u8]) -> Answer {
        self.send(request).unwrap();
        let is_head = request.starts_with(b"HEAD ");
        self.read_answer(is_head).unwrap()
    }

    /// Reads one answer; with `is_head` it has no body whatever its length.
    pub fn read_answer(&mut self, is_head: bool) -> io::Result<Answer> {
        let mut answer = self.read_head()?;
        if !is_head {
            let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
            answer.body.resize(length, 0);
            self.stream.read_exact(&mut answer.body)?;
        }
        Ok(answer)
    }

    /// Reads one chunk of a chunked body; the last one is empty.
    pub fn read_chunk(&mut self) -> io::Result<String> {
        let length = usize::from_str_radix(&self.read_line()?, 16).expect("a length");
        let mut chunk = vec![0; length];
        self.stream.read_exact(&mut chunk)?;
        self.read_line()?;
        Ok(String::from_utf8(chunk).expect("text"))
    }

    /// Reads a line of a body that ends with its connection.
    pub fn read_text_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        line.strip_suffix('\n').map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads the head of one answer.
    pub fn read_head(&mut self) -> io::Result<Answer> {
        let status_line = self.read_line()?;
        let mut headers = Vec::new();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").expect("a header has a name");
            headers.push((name.to_owned(), value.to_owned()));
        }
        Ok(Answer { status_line, headers, body: Vec::new() })
    }

    /// Fails unless the server has closed the connection without sending more.
    pub fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.escape_ascii().to_string(), "");
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
