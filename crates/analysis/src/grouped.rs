//! Runs added up by agent, provider, model or day, for a report. A run belongs to the provider and model that it asked
//! first; what a fallback cost stays with it.

use std::collections::BTreeMap;

use crate::count::Counts;
use crate::run::Run;

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
    /// Its name; `unknown` where the logs do not say.
    pub name: String,
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
    /// Waiting between attempts, in ms.
    pub waiting_ms: u64,
}

/// Returns the groups, by name.
pub fn grouped<'a>(runs: impl IntoIterator<Item = &'a Run>, by: By) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for run in runs {
        let name = name_of(run, by).unwrap_or_else(|| "unknown".to_owned());
        let group = groups.entry(name.clone()).or_insert_with(|| Group {
            name,
            runs: 0,
            failed: 0,
            not_countable: 0,
            counts: Counts::ZERO,
            countable: Counts::ZERO,
            background_counts: Counts::ZERO,
            waiting_ms: 0,
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
        group.waiting_ms += run.time.waiting_ms.unwrap_or(0);
    }
    groups.into_values().collect()
}

fn name_of(run: &Run, by: By) -> Option<String> {
    let first =
        || run.turns.iter().flat_map(|t| &t.requests).flat_map(|r| &r.attempts).map(|a| &a.candidate).next();
    match by {
        By::Agent => Some(run.key.agent.to_string()),
        By::Provider => run.facts.provider.clone().or_else(|| first()?.provider.clone()),
        By::Model => first().and_then(|c| c.model.clone()).or_else(|| run.facts.model.clone()),
        By::Day => run.started_at.map(|at| at.format("%Y-%m-%d").to_string()),
    }
}
