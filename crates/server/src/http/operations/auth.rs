//! Operations of `/v1/auth`.

use tidelock_api::auth as api;

use super::super::auth::Auth;
use super::operation::{Failures, JSON, Operation, Tag};
use super::schemas::schema_of;

const AUTH: Tag = Tag("authentication", Failures::Problems);

pub(super) fn operations() -> Vec<Operation> {
    let mut all = authentication();
    all.extend(roles());
    all.extend(principals());
    all.extend(tokens());
    all
}

/// A change, which is answered with the nodes where it is in force.
fn change(route: &'static str, endpoint: Auth, id: &'static str, summary: &'static str) -> Operation {
    let description = "Which nodes apply the change now";
    AUTH.operation(route, endpoint, id, summary).gives_json(schema_of::<api::Change>(), description)
}

fn authentication() -> Vec<Operation> {
    vec![
        AUTH.operation(
            "get /v1/auth",
            Auth::Show,
            "getAuthentication",
            "Whether requests without a valid token are refused",
        )
        .gives_json(schema_of::<api::Authentication>(), "The setting"),
        change(
            "put /v1/auth",
            Auth::Require,
            "requireAuthentication",
            "Sets whether requests without a valid token are refused",
        )
        .takes_json(schema_of::<api::Authentication>())
        .fails([409]),
        AUTH.operation("get /v1/auth/whoami", Auth::Whoami, "whoami", "Who makes the request")
            .gives_json(schema_of::<api::Whoami>(), "As the node that answers knows"),
        AUTH.operation(
            "post /v1/session",
            Auth::SignIn,
            "signIn",
            "Gives a browser a cookie for the token in its header Authorization",
        )
        .gives_json(schema_of::<api::Whoami>(), "Who it is")
        .with_header(200, "Set-Cookie", "A cookie that scripts cannot read, for 12 hours")
        .fails([401]),
        AUTH.operation("delete /v1/session", Auth::SignOut, "signOut", "Takes the cookie away")
            .gives_nothing(204, "It is gone")
            .with_header(204, "Set-Cookie", "The cookie, expired"),
    ]
}

fn roles() -> Vec<Operation> {
    vec![
        AUTH.operation("get /v1/auth/roles", Auth::Roles, "getRoles", "The roles")
            .gives_json(schema_of::<api::Roles>(), "By name"),
        change("put /v1/auth/roles/{name}", Auth::PutRole, "putRole", "Creates or replaces a role")
            .takes_json(schema_of::<api::PutRole>())
            .fails([409]),
        change("delete /v1/auth/roles/{name}", Auth::DeleteRole, "deleteRole", "Deletes a role")
            .fails([404, 409]),
    ]
}

fn principals() -> Vec<Operation> {
    vec![
        AUTH.operation("get /v1/auth/principals", Auth::Principals, "getPrincipals", "The principals")
            .gives_json(schema_of::<api::Principals>(), "By name"),
        change(
            "put /v1/auth/principals/{name}",
            Auth::PutPrincipal,
            "putPrincipal",
            "Creates or replaces a principal",
        )
        .takes_json(schema_of::<api::PutPrincipal>())
        .fails([404, 409]),
        change(
            "delete /v1/auth/principals/{name}",
            Auth::DeletePrincipal,
            "deletePrincipal",
            "Deletes a principal with its tokens",
        )
        .fails([404, 409]),
    ]
}

fn tokens() -> Vec<Operation> {
    vec![
        AUTH.operation("get /v1/auth/tokens", Auth::Tokens, "getTokens", "The tokens, without their secrets")
            .gives_json(schema_of::<api::Tokens>(), "By number"),
        AUTH.operation("post /v1/auth/tokens", Auth::CreateToken, "createToken", "Creates a token")
            .takes_json(schema_of::<api::CreateToken>())
            .gives(201, [(JSON, schema_of::<api::IssuedToken>())], "The token, which is shown this once")
            .fails([404, 409]),
        AUTH.operation(
            "post /v1/auth/tokens/{token}/rotate",
            Auth::RotateToken,
            "rotateToken",
            "Gives a token another secret; the one before stays valid until the next rotation",
        )
        .gives_json(
            schema_of::<api::IssuedToken>(),
            "The token with its new secret, which is shown this once",
        )
        .fails([404]),
        change("delete /v1/auth/tokens/{token}", Auth::DeleteToken, "deleteToken", "Deletes a token")
            .fails([404, 409]),
    ]
}
