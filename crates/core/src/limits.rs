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

/// Most data shards at a time, and of a new cluster. Each replica of one costs a log, timers and messages, also when idle.
pub const SHARDS_MAX: u64 = 512;

/// Most entries of a log in memory that are freed at a time, about a tenth of a millisecond: a shard that is driven often
/// cuts its log many times faster than it grows, and no request waits for hundreds of thousands to be freed.
pub const LOG_CUT_ENTRIES_MAX: u64 = 64;

/// The same at a tick: a shard without requests is driven by nothing else.
pub const LOG_CUT_ENTRIES_PER_TICK_MAX: u64 = 512;

/// A block of a snapshot is closed once it holds this many bytes: it is encoded in one go on the worker's thread, so
/// it bounds what a snapshot adds to the latency of writes.
pub const SNAPSHOT_BLOCK_BYTES_CLOSE: usize = 128 << 10;

/// Largest block of a snapshot: closed just before the largest record joined it.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = SNAPSHOT_BLOCK_BYTES_CLOSE + KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;

/// Keys and values of one command of a restore. Whoever splits a backup closes a command once it holds
/// [`ENTRY_BYTES_CLOSE`] bytes, as entries are.
pub const RESTORE_BYTES_MAX: usize = ENTRY_BYTES_CLOSE + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// The highest revision that a restore may lift a shard to, or a namespace: half of the numbers that are exact for
/// JavaScript. No cluster gets there by writing.
pub const RESTORE_REVISION_MAX: u64 = 1 << 52;

/// Most keys of another restore that one command discards: a few milliseconds of work.
pub const DISCARD_KEYS_MAX: usize = 4_096;

/// How far above the highest version of a backup a restored cluster goes on. The cluster that was backed up went on
/// giving out versions afterwards, and those must not come again with other values: this is more than a shard gives
/// out in a hundred days at a hundred thousand writes a second. [`RESTORE_REVISION_MAX`] has room for four thousand
/// restores.
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

/// Operations of one transaction, in bytes of its log entry: what a client can send in one piece, and a node forward.
pub const TRANSACTION_BYTES_MAX: usize = 8 << 20;

/// Keys that one transaction watches.
pub const WATCHES_MAX: usize = 1_024;

/// Values that one command reads, and values that it removes and answers with: further ones are left out, or not removed, and the
/// reply says so. With twice this much the replies of a forwarded command fit a frame.
pub const REPLIES_BYTES_CLOSE: usize = 8 << 20;

/// Keys that one entry of the log lets expire. Removing them takes about a millisecond, during which nothing else happens.
pub const EXPIRED_KEYS_MAX: usize = 1_000;

/// Such entries that a leader proposes a tick, while keys are overdue.
pub const EXPIRIES_PER_TICK_MAX: usize = 16;

/// Keys that one step of a scan looks at before it gives up finding a place at which it can rest. One in
/// [`SCAN_REST_ONE_IN`] keys is such a place.
pub const SCAN_KEYS_MAX: usize = 100_000;

/// A step of a scan ends at a key whose hash is a multiple of this. More would cost memory, fewer make steps longer.
pub const SCAN_REST_ONE_IN: u64 = 64;

/// Longest name of a shard.
pub const SHARD_NAME_BYTES_MAX: usize = 64;

/// Moves of slots that are wanted and not finished.
pub const MIGRATIONS_MAX: usize = 1_024;

/// Keys that one step of a move of slots looks at, of the giver's copy or of what is removed afterwards: about a
/// millisecond, during which nothing else happens.
pub const MOVE_KEYS_PER_STEP_MAX: usize = 8_192;

/// A part of the copy of slots is closed once it holds this many bytes of keys and values.
pub const MOVE_PART_BYTES_CLOSE: usize = 256 << 10;

/// Namespaces of configuration that one step of a move removes.
pub const MOVE_NAMESPACES_PER_STEP_MAX: usize = 16;

/// Longest name of a configuration namespace.
pub const CONFIG_NAMESPACE_CHARACTERS_MAX: usize = 32;

/// Longest key of a pair, a container or a field.
pub const CONFIG_KEY_CHARACTERS_MAX: usize = 64;

/// Longest key inside a dict.
pub const CONFIG_DICT_KEY_CHARACTERS_MAX: usize = 256;

/// Longest value of a pair, as canonical JSON: a setting, not a file.
pub const CONFIG_VALUE_BYTES_MAX: usize = 64 << 10;

/// Levels of lists and dicts inside a value; deeper ones would let a value exhaust a stack.
pub const CONFIG_VALUE_DEPTH_MAX: usize = 16;

/// Most namespaces of one shard. A snapshot takes hold of all of them in one go.
pub const CONFIG_NAMESPACES_MAX: usize = 10_000;

/// Most pairs of a namespace. The first write to a namespace while a snapshot is made copies its index.
pub const CONFIG_PAIRS_MAX: usize = 10_000;

/// Most containers of a namespace.
pub const CONFIG_CONTAINERS_MAX: usize = 1_000;

/// Most fields of a container.
pub const CONFIG_FIELDS_MAX: usize = 256;

/// Most pairs that all fields of a container refer to, each counted as often as it is referred to.
pub const CONFIG_REFERENCES_MAX: usize = 4_096;

/// Most bytes of keys in a container: it is one record of a snapshot.
pub const CONFIG_CONTAINER_BYTES_MAX: usize = 256 << 10;

/// Most bytes of pairs and containers in a namespace.
pub const CONFIG_NAMESPACE_BYTES_MAX: usize = 16 << 20;

/// Most bytes of all containers of a namespace, resolved: one change of a pair that all of them refer to makes all of
/// them anew, on the worker's thread.
pub const CONFIG_DOCUMENTS_BYTES_MAX: usize = 8 << 20;

/// Most bytes that the history of a namespace keeps; beyond it the oldest revisions go.
pub const CONFIG_HISTORY_BYTES_MAX: usize = 32 << 20;

/// Most bytes of one command of the configuration centre.
pub const CONFIG_WRITE_BYTES_MAX: usize = 8 << 20;

/// Most values in the pairs of one command, each item of a list and each entry of a dict counted: they are what applying it
/// costs, and 8 MiB of lists of digits would be four million.
pub const CONFIG_WRITE_VALUES_MAX: usize = 250_000;

/// Longest name of an author.
pub const CONFIG_AUTHOR_CHARACTERS_MAX: usize = 128;

/// Longest message of a change.
pub const CONFIG_MESSAGE_CHARACTERS_MAX: usize = 1_024;

/// Most revisions that a namespace may be told to keep.
pub const CONFIG_HISTORY_REVISIONS_MAX: u64 = 10_000;

/// Fewest revisions that a namespace may be told to keep, and that age does not take: the newest, and the one to go back to.
pub const CONFIG_HISTORY_REVISIONS_MIN: u64 = 2;

/// Revisions that a namespace keeps unless told otherwise.
pub const CONFIG_HISTORY_REVISIONS: u64 = 100;

/// How long a namespace keeps revisions unless told otherwise: 90 days.
pub const CONFIG_HISTORY_AGE_MS: u64 = 90 * 24 * 3600 * 1000;

/// Most entries on one page of pairs, containers, names or revisions.
pub const CONFIG_PAGE_ITEMS_MAX: usize = 1_000;

/// Most changes of a container in one answer to a watcher; it asks again for the rest.
pub const CONFIG_CHANGES_MAX: usize = 64;

/// How far a restored namespace's next revision lies above its last: the cluster that was backed up went on giving out
/// revisions, and they must not come again with other content.
pub const CONFIG_RESTORE_REVISION_MARGIN: u64 = 1 << 20;

/// A block of configuration on its way into a shard is at most this long: a block of a snapshot.
pub const CONFIG_BLOCK_BYTES_MAX: usize = SNAPSHOT_BLOCK_BYTES_MAX;

/// Most replicas that one command assigns: a round of placement that moves more goes on with the next one.
pub const ASSIGNMENTS_MAX: usize = 1_024;

/// Most bytes of a shard's tags, names and values.
pub const SHARD_TAGS_BYTES_MAX: usize = 4 << 10;

/// Clocks of two nodes that are further apart than this are reported: locks and keys that expire
/// then live visibly longer or shorter after a change of leader. Kept in step by NTP they are
/// within a few milliseconds.
pub const CLOCK_OFFSET_MS_MAX: i64 = 500;

/// Most slow requests that one drive describes: a log line each, at most. When a shard has no
/// leader, thousands of requests end with the same tick.
pub const SLOW_REQUESTS_MAX: usize = 16;

/// A peer that sends nothing for so many election timeouts, though its connection stands, counts as
/// unreachable. Every node sends to every peer once an election timeout.
pub const SILENT_ELECTION_TIMEOUTS: u64 = 2;
