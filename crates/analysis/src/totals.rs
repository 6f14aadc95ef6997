//! Runs to counters: what `/metrics` and `report --format prom` show.
//!
//! Counters hold lower bounds and never fall. A run may be added again and again while it grows: only what is new since
//! the last time is counted, and what a later reading takes back is noted as a revision. Not for: metric names and help
//! texts (the `report` crate has the one table).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome};
use retryscope_record::RunKey;
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Scope};
use crate::count::Evidence;
use crate::run::{Attempt, LogicalRequest, RequestOutcome, Run, RunOutcome, Turn};

/// The counters and histograms that runs add to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Metric {
    /// Logical requests.
    LogicalRequests,
    /// Upstream requests.
    UpstreamRequests,
    /// Retries.
    Retries,
    /// Ends of logical requests.
    RequestOutcomes,
    /// Failed attempts.
    AttemptFailures,
    /// Fallbacks.
    Fallbacks,
    /// Attempts of ended logical requests (histogram).
    AttemptsPerRequest,
    /// Waits before retries, in ms (histogram).
    RetryDelay,
    /// How stated waits were treated.
    RetryAfter,
    /// Waiting, in ms.
    Waiting,
    /// Ended turns.
    RunOutcomes,
}

/// Labels of a series, in the order of the metric table.
pub(crate) type Labels = Vec<(&'static str, Arc<str>)>;

/// Events older than this when they are read are `late`.
pub const LATE_AFTER: TimeDelta = TimeDelta::minutes(10);

/// Upper bounds of the attempts histogram.
pub const ATTEMPT_BUCKETS: &[u64] = &[1, 2, 3, 5, 11, 30, 132];

/// Upper bounds of the delay histogram, in ms: 0.1 s to 10 min, close around usual Retry-After values.
pub const DELAY_BUCKETS: &[u64] =
    &[100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000];

/// One thing that a run adds: `n` to a series, at a time.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    metric: Metric,
    labels: Labels,
    at: Option<DateTime<Utc>>,
    /// How many, or how much for sums and the observed value for histograms.
    n: u64,
}

/// A histogram: counts by bucket, sum and count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Observations at or below each bound; not cumulative.
    pub buckets: Vec<u64>,
    /// Sum of the observed values.
    pub sum: u64,
    /// Number of observations.
    pub count: u64,
}

/// All counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    #[serde(with = "pairs")]
    counters: BTreeMap<Series, u64>,
    #[serde(with = "pairs")]
    histograms: BTreeMap<Series, Histogram>,
    /// What each run has added so far: by series without arrival.
    #[serde(with = "pairs")]
    added: BTreeMap<RunKey, Vec<(Series, u64)>>,
    revisions: u64,
    budget: Budget,
    seen: Seen,
}

/// Metric and labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Series {
    /// The metric.
    pub metric: Metric,
    /// Its labels, by name.
    pub labels: BTreeMap<String, Arc<str>>,
}

/// Label values that have been seen; beyond the limits they are folded into `other`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Seen {
    models: Vec<Arc<str>>,
    providers: Vec<Arc<str>>,
    agents: Vec<Arc<str>>,
    folded: u64,
}

const MODEL_LIMIT: usize = 50;
const PROVIDER_LIMIT: usize = 30;
const AGENT_LIMIT: usize = 20;

impl Totals {
    /// Returns the totals of runs that were all read at `now`.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>, now: DateTime<Utc>) -> Self {
        let mut totals = Totals::default();
        for run in runs {
            totals.add(run, now);
        }
        totals
    }

    /// Adds a run as it is known now, or what is new in it since the last time.
    pub fn add(&mut self, run: &Run, now: DateTime<Utc>) {
        let mut by_series: BTreeMap<Series, Vec<Sample>> = BTreeMap::new();
        for sample in samples(run) {
            let series = Series {
                metric: sample.metric,
                labels: sample
                    .labels
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), self.seen.fold(name, value)))
                    .collect(),
            };
            by_series.entry(series).or_default().push(sample);
        }
        let before = self.added.remove(&run.key).unwrap_or_default();
        let mut after = Vec::with_capacity(by_series.len());
        for (series, mut samples) in by_series {
            let known = before.iter().find(|(s, _)| *s == series).map_or(0, |(_, n)| *n);
            let histogram = matches!(series.metric, Metric::AttemptsPerRequest | Metric::RetryDelay);
            let total: u64 = if histogram { samples.len() as u64 } else { samples.iter().map(|s| s.n).sum() };
            if total < known {
                self.revisions += known - total;
                after.push((series, known));
                continue;
            }
            // The newest are the new ones.
            samples.sort_by_key(|s| s.at);
            let mut left = total - known;
            for sample in samples.iter().rev() {
                if left == 0 {
                    break;
                }
                if histogram {
                    self.observe(&series, sample.n);
                    left -= 1;
                } else {
                    let n = sample.n.min(left);
                    self.count(&series, sample, n, now);
                    left -= n;
                }
            }
            after.push((series, total));
        }
        // Series that the run no longer has: what they counted stays.
        for (series, n) in before {
            if !after.iter().any(|(known, _)| *known == series) {
                self.revisions += n;
                after.push((series, n));
            }
        }
        self.added.insert(run.key.clone(), after);
    }

    /// Forgets what a run has added, so that it takes no memory; its counts stay. Only for runs that cannot grow any more.
    pub fn settle(&mut self, key: &RunKey) {
        self.added.remove(key);
    }

    /// Returns the counters in order.
    pub fn counters(&self) -> impl Iterator<Item = (&Series, u64)> {
        self.counters.iter().map(|(series, n)| (series, *n))
    }

    /// Returns the histograms in order.
    pub fn histograms(&self) -> impl Iterator<Item = (&Series, &Histogram)> {
        self.histograms.iter()
    }

    /// Returns how much later readings took back from what had been counted.
    pub fn revisions(&self) -> u64 {
        self.revisions
    }

    /// Returns how many label values were folded into `other`.
    pub fn folded(&self) -> u64 {
        self.seen.folded
    }

    /// Returns the retry budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the retry budget, to forget old minutes.
    pub fn budget_mut(&mut self) -> &mut Budget {
        &mut self.budget
    }

    fn count(&mut self, series: &Series, sample: &Sample, n: u64, now: DateTime<Utc>) {
        let mut series = series.clone();
        if has_arrival(series.metric) {
            let late = sample.at.is_some_and(|at| now - at > LATE_AFTER);
            series.labels.insert("arrival".into(), if late { "late".into() } else { "live".into() });
        }
        if let (Metric::UpstreamRequests, Some(at)) = (series.metric, sample.at) {
            let label = |name: &str| {
                series.labels.get(name).map(std::string::ToString::to_string).unwrap_or_default()
            };
            let retries = if label("kind") == "retry" { n } else { 0 };
            let scopes = [
                Scope::global(),
                Scope::of("provider", &label("provider")),
                Scope::of("agent", &label("agent")),
            ];
            for scope in &scopes {
                self.budget.add(scope, at, n, retries);
            }
        }
        *self.counters.entry(series).or_default() += n;
    }

    fn observe(&mut self, series: &Series, value: u64) {
        let bounds = if series.metric == Metric::RetryDelay { DELAY_BUCKETS } else { ATTEMPT_BUCKETS };
        let histogram = self.histograms.entry(series.clone()).or_default();
        histogram.buckets.resize(bounds.len(), 0);
        if let Some(index) = bounds.iter().position(|bound| value <= *bound) {
            histogram.buckets[index] += 1;
        }
        histogram.sum += value;
        histogram.count += 1;
    }
}

fn has_arrival(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::LogicalRequests
            | Metric::UpstreamRequests
            | Metric::Retries
            | Metric::RequestOutcomes
            | Metric::AttemptFailures
    )
}

impl Seen {
    fn fold(&mut self, name: &str, value: &Arc<str>) -> Arc<str> {
        let (known, limit) = match name {
            "model" => (&mut self.models, MODEL_LIMIT),
            "provider" | "from_provider" | "to_provider" => (&mut self.providers, PROVIDER_LIMIT),
            "agent" => (&mut self.agents, AGENT_LIMIT),
            _ => return value.clone(),
        };
        if known.contains(value) {
            return value.clone();
        }
        if known.len() < limit {
            known.push(value.clone());
            return value.clone();
        }
        self.folded += 1;
        "other".into()
    }
}

/// Returns everything that a run adds.
fn samples(run: &Run) -> Vec<Sample> {
    let mut out = Vec::new();
    for turn in &run.turns {
        for request in &turn.requests {
            of_request(run, turn, request, &mut out);
        }
        of_turn(run, turn, &mut out);
    }
    out
}

fn of_turn(run: &Run, turn: &Turn, out: &mut Vec<Sample>) {
    if !matches!(turn.outcome, RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled) {
        return;
    }
    let last = turn.requests.last().and_then(|r| r.attempts.last());
    let class = turn.cause.as_ref().map_or("none", |cause| cause.failure.class.as_str());
    let mut labels = base(run, last);
    labels.push(("outcome", turn.outcome.as_str().into()));
    labels.push(("class", class.into()));
    out.push(Sample { metric: Metric::RunOutcomes, labels, at: turn.ended_at, n: 1 });
}

fn of_request(run: &Run, turn: &Turn, request: &LogicalRequest, out: &mut Vec<Sample>) {
    let first = request.attempts.first();
    let started = first.and_then(|a| a.started_at.or(a.ended_at)).or(turn.started_at);
    let visibility = match request.upstream.evidence {
        Evidence::NotVisible => "none",
        _ if request.upstream.bound.is_exact() => "full",
        _ => "partial",
    };
    let source = request.source.as_str();
    let with = |labels: Labels, more: &[(&'static str, &str)]| {
        let mut labels = labels;
        labels.extend(more.iter().map(|(name, value)| (*name, Arc::from(*value))));
        labels
    };
    let labels = with(base(run, first), &[("source", source), ("visibility", visibility)]);
    out.push(Sample { metric: Metric::LogicalRequests, labels, at: started, n: 1 });
    let mut counted = 0;
    for attempt in &request.attempts {
        let at = attempt.started_at.or(attempt.ended_at).or(started);
        // Of several sends behind one visible attempt, the first is of its kind, the others are retries below it.
        let sends = attempt.sends.min;
        counted += sends;
        let upstream = |kind: AttemptKind, n: u64, out: &mut Vec<Sample>| {
            if n > 0 {
                let more = [("kind", kind.as_str()), ("source", source), ("visibility", visibility)];
                out.push(Sample {
                    metric: Metric::UpstreamRequests,
                    labels: with(base(run, Some(attempt)), &more),
                    at,
                    n,
                });
            }
        };
        upstream(attempt.kind, sends.min(1), out);
        upstream(AttemptKind::Retry, sends.saturating_sub(1), out);
        of_attempt(run, attempt, at, out);
    }
    // What is known to have been sent beyond the visible attempts.
    if let Some(missing) = request.upstream.bound.min.checked_sub(counted).filter(|n| *n > 0) {
        let kind = if counted == 0 { AttemptKind::Original } else { AttemptKind::Retry };
        let more = [("kind", kind.as_str()), ("source", source), ("visibility", visibility)];
        out.push(Sample {
            metric: Metric::UpstreamRequests,
            labels: with(base(run, first), &more),
            at: started,
            n: missing,
        });
    }
    retries(run, request, out);
    if request.outcome != RequestOutcome::Open {
        let ended = request.attempts.last().and_then(|a| a.ended_at.or(a.started_at)).or(turn.ended_at);
        let labels = with(base(run, request.attempts.last()), &[("outcome", request.outcome.as_str())]);
        out.push(Sample { metric: Metric::RequestOutcomes, labels, at: ended, n: 1 });
        let labels = narrow(run, first);
        out.push(Sample {
            metric: Metric::AttemptsPerRequest,
            labels,
            at: ended,
            n: request.upstream.bound.min,
        });
    }
}

/// Retries by layer, class and reason of the failure that led to them; and what happened in the waits.
fn retries(run: &Run, request: &LogicalRequest, out: &mut Vec<Sample>) {
    for (index, attempt) in request.attempts.iter().enumerate() {
        let next = request.attempts.get(index + 1);
        let hidden = attempt.sends.min.saturating_sub(1);
        let (class, reason) = class_of(attempt);
        let mut retry = |layer: &str, n: u64, at: Option<DateTime<Utc>>| {
            if n > 0 {
                let mut labels = base(run, Some(attempt));
                labels.extend([
                    ("layer", layer.into()),
                    ("class", class.clone()),
                    ("reason", reason.clone()),
                ]);
                out.push(Sample { metric: Metric::Retries, labels, at, n });
            }
        };
        retry("unknown", hidden, attempt.started_at.or(attempt.ended_at));
        if let Some(next) = next.filter(|next| next.kind == AttemptKind::Retry) {
            let layer = attempt.layer.or(next.layer).map_or("unknown", |layer| layer.as_str());
            let at = next.started_at.or(attempt.ended_at);
            retry(layer, next.sends.min.min(1), at);
        }
        if let Some(wait) = attempt.waited_ms.or(attempt.delay_ms) {
            out.push(Sample {
                metric: Metric::RetryDelay,
                labels: narrow(run, Some(attempt)),
                at: attempt.ended_at,
                n: wait,
            });
            out.push(Sample {
                metric: Metric::Waiting,
                labels: base(run, Some(attempt)),
                at: attempt.ended_at,
                n: wait,
            });
        }
        if let Some(verdict) = verdict(attempt, next) {
            let mut labels = narrow(run, Some(attempt));
            labels.push(("verdict", verdict.into()));
            out.push(Sample { metric: Metric::RetryAfter, labels, at: attempt.ended_at, n: 1 });
        }
        if let Some(next) = next.filter(|next| next.kind == AttemptKind::Fallback) {
            let name = |attempt: &Attempt| provider(run, Some(attempt));
            let kind = if name(attempt) != name(next) || attempt.candidate.model != next.candidate.model {
                "model"
            } else if attempt.candidate.transport != next.candidate.transport {
                "transport"
            } else if attempt.candidate.account != next.candidate.account {
                "credential"
            } else {
                "endpoint"
            };
            let labels = vec![
                ("agent", run.key.agent.clone()),
                ("kind", kind.into()),
                ("from_provider", name(attempt)),
                ("to_provider", name(next)),
                ("reason", reason.clone()),
            ];
            out.push(Sample { metric: Metric::Fallbacks, labels, at: next.started_at, n: 1 });
        }
    }
}

fn of_attempt(run: &Run, attempt: &Attempt, at: Option<DateTime<Utc>>, out: &mut Vec<Sample>) {
    if attempt.outcome != Some(AttemptOutcome::Failed) || attempt.sends.min == 0 {
        return;
    }
    let (class, reason) = class_of(attempt);
    let status = attempt
        .failure
        .as_ref()
        .and_then(|f| f.status)
        .map_or_else(|| "none".into(), |s| s.to_string().into());
    let mut labels = base(run, Some(attempt));
    labels.extend([("class", class), ("reason", reason), ("status", status)]);
    out.push(Sample {
        metric: Metric::AttemptFailures,
        labels,
        at: attempt.ended_at.or(at),
        n: attempt.sends.min,
    });
}

/// How the provider's stated wait was treated; `None` for an attempt that did not fail or was not repeated.
fn verdict(attempt: &Attempt, next: Option<&Attempt>) -> Option<&'static str> {
    let failure = attempt.failure.as_ref()?;
    let repeated = next.is_some_and(|next| next.kind == AttemptKind::Retry);
    match (failure.retry_after_ms, attempt.waited_ms.or(attempt.delay_ms)) {
        (Some(_), _) if !repeated => None,
        (Some(asked), Some(waited)) if waited + asked / 50 + 20 >= asked => Some("honoured"),
        // Cut to a round limit: 60 s and 300 s are the caps in use.
        (Some(_), Some(waited))
            if [60_000_u64, 300_000].iter().any(|cap| waited.abs_diff(*cap) <= cap / 20) =>
        {
            Some("capped")
        }
        (Some(_), Some(_)) => Some("early"),
        (Some(_), None) => Some("unknown"),
        (None, _) => None,
    }
}

fn class_of(attempt: &Attempt) -> (Arc<str>, Arc<str>) {
    match &attempt.failure {
        Some(failure) => (failure.class.as_str().into(), failure.reason.as_str().into()),
        None => ("unknown".into(), "no_detail".into()),
    }
}

/// Agent, provider and model.
fn base(run: &Run, attempt: Option<&Attempt>) -> Labels {
    let model = attempt
        .and_then(|a| a.candidate.model.as_deref())
        .or(run.facts.model.as_deref())
        .unwrap_or("unknown");
    let mut labels = narrow(run, attempt);
    labels.push(("model", model.into()));
    labels
}

/// Agent and provider.
fn narrow(run: &Run, attempt: Option<&Attempt>) -> Labels {
    vec![("agent", run.key.agent.clone()), ("provider", provider(run, attempt))]
}

fn provider(run: &Run, attempt: Option<&Attempt>) -> Arc<str> {
    attempt
        .and_then(|a| a.candidate.provider.as_deref())
        .or(run.facts.provider.as_deref())
        .unwrap_or("unknown")
        .into()
}

/// Maps with structured keys as lists of pairs, since JSON keys are texts.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(map.iter())
    }

    pub(super) fn deserialize<'de, K, V, D>(d: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(d)?.into_iter().collect())
    }
}
