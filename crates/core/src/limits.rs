//! Every limit of the store, each with its unit last and its reason.
//!
//! Behaviour at a limit is defined where it is enforced: a request over it is refused with the limit named,
//! a queue over it refuses before any work is done. Nothing is ever truncated.

/// Longest key. Keys live in memory on every replica, and a list page carries up to [`LIST_PAGE_ITEMS_MAX`] of them.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Largest value. Bounds how long one command can hold a batch, a frame and an fsync.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Most items on one page of a list; also the default.
pub const LIST_PAGE_ITEMS_MAX: usize = 1_000;

/// A list page also ends after this many bytes of keys and values, so that a thousand 1 MiB values are not
/// one answer. At least one item is always returned.
pub const LIST_PAGE_BYTES_MAX: usize = 4 << 20;

/// A raft entry is closed to further commands once it holds this many bytes. One command may exceed it.
pub const ENTRY_BYTES_CLOSE: usize = 512 << 10;

/// Raft entries of one shard proposed and not yet applied here: one gives the best latency at small loads,
/// four the best throughput at large ones.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 4;

/// Bytes of commands that may wait in one shard before new ones are refused as overloaded.
pub const SHARD_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Requests that one node may have open at a time. Above it new ones are refused as overloaded.
pub const REQUESTS_OPEN_MAX: usize = 200_000;

/// Bytes of forwarded commands that may be unanswered towards one peer before new ones are refused as overloaded.
pub const FORWARD_BYTES_MAX: usize = 32 << 20;

/// Bytes of entries in one append message to a follower.
pub const APPEND_BYTES_MAX: u64 = 512 << 10;

/// Append messages of one shard in flight to one follower: more than the entries that a leader has in flight, so that
/// they never wait, and so few that a follower far behind is served without filling queues: 8 MiB.
pub const APPENDS_IN_FLIGHT_MAX: usize = 16;

/// A frame of raft messages is closed to further ones once it holds this many bytes. One message may exceed it.
pub const PEER_FRAME_BYTES_CLOSE: usize = 4 << 20;

/// Largest payload of a frame between peers; a longer length is a protocol error and ends the connection.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;

/// Largest batch of records that one checksummed frame of the write-ahead log may hold.
pub const WAL_FRAME_BYTES_MAX: usize = 16 << 20;

/// Size of a write-ahead log segment. A frame never straddles two segments, so it exceeds [`WAL_FRAME_BYTES_MAX`].
pub const WAL_SEGMENT_BYTES: u64 = 64 << 20;

/// Most shards a cluster may be founded with.
pub const SHARDS_MAX: u64 = 512;

/// What an entry of the log weighs besides its data, on disk and in memory, roughly.
pub const LOG_ENTRY_OVERHEAD_BYTES: u64 = 32;

/// A block of a snapshot is closed once it holds this many bytes: it is encoded in one go on the worker's thread, so
/// it bounds what a snapshot adds to the latency of writes.
pub const SNAPSHOT_BLOCK_BYTES_CLOSE: usize = 128 << 10;

/// Largest block of a snapshot: closed just before the largest record joined it.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = SNAPSHOT_BLOCK_BYTES_CLOSE + KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;

/// Keys and values of one command of a restore. Whoever splits a backup closes a command once it holds
/// [`ENTRY_BYTES_CLOSE`] bytes, as entries are.
pub const RESTORE_BYTES_MAX: usize = ENTRY_BYTES_CLOSE + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// The highest revision that a restore may lift a shard to: what is left above it lasts for ever.
pub const RESTORE_REVISION_MAX: u64 = 1 << 62;

/// How far above the highest version of a backup a restored cluster goes on. The cluster that was backed up went on
/// giving out versions afterwards, and those must not come again with other values: this is more than a shard gives
/// out in a hundred days at a hundred thousand writes a second. 2^53, up to where numbers are exact for JavaScript,
/// has room for eight thousand restores.
pub const RESTORE_REVISION_MARGIN: u64 = 1 << 40;

/// Bytes of a snapshot's file in one message to a follower.
pub const SNAPSHOT_PART_BYTES_MAX: usize = 256 << 10;

/// Most hosts of a cluster at a time.
pub const HOSTS_MAX: usize = 64;

/// Most bytes of addresses and tags that a host announces.
pub const HOST_INFO_BYTES_MAX: usize = 16 << 10;

/// A follower's log is as good as the leader's, when it is to vote, with at most so many entries missing: what arrives
/// while the decision is made.
pub const CAUGHT_UP_ENTRIES_MAX: u64 = 64;

/// Most replicas that one command assigns: a round of placement that moves more goes on with the next one.
pub const ASSIGNMENTS_MAX: usize = 1_024;

/// Most bytes of a shard's tags, names and values.
pub const SHARD_TAGS_BYTES_MAX: usize = 4 << 10;
