//! A client that writes exactly the given bytes and reads exactly the bytes of one reply.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any step takes: a test that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends what the server takes of `bytes` without waiting; returns the number of bytes.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = self.stream.get_mut();
        stream.set_nonblocking(true)?;
        let sent = stream.write(bytes);
        stream.set_nonblocking(false)?;
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    pub fn stop_sending(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    pub fn ask(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        self.send(&command(arguments)).unwrap();
        self.reply()
    }

    /// The bytes of the next reply; none if the server has closed the connection.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.read_reply(&mut out);
        out
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([])) || self.stream.fill_buf().is_err()
    }

    fn read_reply(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        self.stream.read_until(b'\n', out).unwrap();
        let line = out[start..].to_vec();
        let Some(kind) = line.first() else { return };
        let length = || std::str::from_utf8(&line[1..]).unwrap().trim_end().parse::<i64>().unwrap();
        match kind {
            b'$' | b'=' => {
                if let Ok(length) = usize::try_from(length()) {
                    let mut body = vec![0; length + 2];
                    self.stream.read_exact(&mut body).unwrap();
                    out.extend_from_slice(&body);
                }
            }
            b'*' | b'~' | b'>' => (0..length()).for_each(|_| self.read_reply(out)),
            b'%' => (0..2 * length()).for_each(|_| self.read_reply(out)),
            _ => {}
        }
    }
}

/// The bytes of a command.
pub fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
    out
}
