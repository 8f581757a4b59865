//! `cluster clients`: the busiest connections of a node.
//!
//! Owns the table. The node counts and orders.

use tidelock_api::clients::Clients;
use tidelock_client::{Call, CliError, output};

use crate::args::{ClientArgs, ClientsArgs};

pub(super) fn show(args: &ClientsArgs, client: &ClientArgs) -> Result<(), CliError> {
    let call = Call::get(format!("/v1/cluster/clients?limit={}", args.limit));
    let answer = client.client()?.ask_for(200, &call)?;
    output::answer(client.output, &answer, || Ok(render(&answer.json()?)))
}

fn render(answer: &Clients) -> String {
    let header =
        ["ADDRESS", "PROTOCOL", "AGE S", "OPERATIONS", "RECEIVED", "SENT", "OPEN REQUESTS", "HELD BYTES"];
    let rows = answer.clients.iter().map(|row| {
        vec![
            row.address.clone().unwrap_or_else(|| "-".to_owned()),
            row.protocol.to_string(),
            (row.age_ms / 1_000).to_string(),
            row.operations.to_string(),
            row.bytes_received.to_string(),
            row.bytes_sent.to_string(),
            row.open_requests.to_string(),
            row.held_bytes.to_string(),
        ]
    });
    let Clients { node, connections, requests_waiting, .. } = answer;
    let summary = format!(
        "node {node}: {connections} connections open, {requests_waiting} requests wait for their turn"
    );
    format!("{summary}\n\n{}", output::table(&header, rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_a_table() {
        let answer: Clients = serde_json::from_str(
            r#"{"node":1,"connections":2,"requests_waiting":7,"clients":[{"id":5,"address":"10.0.0.9:4711",
                "protocol":"resp","age_ms":61000,"operations":9,"bytes_received":300,"bytes_sent":200,
                "open_requests":4,"held_bytes":100}]}"#,
        )
        .expect("an answer");
        let text = render(&answer);
        assert!(text.starts_with("node 1: 2 connections open, 7 requests wait for their turn\n\nADDRESS"));
        assert!(text.contains("10.0.0.9:4711  resp      61     9           300       200   4"), "{text}");
    }
}
