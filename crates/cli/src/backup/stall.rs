//! A reader with a timeout for each read, so that a node that hangs does not hang the command.
//!
//! The HTTP library limits only the duration of a whole answer, which does not help for answers of
//! any size. So a thread reads, and this reader waits for it. At most a few pieces are queued
//! between the two.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::PIECE_BYTES;

/// Pieces read ahead.
const PIECES_AHEAD: usize = 4;

/// The reader; see the module.
pub struct StallGuard {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    taken: usize,
    timeout: Duration,
}

impl StallGuard {
    /// Reads `source` until it ends, fails, or delivers nothing for as long as `timeout`.
    pub fn new(mut source: impl Read + Send + 'static, timeout: Duration) -> StallGuard {
        let (sender, pieces) = mpsc::sync_channel(PIECES_AHEAD);
        // The thread ends when the source does, or when the reader is dropped.
        thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = source.read(&mut piece).map(|bytes| {
                    piece.truncate(bytes);
                    piece
                });
                let is_last = !matches!(&read, Ok(piece) if !piece.is_empty());
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        StallGuard { pieces, piece: Vec::new(), taken: 0, timeout }
    }
}

impl Read for StallGuard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            self.taken = 0;
            self.piece = match self.pieces.recv_timeout(self.timeout) {
                Ok(piece) => piece?,
                Err(RecvTimeoutError::Disconnected) => Vec::new(),
                Err(RecvTimeoutError::Timeout) => {
                    let text = format!("nothing came for {} seconds", self.timeout.as_secs_f64());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
            };
        }
        let bytes = buffer.len().min(self.piece.len() - self.taken);
        buffer[..bytes].copy_from_slice(&self.piece[self.taken..self.taken + bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers its content, and then blocks.
    struct Hangs(Vec<u8>, Receiver<()>);

    impl Read for Hangs {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                // Ends when the test does.
                let _ = self.1.recv();
                return Ok(0);
            }
            let bytes = buffer.len().min(self.0.len());
            buffer[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0.drain(..bytes);
            Ok(bytes)
        }
    }

    #[test]
    fn what_comes_is_passed_on_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * PIECE_BYTES + 7).collect();
        let mut read = vec![];
        let guard = StallGuard::new(io::Cursor::new(bytes.clone()), Duration::from_secs(60));
        io::BufReader::with_capacity(1000, guard).read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn silence_is_an_error_behind_what_came() {
        let (_alive, wait) = mpsc::channel();
        let mut guard = StallGuard::new(Hangs(vec![7; 10], wait), Duration::from_secs(60));
        // On a busy machine the content may take longer than the short timeout, which therefore
        // begins after it.
        guard.read_exact(&mut [0; 10]).unwrap();
        guard.timeout = Duration::from_millis(20);
        let error = guard.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_fault_is_passed_on() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let error = StallGuard::new(Fails, Duration::from_secs(60)).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
