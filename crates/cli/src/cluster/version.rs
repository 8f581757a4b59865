//! `cluster version`: the cluster's version, what holds it back, and the releases of the nodes.

use tidelock_api::version::{HostRelease, Version};
use tidelock_client::{Call, CliError, output};

use crate::args::{ClientArgs, VersionArgs};

pub(super) fn run(args: &VersionArgs, client: &ClientArgs) -> Result<(), CliError> {
    let asked = client.client()?;
    if args.hold || args.resume {
        let verb = if args.hold { "hold" } else { "resume" };
        let answer = asked.ask_for(202, &Call::post(format!("/v1/cluster/version/{verb}"), b""))?;
        return output::answer(client.output, &answer, || {
            Ok(match args.hold {
                true => "the cluster's version stays as it is, until `tidelock cluster version --resume`"
                    .to_owned(),
                false => "the cluster's version rises once every node supports the next one".to_owned(),
            })
        });
    }
    let answer = asked.ask_for(200, &Call::get("/v1/cluster/version"))?;
    output::answer(client.output, &answer, || Ok(render(&answer.json()?)))
}

fn render(version: &Version) -> String {
    let row = |host: &HostRelease| {
        let versions = if host.oldest == host.newest {
            host.newest.to_string()
        } else {
            format!("{} to {}", host.oldest, host.newest)
        };
        vec![host.node.to_string(), host.release.clone().unwrap_or_else(|| "-".to_owned()), versions]
    };
    let rows = version.hosts.iter().map(row).collect();
    let mut text = format!("cluster version {}", version.version);
    if version.held {
        text.push_str(", held until `tidelock cluster version --resume`");
    }
    if let Some(next) = version.next {
        let when = if version.waiting_for.is_empty() { "it rises now" } else { "it waits:" };
        text.push_str(&format!("; the next is {next}, and {when}"));
    }
    for reason in &version.waiting_for {
        text.push_str(&format!("\n  {reason}"));
    }
    format!("{text}\n\n{}", output::table(&["NODE", "RELEASE", "SUPPORTS"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_shown_with_what_it_waits_for() {
        let mut version: Version = serde_json::from_str(
            r#"{"version":1,"next":2,"held":false,"waiting_for":["node 2 is away"],"hosts":[
                {"node":1,"release":"0.2.0","oldest":1,"newest":2},{"node":2,"release":null,"oldest":1,"newest":1}]}"#,
        )
        .expect("a version");
        let table = "NODE  RELEASE  SUPPORTS\n1     0.2.0    1 to 2\n2     -        1";
        let waits = "cluster version 1; the next is 2, and it waits:\n  node 2 is away";
        assert_eq!(render(&version), format!("{waits}\n\n{table}"));
        version.waiting_for.clear();
        assert!(render(&version).starts_with("cluster version 1; the next is 2, and it rises now\n\n"));
        (version.version, version.next) = (2, None);
        assert!(render(&version).starts_with("cluster version 2\n\n"));
        version.held = true;
        let held = "cluster version 2, held until `tidelock cluster version --resume`\n\n";
        assert!(render(&version).starts_with(held), "{}", render(&version));
    }
}
