//! Every limit of the store, each with its unit at the end of the name and its reason.
//!
//! The code that enforces a limit defines what happens there: a request over a limit is refused
//! with the limit named, and a full queue refuses before any work is done. Nothing is ever
//! truncated.

/// Longest key. Keys live in memory on every replica, and a list page carries up to
/// [`LIST_PAGE_ITEMS_MAX`] of them.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Largest value. It bounds how long one command can occupy a batch, a frame and an fsync.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of items on one page of a list; also the default.
pub const LIST_PAGE_ITEMS_MAX: usize = 1_000;

/// A list page also ends after this many bytes of keys and values, so that a thousand 1 MiB values
/// do not form one answer. A page has at least one item.
pub const LIST_PAGE_BYTES_MAX: usize = 4 << 20;

/// A Raft entry takes no further commands once it holds this many bytes. A single command may
/// exceed it.
pub const ENTRY_BYTES_CLOSE: usize = 512 << 10;

/// Raft entries of one shard that are proposed and not yet applied here. One gives the best latency
/// at small loads, four the best throughput at large loads.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 4;

/// Bytes of commands that may wait in one shard. Beyond it, commands are refused as overloaded.
pub const SHARD_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Requests that one node may have open at a time. Beyond it, requests are refused as overloaded.
pub const REQUESTS_OPEN_MAX: usize = 200_000;

/// Bytes of unanswered commands that may be forwarded to one peer. Beyond it, commands are refused
/// as overloaded.
pub const FORWARD_BYTES_MAX: usize = 32 << 20;

/// Bytes of entries in one append message to a follower.
pub const APPEND_BYTES_MAX: u64 = 512 << 10;

/// Append messages of one shard in flight to one follower. It exceeds the entries that a leader has
/// in flight, so that those never wait. It is small enough, at 8 MiB, that a follower far behind
/// does not fill queues.
pub const APPENDS_IN_FLIGHT_MAX: usize = 16;

/// A frame takes no further Raft messages once it holds this many bytes. A single message may
/// exceed it.
pub const PEER_FRAME_BYTES_CLOSE: usize = 4 << 20;

/// Largest payload of a frame between peers. A longer one is a protocol error and ends the
/// connection.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;

/// Largest batch of records that one checksummed frame of the write-ahead log may hold.
pub const WAL_FRAME_BYTES_MAX: usize = 16 << 20;

/// Size of a write-ahead log segment. A frame never straddles two segments, so it exceeds
/// [`WAL_FRAME_BYTES_MAX`].
pub const WAL_SEGMENT_BYTES: u64 = 64 << 20;

/// Maximum number of data shards, also of a new cluster. Each replica costs a log, timers and
/// messages, even when idle.
pub const SHARDS_MAX: u64 = 512;

/// Log entries in memory that are freed at a time, which takes about a tenth of a millisecond. A
/// busy shard frees its log many times faster than it grows, and no request waits for hundreds of
/// thousands of entries to be freed.
pub const LOG_CUT_ENTRIES_MAX: u64 = 64;

/// Log entries in memory that are freed at a tick, for a shard without requests.
pub const LOG_CUT_ENTRIES_PER_TICK_MAX: u64 = 512;

/// Keys that a shard which takes part in a move of slots inspects in one step of a flush: a few
/// milliseconds of work.
pub const FLUSH_KEYS_INSPECTED_MAX: usize = 4_096;

/// Flushed keys whose memory a shard frees whenever it has done some work. Together with
/// [`FLUSHED_KEYS_FREED_PER_TICK_MAX`] it is more than clients create in that time, so memory does
/// not grow if clients fill and flush a cluster again and again.
pub const FLUSHED_KEYS_FREED_MAX: usize = 1_024;

/// Flushed keys whose memory a shard frees at a tick: about a millisecond of work.
pub const FLUSHED_KEYS_FREED_PER_TICK_MAX: usize = 8_192;

/// Tables of flushed keys that a shard holds until they are freed. Beyond it, the smallest one is
/// freed at once.
pub const FLUSHED_TABLES_MAX: usize = 16;

/// A block of a snapshot is closed once it holds this many bytes. A block is encoded at once on the
/// worker's thread, so this bounds what a snapshot adds to the latency of writes.
pub const SNAPSHOT_BLOCK_BYTES_CLOSE: usize = 128 << 10;

/// Largest block of a snapshot: the largest record added to a block that was almost closed.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = SNAPSHOT_BLOCK_BYTES_CLOSE + KEY_BYTES_MAX + VALUE_BYTES_MAX + 64;

/// Bytes of keys and values in one command of a restore. A restore closes a command once it holds
/// [`ENTRY_BYTES_CLOSE`] bytes, as entries are closed.
pub const RESTORE_BYTES_MAX: usize = ENTRY_BYTES_CLOSE + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// The highest revision to which a restore may raise a shard or a namespace: half of the integers
/// that JavaScript represents exactly. No cluster reaches it by writing.
pub const RESTORE_REVISION_MAX: u64 = 1 << 52;

/// Keys of another restore that one command discards: a few milliseconds of work.
pub const DISCARD_KEYS_MAX: usize = 4_096;

/// How far above the highest version of a backup a restored cluster continues. The original cluster
/// went on assigning versions after the backup, and those must not come again with other values.
/// This is more than a shard assigns in a hundred days at a hundred thousand writes a second.
/// [`RESTORE_REVISION_MAX`] has room for four thousand restores.
pub const RESTORE_REVISION_MARGIN: u64 = 1 << 40;

/// Bytes of a snapshot's file in one message to a follower.
pub const SNAPSHOT_PART_BYTES_MAX: usize = 256 << 10;

/// Maximum number of hosts in a cluster.
pub const HOSTS_MAX: usize = 64;

/// Bytes of the addresses and tags that a host announces.
pub const HOST_INFO_BYTES_MAX: usize = 16 << 10;

/// A learner may become a voter once it lacks at most this many entries of the leader's log: those
/// that arrive during the decision.
pub const CAUGHT_UP_ENTRIES_MAX: u64 = 64;

/// Bytes of the operations of one transaction in its log entry: what a client can send at once, and
/// what a node can forward.
pub const TRANSACTION_BYTES_MAX: usize = 8 << 20;

/// Keys that one transaction watches.
pub const WATCHES_MAX: usize = 1_024;

/// How often a script runs because its keys were changed meanwhile. Scripts of one worker on the
/// same keys wait for each other after the first conflict, so each run competes with at most one
/// script of every other worker, and with other writes. A node far from the leader loses most of
/// them: with one run in twenty that succeeds, 32 runs would all fail for one script in five, 256
/// for one in 500,000.
pub const SCRIPT_RUNS_MAX: usize = 256;

/// Longest script. Those of libraries have a few KiB.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// Instructions of Lua that one run of a script may execute. They take about a tenth of a second.
pub const SCRIPT_INSTRUCTIONS_MAX: u64 = 10_000_000;

/// Processor time that one run of a script may take, in milliseconds. All other scripts of the
/// node wait meanwhile.
pub const SCRIPT_TIME_MS_MAX: u64 = 1_000;

/// Memory of one run of a script, with its garbage: enough for all values that it may read, and for
/// a few copies.
pub const SCRIPT_MEMORY_BYTES_MAX: usize = 64 << 20;

/// Bytes that the values of a script's keys may have, with what it has written. It may read as much
/// as one reply holds, and write as much as one transaction holds.
pub const SCRIPT_VALUES_BYTES_MAX: usize = REPLIES_BYTES_CLOSE + TRANSACTION_BYTES_MAX;

/// Bytes of the arguments of one command of a script, of its reply, and of JSON that it encodes.
pub const SCRIPT_TEXT_BYTES_MAX: usize = 8 << 20;

/// Lines that one run of a script may log. Further ones are dropped.
pub const SCRIPT_LOG_LINES_MAX: u32 = 16;

/// Scripts that may wait for the thread that runs them. Further ones are refused as overloaded.
/// Most take far less than a millisecond, so the last one waits for less than a second.
pub const SCRIPTS_WAITING_MAX: usize = 1_024;

/// Scripts that a node remembers by their digests. The one used least recently leaves.
pub const SCRIPTS_CACHED_MAX: usize = 1_000;

/// Bytes of the scripts that a node remembers. It exceeds [`SCRIPT_BYTES_MAX`].
pub const SCRIPTS_CACHED_BYTES_MAX: usize = 8 << 20;

/// Comparisons of one transaction with two branches, and operations of each branch. Applying so
/// many takes about a millisecond.
pub const BRANCH_OPERATIONS_MAX: usize = 1_024;

/// Longest id of a transaction.
pub const TRANSACTION_ID_BYTES_MAX: usize = 64;

/// Bytes of the values that a transaction with an id reads. Further values are left out of its
/// outcome.
pub const OUTCOME_VALUES_BYTES_MAX: usize = 16 << 10;

/// Outcomes of transactions with an id that a shard keeps.
pub const OUTCOMES_MAX: usize = 8_192;

/// Bytes of the outcomes that a shard keeps. The first block of a snapshot, and the last step of a
/// move of slots, contain them.
pub const OUTCOMES_BYTES_MAX: usize = 512 << 10;

/// How long an outcome is kept, in milliseconds: a day.
pub const OUTCOME_KEPT_MS: u64 = 24 * 3_600 * 1_000;

/// Shortest time to live of a lease. A change of the leader takes about as long, during which
/// nobody renews.
pub const LEASE_TTL_MS_MIN: u64 = 1_000;

/// Longest time to live of a lease: a day.
pub const LEASE_TTL_MS_MAX: u64 = 24 * 3_600 * 1_000;

/// After a change of the leader, every lease lasts for its time to live again, but not longer than
/// this. So holders have the time to renew, and leases of dead holders still end soon.
pub const LEASE_FLOOR_MS: u64 = 10_000;

/// If a leader's wall clock advances by this much more than its ticks, the clock was stepped or the
/// process was paused. No lease ends then before the node has led for its time to live again.
///
/// If the last grant or renewal of a lease is this far in the future by the clock of a new leader,
/// the clock of the former leader was ahead, and the lease is shortened.
pub const CLOCK_STEP_MS: u64 = 1_000;

/// Longest tag in the id of a lease.
pub const LEASE_TAG_BYTES_MAX: usize = 256;

/// Leases of one shard. Each takes about 200 bytes on every replica.
pub const LEASES_MAX: usize = 50_000;

/// Bytes of the leases of one shard and of the waiters of its locks. A snapshot encodes all of them
/// at its beginning, which takes a few milliseconds.
pub const LEASES_BYTES_MAX: usize = 8 << 20;

/// Leases that one command renews. Applying so many takes about a millisecond.
pub const LEASES_RENEWED_MAX: usize = 4_096;

/// Keys that are bound to one lease, together with the locks that it holds or awaits. All of them
/// are removed at once when the lease ends.
pub const LEASE_KEYS_MAX: usize = 1_000;

/// Largest value of a lock. The values of waiters are a part of the state.
pub const LOCK_VALUE_BYTES_MAX: usize = 4 << 10;

/// Leases that wait for one lock.
pub const LOCK_WAITERS_MAX: usize = 1_000;

/// Bytes of the values that one command reads, and of those that it removes and returns. Further
/// values are left out, or not removed, and the reply says so. Twice this much fits a frame, as the
/// replies of a forwarded command must.
pub const REPLIES_BYTES_CLOSE: usize = 8 << 20;

/// Keys that one log entry expires. Removing them takes about a millisecond, during which nothing
/// else happens.
pub const EXPIRED_KEYS_MAX: usize = 1_000;

/// Entries with expired keys that a leader proposes at one tick.
pub const EXPIRIES_PER_TICK_MAX: usize = 16;

/// Keys that one step of a scan inspects before it gives up finding a cursor position. One in
/// [`SCAN_CURSOR_ONE_IN`] keys is a cursor position.
pub const SCAN_KEYS_MAX: usize = 100_000;

/// A step of a scan ends at a key whose hash is a multiple of this. A smaller number would cost
/// memory, a larger one would make steps longer.
pub const SCAN_CURSOR_ONE_IN: u64 = 64;

/// Bytes of the latest changes of keys that a replica keeps for watchers: the keys, and six bytes
/// for each change.
pub const CHANGES_KEPT_BYTES: usize = 16 << 20;

/// Number of changes that one read of changes looks at, of any keys. It bounds how long other
/// requests wait.
pub const CHANGES_READ_MAX: usize = 20_000;

/// Number of keys of one read of a watcher of keys, and of one message to its client.
pub const WATCH_ITEMS_MAX: usize = 256;

/// Bytes of the keys and values of one poll of changes. If there are more, the client reads the
/// keys.
pub const POLL_BYTES_MAX: usize = 1 << 20;

/// A read of changes ends with the change that reaches this many bytes of keys and values.
pub const CHANGES_BYTES_CLOSE: usize = 256 << 10;

/// Longest name of a shard.
pub const SHARD_NAME_BYTES_MAX: usize = 64;

/// Planned and unfinished moves of slots.
pub const MIGRATIONS_MAX: usize = 1_024;

/// Keys that one step of a move of slots inspects, for the copy or for the removal afterwards. It
/// takes about a millisecond, during which nothing else happens.
pub const MOVE_KEYS_PER_STEP_MAX: usize = 8_192;

/// A part of a slot copy is closed once it holds this many bytes of keys and values.
pub const MOVE_PART_BYTES_CLOSE: usize = 256 << 10;

/// Configuration namespaces that one step of a move removes.
pub const MOVE_NAMESPACES_PER_STEP_MAX: usize = 16;

/// Longest name of a configuration namespace.
pub const CONFIG_NAMESPACE_CHARACTERS_MAX: usize = 128;

/// Longest key of a pair, a container or a field.
pub const CONFIG_KEY_CHARACTERS_MAX: usize = 128;

/// Longest name of a namespace in a cluster below
/// [`ClusterVersion::WITH_LEAVES`](crate::version::ClusterVersion::WITH_LEAVES).
pub const CONFIG_NAMESPACE_CHARACTERS_BEFORE_LEAVES: usize = 32;

/// Longest key of a pair, a container or a field in such a cluster.
pub const CONFIG_KEY_CHARACTERS_BEFORE_LEAVES: usize = 64;

/// Namespaces from which one namespace inherits directly.
pub const CONFIG_PARENTS_MAX: usize = 8;

/// Namespaces on the longest way from a namespace to one that inherits from it, both included.
pub const CONFIG_INHERITANCE_DEPTH_MAX: usize = 8;

/// Namespaces that inherit from one, directly or through others. A change of the one is a change of
/// them all.
pub const CONFIG_DESCENDANTS_MAX: usize = 100;

/// Drafts of a namespace.
pub const CONFIG_DRAFTS_MAX: usize = 32;

/// Bytes of the changes in a draft.
pub const CONFIG_DRAFT_BYTES_MAX: usize = 1 << 20;

/// Comments on a draft.
pub const CONFIG_DRAFT_COMMENTS_MAX: usize = 100;

/// Labels that the audience of a canary names.
pub const CONFIG_AUDIENCE_LABELS_MAX: usize = 64;

/// Longest label of a reader.
pub const CONFIG_LABEL_CHARACTERS_MAX: usize = 128;

/// Longest key inside a dict.
pub const CONFIG_DICT_KEY_CHARACTERS_MAX: usize = 256;

/// Longest value of a pair, as canonical JSON. It is meant for a setting, not for a file.
pub const CONFIG_VALUE_BYTES_MAX: usize = 64 << 10;

/// Longest secret in bytes, before it is sealed.
pub const CONFIG_SECRET_BYTES_MAX: usize = 32 << 10;

/// Longest sealed secret in bytes: base64 of the longest secret, with its key id. It fits into
/// [`CONFIG_VALUE_BYTES_MAX`].
pub const CONFIG_SEALED_BYTES_MAX: usize = CONFIG_SECRET_BYTES_MAX / 3 * 4 + 256;

/// Longest id of a key that seals secrets, in bytes.
pub const SECRET_KEY_ID_BYTES_MAX: usize = 64;

/// Nesting levels of lists and dicts inside a value. Deeper values could exhaust a stack.
pub const CONFIG_VALUE_DEPTH_MAX: usize = 16;

/// Maximum number of namespaces in one shard. A snapshot takes references to all of them at once.
pub const CONFIG_NAMESPACES_MAX: usize = 10_000;

/// Maximum number of pairs in a namespace. The first write to a namespace during a snapshot copies
/// its index.
pub const CONFIG_PAIRS_MAX: usize = 10_000;

/// Maximum number of containers in a namespace.
pub const CONFIG_CONTAINERS_MAX: usize = 1_000;

/// Maximum number of fields in a container.
pub const CONFIG_FIELDS_MAX: usize = 256;

/// Maximum number of references from a container's fields to pairs; repeated references count.
pub const CONFIG_REFERENCES_MAX: usize = 4_096;

/// Bytes of keys in a container, which is one record of a snapshot.
pub const CONFIG_CONTAINER_BYTES_MAX: usize = 256 << 10;

/// Bytes of pairs and containers in a namespace.
pub const CONFIG_NAMESPACE_BYTES_MAX: usize = 16 << 20;

/// Bytes of the resolved documents of a namespace. A change of a pair to which all containers refer
/// rebuilds all documents, on the worker's thread.
pub const CONFIG_DOCUMENTS_BYTES_MAX: usize = 8 << 20;

/// Bytes of the history of a namespace. Beyond it, the oldest revisions are dropped.
pub const CONFIG_HISTORY_BYTES_MAX: usize = 32 << 20;

/// Bytes of one configuration command.
pub const CONFIG_WRITE_BYTES_MAX: usize = 8 << 20;

/// Values in the pairs of one command, including each item of a list and each entry of a dict. The
/// cost of applying a command depends on them, and 8 MiB of lists of digits would hold four
/// million.
pub const CONFIG_WRITE_VALUES_MAX: usize = 250_000;

/// Longest schema of a pair or a container, as JSON.
pub const CONFIG_SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Nesting levels of lists and dicts inside a schema. A deeper one could exhaust a stack.
pub const CONFIG_SCHEMA_DEPTH_MAX: usize = 64;

/// Rules and values that the checks of one change look at. A worker checks about ten million in a
/// second, and must answer others meanwhile.
pub const CONFIG_SCHEMA_STEPS_MAX: usize = 2_000_000;

/// Longest name of an author.
pub const CONFIG_AUTHOR_CHARACTERS_MAX: usize = 128;

/// Longest message of a change.
pub const CONFIG_MESSAGE_CHARACTERS_MAX: usize = 1_024;

/// Maximum number of revisions that a namespace can be set to keep.
pub const CONFIG_HISTORY_REVISIONS_MAX: u64 = 10_000;

/// Minimum number of revisions that a namespace keeps regardless of their age: the newest, and the
/// one before it for a rollback.
pub const CONFIG_HISTORY_REVISIONS_MIN: u64 = 2;

/// Number of revisions that a namespace keeps by default.
pub const CONFIG_HISTORY_REVISIONS: u64 = 100;

/// How long a namespace keeps revisions by default: 90 days.
pub const CONFIG_HISTORY_AGE_MS: u64 = 90 * 24 * 3600 * 1000;

/// Maximum number of entries on one page of pairs, containers, names or revisions.
pub const CONFIG_PAGE_ITEMS_MAX: usize = 1_000;

/// Bytes of keys and values that one step of a search examines.
pub const CONFIG_SEARCH_STEP_BYTES: usize = 1 << 20;

/// Maximum number of changes of containers in one answer to a watching client, which then asks for
/// the rest.
pub const CONFIG_CHANGES_MAX: usize = 64;

/// Bytes of documents after which an answer to a client that watches a namespace ends. It holds at
/// least one document. So a node asks for no more at a time than it sends to the client soon.
pub const CONFIG_CHANGES_BYTES_CLOSE: usize = 1 << 20;

/// How far above its last revision a restored namespace continues. The original cluster went on
/// assigning revisions after the backup, and those must not come again with other content.
pub const CONFIG_RESTORE_REVISION_MARGIN: u64 = 1 << 20;

/// Largest block of configuration in a restore or a move: a block of a snapshot.
pub const CONFIG_BLOCK_BYTES_MAX: usize = SNAPSHOT_BLOCK_BYTES_MAX;

/// Maximum number of replicas that one command assigns. The next command continues a placement that
/// changes more.
pub const ASSIGNMENTS_MAX: usize = 1_024;

/// Bytes of the names and values of a shard's tags.
pub const SHARD_TAGS_BYTES_MAX: usize = 4 << 10;

/// Clock offsets between nodes above this are reported, because locks and keys with an expiry then
/// live visibly longer or shorter after a leader change. Clocks synchronized by NTP are within a
/// few milliseconds.
pub const CLOCK_OFFSET_MS_MAX: i64 = 500;

/// Maximum number of slow requests that one drive describes, each in a log line. When a shard has
/// no leader, thousands of requests can time out at the same tick.
pub const SLOW_REQUESTS_MAX: usize = 16;

/// Maximum number of spans that are open on a node at once. Further requests are not traced: so
/// many are enough to see where time is spent, and exporting more costs processor time that the
/// requests need.
pub const SPANS_OPEN_MAX: usize = 1_024;

/// Maximum number of trace events that one drive reports for a shard. Further ones are dropped:
/// they are for people, and a replica that applies hundreds of changes of its membership at once is
/// catching up.
pub const TRACE_EVENTS_MAX: usize = 256;

/// A peer that sends nothing for this many election timeouts counts as unreachable, even if its
/// connection stands. Every node sends to every peer once each election timeout.
pub const SILENT_ELECTION_TIMEOUTS: u64 = 2;

/// Bits of a `SCAN` cursor for the place inside a shard.
pub const SCAN_PLACE_BITS: u32 = 40;

/// Longest prefix of keys in a grant. Every node keeps all grants in memory and compares them with
/// each request.
pub const GRANT_BYTES_MAX: usize = 256;

/// Records of administrative changes that the prime shard keeps. Every node has them in memory, in
/// its snapshots and in those that it sends to a new host: a few megabytes at most.
pub const AUDIT_RECORDS_MAX: usize = 10_000;

/// Longest subject of an audit record.
pub const AUDIT_SUBJECT_BYTES_MAX: usize = 128;

/// Maximum number of audit records in one answer.
pub const AUDIT_PAGE_MAX: usize = 1_000;

/// Maximum number of roles. Every node keeps all of them in memory.
pub const ROLES_MAX: usize = 1_000;

/// Maximum number of principals.
pub const PRINCIPALS_MAX: usize = 1_000;

/// Maximum number of tokens. Each change of a row copies all rows once.
pub const TOKENS_MAX: usize = 10_000;

/// Maximum number of CAs: the one that signs, and a second one during a rotation.
pub const AUTHORITIES_MAX: usize = 2;

/// Maximum length of the certificate and of the private key of a CA, in bytes of PEM.
pub const AUTHORITY_BYTES_MAX: usize = 16 << 10;

/// Minimum time between two steps of a CA rotation, in milliseconds. Running nodes apply a step
/// within two seconds; without the pause they could stop trusting each other.
pub const AUTHORITY_REST_MS: u64 = 15_000;

/// Maximum number of join tokens that have not expired.
pub const JOIN_TOKENS_MAX: usize = 1_000;

/// Maximum lifetime of a join token, in milliseconds: 30 days.
pub const JOIN_TOKEN_LIFETIME_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// Secrets of a token that are accepted at the same time, so that clients can change to a new one
/// one after another.
pub const TOKEN_SECRETS_MAX: usize = 2;

/// Maximum number of grants of a role. A check looks at all of them.
pub const ROLE_GRANTS_MAX: usize = 100;

/// Highest limit of a role, in operations or bytes a second.
pub const RATE_MAX: u64 = 1_000_000_000_000;

/// Maximum number of roles of a principal.
pub const PRINCIPAL_ROLES_MAX: usize = 32;

/// Maximum number of names of client certificates of a principal.
pub const PRINCIPAL_CERTIFICATE_NAMES_MAX: usize = 32;

/// Bound of the two limits above, for decoding.
pub(crate) const PRINCIPAL_NAMES_MAX: usize = 32;

/// Longest name of a role or a principal.
pub const ACCESS_NAME_BYTES_MAX: usize = 64;

/// Longest name of a client certificate.
pub const CERTIFICATE_NAME_BYTES_MAX: usize = 256;

/// Longest name of a channel: a channel counts as a key in permissions.
pub const CHANNEL_BYTES_MAX: usize = KEY_BYTES_MAX;

/// Longest message to the subscribers of a channel.
pub const MESSAGE_BYTES_MAX: usize = VALUE_BYTES_MAX;

/// Bytes of publications that are on their way to one peer and not acknowledged. Beyond it,
/// publications are dropped for that peer. It is more than a link between distant sites carries in
/// one round trip, and little enough that Raft messages behind it are not late.
pub const PUBLICATION_BYTES_UNACKNOWLEDGED_MAX: usize = 8 << 20;

/// Bytes of publications that a peer receives before it acknowledges them. Small ones are not
/// acknowledged one by one, and the sender may still send most of what it may without an
/// acknowledgement.
pub const PUBLICATION_BYTES_PER_ACKNOWLEDGEMENT: usize = PUBLICATION_BYTES_UNACKNOWLEDGED_MAX / 8;

/// Bytes of the keys that the clients of one worker have read and may have cached. A further key
/// takes the place of another one, which is invalidated.
pub const TRACKED_BYTES_MAX: usize = 16 << 20;

/// Bytes of the invalidations that wait for one client. Beyond it, all its keys are invalidated
/// instead.
pub const INVALIDATIONS_BYTES_MAX: usize = 1 << 20;

/// Prefixes whose keys are invalidated for one client. A further one is refused.
pub const TRACKED_PREFIXES_MAX: usize = 64;
