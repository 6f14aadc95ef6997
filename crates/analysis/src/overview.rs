//! Many runs at once: what was asked, what was sent, what was lost, who is out of quota, and what to change first.
//!
//! Not for: time series (see `totals`) or layout. Every number is a sum over [`Run`]s.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDateTime, Utc};
use retryscope_taxonomy::Class;

use crate::explain::remedies;
use crate::run::{Run, RunOutcome};
use crate::sums::Sums;

/// What one screen shows of many runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// What was asked, sent and waited.
    pub sums: Sums,
    /// Failed turns by class and reason, most first.
    pub killed_by: Vec<(String, usize)>,
    /// Runs that failed and whose error another try might have passed, without a single retry.
    pub unretried: usize,
    /// Accounts that are out of quota: provider, how it is said, and when it resets.
    pub exhausted: Vec<Exhausted>,
    /// Settings that would help most: agent, advice, and in how many runs.
    pub settings: Vec<(String, String, usize)>,
}

/// An account that is out of quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// Provider, as far as known.
    pub provider: String,
    /// Reason within the class.
    pub reason: String,
    /// When it resets, if the provider said so.
    pub reset_at: Option<DateTime<Utc>>,
    /// What a clock will show then, where the provider named no time zone.
    pub reset_clock: Option<NaiveDateTime>,
    /// When it was last said.
    pub seen_at: Option<DateTime<Utc>>,
}

/// Sums over runs.
pub fn overview(runs: &[&Run]) -> Overview {
    let mut killed: BTreeMap<String, usize> = BTreeMap::new();
    let mut settings: BTreeMap<(String, String, String), (usize, u64)> = BTreeMap::new();
    let mut exhausted: BTreeMap<(String, String), Exhausted> = BTreeMap::new();
    let mut unretried = 0;
    for run in runs {
        for turn in &run.turns {
            if turn.outcome == RunOutcome::Failed {
                let name = turn.cause.as_ref().map_or_else(
                    || "no error recorded".to_owned(),
                    |cause| {
                        format!(
                            "{} ({})",
                            cause.failure.class,
                            cause.failure.reason.as_str().replace('_', " ")
                        )
                    },
                );
                *killed.entry(name).or_default() += 1;
                let passable = turn.cause.as_ref().is_some_and(|cause| cause.failure.retryable);
                unretried += usize::from(passable && turn.counts.retries.bound.max == Some(0));
            }
            for attempt in turn.requests.iter().flat_map(|r| &r.attempts) {
                let Some(failure) = attempt.failure.as_ref().filter(|f| f.class == Class::Exhausted) else {
                    continue;
                };
                let provider = attempt.candidate.provider.clone().or_else(|| run.facts.provider.clone());
                let provider = provider.unwrap_or_else(|| format!("the provider of {}", run.key.agent));
                let seen = Exhausted {
                    provider: provider.clone(),
                    reason: failure.reason.as_str().replace('_', " "),
                    reset_at: failure.reset_at,
                    reset_clock: failure.reset_clock,
                    seen_at: attempt.ended_at.or(turn.ended_at),
                };
                let key = (provider, seen.reason.clone());
                if exhausted.get(&key).is_none_or(|known| known.seen_at < seen.seen_at) {
                    exhausted.insert(key, seen);
                }
            }
        }
        let Some(turn) = run.told_turn() else { continue };
        for remedy in remedies(run, turn, &[]) {
            if let Some(setting) = remedy.setting {
                // The advice without what it would have changed in one run.
                let key = (run.key.agent.to_string(), setting, remedy.text);
                let entry = settings.entry(key).or_default();
                entry.0 += 1;
                entry.1 += turn.time.lost_ms.unwrap_or(0) + turn.counts.retries.bound.min;
            }
        }
    }
    let mut killed_by: Vec<(String, usize)> = killed.into_iter().collect();
    killed_by.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), name.clone()));
    let mut settings: Vec<_> = settings.into_iter().collect();
    settings.sort_by_key(|(key, (n, weight))| (std::cmp::Reverse((*weight, *n)), key.clone()));
    let settings = settings.into_iter().take(3).map(|((agent, _, text), (n, _))| (agent, text, n)).collect();
    Overview {
        sums: Sums::of(runs.iter().copied()),
        killed_by,
        unretried,
        exhausted: exhausted.into_values().collect(),
        settings,
    }
}
