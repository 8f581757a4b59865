//! Clients that take backups, at any node and during any fault.
//!
//! Owns where and when each client begins, and how long the node's threads take to open and read
//! the files. The node that it asks drives the core's machine, so a backup ends with that process.
//! `restoring` restores a finished backup into a fresh cluster.
//!
//! A backup contains one state of every shard between its request and its answer, as the answer to
//! a linearizable read of everything does. So the history records each backup as such reads: a list
//! of all keys, and an export of each namespace. The reads are never sent; the restored cluster
//! answers them. They stay open if the backup fails.

use tidelock_core::clients::backup::{BackupAction, BackupRequest};
use tidelock_core::command::config::{Name, Query};
use tidelock_core::command::{ConfigRead, Consistency, Read, ReadReply, Reply, Request};
use tidelock_core::limits::LIST_PAGE_ITEMS_MAX;
use tidelock_core::storage::backup::{BackupSnapshots, Header};
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::storage::snapshot_files::Reading;
use tidelock_core::types::Token;
use uuid::Uuid;

use bytes::Bytes;

use super::World;
use crate::checkers::Violation;
use crate::checkers::backups::{self, BackupContent, RestoredContent};
use crate::disk::SimFile;
use crate::event_queue::{Micros, SimEvent};
use crate::faults::choose;
use crate::history::Incarnation;
use crate::trace::digest;

/// Backups that a client takes in one run: each costs the start of a cluster.
const BACKUPS_MAX: usize = 2;

/// Longest time until a thread of the node has opened or read the files.
const FILES_MAX: Micros = Micros(20_000);

/// Bytes of a part of a backup.
const PART_BYTES: usize = 1 << 10;

/// A client that takes backups.
#[derive(Debug)]
pub struct BackupClient {
    current: Option<Backup>,
    finished: usize,
    /// A step that is due at another time is obsolete.
    next_step: Micros,
    random: fastrand::Rng,
}

/// A backup in progress.
#[derive(Debug)]
struct Backup {
    request: BackupRequest,
    /// The process that makes it.
    at: Incarnation,
    /// The list of all keys that the history records for it.
    list: Token,
    /// The same for the export of each namespace.
    exports: Vec<(Name, Token)>,
    snapshots: Option<(BackupSnapshots<SimFile>, Reading)>,
    waits: BackupWait,
}

#[derive(Debug)]
enum BackupWait {
    Status,
    /// For replies, in the order of the requests.
    Replies(Vec<(Token, Option<Reply>)>),
    /// Until the files of these snapshots are opened.
    Opening(Vec<SnapshotId>),
    /// Until the files are read.
    Reading,
}

impl BackupClient {
    /// A client with its own generator.
    pub fn new(random: fastrand::Rng) -> BackupClient {
        BackupClient { current: None, finished: 0, next_step: Micros(0), random }
    }
}

impl World<'_> {
    /// Schedules the first step of every client that takes backups.
    pub(crate) fn start_backup_clients(&mut self) {
        for position in 0..self.backup_clients.len() {
            let first = self.backup_clients[position].random.u64(0..=self.plan.duration.0 / 2);
            self.back_up_after(position, Micros(first));
        }
    }

    /// Takes a client's next step.
    pub(crate) fn back_up(&mut self, position: usize) -> Result<(), Violation> {
        if self.backup_clients[position].next_step != self.event_queue.now() {
            return Ok(());
        }
        let Some(current) = self.backup_clients[position].current.take() else {
            self.begin_backup(position);
            return Ok(());
        };
        if !self.has_process(current.at) {
            self.rest_from_backups(position);
            return Ok(());
        }
        if self.is_paused(current.at.node) || matches!(current.waits, BackupWait::Replies(_)) {
            self.backup_clients[position].current = Some(current);
            self.back_up_after(position, Micros::MILLISECOND * 10);
            return Ok(());
        }
        self.continue_backup(position, current)
    }

    /// Handles a reply that may be for a backup. The history has recorded it already.
    pub(crate) fn backup_client_hears(&mut self, token: Token, reply: &Reply) {
        for position in 0..self.backup_clients.len() {
            let Some(mut current) = self.backup_clients[position].current.take() else { continue };
            if let BackupWait::Replies(replies) = &mut current.waits {
                for (_, slot) in replies.iter_mut().filter(|(asked, _)| *asked == token) {
                    *slot = Some(reply.clone());
                }
                if replies.iter().all(|(_, reply)| reply.is_some()) {
                    let replies = replies.drain(..).filter_map(|(_, reply)| reply).collect();
                    let action = current.request.answered(replies);
                    self.act_on_backup(position, current, action);
                    continue;
                }
            }
            self.backup_clients[position].current = Some(current);
        }
    }

    fn begin_backup(&mut self, position: usize) {
        let running: Vec<_> =
            self.hosts.iter().filter(|host| host.is_running()).map(|host| host.incarnation()).collect();
        if running.is_empty() {
            return self.back_up_after(position, Micros::MILLISECOND * 10);
        }
        let at = *choose(&mut self.backup_clients[position].random, &running);
        let (prefix, limit) = (Bytes::new(), LIST_PAGE_ITEMS_MAX);
        let list = self.record(at, Read::List { prefix, after: None, limit, keys_only: false });
        let exports = self.workload.namespaces().into_iter().map(|namespace| {
            let query = Query::Export { at: None };
            let token = self.record(at, Read::Config(ConfigRead { namespace: namespace.clone(), query }));
            (namespace, token)
        });
        let exports = exports.collect();
        self.note(&[27, at.node.0], || format!("a backup of node {} begins", at.node));
        let (request, action) = BackupRequest::begin(false, self.plan.deliberate);
        let backup = Backup { request, at, list, exports, snapshots: None, waits: BackupWait::Status };
        self.act_on_backup(position, backup, action);
    }

    /// Records a read that the backup stands for.
    fn record(&mut self, at: Incarnation, read: Read) -> Token {
        let consistency = Consistency::Linearizable;
        self.history.invoke(at, Request::Read { read, consistency }, false)
    }

    /// Gives the machine what it waits for from the node.
    fn continue_backup(&mut self, position: usize, mut current: Backup) -> Result<(), Violation> {
        let node = current.at.node;
        let action = match std::mem::replace(&mut current.waits, BackupWait::Status) {
            BackupWait::Status | BackupWait::Replies(_) => {
                let shards = self.host(node).status().map(|status| status.shards).unwrap_or_default();
                current.request.status(self.event_queue.now().0 / 1_000, &shards)
            }
            BackupWait::Opening(ids) => {
                let reading = self.host(node).enter_reader();
                let opened = BackupSnapshots::open(self.host(node).disk(), ids);
                current.request.opened(opened.map(|opened| current.snapshots = Some((opened, reading))))
            }
            BackupWait::Reading => return self.finish_backup(position, current),
        };
        self.act_on_backup(position, current, action);
        Ok(())
    }

    fn act_on_backup(&mut self, position: usize, mut current: Backup, action: BackupAction) {
        let mut delay = Micros(self.backup_clients[position].random.u64(0..=FILES_MAX.0));
        match action {
            BackupAction::Ask(requests) => {
                let ask = |request| (self.ask(current.at.node, request, false), None);
                current.waits = BackupWait::Replies(requests.into_iter().map(ask).collect());
                delay = Micros::MILLISECOND * 10;
            }
            BackupAction::ReadStatus { after_ms } => {
                current.waits = BackupWait::Status;
                delay = Micros::MILLISECOND * after_ms + Micros(delay.0 % 1_000);
            }
            BackupAction::Open(ids) => current.waits = BackupWait::Opening(ids),
            BackupAction::Done(Ok(())) => current.waits = BackupWait::Reading,
            BackupAction::Done(Err(failure)) => {
                let node = current.at.node;
                self.note(&[28, node.0], || format!("no backup of node {node}: {failure}"));
                return self.rest_from_backups(position);
            }
        }
        self.backup_clients[position].current = Some(current);
        self.back_up_after(position, delay);
    }

    /// Reads the files, restores them into a fresh cluster, and checks that. Its content answers
    /// the recorded reads.
    fn finish_backup(&mut self, position: usize, current: Backup) -> Result<(), Violation> {
        let Backup { at, list, exports, snapshots, .. } = current;
        let (snapshots, _reading) = snapshots.expect("invariant: they were opened");
        let random = &mut self.backup_clients[position].random;
        let bytes = file_of(at, snapshots, Uuid::from_u128(random.u128(1..)))?;
        let content = BackupContent::read(&bytes)?;
        let names: Vec<Name> = exports.iter().map(|(name, _)| name.clone()).collect();
        let RestoredContent { page, exports: replies, hash, .. } =
            super::restoring::restore(&content, &names, random)?;
        self.note(&[29, at.node.0, digest(&bytes), hash], || {
            format!("a backup of node {} has {} keys", at.node, page.items.len())
        });
        self.history.answer(list, Reply::Read(ReadReply::Page(page)));
        for ((_, token), reply) in exports.into_iter().zip(replies) {
            self.history.answer(token, reply);
        }
        self.tally.backups += 1;
        self.backup_clients[position].finished += 1;
        self.rest_from_backups(position);
        Ok(())
    }

    fn rest_from_backups(&mut self, position: usize) {
        let client = &mut self.backup_clients[position];
        if client.finished < BACKUPS_MAX {
            let pause = Micros(client.random.u64(1..=self.plan.load.pause_max.0 * 10));
            self.back_up_after(position, pause);
        }
    }

    fn back_up_after(&mut self, position: usize, delay: Micros) {
        let at = self.event_queue.now() + delay;
        self.backup_clients[position].next_step = at;
        self.event_queue.at(at, SimEvent::BackUp(position));
    }
}

/// The bytes of a backup. Finished snapshots are durable and verified, so reading them never fails.
fn file_of(at: Incarnation, snapshots: BackupSnapshots<SimFile>, backup: Uuid) -> Result<Vec<u8>, Violation> {
    let header = Header {
        cluster: Uuid::from_u128(1),
        backup,
        node: at.node,
        created_unix_ms: 0,
        is_stale: false,
        shards: snapshots.shards(),
        about_bytes: snapshots.about_bytes(),
    };
    let mut bytes = Vec::new();
    let written: Result<(), Box<dyn std::error::Error>> = snapshots.write(header, PART_BYTES, |part| {
        bytes.extend(part);
        Ok(())
    });
    let node = at.node;
    let blame = |error| Violation::new(backups::CHECKER, format!("no backup of node {node}: {error}"));
    written.map_err(blame)?;
    Ok(bytes)
}
