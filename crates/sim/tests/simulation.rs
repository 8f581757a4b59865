//! Runs a fixed list of seeds and every seed that once failed. Proves that a run is a function of
//! its seed, and that a broken shell is detected.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use tidelock_core::deliberate::Faults;
use tidelock_core::storage::wal::{self, WalOptions};
use tidelock_core::storage::{LogEntry, RecoveredLogs, WalBatch, WalRecord};
use tidelock_core::types::{LogIndex, ShardId, Term, WalSequence};
use tidelock_sim::busy_shards;
use tidelock_sim::busy_votes;
use tidelock_sim::capacity::Capacity;
use tidelock_sim::density::Density;
use tidelock_sim::disk::SimDisk;
use tidelock_sim::faults::{Fault, ShellBug};
use tidelock_sim::hot_slots::{self, SpanningTransactions};
use tidelock_sim::plan::Plan;
use tidelock_sim::run::{self, Tally};
use tidelock_sim::throughput;
use tidelock_sim::trace::Detail;

/// Number of fixed seeds. `tidelock-sim` runs fresh ones; these give every change a minimum of
/// testing.
const SEEDS: u64 = 200;

/// Number of seeds of runs with disk faults only. Such a run takes six times as long as another.
const SLOW_DISK_SEEDS: u64 = 20;

/// Number of seeds of runs whose founders start on empty disks.
const EMPTY_DISK_SEEDS: u64 = 40;

/// Number of seeds of runs whose hosts are upgraded.
const MIXED_VERSIONS_SEEDS: u64 = 60;

/// Number of seeds of runs whose data shards are divided.
const DIVISION_SEEDS: u64 = 60;

/// Number of seeds of runs whose clients are principals.
const PRINCIPAL_SEEDS: u64 = 60;

/// Seeds in which a node checked requests against outdated permissions: those of its last snapshot
/// after a restart, or none at all on an old copy of its disk (5001).
const PRINCIPAL_REGRESSIONS: [u64; 4] = [5_001, 14_017, 14_030, 14_224];

/// Number of seeds within which a deliberate fault must be detected.
const SEEDS_TO_CATCH: u64 = 200;

/// The reports of several runs, added up.
#[derive(Default)]
struct Totals {
    tally: Tally,
    density: Density,
}

/// Runs seeds on all processors, with plans that `draw` draws. Panics with the trace of a seed that
/// fails.
fn hold(seeds: &[u64], draw: impl Fn(u64) -> Plan + Sync) -> Totals {
    let (next, total) = (AtomicU64::new(0), Mutex::new(Totals::default()));
    let work = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            match run::run_traced(&draw(seed)) {
                Ok(report) => {
                    let mut total = total.lock().expect("no other seed fails");
                    total.tally.add(&report.tally);
                    total.density.add(&report.density);
                }
                Err(failure) => panic!("{}\nseed {seed}: {}", failure.lines.join("\n"), failure.violation),
            }
        }
    };
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| {
            scope.spawn(work);
        });
    });
    total.into_inner().expect("no seed fails")
}

#[test]
fn a_row_of_seeds_with_upgrades_holds() {
    let total = hold(&(0..MIXED_VERSIONS_SEEDS).collect::<Vec<_>>(), Plan::draw_mixed).tally;
    assert!(total.releases_changed > MIXED_VERSIONS_SEEDS, "hosts were hardly upgraded: {total:?}");
    assert!(total.releases_refused > MIXED_VERSIONS_SEEDS / 4, "hardly a release was refused: {total:?}");
    assert!(total.versions_raised > MIXED_VERSIONS_SEEDS / 2, "hardly a version rose: {total:?}");
}

#[test]
fn a_row_of_seeds_with_divisions_holds() {
    let total = hold(&(0..DIVISION_SEEDS).collect::<Vec<_>>(), Plan::draw_divided).tally;
    assert!(total.divisions > DIVISION_SEEDS, "shards were hardly divided: {total:?}");
    assert!(total.slot_moves > 0, "no hot slots were moved: {total:?}");
}

#[test]
fn a_row_of_seeds_with_principals_holds() {
    let seeds = (0..PRINCIPAL_SEEDS).chain(PRINCIPAL_REGRESSIONS);
    let total = hold(&seeds.collect::<Vec<_>>(), Plan::draw_principals).tally;
    assert!(total.permission_changes > 20 * PRINCIPAL_SEEDS, "permissions hardly changed: {total:?}");
    assert!(total.permitted > 20 * PRINCIPAL_SEEDS, "hardly a request was allowed: {total:?}");
    assert!(total.forbidden > 20 * PRINCIPAL_SEEDS, "hardly a request was forbidden: {total:?}");
}

#[test]
fn a_row_of_seeds_holds_and_tests_something() {
    let Totals { tally: total, density } = hold(&(0..SEEDS).collect::<Vec<_>>(), Plan::draw);
    assert!(total.acknowledged > 100 * SEEDS, "clients hardly wrote: {total:?}");
    assert!(total.crashes > SEEDS && total.disk_stops > SEEDS / 10, "nodes hardly died: {total:?}");
    assert!(total.disk_stalls > SEEDS / 2, "disks hardly stalled: {total:?}");
    assert!(total.slow_disks > SEEDS / 10, "disks were hardly slow: {total:?}");
    assert!(
        total.refused > SEEDS && total.lost > 0 && total.sectors_lost > 0,
        "faults bit nobody: {total:?}"
    );
    assert!(total.iterations > SEEDS, "hardly any iteration over all keys ended: {total:?}");
    assert!(
        total.watched > 10 * SEEDS && total.watches_resumed > 10 * SEEDS,
        "watchers hardly received events, or hardly came back: {total:?}"
    );
    assert!(
        total.watch_reads_refused > SEEDS && total.deletions_watched > SEEDS / 10,
        "watchers hardly lacked a leader, or hardly saw a deletion: {total:?}"
    );
    assert!(total.relocations > SEEDS / 2, "hosts hardly moved: {total:?}");
    assert!(total.pipelined > 200 * SEEDS, "hardly anything was pipelined: {total:?}");
    assert!(
        total.backups > SEEDS / 4 && total.backups_gathered > SEEDS / 20,
        "hardly any backup was taken, or none of several nodes: {total:?}"
    );
    assert!(total.scripts > 10 * SEEDS, "hardly any script took effect: {total:?}");
    assert!(total.locks_awaited > SEEDS, "hardly any lock was waited for: {total:?}");
    assert!(total.checkpoints > SEEDS, "replicas were hardly compared: {total:?}");
    assert!(
        total.snapshots_made > 10 * SEEDS && total.snapshots_received > SEEDS,
        "logs were hardly cut, or nobody needed a snapshot: {total:?}"
    );
    let table = density.to_markdown();
    let row = |name: &str| {
        let row = table.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let cells = row.expect("every kind has a row").split('|').skip(2);
        cells.filter_map(|cell| cell.trim().parse::<u64>().ok()).sum::<u64>()
    };
    assert!(Fault::NAMES.iter().filter(|name| row(name) > 0).count() > 10, "{table}");
    assert!(row("elected") > 0, "{table}");
}

#[test]
fn writes_go_on_while_the_disks_of_a_minority_hang() {
    // In the last two, a node wins an election that its disk held up until everything healed, and
    // the disks of three nodes hang one right after the other.
    let seeds: Vec<u64> = (0..SLOW_DISK_SEEDS).chain([1795358029266847, 1795358317404002]).collect();
    let total = hold(&seeds, Plan::draw_slow_disks).tally;
    assert!(total.acknowledged > 100 * SLOW_DISK_SEEDS, "clients hardly wrote: {total:?}");
    assert!(total.slow_disks > SLOW_DISK_SEEDS, "disks were hardly slow: {total:?}");
    assert!(total.served_on_slow_disks > 100 * SLOW_DISK_SEEDS, "hardly anything was checked: {total:?}");
}

#[test]
fn founders_on_empty_disks_do_not_found_the_cluster_again() {
    let total = hold(&(0..EMPTY_DISK_SEEDS).collect::<Vec<_>>(), Plan::draw_empty_disks).tally;
    assert!(total.acknowledged > 100 * EMPTY_DISK_SEEDS, "clients hardly wrote: {total:?}");
    assert!(total.disks_refused > EMPTY_DISK_SEEDS, "hardly a disk was refused: {total:?}");
}

#[test]
fn seeds_that_once_failed_hold() {
    let lines = include_str!("regressions.txt").lines().filter(|line| !line.starts_with('#'));
    let seeds = lines.filter_map(|line| line.split_whitespace().next());
    let parsed = seeds.map(|seed| seed.parse().expect("a line of regressions.txt begins with its seed"));
    hold(&parsed.collect::<Vec<_>>(), Plan::draw);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let hash = |seed, detail| run::run(&Plan::draw(seed), detail).expect("these seeds hold").hash;
    for seed in 1000..1010 {
        let first = hash(seed, Detail::Hash);
        assert_eq!(first, hash(seed, Detail::Hash), "seed {seed}");
        assert_eq!(first, hash(seed, Detail::Tail(1)), "seed {seed}: looking changes nothing");
    }
    assert_ne!(hash(1000, Detail::Hash), hash(1001, Detail::Hash));
}

/// Checks that some seed detects a bug of the shell.
fn caught(shell_bug: ShellBug) {
    let sabotaged = |seed| Plan { shell_bug: Some(shell_bug), ..Plan::draw(seed) };
    let is_caught = (0..SEEDS_TO_CATCH).any(|seed| run::run(&sabotaged(seed), Detail::Hash).is_err());
    assert!(is_caught, "{SEEDS_TO_CATCH} seeds do not catch {shell_bug:?}");
}

#[test]
fn delivering_twice_is_caught() {
    caught(ShellBug::FramesTwice);
}

/// A log of some synced batches, one entry each.
fn write_log(disk: &SimDisk, batches: u64) {
    let (mut log, _) = wal::open(disk.clone(), WalOptions { segment_bytes: 64 << 10, ..WalOptions::new(1) })
        .expect("an empty disk makes an empty log");
    for sequence in 1..=batches {
        let data = Bytes::from(vec![sequence as u8; 700]);
        let entry = LogEntry { index: LogIndex(sequence), term: Term(1), data };
        let record = WalRecord::Entries { shard: ShardId(1), entries: vec![entry] };
        let batch = WalBatch { sequence: WalSequence(sequence), records: vec![record], released: vec![] };
        log.append(&[batch]).and_then(|()| log.sync()).expect("the disk has no faults");
    }
}

fn recover(disk: &SimDisk) -> Result<RecoveredLogs, wal::WalRecoveryError> {
    let options = WalOptions { segment_bytes: 64 << 10, ..WalOptions::new(2) };
    wal::open(disk.clone(), options).map(|(_, recovery)| recovery.logs)
}

/// A flipped bit in the last batch looks like a torn tail, since nothing after it proves that it
/// was durable. One anywhere before must be refused, and none may change the recovered data.
#[test]
fn a_flipped_bit_is_refused_or_harmless_and_never_believed() {
    const BATCHES: u64 = 40;
    let intact = SimDisk::new(1);
    write_log(&intact, BATCHES);
    let expected = recover(&intact).unwrap();
    let files = tidelock_core::storage::disk::Disk::list(&intact).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut refused = 0;
    for _ in 0..300 {
        let disk = SimDisk::new(1);
        write_log(&disk, BATCHES);
        let file = &files[random.usize(0..files.len())];
        let bits = disk.bytes_of(file).map_or(0, |bytes| bytes.len() as u64 * 8);
        disk.flip_bit(file, random.u64(0..bits));
        disk.power_loss();
        match recover(&disk) {
            Err(_) => refused += 1,
            Ok(logs) if logs == expected => {}
            Ok(logs) => {
                let entries = &logs[&ShardId(1)].entries;
                assert_eq!(entries[..], expected[&ShardId(1)].entries[..entries.len()]);
                assert_eq!(entries.len() as u64, BATCHES - 1, "only the last batch may look torn");
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn without_faults_none_is_counted() {
    let calm = Plan { faults: Vec::new(), ..Plan::draw(0) };
    let table = run::run(&calm, Detail::Hash).expect("nothing strikes").density.to_markdown();
    assert!(table.lines().filter(|line| line.starts_with("| Crash")).all(|line| !line.contains(['1', '2'])));
}

/// On machines of limited capacity, in simulated time: the result depends on no real clock.
#[test]
fn a_cluster_four_times_as_large_writes_nearly_four_times_as_much() {
    let measure = |nodes| throughput::measure(nodes, Capacity::MEASURED).expect("no write is refused");
    let (small, large) = (measure(3), measure(12));
    assert!(small.busiest > 0.95, "the leader of the only shard has all the work: {small:?}");
    let times = large.writes_per_second / small.writes_per_second;
    assert!(times >= 0.8 * 4.0, "{times:.2} times as much: {small:?} {large:?}");
}

#[test]
fn leaderships_are_balanced_by_load() {
    for seed in 0..2 {
        busy_shards::check(seed, Faults::NONE).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn votes_are_balanced_by_load() {
    for seed in 0..2 {
        busy_votes::check(seed, Faults::NONE).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn hot_slots_move_unless_transactions_span_slots() {
    let runs =
        [(0, SpanningTransactions::None), (1, SpanningTransactions::None), (0, SpanningTransactions::One)];
    for (seed, spanning) in runs {
        hot_slots::check(seed, spanning, Faults::NONE)
            .unwrap_or_else(|violation| panic!("seed {seed}, {spanning:?}: {violation}"));
    }
}
