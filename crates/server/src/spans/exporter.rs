//! Sends spans to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Owns a thread, so that encoding takes no time from the workers, and every time limit on the way.
//! A batch that the collector does not take is dropped: traces are for people, and those of the
//! next seconds show the same.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::otlp::{self, Resource};
use super::{FinishedSpan, Tracer, TracerState};
use crate::config::TraceEndpoint;

/// Time limit for one batch, with the connection.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum time between two log lines about a collector that takes no spans.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Most bytes of an answer of the collector that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The thread that sends spans.
#[derive(Debug)]
pub struct Exporter {
    tracer: Tracer,
    thread: JoinHandle<()>,
}

/// Why the collector did not take a batch.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    #[error("its HTTP answer broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("it answered {status}{}", if body.is_empty() { String::new() } else { format!(": {body}") })]
    Refused { status: StatusCode, body: String },
    #[error("it did not answer in {} s", EXPORT_TIMEOUT.as_secs())]
    Silent,
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(endpoint: TraceEndpoint, tracer: Tracer, resource: Resource) -> io::Result<Exporter> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let state = tracer.0.clone().expect("invariant: a tracer with a collector");
        let thread = std::thread::Builder::new().name("spans".into()).spawn(move || {
            let mut log = ExportLog::default();
            loop {
                let batch = state.next_batch();
                if batch.is_empty() {
                    return;
                }
                let exported = runtime.block_on(export(&endpoint, &resource, &batch));
                settle(&state, batch.len(), exported, &mut log);
                // Another batch would take as long to fail, and the node waits for this thread.
                if log.is_failing && state.is_closed() {
                    return;
                }
            }
        })?;
        Ok(Exporter { tracer, thread })
    }

    /// Sends what is left, and ends the thread. Takes no longer than one batch if the collector
    /// does not answer.
    pub fn stop(self) {
        self.tracer.close();
        if self.thread.join().is_err() {
            tracing::error!("the thread that exports spans had panicked");
        }
    }
}

/// Counts a batch and logs its failure.
fn settle(state: &TracerState, spans: usize, exported: Result<(), ExportError>, log: &mut ExportLog) {
    match exported {
        Ok(()) => {
            state.exported.add(spans as u64);
            log.succeeded();
        }
        Err(error) => {
            state.dropped.add(spans as u64);
            log.failed(&error, spans);
        }
    }
}

async fn export(
    endpoint: &TraceEndpoint,
    resource: &Resource,
    batch: &[FinishedSpan],
) -> Result<(), ExportError> {
    let body = Bytes::from(otlp::encode(resource, batch));
    timeout(EXPORT_TIMEOUT, post(endpoint, body)).await.unwrap_or(Err(ExportError::Silent))
}

async fn post(endpoint: &TraceEndpoint, body: Bytes) -> Result<(), ExportError> {
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(endpoint.path())
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("invariant: the settings were checked");
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok::<_, hyper::Error>((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
    };
    tokio::pin!(answer);
    let (status, body) = tokio::select! {
        answer = &mut answer => answer?,
        // It ends only with an error, or after the answer.
        ended = connection => {
            ended?;
            answer.await?
        }
    };
    if status.is_success() {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body).chars().take(200).collect();
    Err(ExportError::Refused { status, body })
}

/// Log lines about a collector that takes no spans, limited in rate.
#[derive(Debug, Default)]
struct ExportLog {
    is_failing: bool,
    warned: Option<Instant>,
    /// Spans dropped since the last line.
    dropped: usize,
}

impl ExportLog {
    fn succeeded(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(
                dropped = std::mem::take(&mut self.dropped),
                "the trace collector takes spans again"
            );
        }
    }

    fn failed(&mut self, error: &ExportError, spans: usize) {
        self.is_failing = true;
        self.dropped += spans;
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL) {
            self.warned = Some(Instant::now());
            let dropped = std::mem::take(&mut self.dropped);
            tracing::warn!(reason = %error, dropped, "the trace collector takes no spans: they are dropped");
        }
    }
}
