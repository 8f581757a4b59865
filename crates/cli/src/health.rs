//! `tidelock health`: whether nodes are ready, for health checks of images without a shell or curl.

use serde::Serialize;
use tidelock_client::{Call, CliError, Client, output};

use crate::args::{HealthArgs, Output};

/// What one node answered.
#[derive(Serialize)]
struct Health {
    url: String,
    healthy: bool,
    /// The failed checks of the node, or why it gave no answer.
    reasons: Vec<String>,
}

/// Asks each of the given nodes, and fails if one of them is not healthy.
pub fn run(args: &HealthArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let target = if args.live { "/livez" } else { "/readyz" };
    let nodes = client.nodes().iter();
    let answers = nodes.map(|node| ask(&client.of(vec![node.clone()]), node.to_string(), target));
    let answers = answers.collect::<Result<Vec<Health>, CliError>>()?;
    for answer in &answers {
        match args.client.output {
            Output::Json => output::line(&json(answer))?,
            Output::Text => output::line(&text(answer, args.live))?,
        }
    }
    let unhealthy = answers.iter().filter(|answer| !answer.healthy).count();
    if unhealthy == 0 {
        return Ok(());
    }
    let wanted = if args.live { "live" } else { "ready" };
    Err(CliError::Unavailable(format!("{unhealthy} of {} nodes not {wanted}", answers.len())))
}

fn ask(node: &Client, url: String, target: &str) -> Result<Health, CliError> {
    match node.ask(&Call::get(target)) {
        Ok(answer) if answer.status == 200 => Ok(Health { url, healthy: true, reasons: Vec::new() }),
        Ok(answer) if answer.status == 503 => {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            let failed = body.lines().filter_map(|line| line.strip_prefix("[-]"));
            Ok(Health { url, healthy: false, reasons: failed.map(str::to_owned).collect() })
        }
        Ok(answer) => Err(answer.refusal()),
        Err(CliError::Unreachable(reasons)) => {
            let reasons = reasons.lines().map(|line| line.trim().to_owned()).collect();
            Ok(Health { url, healthy: false, reasons })
        }
        Err(error) => Err(error),
    }
}

fn json(answer: &Health) -> String {
    serde_json::to_string(answer).expect("invariant: texts are JSON")
}

fn text(answer: &Health, live: bool) -> String {
    let state = match (answer.healthy, live) {
        (true, true) => "live",
        (true, false) => "ready",
        (false, true) => "not live",
        (false, false) => "not ready",
    };
    let mut lines = vec![format!("{}  {state}", answer.url)];
    lines.extend(answer.reasons.iter().map(|reason| format!("  {reason}")));
    lines.join("\n")
}
