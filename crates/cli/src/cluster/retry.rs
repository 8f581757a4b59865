//! Retries a change of the cluster that no leader has recorded yet.
//!
//! Owns the set of transient answers: 503 (nothing was done) and 504 (perhaps it was), which nodes
//! give during an election, and no answer after a node has given one of these. Only changes that
//! may be repeated are retried. It does not wait for a node that is unreachable at first: its
//! address is wrong, or the node has to be started.

use std::thread;
use std::time::{Duration, Instant};

use tidelock_client::{CliError, Response};

/// Interval between attempts: an election takes about a second.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Sends the request until there is an answer that is not transient, or until `end`. `show`
/// receives each reason for the delay once. `own_doing` is the problem that a second attempt gets
/// while the first one is in progress; after an attempt of unknown outcome it is transient, too.
pub(super) fn until(
    end: Instant,
    own_doing: Option<&str>,
    mut ask: impl FnMut() -> Result<Response, CliError>,
    mut show: impl FnMut(&str),
) -> Result<Response, CliError> {
    let (mut maybe_done, mut is_first, mut shown) = (false, true, None);
    loop {
        let outcome = ask();
        let reason = match &outcome {
            Ok(answer) if matches!(answer.status, 503 | 504) => answer.refusal().to_string(),
            Ok(answer) if maybe_done && own_doing.is_some() && answer.problem().as_deref() == own_doing => {
                answer.refusal().to_string()
            }
            Err(error @ CliError::Unreachable(_)) if !is_first => error.to_string(),
            _ => return outcome,
        };
        is_first = false;
        maybe_done |= !matches!(&outcome, Ok(answer) if answer.status == 503);
        let remaining = end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return outcome;
        }
        if shown.as_ref() != Some(&reason) {
            show(&format!("{reason}\nasking again for up to {} s", remaining.as_secs().max(1)));
            shown = Some(reason);
        }
        thread::sleep(RETRY_INTERVAL.min(remaining));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16) -> Result<Response, CliError> {
        Ok(Response { url: "http://a:1".to_owned(), status, ..Response::default() })
    }

    fn silent() -> Result<Response, CliError> {
        Err(CliError::Unreachable("  http://a:1: refused".to_owned()))
    }

    /// Replays attempts; returns the outcome and the number of calls of `show`.
    fn play(
        time: Duration,
        attempts: Vec<Result<Response, CliError>>,
    ) -> (Result<Response, CliError>, usize) {
        let (mut attempts, mut shown) = (attempts.into_iter(), 0);
        let ask = || attempts.next().expect("one attempt too many");
        let outcome = until(Instant::now() + time, Some("slots-moving"), ask, |_| shown += 1);
        assert_eq!(attempts.len(), 0, "every attempt is made");
        (outcome, shown)
    }

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn an_election_is_waited_for() {
        let (outcome, shown) = play(LONG, vec![answered(503), answered(503), answered(202)]);
        assert_eq!((outcome.expect("an answer").status, shown), (202, 1));
        let (outcome, shown) = play(LONG, vec![answered(504), silent(), answered(409)]);
        assert_eq!((outcome.expect("an answer").status, shown), (409, 2));
    }

    #[test]
    fn what_an_attempt_of_unknown_outcome_began_is_waited_for() {
        let moving = || {
            let body = br#"{"type":"https://tidelock.dev/problems/slots-moving","title":"","status":409,"detail":""}"#.to_vec();
            answered(409).map(|answer| Response { body, ..answer })
        };
        let (outcome, _) = play(LONG, vec![answered(504), moving(), moving(), answered(202)]);
        assert_eq!(outcome.expect("an answer").status, 202);
        for before in [vec![], vec![answered(503)]] {
            let attempts = before.into_iter().chain([moving()]).collect();
            assert_eq!(play(LONG, attempts).0.expect("an answer").status, 409, "others began it");
        }
    }

    #[test]
    fn what_does_not_pass_is_final() {
        for status in [202, 400, 404, 409, 500] {
            let (outcome, shown) = play(LONG, vec![answered(status)]);
            assert_eq!((outcome.expect("an answer").status, shown), (status, 0));
        }
        let (outcome, shown) = play(LONG, vec![silent()]);
        assert!(matches!(outcome, Err(CliError::Unreachable(_))) && shown == 0, "nobody to wait for");
    }

    #[test]
    fn the_last_answer_counts_when_time_is_over() {
        let (outcome, shown) = play(Duration::ZERO, vec![answered(504)]);
        assert_eq!((outcome.expect("an answer").status, shown), (504, 0));
    }
}
