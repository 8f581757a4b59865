//! Metrics of the process, under the names that every program exports to Prometheus.
//!
//! Owns where the values come from: `/proc` (proc(5)), and the system's clocks and limits.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// What the process uses at a moment. What the system does not report is 0.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ProcessMetrics {
    cpu_seconds: f64,
    start_unix_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: u64,
    open_files: u64,
    open_files_max: u64,
}

impl ProcessMetrics {
    /// The values of this process.
    pub(super) fn measure() -> ProcessMetrics {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        ProcessMetrics {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: resident_bytes(),
            open_files: open_files(),
            open_files_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            ..ProcessMetrics::of_stat(&read("/proc/self/stat"), &read("/proc/stat")).unwrap_or_default()
        }
    }

    /// Reads `/proc/self/stat`, whose fields proc_pid_stat(5) numbers, and `/proc/stat`, which has
    /// the time of the system's start.
    fn of_stat(stat: &str, system: &str) -> Option<ProcessMetrics> {
        // The second field is the name of the program, which may have blanks and parentheses.
        let (_, after_name) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let boot = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse::<u64>().ok()?;
        let since_boot = field(22)? as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(ProcessMetrics {
            start_unix_seconds: boot as f64 + since_boot,
            threads: field(20)?,
            virtual_bytes: field(23)?,
            ..ProcessMetrics::default()
        })
    }
}

/// Number of open file descriptors. Since Linux 6.2, `stat` of `/proc/self/fd` reports it as the
/// size. Older kernels report 0; there, the entries are counted, which takes milliseconds for ten
/// thousand.
fn open_files() -> u64 {
    const DESCRIPTORS: &str = "/proc/self/fd";
    match std::fs::metadata(DESCRIPTORS).map_or(0, |directory| directory.len()) {
        0 => std::fs::read_dir(DESCRIPTORS).map_or(0, |entries| entries.count() as u64),
        count => count,
    }
}

/// Resident memory of the process in bytes, 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    resident * rustix::param::page_size() as u64
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Processor time that the process has used";
        let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(self.cpu_seconds).encode(metric)?;
        let help = "When the process was started, in seconds since 1970";
        let metric =
            encoder.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?;
        ConstGauge::new(self.start_unix_seconds).encode(metric)?;
        let gauges = [
            ("process_resident_memory_bytes", "Memory that the process has in RAM", self.resident_bytes),
            ("process_virtual_memory_bytes", "Addresses that the process has mapped", self.virtual_bytes),
            ("process_threads", "Threads of the process", self.threads),
            ("process_open_fds", "Open file descriptors", self.open_files),
            ("process_max_fds", "Most file descriptors that may be open", self.open_files_max),
        ];
        for (name, help, value) in gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_by_the_numbers_of_its_fields() {
        let stat = "4711 (a (b) c) S 1 4711 4711 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 9 0 30000 8192 3 \
                    18446744073709551615";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let expected = ProcessMetrics {
            start_unix_seconds: 1_000.0 + 30_000.0 / ticks,
            threads: 9,
            virtual_bytes: 8_192,
            ..ProcessMetrics::default()
        };
        assert_eq!(ProcessMetrics::of_stat(stat, "cpu 1 2\nbtime 1000\n"), Some(expected));
        assert_eq!(ProcessMetrics::of_stat("4711 (cut", "btime 1000\n"), None);
    }

    #[test]
    fn this_process_runs_and_has_files_open() {
        let one = ProcessMetrics::measure();
        let _file = std::fs::File::open("/proc/self/stat").unwrap();
        let two = ProcessMetrics::measure();
        assert!(one.threads > 0 && one.resident_bytes > 0 && one.start_unix_seconds > 1e9, "{one:?}");
        assert!(one.open_files > 0 && one.open_files <= one.open_files_max, "{one:?}");
        assert!(two.cpu_seconds >= one.cpu_seconds, "{two:?}");
    }
}
