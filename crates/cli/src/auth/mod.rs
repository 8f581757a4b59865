//! `tidelock auth`: who this client is, and the roles, principals and tokens of a cluster.
//!
//! Owns how they are requested and shown. The nodes check names and grants. A change answers where
//! it is in force, which every command prints. Invariant: a token is printed only on standard
//! output, and only by the commands that create one.

mod principals;
mod roles;
mod tokens;
mod whoami;

use serde::Serialize;
use tidelock_api::auth::{Authentication, Change, Whoami};
use tidelock_client::http::Method;
use tidelock_client::{Call, CliError, Client, Response, output};

pub use self::whoami::describe;
use crate::args::{AuthArgs, AuthCommand, Output};

/// The grant that an administrator has.
const ADMIN_GRANT: &str = "cluster:admin";

/// Runs one of the `auth` commands.
pub fn run(args: AuthArgs) -> Result<(), CliError> {
    let (client, format) = (args.client.client()?, args.client.output);
    match args.command {
        AuthCommand::Whoami => whoami::run(&client, format),
        AuthCommand::Role(command) => roles::run(command, &client, format),
        AuthCommand::Principal(command) => principals::run(command, &client, format),
        AuthCommand::Token(command) => tokens::run(command, &client, format),
        AuthCommand::Require => require(&client, format),
        AuthCommand::Off => set_required(&client, format, false),
    }
}

/// Requires authentication if this client can undo that.
fn require(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get("/v1/auth/whoami"))?;
    let Whoami { principal, grants, .. } = answer.json()?;
    let reason = match principal {
        Some(_) if grants.iter().any(|grant| grant == ADMIN_GRANT) => {
            return set_required(client, format, true);
        }
        Some(name) => format!("you are {name}, and your role does not allow {ADMIN_GRANT}"),
        None => "you have no token or certificate that the cluster knows: run `tidelock login`".to_owned(),
    };
    Err(CliError::NotPermitted(format!("nothing was changed, because you could not undo it: {reason}")))
}

fn set_required(client: &Client, format: Output, required: bool) -> Result<(), CliError> {
    let done = match required {
        true => "authentication is required",
        false => "authentication is off: every client that reaches a node may make every request",
    };
    let body = encode(&Authentication { required });
    change(client, format, &put("/v1/auth".to_owned(), &body), done)
}

/// A `PUT`, which may be repeated.
fn put(target: String, body: &[u8]) -> Call<'_> {
    Call { method: Method::PUT, target, conditions: vec![], body, may_repeat: true }
}

/// Requests a change, and prints that it was `done` and where it is in force.
fn change(client: &Client, format: Output, call: &Call<'_>, done: &str) -> Result<(), CliError> {
    let answer = request(client, call)?;
    output::answer(format, &answer, || Ok(format!("{done}; {}", in_force(&answer.json()?))))
}

/// The answer to a change.
fn request(client: &Client, call: &Call<'_>) -> Result<Response, CliError> {
    let answer = client.ask(call).map_err(|error| match error {
        CliError::OutcomeUnknown { url, reason } => CliError::Unfinished(format!(
            "the outcome is unknown: {url} was sent the change, but {reason}\n\
             It may or may not have happened: `tidelock auth role list`, `principal list` and `token list` show it."
        )),
        other => other,
    })?;
    match answer.status {
        200 | 201 => Ok(answer),
        _ => Err(answer.refusal()),
    }
}

/// Where a change is in force.
fn in_force(change: &Change) -> String {
    let Change { in_force, not_yet, .. } = change;
    let all = in_force.len() + not_yet.len();
    let text = format!("in force on {} of {all} nodes", in_force.len());
    let numbers: Vec<String> = not_yet.iter().map(ToString::to_string).collect();
    match &numbers[..] {
        [] => text,
        [number] => format!("{text}; not yet on node {number}"),
        _ => format!("{text}; not yet on nodes {}", numbers.join(", ")),
    }
}

fn encode(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("invariant: the bodies are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_says_where_it_is_in_force() {
        for (in_force_on, not_yet, text) in [
            (vec![1, 2, 3], vec![], "in force on 3 of 3 nodes"),
            (vec![1, 2], vec![3], "in force on 2 of 3 nodes; not yet on node 3"),
            (vec![1], vec![2, 3], "in force on 1 of 3 nodes; not yet on nodes 2, 3"),
        ] {
            assert_eq!(in_force(&Change { revision: 7, in_force: in_force_on, not_yet }), text);
        }
    }
}
