//! `tidelock config readers`: who watches a namespace now.

use tidelock_api::config::{Reader, Readers};
use tidelock_client::{CliError, keys, output};

use super::{Session, Target};
use crate::args::ReadersArgs;

/// Runs `config readers`.
pub fn run(session: &Session, args: &ReadersArgs) -> Result<(), CliError> {
    let target = Target::of(&[&args.namespace, "readers"]).with("container", args.container.as_ref());
    let Some(found) = session.show::<Readers>(target.with("limit", Some(args.limit)))? else { return Ok(()) };
    for node in &found.missing {
        eprintln!("node {node} did not answer: the clients that watch there are not listed");
    }
    let listed = found.readers.len() as u64;
    if listed < found.total {
        eprintln!("{listed} of {} clients are listed", found.total);
    }
    if found.readers.is_empty() { Ok(()) } else { output::line(&table(&found.readers)) }
}

fn table(readers: &[Reader]) -> String {
    let text = |text: &Option<String>| {
        text.as_ref().map_or_else(|| "-".to_owned(), |text| keys::printable(text.as_bytes()))
    };
    let row = |reader: &Reader| {
        vec![
            reader.node.to_string(),
            text(&reader.address),
            text(&reader.principal),
            text(&reader.label),
            reader.container.as_ref().map_or_else(|| "all".to_owned(), |key| keys::printable(key.as_bytes())),
            reader.revision.to_string(),
            if reader.poll { "poll" } else { "stream" }.to_owned(),
        ]
    };
    let header = ["NODE", "ADDRESS", "PRINCIPAL", "LABEL", "CONTAINER", "REVISION", "KIND"];
    output::table(&header, readers.iter().map(row).collect())
}
