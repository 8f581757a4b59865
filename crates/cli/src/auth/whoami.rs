//! `tidelock auth whoami`.

use tidelock_api::auth::Whoami;
use tidelock_client::{Call, CliError, Client, output};

use crate::args::Output;
use crate::time::rfc3339;

pub(super) fn run(client: &Client, format: Output) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get("/v1/auth/whoami"))?;
    output::answer(format, &answer, || Ok(describe(&answer.json()?)))
}

/// Who makes a request, by which token or certificate, and what that allows.
pub fn describe(whoami: &Whoami) -> String {
    let required = match whoami.required {
        true => "Authentication is required.",
        false => "Authentication is not required: requests without a token are allowed too.",
    };
    let Some(principal) = &whoami.principal else {
        return format!("You have no token or certificate that the cluster knows. {required}");
    };
    let expiry = match whoami.expires_unix_ms {
        Some(unix_ms) => format!("expires {}", rfc3339(unix_ms)),
        None => "does not expire".to_owned(),
    };
    let proof = match &whoami.certificate_name {
        Some(name) => ("certificate", format!("{name}, {expiry}")),
        None => ("token", format!("{}, {expiry}", whoami.token.as_deref().unwrap_or("-"))),
    };
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let rows = [
        ("principal", principal.clone()),
        proof,
        ("roles", list(&whoami.roles)),
        ("grants", list(&whoami.grants)),
    ];
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
    format!("{}\n{required}", output::table(&[], rows.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_or_nobody() {
        let nobody = Whoami {
            required: false,
            principal: None,
            token: None,
            certificate_name: None,
            expires_unix_ms: None,
            roles: vec![],
            grants: vec![],
        };
        assert!(describe(&nobody).starts_with("You have no token or certificate that the cluster knows. "));
        let ann = Whoami {
            required: true,
            principal: Some("ann".to_owned()),
            token: Some("0123456789abcdef".to_owned()),
            certificate_name: None,
            expires_unix_ms: Some(0),
            roles: vec!["app".to_owned()],
            grants: vec!["read keys:".to_owned(), "write keys:app/".to_owned()],
        };
        assert_eq!(
            describe(&ann),
            "principal  ann\n\
             token      0123456789abcdef, expires 1970-01-01T00:00:00Z\n\
             roles      app\n\
             grants     read keys:, write keys:app/\n\
             Authentication is required."
        );
        let certified =
            Whoami { token: None, certificate_name: Some("tidelock://client/ann".to_owned()), ..ann };
        let shown = describe(&certified);
        assert!(
            shown.contains("certificate  tidelock://client/ann, expires 1970-01-01T00:00:00Z\n"),
            "{shown}"
        );
    }
}
