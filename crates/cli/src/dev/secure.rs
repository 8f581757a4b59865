//! `dev --secure`: the first node creates the cluster, and the others join with join tokens.
//!
//! Requests use the blocking client of the other commands, which supports TLS and tokens. Each
//! request runs on a thread of the blocking pool.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tidelock_api::authorities::IssuedJoinToken;
use tidelock_api::problem::ErrorClass;
use tidelock_client::{Call, CliError, Client, ClientOptions, Token};
use tokio::time::{Instant, sleep};

use super::plan::{NodePlan, Plan};
use crate::new_file::NewFile;

/// Time between two polls.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a request waits for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the first node may refuse to issue a join token.
const ISSUE_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a node is ready; has no timeout.
pub async fn ready(plan: &Plan, node: &NodePlan) {
    while ask(plan, node, Call::get("/readyz")).await.is_err() {
        sleep(PAUSE).await;
    }
}

/// Writes the join token of a node that has no certificate yet, which the first node creates.
pub async fn write_join_token(plan: &Plan, node: &NodePlan) -> Result<(), CliError> {
    if plan.directory(node).join("tls/tls.crt").exists() {
        return Ok(());
    }
    let path = plan.join_token(node);
    remove(&path)?;
    let file = NewFile::create(&path)?;
    let deadline = Instant::now() + ISSUE_TIMEOUT;
    let answer = loop {
        let call = Call::post("/v1/cluster/join-tokens".to_owned(), b"");
        match ask(plan, &plan.nodes[0], Call { may_repeat: false, ..call }).await {
            // The node has no leader for now, or a slow disk. It has issued nothing.
            Err(error) if error.class() == ErrorClass::Unavailable && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            answer => break answer?,
        }
    };
    let issued: IssuedJoinToken = serde_json::from_slice(&answer)
        .map_err(|error| CliError::Stopped(format!("no join token for {}: {error}", node.name)))?;
    file.write(&issued.token)
}

/// The registry as lines of JSON; `None` if the first node does not show it.
pub async fn dump(plan: &Plan) -> Option<String> {
    let dump = ask(plan, &plan.nodes[0], Call::get("/v1/cluster/dump")).await.ok()?;
    String::from_utf8(dump).ok()
}

/// Sends a request and returns the body of a successful answer.
async fn ask(plan: &Plan, node: &NodePlan, call: Call<'static>) -> Result<Vec<u8>, CliError> {
    let (url, ca, token) = (plan.url(node), plan.ca(), plan.root_token());
    let asking = tokio::task::spawn_blocking(move || {
        let url = url.parse().expect("invariant: an address with a scheme is a URL");
        let options = ClientOptions::new(vec![url], Some(&ca))?.with_token(|| Token::read(&token))?;
        let answer = Client::new(options, ANSWER_TIMEOUT).ask(&call)?;
        if matches!(answer.status, 200 | 201) { Ok(answer.body) } else { Err(answer.refusal()) }
    });
    asking.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

fn remove(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CliError::io(path.display().to_string())(error))
        }
        _ => Ok(()),
    }
}
