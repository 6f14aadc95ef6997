//! RS204: several runs come back at the same moment.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_record::{Origin, RunKey};

use crate::rules::{Check, Fleet, Found, Rule};
use crate::run::{Attempt, Run};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS204",
    name: "synchronized retries",
    what: "Three or more runs sent retries to one provider within a tenth of a second of each other, and the same runs did so again. Needs several runs.",
    why: "A herd: runs that failed together come back together, and the provider meets its worst moment again each time.",
    example: "Five workers fail at 09:00:00 and all retry at 09:00:02.0, 09:00:06.0 and 09:00:14.0.",
    instead: "Draw each wait at random between zero and the back-off (full jitter).",
    source: "https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/",
    check: Check::Runs(check),
};

/// How near to each other sends are a herd.
const NEAR: TimeDelta = TimeDelta::milliseconds(100);
/// How many runs are a herd.
pub(super) const HERD: usize = 3;
/// Meetings of the same runs that are needed: one may be chance.
const MEETINGS: usize = 2;

/// One retry: when it was sent, by whom, after which planned wait.
struct Sent<'a> {
    at: DateTime<Utc>,
    run: &'a Run,
    planned_ms: Option<u64>,
    origin: Origin,
}

fn check(fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
    let mut sent: BTreeMap<&str, Vec<Sent<'_>>> = BTreeMap::new();
    let mut timeless: BTreeMap<&str, BTreeMap<&RunKey, Origin>> = BTreeMap::new();
    for (run, failed, next) in fleet.repeats() {
        let Some(provider) = next.candidate.provider.as_deref() else { continue };
        match next.started_at {
            Some(at) => {
                let planned_ms = failed.delay_ms.or(failed.waited_ms);
                sent.entry(provider).or_default().push(Sent { at, run, planned_ms, origin: next.origin });
            }
            None => {
                timeless.entry(provider).or_default().insert(&run.key, failed.origin);
            }
        }
    }
    let mut out = Vec::new();
    for (provider, retries) in &mut sent {
        retries.sort_by_key(|retry| retry.at);
        out.extend(herd(provider, retries));
    }
    for (provider, runs) in timeless.iter().filter(|(_, runs)| runs.len() >= HERD) {
        let message = format!("{} runs sent retries to {provider}; when is not in their logs", runs.len());
        if let Some((run, origin)) = runs.last_key_value() {
            out.push(((*run).clone(), Found::unknown(message, vec![*origin])));
        }
    }
    out
}

/// Looks for runs that met again and again, in retries to one provider in the order of time.
fn herd(provider: &str, retries: &[Sent<'_>]) -> Option<(RunKey, Found)> {
    let mut meetings: Vec<(BTreeSet<&RunKey>, &[Sent<'_>])> = Vec::new();
    let mut from = 0;
    while from < retries.len() {
        let length = retries[from..].iter().take_while(|retry| retry.at - retries[from].at <= NEAR).count();
        let group = &retries[from..from + length];
        let runs: BTreeSet<&RunKey> = group.iter().map(|retry| &retry.run.key).collect();
        if runs.len() >= HERD {
            meetings.push((runs, group));
            from += length;
        } else {
            from += 1;
        }
    }
    let same = |a: &BTreeSet<&RunKey>, b: &BTreeSet<&RunKey>| a.intersection(b).count() >= HERD;
    let (first, repeated) = meetings.iter().find_map(|(runs, group)| {
        let again: Vec<_> = meetings.iter().filter(|(other, _)| same(runs, other)).collect();
        (again.len() >= MEETINGS).then_some((group, again))
    })?;
    let spread = (first.last()?.at - first.first()?.at).num_milliseconds().unsigned_abs();
    let planned: Vec<u64> = first.iter().filter_map(|retry| retry.planned_ms).collect();
    let message = format!(
        "{} runs sent retries to {provider} within {} of each other, {}{}",
        repeated.iter().map(|(runs, _)| runs.len()).min()?,
        words::span(spread),
        words::times(repeated.len() as u64),
        differ(&planned),
    );
    let evidence = repeated.iter().flat_map(|(_, group)| group.iter().map(|retry| retry.origin)).collect();
    Some((first.last()?.run.key.clone(), Found::violation(message, evidence)))
}

/// Says how jittered planned waits are; empty where the log has none.
fn differ(planned: &[u64]) -> String {
    let (Some(least), Some(most)) = (planned.iter().min(), planned.iter().max()) else {
        return String::new();
    };
    match (most - least) * 100 / (*most).max(1) {
        0 => "; their planned waits do not differ".to_owned(),
        percent => format!("; their planned waits differ by {percent} %"),
    }
}

/// Returns the run of the latest of several repeats, for a finding about all of them.
pub(super) fn latest<'a>(repeats: &[(&'a Run, &'a Attempt)]) -> Option<&'a RunKey> {
    repeats.iter().max_by_key(|(_, next)| next.started_at).map(|(run, _)| &run.key)
}
