//! Runs added up by agent, provider, model or day, for a report. A run belongs to the provider and model that it asked
//! first; what a fallback cost stays with it.

use std::collections::BTreeMap;

use crate::run::Run;
use crate::sums::Sums;

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
    /// Its sum.
    pub sums: Sums,
}

/// Returns the groups, those that lost the most time first. Each run is in one.
pub fn grouped<'a>(runs: impl IntoIterator<Item = &'a Run>, by: &[By]) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<String>, Sums> = BTreeMap::new();
    for run in runs {
        let keys: Vec<String> =
            by.iter().map(|by| name_of(run, *by).unwrap_or_else(|| "unknown".to_owned())).collect();
        groups.entry(keys).or_default().add(run);
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(keys, sums)| Group { keys, sums }).collect();
    if !by.contains(&By::Day) {
        groups.sort_by_key(|group| {
            std::cmp::Reverse((group.sums.lost_ms, group.sums.counts.retries.bound.min))
        });
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
