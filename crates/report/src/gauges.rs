//! What follows from the runs themselves beside the counters: active and waiting runs, versions, resets, hidden requests,
//! budgets, findings.
//!
//! A run is boiled down once to what its gauges need ([`RunGauges`]), so that a scrape does not look at every run again.
//! Not for: counters (the totals) or names (the one table in [`crate::metrics`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_analysis::{
    Aliases, BudgetPolicy, Class, Folding, LogicalRequest, Run, RunOutcome, Totals, reset_from_ms,
    words::visible,
};
use retryscope_events::Candidate;

use crate::metrics::Extra;

/// What the gauges need of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunGauges {
    agent: Arc<str>,
    version: Option<Arc<str>>,
    /// Whether it was running when it was last looked at.
    pub is_running: bool,
    /// When something last happened in it.
    pub last_at: Option<DateTime<Utc>>,
    /// Whether its last turn has ended.
    pub is_over: bool,
    /// Logical requests, as a measure of the memory it takes.
    pub requests: usize,
    /// Since when its open requests wait, and until when.
    waits: Vec<(DateTime<Utc>, DateTime<Utc>)>,
    providers: Vec<(Arc<str>, OfProvider)>,
}

#[derive(Debug, Clone, PartialEq)]
struct OfProvider {
    /// Requests beyond the visible ones: at least, and at most if there is a bound.
    hidden: (u64, Option<u64>),
    resets: Option<DateTime<Utc>>,
}

impl Default for OfProvider {
    fn default() -> Self {
        Self { hidden: (0, Some(0)), resets: None }
    }
}

impl OfProvider {
    fn add(&mut self, other: &Self) {
        self.hidden.0 += other.hidden.0;
        self.hidden.1 = self.hidden.1.zip(other.hidden.1).map(|(a, b)| a + b);
        self.resets = self.resets.max(other.resets);
    }
}

impl RunGauges {
    /// Returns what the gauges need of a run.
    pub fn of(run: &Run, aliases: &Aliases) -> Self {
        let last = run.turns.last().into_iter().flat_map(|turn| &turn.requests);
        let waits = last.filter_map(LogicalRequest::planned_wait).collect();
        let mut providers: Vec<(Arc<str>, OfProvider)> = Vec::new();
        let mut last: Option<(&Arc<Candidate>, usize)> = None;
        for attempt in run.turns.iter().flat_map(|t| &t.requests).flat_map(|r| &r.attempts) {
            let candidate = &attempt.candidate;
            let same = last.filter(|(last, _)| Arc::ptr_eq(last, candidate)).map(|(_, place)| place);
            let place = same.unwrap_or_else(|| {
                let name = visible(aliases.provider(run, Some(candidate)));
                providers.iter().position(|(known, _)| **known == *name).unwrap_or_else(|| {
                    providers.reserve_exact(1);
                    providers.push((name.as_str().into(), OfProvider::default()));
                    providers.len() - 1
                })
            });
            last = Some((candidate, place));
            let known = &mut providers[place].1;
            known.hidden.0 += attempt.sends.min.saturating_sub(1);
            known.hidden.1 = known.hidden.1.zip(attempt.sends.max).map(|(a, b)| a + b.saturating_sub(1));
            let failure = attempt.failure.as_ref().filter(|f| f.class == Class::Exhausted);
            let resets = failure.and_then(|f| {
                let wait = f.retry_after_ms.filter(|ms| *ms >= reset_from_ms(f.class, f.reason));
                f.reset_at.or_else(|| attempt.after_end(wait))
            });
            known.resets = known.resets.max(resets);
        }
        Self {
            agent: visible(&run.key.agent).into(),
            version: run.facts.agent_version.as_deref().map(|version| visible(version).into()),
            is_running: run.outcome == RunOutcome::Running,
            last_at: run.ended_at,
            is_over: matches!(
                run.outcome,
                RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled
            ),
            requests: run.turns.iter().map(|turn| turn.requests.len()).sum(),
            waits,
            providers,
        }
    }
}

#[derive(Default)]
struct OfAgent<'a> {
    active: f64,
    waiting: f64,
    longest: f64,
    /// When each version ran last.
    versions: BTreeMap<&'a str, Option<DateTime<Utc>>>,
    providers: BTreeMap<&'a str, OfProvider>,
}

impl<'a> OfAgent<'a> {
    /// Adds another agent, but for its providers.
    fn add(&mut self, other: OfAgent<'a>) {
        self.active += other.active;
        self.waiting += other.waiting;
        self.longest = self.longest.max(other.longest);
        for (version, at) in other.versions {
            let last = self.versions.entry(version).or_default();
            *last = (*last).max(at);
        }
    }
}

impl Extra {
    /// Adds the gauges of all runs.
    ///
    /// Names are folded as in the counters, so that a log that makes up names makes no series without end.
    pub fn add_runs<'a>(
        &mut self,
        runs: impl Iterator<Item = &'a RunGauges>,
        totals: &Totals,
        now: DateTime<Utc>,
    ) {
        let mut agents: BTreeMap<&str, OfAgent<'_>> = BTreeMap::new();
        for run in runs {
            let agent = agents.entry(&run.agent).or_default();
            if run.is_running {
                agent.active += 1.0;
                let waiting = run.waits.iter().filter(|(_, until)| *until > now);
                if let Some(since) = waiting.map(|(since, _)| *since).min() {
                    agent.waiting += 1.0;
                    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a wait")]
                    let seconds = (now - since).num_milliseconds().max(0) as f64 / 1e3;
                    agent.longest = agent.longest.max(seconds);
                }
            }
            if let Some(version) = run.version.as_deref() {
                let last = agent.versions.entry(version).or_default();
                *last = (*last).max(run.last_at);
            }
            for (provider, of) in &run.providers {
                agent.providers.entry(provider).or_default().add(of);
            }
        }
        let mut folding = totals.folding();
        let mut shown: BTreeMap<Arc<str>, OfAgent<'_>> = BTreeMap::new();
        let mut providers: BTreeMap<(Arc<str>, Arc<str>), OfProvider> = BTreeMap::new();
        for (agent, of) in agents {
            for (provider, of) in &of.providers {
                providers.entry(folding.provider(agent, provider)).or_default().add(of);
            }
            shown.entry(folding.agent(agent)).or_default().add(of);
        }
        for (agent, of) in shown {
            self.add("retryscope_runs_active", &[&agent], of.active);
            self.add("retryscope_runs_waiting", &[&agent], of.waiting);
            self.add("retryscope_longest_wait_seconds", &[&agent], of.longest);
            for version in Folding::versions(of.versions) {
                self.add("retryscope_agent_info", &[&agent, version], 1.0);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "counts and seconds are far below 2^52")]
        for ((agent, provider), of) in providers {
            if let Some(at) = of.resets {
                let labels = [&*agent, &*provider];
                self.add("retryscope_quota_reset_timestamp_seconds", &labels, at.timestamp() as f64);
            }
            let (min, max) = of.hidden;
            self.add("retryscope_hidden_requests_estimate", &[&agent, &provider, "min"], min as f64);
            if let Some(max) = max {
                self.add("retryscope_hidden_requests_estimate", &[&agent, &provider, "max"], max as f64);
            }
        }
    }

    /// Adds how many runs broke each rule.
    pub fn add_findings(&mut self, totals: &Totals) {
        for (agent, rule, n) in totals.findings() {
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            self.add("retryscope_audit_findings_total", &[agent, rule], n as f64);
        }
    }

    /// Adds the state of every budget.
    pub fn add_budgets(&mut self, totals: &Totals, policy: BudgetPolicy, now: DateTime<Utc>) {
        for state in totals.budget().states(now, policy) {
            let labels = [state.scope.kind.as_str(), state.scope.name.as_str(), state.window];
            self.add("retryscope_retry_budget_limit_ratio", &labels, state.limit);
            self.add("retryscope_retry_budget_used_ratio", &labels, state.ratio);
        }
    }
}
