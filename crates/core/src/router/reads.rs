//! Reads: answered by the replica here, or by a peer with a replica of the shard.
//!
//! Owns the routing of reads. A read may be sent to another node at any time, because it changes
//! nothing; a lost request or reply only costs time. A node that answers for a peer never asks a
//! third node.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

use super::gather::{Gather, SlotsNotCovered};
use super::{Open, Requester, Router, Work, parts, tracing};
use crate::command::config::{Preview, Query, Stamp};
use crate::command::{
    ConfigRead, ConfigWrite, Consistency, Operations, Page, Read, ReadReply, Refusal, Reply, ShardAnswer,
    ShardError, ShardRefusal,
};
use crate::deliberate::Fault;
use crate::limits;
use crate::peer::{self, LinkNumber, Question, ReadMessage, RequestId, RequestMetadata};
use crate::raft::{Groups, ReadDone};
use crate::slots;
use crate::slots::slot_set::SlotSet;
use crate::types::{NodeId, ShardId};
use crate::version::ClusterVersion;

/// A read of a shard without a replica here.
pub(super) struct Remote {
    shard: ShardId,
    read: Read,
    consistency: Consistency,
    /// The node that was asked last and has not answered; `None` if no node could be asked.
    asked: Option<NodeId>,
}

impl Remote {
    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(super) fn asked(&self) -> Option<NodeId> {
        self.asked
    }
}

pub(super) struct RetryRead {
    read: Read,
    consistency: Consistency,
}

/// A read of all shards, on this node and on peers.
pub(super) struct ScatterGather {
    read: Read,
    consistency: Consistency,
    gather: Gather,
    /// Requests whose peers have not answered.
    remote: Vec<Remote>,
}

/// The shards that a read needs.
#[derive(Clone, Copy)]
enum Scope {
    Shard(ShardId),
    All,
}

/// Why a read is sent to no shard.
enum NoTarget {
    /// It is a step of a scan with another slot map.
    SlotsMoved,
    Refused(Refusal),
}

impl From<NoTarget> for Reply {
    fn from(no_target: NoTarget) -> Reply {
        match no_target {
            NoTarget::SlotsMoved => Reply::SlotsMoved,
            NoTarget::Refused(refusal) => Reply::Refused(refusal),
        }
    }
}

/// A read for a peer, identified by the peer and its number for the read.
pub(super) struct PeerRead {
    pub(super) node: NodeId,
    link: LinkNumber,
    request: RequestId,
    pub(super) shard: ShardId,
}

impl Router {
    /// Accepts a read.
    pub(crate) fn read(
        &mut self,
        requester: Requester,
        (read, consistency): (Read, Consistency),
        groups: &mut Groups,
    ) {
        let read = match read {
            Read::Config(read) if self.version < ClusterVersion::WITH_DRAFTS => {
                Read::Config(read.without_label())
            }
            read => read,
        };
        match consistency {
            Consistency::Linearizable => self.counters.reads_linearizable += reads_in(&read),
            Consistency::Stale => self.counters.reads_stale += reads_in(&read),
        }
        let scope = match self.scope(&read) {
            Err(no_target) => return self.answer(requester.token, no_target.into()),
            Ok(scope) => scope,
        };
        if let Scope::Shard(shard) = scope {
            self.load.read(shard, &read);
        }
        if self.faults.has(Fault::PreviewCommitted)
            && let Read::Config(ConfigRead { namespace, query: Query::Preview(preview) }) = &read
        {
            let Preview { expected, operation } = Preview::clone(preview);
            let stamp = Stamp::default();
            let write = ConfigWrite { namespace: namespace.clone(), stamp, expected, operation };
            self.write(Requester::NODE, write.into(), groups);
        }
        if consistency == Consistency::Stale
            && let Some(reply) = self.stale_reply(scope, &read, groups)
        {
            return self.answer(requester.token, reply);
        }
        match scope {
            Scope::Shard(shard)
                if consistency == Consistency::Linearizable && groups.member(shard).is_some() =>
            {
                let Some(request) = self.open(requester, Work::Read(Some(shard))) else { return };
                groups.with(shard, |group| group.read(request, read));
            }
            _ => {
                let retry = Work::RetryRead(RetryRead { read, consistency });
                let Some(request) = self.open(requester, retry) else { return };
                self.read_again(request, groups);
            }
        }
    }

    /// Sends a read, or those parts of it that wait for no node. Holds the read if no node can be
    /// asked.
    pub(super) fn read_again(&mut self, request: RequestId, groups: &mut Groups) {
        let Some(open) = self.get(request) else { return };
        let (read, consistency) = match core::mem::replace(&mut open.work, Work::Read(None)) {
            Work::RetryRead(RetryRead { read, consistency }) => (read, consistency),
            Work::RemoteRead(Remote { read, consistency, asked: None, .. }) => (read, consistency),
            other => {
                open.work = other;
                return self.ask_again(request);
            }
        };
        match self.scope(&read) {
            Err(no_target) => self.finish(request, no_target.into()),
            Ok(Scope::Shard(shard)) => match (groups.member(shard), consistency) {
                (Some(group), Consistency::Stale) => {
                    let answer = group.read_stale(&read, self.slots.last_move(shard));
                    match self.settle(&read, shard, answer) {
                        Some(reply) => self.finish(request, reply),
                        None => self.retry_read(request, read, consistency),
                    }
                }
                (Some(_), Consistency::Linearizable) => {
                    if let Some(open) = self.get(request) {
                        open.work = Work::Read(Some(shard));
                    }
                    groups.with(shard, |group| group.read(request, read));
                }
                (None, _) => {
                    if let Some(open) = self.get(request) {
                        open.work = Work::RemoteRead(Remote { shard, read, consistency, asked: None });
                    }
                    self.ask_again(request);
                }
            },
            Ok(Scope::All) => self.gather(request, (read, consistency), groups),
        }
    }

    /// Holds a read that no shard can answer now.
    fn retry_read(&mut self, request: RequestId, read: Read, consistency: Consistency) {
        if let Some(open) = self.get(request) {
            open.work = Work::RetryRead(RetryRead { read, consistency });
            self.hold(request);
        }
    }

    /// The slots that a shard owned when it answered, or its founding slots if it states none.
    pub(super) fn owned(&self, shard: ShardId, stated: Option<SlotSet>) -> SlotSet {
        stated.unwrap_or_else(|| slots::founding_share(shard, self.founding))
    }

    /// What one of many shards is asked: of changes only those of its own slots, because revisions
    /// of other shards may be much lower than its own.
    fn part_for<'a>(&self, shard: ShardId, read: &'a Read) -> Cow<'a, Read> {
        match read {
            Read::Changes { scope, after: Some(after), limit, keys_only } => Cow::Owned(Read::Changes {
                scope: scope.clone(),
                after: Some(after.within(&self.slots.share(shard))),
                limit: *limit,
                keys_only: *keys_only,
            }),
            _ => Cow::Borrowed(read),
        }
    }

    /// Splits the answer of one of many shards into the slots that it covers and the reply.
    fn part(
        &self,
        shard: ShardId,
        answer: Result<ShardAnswer, ShardError>,
    ) -> (SlotSet, Result<ReadReply, ShardError>) {
        let (stated, reply) = match answer {
            Ok(ShardAnswer { owned, reply }) => (owned, Ok(reply)),
            Err(error) => (None, Err(error)),
        };
        (self.owned(shard, stated), reply)
    }

    /// Converts the answer of a single shard for the client; `None` if the read must be retried
    /// because slots moved. A step of a scan counts only if the shard owned exactly the slots that
    /// the scan's map gives it, because no other shard shows the rest. If the map here has changed
    /// since the step was sent, the new map proves nothing: a shard that gave all its slots away
    /// owns exactly its share of the new map.
    fn settle(&self, read: &Read, shard: ShardId, answer: Result<ShardAnswer, ShardError>) -> Option<Reply> {
        let ShardAnswer { owned, reply } = match answer {
            Ok(answer) => answer,
            Err(ShardError::NotHere) => return None,
            Err(ShardError::Refused(refusal)) => return Some(Reply::Refused(refusal.into())),
        };
        if let Read::Scan { version, .. } = read {
            if *version != self.slots.version && !self.faults.has(Fault::ScanByLaterMap) {
                return Some(Reply::SlotsMoved);
            }
            if self.owned(shard, owned) != self.slots.share(shard) {
                return None;
            }
        }
        Some(Reply::Read(reply))
    }

    fn gather(&mut self, request: RequestId, (read, consistency): (Read, Consistency), groups: &mut Groups) {
        let shards = self.slots.shards();
        let gather = Gather::new(&read, shards.len());
        let (local, remote): (Vec<ShardId>, Vec<ShardId>) =
            shards.into_iter().partition(|&shard| groups.member(shard).is_some());
        let remote_read = |shard| Remote {
            shard,
            read: self.part_for(shard, &read).into_owned(),
            consistency,
            asked: None,
        };
        let remote = remote.into_iter().map(remote_read).collect();
        let Some(open) = self.get(request) else { return };
        let scatter_gather = ScatterGather { read: read.clone(), consistency, gather, remote };
        open.work = Work::ScatterGather(Box::new(scatter_gather));
        for shard in local {
            if consistency == Consistency::Linearizable {
                let part = self.part_for(shard, &read).into_owned();
                groups.with(shard, |group| group.read(request, part));
            } else if let Some(group) = groups.member(shard) {
                let answer = group.read_stale(&self.part_for(shard, &read), self.slots.last_move(shard));
                self.part_done(request, shard, answer);
            }
        }
        self.ask_again(request);
    }

    /// Answers a stale read from the applied state, and counts it; `None` if a shard has no replica
    /// here, or slots are being moved.
    pub(crate) fn read_stale(&mut self, read: &Read, groups: &Groups) -> Option<Reply> {
        let scope = match self.scope(read) {
            Err(no_target) => return Some(no_target.into()),
            Ok(scope) => scope,
        };
        let reply = self.stale_reply(scope, read, groups)?;
        self.counters.reads_stale += reads_in(read);
        if let Scope::Shard(shard) = scope {
            self.load.read(shard, read);
        }
        Some(reply)
    }

    fn stale_reply(&self, scope: Scope, read: &Read, groups: &Groups) -> Option<Reply> {
        match scope {
            Scope::Shard(shard) => {
                let answer = groups.member(shard)?.read_stale(read, self.slots.last_move(shard));
                self.settle(read, shard, answer)
            }
            Scope::All => {
                let shards = self.slots.shards();
                let mut gather = Gather::new(read, shards.len());
                let mut whole = None;
                for shard in shards {
                    let part = self.part_for(shard, read);
                    let answer = groups.member(shard)?.read_stale(&part, self.slots.last_move(shard));
                    let (owned, reply) = self.part(shard, answer);
                    whole = gather.add(owned, reply);
                }
                whole?.ok().filter(|reply| !matches!(reply, Reply::Read(ReadReply::Page(page)) if page.items.is_empty() && page.next.is_some()))
            }
        }
    }

    /// The shards that a read needs, if it is valid.
    fn scope(&self, read: &Read) -> Result<Scope, NoTarget> {
        match read {
            Read::Get { key } => Ok(Scope::Shard(self.shard_of(key))),
            Read::Operations { operations, .. } => {
                self.scope_of(operations).map_err(|refusal| NoTarget::Refused(refusal.into()))
            }
            Read::Scan { version, .. } if *version != self.slots.version => Err(NoTarget::SlotsMoved),
            Read::Scan { shard, count, .. } => {
                let refuse = |why| Err(NoTarget::Refused(Refusal::invalid(why)));
                if self.slots.count(*shard) == 0 {
                    return refuse("no such shard");
                }
                let is_step = (1..=limits::SCAN_KEYS_MAX).contains(count);
                if is_step { Ok(Scope::Shard(*shard)) } else { refuse("size of a step of a scan") }
            }
            Read::Config(config) if self.version < config.needed_version() => {
                Err(NoTarget::Refused(Refusal::VersionTooLow))
            }
            Read::Config(ConfigRead { namespace, query: Query::Preview(preview) }) => {
                let valid = preview.operation.validate();
                valid.map_err(|refusal| NoTarget::Refused(refusal.into()))?;
                Ok(Scope::Shard(self.shard_of(namespace.routing_key())))
            }
            Read::Config(config) => Ok(Scope::Shard(self.shard_of(config.namespace.routing_key()))),
            Read::Changes { .. } | Read::Lease { .. } | Read::Leases { .. } | Read::Lock { .. }
                if self.version < ClusterVersion::WITH_COORDINATION =>
            {
                Err(NoTarget::Refused(Refusal::VersionTooLow))
            }
            Read::Changes { limit, .. } if !(1..=limits::LIST_PAGE_ITEMS_MAX).contains(limit) => {
                Err(NoTarget::Refused(Refusal::invalid("limit of changes")))
            }
            Read::Changes { scope, .. } => {
                Ok(scope.slot().map_or(Scope::All, |slot| Scope::Shard(self.slots.shard_of(slot))))
            }
            Read::Lease { lease } => Ok(Scope::Shard(self.shard_of(lease.tag().prefix()))),
            Read::Lock { name } => Ok(Scope::Shard(self.shard_of(name))),
            Read::List { .. } | Read::ConfigNamespaces { .. } | Read::Leases { .. } | Read::Count => {
                Ok(Scope::All)
            }
        }
    }

    fn scope_of(&self, operations: &Operations) -> Result<Scope, ShardRefusal> {
        let mut shard = None;
        for operation in operations.iter() {
            if !operation.is_read() {
                return Err(ShardRefusal::invalid("a write among reads"));
            }
            operation.validate()?;
            let belongs = self.shard_of(operation.key());
            if *shard.get_or_insert(belongs) != belongs {
                return Err(ShardRefusal::CrossShard);
            }
        }
        shard.map(Scope::Shard).ok_or(ShardRefusal::invalid("no operations"))
    }

    /// Handles the answer of a replica here to a read or a part of it.
    pub(crate) fn read_done(&mut self, done: ReadDone) {
        let ReadDone { request, shard, read, answer } = done;
        let Some(open) = self.get(request) else { return };
        match &open.work {
            Work::ScatterGather(_) => self.part_done(request, shard, answer),
            Work::PeerRead(_) => self.finish_peer_read(request, answer),
            Work::Read(_) => match self.settle(&read, shard, answer) {
                Some(reply) => self.finish(request, reply),
                None => self.retry_read(request, read, Consistency::Linearizable),
            },
            Work::ConfirmAccess => {
                let began = open.opened;
                self.open.remove(parts(request).0);
                match answer {
                    Ok(_) => self.access_confirmed(began),
                    Err(_) => self.access_unconfirmed(),
                }
            }
            // The read was sent to another node meanwhile.
            Work::Write { .. } | Work::RemoteRead(_) | Work::RetryRead(_) | Work::Flush(_) => {}
        }
    }

    /// Ends a peer's read and sends its answer.
    fn finish_peer_read(&mut self, request: RequestId, answer: Result<ShardAnswer, ShardError>) {
        let (key, _) = parts(request);
        let open = self.open.remove(key);
        self.tracing.end(open.span, tracing::end_of_answer(&answer));
        if let Work::PeerRead(served) = open.work {
            self.put_answer(&served, &answer);
        }
    }

    /// Handles the answer of a shard to its part of a read.
    fn part_done(&mut self, request: RequestId, shard: ShardId, answer: Result<ShardAnswer, ShardError>) {
        let (owned, reply) = self.part(shard, answer);
        let Some(Open { work: Work::ScatterGather(scatter_gather), .. }) = self.get(request) else { return };
        match scatter_gather.gather.add(owned, reply) {
            None => {}
            // The page is empty because all its keys are hidden. Continue, so that a client gets
            // items or the end.
            Some(Ok(Reply::Read(ReadReply::Page(Page { items, next: Some(next) })))) if items.is_empty() => {
                let (read, consistency) = (behind(&scatter_gather.read, next), scatter_gather.consistency);
                self.leader_changed = true;
                self.retry_read(request, read, consistency);
            }
            Some(Ok(reply)) => self.finish(request, reply),
            Some(Err(SlotsNotCovered)) => {
                let (read, consistency) = (scatter_gather.read.clone(), scatter_gather.consistency);
                self.retry_read(request, read, consistency);
            }
        }
    }

    /// Sends the parts of a read that wait for no node to peers. Holds the read if no peer can be
    /// asked.
    fn ask_again(&mut self, request: RequestId) {
        let (key, generation) = parts(request);
        let Some(open) = self.open.get_mut(key).filter(|open| open.generation == generation) else { return };
        let waiting: &mut [Remote] = match &mut open.work {
            Work::RemoteRead(remote) => core::slice::from_mut(remote),
            Work::ScatterGather(scatter_gather) => &mut scatter_gather.remote,
            Work::Write { .. }
            | Work::Read(_)
            | Work::RetryRead(_)
            | Work::PeerRead(_)
            | Work::Flush(_)
            | Work::ConfirmAccess => return,
        };
        let mut is_held = false;
        for remote in waiting.iter_mut().filter(|remote| remote.asked.is_none()) {
            let up = |node: &NodeId| self.peers.iter().any(|peer| peer.node == *node && peer.answers);
            remote.asked = self.routes.readers(remote.shard).find(up);
            let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.node) == remote.asked) else {
                is_held = true;
                continue;
            };
            let since = self.slots.last_move(remote.shard);
            let question = Question { request, shard: remote.shard, since };
            let sent = (peer.node, remote.shard);
            let context = self.tracing.forwarded(open.span.as_mut(), sent, self.version);
            let frame = peer.read_frame();
            self.guard.sent(&open.caller).iter().for_each(|caller| peer::put_caller(frame, caller));
            context.iter().for_each(|context| peer::put_trace(frame, *context));
            peer::put_read(frame, question, (&remote.read, remote.consistency));
            self.counters.forwarded += 1;
        }
        if is_held {
            self.hold(request);
        }
    }

    /// Handles a read of a peer, or a reply.
    pub(crate) fn read_message(
        &mut self,
        (from, RequestMetadata { caller, trace }): (NodeId, RequestMetadata),
        message: ReadMessage,
        groups: &mut Groups,
    ) {
        match message {
            ReadMessage::Metadata(_) => {}
            ReadMessage::Ask { question: Question { request, shard, since }, read, consistency } => {
                let Some(peer) = self.peers.iter().find(|peer| peer.node == from) else { return };
                let served = PeerRead { node: from, link: peer.link, request, shard };
                if let Err(error) = self.check_asked(caller.as_ref(), &read) {
                    return self.put_answer(&served, &Err(error));
                }
                match (groups.member(shard), consistency) {
                    (None, _) => self.put_answer(&served, &Err(ShardError::NotHere)),
                    (Some(group), Consistency::Stale) => {
                        let answer = group.read_stale(&read, since);
                        self.put_answer(&served, &answer);
                    }
                    (Some(_), Consistency::Linearizable) => {
                        let requester = Requester { trace, ..Requester::NODE };
                        let Some(own) = self.open(requester, Work::PeerRead(served)) else { return };
                        groups.with(shard, |group| group.read(own, read));
                    }
                }
            }
            ReadMessage::Answer { request, shard, answer } => self.answered(from, (request, shard), answer),
        }
    }

    fn answered(
        &mut self,
        from: NodeId,
        (request, shard): (RequestId, ShardId),
        answer: Result<ShardAnswer, ShardError>,
    ) {
        let Some(open) = self.get(request) else { return };
        let is_it = |remote: &Remote| remote.shard == shard && remote.asked == Some(from);
        match &mut open.work {
            Work::RemoteRead(remote) if is_it(remote) => {
                remote.asked = None;
                let read = remote.read.clone();
                match self.settle(&read, shard, answer) {
                    Some(reply) => self.finish(request, reply),
                    // Not retried at once: the registry here may be outdated for a while.
                    None => self.hold(request),
                }
            }
            Work::ScatterGather(scatter_gather) => {
                match (scatter_gather.remote.iter().position(is_it), answer) {
                    (Some(position), Err(ShardError::NotHere)) => {
                        scatter_gather.remote[position].asked = None;
                        self.hold(request);
                    }
                    (Some(position), answer) => {
                        scatter_gather.remote.swap_remove(position);
                        self.part_done(request, shard, answer);
                    }
                    (None, _) => {}
                }
            }
            _ => {}
        }
    }

    /// Handles a broken link: reads that wait for the node are sent to others.
    pub(super) fn reads_lost(&mut self, node: NodeId) {
        let mut lost = Vec::new();
        for (key, open) in &mut self.open {
            let Open { generation, work, .. } = open;
            let remotes: &mut [Remote] = match work {
                Work::RemoteRead(remote) => core::slice::from_mut(remote),
                Work::ScatterGather(scatter_gather) => &mut scatter_gather.remote,
                Work::Write { .. }
                | Work::Read(_)
                | Work::RetryRead(_)
                | Work::PeerRead(_)
                | Work::Flush(_)
                | Work::ConfirmAccess => continue,
            };
            for remote in remotes.iter_mut().filter(|remote| remote.asked == Some(node)) {
                remote.asked = None;
                lost.push(super::id(key, *generation));
            }
        }
        lost.dedup();
        self.held.extend(lost);
    }

    fn put_answer(&mut self, served: &PeerRead, answer: &Result<ShardAnswer, ShardError>) {
        let is_there =
            |peer: &&mut super::Peer| peer.node == served.node && peer.up && peer.link == served.link;
        if let Some(peer) = self.peers.iter_mut().find(is_there) {
            peer::put_read_answer(peer.read_frame(), (served.request, served.shard), answer);
        }
    }
}

impl super::Peer {
    /// The open frame of reads and replies.
    fn read_frame(&mut self) -> &mut Vec<u8> {
        if self.reads.last().is_none_or(|frame| frame.len() >= limits::PEER_FRAME_BYTES_CLOSE) {
            self.reads.push(alloc::vec![peer::KIND_READS]);
        }
        self.reads.last_mut().expect("invariant: a frame was pushed just now")
    }
}

/// The same list, continued after a key.
fn behind(read: &Read, key: Bytes) -> Read {
    let mut read = read.clone();
    if let Read::List { after, .. } | Read::ConfigNamespaces { after, .. } | Read::Leases { after, .. } =
        &mut read
    {
        *after = Some(key);
    }
    read
}

/// Number of client reads that one read counts as.
fn reads_in(read: &Read) -> u64 {
    match read {
        Read::Operations { operations, .. } => operations.len() as u64,
        Read::Get { .. } | Read::List { .. } | Read::Scan { .. } | Read::Count => 1,
        Read::Config(_) | Read::ConfigNamespaces { .. } | Read::Changes { .. } => 1,
        Read::Lease { .. } | Read::Leases { .. } | Read::Lock { .. } => 1,
    }
}
