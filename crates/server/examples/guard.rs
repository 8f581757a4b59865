//! Deterministic workloads of single components, whose instructions `bench/guard` counts.
//!
//! `guard parse|apply|wal|token ROUNDS`: the same input in every run, without sockets, files or
//! clocks. The cost of a round is the difference between two runs with different numbers of rounds,
//! which excludes the start of the process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::rc::Rc;

use bytes::Bytes;
use tidelock_core::auth::{Demand, Principal, Role, Scope, TokenId, Verb};
use tidelock_core::codec::Decoder;
use tidelock_core::command::{
    AccessChange, AccessWrite, Condition, Operation, Read, ReadReply, RegistryWrite, ShardAnswer, Write,
};
use tidelock_core::control::registry::Registry;
use tidelock_core::founding::Founding;
use tidelock_core::machine::Machine;
use tidelock_core::storage::disk::{Disk, DiskError, DiskErrorKind, DiskFile};
use tidelock_core::storage::wal::{self, WalOptions};
use tidelock_core::storage::{LogEntry, WalBatch, WalRecord};
use tidelock_core::types::{LogIndex, ShardId, Term, UnixMillis, WalSequence};
use tidelock_core::version::ClusterVersion;
use tidelock_server::access::{Proof, PublishedAccess};
use tidelock_server::resp::frame::Parser;
use tidelock_server::token::BearerToken;

/// Commands of one batch: as many as a deep pipeline delivers at once.
const COMMANDS: usize = 256;

/// Number of distinct keys.
const KEYS: usize = 1_000;

/// Number of distinct entries: after as many, the keys are the same again. They are made before the
/// first round, so that making them is not counted.
const ENTRIES: usize = 125;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (Some(what), Some(rounds)) =
        (arguments.get(1), arguments.get(2).and_then(|rounds| rounds.parse::<usize>().ok()))
    else {
        eprintln!("usage: guard parse|apply|wal|token ROUNDS");
        return ExitCode::from(2);
    };
    // Printed, so that the compiler cannot remove any of the work.
    let done = match what.as_str() {
        "parse" => parse(rounds),
        "apply" => apply(rounds),
        "wal" => write_log(rounds),
        "token" => check_tokens(rounds),
        other => {
            eprintln!("guard: {other} is not parse, apply, wal or token");
            return ExitCode::from(2);
        }
    };
    println!("{what} {rounds} {done}");
    ExitCode::SUCCESS
}

fn key(index: usize) -> String {
    format!("bench:{:010}", index % KEYS)
}

/// Parses a pipelined burst of `SET`s.
fn parse(rounds: usize) -> usize {
    let value = "v".repeat(32);
    let burst: String = (0..COMMANDS)
        .map(|index| format!("*3\r\n$3\r\nSET\r\n$16\r\n{}\r\n$32\r\n{value}\r\n", key(index)))
        .collect();
    let mut parser = Parser::default();
    let mut seen = 0;
    for _ in 0..rounds {
        let mut rest = burst.as_bytes();
        while let Some(bytes) = parser.parse(rest).expect("invariant: the burst is well formed") {
            let arguments = parser.arguments(rest);
            seen += arguments.get(1).map_or(0, <[u8]>::len) + arguments.len();
            rest = &rest[bytes..];
            parser.advance();
        }
    }
    seen
}

/// A log entry: several writes, encoded as a leader does; and their keys.
fn entry(round: usize) -> (Bytes, Vec<Bytes>) {
    let mut out = vec![];
    let keys = (0..COMMANDS).map(|index| Bytes::from(key(round * COMMANDS + index))).collect::<Vec<_>>();
    for key in &keys {
        let put = Operation::Put { key, value: &[b'v'; 32], condition: Condition::Always };
        Write::of(&put).encode(&mut out);
    }
    (out.into(), keys)
}

/// Decodes and applies entries, and reads each key back.
fn apply(rounds: usize) -> usize {
    let mut machine = Machine::new(ShardId(1), &Founding::new(1, 1));
    let mut seen = 0;
    let entries: Vec<(Bytes, Vec<Bytes>)> = (0..ENTRIES).map(entry).collect();
    for round in 0..rounds {
        let (entry, keys) = &entries[round % ENTRIES];
        let mut decoder = Decoder::new(entry);
        for key in keys {
            let write =
                Write::decode_logged(&mut decoder, entry).expect("invariant: the entry is well formed");
            machine.apply(LogIndex(round as u64 + 1), write).expect("invariant: no key has moved");
            if let Ok(ShardAnswer { reply: ReadReply::Value(Some(stored)), .. }) =
                machine.read(&Read::Get { key: key.clone() })
            {
                seen += stored.value.len();
            }
        }
    }
    seen
}

/// Encodes and writes batches into a log in memory.
fn write_log(rounds: usize) -> usize {
    let disk = Heap::default();
    let (mut log, _) = wal::open(disk, WalOptions::new(1)).expect("invariant: memory can be written");
    let (entry, _) = entry(0);
    for round in 0..rounds {
        let index = LogIndex(round as u64 + 1);
        let entries = vec![LogEntry { index, term: Term(1), data: entry.clone() }];
        let records = vec![WalRecord::Entries { shard: ShardId(1), entries }];
        let batch = WalBatch { sequence: WalSequence(index.0), records, released: vec![] };
        let failed = "invariant: memory can be written";
        log.append(&[batch]).expect(failed);
        log.sync().expect(failed);
        // Full segments are released, so that the log stays as small as on a node that makes
        // snapshots.
        log.release(ShardId(1), index).expect(failed);
    }
    usize::try_from(log.bytes_written()).unwrap_or(usize::MAX)
}

/// Parses and verifies one token for each command of a batch, among as many principals, and checks
/// the permission to read a key.
fn check_tokens(rounds: usize) -> usize {
    let mut registry = Registry::founded(&Founding::new(1, 1)).founded_at(ClusterVersion::NEWEST);
    let mut changes = vec![AccessChange::PutRole {
        name: "reader".to_owned(),
        role: Role {
            grants: ["read keys:bench:".parse().expect("invariant: a grant")].into_iter().collect(),
            ..Role::default()
        },
    }];
    let tokens: Vec<BearerToken> = (0..COMMANDS as u64)
        .map(|id| BearerToken::with_id(TokenId(id)).expect("invariant: there are random numbers"))
        .collect();
    for token in &tokens {
        let name = format!("principal-{}", token.id);
        let principal = Principal { roles: ["reader".to_owned()].into(), ..Principal::default() };
        changes.push(AccessChange::PutPrincipal { name: name.clone(), principal });
        let digest = token.digest();
        changes.push(AccessChange::AddToken { id: token.id, principal: name, digest, lifetime_ms: None });
    }
    for (index, change) in (1..).zip(changes) {
        registry.apply(LogIndex(index), RegistryWrite::Access(AccessWrite::new(change)));
    }
    let (texts, now) = (tokens.iter().map(BearerToken::reveal).collect::<Vec<_>>(), UnixMillis(1));
    let access = PublishedAccess::new(registry.access().clone());
    let mut admitted = 0;
    for _ in 0..rounds {
        for text in &texts {
            let token = BearerToken::parse(text.as_bytes()).expect("invariant: a token");
            let proof = Proof::of(&token, &access, now).expect("invariant: a known token");
            let demand = Demand { verb: Verb::Read, scope: Scope::Key(b"bench:1") };
            admitted += usize::from(registry.access().covers(&proof.caller(), &demand, Some(now)));
        }
    }
    admitted
}

type Content = Rc<RefCell<Vec<u8>>>;

/// A disk in memory that never fails.
#[derive(Clone, Default)]
struct Heap {
    files: Rc<RefCell<BTreeMap<String, Content>>>,
}

impl Disk for Heap {
    type File = HeapFile;

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.files.borrow().keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> Result<HeapFile, DiskError> {
        let content: Content = Rc::new(RefCell::new(vec![0; bytes as usize]));
        self.files.borrow_mut().insert(name.to_owned(), Rc::clone(&content));
        Ok(HeapFile { content })
    }

    fn open(&self, name: &str) -> Result<HeapFile, DiskError> {
        let content = self.files.borrow().get(name).cloned().ok_or_else(|| missing(name))?;
        Ok(HeapFile { content })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let content = self.files.borrow_mut().remove(from).ok_or_else(|| missing(from))?;
        self.files.borrow_mut().insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.files.borrow_mut().remove(name).map(|_| ()).ok_or_else(|| missing(name))
    }
}

fn missing(name: &str) -> DiskError {
    let (operation, reason) = ("open", "no such file".to_owned());
    DiskError { operation, file: name.to_owned(), reason, kind: DiskErrorKind::Other }
}

struct HeapFile {
    content: Content,
}

impl DiskFile for HeapFile {
    fn size(&self) -> Result<u64, DiskError> {
        Ok(self.content.borrow().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let start = offset as usize;
        buffer.copy_from_slice(&self.content.borrow()[start..start + buffer.len()]);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let start = offset as usize;
        self.content.borrow_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn resize(&mut self, bytes: u64) -> Result<(), DiskError> {
        self.content.borrow_mut().resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}
