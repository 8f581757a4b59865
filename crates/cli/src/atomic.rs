//! `tidelock atomic`: registers over the native HTTP API.
//!
//! Owns how an exchange is requested and shown. The server defines a register: a key that holds a
//! decimal number of 64 bits, or 0 while it does not exist.

use serde::Serialize;
use tidelock_api::atomics::{CompareExchangeRequest, ExchangeRequest, Exchanged, Register};
use tidelock_client::http::Method;
use tidelock_client::{Call, CliError, Client, Response, keys, output};

use crate::args::{AtomicArgs, AtomicCommand, Output};

/// Runs one of the `atomic` commands.
pub fn run(args: AtomicArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let format = args.client.output;
    match args.command {
        AtomicCommand::Get(get) => {
            let query = if get.stale { "?stale=true" } else { "" };
            let answer = client.ask_for(200, &Call::get(format!("{}{query}", path(&get.id.0))))?;
            let register: Register<'_> = answer.json()?;
            output::answer(format, &answer, || Ok(register.value.to_string()))
        }
        AtomicCommand::Exchange(exchange) => {
            let body = ExchangeRequest { value: exchange.value };
            let answer = change(&client, &exchange.id.0, "exchange", &body)?;
            let Exchanged { old_value, .. } = answer.json()?;
            output::answer(format, &answer, || Ok(format!("exchanged, the value was {old_value}")))
        }
        AtomicCommand::Cas(cas) => {
            let body = CompareExchangeRequest { expected_value: cas.expected, new_value: cas.new };
            let answer = change(&client, &cas.id.0, "compare-exchange", &body)?;
            let Exchanged { success, old_value, .. } = answer.json()?;
            if success || format == Output::Json {
                output::answer(format, &answer, || Ok("exchanged".to_owned()))?;
            }
            if success {
                return Ok(());
            }
            Err(CliError::ConditionFailed(format!("not exchanged: the value is {old_value}")))
        }
    }
}

fn path(id: &[u8]) -> String {
    keys::path(id).replacen("/v1/keys/", "/v1/atomics/", 1)
}

/// Neither is sent twice: a repeated exchange would return its own value, and a repeated comparison
/// would fail.
fn change(client: &Client, id: &[u8], operation: &str, body: &impl Serialize) -> Result<Response, CliError> {
    let target = format!("{}/{operation}", path(id));
    let body = serde_json::to_vec(body).expect("invariant: numbers are JSON");
    client.ask_for(
        200,
        &Call { method: Method::POST, target, conditions: vec![], body: &body, may_repeat: false },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_paths() {
        assert_eq!(path(b"a/b"), "/v1/atomics/a/b");
        assert_eq!(path(b"v1/keys/ x"), "/v1/atomics/v1/keys/%20x");
    }
}
