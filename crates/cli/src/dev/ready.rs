//! Waiting until nodes are ready, by asking `/readyz` as any load balancer would.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time;

use super::plan::NodePlan;

/// Pauses between two questions: soon at first, so that a quick start is seen at once; then not a burden.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A node that does not answer within this is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns when every node has said that it is ready; waits without end for one that does not.
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

async fn is_ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status_line = [0; b"HTTP/1.1 200".len()];
    stream.read_exact(&mut status_line).await?;
    Ok(status_line == *b"HTTP/1.1 200")
}
