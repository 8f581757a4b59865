//! Faults put into the core on purpose, so that the simulator can show that it would find them.
//!
//! Owns the list of them and the switch. Where each one bites is one line in the code that it breaks, which asks
//! `Faults::has`. Without the cargo feature `deliberate-faults`, which only the simulator's own tests enable, no value
//! of [`Faults`] has any fault, its size is nothing, and those lines compile to nothing.

/// Whether this build can be broken on purpose. No server is built with such a core.
pub const ENABLED: bool = cfg!(feature = "deliberate-faults");

/// A promise broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Entries and votes are vouched for when they are handed to the disk, not when it has them.
    AcknowledgedBeforeSync,
    /// A vote is not written down: after a restart another candidate of the same term gets one too.
    VoteNotPersisted,
    /// A linearizable read is served from what is applied, without asking a majority who leads.
    ReadWithoutRound,
    /// A follower applies the commands of an entry in reverse.
    AppliedOutOfOrder,
    /// A snapshot replaces the state although the replica is ahead of it.
    StaleSnapshotInstalled,
    /// A replica that remembers nothing comes back under the number that it had.
    ReplicaIdReused,
    /// Whoever waits for an index at a deposed leader is told of what a later leader put there.
    DeposedSessionAnswered,
    /// The log is read on through a frame whose checksum does not match.
    TornTailBelieved,
    /// An outcome leaves through another connection than the one through which its command came.
    OutcomeThroughLaterLink,
    /// Commands in flight that a snapshot overtook are reported as not done, and so tried again.
    OvertakenTriedAgain,
    /// A checkpoint shows what else was applied in the same turn.
    CheckpointTakenLate,
    /// A voter that needs no other's vote sends entries before its own vote is durable.
    LedBeforeDurable,
    /// That a change of membership is committed is not written down before a host is let go: after a restart those who stay
    /// may ask for its vote.
    ChangeNotRemembered,
    /// Only the leader tells those who watch configuration that it changed.
    NewsOfLeaderAlone,
    /// Only the leader lets keys go whose time has come; its followers still answer them.
    ExpiredByLeaderAlone,
    /// The receiver of slots owns them before what changed during the copy has arrived.
    OwnedBeforeLastRows,
    /// The registry removes a shard that owns slots.
    ShardRemovedWithSlots,
    /// A restore that discards another one removes what clients have written, too.
    WritesDiscarded,
    /// The receiver of slots takes parts of a copy that a later leader of the giver began anew.
    OldAttemptBelieved,
    /// A step of a scan is held against the slot map as it is when the shard answers, not against
    /// the one of the scan.
    ScanByLaterMap,
    /// That the disk is slow or hangs changes nothing: who leads goes on leading.
    SlowDiskIgnored,
    /// The same, and nothing is answered that is not on the disk of the node that leads.
    HangingDiskAwaited,
    /// A relative time to live is made absolute by the clock of the node that is asked, not by the
    /// leader's.
    TimeOfNodeAsked,
    /// A host that was put back to an earlier state of its disk takes part again.
    OldCopyBelieved,
}

/// The fault that a node has, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    #[cfg(feature = "deliberate-faults")]
    only: Option<Fault>,
}

impl Faults {
    /// All faults there are.
    #[cfg(feature = "deliberate-faults")]
    pub const ALL: [Fault; 24] = [
        Fault::AcknowledgedBeforeSync,
        Fault::VoteNotPersisted,
        Fault::ReadWithoutRound,
        Fault::AppliedOutOfOrder,
        Fault::StaleSnapshotInstalled,
        Fault::ReplicaIdReused,
        Fault::DeposedSessionAnswered,
        Fault::TornTailBelieved,
        Fault::OutcomeThroughLaterLink,
        Fault::OvertakenTriedAgain,
        Fault::CheckpointTakenLate,
        Fault::LedBeforeDurable,
        Fault::ChangeNotRemembered,
        Fault::NewsOfLeaderAlone,
        Fault::ExpiredByLeaderAlone,
        Fault::OwnedBeforeLastRows,
        Fault::ShardRemovedWithSlots,
        Fault::WritesDiscarded,
        Fault::OldAttemptBelieved,
        Fault::ScanByLaterMap,
        Fault::SlowDiskIgnored,
        Fault::HangingDiskAwaited,
        Fault::TimeOfNodeAsked,
        Fault::OldCopyBelieved,
    ];

    /// A store without faults of this list.
    pub const NONE: Faults = Faults {
        #[cfg(feature = "deliberate-faults")]
        only: None,
    };

    /// A store with this fault.
    #[cfg(feature = "deliberate-faults")]
    pub const fn only(fault: Fault) -> Faults {
        Faults { only: Some(fault) }
    }

    /// Whether the node has a fault.
    #[inline(always)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "deliberate-faults")]
        return self.only == Some(fault);
        #[cfg(not(feature = "deliberate-faults"))]
        {
            let _ = fault;
            false
        }
    }
}
