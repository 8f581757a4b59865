//! One peer connection, from the end of its handshake to its last byte.
//!
//! Owns the socket: passes received frames to the owner, writes what is queued, detects that the
//! peer is gone. `links` owns the order of link events and the queue. Invariant: nothing is
//! delivered from a connection whose link has ended.
//!
//! **Half-open connections.** A peer that lost power sends no FIN. Under traffic `TCP_USER_TIMEOUT`
//! ends the connection once written bytes stay unacknowledged; without traffic TCP keep-alive
//! probes it. The kernel does both, so a busy event loop on either side is not mistaken for a dead
//! peer, as it would be by an application's own ping. The kernel's default, some 15 minutes of
//! retransmission, would also leave a healed partition waiting for the next retransmission, up to
//! two minutes away; a new connection is faster. What the kernel cannot detect, a peer whose
//! process hangs, Raft detects by its silence.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::sockopt;
use tidelock_core::event::Event;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::frame::{FRAME_HEADER_BYTES, FrameBatch, FrameChains, FrameDecoder, FrameError};
use super::links::{Link, Links};
use crate::tls::MaybeTlsStream;

/// How long written bytes may stay unacknowledged before the connection is lost, in milliseconds.
/// Three election timeouts by default: elections handle the silence long before, this only makes
/// room for a new connection.
pub const UNACKNOWLEDGED_MILLIS_MAX: u32 = 3_000;

/// A silent connection is probed after this long, and at this interval. One second is the finest
/// resolution of TCP.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Unanswered probes before the connection is lost. On Linux `TCP_USER_TIMEOUT` takes precedence;
/// both amount to three seconds.
pub const KEEPALIVE_PROBES_MAX: u32 = 3;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum LinkEnd {
    #[error("closed by the peer")]
    Closed,
    #[error("closed by the peer in the middle of a frame")]
    ClosedInsideFrame,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("replaced by a newer connection of the peer")]
    Replaced,
    #[error("cut, because too many frames wait for the peer")]
    QueueOverflow,
    #[error("cut, because the peer did not take in time what was queued")]
    NotTaken,
}

/// Sets the TCP options of both sides of a peer connection.
pub(super) fn configure(stream: &TcpStream) -> io::Result<()> {
    // Frames are batched here; Nagle's algorithm would batch them again, at the cost of a round
    // trip.
    stream.set_nodelay(true)?;
    let socket = stream.as_fd();
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MILLIS_MAX)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES_MAX)?;
    sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

/// Carries frames until the connection or the link ends, and raises [`Event::LinkDown`]. `buffer`
/// holds the bytes after the handshake.
pub(super) async fn run(
    links: &Links,
    link: &Rc<Link>,
    stream: MaybeTlsStream,
    begin: (BytesMut, FrameChains),
) {
    // The two kinds are told apart once, not for each frame.
    let carry = async {
        match stream {
            MaybeTlsStream::Plain(mut stream) => carry(links, link, stream.split(), begin).await,
            stream => carry(links, link, split(stream), begin).await,
        }
    };
    let drain_timeout = async {
        link.closing().await;
        sleep(links.options.limits.stop_timeout).await;
    };
    let end = tokio::select! {
        biased;
        () = link.ended.notified() => {
            if link.is_overflowed() { LinkEnd::QueueOverflow } else { LinkEnd::Replaced }
        }
        end = carry => end,
        () = drain_timeout => LinkEnd::NotTaken,
    };
    match &end {
        LinkEnd::Frame(FrameError::Checksum(_)) => links.counters.checksum_failures.add(1),
        LinkEnd::Frame(FrameError::Length(_)) => links.counters.length_violations.add(1),
        _ => {}
    }
    if link.is_closing() && !matches!(end, LinkEnd::NotTaken) {
        tracing::info!(peer = %link.peer, "peer link closed");
    } else {
        tracing::warn!(peer = %link.peer, reason = %end, "peer link lost");
    }
    links.end(link);
}

/// Moves frames in both directions in one task: whichever direction ends first drops the other.
/// Neither has priority, because a flood in one direction would starve the other. Nothing moves on
/// an ended link.
async fn carry<R, W>(
    links: &Links,
    link: &Link,
    (reader, writer): (R, W),
    (buffer, chains): (BytesMut, FrameChains),
) -> LinkEnd
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    tokio::select! {
        end = receive(links, link, reader, FrameDecoder::new(buffer, chains.received)) => end,
        end = transmit(links, link, writer, chains.sent) => LinkEnd::Io(end),
    }
}

async fn receive<R>(links: &Links, link: &Link, mut reader: R, mut decoder: FrameDecoder) -> LinkEnd
where
    R: AsyncRead + Unpin,
{
    loop {
        if let Err(error) = deliver(links, link, &mut decoder) {
            return error.into();
        }
        match reader.read_buf(decoder.read_buffer()).await {
            Ok(0) if decoder.is_inside_frame() => return LinkEnd::ClosedInsideFrame,
            Ok(0) => return LinkEnd::Closed,
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

/// Delivers all complete frames. The link is checked before each, because the owner may cut it from
/// its sink.
fn deliver(links: &Links, link: &Link, decoder: &mut FrameDecoder) -> Result<(), FrameError> {
    while link.is_up() {
        let Some(payload) = decoder.next_payload()? else { break };
        links.counters.frames_received.add(1);
        links.counters.bytes_received.add((FRAME_HEADER_BYTES + payload.len()) as u64);
        links.tell(Event::Frame { from: link.peer, payload });
    }
    Ok(())
}

/// Writes everything queued, repeatedly, until the socket fails. When the link closes, it writes
/// the rest and closes its direction. The reader then waits until the peer does the same: closing a
/// socket with unread bytes would reset the connection and could lose the last frames.
async fn transmit<W>(links: &Links, link: &Link, mut writer: W, mut chain: u32) -> io::Error
where
    W: AsyncWrite + Unpin,
{
    loop {
        let closing = link.is_closing();
        match write_queued(links, link, &mut writer, &mut chain).await {
            Ok(true) => continue,
            Ok(false) if closing => break,
            Ok(false) => {}
            Err(error) => return error,
        }
        tokio::select! {
            () = link.queued.notified() => {}
            () = link.closing() => {}
        }
    }
    match writer.shutdown().await {
        Ok(()) => std::future::pending().await,
        Err(error) => error,
    }
}

/// Writes one batch; returns whether there was one.
async fn write_queued<W>(links: &Links, link: &Link, writer: &mut W, chain: &mut u32) -> io::Result<bool>
where
    W: AsyncWrite + Unpin,
{
    let payloads = link.queue.borrow_mut().take();
    if payloads.is_empty() {
        return Ok(false);
    }
    writer.write_all_buf(&mut FrameBatch::new(&payloads, chain)).await?;
    // Without TLS this does nothing. With TLS the last records may still be in a buffer.
    writer.flush().await?;
    // The queue of an ended link is empty and counts nothing: its frames were counted as dropped.
    let (frames, bytes) = link.queue.borrow_mut().written();
    links.counters.frames_sent.add(frames as u64);
    links.counters.bytes_sent.add(bytes as u64);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test(flavor = "current_thread")]
    async fn dead_peers_are_noticed_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        configure(&stream).unwrap();
        let socket = stream.as_fd();
        assert!(sockopt::tcp_nodelay(socket).unwrap());
        assert!(sockopt::socket_keepalive(socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), UNACKNOWLEDGED_MILLIS_MAX);
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepintvl(socket).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), KEEPALIVE_PROBES_MAX);
    }
}
