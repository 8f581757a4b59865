//! Accepts peer connections. After the handshake it carries the links of higher peers, passes on
//! wake-ups of lower ones, and lets the owner answer join requests.
//!
//! Owns the limit of unfinished handshakes and the log lines about refused connections, not the
//! rules of the handshake or the links. Invariant: what unidentified callers can make this node
//! hold is bounded. It is [`HANDSHAKES_MAX`] sockets for the time of a handshake, that of TLS
//! included, each with the bytes of one message. To that come [`JOINS_MAX`] join requests and
//! [`ENROLMENTS_MAX`] requests for a first certificate for the time of a decision, and
//! [`LOGGED_CALLERS_MAX`] lines of text.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tidelock_core::types::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::enrol::{self, EnrolRequest};
use super::handshake::{
    Agreement, Caller, HandshakeError, Judge, Message, refuse_without_tls, write_message,
};
use super::join::{JOIN_TIMEOUT, JOINS_MAX, JoinRefusal, JoinRequest, Welcome};
use super::links::Links;
use super::secure::{AcceptError, Accepted};
use super::{connection, secure};
use crate::audit_log::DeniedReason;
use crate::handshake_limit::HandshakeLimit;
use crate::protocol::ListenerProtocol;
use crate::throttle::FailureThrottle;
use crate::tls::{HANDSHAKE_RECORD, MaybeTlsStream};
use crate::wrong_port::{WrongPort, begins_http_request};

/// Most handshakes in progress at a time; a new one then evicts the oldest. A cluster has few
/// nodes, each of which dials once, so more than this does not come from a cluster.
pub const HANDSHAKES_MAX: usize = 256;

/// Maximum number of enrolment requests at a time, including those whose refusal is delayed;
/// further connections are closed. The limit is separate from [`JOINS_MAX`], so that callers
/// without a certificate cannot block hosts that have one.
pub const ENROLMENTS_MAX: usize = 64;

/// Most callers whose last refusal is stored, so that it is logged once. Beyond, all are forgotten:
/// at worst they are logged again.
pub const LOGGED_CALLERS_MAX: usize = 64;

/// Most bytes that are read from an HTTP client before its connection is closed.
const HTTP_REQUEST_BYTES_MAX: u64 = 64 << 10;

/// Pause after a failed accept, which lacks descriptors or memory and would fail again at once.
const ACCEPT_RETRY_AFTER: Duration = Duration::from_millis(100);

/// Runs until the transport stops; then closes the socket at once, and flushes and closes the
/// links.
pub(super) async fn run(links: Rc<Links>, listener: TcpListener) {
    let context = Rc::new(ListenerContext {
        links: links.clone(),
        handshakes: HandshakeLimit::new(HANDSHAKES_MAX),
        joining: Cell::new(0),
        enrolling: Cell::new(0),
        throttle: FailureThrottle::default(),
        refusal_log: RefusalLog::default(),
    });
    let mut connections = JoinSet::new();
    let mut has_failed = false;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => {
                    has_failed = false;
                    connections.spawn_local(context.clone().serve(stream, remote));
                }
                Err(error) => {
                    // The next errors follow ten times a second while the cause lasts.
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::error!(%error, "cannot accept connections of peers; trying again");
                    }
                    sleep(ACCEPT_RETRY_AFTER).await;
                }
            },
            Some(ended) = connections.join_next() => propagate_panic(ended),
            () = links.stopped() => break,
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        propagate_panic(ended);
    }
}

/// Propagates a task's panic: a bug must not show only as one lost connection.
pub(super) fn propagate_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// State that the connections of one listener share.
struct ListenerContext {
    links: Rc<Links>,
    handshakes: HandshakeLimit,
    joining: Cell<usize>,
    enrolling: Cell<usize>,
    /// Failed enrolments by address.
    throttle: FailureThrottle,
    refusal_log: RefusalLog,
}

impl ListenerContext {
    async fn serve(self: Rc<Self>, stream: TcpStream, remote: SocketAddr) {
        let mut buffer = BytesMut::new();
        let result = tokio::select! {
            result = self.handshakes.run(self.handshake(stream, &mut buffer)) => result,
            () = self.links.stopped() => return,
        };
        self.links.dial_news();
        match result {
            Some(Ok((stream, Accomplished::Enrolment(request)))) => {
                tokio::select! {
                    () = self.enrol(stream, remote, request) => {}
                    () = self.links.stopped() => {}
                }
            }
            Some(Ok((stream, Accomplished::Caller(Caller::Peer(Agreement { peer: identity, chains }))))) => {
                let peer = identity.node;
                self.refusal_log.forget(remote.ip(), peer);
                if let Some(link) = self.links.raise(&identity) {
                    tracing::info!(%peer, address = %remote, "peer link up");
                    connection::run(&self.links, &link, stream, (buffer, chains)).await;
                }
            }
            Some(Ok((_, Accomplished::Caller(Caller::WakeUp(peer))))) => {
                tracing::debug!(%peer, address = %remote, "a peer asks for a connection: dialing it");
                self.refusal_log.forget(remote.ip(), peer);
                self.links.dial_now(peer);
            }
            Some(Ok((stream, Accomplished::Caller(Caller::Join(request))))) => {
                tokio::select! {
                    () = self.answer(stream, remote, request) => {}
                    () = self.links.stopped() => {}
                }
            }
            Some(Err((stream, error))) => {
                self.links.note(&error);
                self.refusal_log.log(remote, &error);
                // Checks by load balancers, and scans of ports, end the connection at once.
                if error.is_of_tls() && !error.is_end_of_stream() {
                    self.record_denied(DeniedReason::TlsFailed, remote, || error.to_string());
                }
                if let Some(stream) = stream.filter(|_| begins_http_request(&buffer)) {
                    self.redirect_http_client(stream).await;
                }
            }
            None => {
                self.links.counters.handshakes_refused.add(1);
                tracing::debug!(%remote, "peer connection closed: a newer handshake has evicted this one");
            }
        }
    }

    /// Tells an HTTP client which port this is, and reads what it still sends: closing with unread
    /// bytes would reset the connection and lose the answer.
    async fn redirect_http_client(&self, mut stream: MaybeTlsStream) {
        let reply = async {
            stream.write_all(&WrongPort::Peer.answer()).await?;
            stream.shutdown().await?;
            let mut ignored = stream.take(HTTP_REQUEST_BYTES_MAX);
            tokio::io::copy(&mut ignored, &mut tokio::io::sink()).await
        };
        // It makes no difference if the client cannot be told.
        let _ = timeout(self.links.options.limits.handshake_timeout, reply).await;
    }

    /// Lets the owner decide about a join request, and sends the answer. If the host is gone
    /// meanwhile, it will ask again.
    async fn answer(&self, mut stream: MaybeTlsStream, remote: SocketAddr, request: JoinRequest) {
        let host = request.host.uuid;
        let decision = self.decide(request).await;
        match &decision {
            Ok(welcome) => tracing::info!(%remote, %host, node = %welcome.node, "a host joins the cluster"),
            Err(JoinRefusal::Refused(reason)) => {
                tracing::warn!(%remote, %host, reason, "a host was not admitted to the cluster");
                self.record_denied(DeniedReason::JoinRefused, remote, || format!("{host}: {reason}"));
            }
            Err(refusal) => tracing::debug!(%remote, %host, reason = %refusal, "the host will ask again"),
        }
        let answer = async {
            write_message(&mut stream, &message(decision)).await?;
            stream.shutdown().await
        };
        if !matches!(timeout(self.links.options.limits.handshake_timeout, answer).await, Ok(Ok(()))) {
            tracing::debug!(%remote, %host, "a host disconnected before its join request was answered");
        }
    }

    /// Answers an enrolment request. The refusal is delayed if many requests from the same address
    /// have failed.
    async fn enrol(&self, mut stream: MaybeTlsStream, remote: SocketAddr, request: EnrolRequest) {
        let host = request.host;
        if self.enrolling.get() >= ENROLMENTS_MAX {
            tracing::debug!(%remote, %host, "too many requests for a first certificate; the host will ask again");
            return;
        }
        self.enrolling.set(self.enrolling.get() + 1);
        let decision = timeout(JOIN_TIMEOUT, (self.links.options.enrolments)(request)).await;
        if let Ok(Err(enrol::EnrolRefusal::Refused(reason))) = &decision {
            tracing::warn!(%remote, %host, reason, "a host got no certificate");
            self.record_denied(DeniedReason::JoinRefused, remote, || format!("{host}: {reason}"));
            self.throttle.failed(Some(remote.ip())).await;
        }
        self.enrolling.set(self.enrolling.get() - 1);
        let decision = decision.unwrap_or(Err(enrol::EnrolRefusal::NoLeader));
        if decision.is_ok() {
            tracing::info!(%remote, %host, "a host got its first certificate for a join token");
        }
        let answer = async {
            enrol::answer(&mut stream, decision).await?;
            stream.shutdown().await
        };
        if !matches!(timeout(self.links.options.limits.handshake_timeout, answer).await, Ok(Ok(()))) {
            tracing::debug!(%remote, %host, "a host disconnected before it got its certificate");
        }
    }

    fn record_denied(&self, reason: DeniedReason, remote: SocketAddr, detail: impl FnOnce() -> String) {
        let client = || (Some(remote.ip()), None);
        self.links.options.audit_log.denied(reason, ListenerProtocol::Peer, client, detail);
    }

    async fn decide(&self, request: JoinRequest) -> Result<Welcome, JoinRefusal> {
        if self.joining.get() >= JOINS_MAX {
            return Err(JoinRefusal::Busy);
        }
        self.joining.set(self.joining.get() + 1);
        let decision = timeout(JOIN_TIMEOUT, (self.links.options.joins)(request)).await;
        self.joining.set(self.joining.get() - 1);
        decision.unwrap_or(Err(JoinRefusal::NoLeader))
    }

    /// Runs the handshake of TLS, if the node has it, and then that of the peer protocol. An error
    /// includes the connection if it is still open.
    async fn handshake(
        &self,
        stream: TcpStream,
        buffer: &mut BytesMut,
    ) -> Result<(MaybeTlsStream, Accomplished), (Option<MaybeTlsStream>, HandshakeError)> {
        connection::configure(&stream).map_err(|error| (None, error.into()))?;
        let limit = self.links.options.limits.handshake_timeout;
        let (mut stream, certificate) = match secure::accept(self.links.options.tls.as_ref(), stream).await {
            Ok(Accepted::Secured(secured)) => secured,
            Ok(Accepted::Enrolment(mut stream)) => {
                return match timeout(limit, enrol::read(&mut stream)).await {
                    Ok(Ok(request)) => Ok((stream, Accomplished::Enrolment(request))),
                    Ok(Err(error)) => Err((None, error)),
                    Err(_) => Err((None, HandshakeError::Timeout)),
                };
            }
            Err(AcceptError::Ended(error)) => return Err((None, error)),
            Err(AcceptError::NotTls(stream)) => {
                let mut stream = MaybeTlsStream::Plain(stream);
                let error = timeout(limit, refuse_without_tls(&mut stream, buffer)).await;
                return Err((Some(stream), error.unwrap_or(HandshakeError::Timeout)));
            }
        };
        let judge = Judge { certificate: certificate.as_ref(), ..self.links.judge() };
        match timeout(limit, judge.accept(&mut stream, buffer)).await {
            Ok(Ok(caller)) => Ok((stream, Accomplished::Caller(caller))),
            Ok(Err(HandshakeError::Malformed(_))) if buffer.first() == Some(&HANDSHAKE_RECORD) => {
                Err((Some(stream), HandshakeError::CallerWithTls))
            }
            Ok(Err(error)) => Err((Some(stream), error)),
            Err(_) => Err((Some(stream), HandshakeError::Timeout)),
        }
    }
}

/// The purpose of a connection, known after its handshake.
enum Accomplished {
    Caller(Caller),
    /// Its first certificate.
    Enrolment(EnrolRequest),
}

/// The message for a decision.
fn message(decision: Result<Welcome, JoinRefusal>) -> Message {
    let welcome = match decision {
        Ok(welcome) => Message::Welcome(welcome),
        Err(refusal) => return Message::JoinRefused(refusal),
    };
    if welcome.fits() {
        return welcome;
    }
    let reason = "the cluster has more hosts than a welcome can name".to_owned();
    Message::JoinRefused(JoinRefusal::Refused(reason))
}

/// The last refusal of each caller, so that a peer that keeps trying is logged only when the reason
/// changes. A caller is an IP address, without its changing port, and the node number that it
/// claims, if any.
#[derive(Default)]
struct RefusalLog {
    last: std::cell::RefCell<BTreeMap<(IpAddr, Option<NodeId>), String>>,
}

impl RefusalLog {
    fn log(&self, remote: SocketAddr, error: &HandshakeError) {
        if self.note(remote.ip(), error) {
            tracing::warn!(%remote, reason = %error, "peer connection refused");
        } else {
            tracing::debug!(%remote, reason = %error, "peer connection refused again");
        }
    }

    /// Records a refusal; returns whether it differs from the caller's last one.
    fn note(&self, ip: IpAddr, error: &HandshakeError) -> bool {
        let claimed = match error {
            HandshakeError::Refused { claimed, .. } => Some(claimed.node),
            _ => None,
        };
        let mut last = self.last.borrow_mut();
        let text = error.to_string();
        if last.get(&(ip, claimed)) == Some(&text) {
            return false;
        }
        if last.len() >= LOGGED_CALLERS_MAX {
            last.clear();
        }
        last.insert((ip, claimed), text);
        true
    }

    /// Records that the caller was accepted: its next refusal is logged again.
    fn forget(&self, ip: IpAddr, peer: NodeId) {
        self.last.borrow_mut().remove(&(ip, Some(peer)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::handshake::{HandshakeRefusal, Introduction};
    use tidelock_core::starts::ProcessStart;
    use uuid::Uuid;

    fn refused(node: u64, refusal: HandshakeRefusal) -> HandshakeError {
        let start = ProcessStart { number: 1, instance: Uuid::nil() };
        let claimed = Introduction {
            cluster: Uuid::nil(),
            node: NodeId(node),
            host: Uuid::nil(),
            start,
            supported: Default::default(),
            version: Default::default(),
        };
        HandshakeError::Refused { refusal, claimed }
    }

    #[test]
    fn a_refusal_is_news_once_until_it_changes() {
        let refusal_log = RefusalLog::default();
        let ip = IpAddr::from([127, 0, 0, 1]);
        assert!(refusal_log.note(ip, &refused(2, HandshakeRefusal::WrongCluster)));
        assert!(!refusal_log.note(ip, &refused(2, HandshakeRefusal::WrongCluster)));
        assert!(refusal_log.note(ip, &refused(3, HandshakeRefusal::WrongCluster)));
        assert!(refusal_log.note(ip, &refused(2, HandshakeRefusal::HostMismatch)));
        refusal_log.forget(ip, NodeId(2));
        assert!(refusal_log.note(ip, &refused(2, HandshakeRefusal::HostMismatch)));
    }

    #[test]
    fn strangers_do_not_fill_the_memory() {
        let refusal_log = RefusalLog::default();
        for node in 0..10_000 {
            refusal_log.note(IpAddr::from([127, 0, 0, 1]), &refused(node, HandshakeRefusal::UnknownNode));
        }
        assert!(refusal_log.last.borrow().len() <= LOGGED_CALLERS_MAX);
    }
}
