//! Runs added up by agent, provider, model or day, for a report. A run belongs to the provider and model that it asked
//! first; what a fallback cost stays with it.

use std::collections::BTreeMap;

use crate::count::Counts;
use crate::run::Run;
use crate::waits::Waits;

/// What to group by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The agent.
    Agent,
    /// The provider that was asked first.
    Provider,
    /// The model that was asked first.
    Model,
    /// Day of the start, UTC.
    Day,
}

/// The sum of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its names, one for each thing grouped by; `unknown` where the logs do not say.
    pub keys: Vec<String>,
    /// Runs in it.
    pub runs: usize,
    /// Runs with a failed turn.
    pub failed: usize,
    /// Runs whose ratios cannot be told ([`Counts::is_countable`]); the sums hold what is visible of them.
    pub not_countable: usize,
    /// Foreground counts.
    pub counts: Counts,
    /// Foreground counts of the runs whose ratios can be told.
    pub countable: Counts,
    /// Counts of side calls.
    pub background_counts: Counts,
    /// Waiting between attempts, in ms; `None` where no log tells any.
    pub waiting_ms: Option<u64>,
    /// Waiting, and the duration of failed attempts, in ms; `None` where no log tells any.
    pub lost_ms: Option<u64>,
    /// How long single waits were.
    pub waits: Waits,
}

/// Returns the groups, those that lost the most time first. Each run is in one.
pub fn grouped<'a>(runs: impl IntoIterator<Item = &'a Run>, by: &[By]) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    for run in runs {
        let keys: Vec<String> =
            by.iter().map(|by| name_of(run, *by).unwrap_or_else(|| "unknown".to_owned())).collect();
        let group = groups.entry(keys.clone()).or_insert_with(|| Group {
            keys,
            runs: 0,
            failed: 0,
            not_countable: 0,
            counts: Counts::ZERO,
            countable: Counts::ZERO,
            background_counts: Counts::ZERO,
            waiting_ms: None,
            lost_ms: None,
            waits: Waits::default(),
        });
        group.runs += 1;
        group.failed += usize::from(run.failed_turns() > 0);
        if run.counts.is_countable() {
            group.countable = group.countable.plus(&run.counts);
        } else {
            group.not_countable += 1;
        }
        group.counts = group.counts.plus(&run.counts);
        group.background_counts = group.background_counts.plus(&run.background_counts);
        group.waits.add(run);
        if let Some(waiting) = run.time.waiting_ms {
            *group.waiting_ms.get_or_insert(0) += waiting;
        }
        if let Some(lost) = run.time.lost_ms {
            *group.lost_ms.get_or_insert(0) += lost;
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    if !by.contains(&By::Day) {
        groups.sort_by_key(|group| std::cmp::Reverse((group.lost_ms, group.counts.retries.bound.min)));
    }
    groups
}

pub(crate) fn name_of(run: &Run, by: By) -> Option<String> {
    let first =
        || run.turns.iter().flat_map(|t| &t.requests).flat_map(|r| &r.attempts).map(|a| &a.candidate).next();
    match by {
        By::Agent => Some(run.key.agent.to_string()),
        By::Provider => run.facts.provider.clone().or_else(|| first()?.provider.clone()),
        By::Model => first().and_then(|c| c.model.clone()).or_else(|| run.facts.model.clone()),
        By::Day => run.started_at.map(|at| at.format("%Y-%m-%d").to_string()),
    }
}
