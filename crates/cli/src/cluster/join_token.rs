//! `cluster join-token`: creates a one-time token with which a host joins.
//!
//! The token is alone on standard output, so that `> file` works, or in a new file that only its
//! owner can read.

use tidelock_api::authorities::{CreateJoinToken, IssuedJoinToken};
use tidelock_client::{Call, CliError, output};

use crate::args::{ClientArgs, JoinTokenArgs};
use crate::new_file::NewFile;
use crate::time::{duration_s, duration_text};

pub(super) fn run(args: &JoinTokenArgs, client: &ClientArgs) -> Result<(), CliError> {
    let expires_in_s = args.lifetime.as_deref().map(duration_s).transpose();
    let expires_in_s = expires_in_s.map_err(|error| CliError::Usage(format!("--lifetime: {error}")))?;
    let body = serde_json::to_vec(&CreateJoinToken { expires_in_s }).expect("invariant: a number is JSON");
    let asked = client.client()?;
    // Not retried: a second attempt would create another token.
    let call = Call { may_repeat: false, ..Call::post("/v1/cluster/join-tokens".to_owned(), &body) };
    let file = args.out.as_deref().map(NewFile::create).transpose()?;
    let answer = asked.ask_for(201, &call)?;
    let issued: IssuedJoinToken = answer.json()?;
    let lifetime = duration_text(issued.expires_in_s);
    let Some(file) = file else {
        output::answer(client.output, &answer, || Ok(issued.token.clone()))?;
        let text = format!("join token {}, for one host within {lifetime}; it is shown this once", issued.id);
        output::progress(&text);
        return Ok(());
    };
    let path = file.path().display().to_string();
    file.write(&issued.token)?;
    output::line(&format!("join token {} is in {path}, for one host within {lifetime}", issued.id))
}
