//! Clients that take backups, at any node and during any fault.
//!
//! Owns where and when each client begins, how long it takes to ask each source and to open and
//! read its files, and which source cannot be asked. The node that the client asks drives the
//! core's machine, so a backup ends with that process. Sources are asked one after the other, so
//! that everything may happen between two of them. A source that is down, paused or cut off does
//! not answer. Files that a source has opened can be read as long as its process runs.
//! `restoring` restores a finished backup into a fresh cluster.
//!
//! A backup contains one state of every shard between its request and its answer, as the answer to
//! a linearizable read of everything does. So the history records each backup as such reads: a list
//! of all keys, and an export of each namespace. The reads are never sent; the restored cluster
//! answers them. They stay open if the backup fails. No reads are recorded for a stale backup,
//! which contains only what its sources have applied.

use std::collections::VecDeque;

use tidelock_core::clients::backup::{BackupAction, BackupRequest, SnapshotStatus, SourceError};
use tidelock_core::clients::snapshots_here;
use tidelock_core::command::config::{Name, Query};
use tidelock_core::command::{ConfigRead, Consistency, Read, ReadReply, Reply, Request};
use tidelock_core::limits::LIST_PAGE_ITEMS_MAX;
use tidelock_core::storage::snapshot::SnapshotId;
use tidelock_core::types::{LogIndex, NodeId, ShardId, Token};

use bytes::Bytes;

use super::World;
use super::partial_backups::{self, OpenSource};
use crate::checkers::Violation;
use crate::checkers::backups::{BackupContent, RestoredContent};
use crate::event_queue::{Direction, Micros, SimEvent};
use crate::faults::choose;
use crate::history::Incarnation;
use crate::trace::digest;

/// Backups that a client takes in one run: each costs the start of a cluster.
const BACKUPS_MAX: usize = 2;

/// Longest time until a node has answered, or has opened or read the files.
const FILES_MAX: Micros = Micros(20_000);

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
    /// The reads that the history records for it; `None`: it is stale.
    reads: Option<RecordedReads>,
    opened: Vec<OpenSource>,
    waits: BackupWait,
}

/// The linearizable reads that the restored backup answers.
#[derive(Debug)]
struct RecordedReads {
    /// A list of all keys.
    list: Token,
    /// An export of each namespace.
    exports: Vec<(Name, Token)>,
}

#[derive(Debug)]
enum BackupWait {
    /// Until these nodes have reported their statuses.
    Statuses(AtSources<NodeId, Vec<SnapshotStatus>>),
    /// For replies, in the order of the requests.
    Replies(Vec<(Token, Option<Reply>)>),
    /// Until these nodes have begun snapshots.
    Begun(Vec<SnapshotRequest>),
    /// Until the files of these snapshots are opened.
    Opening(AtSources<(NodeId, Vec<SnapshotId>), ()>),
    /// Until the files are read.
    Reading,
}

/// A request to a source to begin snapshots.
#[derive(Debug)]
struct SnapshotRequest {
    /// The process and the token of the request; `None` if it was not sent.
    asked: Option<(Incarnation, Token)>,
    result: Option<Result<Vec<(ShardId, LogIndex)>, SourceError>>,
}

/// An action at several sources.
#[derive(Debug)]
struct AtSources<A, R> {
    /// What is left to do.
    left: VecDeque<A>,
    results: Vec<Result<R, SourceError>>,
}

impl<A, R> AtSources<A, R> {
    fn begin(all: Vec<A>) -> AtSources<A, R> {
        AtSources { left: all.into(), results: Vec::new() }
    }
}

fn no_answer(reason: impl std::fmt::Display) -> SourceError {
    SourceError::NoAnswer(reason.to_string())
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
            if let BackupWait::Begun(sources) = &mut current.waits {
                let is_its =
                    |source: &&mut SnapshotRequest| source.asked.is_some_and(|(_, asked)| asked == token);
                for source in sources.iter_mut().filter(is_its) {
                    source.result = Some(snapshots_here(vec![reply.clone()]).map_err(no_answer));
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
        let is_stale = self.backup_clients[position].random.u8(0..3) == 0;
        let reads = (!is_stale).then(|| self.record_reads(at));
        self.note(&[27, at.node.0], || format!("a backup of node {} begins", at.node));
        let (request, action) = BackupRequest::begin(is_stale, self.plan.deliberate);
        let waits = BackupWait::Reading;
        let backup = Backup { request, at, reads, opened: Vec::new(), waits };
        self.act_on_backup(position, backup, action);
    }

    /// Records the linearizable reads that the restored backup will answer.
    fn record_reads(&mut self, at: Incarnation) -> RecordedReads {
        let (prefix, limit) = (Bytes::new(), LIST_PAGE_ITEMS_MAX);
        let list = self.record(at, Read::List { prefix, after: None, limit, keys_only: false });
        let exports = self.workload.namespaces().into_iter().map(|namespace| {
            let query = Query::Export { at: None };
            let token = self.record(at, Read::Config(ConfigRead { namespace: namespace.clone(), query }));
            (namespace, token)
        });
        RecordedReads { list, exports: exports.collect() }
    }

    /// Records one of these reads.
    fn record(&mut self, at: Incarnation, read: Read) -> Token {
        let consistency = Consistency::Linearizable;
        self.history.invoke(at, Request::Read { read, consistency }, false)
    }

    /// Asks the next source, or gives the machine the results of all.
    fn continue_backup(&mut self, position: usize, mut current: Backup) -> Result<(), Violation> {
        let next = match &mut current.waits {
            BackupWait::Statuses(statuses) => match statuses.left.pop_front() {
                Some(node) => {
                    statuses.results.push(self.statuses_at(current.at.node, node));
                    None
                }
                None => {
                    let results = std::mem::take(&mut statuses.results);
                    Some(current.request.statuses(self.event_queue.now().0 / 1_000, results))
                }
            },
            BackupWait::Begun(sources) => {
                for source in sources.iter_mut().filter(|source| source.result.is_none()) {
                    if source.asked.is_none_or(|(at, _)| !self.has_process(at)) {
                        source.result = Some(Err(no_answer("it ended")));
                    }
                }
                let is_complete = sources.iter().all(|source| source.result.is_some());
                is_complete.then(|| {
                    let results = sources.drain(..).filter_map(|source| source.result);
                    current.request.begun(results.collect())
                })
            }
            BackupWait::Opening(opening) => match opening.left.pop_front() {
                Some((node, ids)) => {
                    let opened = self.open_at(current.at.node, node, ids);
                    opening.results.push(opened.map(|source| current.opened.push(source)));
                    None
                }
                None => Some(current.request.opened(std::mem::take(&mut opening.results))),
            },
            BackupWait::Reading => return self.finish_backup(position, current),
            BackupWait::Replies(_) => unreachable!("invariant: replies do not wait for a step"),
        };
        match next {
            Some(action) => self.act_on_backup(position, current, action),
            None => {
                let delay = self.backup_delay(position);
                self.backup_clients[position].current = Some(current);
                self.back_up_after(position, delay);
            }
        }
        Ok(())
    }

    /// The statuses of a source's replicas, if it can be asked.
    fn statuses_at(&mut self, own: NodeId, node: NodeId) -> Result<Vec<SnapshotStatus>, SourceError> {
        self.reach_source(own, node)?;
        let status = self.host(node).status().unwrap_or_default();
        Ok(status.shards.iter().map(SnapshotStatus::from).collect())
    }

    /// Opens the files of snapshots at a source, if it can be asked.
    fn open_at(
        &mut self,
        own: NodeId,
        node: NodeId,
        ids: Vec<SnapshotId>,
    ) -> Result<OpenSource, SourceError> {
        self.reach_source(own, node)?;
        partial_backups::open(self.host(node), ids).map_err(|error| SourceError::Open(error.to_string()))
    }

    /// Fails if a source does not answer the node that makes a backup.
    fn reach_source(&mut self, own: NodeId, node: NodeId) -> Result<(), SourceError> {
        let link = Direction { from: own, to: node };
        let answers = node == own || (self.host(node).is_running() && self.net.can_meet(link));
        if answers { Ok(()) } else { Err(no_answer("it does not answer")) }
    }

    /// Asks a source to begin snapshots of its replicas, if it can be asked.
    fn ask_for_snapshots(&mut self, own: NodeId, node: NodeId) -> SnapshotRequest {
        match self.reach_source(own, node) {
            Ok(()) => {
                let at = self.host(node).incarnation();
                let token = self.ask(node, Request::SnapshotHere, false);
                SnapshotRequest { asked: Some((at, token)), result: None }
            }
            Err(error) => SnapshotRequest { asked: None, result: Some(Err(error)) },
        }
    }

    fn backup_delay(&mut self, position: usize) -> Micros {
        Micros(self.backup_clients[position].random.u64(0..=FILES_MAX.0))
    }

    fn act_on_backup(&mut self, position: usize, mut current: Backup, action: BackupAction) {
        let mut delay = self.backup_delay(position);
        match action {
            BackupAction::Ask(requests) => {
                let ask = |request| (self.ask(current.at.node, request, false), None);
                current.waits = BackupWait::Replies(requests.into_iter().map(ask).collect());
                delay = Micros::MILLISECOND * 10;
            }
            BackupAction::ReadStatuses { nodes, after_ms } => {
                current.waits = BackupWait::Statuses(AtSources::begin(nodes));
                delay = Micros::MILLISECOND * after_ms + Micros(delay.0 % 1_000);
            }
            BackupAction::Open(all) => {
                current.opened.clear();
                current.waits = BackupWait::Opening(AtSources::begin(all));
            }
            BackupAction::Done(Ok(())) => current.waits = BackupWait::Reading,
            BackupAction::Done(Err(failure)) => return self.fail_backup(position, &current, &failure),
            BackupAction::BeginSnapshots(nodes) => {
                let own = current.at.node;
                let sources = nodes.into_iter().map(|node| self.ask_for_snapshots(own, node));
                current.waits = BackupWait::Begun(sources.collect());
            }
        }
        self.backup_clients[position].current = Some(current);
        self.back_up_after(position, delay);
    }

    fn fail_backup(&mut self, position: usize, backup: &Backup, reason: &dyn std::fmt::Display) {
        let node = backup.at.node;
        self.note(&[28, node.0], || format!("no backup of node {node}: {reason}"));
        self.rest_from_backups(position);
    }

    /// Reads the files, restores them into a fresh cluster, and checks that. Its content answers
    /// the recorded reads.
    fn finish_backup(&mut self, position: usize, mut current: Backup) -> Result<(), Violation> {
        let (at, sources) = (current.at, current.opened.len());
        let mut opened = std::mem::take(&mut current.opened);
        for source in &mut opened {
            let is_same_process = self.has_process(source.at);
            source.is_cut = !is_same_process || self.reach_source(at.node, source.at.node).is_err();
        }
        let random = &mut self.backup_clients[position].random;
        let bytes = match partial_backups::gather(at.node, opened, random)? {
            Ok(bytes) => bytes,
            Err(reason) => {
                self.fail_backup(position, &current, &reason);
                return Ok(());
            }
        };
        let Backup { reads, .. } = current;
        let content = BackupContent::read(&bytes)?;
        let names = self.workload.namespaces();
        let random = &mut self.backup_clients[position].random;
        let RestoredContent { page, exports: replies, hash, .. } =
            super::restoring::restore(&content, &names, random)?;
        self.note(&[29, at.node.0, digest(&bytes), hash], || {
            format!("a backup of node {} from {sources} nodes has {} keys", at.node, page.items.len())
        });
        self.tally.stale_backups += u64::from(reads.is_none());
        if let Some(RecordedReads { list, exports }) = reads {
            self.history.answer(list, Reply::Read(ReadReply::Page(page)));
            for ((_, token), reply) in exports.into_iter().zip(replies) {
                self.history.answer(token, reply);
            }
        }
        self.tally.backups += 1;
        self.tally.backups_gathered += u64::from(sources > 1);
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
