//! `tidelock audit`: who made which administrative change.
//!
//! Owns the table, and pages through the records of the cluster. `audit verify` checks the audit
//! log of one node, which is another file.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use tidelock_api::audit::{AuditRecord, AuditRecords, LISTED_MAX};
use tidelock_client::{Call, CliError, Client, Output, output};
use tidelock_server::audit_log::{self, AuditVerifyError, VerifiedAuditLog};

use crate::args::{AuditArgs, AuditCommand};
use crate::time::rfc3339;

/// Runs `audit`.
pub fn run(args: &AuditArgs) -> Result<(), CliError> {
    if let Some(AuditCommand::Verify(args)) = &args.command {
        return verify(&args.file);
    }
    let client = args.client.client()?;
    let all = fetch(&client, args.limit)?;
    match args.client.output {
        Output::Text => output::line(&render(&all.records)),
        Output::Json => {
            output::line(&serde_json::to_string(&all).expect("invariant: numbers and texts are JSON"))
        }
    }
}

/// Verifies a file of `serve --audit-log`.
fn verify(path: &Path) -> Result<(), CliError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(CliError::io(name.as_str()))?;
    match audit_log::verify(BufReader::new(file)) {
        Ok(VerifiedAuditLog { lines, last }) => {
            output::line(&format!("{name}: {lines} lines fit together; the last one has SHA-256 {last}"))
        }
        Err(AuditVerifyError::Read(error)) => Err(CliError::io(name)(error)),
        Err(broken @ AuditVerifyError::Broken { .. }) => Err(CliError::Failed(format!("{name}: {broken}"))),
    }
}

/// Fetches the newest records page by page.
fn fetch(client: &Client, limit: u64) -> Result<AuditRecords, CliError> {
    let mut all = AuditRecords { records: Vec::new(), before: None };
    loop {
        let most = (limit - all.records.len() as u64).min(LISTED_MAX as u64);
        let before = all.before.map(|before| format!("&before={before}")).unwrap_or_default();
        let call = Call::get(format!("/v1/audit?limit={most}{before}"));
        let page: AuditRecords = client.ask_for(200, &call)?.json()?;
        all.records.extend(page.records);
        all.before = page.before;
        if all.before.is_none() || all.records.len() as u64 >= limit {
            return Ok(all);
        }
    }
}

fn render(records: &[AuditRecord]) -> String {
    let rows = records.iter().map(|record| {
        let who = record.principal.clone().unwrap_or_else(|| format!("({})", record.caller));
        vec![
            record.sequence.to_string(),
            rfc3339(record.at_unix_ms),
            who,
            record.action.clone(),
            record.subject.clone(),
        ]
    });
    output::table(&["NUMBER", "TIME", "WHO", "ACTION", "SUBJECT"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_a_table() {
        let answer: AuditRecords = serde_json::from_str(
            r#"{"records":[{"sequence":2,"at_unix_ms":0,"caller":"principal","principal":"ann",
                "action":"role.put","subject":"web"},{"sequence":1,"at_unix_ms":0,"caller":"anonymous",
                "action":"slots.rebalance","subject":""}]}"#,
        )
        .expect("an answer");
        let text = render(&answer.records);
        assert!(text.starts_with("NUMBER"), "{text}");
        assert!(text.contains("2       1970-01-01T00:00:00Z  ann          role.put"), "{text}");
        assert!(text.contains("(anonymous)  slots.rebalance"), "{text}");
    }
}
