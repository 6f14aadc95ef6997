//! RS101: a failure that another attempt might have passed ended the request at once.

use std::collections::BTreeMap;

use retryscope_events::Decision;
use retryscope_policy::{AboveCap, Shows};
use retryscope_record::{Origin, RunKey};
use retryscope_taxonomy::Class;

use crate::explain::describe;
use crate::judge::Failure;
use crate::rules::{Check, Fleet, Found, Rule, Subject};
use crate::run::RequestOutcome;

pub(super) const RULE: Rule = Rule {
    code: "RS101",
    name: "retryable error never retried",
    what: "A request failed with an error that usually passes (transient, or throttled without a stated wait; RS307 looks at those), exactly one request was sent, and there was no fallback.",
    why: "The run died of something that a second try a moment later would probably have passed. A retry branch that exists but is never taken (a dead branch) looks like this on every run.",
    example: "A 429 without Retry-After ends the turn after one request, while the message says that a retry limit was exceeded.",
    instead: "Retry transient and throttled errors a few times, with growing and jittered waits.",
    source: "https://sre.google/sre-book/addressing-cascading-failures/",
    check: Check::Both(check, across),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests() {
        if !request.outcome.is_failed_at_once() {
            continue;
        }
        // A limit of the agent's own ended it, and says so.
        if matches!(request.decision, Some(Decision::Budget | Decision::Deadline)) {
            continue;
        }
        let Some(attempt) = request.attempts.iter().rev().find(|a| a.failure.is_some()) else { continue };
        let Some(failure) = &attempt.failure else { continue };
        let worth = failure.retryable && matches!(failure.class, Class::Transient | Class::Throttled);
        if !worth || failure.retry_after_ms.is_some() || attempt.output_started == Some(true) {
            continue;
        }
        let what = describe(failure);
        let evidence = vec![attempt.origin];
        let deadline = turn
            .terminal_reason
            .as_deref()
            .is_some_and(|r| r.contains("wall_time") || r.contains("deadline"));
        if deadline {
            continue;
        }
        if !Subject::sent_once(turn, request) {
            out.push(Found::unknown(
                format!("{what} ended a request; whether it was sent again is not visible"),
                evidence,
            ));
        } else if fails_fast_unseen(subject) {
            // A long stated wait, or a header that forbids a retry, ends the request rightly, and is in no log.
            out.push(Found::unknown(
                format!("{what} ended a request after one attempt; this agent does so rightly when the provider asks for a long wait, which its logs do not show"),
                evidence,
            ));
        } else {
            out.push(
                Found::violation(
                    format!("{what} ended a request after one attempt, and a second try was never made"),
                    evidence,
                )
                .fix(Some(
                    "run it again, or put a retry around the agent: the agent itself has no setting for this"
                        .to_owned(),
                )),
            );
        }
    }
    out
}

/// Whether the agent is known to end a request at once over a long stated wait, without a log that shows the wait.
fn fails_fast_unseen(subject: &Subject<'_>) -> bool {
    subject.policy.is_some_and(|policy| {
        policy.layers.iter().any(|layer| layer.retry_after.above_cap == AboveCap::Fail)
            && policy.views.iter().all(|view| view.retry_after == Shows::No)
    })
}

/// Failures of one agent from which a branch that is never taken is dead.
const DEAD: usize = 10;

/// An agent that met many such errors in several runs and never retried one: the branch is not there, or never taken.
fn across(fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
    let mut agents: BTreeMap<&str, (usize, usize, BTreeMap<&RunKey, Origin>)> = BTreeMap::new();
    for (run, turn, request) in fleet.requests() {
        let Some(attempt) = request.attempts.iter().find(|a| a.failure.is_some()) else { continue };
        let passing = |f: &Failure| {
            f.retryable
                && matches!(f.class, Class::Transient | Class::Throttled)
                && f.retry_after_ms.is_none()
        };
        if !attempt.failure.as_ref().is_some_and(passing) {
            continue;
        }
        let (retried, dead, runs) = agents.entry(&run.key.agent).or_default();
        if request.outcome == RequestOutcome::FailedNoRetry && Subject::sent_once(turn, request) {
            *dead += 1;
            runs.insert(&run.key, attempt.origin);
        } else {
            *retried += 1;
        }
    }
    let dead = agents
        .into_iter()
        .filter(|(_, (retried, dead, runs))| *retried == 0 && *dead >= DEAD && runs.len() > 1);
    dead.filter_map(|(agent, (_, dead, runs))| {
        let message = format!(
            "{agent} met {dead} errors that usually pass, in {} runs, and retried none: its retry branch is dead",
            runs.len()
        );
        let (last, _) = runs.last_key_value()?;
        Some(((*last).clone(), Found::violation(message, runs.values().copied().collect())))
    })
    .collect()
}
