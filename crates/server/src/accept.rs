//! Taking clients in and sending them off, the same for every protocol.
//!
//! Owns what happens when a connection cannot be accepted, and how a client is told why its connection ends. Who is let in,
//! and how many, each server decides.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::counters::Counter;
use crate::metrics::raise;

/// How long accepting rests after the system had no descriptor or memory for another connection: long enough not to
/// spin, short enough that a client's connect does not time out.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Clients of one server that are being told why their connections end, at a time. Those above end without a word.
const FAREWELLS_MAX: usize = 64;

/// How long a client may take to read why its connection ends.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Accepts for ever, and counts what fails in `errors`. `protocol` is for people.
pub(crate) async fn accept(
    listener: &TcpListener,
    protocol: &'static str,
    errors: &Counter,
    mut admit: impl FnMut(TcpStream),
) -> Infallible {
    let mut resting = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                resting = false;
                // Small answers must not wait for the client's delayed acknowledgement. Failing only costs latency.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                admit(stream);
            }
            Err(error) => {
                raise(errors);
                if concerns_one_connection(&error) {
                    continue;
                }
                // Said once for each spell: it repeats ten times a second while it lasts.
                if !resting {
                    tracing::warn!(%error, protocol, "cannot accept connections; trying again");
                }
                resting = true;
                sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Whether accept failed because of the connection that was to be accepted, so that the next may succeed at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Tells clients why their connections end. There are as many clones of its inside as are being told.
#[derive(Default)]
pub(crate) struct Farewells(Rc<()>);

impl Farewells {
    /// Sends `text`, which may be empty, and closes when the client has read it, or has had its time.
    pub fn say(&self, mut stream: TcpStream, text: Vec<u8>) {
        if Rc::strong_count(&self.0) > FAREWELLS_MAX {
            return;
        }
        let farewell = self.0.clone();
        tokio::task::spawn_local(async move {
            let telling = async {
                stream.write_all(&text).await?;
                stream.shutdown().await?;
                // Closing on unread bytes would reset the connection, and the reset can overtake the text.
                let mut discarded = [0; 4096];
                while stream.read(&mut discarded).await? > 0 {}
                io::Result::Ok(())
            };
            // Whatever happened, the connection is over.
            let _ = timeout(FAREWELL_TIMEOUT, telling).await;
            drop(farewell);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shortage_makes_accepting_rest() {
        for number in [rustix::io::Errno::CONNABORTED, rustix::io::Errno::CONNRESET, rustix::io::Errno::INTR]
        {
            assert!(concerns_one_connection(&number.into()), "{number}");
        }
        for number in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOBUFS] {
            assert!(!concerns_one_connection(&number.into()), "{number}");
        }
    }
}
