//! Runs to counters: what `/metrics` and `report --format prom` show.
//!
//! Counters hold lower bounds and never fall. A run may be added again and again while it grows: only what is new since
//! the last time is counted, and what a later reading takes back is noted as a revision. Not for: metric names and help
//! texts (the `report` crate has the one table).

mod growth;
mod keys;
mod labels;
mod limit;
mod samples;
mod shown;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_record::RunKey;
use serde::{Deserialize, Serialize};

use self::growth::{Added, BySeries, CountedIn};
use self::keys::{Names, Table};
use self::labels::Seen;
pub use self::labels::{Aliases, Folding, Labels};
use crate::budget::{Budget, Scope};
use crate::pairs;
use crate::rules::{self, HeldTo, Verdict};
use crate::run::{Run, RunOutcome};
use crate::words::visible;

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
    /// Requests as the budget counts them; not shown.
    Sent,
}

/// Events older than this when they are read are `late`.
pub const LATE_AFTER: TimeDelta = TimeDelta::minutes(10);

/// Upper bounds of the attempts histogram.
pub const ATTEMPT_BUCKETS: &[u64] = &[1, 2, 3, 5, 11, 30, 132];

/// Upper bounds of the delay histogram, in ms: 0.1 s to 10 min, close around usual Retry-After values.
pub const DELAY_BUCKETS: &[u64] =
    &[100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000];

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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Totals {
    #[serde(with = "pairs")]
    counters: BTreeMap<Series, u64>,
    #[serde(with = "pairs")]
    histograms: BTreeMap<Series, Histogram>,
    /// The series that runs have added to.
    table: Table,
    #[serde(skip)]
    names: Names,
    #[serde(skip)]
    scratch: BySeries,
    /// What each run has added so far.
    #[serde(with = "pairs")]
    added: BTreeMap<RunKey, Added>,
    /// Runs that broke a rule, by agent and rule.
    #[serde(default, with = "pairs")]
    findings: BTreeMap<(String, String), u64>,
    revisions: u64,
    budget: Budget,
    seen: Seen,
    /// Agents, providers and models whose series are known in advance.
    prepared: BTreeSet<Labels>,
    #[serde(skip, default = "default_limit")]
    limit: usize,
    #[serde(skip)]
    aliases: Aliases,
    #[serde(skip)]
    held_to: Option<Box<HeldTo>>,
}

/// Most series of run metrics that tell who was asked, unless told otherwise.
pub const DEFAULT_MAX_SERIES: usize = 2_000;

fn default_limit() -> usize {
    DEFAULT_MAX_SERIES
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            counters: BTreeMap::new(),
            histograms: BTreeMap::new(),
            table: Table::default(),
            names: Names::default(),
            scratch: BySeries::default(),
            added: BTreeMap::new(),
            findings: BTreeMap::new(),
            revisions: 0,
            budget: Budget::default(),
            seen: Seen::default(),
            prepared: BTreeSet::new(),
            limit: default_limit(),
            aliases: Aliases::default(),
            held_to: None,
        }
    }
}

/// Metric and labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Series {
    /// The metric.
    pub metric: Metric,
    /// Its labels.
    pub labels: Labels,
}

impl Totals {
    /// Returns the totals of runs that were all read at `now`.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>, now: DateTime<Utc>) -> Self {
        let mut totals = Totals::default();
        for run in runs {
            totals.add(run, now);
        }
        totals
    }

    /// Sets the most series of run metrics, and the names of providers.
    pub fn configure(&mut self, limit: usize, aliases: Aliases) {
        self.limit = limit;
        self.aliases = aliases;
    }

    /// Sets the policy that runs are held to in what they are found to break.
    pub fn hold_to(&mut self, policy: Option<HeldTo>) {
        self.held_to = policy.map(Box::new);
    }

    /// Returns the names of providers.
    pub fn aliases(&self) -> &Aliases {
        &self.aliases
    }

    /// Counts each rule that a run breaks, once. A run that goes on is not judged: what is missing may still come.
    fn look_for_findings(&mut self, run: &Run, added: &mut Added) {
        if !matches!(run.outcome, RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled) {
            return;
        }
        let asked = rules::Asked::all(self.held_to.as_deref());
        for finding in rules::audit_run(run, &[], &asked) {
            if finding.verdict == Verdict::Violation && added.broken.insert(finding.rule.to_owned()) {
                let key = (self.seen.agent(&visible(&run.key.agent)), finding.rule.to_owned());
                *self.findings.entry(key).or_default() += 1;
            }
        }
    }

    /// Returns how many runs broke a rule, by agent and rule.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.findings.iter().map(|((agent, rule), n)| (agent.as_str(), rule.as_str(), *n))
    }

    /// Returns how names are folded that are shown beside the counters.
    pub fn folding(&self) -> Folding {
        self.seen.folding()
    }

    /// Forgets what a run has added, so that it takes no memory; its counts stay. Only for runs that cannot grow any more.
    pub fn settle(&mut self, key: &RunKey) {
        self.added.remove(key);
    }

    /// Returns the counters in order.
    pub fn counters(&self) -> impl Iterator<Item = (&Series, u64)> {
        self.counters.iter().map(|(series, n)| (series, *n))
    }

    /// Returns the counters of one metric in order.
    pub fn counters_of(&self, metric: Metric) -> impl Iterator<Item = (&Labels, u64)> {
        let first = Series { metric, labels: Labels::default() };
        let from = self.counters.range(first..).take_while(move |(series, _)| series.metric == metric);
        from.map(|(series, n)| (&series.labels, *n))
    }

    /// Returns the histograms in order.
    pub fn histograms(&self) -> impl Iterator<Item = (&Series, &Histogram)> {
        self.histograms.iter()
    }

    /// Returns how many series there are; a histogram is one.
    pub fn series(&self) -> usize {
        self.counters.len() + self.histograms.len()
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

    fn count(&mut self, series: &Series, place: CountedIn, n: u64) {
        let mut series = series.clone();
        match place {
            CountedIn::Minute(minute) => return self.spend(&series.labels, minute, n),
            CountedIn::Arrived { late } => {
                series.labels = series.labels.with("arrival", if late { "late" } else { "live" });
            }
            CountedIn::Counter => {}
        }
        if let Some(known) = self.counters.get_mut(&series) {
            *known += n;
            return;
        }
        let series = self.within_limit(series);
        *self.counters.entry(series.clone()).or_default() += n;
        if series.metric == Metric::LogicalRequests {
            self.prepare(&series.labels);
        }
    }

    fn spend(&mut self, labels: &Labels, minute: Option<i64>, n: u64) {
        let Some(minute) = minute else { return };
        let label = |name: &str| labels.get(name).unwrap_or_default();
        let retries = if label("kind") == "retry" { n } else { 0 };
        let scopes =
            [Scope::global(), Scope::of("provider", label("provider")), Scope::of("agent", label("agent"))];
        let account = labels.get("account").map(|account| Scope::of("account", account));
        for scope in scopes.iter().chain(&account) {
            self.budget.add(scope, minute, n, retries);
        }
    }

    /// Counts a value in its bucket, so many times; what it adds to the sum is known apart from that.
    fn observe(&mut self, series: &Series, value: u64, times: u64) {
        let bounds = bounds_of(series.metric);
        let series = self.within_limit(series.clone());
        let histogram = self.histograms.entry(series).or_default();
        histogram.buckets.resize(bounds.len(), 0);
        if let Some(known) = histogram.buckets.get_mut(bucket_of(bounds, value)) {
            *known += times;
        }
        histogram.count += times;
    }
}

fn bounds_of(metric: Metric) -> &'static [u64] {
    if metric == Metric::RetryDelay { DELAY_BUCKETS } else { ATTEMPT_BUCKETS }
}

/// Returns the bucket of a value; the number of bounds for one beyond them all.
fn bucket_of(bounds: &[u64], value: u64) -> usize {
    bounds.partition_point(|bound| *bound < value)
}

fn is_histogram(metric: Metric) -> bool {
    matches!(metric, Metric::AttemptsPerRequest | Metric::RetryDelay)
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

#[cfg(test)]
mod tests;
