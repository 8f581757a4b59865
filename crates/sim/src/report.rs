//! Statistics of a run.

use crate::density::Density;
use crate::event_queue::Micros;

/// The report of a run without violation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hash of everything that happened.
    pub hash: u64,
    /// Number of events that were handled.
    pub events: u64,
    /// Simulated time from the start to the end of the run.
    pub simulated: Micros,
    /// Counts of requests, faults and other events.
    pub tally: Tally,
    /// Which faults met which stages of the protocols.
    pub density: Density,
}

/// Counts of what happened, so that a run that tests nothing is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that clients sent.
    pub requests: u64,
    /// Of these, writes that were acknowledged.
    pub acknowledged: u64,
    /// Of these, requests that were answered with a refusal of any kind.
    pub refused: u64,
    /// Of these, requests whose process died before it answered.
    pub lost: u64,
    /// Processes that died or stopped.
    pub crashes: u64,
    /// Of these, processes that stopped because the disk failed.
    pub disk_stops: u64,
    /// Hosts that joined after the founding.
    pub joined: u64,
    /// Shards whose placement was judged.
    pub placed: u64,
    /// Hosts that learned that they were removed.
    pub removed: u64,
    /// Hosts that moved to another address.
    pub relocations: u64,
    /// Processes on old copies of their disks, or on empty disks, that their peers refused.
    pub disks_refused: u64,
    /// Hosts that were restarted with another release.
    pub releases_changed: u64,
    /// Releases that did not start on their directories, or that peers refused.
    pub releases_refused: u64,
    /// Times that the version of a cluster rose.
    pub versions_raised: u64,
    /// Data shards that the leader decided to add.
    pub divisions: u64,
    /// Moves of hot slots that the leader planned.
    pub slot_moves: u64,
    /// Replicas that replaced another one of the same shard on the same node.
    pub replaced: u64,
    /// Iterations over all keys that reached their end.
    pub iterations: u64,
    /// Events that clients received which watch configuration.
    pub watched: u64,
    /// Events that clients received that watch keys.
    pub keys_watched: u64,
    /// Values that clients have cached.
    pub values_cached: u64,
    /// Cached values that were invalidated.
    pub values_invalidated: u64,
    /// Leases and locks that clients were told to have, each time that they were told.
    pub leases_kept: u64,
    /// Locks that clients got which had waited, or asked to wait.
    pub locks_awaited: u64,
    /// Messages that clients published.
    pub published: u64,
    /// Messages that arrived at nodes.
    pub publications_received: u64,
    /// Scripts that took effect.
    pub scripts: u64,
    /// Connections of watchers of configuration that continued after the last revision that they
    /// had received.
    pub watches_resumed: u64,
    /// Queries of such connections that were refused. For most of them no leader could be asked.
    pub watch_reads_refused: u64,
    /// Connections that reported that the namespace does not exist.
    pub deletions_watched: u64,
    /// Changes of roles, principals and tokens that were acknowledged.
    pub permission_changes: u64,
    /// Requests of principals that were served.
    pub permitted: u64,
    /// Requests of principals that were refused for want of a permission.
    pub forbidden: u64,
    /// Replies on connections that pipeline.
    pub pipelined: u64,
    /// Imports of configuration that were answered with success.
    pub imports: u64,
    /// Backups that were taken and restored.
    pub backups: u64,
    /// Those of them whose snapshots come from several nodes.
    pub backups_gathered: u64,
    /// Those of them that were stale.
    pub stale_backups: u64,
    /// Checkpoints of a replica that were compared with another's at the same index.
    pub checkpoints: u64,
    /// Stalls: times that a disk took no writes and its process waited.
    pub disk_stalls: u64,
    /// Times that a process detected a slow disk.
    pub slow_disks: u64,
    /// Ticks at which the cluster had to serve although a disk was slow.
    pub served_on_slow_disks: u64,
    /// Snapshots that replicas made of themselves.
    pub snapshots_made: u64,
    /// Snapshots that followers received whole.
    pub snapshots_received: u64,
    /// Leaderships, over all shards and terms.
    pub leaderships: u64,
    /// Changes of a membership that took a vote while all links were up and all hosts ran.
    pub replacements: u64,
    /// Frames that arrived at a node.
    pub frames: u64,
    /// Sectors that power losses reverted.
    pub sectors_lost: u64,
}

impl Tally {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.lost += other.lost;
        self.crashes += other.crashes;
        self.joined += other.joined;
        self.placed += other.placed;
        self.removed += other.removed;
        self.relocations += other.relocations;
        self.disks_refused += other.disks_refused;
        self.releases_changed += other.releases_changed;
        self.releases_refused += other.releases_refused;
        self.versions_raised += other.versions_raised;
        self.divisions += other.divisions;
        self.slot_moves += other.slot_moves;
        self.replaced += other.replaced;
        self.iterations += other.iterations;
        self.watched += other.watched;
        self.keys_watched += other.keys_watched;
        self.values_cached += other.values_cached;
        self.values_invalidated += other.values_invalidated;
        self.leases_kept += other.leases_kept;
        self.locks_awaited += other.locks_awaited;
        self.published += other.published;
        self.publications_received += other.publications_received;
        self.scripts += other.scripts;
        self.watches_resumed += other.watches_resumed;
        self.watch_reads_refused += other.watch_reads_refused;
        self.deletions_watched += other.deletions_watched;
        self.permission_changes += other.permission_changes;
        self.permitted += other.permitted;
        self.forbidden += other.forbidden;
        self.pipelined += other.pipelined;
        self.imports += other.imports;
        self.backups += other.backups;
        self.backups_gathered += other.backups_gathered;
        self.stale_backups += other.stale_backups;
        self.checkpoints += other.checkpoints;
        self.snapshots_made += other.snapshots_made;
        self.snapshots_received += other.snapshots_received;
        self.disk_stops += other.disk_stops;
        self.disk_stalls += other.disk_stalls;
        self.slow_disks += other.slow_disks;
        self.served_on_slow_disks += other.served_on_slow_disks;
        self.leaderships += other.leaderships;
        self.replacements += other.replacements;
        self.frames += other.frames;
        self.sectors_lost += other.sectors_lost;
    }
}
