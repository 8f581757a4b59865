//! `tidelock bench disk`: measures the cost of one small write, which is a lower bound for every
//! durable write of a store.
//!
//! Owns the ways of writing and their measurement, with the same system calls as fio's `sync`
//! engine with `--fsync=1`. It writes a temporary file and deletes it.
//!
//! An append makes the file longer, so every sync also writes file system metadata. Overwriting
//! blocks that were written before avoids that: the store's log reuses its segments in this way.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tidelock_client::{CliError, Output, output};

use crate::args::DiskBenchArgs;
use crate::record;
use crate::report::Latencies;

/// Length of the preallocated file. At its end, writing begins again at the start.
const FILE_BYTES: u64 = 16 << 20;

/// Size at which appends begin a new file, so that a fast disk is not filled.
const APPEND_BYTES_MAX: u64 = 256 << 20;

/// How a write is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Sync {
    /// Not durable: the data is in the kernel's memory.
    None,
    /// Content, and the metadata that reading it back needs.
    Fdatasync,
    /// Content and all metadata, times included.
    Fsync,
}

/// The position of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Place {
    /// At the end of the file.
    Append,
    /// Into an existing file, one write after the other.
    Preallocated,
}

const WAYS: [(Place, Sync); 6] = [
    (Place::Append, Sync::None),
    (Place::Append, Sync::Fdatasync),
    (Place::Append, Sync::Fsync),
    (Place::Preallocated, Sync::None),
    (Place::Preallocated, Sync::Fdatasync),
    (Place::Preallocated, Sync::Fsync),
];

/// The measured cost of one way of writing.
#[derive(Debug, Serialize)]
struct Row {
    place: Place,
    sync: Sync,
    writes: u64,
    writes_per_second: f64,
    latency_us: Latencies,
}

/// Measures every way and prints them.
pub(crate) fn run(args: &DiskBenchArgs) -> Result<(), CliError> {
    let style = ProgressStyle::with_template("{wide_bar} {msg}").expect("invariant: the template is one");
    let bar = ProgressBar::new(WAYS.len() as u64).with_style(style);
    let mut rows = vec![];
    for (place, sync) in WAYS {
        bar.set_message(format!("{place:?}, sync: {sync:?}").to_lowercase());
        bar.tick();
        let (histogram, elapsed) = measure(args, place, sync)?;
        rows.push(Row {
            place,
            sync,
            writes: histogram.len(),
            writes_per_second: histogram.len() as f64 / elapsed.as_secs_f64(),
            latency_us: Latencies::of(&histogram),
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    match if args.json { Output::Json } else { args.output } {
        Output::Json => {
            #[derive(Serialize)]
            struct DiskReport<'a> {
                directory: String,
                write_bytes: u32,
                ways: &'a [Row],
            }
            let directory = args.dir.display().to_string();
            let report = DiskReport { directory, write_bytes: args.size, ways: &rows };
            output::line(&serde_json::to_string(&report).expect("invariant: numbers and texts are JSON"))
        }
        Output::Text => output::write(text(args, &rows).as_bytes()),
    }
}

/// How long a write of 100 bytes takes that is made durable as in the log of a node.
#[derive(Clone, Copy, Debug)]
pub struct SyncLatency {
    /// The median, in microseconds.
    pub p50_us: f64,
    /// One write in a hundred takes longer, in microseconds.
    pub p99_us: f64,
}

/// Measures the disk of a directory for `duration_s`, by a temporary file of 16 MiB.
///
/// # Errors
/// When the file cannot be written.
pub fn sync_latency(dir: &Path, duration_s: Duration) -> Result<SyncLatency, CliError> {
    let args =
        DiskBenchArgs { dir: dir.to_owned(), size: 100, duration_s, output: Output::Text, json: false };
    let (histogram, _) = measure(&args, Place::Preallocated, Sync::Fdatasync)?;
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Ok(SyncLatency { p50_us: at(0.5), p99_us: at(0.99) })
}

fn measure(args: &DiskBenchArgs, place: Place, sync: Sync) -> Result<(Histogram<u64>, Duration), CliError> {
    let file = Scratch::create(&args.dir)?;
    let bytes = vec![0x5a; args.size as usize];
    let failed = |error| CliError::io(file.path.display().to_string())(error);
    let room = match place {
        Place::Append => APPEND_BYTES_MAX,
        Place::Preallocated => {
            file.write_through().map_err(failed)?;
            FILE_BYTES
        }
    };
    let mut histogram = record::histogram();
    let mut at = 0;
    let begun = Instant::now();
    let mut now = begun;
    while now - begun < args.duration_s {
        if at + u64::from(args.size) > room {
            at = 0;
            if place == Place::Append {
                file.file.set_len(0).map_err(failed)?;
                now = Instant::now();
            }
        }
        file.file.write_all_at(&bytes, at).map_err(failed)?;
        match sync {
            Sync::None => {}
            Sync::Fdatasync => file.file.sync_data().map_err(failed)?,
            Sync::Fsync => file.file.sync_all().map_err(failed)?,
        }
        at += u64::from(args.size);
        let done = Instant::now();
        let nanos = u64::try_from((done - now).as_nanos()).unwrap_or(u64::MAX);
        histogram.saturating_record(nanos.max(1));
        now = done;
    }
    Ok((histogram, now - begun))
}

/// A file that is deleted when this is dropped.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn create(dir: &Path) -> Result<Scratch, CliError> {
        let path = dir.join(format!("tidelock-bench-disk-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(CliError::io(path.display().to_string()))?;
        Ok(Scratch { path, file })
    }

    /// Fills the file with data: with room that is only reserved, each write would also change
    /// metadata.
    fn write_through(&self) -> std::io::Result<()> {
        let block = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(block.len()) {
            self.file.write_all_at(&block, at)?;
        }
        self.file.sync_all()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that cannot be deleted is left behind; nothing depends on it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn text(args: &DiskBenchArgs, rows: &[Row]) -> String {
    let table = rows.iter().map(|row| {
        let at = |percent: &str| row.latency_us.percentiles.get(percent).copied().unwrap_or(0.0);
        let mut cells = vec![
            format!("{:?}", row.place).to_lowercase(),
            format!("{:?}", row.sync).to_lowercase(),
            format!("{:.0}", row.writes_per_second),
        ];
        let latency = &row.latency_us;
        let columns = [latency.fastest, latency.average, at("50"), at("99"), latency.slowest];
        cells.extend(columns.map(|us| format!("{us:.1}")));
        cells
    });
    let header = ["FILE", "SYNC", "WRITES/S", "MIN µs", "AVG µs", "P50 µs", "P99 µs", "MAX µs"];
    let head = format!("Writes of {} bytes, one after the other, in {}\n\n", args.size, args.dir.display());
    head + &output::table(&header, table.collect()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(dir: &Path) -> DiskBenchArgs {
        DiskBenchArgs {
            dir: dir.to_owned(),
            size: 32,
            duration_s: Duration::from_millis(5),
            output: Output::Text,
            json: false,
        }
    }

    #[test]
    fn every_way_is_measured_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        for (place, sync) in WAYS {
            let (histogram, elapsed) = measure(&args(directory.path()), place, sync).unwrap();
            assert!(!histogram.is_empty() && elapsed >= Duration::from_millis(5), "{place:?} {sync:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = measure(&args(Path::new("/does/not/exist")), Place::Append, Sync::None).unwrap_err();
        assert!(error.to_string().contains("/does/not/exist"), "{error}");
    }
}
