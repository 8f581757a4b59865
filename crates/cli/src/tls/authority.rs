//! `tidelock tls authority`: the certificate authorities (CAs) of a cluster.

use tidelock_api::authorities::{Authorities, Authority};
use tidelock_client::{Call, CliError, output};

use crate::args::{AuthorityArgs, AuthorityCommand};
use crate::time::rfc3339;

const PATH: &str = "/v1/tls/authorities";

pub(super) fn run(args: &AuthorityArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let call = match args.command {
        AuthorityCommand::Show => Call::get(PATH),
        // Not retried: a second attempt would add another CA.
        AuthorityCommand::Add => Call { may_repeat: false, ..Call::post(PATH.to_owned(), b"") },
        AuthorityCommand::Use { id } => Call::post(format!("{PATH}/{id}/use"), b""),
        AuthorityCommand::Remove { id } => Call::delete(format!("{PATH}/{id}")),
    };
    let answer = client.ask_for(200, &call)?;
    output::answer(args.client.output, &answer, || Ok(render(&answer.json()?)))
}

fn render(Authorities { authorities }: &Authorities) -> String {
    if authorities.is_empty() {
        return "the cluster signs no certificates: its nodes have theirs from elsewhere".to_owned();
    }
    let row = |row: &Authority| {
        let signs = if row.signs { "signs" } else { "trusted" };
        vec![row.id.to_string(), signs.to_owned(), rfc3339(row.added_unix_ms), row.fingerprint.clone()]
    };
    output::table(
        &["AUTHORITY", "STATE", "ADDED", "FINGERPRINT (SHA-256)"],
        authorities.iter().map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_shown_with_what_they_do() {
        let authority = |id, signs| Authority {
            id,
            signs,
            fingerprint: "ab".to_owned(),
            added_unix_ms: 0,
            certificate: String::new(),
        };
        let shown = render(&Authorities { authorities: vec![authority(1, false), authority(2, true)] });
        assert!(shown.contains("1          trusted") && shown.contains("2          signs"), "{shown}");
        assert!(render(&Authorities { authorities: vec![] }).starts_with("the cluster signs no"));
    }
}
