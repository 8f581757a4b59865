//! `tidelock lease`: grants, renews, revokes and shows leases over the native HTTP API.

pub mod session;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidelock_api::leases::{
    GrantLease, GrantedLease, Lease, LeaseKey, LeasePage, RenewLeases, RenewedLeases,
};
use tidelock_client::{Call, CliError, Client, Response, keys, output};

use crate::args::{ClientArgs, GrantArgs, LeaseArgs, LeaseCommand, ListLeasesArgs, Output};
use session::{LeaseSession, Validity};

/// Runs one of the `lease` commands.
pub fn run(args: &LeaseArgs) -> Result<(), CliError> {
    let (client, format) = (args.client.client()?, args.client.output);
    match &args.command {
        LeaseCommand::Grant(grant) => print_granted(&client, format, grant),
        LeaseCommand::Renew(renew) => print_renewed(&client, format, &renew.ids),
        LeaseCommand::Keep(id) => keep(&args.client, &id.id),
        LeaseCommand::Revoke(id) => revoke(&client, format, &id.id),
        LeaseCommand::List(list) => print_list(&client, format, list),
        LeaseCommand::Show(id) => show(&client, format, &id.id),
    }
}

/// The path of a lease.
pub fn path(id: &str) -> String {
    format!("/v1/leases/{}", keys::segment(id))
}

/// Asks for a lease. May be repeated: one that was granted without an answer ends by itself.
pub fn ask_to_grant(client: &Client, ttl: Duration, tag: Option<&str>) -> Result<Response, CliError> {
    let request = GrantLease { ttl: format!("{}ms", ttl.as_millis()), tag: tag.map(str::to_owned) };
    client.ask(&Call::post("/v1/leases", json!(request).to_string().as_bytes()))
}

/// The lease of an answer to [`ask_to_grant`].
pub fn granted(answer: Response) -> Result<GrantedLease, CliError> {
    answer.accept(201)?.json()
}

/// Renews leases once.
pub fn renew(client: &Client, ids: &[String]) -> Result<RenewedLeases, CliError> {
    let body = json!(RenewLeases { ids: ids.to_vec() }).to_string();
    client.ask_for(200, &Call::post("/v1/leases/renew", body.as_bytes()))?.json()
}

fn print_granted(client: &Client, format: Output, args: &GrantArgs) -> Result<(), CliError> {
    let granted = granted(ask_to_grant(client, args.ttl, args.tag.as_deref())?)?;
    match format {
        Output::Json => output::line(&json!(granted).to_string()),
        Output::Text => output::line(&granted.id),
    }
}

fn print_renewed(client: &Client, format: Output, ids: &[String]) -> Result<(), CliError> {
    let renewed = renew(client, ids)?;
    match format {
        Output::Json => output::line(&json!(renewed).to_string())?,
        Output::Text => {
            for lease in &renewed.leases {
                let outcome = match (&lease.valid_for_ms, &lease.problem) {
                    (Some(valid_for_ms), _) => format!("valid for {valid_for_ms} ms"),
                    (None, problem) => problem.clone().unwrap_or_default(),
                };
                output::line(&format!("{}  {outcome}", lease.id))?;
            }
        }
    }
    match renewed.leases.iter().filter(|lease| lease.valid_for_ms.is_none()).count() {
        0 => Ok(()),
        failed => Err(CliError::Failed(format!("{failed} of {} leases were not renewed", ids.len()))),
    }
}

/// Renews a lease until it ends.
fn keep(args: &ClientArgs, id: &str) -> Result<(), CliError> {
    let lease = args.client()?.ask_for(200, &Call::get(path(id)))?;
    let lease: Lease<'_> = lease.json()?;
    let ttl = Duration::from_millis(lease.ttl_ms);
    let session = LeaseSession { id: id.to_owned(), ttl, client: Arc::new(session::client(args, ttl)?) };
    let validity = Validity::starting_now(Duration::from_millis(lease.valid_for_ms));
    let runtime = session::runtime()?;
    let lost = runtime.block_on(session.renew_until_lost(&validity));
    runtime.shutdown_background();
    Err(CliError::Failed(lost.to_string()))
}

fn revoke(client: &Client, format: Output, id: &str) -> Result<(), CliError> {
    client.ask_for(204, &Call::delete(path(id)))?;
    match format {
        Output::Json => output::line(&json!({ "id": id, "revoked": true }).to_string()),
        Output::Text => output::line("revoked"),
    }
}

fn print_list(client: &Client, format: Output, args: &ListLeasesArgs) -> Result<(), CliError> {
    let tag = args.tag.as_ref().map(|tag| format!("tag={}", keys::query_value(tag.as_bytes())));
    let (mut after, mut rows) = (None, vec![]);
    loop {
        let parameters: Vec<String> = tag.clone().into_iter().chain(after.take()).collect();
        let answer = client.ask_for(200, &Call::get(format!("/v1/leases?{}", parameters.join("&"))))?;
        let page: LeasePage = answer.json()?;
        if format == Output::Json {
            output::line(String::from_utf8_lossy(&answer.body).trim_end())?;
        }
        rows.extend(page.items.into_iter().map(|lease| vec![lease.id, seconds(lease.valid_for_ms)]));
        match page.next {
            Some(next) => after = Some(format!("after={}", keys::query_value(next.as_bytes()))),
            None => break,
        }
    }
    if format == Output::Text && !rows.is_empty() {
        output::line(&output::table(&["LEASE", "VALID FOR"], rows))?;
    }
    Ok(())
}

fn show(client: &Client, format: Output, id: &str) -> Result<(), CliError> {
    let answer = client.ask_for(200, &Call::get(path(id)))?;
    output::answer(format, &answer, || {
        let lease: Lease<'_> = answer.json()?;
        let mut rows = vec![
            vec!["lease".to_owned(), lease.id.to_string()],
            vec!["time to live".to_owned(), seconds(lease.ttl_ms)],
            vec!["valid for".to_owned(), seconds(lease.valid_for_ms)],
        ];
        for (name, keys) in [("key", &lease.keys), ("holds", &lease.held), ("waits for", &lease.awaited)] {
            rows.extend(keys.iter().map(|key| vec![name.to_owned(), printable(key)]));
        }
        Ok(output::table(&[], rows))
    })
}

fn printable(key: &LeaseKey<'_>) -> String {
    let bytes = crate::item::decode(key.key.as_deref(), key.key_b64.as_deref());
    bytes.map(|bytes| keys::printable(&bytes)).unwrap_or_default()
}

/// Milliseconds as people read them.
pub fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}
