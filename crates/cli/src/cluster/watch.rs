//! Polls the cluster until a change is done.
//!
//! Owns the choice of nodes to poll: a leaving node stops, so the hosts that it named before are
//! asked instead. Also owns the interval, the timeout, and the progress line on a terminal. The
//! node that answers decides whether the change is done.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use tidelock_api::cluster::Cluster;
use tidelock_api::membership::Progress;
use tidelock_client::{Call, CliError, Client, ClientOptions, NodeUrl, output};

/// Interval between polls: goals take election timeouts or seconds, and an answer costs a node
/// little.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Timeout of a poll: a view is answered from memory, so a node that takes longer is skipped.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between frames of the spinner.
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// A change that takes longer than this says what it waits for.
const FIRST_LINE_AFTER: Duration = Duration::from_secs(2);

/// Minimum interval between two such lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Asks any reachable node.
pub(super) struct Watch {
    client: Client,
    given: Vec<NodeUrl>,
    /// The node that will stop, if any.
    leaving: Option<u64>,
    /// The node that answered last, and its view then.
    seen: Option<(NodeUrl, Cluster)>,
}

impl Watch {
    /// Prepares polls of the given nodes, and of the hosts that they name.
    pub fn new(options: ClientOptions, timeout: Duration, leaving: Option<u64>) -> Watch {
        let given = options.urls.clone();
        Watch { client: Client::new(options, LOOK_TIMEOUT.min(timeout)), given, leaving, seen: None }
    }

    /// Learns which nodes to ask once a leaving node has stopped. Does nothing if no node answers.
    pub fn learn(&mut self) {
        self.learn_from(self.candidates());
    }

    fn learn_from(&mut self, nodes: Vec<NodeUrl>) {
        let answer = self.client.of(nodes).ask(&Call::get("/v1/cluster"));
        let view = answer.ok().and_then(|answer| Some((answer.url.parse().ok()?, answer.json().ok()?)));
        self.seen = view.or(self.seen.take());
    }

    /// The progress of a change, as a node knows it.
    pub fn look(&mut self, target: &str) -> Result<Progress, CliError> {
        let answer = self.client.of(self.candidates()).ask_for(200, &Call::get(target))?;
        let url: NodeUrl = answer.url.parse().expect("invariant: what was asked is a URL of a node");
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != url) {
            self.learn_from(vec![url]);
        }
        answer.json()
    }

    /// The nodes to ask, in this order: the one that answered last, so that views do not go back in
    /// time; the given ones; the named ones. A node that will stop comes last, because it stops
    /// before its removal is complete.
    fn candidates(&self) -> Vec<NodeUrl> {
        let Some((url, view)) = &self.seen else { return self.given.clone() };
        let leaves = |node| Some(node) == self.leaving;
        let named = view.hosts.iter().filter(|host| !leaves(host.node));
        let named = named.filter_map(|host| url.at(&host.http_address).ok());
        let others = self.given.iter().cloned().chain(named).filter(|other| other != url);
        let mut candidates: Vec<NodeUrl> = vec![];
        for candidate in others {
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        let last = if leaves(view.node) { candidates.len() } else { 0 };
        candidates.insert(last, url.clone());
        candidates
    }
}

/// Polls until the change is done or `limit` is over; returns the last progress. `show` receives
/// what is still missing. If no node answers, that counts as missing, since it may be transient.
pub(super) fn wait(
    limit: Duration,
    mut look: impl FnMut() -> Result<Progress, CliError>,
    mut show: impl FnMut(&str),
) -> Result<Progress, CliError> {
    let end = Instant::now() + limit;
    let missing = |reason| Progress { done: false, waiting_for: vec![reason] };
    loop {
        let progress = match look() {
            Ok(progress) => progress,
            Err(CliError::Unreachable(who)) => missing(format!("no node answers\n{who}")),
            Err(error @ CliError::Refused(_)) => missing(error.to_string()),
            Err(error) => return Err(error),
        };
        let remaining = end.saturating_duration_since(Instant::now());
        if progress.done || remaining.is_zero() {
            return Ok(progress);
        }
        show(&summary(&progress.waiting_for));
        thread::sleep(LOOK_INTERVAL.min(remaining));
    }
}

/// What is missing, in one line.
fn summary(missing: &[String]) -> String {
    let first = missing.first().and_then(|first| first.lines().next()).unwrap_or_default();
    match missing.len() {
        0 | 1 => first.to_owned(),
        count => format!("{first} (and {} more)", count - 1),
    }
}

/// Shows on standard error what a change waits for: on a terminal as a line that disappears at the
/// end, otherwise as a line whenever the reason has changed.
pub(super) enum ProgressLine {
    /// Standard error is a terminal.
    Spinner(ProgressBar),
    /// Standard error is a file or a pipe.
    Log(ProgressLog),
}

impl ProgressLine {
    /// Begins the line.
    pub fn begin() -> ProgressLine {
        if !io::stderr().is_terminal() {
            return ProgressLine::Log(ProgressLog {
                due: Instant::now() + FIRST_LINE_AFTER,
                last: String::new(),
            });
        }
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        let bar = ProgressBar::new_spinner()
            .with_style(style.expect("invariant: the template is well formed"))
            .with_finish(ProgressFinish::AndClear);
        bar.enable_steady_tick(SPINNER_INTERVAL);
        ProgressLine::Spinner(bar)
    }

    /// Shows `text` from now on.
    pub fn show(&mut self, text: &str) {
        match self {
            ProgressLine::Spinner(bar) => bar.set_message(text.to_owned()),
            ProgressLine::Log(log) => {
                if log.is_due(text, Instant::now()) {
                    output::progress(&format!("waiting: {text}"));
                }
            }
        }
    }
}

/// Limits the lines that are written where there is no terminal: none about a change that is done
/// soon, and not one for each step of a node that catches up.
pub(super) struct ProgressLog {
    /// The next line is written at this time at the earliest.
    due: Instant,
    last: String,
}

impl ProgressLog {
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        if now < self.due || text == self.last {
            return false;
        }
        (self.due, self.last) = (now + LINE_INTERVAL, text.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use tidelock_api::cluster::Host;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    fn missing(reasons: &[&str]) -> Progress {
        let waiting_for: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        Progress { done: reasons.is_empty(), waiting_for }
    }

    /// Replays polls; returns how the wait ended and what was shown.
    fn play(
        limit: Duration,
        looks: Vec<Result<Progress, CliError>>,
    ) -> (Result<Progress, CliError>, Vec<String>) {
        let mut looks = looks.into_iter();
        let mut shown = vec![];
        let outcome =
            wait(limit, || looks.next().expect("one look too many"), |line| shown.push(line.to_owned()));
        assert_eq!(looks.len(), 0, "every look is taken");
        (outcome, shown)
    }

    #[test]
    fn a_wait_ends_when_nothing_is_missing() {
        let (outcome, shown) = play(LONG, vec![Ok(missing(&[]))]);
        assert!(outcome.is_ok_and(|progress| progress.done) && shown.is_empty());
        let looks = vec![
            Ok(missing(&["shard 0: x", "shard 1: y", "shard 2: z"])),
            Err(CliError::Unreachable("  http://a:1: refused".to_owned())),
            Ok(missing(&["shard 1: y"])),
            Ok(missing(&[])),
        ];
        let (outcome, shown) = play(LONG, looks);
        assert!(outcome.is_ok_and(|progress| progress.done));
        assert_eq!(shown, ["shard 0: x (and 2 more)", "no node answers", "shard 1: y"]);
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let (outcome, shown) = play(Duration::ZERO, vec![Ok(missing(&["shard 0: x"]))]);
        assert_eq!(outcome.expect("what is missing"), missing(&["shard 0: x"]));
        assert!(shown.is_empty());
        let (outcome, _) = play(Duration::ZERO, vec![Ok(missing(&[]))]);
        assert!(outcome.expect("done").done, "one look is always taken");
    }

    #[test]
    fn a_log_gets_a_line_when_a_wait_is_long_and_its_reason_changes() {
        let begun = Instant::now();
        let mut log = ProgressLog { due: begun + FIRST_LINE_AFTER, last: String::new() };
        let mut is_due = |second, text| log.is_due(text, begun + Duration::from_secs(second));
        assert!(!is_due(1, "a"), "it may be done soon");
        assert!(is_due(2, "a"));
        assert!(!is_due(6, "b"), "too early");
        assert!(is_due(7, "b"));
        assert!(!is_due(60, "b"), "nothing new");
    }

    #[test]
    fn what_is_no_node_is_not_waited_for() {
        let foreign = CliError::Unintelligible { url: String::new(), reason: String::new() };
        let (outcome, _) = play(LONG, vec![Err(foreign)]);
        assert!(matches!(outcome, Err(CliError::Unintelligible { .. })));
    }

    /// A view: the node that answered, its port, and the hosts in it with their ports, 0 for one
    /// that has not registered.
    type Seen<'a> = (u64, u16, &'a [(u64, u16)]);

    /// The ports that a watch asks, in order, for the given nodes.
    fn candidates(given: &[u16], leaving: Option<u64>, seen: Option<Seen<'_>>) -> Vec<u16> {
        let url = |port: u16| -> NodeUrl { format!("http://h:{port}").parse().expect("a URL") };
        let seen = seen.map(|(node, port, hosts)| {
            let address = |port| if port == 0 { String::new() } else { format!("h:{port}") };
            let host = |&(node, port)| Host { node, http_address: address(port), ..Host::default() };
            let hosts = hosts.iter().map(host).collect();
            (url(port), Cluster { node, hosts, ..Cluster::default() })
        });
        let given: Vec<NodeUrl> = given.iter().copied().map(url).collect();
        let connection =
            ClientOptions { urls: given.clone(), authorities: None, token: None, certificate: None };
        let client = Client::new(connection, LOOK_TIMEOUT);
        let watch = Watch { client, given, leaving, seen };
        let port = |url: NodeUrl| url.to_string().rsplit(':').next().and_then(|port| port.parse().ok());
        watch.candidates().into_iter().map(|url| port(url).expect("a port")).collect()
    }

    #[test]
    fn who_answered_is_asked_again_and_others_stand_by() {
        assert_eq!(candidates(&[1, 2], None, None), [1, 2]);
        let hosts = [(1, 1), (2, 2), (3, 3), (4, 0)];
        assert_eq!(candidates(&[1], None, Some((1, 1, &hosts))), [1, 2, 3]);
        assert_eq!(candidates(&[1, 3], None, Some((3, 3, &hosts))), [3, 1, 2]);
    }

    #[test]
    fn a_node_that_leaves_is_asked_last() {
        let hosts = [(1, 1), (2, 2), (3, 3)];
        assert_eq!(candidates(&[1], Some(1), Some((1, 1, &hosts))), [2, 3, 1]);
        assert_eq!(candidates(&[1, 2], Some(1), Some((1, 1, &hosts))), [2, 3, 1]);
        assert_eq!(
            candidates(&[2], Some(1), Some((2, 2, &hosts))),
            [2, 3],
            "and not at all unless it was given"
        );
        assert_eq!(candidates(&[1], Some(1), Some((1, 1, &[(1, 1)]))), [1], "nobody else is known");
    }
}
