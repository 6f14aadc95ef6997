//! Runs added up by agent, provider, model or day, for a report. A run belongs to the provider and model that it asked
//! first; what a fallback cost stays with it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use retryscope_events::Source;

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
    /// Waiting between attempts, in ms; `None` where no log tells any.
    pub waiting_ms: Option<u64>,
    /// How long single waits were.
    pub waits: Waits,
}

/// Longest wait that is told apart, in ms: a day.
const LONGEST: u64 = 86_400_000;

/// The lengths of waits between attempts: real ones where times tell them, else planned ones. Kept to two digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits(Option<Histogram<u64>>);

impl Waits {
    fn new() -> Self {
        // Fails only for bounds that make no sense.
        Self(Histogram::new_with_bounds(1, LONGEST, 2).ok())
    }

    fn add(&mut self, run: &Run) {
        let Some(histogram) = &mut self.0 else { return };
        let foreground =
            run.turns.iter().flat_map(|t| &t.requests).filter(|r| r.source == Source::Foreground);
        for request in foreground {
            for (index, attempt) in request.attempts.iter().enumerate() {
                // A plan that no attempt followed may have been cut short.
                let planned = attempt.delay_ms.filter(|_| index + 1 < request.attempts.len());
                if let Some(wait) = attempt.waited_ms.or(planned) {
                    histogram.saturating_record(wait);
                }
            }
        }
    }

    /// Returns how many waits there are.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// Returns the wait in ms that this share of the waits does not exceed (`0.0..=1.0`); `None` without waits.
    pub fn at(&self, share: f64) -> Option<u64> {
        self.0.as_ref().filter(|h| !h.is_empty()).map(|h| h.value_at_quantile(share))
    }
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
            waiting_ms: None,
            waits: Waits::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_waits_that_happened() {
        let mut waits = Waits::new();
        assert_eq!((waits.count(), waits.at(0.5)), (0, None));
        for wait in [100, 200, 400, 100_000] {
            waits.0.as_mut().unwrap().saturating_record(wait);
        }
        let near = |got: Option<u64>, want: u64| got.is_some_and(|got| got.abs_diff(want) * 100 <= want);
        assert!(near(waits.at(0.5), 200), "{:?}", waits.at(0.5));
        assert!(near(waits.at(1.0), 100_000), "{:?}", waits.at(1.0));
    }
}
