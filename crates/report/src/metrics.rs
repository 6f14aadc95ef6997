//! The one table of metrics: names, help, kind, labels; and the encoding of [`Totals`] in the Prometheus text format.
//!
//! Used by the daemon's `/metrics` and by `report --format prom` alike, so that neither can count for itself. Not for:
//! what is counted (the analysis), or the daemon's state about itself (it hands that over as [`Extra`]).

use std::collections::BTreeMap;

use prometheus::TextEncoder;
use prometheus::proto::{self, Counter, Gauge, LabelPair, MetricFamily, MetricType};
use retryscope_analysis::{ATTEMPT_BUCKETS, DELAY_BUCKETS, Histogram, Labels, Metric, Totals};

use crate::exposition::Exposition;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Described {
    /// Name, prefix included.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Labels, in the order of the contract.
    pub labels: &'static [&'static str],
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Never falls.
    Counter,
    /// A state.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

/// Metrics about runs.
pub const RUN_METRICS: &[(Metric, Described)] = &[
    (
        Metric::LogicalRequests,
        Described {
            name: "retryscope_logical_requests_total",
            help: "Model answers that agents asked for.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model", "source", "arrival", "visibility"],
        },
    ),
    (
        Metric::UpstreamRequests,
        Described {
            name: "retryscope_upstream_requests_total",
            help: "Requests that agents sent, at least; kind says whether it was the first send, a retry, a fallback or a hedge.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model", "kind", "source", "arrival", "visibility"],
        },
    ),
    (
        Metric::Retries,
        Described {
            name: "retryscope_retries_total",
            help: "Retries, at least, by layer and by the failure that led to them.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model", "layer", "class", "reason", "arrival"],
        },
    ),
    (
        Metric::RequestOutcomes,
        Described {
            name: "retryscope_request_outcomes_total",
            help: "Ended logical requests by outcome.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model", "outcome", "arrival"],
        },
    ),
    (
        Metric::AttemptFailures,
        Described {
            name: "retryscope_attempt_failures_total",
            help: "Failed attempts, at least, by failure; status is the HTTP status, none, or other beyond the limit of series.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model", "class", "reason", "status", "arrival"],
        },
    ),
    (
        Metric::Fallbacks,
        Described {
            name: "retryscope_fallbacks_total",
            help: "Moves to another candidate; kind says what changed.",
            kind: Kind::Counter,
            labels: &["agent", "kind", "from_provider", "to_provider", "reason"],
        },
    ),
    (
        Metric::AttemptsPerRequest,
        Described {
            name: "retryscope_attempts_per_request",
            help: "Upstream requests of an ended logical request, at least.",
            kind: Kind::Histogram,
            labels: &["agent", "provider"],
        },
    ),
    (
        Metric::RetryDelay,
        Described {
            name: "retryscope_retry_delay_seconds",
            help: "Waits between a failed attempt and the next.",
            kind: Kind::Histogram,
            labels: &["agent", "provider"],
        },
    ),
    (
        Metric::RetryAfter,
        Described {
            name: "retryscope_retry_after_total",
            help: "Retries after a failure whose provider stated a wait, by how the wait was treated.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "verdict"],
        },
    ),
    (
        Metric::Waiting,
        Described {
            name: "retryscope_waiting_seconds_total",
            help: "Time spent waiting between attempts; may exceed wall time where requests overlap.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model"],
        },
    ),
    (
        Metric::RunOutcomes,
        Described {
            name: "retryscope_run_outcomes_total",
            help: "Ended turns by outcome and by the class of the failure that ended them.",
            kind: Kind::Counter,
            labels: &["agent", "provider", "model", "outcome", "class"],
        },
    ),
];

/// Metrics that describe a state, and those of the daemon itself; values come from the caller.
pub const STATE_METRICS: &[Described] = &[
    gauge(
        "retryscope_hidden_requests_estimate",
        "Requests that the logs do not show: bounds by the agents' known policies.",
        &["agent", "provider", "bound"],
    ),
    gauge(
        "retryscope_retry_budget_limit_ratio",
        "Largest share of retries that the budget allows.",
        &["scope", "name", "window"],
    ),
    gauge(
        "retryscope_retry_budget_used_ratio",
        "Share of retries among upstream requests in the window.",
        &["scope", "name", "window"],
    ),
    counter(
        "retryscope_retry_budget_exhausted_total",
        "Times that a retry budget became exhausted.",
        &["scope", "name", "window"],
    ),
    gauge("retryscope_runs_active", "Runs that are not over.", &["agent"]),
    gauge("retryscope_runs_waiting", "Runs that wait before a retry.", &["agent"]),
    gauge("retryscope_longest_wait_seconds", "Longest wait that is going on.", &["agent"]),
    gauge(
        "retryscope_quota_reset_timestamp_seconds",
        "When a used-up quota resets, as last stated by the provider.",
        &["agent", "provider"],
    ),
    gauge("retryscope_build_info", "Version of this program; always 1.", &["version"]),
    gauge("retryscope_agent_info", "Versions of agents seen; always 1.", &["agent", "version"]),
    counter(
        "retryscope_audit_findings_total",
        "Runs that broke an audit rule, counted when they end.",
        &["agent", "rule"],
    ),
    counter(
        "retryscope_revisions_total",
        "Counts that a later reading took back; counters never fall.",
        &["reason"],
    ),
    counter("retryscope_folded_total", "Label values that were folded into other.", &[]),
    counter("retryscope_duplicates_total", "Repeated events that were dropped.", &[]),
    counter("retryscope_gaps_total", "Lines and records that could not be read.", &["kind"]),
    gauge("retryscope_sources", "Log files that are read.", &[]),
    counter(
        "retryscope_source_rotations_total",
        "Files that were renamed and went on under a new name.",
        &[],
    ),
    counter("retryscope_source_truncations_total", "Files that were cut and written anew.", &[]),
    counter(
        "retryscope_source_truncations_without_copy_total",
        "Of these, files of which no copy was in view: lines written just before the cut may be lost.",
        &[],
    ),
    counter("retryscope_oversized_lines_total", "Lines over the length limit.", &[]),
    gauge("retryscope_ready", "Whether the backlog was read; until then there are no metrics of runs.", &[]),
    gauge("retryscope_read_lag_seconds", "Time since the files were last looked at.", &[]),
    gauge("retryscope_watch_mode", "How changes are noticed; 1 for the mode in use.", &["mode"]),
    gauge("retryscope_checkpoint_timestamp_seconds", "When the state was last saved.", &[]),
    counter("retryscope_checkpoint_failures_total", "Times that the state could not be saved.", &[]),
    counter(
        "retryscope_pushed_requests_total",
        "Exports and events received over HTTP, by what became of them.",
        &["kind", "result"],
    ),
    counter("retryscope_connections_refused_total", "Connections over the limit.", &[]),
    gauge("retryscope_runs_kept", "Runs that are kept in memory.", &[]),
    gauge("retryscope_series", "Series of run metrics; a histogram is one.", &[]),
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", &[]),
    gauge("process_open_fds", "Number of open file descriptors.", &[]),
];

const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Described {
    Described { name, help, kind: Kind::Gauge, labels }
}

const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Described {
    Described { name, help, kind: Kind::Counter, labels }
}

/// Values that do not come from totals: the daemon's own state. Name without a known row is refused.
#[derive(Debug, Default)]
pub struct Extra {
    values: BTreeMap<&'static str, Vec<(Vec<String>, f64)>>,
}

impl Extra {
    /// Adds a value; `labels` in the order of the table. A name or number of labels that the table does not have is
    /// dropped: an operator's scrape must never fail over a programming error.
    pub fn add(&mut self, name: &'static str, labels: &[&str], value: f64) {
        let known = STATE_METRICS.iter().any(|row| row.name == name && row.labels.len() == labels.len());
        debug_assert!(known, "{name} is not in the table");
        if known {
            self.values
                .entry(name)
                .or_default()
                .push((labels.iter().map(|l| (*l).to_owned()).collect(), value));
        }
    }
}

/// Returns the run metrics, and the extra values, in the Prometheus text format.
pub fn text(totals: &Totals, extra: &Extra) -> String {
    run_text(totals) + &extra_text(extra)
}

/// Returns the run metrics alone: what the daemon and the CLI must agree on.
pub fn run_text(totals: &Totals) -> String {
    let mut out = Exposition::default();
    for (metric, row) in RUN_METRICS {
        let mut begun = false;
        let mut begin = |out: &mut Exposition| {
            if !std::mem::replace(&mut begun, true) {
                out.begin(row);
            }
        };
        let mut places = vec![0; row.labels.len()];
        for (labels, n) in totals.counters_of(*metric) {
            begin(&mut out);
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            let value = if *metric == Metric::Waiting { n as f64 / 1e3 } else { n as f64 };
            let labels = row.labels.iter().zip(&mut places).map(|(name, place)| {
                let value = labels.get_near(name, place);
                (*name, value.unwrap_or_default())
            });
            out.sample(row, "", labels, value);
        }
        for (series, histogram) in totals.histograms().filter(|(series, _)| series.metric == *metric) {
            begin(&mut out);
            add_histogram(&mut out, row, *metric, &series.labels, histogram);
        }
    }
    out.finish()
}

/// Returns the extra values alone, to stand after the run metrics.
pub fn extra_text(extra: &Extra) -> String {
    let families: Vec<MetricFamily> = STATE_METRICS
        .iter()
        .filter_map(|row| {
            let metrics = extra.values.get(row.name)?.iter().map(|(labels, value)| {
                sample_of(row, row.labels.iter().copied().zip(labels.iter().map(String::as_str)), *value)
            });
            Some(family(row, metrics.collect()))
        })
        .collect();
    // A family without a metric is the only error there is, and none is made.
    TextEncoder::new().encode_to_string(&families).unwrap_or_default()
}

fn family(row: &Described, metrics: Vec<proto::Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(row.name.to_owned());
    family.set_help(row.help.to_owned());
    family.set_field_type(match row.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(metrics);
    family
}

fn sample_of<'a>(
    row: &Described,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    value: f64,
) -> proto::Metric {
    let labels = labels
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value.to_owned());
            pair
        })
        .collect();
    let mut out = proto::Metric::from_label(labels);
    if row.kind == Kind::Counter {
        let mut counter = Counter::default();
        counter.set_value(value);
        out.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        out.set_gauge(gauge);
    }
    out
}

fn labels_of<'a>(row: &Described, labels: &'a Labels) -> impl Iterator<Item = (&'a str, &'a str)> {
    row.labels.iter().map(|name| (*name, labels.get(name).unwrap_or_default()))
}

#[expect(clippy::cast_precision_loss, reason = "bounds, counts and sums are far below 2^52")]
fn add_histogram(
    out: &mut Exposition,
    row: &Described,
    metric: Metric,
    labels: &Labels,
    histogram: &Histogram,
) {
    let (bounds, unit) =
        if metric == Metric::RetryDelay { (DELAY_BUCKETS, 1e3) } else { (ATTEMPT_BUCKETS, 1.0) };
    let mut cumulative = 0;
    for (bound, count) in bounds.iter().zip(&histogram.buckets) {
        cumulative += count;
        let bound = (*bound as f64 / unit).to_string();
        let labels = labels_of(row, labels).chain([("le", bound.as_str())]);
        out.sample(row, "_bucket", labels, cumulative as f64);
    }
    let all = labels_of(row, labels).chain([("le", "+Inf")]);
    out.sample(row, "_bucket", all, histogram.count as f64);
    out.sample(row, "_sum", labels_of(row, labels), histogram.sum as f64 / unit);
    out.sample(row, "_count", labels_of(row, labels), histogram.count as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written by hand for the many series is what the library writes.
    #[test]
    fn the_two_writers_agree() {
        let row = Described { name: "a_total", help: "Help.", kind: Kind::Counter, labels: &["l"] };
        for (label, value) in [("plain", 2.0), ("x\"y\\z\nw", 0.5), ("é", 1e9), ("", 1_234_567.891)] {
            let mut own = Exposition::default();
            own.begin(&row);
            own.sample(&row, "", [("l", label)].into_iter(), value);
            let families = [family(&row, vec![sample_of(&row, [("l", label)].into_iter(), value)])];
            assert_eq!(own.finish(), TextEncoder::new().encode_to_string(&families).unwrap());
        }
    }
}
