//! Counters of the HTTP server, with their labels.
//!
//! Every label has a fixed set of values: a key, an address or a path never becomes one.

use std::time::Duration;

use super::durations::{DURATION_BUCKETS, DurationHistogram, HistogramSnapshot};
use super::raise;
use crate::counters::{Counter, PerWorker};

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value, in the order of the discriminants.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The text of the label in `/metrics`.
            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

label! {
    /// The part of the HTTP interface that a request belongs to.
    Dialect {
        /// `/v1`.
        Native = "native",
        /// Any other path at the root.
        Kv1 = "kv1",
        /// `/db`.
        Raftdb = "raftdb",
        /// `/api`.
        Config = "config",
        /// Health, metrics, the welcome page, and unknown paths.
        Operations = "operations",
    }
}

label! {
    /// What a request does, which determines its expected duration.
    Kind {
        /// One key, linearizable.
        Read = "read",
        /// One key or a list, from the local replica.
        StaleRead = "stale_read",
        /// A change of keys or configuration.
        Write = "write",
        /// A page of keys, linearizable.
        List = "list",
        /// Anything else.
        Other = "other",
    }
}

label! {
    /// HTTP methods by effect.
    MethodClass {
        /// GET, HEAD.
        Read = "read",
        /// PUT, POST, DELETE, PATCH.
        Write = "write",
        /// All other methods.
        Other = "other",
    }
}

label! {
    /// HTTP statuses by their first digit.
    StatusClass {
        /// 2xx.
        Success = "2xx",
        /// 3xx.
        Redirection = "3xx",
        /// 4xx.
        ClientError = "4xx",
        /// 5xx.
        ServerError = "5xx",
    }
}

const DIALECTS: usize = Dialect::ALL.len();
const KINDS: usize = Kind::ALL.len();
const METHODS: usize = MethodClass::ALL.len();
const STATUSES: usize = StatusClass::ALL.len();

/// Counters of the HTTP server of one worker.
#[derive(Debug, Default)]
pub struct HttpCounters {
    requests: [[[Counter; STATUSES]; METHODS]; DIALECTS],
    durations: [[DurationHistogram; KINDS]; DIALECTS],
    /// Connections accepted and served, in total.
    pub connections_accepted: Counter,
    /// Connections refused because as many as allowed were open.
    pub connections_refused: Counter,
    /// Connections cut because a request head, or any data, did not arrive in time.
    pub connections_timed_out: Counter,
    /// Connections that ended in an error: malformed input, a reset.
    pub connections_failed: Counter,
    /// Failures of accept itself, such as running out of file descriptors.
    pub accept_errors: Counter,
    /// Connections that are open at present.
    pub connections_open: Counter,
}

/// The labels and the duration of a finished request.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The part of the HTTP interface.
    pub dialect: Dialect,
    /// The kind of the request, which chooses the histogram of durations.
    pub kind: Kind,
    /// The class of its method.
    pub method: MethodClass,
    /// The class of the answer's status.
    pub status: StatusClass,
    /// Time from the parsed head to the finished answer, without writing it.
    pub duration: Duration,
}

impl HttpCounters {
    /// Counts a finished request and its duration.
    pub fn observe(&self, observation: Observation) {
        let dialect = observation.dialect as usize;
        raise(&self.requests[dialect][observation.method as usize][observation.status as usize]);
        self.durations[dialect][observation.kind as usize].observe(observation.duration, 1);
    }

    /// Returns the sum over all workers.
    pub fn sum(workers: &PerWorker<HttpCounters>) -> HttpCounters {
        workers.totals(|worker| {
            let requests = worker.requests.iter().flatten().flatten();
            let durations = worker.durations.iter().flatten().flat_map(DurationHistogram::counters);
            let connections = [
                &worker.connections_accepted,
                &worker.connections_refused,
                &worker.connections_timed_out,
                &worker.connections_failed,
                &worker.accept_errors,
                &worker.connections_open,
            ];
            requests.chain(durations).chain(connections).collect()
        })
    }

    /// What was served, apart from requests about the node itself.
    pub fn served(&self) -> RequestTotals {
        let mut served = RequestTotals::default();
        for &dialect in Dialect::ALL.iter().filter(|dialect| **dialect != Dialect::Operations) {
            for of_method in &self.requests[dialect as usize] {
                served.requests += of_method.iter().map(Counter::get).sum::<u64>();
                served.errors += of_method[StatusClass::ServerError as usize].get();
            }
            for &kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Other) {
                let counts = self.durations[dialect as usize][kind as usize].counts();
                served.durations.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        served
    }

    /// Numbers of requests with their labels, without zeros.
    pub(super) fn request_series(&self) -> Vec<([(&'static str, &'static str); 3], u64)> {
        let mut series = Vec::new();
        for &dialect in Dialect::ALL {
            for &method in MethodClass::ALL {
                for &status in StatusClass::ALL {
                    let count = self.requests[dialect as usize][method as usize][status as usize].get();
                    if count > 0 {
                        let labels = [
                            ("dialect", dialect.text()),
                            ("method", method.text()),
                            ("status", status.text()),
                        ];
                        series.push((labels, count));
                    }
                }
            }
        }
        series
    }

    /// Durations with their labels, without those of which there are none.
    pub(super) fn duration_series(&self) -> Vec<([(&'static str, &'static str); 2], HistogramSnapshot)> {
        let mut series = Vec::new();
        for &dialect in Dialect::ALL {
            for &kind in Kind::ALL {
                let totals = self.durations[dialect as usize][kind as usize].totals();
                if totals.count > 0 {
                    series.push(([("dialect", dialect.text()), ("kind", kind.text())], totals));
                }
            }
        }
        series
    }
}

/// Requests of clients, without labels.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTotals {
    /// Number of requests.
    pub requests: u64,
    /// Number of those answered with a status of 500 or more.
    pub errors: u64,
    /// Number of those whose duration is up to the server, by bucket of duration.
    pub durations: [u64; DURATION_BUCKETS],
}
