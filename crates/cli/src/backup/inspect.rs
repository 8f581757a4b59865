//! `tidelock backup verify` and `inspect`: describe a backup after reading and verifying all of it.

use std::path::Path;

use indicatif::HumanBytes;
use serde::Serialize;
use tidelock_client::{CliError, output};
use tidelock_core::storage::backup::{ShardSummary, Summary};
use tidelock_core::types::ShardId;

use crate::args::{FileArgs, Output};
use crate::time::rfc3339;

/// Runs `backup verify`.
pub fn verify(args: &FileArgs) -> Result<(), CliError> {
    let summary = super::read_file(&args.file, "verifying", |_| Ok(()))?;
    print("intact", &args.file, &summary, args.output)
}

/// Runs `backup inspect`.
pub fn run(args: &FileArgs) -> Result<(), CliError> {
    let summary = super::read_file(&args.file, "reading", |_| Ok(()))?;
    match args.output {
        Output::Json => output::line(&json(&args.file, &summary)),
        Output::Text => output::write(render(&summary).as_bytes()),
    }
}

/// Reports in one line that a backup was written, and its content.
pub fn print(verdict: &str, file: &Path, summary: &Summary, format: Output) -> Result<(), CliError> {
    match format {
        Output::Json => output::line(&json(file, summary)),
        Output::Text => output::line(&format!("{verdict}: {}, {}", file.display(), line(summary))),
    }
}

/// The content of a backup, in one line.
pub fn line(summary: &Summary) -> String {
    let stale = if summary.header.is_stale { ", stale: acknowledged writes may be missing" } else { "" };
    format!(
        "{} keys, {}, made {}{stale}",
        summary.keys(),
        HumanBytes(summary.file_bytes),
        rfc3339(summary.header.created_unix_ms),
    )
}

fn render(summary: &Summary) -> String {
    let header = &summary.header;
    let state = if header.is_stale {
        "what the node had applied, without asking the others: acknowledged writes may be missing"
    } else {
        "everything acknowledged before it was begun"
    };
    let facts = [
        ("backup", header.backup.to_string()),
        ("cluster", header.cluster.to_string()),
        ("node", header.node.to_string()),
        ("created", rfc3339(header.created_unix_ms)),
        ("holds", state.to_owned()),
        ("size", format!("{} ({} bytes)", HumanBytes(summary.file_bytes), summary.file_bytes)),
        ("keys", summary.keys().to_string()),
        ("versions", format!("up to {}", summary.revision_max())),
    ];
    let facts = facts.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]).collect();
    let shards = summary.shards.iter().map(|shard| {
        let is_prime = shard.id.shard == ShardId::PRIME;
        let keys = if is_prime { "-".to_owned() } else { shard.records.to_string() };
        let revision = if is_prime { "-".to_owned() } else { shard.revision.to_string() };
        vec![
            shard.id.shard.to_string(),
            kind(shard).to_owned(),
            shard.id.index.to_string(),
            shard.id.term.to_string(),
            revision,
            keys,
            HumanBytes(shard.bytes).to_string(),
        ]
    });
    let header = ["SHARD", "TYPE", "INDEX", "TERM", "REVISION", "KEYS", "SIZE"];
    format!("{}\n\n{}\n", output::table(&[], facts), output::table(&header, shards.collect()))
}

fn kind(shard: &ShardSummary) -> &'static str {
    if shard.id.shard == ShardId::PRIME { "registry" } else { "kv" }
}

#[derive(Serialize)]
struct Backup<'a> {
    file: &'a str,
    file_bytes: u64,
    backup: String,
    cluster: String,
    node: u64,
    created: String,
    stale: bool,
    keys: u64,
    revision: u64,
    shards: Vec<Shard>,
}

#[derive(Serialize)]
struct Shard {
    id: u64,
    r#type: &'static str,
    index: u64,
    term: u64,
    revision: u64,
    records: u64,
    bytes: u64,
}

fn json(file: &Path, summary: &Summary) -> String {
    let header = &summary.header;
    let shard = |shard: &ShardSummary| Shard {
        id: shard.id.shard.0,
        r#type: kind(shard),
        index: shard.id.index.0,
        term: shard.id.term.0,
        revision: shard.revision.0,
        records: shard.records,
        bytes: shard.bytes,
    };
    let backup = Backup {
        file: &file.to_string_lossy(),
        file_bytes: summary.file_bytes,
        backup: header.backup.to_string(),
        cluster: header.cluster.to_string(),
        node: header.node.0,
        created: rfc3339(header.created_unix_ms),
        stale: header.is_stale,
        keys: summary.keys(),
        revision: summary.revision_max().0,
        shards: summary.shards.iter().map(shard).collect(),
    };
    serde_json::to_string(&backup).expect("invariant: texts and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use tidelock_core::storage::backup::Header;
    use tidelock_core::storage::snapshot::SnapshotId;
    use tidelock_core::types::{LogIndex, NodeId, Term, Version};
    use uuid::Uuid;

    use super::*;

    fn summary() -> Summary {
        let shard = |shard, index, revision, records| ShardSummary {
            id: SnapshotId { shard: ShardId(shard), index: LogIndex(index), term: Term(2) },
            revision: Version(revision),
            records,
            blocks: 2,
            bytes: 3_000,
        };
        Summary {
            header: Header {
                cluster: Uuid::from_u128(7),
                backup: Uuid::from_u128(8),
                node: NodeId(3),
                created_unix_ms: 1_795_219_205_999,
                is_stale: false,
                shards: 2,
                about_bytes: 0,
            },
            shards: vec![shard(0, 12, 0, 3), shard(1, 120, 110, 40)],
            file_bytes: 6_500,
        }
    }

    #[test]
    fn a_backup_is_described() {
        let shown = render(&summary());
        assert!(shown.starts_with("backup    00000000-0000-0000-0000-000000000008\n"), "{shown}");
        assert!(shown.contains("created   2026-11-21T00:00:05Z\n"), "{shown}");
        assert!(
            shown.ends_with(
                "SHARD  TYPE      INDEX  TERM  REVISION  KEYS  SIZE\n\
                 0      registry  12     2     -         -     2.93 KiB\n\
                 1      kv        120    2     110       40    2.93 KiB\n"
            ),
            "{shown}"
        );
        assert_eq!(line(&summary()), "40 keys, 6.35 KiB, made 2026-11-21T00:00:05Z");
        let json: serde_json::Value = serde_json::from_str(&json(Path::new("f"), &summary())).unwrap();
        assert_eq!(json["keys"], 40);
        assert_eq!(json["shards"][1]["revision"], 110);
        assert_eq!(json["created"], "2026-11-21T00:00:05Z");
    }

    #[test]
    fn a_stale_backup_says_so() {
        let mut summary = summary();
        summary.header.is_stale = true;
        for shown in [render(&summary), line(&summary)] {
            assert!(shown.contains("acknowledged writes may be missing"), "{shown}");
        }
    }
}
