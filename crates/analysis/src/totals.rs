//! Runs to counters: what `/metrics` and `report --format prom` show.
//!
//! Counters hold lower bounds and never fall. A run may be added again and again while it grows: only what is new since
//! the last time is counted, and what a later reading takes back is noted as a revision. Not for: metric names and help
//! texts (the `report` crate has the one table).

mod keys;
mod labels;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_record::RunKey;
use serde::{Deserialize, Serialize};

use self::keys::{Bases, Names, SeriesId, Table};
pub use self::labels::{Aliases, Labels};
use self::labels::{Seen, known_in_advance};
use self::samples::{Sample, samples};
use crate::budget::{Budget, Scope};
use crate::rules::{self, HeldTo, Verdict};
use crate::run::{Run, RunOutcome};

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

/// Most series of run metrics, unless told otherwise.
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

/// What one run has added: by series without arrival.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Added {
    series: Vec<(SeriesId, u64)>,
    /// How much of it later readings took back.
    taken_back: u64,
    /// Rules that it was found to break.
    #[serde(default)]
    broken: BTreeSet<String>,
}

impl Added {
    fn of(&self, series: SeriesId) -> u64 {
        self.series.iter().find(|(id, _)| *id == series).map_or(0, |(_, n)| *n)
    }

    fn grow(&mut self, series: SeriesId, n: u64) {
        match self.series.iter_mut().find(|(id, _)| *id == series) {
            Some((_, known)) => *known += n,
            None => self.series.push((series, n)),
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

/// What a later reading took back of one series.
struct Fall {
    series: SeriesId,
    left: u64,
}

/// What is new of one series.
struct Growth {
    series: SeriesId,
    /// Where its samples stand in [`BySeries`].
    place: usize,
    left: u64,
}

/// The samples of one run by series. Its memory is used again for the next run.
#[derive(Debug, Clone, Default)]
struct BySeries {
    /// Where in `samples` those of a series stand, by its number.
    places: Vec<Option<usize>>,
    samples: Vec<(SeriesId, Vec<Sample>)>,
    /// Emptied lists.
    spare: Vec<Vec<Sample>>,
}

impl BySeries {
    fn push(&mut self, series: SeriesId, sample: Sample) {
        if self.places.len() <= series.index() {
            self.places.resize(series.index() + 1, None);
        }
        let place = *self.places[series.index()].get_or_insert_with(|| {
            self.samples.push((series, self.spare.pop().unwrap_or_default()));
            self.samples.len() - 1
        });
        self.samples[place].1.push(sample);
    }

    fn of(&self, series: SeriesId) -> &[Sample] {
        let place = self.places.get(series.index()).copied().flatten();
        place.map_or(&[], |place| &self.samples[place].1)
    }

    fn clear(&mut self) {
        for (series, mut samples) in self.samples.drain(..) {
            self.places[series.index()] = None;
            samples.clear();
            // What one large run needed is not kept for ever.
            if samples.capacity() <= 1_024 {
                self.spare.push(samples);
            }
        }
    }
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

    /// Adds a run as it is known now, or what is new in it since the last time.
    ///
    /// A later record may change a label of what was counted (a model that was not known yet, a failure that is explained
    /// later). It is not counted again: of each metric, a run adds no more than it has in all.
    pub fn add(&mut self, run: &Run, now: DateTime<Utc>) {
        if self.table.forget_keys() {
            self.names = Names::default();
        }
        let mut by_series = std::mem::take(&mut self.scratch);
        {
            let Self { table, seen, names, aliases, .. } = self;
            samples(run, Bases::new(names, run, aliases), |names, key, sample| {
                by_series.push(table.find(key, names, seen), sample);
            });
        }
        let mut added = self.added.remove(&run.key).unwrap_or_default();
        let mut fallen: BTreeMap<Metric, Vec<Fall>> = BTreeMap::new();
        let mut growths: BTreeMap<Metric, Vec<Growth>> = BTreeMap::new();
        for (series, known) in &added.series {
            let metric = self.table.series(*series).metric;
            let total = total_of(metric, by_series.of(*series));
            if total < *known {
                fallen.entry(metric).or_default().push(Fall { series: *series, left: known - total });
            }
        }
        let mut order: Vec<usize> = (0..by_series.samples.len()).collect();
        order.sort_unstable_by_key(|place| self.table.series(by_series.samples[*place].0));
        for place in order {
            let (series, samples) = &mut by_series.samples[place];
            let metric = self.table.series(*series).metric;
            let known = added.of(*series);
            let left = total_of(metric, samples).saturating_sub(known);
            if left > 0 {
                growths.entry(metric).or_default().push(Growth { series: *series, place, left });
            }
        }
        let sum = |falls: &[Fall]| falls.iter().map(|fall| fall.left).sum::<u64>();
        // Waits are sums of time, not counts.
        let is_count = |metric: &Metric| !matches!(metric, Metric::Waiting | Metric::Sent);
        let taken_back = fallen.iter().filter(|(m, _)| is_count(m)).map(|(_, falls)| sum(falls)).sum();
        for (metric, mut growths) in growths {
            let falls = fallen.entry(metric).or_default();
            self.match_renamed(falls, &mut growths);
            let grown: u64 = growths.iter().map(|growth| growth.left).sum();
            let allowed = grown.saturating_sub(sum(falls));
            self.grow(metric, growths, &mut by_series, allowed, &mut added, now);
        }
        by_series.clear();
        self.scratch = by_series;
        self.revisions += u64::saturating_sub(taken_back, added.taken_back);
        added.taken_back = added.taken_back.max(taken_back);
        self.look_for_findings(run, &mut added);
        self.added.insert(run.key.clone(), added);
    }

    /// Takes out what fell in one series and grew in another that says the same of somebody else: it is known better by now
    /// who was asked, or how much of it the log shows, and it has been counted.
    fn match_renamed(&self, falls: &mut [Fall], growths: &mut [Growth]) {
        for fall in falls {
            let labels = &self.table.series(fall.series).labels;
            for growth in growths.iter_mut() {
                let moved = fall.left.min(growth.left);
                if moved > 0 && labels.say_the_same(&self.table.series(growth.series).labels) {
                    fall.left -= moved;
                    growth.left -= moved;
                }
            }
        }
    }

    /// Counts each rule that a run breaks, once. A run that goes on is not judged: what is missing may still come.
    fn look_for_findings(&mut self, run: &Run, added: &mut Added) {
        if !matches!(run.outcome, RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled) {
            return;
        }
        let asked = rules::Asked::all(self.held_to.as_deref());
        for finding in rules::audit_run(run, Vec::new(), &asked) {
            if finding.verdict == Verdict::Violation && added.broken.insert(finding.rule.to_owned()) {
                let key = (run.key.agent.to_string(), finding.rule.to_owned());
                *self.findings.entry(key).or_default() += 1;
            }
        }
    }

    /// Returns how many runs broke a rule, by agent and rule.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.findings.iter().map(|((agent, rule), n)| (agent.as_str(), rule.as_str(), *n))
    }

    /// Counts what is new, at most `allowed` of it.
    fn grow(
        &mut self,
        metric: Metric,
        growths: Vec<Growth>,
        by_series: &mut BySeries,
        mut allowed: u64,
        added: &mut Added,
        now: DateTime<Utc>,
    ) {
        for Growth { series: id, place, mut left } in growths {
            let samples = &mut by_series.samples[place].1;
            // The newest are the new ones; without times, the last. Where all are new the order does not matter.
            if left.min(allowed) < total_of(metric, samples) {
                samples.reverse();
                samples.sort_by_key(|sample| std::cmp::Reverse(sample.at));
            }
            let series = self.table.series(id).clone();
            // Those that are counted alike are counted together.
            let mut alike: Option<(Sample, u64)> = None;
            let mut counted = 0;
            for sample in samples.iter().copied() {
                let n = if is_histogram(metric) { 1 } else { sample.n };
                let n = n.min(left).min(allowed);
                if left == 0 || allowed == 0 {
                    break;
                }
                if n == 0 {
                    continue;
                }
                if is_histogram(metric) {
                    self.observe(&series, sample.n);
                } else if let Some((first, sum)) = &mut alike
                    && is_alike(metric, first, &sample, now)
                {
                    *sum += n;
                } else if let Some((first, sum)) = alike.replace((sample, n)) {
                    self.count(&series, &first, sum, now);
                }
                left -= n;
                allowed -= n;
                counted += n;
            }
            if let Some((first, sum)) = alike {
                self.count(&series, &first, sum, now);
            }
            if counted > 0 {
                added.grow(id, counted);
            }
        }
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
        if series.metric == Metric::Sent {
            self.spend(&series.labels, sample.at, n);
            return;
        }
        let mut series = series.clone();
        if has_arrival(series.metric) {
            let arrival = if is_late(sample, now) { "late" } else { "live" };
            series.labels = series.labels.with("arrival", arrival);
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

    fn spend(&mut self, labels: &Labels, at: Option<DateTime<Utc>>, n: u64) {
        let Some(at) = at else { return };
        let label = |name: &str| labels.get(name).unwrap_or_default();
        let retries = if label("kind") == "retry" { n } else { 0 };
        let scopes =
            [Scope::global(), Scope::of("provider", label("provider")), Scope::of("agent", label("agent"))];
        for scope in &scopes {
            self.budget.add(scope, at, n, retries);
        }
    }

    /// Returns the series, or one with folded labels if there are too many. Those that stand at 0 give way first.
    fn within_limit(&mut self, mut series: Series) -> Series {
        for name in ["model", "provider"] {
            if self.counters.len() < self.limit || self.counters.contains_key(&series) {
                return series;
            }
            self.counters.retain(|_, n| *n > 0);
            if self.counters.len() < self.limit {
                return series;
            }
            self.seen.folded += 1;
            if series.labels.get(name).is_some() {
                series.labels = series.labels.with(name, "other");
            }
        }
        series
    }

    /// Makes the series at 0 that a first failure of this agent, provider and model will need.
    fn prepare(&mut self, of: &Labels) {
        let label = |name: &str| of.get(name).unwrap_or_default();
        let base: labels::Pairs =
            ["agent", "provider", "model"].into_iter().map(|name| (name, Arc::from(label(name)))).collect();
        let base = Labels::new(base);
        let mut known = Vec::new();
        if !self.prepared.contains(&base) {
            known = known_in_advance(label("agent"), &base);
            self.prepared.insert(base);
        }
        for kind in ["original", "retry", "fallback"] {
            let labels = of.with("kind", kind).with("arrival", "live");
            known.push(Series { metric: Metric::UpstreamRequests, labels });
        }
        if self.counters.len() + known.len() <= self.limit {
            for series in known {
                self.counters.entry(series).or_default();
            }
        }
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

fn is_late(sample: &Sample, now: DateTime<Utc>) -> bool {
    sample.at.is_some_and(|at| now - at > LATE_AFTER)
}

/// Returns whether two samples of a series are counted in one place: the minute of a budget, or a counter.
fn is_alike(metric: Metric, a: &Sample, b: &Sample, now: DateTime<Utc>) -> bool {
    if metric == Metric::Sent {
        let minute = |sample: &Sample| sample.at.map(Budget::minute);
        minute(a) == minute(b)
    } else {
        !has_arrival(metric) || is_late(a, now) == is_late(b, now)
    }
}

fn total_of(metric: Metric, samples: &[Sample]) -> u64 {
    if is_histogram(metric) { samples.len() as u64 } else { samples.iter().map(|sample| sample.n).sum() }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use retryscope_events::{Candidate, Event, ModelRequest, ModelResponse, ModelRetry};
    use retryscope_record::{Item, Origin, Place, SourceId, View};

    use super::*;
    use crate::engine::{AsOf, Engine};

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(second)
    }

    /// A run of one request that is sent again after each of these waits.
    fn said(engine: &mut Engine, request: &str, from: i64, waits: &[u64]) {
        let mut events = vec![Event::new("r", at(from), ModelRequest::new().request_id(request))];
        for (index, wait) in waits.iter().enumerate() {
            let body = ModelRetry::new().request_id(request).status(503_u16).delay_ms(*wait).waited_ms(*wait);
            events.push(Event::new("r", at(from + 1 + i64::try_from(index).unwrap_or(0)), body));
        }
        events.push(Event::new("r", at(from + 9), ModelResponse::new().request_id(request)));
        for event in events {
            say(engine, event);
        }
    }

    fn count(engine: &Engine, totals: &mut Totals) {
        let sources = BTreeMap::new();
        for run in engine.runs(&AsOf { now: at(60), sources: &sources }) {
            totals.add(&run, at(60));
        }
    }

    fn sum(totals: &Totals, metric: Metric) -> u64 {
        totals.counters_of(metric).map(|(_, n)| n).sum()
    }

    fn say(engine: &mut Engine, event: Event) {
        let origin = Origin { source: SourceId(0), place: Place::Line(1) };
        engine.apply(View::EVENTS, origin, &Item::Event(Box::new(event.agent("demo")), None));
    }

    #[test]
    fn a_request_counts_for_its_provider_before_anything_answers() {
        let (mut engine, mut totals) = (Engine::new(), Totals::default());
        let asked = ModelRequest::new().request_id("q").candidate(Candidate::new("acme", "m"));
        say(&mut engine, Event::new("r", at(0), asked));
        count(&engine, &mut totals);
        let answered =
            ModelResponse::new().request_id("q").candidate(Candidate::new("acme", "m")).attempts(3_u64);
        say(&mut engine, Event::new("r", at(5), answered));
        count(&engine, &mut totals);
        let by_provider = |metric, provider| {
            let of = |labels: &&Labels| labels.get("provider") == Some(provider);
            totals.counters_of(metric).filter(|(labels, _)| of(labels)).map(|(_, n)| n).sum::<u64>()
        };
        for (metric, n) in [(Metric::LogicalRequests, 1), (Metric::UpstreamRequests, 3), (Metric::Retries, 2)]
        {
            assert_eq!(by_provider(metric, "acme"), n, "{metric:?}");
            assert_eq!(by_provider(metric, "unknown"), 0, "{metric:?}");
        }
        assert_eq!(totals.revisions(), 0);
        let outcomes = totals.counters_of(Metric::RequestOutcomes).find(|(_, n)| *n > 0);
        assert_eq!(outcomes.and_then(|(labels, _)| labels.get("outcome")), Some("ok_after_retry"));
    }

    #[test]
    fn a_wait_of_nothing_hides_no_other() {
        let (mut engine, mut totals) = (Engine::new(), Totals::default());
        said(&mut engine, "q", 0, &[100, 50, 0]);
        count(&engine, &mut totals);
        assert_eq!(sum(&totals, Metric::Waiting), 150);
        assert_eq!(
            totals.histograms().find(|(s, _)| s.metric == Metric::RetryDelay).map(|(_, h)| h.count),
            Some(3)
        );
    }

    #[test]
    fn a_run_that_grows_is_counted_once_also_after_a_restart() {
        let (mut engine, mut totals) = (Engine::new(), Totals::default());
        said(&mut engine, "q", 0, &[100]);
        count(&engine, &mut totals);
        count(&engine, &mut totals);
        let text = serde_json::to_string(&totals).unwrap_or_default();
        let mut restored: Totals = serde_json::from_str(&text).unwrap_or_default();
        said(&mut engine, "q2", 20, &[10, 20]);
        for totals in [&mut totals, &mut restored] {
            count(&engine, totals);
            assert_eq!(sum(totals, Metric::LogicalRequests), 2);
            assert_eq!(sum(totals, Metric::UpstreamRequests), 5);
            assert_eq!(sum(totals, Metric::Retries), 3);
            assert_eq!(sum(totals, Metric::Waiting), 130);
        }
    }
}
