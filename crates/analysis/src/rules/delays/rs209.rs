//! RS209: everyone comes back exactly when told.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use retryscope_record::RunKey;

use super::rs204::{HERD, latest};
use crate::rules::{Check, Fleet, Found, Rule};
use crate::run::{Attempt, Run};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS209",
    name: "stated waits taken without spread",
    what: "Three or more runs were told to wait by one provider, each waited just as long as told, and they came back within a second of each other. Needs several runs.",
    why: "A stated wait is often the same for everybody: without some jitter on top it turns a limit into a herd.",
    example: "Twenty runs get \"Retry-After: 60\" within a second, and twenty requests arrive 60.0 s later.",
    instead: "Add jitter above the stated wait (10 to 20 %), never below it.",
    source: "https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/",
    check: Check::Runs(check),
};

/// How near to each other runs that come back are a herd.
const NEAR: TimeDelta = TimeDelta::seconds(1);

fn check(fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
    let mut told: BTreeMap<&str, Vec<(&Run, &Attempt, &Attempt)>> = BTreeMap::new();
    for (run, failed, next) in fleet.repeats() {
        let stated = failed.failure.as_ref().is_some_and(|failure| failure.retry_after_ms.is_some());
        if let (true, Some(provider)) = (stated, next.candidate.provider.as_deref()) {
            told.entry(provider).or_default().push((run, failed, next));
        }
    }
    told.into_iter().filter_map(|(provider, repeats)| of_provider(provider, repeats)).collect()
}

fn of_provider(provider: &str, mut repeats: Vec<(&Run, &Attempt, &Attempt)>) -> Option<(RunKey, Found)> {
    if distinct(repeats.iter().map(|(run, ..)| *run)) < HERD {
        return None;
    }
    if repeats.iter().any(|(_, failed, next)| failed.waited_ms.is_none() || next.started_at.is_none()) {
        let message =
            format!("several runs were told to wait by {provider}; how long they did is not in their logs");
        let evidence = repeats.iter().map(|(_, failed, _)| failed.origin).collect();
        return Some((repeats.last()?.0.key.clone(), Found::unknown(message, evidence)));
    }
    repeats.sort_by_key(|(.., next)| next.started_at);
    for from in 0..repeats.len() {
        let start = repeats[from].2.started_at?;
        let group: Vec<_> = repeats[from..]
            .iter()
            .take_while(|(.., next)| next.started_at.is_some_and(|at| at - start <= NEAR))
            .filter(|(_, failed, _)| is_exact(failed))
            .collect();
        let runs = distinct(group.iter().map(|(run, ..)| *run));
        if runs >= HERD {
            let asked = group.first()?.1.failure.as_ref()?.retry_after_ms?;
            let message = format!(
                "{runs} runs were told to wait {} by {provider}, took it to the moment, and came back within a second of each other",
                words::span(asked)
            );
            let back: Vec<(&Run, &Attempt)> = group.iter().map(|(run, _, next)| (*run, *next)).collect();
            let evidence = back.iter().map(|(_, next)| next.origin).collect();
            return Some((latest(&back)?.clone(), Found::violation(message, evidence)));
        }
    }
    Some((repeats.last()?.0.key.clone(), Found::pass("stated waits were spread")))
}

/// Whether a stated wait was taken as it is, give or take the precision of two clocks.
fn is_exact(failed: &Attempt) -> bool {
    let asked = failed.failure.as_ref().and_then(|failure| failure.retry_after_ms);
    asked.zip(failed.waited_ms).is_some_and(|(asked, waited)| waited.abs_diff(asked) <= 50 + asked / 100)
}

fn distinct<'a>(runs: impl Iterator<Item = &'a Run>) -> usize {
    runs.map(|run| &run.key).collect::<std::collections::BTreeSet<_>>().len()
}
