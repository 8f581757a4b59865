//! `tidelock backup restore`: restores a file into a cluster that was never written to.
//!
//! Owns the order of the steps. The file is read and verified whole before anything is sent. Before
//! the first key, every shard is claimed for this backup and raised above every version that the
//! old cluster gave out. Then the keys are sent. Each step may be repeated, so an interrupted
//! restore is simply run again. The cluster itself decides whether it is fresh.

use std::thread;
use std::time::{Duration, Instant};

use tidelock_client::{Call, CliError, Client, Response, output};
use tidelock_core::storage::backup::{Part, Summary};

use crate::args::{Output, RestoreArgs};

/// A request is complete once it has this many bytes of keys: even with the largest block of a
/// backup added, it stays below a node's limit of 8 MiB.
const REQUEST_BYTES_CLOSE: usize = 4 << 20;

/// How long to retry the first request, and each later one: long enough for an
/// election, short enough to report a wrong URL.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs `backup restore`.
pub fn run(args: RestoreArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let summary = super::read_file(&args.file, "verifying", |_| Ok(()))?;
    let revision = summary.restored_revision();
    let target = format!("/v1/restore?backup={}&revision={revision}&expiring=true", summary.header.backup);
    let send = |keys: &[u8], timeout| send(&client, &Call::post(&*target, keys), timeout);
    let claim = if args.discard { format!("{target}&discard=true") } else { target.clone() };
    self::send(&client, &Call::post(&*claim, &[]), FIRST_REQUEST_TIMEOUT)?;

    let mut keys = Vec::new();
    let again = super::read_file(&args.file, "restoring", |part| {
        if let Part::Keys(block) = part {
            keys.extend_from_slice(&block);
            if keys.len() >= REQUEST_BYTES_CLOSE {
                send(&keys, REQUEST_TIMEOUT)?;
                keys.clear();
            }
        } else if let Part::Config(block) = part {
            send(&block, REQUEST_TIMEOUT)?;
        }
        Ok(())
    })?;
    if again != summary {
        let text =
            format!("{} has changed while it was restored; what was sent is of both", args.file.display());
        return Err(CliError::Failed(text));
    }
    if !keys.is_empty() {
        send(&keys, REQUEST_TIMEOUT)?;
    }
    match args.client.output {
        Output::Json => output::line(&json(&summary)),
        Output::Text => output::line(&format!(
            "restored {} keys; every version from now on is above {revision}",
            summary.keys()
        )),
    }
}

fn json(summary: &Summary) -> String {
    let (backup, keys, revision) = (summary.header.backup, summary.keys(), summary.restored_revision().0);
    serde_json::json!({ "backup": backup.to_string(), "keys": keys, "revision": revision }).to_string()
}

/// Sends one request until it is done or refused. After a failure or an unknown outcome it is sent
/// again, which has no effect if it was already done.
fn send(client: &Client, call: &Call<'_>, timeout: Duration) -> Result<(), CliError> {
    let begun = Instant::now();
    loop {
        let failure = match judge(client.ask(call)) {
            RequestOutcome::Done => return Ok(()),
            RequestOutcome::Refused(error) => return Err(error),
            RequestOutcome::Again(error) => error,
        };
        if begun.elapsed() >= timeout {
            return Err(failure);
        }
        thread::sleep(PAUSE);
    }
}

enum RequestOutcome {
    Done,
    Refused(CliError),
    Again(CliError),
}

fn judge(answer: Result<Response, CliError>) -> RequestOutcome {
    match answer {
        Ok(answer) => match answer.status {
            204 => RequestOutcome::Done,
            409 => RequestOutcome::Refused(CliError::ConditionFailed(format!(
                "{} refuses: the cluster has been written to by something else than this restore. \
                 A backup goes into a fresh cluster: start one with empty data directories, and keep clients away \
                 until it is restored. If no client has written, and it was another restore, --discard removes what \
                 that has brought",
                answer.url
            ))),
            503 | 504 => RequestOutcome::Again(answer.refusal()),
            _ => RequestOutcome::Refused(answer.refusal()),
        },
        Err(error @ CliError::Unreachable(_)) => RequestOutcome::Again(error),
        Err(error) => RequestOutcome::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let answer = |status| Ok(Response { url: "http://a:1".to_owned(), status, ..Response::default() });
        assert!(matches!(judge(answer(204)), RequestOutcome::Done));
        for status in [503, 504] {
            assert!(matches!(judge(answer(status)), RequestOutcome::Again(_)), "{status}");
        }
        for status in [200, 400, 404, 409, 413, 500] {
            assert!(matches!(judge(answer(status)), RequestOutcome::Refused(_)), "{status}");
        }
        assert!(matches!(judge(Err(CliError::Unreachable(String::new()))), RequestOutcome::Again(_)));
    }
}
