//! `GET /v1/metrics/history`: the last hour of the answering node in numbers.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The last hour of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsHistory {
    /// Number of the answering node.
    pub node: u64,
    /// Seconds that one value stands for.
    pub step_s: u64,
    /// When the last value ends, in milliseconds since 1970.
    pub end_unix_ms: u64,
    /// The series, all of the same length.
    pub series: Vec<MetricSeries>,
}

/// One series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MetricSeries {
    /// What was measured, with its unit at the end.
    pub name: Cow<'static, str>,
    /// The values, the oldest first; null where nothing was measured, as the latency of no request.
    pub values: Vec<Option<f32>>,
}
