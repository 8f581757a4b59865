//! `tidelock tls authority`: the certificate authorities (CAs) of a cluster.

use tidelock_api::authorities::{Authorities, Authority};
use tidelock_client::private_file::replace;
use tidelock_client::{Call, CliError, output};

use crate::args::{AuthorityArgs, AuthorityCommand};
use crate::time::rfc3339;

const PATH: &str = "/v1/tls/authorities";

/// What a cluster of `--tls-dir` is told.
const NO_AUTHORITY: &str = "the cluster signs no certificates: its nodes have theirs from elsewhere";

/// Mode of a file that is no secret.
const MODE: u32 = 0o644;

pub(super) fn run(args: &AuthorityArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let call = match &args.command {
        AuthorityCommand::Show { .. } => Call::get(PATH),
        // Not retried: a second attempt would add another CA.
        AuthorityCommand::Add => Call { may_repeat: false, ..Call::post(PATH.to_owned(), b"") },
        AuthorityCommand::Use { id } => Call::post(format!("{PATH}/{id}/use"), b""),
        AuthorityCommand::Remove { id } => Call::delete(format!("{PATH}/{id}")),
    };
    let answer = client.ask_for(200, &call)?;
    if let AuthorityCommand::Show { out: Some(out) } = &args.command {
        replace(out, bundle(&answer.json()?)?.as_bytes(), MODE)?;
    }
    output::answer(args.client.output, &answer, || Ok(render(&answer.json()?)))
}

/// The certificates of all CAs, PEM.
fn bundle(Authorities { authorities }: &Authorities) -> Result<String, CliError> {
    if authorities.is_empty() {
        return Err(CliError::Usage(format!("nothing is written: {NO_AUTHORITY}")));
    }
    Ok(authorities.iter().map(|authority| authority.certificate.as_str()).collect())
}

fn render(Authorities { authorities }: &Authorities) -> String {
    if authorities.is_empty() {
        return NO_AUTHORITY.to_owned();
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
            certificate: format!("certificate {id}\n"),
        };
        let shown = render(&Authorities { authorities: vec![authority(1, false), authority(2, true)] });
        assert!(shown.contains("1          trusted") && shown.contains("2          signs"), "{shown}");
        assert!(render(&Authorities { authorities: vec![] }).starts_with("the cluster signs no"));
        let both = Authorities { authorities: vec![authority(1, false), authority(2, true)] };
        assert_eq!(bundle(&both).ok().as_deref(), Some("certificate 1\ncertificate 2\n"));
        assert!(bundle(&Authorities { authorities: vec![] }).is_err());
    }
}
