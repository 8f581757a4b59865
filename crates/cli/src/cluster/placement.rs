//! `cluster dump`, `explain` and `set`: show the registry, explain placement, and set policies.
//!
//! Owns the output. The cluster decides the placement.

use tidelock_api::shards::{ExplainedHost, Explanation, PlacedRole, TagChanges};
use tidelock_client::{Call, CliError, output};

use super::top;
use crate::args::{ClientArgs, ExplainArgs, SetArgs, TagTarget};

pub(super) fn dump(client: &ClientArgs) -> Result<(), CliError> {
    output::write(&client.client()?.ask_for(200, &Call::get("/v1/cluster/dump"))?.body)
}

pub(super) fn explain(args: &ExplainArgs, client: &ClientArgs) -> Result<(), CliError> {
    let target = format!("/v1/cluster/shards/{}/explain", args.shard);
    let asked = client.client()?;
    let answer = asked.ask_for(200, &Call::get(target))?;
    output::answer(client.output, &answer, || {
        let parts = [table(&answer.json()?)].into_iter().chain(top::ask_for_next_changes(&asked));
        Ok(parts.collect::<Vec<_>>().join("\n\n"))
    })
}

pub(super) fn set(args: &SetArgs, client: &ClientArgs) -> Result<(), CliError> {
    let (target, given) = args.target()?;
    let mut tags = TagChanges::default();
    for tag in given {
        let Some((name, value)) = tag.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(CliError::Usage(format!(
                "`{tag}` is no tag: write NAME=VALUE, or NAME= to take it away"
            )));
        };
        tags.0.insert(name.to_owned(), (!value.is_empty()).then(|| value.to_owned()));
    }
    let (path, done) = match target {
        TagTarget::Default => ("/v1/cluster/default".to_owned(), "the cluster has its default".to_owned()),
        TagTarget::Shard(shard) => {
            (format!("/v1/cluster/shards/{shard}/tags"), format!("shard {shard} has its tags"))
        }
    };
    let body = serde_json::to_vec(&tags).expect("invariant: a map of texts is JSON");
    let answer = client.client()?.ask_for(202, &Call::post(path, &body))?;
    output::answer(client.output, &answer, || Ok(done))
}

fn table(explanation: &Explanation) -> String {
    let row = |host: &ExplainedHost| {
        let role = match (host.written, host.role) {
            (true, PlacedRole::None) => "-".to_owned(),
            (true, role) => role.to_string(),
            (false, role) => format!("{role} (soon)"),
        };
        let replica = host.replica.map_or_else(|| "-".to_owned(), |replica| replica.to_string());
        vec![host.node.to_string(), role, replica, host.reason.clone()]
    };
    let rows = explanation.hosts.iter().map(row).collect();
    format!("shard {}\n{}", explanation.shard, output::table(&["NODE", "ROLE", "REPLICA", "WHY"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_of_a_shard_or_of_the_default() {
        let target = |default, list: &[&str]| {
            let shard_and_tags = list.iter().map(ToString::to_string).collect();
            let args = SetArgs { default, shard_and_tags };
            args.target().map(|(target, tags)| (target, tags.len())).map_err(|error| error.to_string())
        };
        assert_eq!(target(false, &["2", "a=b", "c=d"]), Ok((TagTarget::Shard(2), 2)));
        assert_eq!(target(true, &["placement:member=5"]), Ok((TagTarget::Default, 1)));
        for (default, list, expected) in [
            (true, &["2", "a=b"][..], "a shard or --default, not both"),
            (false, &["a=b"], "`a=b` is no shard"),
            (false, &["2"], "give tags to set"),
        ] {
            assert!(target(default, list).is_err_and(|error| error.contains(expected)), "{list:?}");
        }
    }

    #[test]
    fn an_explanation_is_a_table() {
        let explanation = serde_json::from_str(
            r#"{"shard":1,"hosts":[{"node":1,"replica":4,"role":"voter","written":true,"reason":"one of 3"},
                {"node":2,"replica":null,"role":"none","written":true,"reason":"named elsewhere"},
                {"node":3,"replica":null,"role":"learner","written":false,"reason":"covered"}]}"#,
        )
        .expect("an explanation");
        assert_eq!(
            table(&explanation),
            "shard 1\n\
             NODE  ROLE            REPLICA  WHY\n\
             1     voter           4        one of 3\n\
             2     -               -        named elsewhere\n\
             3     learner (soon)  -        covered"
        );
    }
}
