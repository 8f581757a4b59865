//! The `cluster` commands that change something: request the change, wait until it is done, report
//! it.
//!
//! Owns the order of these steps and the output. A request changes the wanted state, returns at
//! once, and may be repeated. Waiting only observes: a command that times out undoes nothing.

use std::time::{Duration, Instant};

use serde::Serialize;
use tidelock_api::cluster::HostRole;
use tidelock_api::membership::{Progress, WantedOfHost, WantedOfShard};
use tidelock_client::{Call, CliError, Client, Response, output};

use super::goal::Goal;
use super::node_selector;
use super::retry;
use super::watch::{self, ProgressLine, Watch};
use crate::args::{ClientArgs, NodeSelector, Output, WaitArgs};

/// A leader abandons a transfer after an election timeout, so the request is repeated at this
/// interval: a few default election timeouts.
const REMIND_INTERVAL: Duration = Duration::from_secs(3);

/// A change in progress, until its goal is reached.
pub(super) struct Change {
    goal: Goal,
    client: Client,
    watch: Watch,
    format: Output,
}

impl Change {
    /// Prepares the request for the goal that `goal` makes of a node's number. Asks for the number
    /// if the node is named by an address, and changes nothing yet.
    pub fn new(
        args: ClientArgs,
        node: &NodeSelector,
        goal: impl FnOnce(u64) -> Goal,
    ) -> Result<Change, CliError> {
        // Once: a profile may run a program for the token.
        let (options, timeout) = (args.connection.resolve()?, Duration::from_millis(args.timeout_ms));
        let client = Client::new(options.clone(), timeout);
        let goal = goal(node_selector::number(&client, node)?);
        let watch = Watch::new(options, timeout, goal.leaving());
        Ok(Change { goal, client, watch, format: args.output })
    }

    /// Sends the request, and waits for the goal unless `--no-wait` is set.
    pub fn run(mut self, args: WaitArgs) -> Result<(), CliError> {
        if !args.no_wait {
            self.watch.learn();
        }
        let limit = Duration::from_secs(if args.no_wait { 0 } else { args.wait_s });
        let end = Instant::now() + limit;
        let accepted = self.ask(end)?;
        if args.no_wait {
            return self.say(accepted, Stage::Recorded);
        }
        self.wait(end, limit)?;
        self.say(accepted, Stage::Reached)
    }

    /// Requests the goal until a leader has recorded it or the time is over. Returns the wanted
    /// state, as the node reports it.
    fn ask(&self, end: Instant) -> Result<Wanted, CliError> {
        let ask = || self.client.ask(&Call::post(self.goal.target(), &[]));
        let answer = retry::until(end, None, ask, output::progress).map_err(nobody_answered)?;
        match (answer.status, self.goal) {
            (202, Goal::Leads { .. }) => answer.json().map(Wanted::Leader),
            (202, _) => answer.json().map(Wanted::Host),
            (409, Goal::Gone(node)) if is_removed_already(&answer) => {
                let standing = Some(HostRole::Leaving);
                Ok(Wanted::Host(WantedOfHost { node, standing, draining: None }))
            }
            _ => Err(answer.refusal()),
        }
    }

    /// Waits until the goal is reached; `limit` is the timeout of the whole command, which ends at
    /// `end`.
    fn wait(&mut self, end: Instant, limit: Duration) -> Result<(), CliError> {
        let mut line = ProgressLine::begin();
        let goal = self.goal;
        let mut asked = Instant::now();
        let look = || {
            let progress = self.watch.look(&goal.target())?;
            if !goal.is_lasting() && !progress.done && asked.elapsed() >= REMIND_INTERVAL {
                asked = Instant::now();
                // It was requested before: the next poll shows the result of this attempt.
                let _ = self.client.ask(&Call::post(goal.target(), &[]));
            }
            Ok(progress)
        };
        let Progress { done, waiting_for } =
            watch::wait(end.saturating_duration_since(Instant::now()), look, |text| line.show(text))?;
        drop(line);
        if done { Ok(()) } else { Err(unfinished(goal, limit, &waiting_for)) }
    }

    fn say(&self, accepted: Wanted, stage: Stage) -> Result<(), CliError> {
        match (self.format, stage) {
            (Output::Json, _) => {
                let outcome = Outcome { wanted: accepted, done: stage == Stage::Reached };
                let text = serde_json::to_string(&outcome);
                output::line(&text.expect("invariant: numbers, texts and flags are JSON"))
            }
            (Output::Text, Stage::Reached) => output::line(&self.goal.reached()),
            (Output::Text, Stage::Recorded) => output::line(&self.goal.wanted()),
        }
    }
}

/// The wanted state, as the cluster has recorded it.
#[derive(Serialize)]
#[serde(untagged)]
enum Wanted {
    Host(WantedOfHost),
    Leader(WantedOfShard),
}

/// What `--output json` prints.
#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    wanted: Wanted,
    done: bool,
}

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The cluster has recorded what is wanted.
    Recorded,
    /// It is so.
    Reached,
}

/// A repeated request for a goal that was already reached is no failure.
fn is_removed_already(answer: &Response) -> bool {
    answer.problem().as_deref() == Some("host-removed")
}

/// The general message says that nothing was done, which is not known of a change that was sent and
/// not answered.
fn nobody_answered(error: CliError) -> CliError {
    match error {
        CliError::Unreachable(who) => CliError::Unfinished(format!(
            "no node answered\n{who}\n\
             If one took note all the same, `tidelock cluster status` shows it. Asking again does no harm."
        )),
        error => error,
    }
}

fn unfinished(goal: Goal, limit: Duration, missing: &[String]) -> CliError {
    let reasons: String =
        missing.iter().map(|reason| format!("  {}\n", reason.replace('\n', "\n  "))).collect();
    let outlook = if goal.is_lasting() {
        "It is still wanted, and the cluster keeps at it: `tidelock cluster status` shows how far it is."
    } else {
        "The leader was asked, and goes on leading if it cannot hand over."
    };
    let seconds = limit.as_secs();
    CliError::Unfinished(format!("not yet after {seconds} s: {}\n{reasons}{outlook}", goal.reached()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_says_what_is_missing() {
        let missing =
            ["shard 3: node 4 is catching up (applied 120 of 5000)", "nobody answers\n  http://a:1: refused"];
        let missing = missing.map(str::to_owned);
        assert_eq!(
            unfinished(Goal::Votes(4), Duration::from_secs(60), &missing).to_string(),
            "not yet after 60 s: node 4 may vote\n  \
             shard 3: node 4 is catching up (applied 120 of 5000)\n  \
             nobody answers\n    http://a:1: refused\n\
             It is still wanted, and the cluster keeps at it: `tidelock cluster status` shows how far it is."
        );
        let goal = Goal::Leads { shard: 1, node: 2 };
        let text =
            unfinished(goal, Duration::from_secs(1), &["shard 1: node 3 leads".to_owned()]).to_string();
        assert!(
            text.starts_with("not yet after 1 s: node 2 leads shard 1\n  shard 1: node 3 leads\nThe leader"),
            "{text}"
        );
    }

    #[test]
    fn outcomes_are_flat_objects() {
        let text = |wanted, done| serde_json::to_string(&Outcome { wanted, done }).expect("JSON");
        let wanted = WantedOfHost { node: 3, standing: Some(HostRole::Leaving), draining: None };
        assert_eq!(text(Wanted::Host(wanted), true), r#"{"node":3,"standing":"leaving","done":true}"#);
        let wanted = Wanted::Leader(WantedOfShard { shard: 1, leader: 2 });
        assert_eq!(text(wanted, false), r#"{"shard":1,"leader":2,"done":false}"#);
    }

    #[test]
    fn only_a_host_that_is_gone_counts_as_removed() {
        let answer = |problem: &str| Response {
            url: "http://a:1".to_owned(),
            status: 409,
            body: format!(
                r#"{{"type":"https://tidelock.dev/problems/{problem}","title":"","status":409,"detail":""}}"#
            )
            .into_bytes(),
            ..Response::default()
        };
        assert!(is_removed_already(&answer("host-removed")));
        assert!(!is_removed_already(&answer("last-voter")));
    }

    #[test]
    fn silence_is_not_taken_for_a_no() {
        let text = nobody_answered(CliError::Unreachable("  http://a:1: timeout".to_owned())).to_string();
        assert!(text.contains("http://a:1") && !text.contains("nothing was done"), "{text}");
        assert!(matches!(nobody_answered(CliError::NotFound), CliError::NotFound));
    }
}
