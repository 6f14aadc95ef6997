//! What follows from the runs themselves beside the counters: active and waiting runs, versions, resets, hidden requests,
//! budgets, findings.
//!
//! A run is boiled down once to what its gauges need ([`RunGauges`]), so that a scrape does not look at every run again.
//! Not for: counters (the totals) or names (the one table in [`crate::metrics`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_analysis::{
    Aliases, BudgetPolicy, Class, LogicalRequest, Run, RunOutcome, Totals, reset_from_ms, words::visible,
};

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

#[derive(Debug, Clone, Default, PartialEq)]
struct OfProvider {
    /// Requests beyond the visible ones: at least, and at most if there is a bound.
    hidden: (u64, Option<u64>),
    resets: Option<DateTime<Utc>>,
}

impl RunGauges {
    /// Returns what the gauges need of a run.
    pub fn of(run: &Run, aliases: &Aliases) -> Self {
        let last = run.turns.last().into_iter().flat_map(|turn| &turn.requests);
        let waits = last.filter_map(LogicalRequest::planned_wait).collect();
        let mut providers: Vec<(Arc<str>, OfProvider)> = Vec::new();
        for attempt in run.turns.iter().flat_map(|t| &t.requests).flat_map(|r| &r.attempts) {
            let name = visible(aliases.provider(run, Some(&attempt.candidate)));
            let place = providers.iter().position(|(known, _)| **known == *name).unwrap_or_else(|| {
                providers.reserve_exact(1);
                providers.push((name.as_str().into(), OfProvider { hidden: (0, Some(0)), resets: None }));
                providers.len() - 1
            });
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
struct OfAgent {
    active: f64,
    waiting: f64,
    longest: f64,
}

impl Extra {
    /// Adds the gauges of all runs.
    pub fn add_runs<'a>(&mut self, runs: impl Iterator<Item = &'a RunGauges>, now: DateTime<Utc>) {
        let mut agents: BTreeMap<&str, OfAgent> = BTreeMap::new();
        let mut versions: BTreeSet<(&str, &str)> = BTreeSet::new();
        let mut providers: BTreeMap<(&str, &str), OfProvider> = BTreeMap::new();
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
            versions.extend(run.version.as_deref().map(|version| (&*run.agent, version)));
            for (provider, of) in &run.providers {
                let known = providers
                    .entry((&run.agent, provider))
                    .or_insert_with(|| OfProvider { hidden: (0, Some(0)), resets: None });
                known.hidden.0 += of.hidden.0;
                known.hidden.1 = known.hidden.1.zip(of.hidden.1).map(|(a, b)| a + b);
                known.resets = known.resets.max(of.resets);
            }
        }
        for (agent, of) in agents {
            self.add("retryscope_runs_active", &[agent], of.active);
            self.add("retryscope_runs_waiting", &[agent], of.waiting);
            self.add("retryscope_longest_wait_seconds", &[agent], of.longest);
        }
        for (agent, version) in versions {
            self.add("retryscope_agent_info", &[agent, version], 1.0);
        }
        #[expect(clippy::cast_precision_loss, reason = "counts and seconds are far below 2^52")]
        for ((agent, provider), of) in providers {
            if let Some(at) = of.resets {
                let labels = [agent, provider];
                self.add("retryscope_quota_reset_timestamp_seconds", &labels, at.timestamp() as f64);
            }
            let (min, max) = of.hidden;
            self.add("retryscope_hidden_requests_estimate", &[agent, provider, "min"], min as f64);
            if let Some(max) = max {
                self.add("retryscope_hidden_requests_estimate", &[agent, provider, "max"], max as f64);
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
