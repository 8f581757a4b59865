//! Deliberate faults in the core, with which the simulator proves that it would find such bugs.
//!
//! Owns the list of faults and the switch. Each fault takes effect in one line of the code that it
//! breaks, which asks `Faults::has`. Builds with debug assertions can have one, so that all tests
//! share one build; only tests of the simulator set one. In a release [`Faults`] is a zero-sized
//! type without faults, and those lines compile to nothing.

/// A guarantee broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Entries and votes are acknowledged when they are handed to the disk, not when they are
    /// durable.
    AcknowledgedBeforeSync,
    /// A vote is not persisted. After a restart another candidate of the same term gets one too.
    VoteNotPersisted,
    /// A linearizable read is answered from the applied state, without a ReadIndex round.
    ReadWithoutRound,
    /// A follower applies the commands of an entry in reverse order.
    AppliedOutOfOrder,
    /// A snapshot replaces the state although the replica has applied more.
    StaleSnapshotInstalled,
    /// A replica that lost its disk comes back under its old number.
    ReplicaIdReused,
    /// A deposed leader answers a client with the outcome of the entry that a later leader put at
    /// the same index.
    DeposedSessionAnswered,
    /// Recovery reads the log past a frame whose checksum does not match.
    TornTailAccepted,
    /// An outcome is sent through another connection than the one through which its command came.
    OutcomeThroughLaterLink,
    /// Commands in flight that a snapshot overtook are reported as not done, and so are retried.
    OvertakenCommandRetried,
    /// A checkpoint contains entries that were applied after it in the same turn.
    CheckpointTakenLate,
    /// A leader elected by its own vote alone sends entries before that vote is durable.
    LedBeforeDurable,
    /// A committed membership change is not persisted before the removed host goes. After a restart
    /// the remaining replicas may ask for its vote.
    MembershipNotPersisted,
    /// Only the leader notifies clients that watch configuration.
    OnlyLeaderNotifies,
    /// Only the leader removes expired keys; its followers still return them.
    OnlyLeaderExpires,
    /// The receiver of slots owns them before the keys that changed during the copy have arrived.
    OwnedBeforeLastRows,
    /// The registry removes a shard that owns slots.
    ShardRemovedWithSlots,
    /// A restore that discards another one also removes what clients have written.
    WritesDiscarded,
    /// A replica does not notice that a watcher's revisions are older than the changes that it
    /// keeps.
    WatchGapIgnored,
    /// A flush is complete although slots moved past it.
    FlushSkipsMovedSlots,
    /// A flush does not reach the changes that watchers are answered from.
    FlushNotReported,
    /// The receiver of slots answers watchers as if it had always owned them.
    WatchMissesMovedSlots,
    /// The receiver of slots accepts parts of a copy that a later leader of the giver has
    /// restarted.
    OldAttemptAccepted,
    /// A step of a scan is checked against the slot map at the time of the answer, instead of the
    /// scan's map.
    ScanByLaterMap,
    /// A leader keeps leading although its disk is slow or hangs.
    SlowDiskIgnored,
    /// As `SlowDiskIgnored`, and the leader answers nothing that is not durable on its own disk.
    HangingDiskAwaited,
    /// A relative time to live is made absolute by the clock of the node that received the request,
    /// instead of the leader's.
    ReceiverClockUsed,
    /// A host whose disk was restored to an earlier state takes part again.
    OldCopyAccepted,
    /// A founder with an empty directory keeps running after a peer whose registry has another uuid
    /// for its number has refused it.
    EmptyFounderContinues,
    /// A founder with an empty directory takes part in elections at once, before its peers could
    /// refuse it.
    EmptyFounderVotes,
    /// The removal of a host is cancelled although its replica of the prime shard is being removed.
    RemovalCancelledTooLate,
    /// Log batches are reported durable as soon as they are written, before any sync.
    DurableBeforeSync,
    /// Log batches that a full or read-only disk refused are reported as durable, and dropped.
    RefusedBatchesDurable,
    /// A replica answers stale reads although it has not applied the last move of its slots.
    ReadBeforeMove,
    /// A shard answers reads of operations on keys of slots that it has given to another shard.
    GivenSlotsRead,
    /// A watcher's cursor moves to the revision of the state, although one answer holds only some
    /// of the changes.
    ChangesSkipped,
    /// A watcher that reconnects is answered from the node's own replica, as if that were never
    /// behind.
    CaughtUpByStaleRead,
    /// A connection's reply whose result is known goes before an earlier one that is awaited.
    ReplyOvertakes,
    /// After slots moved, a connection sends operations by the new map before the earlier ones are
    /// answered.
    MovedOperationOvertakes,
    /// The halves of a command whose keys are of several shards go in the wrong order.
    HalvesReordered,
    /// A backup is made although slots moved between its snapshots.
    BackupOfTwoSlotMaps,
    /// The moves of slots after the snapshots were opened are compared only for the shards of the
    /// node that makes the backup.
    BackupIgnoresMovesElsewhere,
    /// A stale backup is made although its sources have applied different moves of slots.
    StaleBackupOfTwoSlotMaps,
    /// An import is published without the condition that the namespace is unchanged.
    ImportWithoutCondition,
    /// What a preview of a change of configuration would do is also done.
    PreviewCommitted,
    /// The schema of a container is not checked when only a pair changes.
    ContainerSchemaIgnored,
    /// A change of a namespace does not reach those that inherit from its children.
    GrandchildForgotten,
    /// A draft of a protected namespace is published without an approval.
    UnapprovedDraftPublished,
    /// Readers with any label see a canary.
    CanaryShownToAll,
    /// Readers that saw a canary are not told that it was withdrawn.
    WithdrawalNotReported,
    /// Shards that were added after the founding do not inherit the cluster's default placement.
    DefaultIgnoredByNewShards,
    /// A new command is written before the version of the cluster has risen.
    NewCommandBeforeRaise,
    /// A node that dials a peer accepts the host that answers, whichever it is.
    UnexpectedNodeAccepted,
    /// A node keeps to the registered address of a peer, although the peer or another host has told
    /// it better.
    StaleAddressKept,
    /// The leader adds a data shard although clients send transactions that span slots.
    SpanningTransactionsIgnored,
    /// A forwarded request loses its caller, and is served as one of the node itself.
    CallerLostInForward,
    /// A forwarded change is applied without an audit record.
    AuditRecordLost,
    /// The name that the client of a principal states is not logged.
    ClaimedAuthorDropped,
    /// Only the first demand of a request is checked: not the later operations of a burst or of a
    /// transaction.
    OnlyFirstDemandChecked,
    /// A join token that one host has used admits a second host.
    JoinTokenReused,
    /// A request is traced because one before it in the same frame is.
    TraceOfEarlierRequest,
    /// The span of a peer's write does not end if this node never learns the write's fate.
    SpanNotEnded,
    /// Leaderships are balanced by their number alone, not by the requests for their shards.
    LeadershipsByNumber,
    /// Hot slots stay in the busiest shard.
    HotSlotsNotMoved,
    /// Votes are balanced by their number alone, not by the requests for their shards.
    VotesByNumber,
    /// A comparison of a transaction with a value holds whatever the key holds.
    UnequalValuesMatch,
    /// A snapshot does not contain the outcomes of transactions with an id.
    OutcomesNotInSnapshot,
    /// Operations are executed although an earlier one of their command skips them.
    SkippedOperationExecuted,
    /// A renewal of a lease is answered, but does not change when the lease ends.
    RenewalNotApplied,
    /// A leader ends leases although they have not lasted since it began to lead.
    LeaseFloorIgnored,
    /// A leader whose clock was set forward ends the leases that end by that time.
    ClockStepIgnored,
    /// A leader does not shorten leases that a clock ahead of its own has made too long.
    LeaseNotShortened,
    /// The next holder of a lock gets the fence of the one before.
    FenceUsedTwice,
    /// Leases and locks are not copied when their slots move.
    LeasesLeftBehind,
    /// A key that makes room in the table of tracked keys is not invalidated.
    EvictedKeyNotInvalidated,
    /// The clients that cache keys are not told that any key may have changed.
    TrackingGapIgnored,
    /// The effect of a script is written without the condition that its keys are unchanged.
    ScriptWithoutCondition,
    /// A publication is sent to one peer only.
    PublicationToOnePeer,
    /// A publication is sent to each peer twice.
    PublicationSentTwice,
    /// A stale read of changes does not begin the reports of changed keys.
    StaleReadNotReported,
    /// A request that waited for a lock ends without taking its lease out of the queue.
    CancelledLeaseQueued,
    /// A voter leaves although a live replica that should vote has yet to catch up.
    VoterLeavesEarly,
    /// A watcher of a namespace that reconnects between two events of a revision is not sent the
    /// rest of them.
    RestOfRevisionSkipped,
}

/// The fault of a node, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    #[cfg(debug_assertions)]
    only: Option<Fault>,
}

impl Faults {
    /// Every fault, for tests that try each of them.
    #[cfg(debug_assertions)]
    pub const ALL: [Fault; 83] = [
        Fault::AcknowledgedBeforeSync,
        Fault::VoteNotPersisted,
        Fault::ReadWithoutRound,
        Fault::AppliedOutOfOrder,
        Fault::StaleSnapshotInstalled,
        Fault::ReplicaIdReused,
        Fault::DeposedSessionAnswered,
        Fault::TornTailAccepted,
        Fault::OutcomeThroughLaterLink,
        Fault::OvertakenCommandRetried,
        Fault::CheckpointTakenLate,
        Fault::LedBeforeDurable,
        Fault::MembershipNotPersisted,
        Fault::OnlyLeaderNotifies,
        Fault::OnlyLeaderExpires,
        Fault::OwnedBeforeLastRows,
        Fault::ShardRemovedWithSlots,
        Fault::WritesDiscarded,
        Fault::WatchGapIgnored,
        Fault::FlushSkipsMovedSlots,
        Fault::FlushNotReported,
        Fault::WatchMissesMovedSlots,
        Fault::OldAttemptAccepted,
        Fault::ScanByLaterMap,
        Fault::SlowDiskIgnored,
        Fault::HangingDiskAwaited,
        Fault::ReceiverClockUsed,
        Fault::OldCopyAccepted,
        Fault::EmptyFounderContinues,
        Fault::EmptyFounderVotes,
        Fault::RemovalCancelledTooLate,
        Fault::DurableBeforeSync,
        Fault::RefusedBatchesDurable,
        Fault::ReadBeforeMove,
        Fault::GivenSlotsRead,
        Fault::ChangesSkipped,
        Fault::CaughtUpByStaleRead,
        Fault::ReplyOvertakes,
        Fault::MovedOperationOvertakes,
        Fault::HalvesReordered,
        Fault::BackupOfTwoSlotMaps,
        Fault::BackupIgnoresMovesElsewhere,
        Fault::StaleBackupOfTwoSlotMaps,
        Fault::ImportWithoutCondition,
        Fault::PreviewCommitted,
        Fault::ContainerSchemaIgnored,
        Fault::GrandchildForgotten,
        Fault::UnapprovedDraftPublished,
        Fault::CanaryShownToAll,
        Fault::WithdrawalNotReported,
        Fault::DefaultIgnoredByNewShards,
        Fault::NewCommandBeforeRaise,
        Fault::UnexpectedNodeAccepted,
        Fault::StaleAddressKept,
        Fault::SpanningTransactionsIgnored,
        Fault::CallerLostInForward,
        Fault::OnlyFirstDemandChecked,
        Fault::JoinTokenReused,
        Fault::TraceOfEarlierRequest,
        Fault::SpanNotEnded,
        Fault::LeadershipsByNumber,
        Fault::HotSlotsNotMoved,
        Fault::VotesByNumber,
        Fault::AuditRecordLost,
        Fault::ClaimedAuthorDropped,
        Fault::UnequalValuesMatch,
        Fault::OutcomesNotInSnapshot,
        Fault::SkippedOperationExecuted,
        Fault::RenewalNotApplied,
        Fault::LeaseFloorIgnored,
        Fault::ClockStepIgnored,
        Fault::LeaseNotShortened,
        Fault::FenceUsedTwice,
        Fault::LeasesLeftBehind,
        Fault::EvictedKeyNotInvalidated,
        Fault::TrackingGapIgnored,
        Fault::ScriptWithoutCondition,
        Fault::PublicationToOnePeer,
        Fault::PublicationSentTwice,
        Fault::StaleReadNotReported,
        Fault::CancelledLeaseQueued,
        Fault::VoterLeavesEarly,
        Fault::RestOfRevisionSkipped,
    ];

    /// No fault.
    pub const NONE: Faults = Faults {
        #[cfg(debug_assertions)]
        only: None,
    };

    /// Exactly this fault.
    #[cfg(debug_assertions)]
    pub const fn only(fault: Fault) -> Faults {
        Faults { only: Some(fault) }
    }

    /// Whether the node has the fault.
    #[inline(always)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        #[cfg(debug_assertions)]
        return self.only == Some(fault);
        #[cfg(not(debug_assertions))]
        {
            let _ = fault;
            false
        }
    }
}
