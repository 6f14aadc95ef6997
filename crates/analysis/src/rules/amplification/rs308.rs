//! RS308: batch work takes the limit that a person is waiting for.

use chrono::TimeDelta;
use retryscope_events::Candidate;
use retryscope_record::RunKey;
use retryscope_taxonomy::Class;

use crate::rules::{Check, Fleet, Found, Rule};
use crate::run::{Attempt, Run};

pub(super) const RULE: Rule = Rule {
    code: "RS308",
    name: "batch work throttles interactive work",
    what: "An interactive run was rate-limited within a minute of requests of a batch run on the same account. Needs runs that say their workload (`run.started`) and account.",
    why: "Nobody waits for the batch run, somebody waits for the other one.",
    example: "A nightly batch of 200 runs goes on into the morning on the team's only key.",
    instead: "Give batch work an account, a key or a budget of its own, and let it wait first.",
    source: "https://sre.google/sre-book/handling-overload/",
    check: Check::Runs(check),
};

/// How long before a refusal a request may have used up the limit.
const WINDOW: TimeDelta = TimeDelta::minutes(1);

fn check(fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
    let of = |workload: &str| -> Vec<&Run> {
        fleet.runs.iter().filter(|run| run.declared.workload.as_deref() == Some(workload)).collect()
    };
    let (batch, interactive) = (of("batch"), of("interactive"));
    let mut unknown = None;
    for person in &interactive {
        for refused in attempts(person).filter(|a| is_limit(a)) {
            let Some(at) = refused.started_at.or(refused.ended_at) else { continue };
            for machine in &batch {
                let before = attempts(machine).find(|attempt| {
                    let near = attempt.started_at.is_some_and(|sent| sent <= at && at - sent <= WINDOW);
                    near && attempt.candidate.provider == refused.candidate.provider
                        && shares_account(&attempt.candidate, &refused.candidate) != Some(false)
                });
                let Some(before) = before else { continue };
                let evidence = vec![before.origin, refused.origin];
                if shares_account(&before.candidate, &refused.candidate) == Some(true) {
                    let message = format!(
                        "this batch run used the account on which the interactive run {} was rate-limited",
                        person.key.id
                    );
                    return vec![(machine.key.clone(), Found::violation(message, evidence))];
                }
                unknown.get_or_insert_with(|| {
                    let message = format!(
                        "the interactive run {} was rate-limited while this batch run used the same provider; whether they share an account is not in the logs",
                        person.key.id
                    );
                    (machine.key.clone(), Found::unknown(message, evidence))
                });
            }
        }
    }
    unknown.into_iter().collect()
}

fn attempts(run: &Run) -> impl Iterator<Item = &Attempt> {
    run.turns.iter().flat_map(|turn| &turn.requests).flat_map(|request| &request.attempts)
}

fn is_limit(attempt: &Attempt) -> bool {
    attempt.failure.as_ref().is_some_and(|failure| failure.class == Class::Throttled)
}

/// Whether two candidates are paid by one account; `None` where a log does not say.
fn shares_account(a: &Candidate, b: &Candidate) -> Option<bool> {
    Some(a.account.as_ref()? == b.account.as_ref()?)
}
