//! `tidelock auth token`.
//!
//! A new token is alone on standard output, so that `> file` works, or in a new file that only its
//! owner can read. The file is created before the token, because a token that cannot be stored
//! would be valid and lost.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidelock_api::auth::{CreateToken, IssuedToken, Tokens};
use tidelock_client::{Call, CliError, Client, output};

use super::{change, encode, in_force, request};
use crate::args::{CreateTokenArgs, Output, TokenCommand};
use crate::new_file::NewFile;
use crate::time::{duration_s, rfc3339};

/// Digits of a token's number.
const ID_DIGITS: usize = 16;

pub(super) fn run(command: TokenCommand, client: &Client, format: Output) -> Result<(), CliError> {
    match command {
        TokenCommand::List => list(client, format),
        TokenCommand::Create(args) => create(args, client, format),
        TokenCommand::Rotate(args) => {
            let call = post(format!("{}/rotate", target(&args.id)?), &[]);
            issue(client, format, &call, args.out)
        }
        TokenCommand::Delete(args) => {
            let call = Call::delete(target(&args.id)?);
            change(client, format, &call, &format!("token {} is deleted", args.id))
        }
    }
}

/// The path of a token. The error does not repeat what was given, which may be a secret.
fn target(id: &str) -> Result<String, CliError> {
    if id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(format!("/v1/auth/tokens/{id}"));
    }
    let text = "a token's number has 16 hexadecimal digits, as `tidelock auth token list` shows it";
    Err(CliError::Usage(text.to_owned()))
}

/// A `POST` that is not repeated: there would be two tokens.
fn post(target: String, body: &[u8]) -> Call<'_> {
    Call { may_repeat: false, ..Call::post(target, body) }
}

fn list(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get("/v1/auth/tokens"))?;
    output::answer(format, &answer, || {
        let Tokens { tokens } = answer.json()?;
        let rows = tokens.into_iter().map(|token| {
            let expires = token.expires_unix_ms.map_or_else(|| "never".to_owned(), rfc3339);
            let created = rfc3339(token.created_unix_ms);
            vec![token.id, token.principal, created, expires, token.secrets.to_string()]
        });
        Ok(output::table(&["TOKEN", "PRINCIPAL", "CREATED", "EXPIRES", "SECRETS"], rows.collect()))
    })
}

fn create(args: CreateTokenArgs, client: &Client, format: Output) -> Result<(), CliError> {
    let CreateTokenArgs { principal, expires, out } = args;
    let expires_in_s = expires.map(|text| duration_s(&text)).transpose();
    let expires_in_s = expires_in_s.map_err(|error| CliError::Usage(format!("--expires: {error}")))?;
    let body = encode(&CreateToken { principal, expires_in_s });
    issue(client, format, &post("/v1/auth/tokens".to_owned(), &body), out)
}

/// Requests a token, and prints or stores it.
fn issue(client: &Client, format: Output, call: &Call<'_>, out: Option<PathBuf>) -> Result<(), CliError> {
    let Some(path) = out else {
        let answer = request(client, call)?;
        let issued: IssuedToken = answer.json()?;
        output::answer(format, &answer, || Ok(issued.token.clone()))?;
        output::progress(&describe(&issued, None));
        return Ok(());
    };
    let file = NewFile::create(&path)?;
    let answer = request(client, call)?;
    let issued: IssuedToken = answer.json()?;
    file.write(&issued.token)?;
    match format {
        Output::Text => output::line(&describe(&issued, Some(&path))),
        Output::Json => {
            let mut shown: Value = answer.json()?;
            shown.as_object_mut().map(|members| members.remove("token"));
            output::line(&shown.to_string())
        }
    }
}

fn describe(issued: &IssuedToken, path: Option<&Path>) -> String {
    let (id, in_force) = (&issued.id, in_force(&issued.change));
    match path {
        Some(path) => format!("token {id} is in {}; {in_force}", path.display()),
        None => format!("token {id}, which is shown this once; {in_force}"),
    }
}
