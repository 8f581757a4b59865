//! `tidelock auth role`.

use tidelock_api::auth::{PutRole, Roles};
use tidelock_client::{Call, CliError, Client, keys, output};

use super::{change, encode, put};
use crate::args::{Output, PutRoleArgs, RoleCommand};
use crate::time::{moment, now_unix_ms, rfc3339};

pub(super) fn run(command: RoleCommand, client: &Client, format: Output) -> Result<(), CliError> {
    match command {
        RoleCommand::List => list(client, format),
        RoleCommand::Put(args) => put_role(args, client, format),
        RoleCommand::Delete(args) => {
            let call = Call::delete(target(&args.name));
            change(client, format, &call, &format!("role {} is deleted", args.name))
        }
    }
}

fn target(name: &str) -> String {
    format!("/v1/auth/roles/{}", keys::segment(name))
}

fn list(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get("/v1/auth/roles"))?;
    output::answer(format, &answer, || {
        let Roles { roles } = answer.json()?;
        let rows = roles.into_iter().map(|role| {
            let ends = role.ends_unix_ms.map_or_else(|| "never".to_owned(), rfc3339);
            let limits = limits(role.operations_per_s, role.bytes_per_s);
            vec![role.name, ends, limits, role.grants.join(", ")]
        });
        Ok(output::table(&["ROLE", "ENDS", "LIMITS", "GRANTS"], rows.collect()))
    })
}

/// The limits of a role in a few words.
fn limits(operations_per_s: Option<u64>, bytes_per_s: Option<u64>) -> String {
    let operations = operations_per_s.map(|rate| format!("{rate} operations/s"));
    let bytes = bytes_per_s.map(|rate| format!("{rate} bytes/s"));
    let limits: Vec<String> = operations.into_iter().chain(bytes).collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(", ") }
}

fn put_role(args: PutRoleArgs, client: &Client, format: Output) -> Result<(), CliError> {
    let PutRoleArgs { name, grants, ends, operations_per_second, bytes_per_second } = args;
    let ends_unix_ms = ends.map(|ends| moment(&ends, now_unix_ms())).transpose();
    let ends_unix_ms = ends_unix_ms.map_err(|error| CliError::Usage(format!("--ends: {error}")))?;
    let (operations_per_s, bytes_per_s) = (operations_per_second, bytes_per_second);
    let body = encode(&PutRole { grants, ends_unix_ms, operations_per_s, bytes_per_s });
    change(client, format, &put(target(&name), &body), &format!("role {name} is stored"))
}
