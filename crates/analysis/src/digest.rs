//! What happened in a time: which runs lost the most, why attempts failed, who moved where, who broke the budget, and which
//! failures came together.
//!
//! Not for: layout, or sums over everything (see `overview` and `grouped`, which a report shows beside this).

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{AttemptKind, Candidate};
use retryscope_record::RunKey;
use retryscope_taxonomy::Class;

use crate::budget::BudgetPolicy;
use crate::count::Counts;
use crate::explain::describe;
use crate::grouped::{By, name_of};
use crate::rules::{self, Asked, Verdict};
use crate::run::{RequestOutcome, Run, RunOutcome};
use crate::sums::Sums;

/// What one screen of a report adds to the sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// Runs that lost the most time, most first; at most five.
    pub worst: Vec<RunKey>,
    /// Failed attempts by what they were answered with, most first.
    pub reasons: Vec<(String, u64)>,
    /// Retries against the default budget, by scope.
    pub budgets: Vec<Spent>,
    /// Moves to another candidate, and how many of them brought an answer.
    pub fallbacks: Vec<Moves>,
    /// Rules that runs broke: code, name, and in how many runs; most first.
    pub findings: Vec<(&'static str, &'static str, usize)>,
    /// Failures of several runs that came together.
    pub waves: Vec<Wave>,
}

/// What one scope spent of its retry budget over the whole time.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// `global`, `provider` or `agent`.
    pub scope: &'static str,
    /// Name of the provider or agent; empty for `global`.
    pub name: String,
    /// What was asked and sent; the budget is kept over `countable`.
    pub sums: Sums,
    /// Whether retries are above the limit and the floor; `None` where the counts leave it open.
    pub over: Option<bool>,
}

/// Moves from one candidate to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// Who had failed.
    pub from: String,
    /// Who was asked instead.
    pub to: String,
    /// How often.
    pub moves: u64,
    /// How often that one answered.
    pub answered: u64,
}

/// Several runs that failed at one provider within a minute of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wave {
    /// The provider.
    pub provider: String,
    /// Runs that failed in it.
    pub runs: usize,
    /// First failure.
    pub from: DateTime<Utc>,
    /// Last failure.
    pub to: DateTime<Utc>,
    /// What most of them were answered with.
    pub reason: String,
}

/// Runs that are named.
const WORST: usize = 5;
/// Failures of so many runs are a wave.
const WAVE: usize = 3;
/// How near to the one before a failure belongs to a wave.
const NEAR: TimeDelta = TimeDelta::seconds(60);

/// Looks at runs.
pub fn digest(runs: &[&Run]) -> Digest {
    Digest {
        worst: worst(runs),
        reasons: reasons(runs),
        budgets: budgets(runs),
        fallbacks: fallbacks(runs),
        findings: findings(runs),
        waves: waves(runs),
    }
}

fn worst(runs: &[&Run]) -> Vec<RunKey> {
    let weight = |run: &Run| (run.time.lost_ms.unwrap_or(0), run.counts.retries.bound.min);
    let mut runs: Vec<&&Run> = runs.iter().filter(|run| weight(run) > (0, 0)).collect();
    runs.sort_by_key(|run| (std::cmp::Reverse(weight(run)), run.key.clone()));
    runs.into_iter().take(WORST).map(|run| run.key.clone()).collect()
}

fn reasons(runs: &[&Run]) -> Vec<(String, u64)> {
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let requests = runs.iter().flat_map(|run| &run.turns).flat_map(|turn| &turn.requests);
    for failure in requests.flat_map(|request| &request.attempts).filter_map(|a| a.failure.as_ref()) {
        *reasons.entry(describe(failure)).or_default() += 1;
    }
    most_first(reasons)
}

fn most_first<K: Ord + Clone>(counted: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut counted: Vec<(K, u64)> = counted.into_iter().collect();
    counted.sort_by_key(|(key, n)| (std::cmp::Reverse(*n), key.clone()));
    counted
}

fn budgets(runs: &[&Run]) -> Vec<Spent> {
    let mut scopes: BTreeMap<(u8, &'static str, String), Sums> = BTreeMap::new();
    for run in runs {
        let provider = name_of(run, By::Provider).unwrap_or_else(|| "unknown".to_owned());
        let of = [
            (0, "global", String::new()),
            (1, "provider", provider),
            (2, "agent", run.key.agent.to_string()),
        ];
        for scope in of {
            scopes.entry(scope).or_default().add(run);
        }
    }
    let spent = |((_, scope, name), sums): ((u8, &'static str, String), Sums)| {
        let over = is_over(&sums.countable);
        Spent { scope, name, sums, over }
    };
    scopes.into_iter().map(spent).collect()
}

/// Whether retries are above the default limit and floor; `None` where both may be.
fn is_over(counts: &Counts) -> Option<bool> {
    let BudgetPolicy { limit, floor } = BudgetPolicy::default();
    let (min, max) = counts.retry_ratio()?;
    let retries = counts.retries.bound;
    if retries.min > floor && min > limit {
        return Some(true);
    }
    let within = retries.max.is_some_and(|n| n <= floor) || max.is_some_and(|ratio| ratio <= limit);
    within.then_some(false)
}

fn fallbacks(runs: &[&Run]) -> Vec<Moves> {
    let mut moves: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for request in runs.iter().flat_map(|run| &run.turns).flat_map(|turn| &turn.requests) {
        let last = request.attempts.iter().rposition(|a| a.kind == AttemptKind::Fallback);
        for (index, pair) in request.attempts.windows(2).enumerate() {
            if pair[1].kind != AttemptKind::Fallback {
                continue;
            }
            let (from, to) = names(&pair[0].candidate, &pair[1].candidate);
            let known = moves.entry((from, to)).or_default();
            known.0 += 1;
            known.1 +=
                u64::from(last == Some(index + 1) && request.outcome == RequestOutcome::OkAfterFallback);
        }
    }
    let mut moves: Vec<Moves> = moves
        .into_iter()
        .map(|((from, to), (moves, answered))| Moves { from, to, moves, answered })
        .collect();
    moves.sort_by_key(|of| std::cmp::Reverse(of.moves));
    moves
}

/// Names two candidates by what differs between them.
fn names(from: &Candidate, to: &Candidate) -> (String, String) {
    let named = |of: &Candidate| match (&of.model, &of.provider) {
        (Some(model), Some(provider)) => format!("{model} at {provider}"),
        (Some(name), None) | (None, Some(name)) => name.clone(),
        (None, None) => "unknown".to_owned(),
    };
    let differs = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let more = |of: &Candidate| {
        let parts = [
            (differs(&from.transport, &to.transport), &of.transport),
            (differs(&from.account, &to.account), &of.account),
            (differs(&from.region, &to.region), &of.region),
        ];
        parts
            .into_iter()
            .filter(|(differs, _)| *differs)
            .filter_map(|(_, part)| part.clone())
            .collect::<Vec<_>>()
    };
    let whole = |of: &Candidate| match more(of).as_slice() {
        [] => named(of),
        parts => format!("{} ({})", named(of), parts.join(", ")),
    };
    (whole(from), whole(to))
}

fn findings(runs: &[&Run]) -> Vec<(&'static str, &'static str, usize)> {
    let mut broken: BTreeMap<&'static str, BTreeSet<RunKey>> = BTreeMap::new();
    for run in runs {
        for finding in rules::audit_run(run, &[], &Asked::ALL) {
            if finding.verdict == Verdict::Violation {
                broken.entry(finding.rule).or_default().insert(finding.run);
            }
        }
    }
    let mut findings: Vec<_> = broken
        .into_iter()
        .filter_map(|(code, runs)| Some((code, rules::rule(code)?.name, runs.len())))
        .collect();
    findings.sort_by_key(|(code, _, n)| (std::cmp::Reverse(*n), *code));
    findings
}

/// A failed turn: when, of which run, and what it was answered with.
type Failed<'a> = (DateTime<Utc>, &'a RunKey, String);

/// Failed turns whose error is the provider's, not the request's: it would have met anybody.
fn waves(runs: &[&Run]) -> Vec<Wave> {
    let mut failures: BTreeMap<&str, Vec<Failed<'_>>> = BTreeMap::new();
    for run in runs {
        for turn in run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed) {
            let Some(cause) = &turn.cause else { continue };
            let upstream = matches!(cause.failure.class, Class::Transient | Class::Throttled);
            if let (true, Some(provider), Some(at)) =
                (upstream, cause.candidate.provider.as_deref(), turn.ended_at)
            {
                failures.entry(provider).or_default().push((at, &run.key, describe(&cause.failure)));
            }
        }
    }
    let mut waves = Vec::new();
    for (provider, mut failures) in failures {
        failures.sort();
        for group in failures.chunk_by(|a, b| b.0 - a.0 <= NEAR) {
            let runs: BTreeSet<&RunKey> = group.iter().map(|(_, run, _)| *run).collect();
            let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
            for (_, _, reason) in group {
                *reasons.entry(reason.clone()).or_default() += 1;
            }
            if let ([(from, ..), ..], [.., (to, ..)], Some((reason, _))) =
                (group, group, most_first(reasons).first())
                && runs.len() >= WAVE
            {
                let (provider, reason) = (provider.to_owned(), reason.clone());
                waves.push(Wave { provider, runs: runs.len(), from: *from, to: *to, reason });
            }
        }
    }
    waves.sort_by_key(|wave| (std::cmp::Reverse(wave.runs), wave.from));
    waves
}
