//! `tidelock auth principal`.

use tidelock_api::auth::{Principals, PutPrincipal};
use tidelock_client::{Call, CliError, Client, keys, output};

use super::{change, encode, put};
use crate::args::{Output, PrincipalCommand};

pub(super) fn run(command: PrincipalCommand, client: &Client, format: Output) -> Result<(), CliError> {
    match command {
        PrincipalCommand::List => list(client, format),
        PrincipalCommand::Put(args) => {
            let names = args.certificate_names;
            let certificate_names = (args.no_certificate_names || !names.is_empty()).then_some(names);
            let body = encode(&PutPrincipal { roles: args.roles, certificate_names });
            let done = format!("principal {} is stored", args.name);
            change(client, format, &put(target(&args.name), &body), &done)
        }
        PrincipalCommand::Delete(args) => {
            let call = Call::delete(target(&args.name));
            change(client, format, &call, &format!("principal {} is deleted", args.name))
        }
    }
}

fn target(name: &str) -> String {
    format!("/v1/auth/principals/{}", keys::segment(name))
}

fn list(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get("/v1/auth/principals"))?;
    output::answer(format, &answer, || {
        let Principals { principals } = answer.json()?;
        let rows = principals.into_iter().map(|principal| {
            vec![principal.name, principal.roles.join(", "), principal.certificate_names.join(", ")]
        });
        Ok(output::table(&["PRINCIPAL", "ROLES", "CERTIFICATE NAMES"], rows.collect()))
    })
}
