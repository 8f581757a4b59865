//! `tidelock txn`: transactions over the native HTTP API.
//!
//! Owns where a transaction is read from, and the exit code. The node parses it, so a mistake is
//! named as over HTTP.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tidelock_api::transactions::TransactionAnswer;
use tidelock_client::http::Method;
use tidelock_client::{Call, CliError, output};

use crate::args::TxnArgs;

/// The longest transaction that is read: a node's limit of a request body.
const TRANSACTION_BYTES_MAX: u64 = 8 << 20;

/// Runs `txn`.
pub fn run(args: &TxnArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let body = match args.file.as_deref() {
        None => read(io::stdin().lock(), "standard input")?,
        Some(path) if path == Path::new("-") => read(io::stdin().lock(), "standard input")?,
        Some(path) => {
            let name = path.display().to_string();
            read(File::open(path).map_err(CliError::io(name.as_str()))?, &name)?
        }
    };
    let target = "/v1/transactions".to_owned();
    let call = Call { method: Method::POST, target, conditions: vec![], body: &body, may_repeat: false };
    let answer = client.ask_for(200, &call)?;
    let TransactionAnswer { succeeded, .. } = answer.json()?;
    output::line(String::from_utf8_lossy(&answer.body).trim_end())?;
    if succeeded {
        return Ok(());
    }
    Err(CliError::ConditionFailed("a comparison did not hold: `else` happened, not `then`".to_owned()))
}

fn read(source: impl Read, name: &str) -> Result<Vec<u8>, CliError> {
    let mut body = vec![];
    source.take(TRANSACTION_BYTES_MAX + 1).read_to_end(&mut body).map_err(CliError::io(name))?;
    if body.len() as u64 > TRANSACTION_BYTES_MAX {
        return Err(CliError::Usage(format!("{name} is longer than {} MiB", TRANSACTION_BYTES_MAX >> 20)));
    }
    Ok(body)
}
