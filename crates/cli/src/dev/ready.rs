//! Waits until nodes are ready, by polling `/readyz` as a load balancer does.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time;

use super::plan::NodePlan;

/// Pauses between two polls: short at first, to notice a quick start, then longer, to cause no
/// load.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A node that does not answer within this is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long hosts may take to register: normally an election timeout or two.
const DUMP_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns when every node is ready; has no timeout.
pub async fn all(nodes: &[NodePlan]) {
    for node in nodes {
        let mut pause = PAUSE_MIN;
        while !time::timeout(ANSWER_TIMEOUT, is_ready(node.http))
            .await
            .is_ok_and(|answer| answer.unwrap_or(false))
        {
            time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Returns the registry once it has every host; `None` if that takes too long, which is no error.
pub async fn dump(nodes: &[NodePlan]) -> Option<String> {
    let all_known = async {
        loop {
            let dump = time::timeout(ANSWER_TIMEOUT, fetch_dump(nodes[0].http)).await;
            match dump {
                Ok(Ok(dump)) if !dump.contains("\"status\":\"new\"") => return dump,
                _ => time::sleep(PAUSE_MAX).await,
            }
        }
    };
    time::timeout(DUMP_TIMEOUT, all_known).await.ok()
}

async fn fetch_dump(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /v1/cluster/dump HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200"));
    let body = body.map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other("the node does not show the registry"))
}

async fn is_ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status_line = [0; b"HTTP/1.1 200".len()];
    stream.read_exact(&mut status_line).await?;
    Ok(status_line == *b"HTTP/1.1 200")
}
