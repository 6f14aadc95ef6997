//! Two sets of runs beside each other: before and after a change of provider, version or time.
//!
//! Not for: saying that a difference is no chance; it shows numbers, and what is new.

use std::collections::{BTreeMap, BTreeSet};

use crate::grouped::{By, name_of};
use crate::run::Run;
use crate::sums::Sums;

/// Two sets of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Sums of the first set.
    pub before: Sums,
    /// Sums of the second set.
    pub after: Sums,
    /// Failed attempts by class, in the first set and in the second.
    pub classes: Vec<(String, u64, u64)>,
    /// What only the second set has: versions of agents, providers, models.
    pub first_seen: Vec<String>,
}

/// Compares two sets of runs.
pub fn compare(before: &[&Run], after: &[&Run]) -> Comparison {
    let mut classes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (class, n) in classes_of(before) {
        classes.entry(class).or_default().0 += n;
    }
    for (class, n) in classes_of(after) {
        classes.entry(class).or_default().1 += n;
    }
    let known = seen(before);
    Comparison {
        before: Sums::of(before.iter().copied()),
        after: Sums::of(after.iter().copied()),
        classes: classes.into_iter().map(|(class, (a, b))| (class, a, b)).collect(),
        first_seen: seen(after).difference(&known).cloned().collect(),
    }
}

fn classes_of(runs: &[&Run]) -> BTreeMap<String, u64> {
    let mut classes = BTreeMap::new();
    let requests = runs.iter().flat_map(|run| &run.turns).flat_map(|turn| &turn.requests);
    for failure in requests.flat_map(|request| &request.attempts).filter_map(|a| a.failure.as_ref()) {
        *classes.entry(failure.class.to_string()).or_default() += 1;
    }
    classes
}

fn seen(runs: &[&Run]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for run in runs {
        let agent = &run.key.agent;
        seen.extend(run.facts.agent_version.iter().map(|version| format!("{agent} {version}")));
        seen.extend(name_of(run, By::Provider).map(|provider| format!("provider {provider}")));
        seen.extend(name_of(run, By::Model).map(|model| format!("model {model}")));
    }
    seen
}
