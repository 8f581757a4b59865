//! Runs one node of a local cluster as a child process: its start, its logs, its end.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidelock_client::CliError;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time;

use super::lines;
use super::plan::NodePlan;

/// How long a node may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Removed from the environment of the children: a cluster of one must not become a founder of
/// another cluster because of a variable meant for that one.
pub const UNSET_VARIABLE: &str = "TIDELOCK_PEERS";

/// The unexpected end of a child.
#[derive(Debug)]
pub struct Exit {
    pub node: String,
    /// `exit status: 1`, `signal: 9 (SIGKILL)`, …
    pub how: String,
}

/// Starts `node` and leaves a task in `children` that lives as long as it: it stops the child when
/// `stopped` turns true, and reports to `exits` if the child ends before. Returns the process id.
pub fn start(
    node: &NodePlan,
    children: &mut JoinSet<()>,
    stopped: watch::Receiver<bool>,
    exits: mpsc::Sender<Exit>,
) -> Result<u32, CliError> {
    let mut child = Command::new(&node.executable)
        .args(&node.arguments)
        .arg("--stop-at-stdin-end")
        .env_remove(UNSET_VARIABLE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A separate process group: Ctrl-C reaches only this process, which then stops the nodes in
        // order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(CliError::io(node.executable.display().to_string()))?;
    if let Some(stdout) = child.stdout.take() {
        children.spawn(lines::copy(stdout, node.name.clone(), node.place));
    }
    if let Some(stderr) = child.stderr.take() {
        children.spawn(lines::copy(stderr, node.name.clone(), node.place));
    }
    let pid = child.id().expect("invariant: a child that was not waited for has a number");
    children.spawn(watch_over(child, node.name.clone(), stopped, exits));
    Ok(pid)
}

async fn watch_over(
    mut child: Child,
    node: String,
    mut stopped: watch::Receiver<bool>,
    exits: mpsc::Sender<Exit>,
) {
    // `Child::wait` closes the child's standard input, which for these children means "stop".
    let lifeline = child.stdin.take();
    tokio::select! {
        status = child.wait() => {
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            // The receiver is closed once the cluster is being stopped.
            let _ = exits.send(Exit { node, how }).await;
        }
        () = told_to_stop(&mut stopped) => stop(&mut child).await,
    }
    drop(lifeline);
}

async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the supervisor has ended, which is also a reason to stop.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

/// Asks the child to stop, and kills it if it has not after [`STOP_TIMEOUT`].
async fn stop(child: &mut Child) {
    // Without an id the child has ended and is reaped, and another process may have its old id.
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        // This fails only for a child that has ended meanwhile.
        let _ = child.kill().await;
    }
}
