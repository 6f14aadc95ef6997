//! RS106: the same dead end, asked for again as a new request.

use retryscope_taxonomy::Class;

use crate::explain::describe;
use crate::judge::Failure;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{Attempt, LogicalRequest};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS106",
    name: "identical failure asked for again",
    what: "Two or more requests of one turn, one after the other, ended with the same deterministic error (same status, code and text).",
    why: "The agent's loop went on after an error that the next request meets again: each one sends the whole conversation.",
    example: "A tool with an invalid schema is refused; the agent asks five more times with the same tools.",
    instead: "End the turn at the first such error, or change the request before asking again.",
    source: "https://sre.google/sre-book/addressing-cascading-failures/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut unknown = Vec::new();
    for turn in &subject.run.turns {
        let requests: Vec<&LogicalRequest> =
            turn.requests.iter().filter(|r| r.source == retryscope_events::Source::Foreground).collect();
        let mut at = 0;
        while at < requests.len() {
            let Some((failure, attempt)) = dead_end(requests[at]) else {
                at += 1;
                continue;
            };
            let run = requests[at..]
                .iter()
                .map_while(|request| dead_end(request).filter(|(other, _)| same(failure, other)))
                .count();
            if run > 1 {
                let last = dead_end(requests[at + run - 1]).map_or(attempt, |(_, attempt)| attempt);
                let evidence = vec![attempt.origin, last.origin];
                if failure.message.is_some() || failure.code.is_some() {
                    let message = format!(
                        "{} ended {run} requests of turn {} in a row: it was asked for again {}, and nothing had changed",
                        describe(failure),
                        turn.number,
                        words::times(run as u64 - 1),
                    );
                    return vec![Found::violation(message, evidence)];
                }
                unknown.push(Found::unknown(
                    format!(
                        "{} ended {run} requests in a row; without its text it cannot be told whether it was the same",
                        describe(failure)
                    ),
                    evidence,
                ));
            }
            at += run.max(1);
        }
    }
    unknown.truncate(1);
    unknown
}

/// Returns the error that ended a request, if asking again for the same must end in the same way.
fn dead_end(request: &LogicalRequest) -> Option<(&Failure, &Attempt)> {
    if request.outcome.is_ok() {
        return None;
    }
    let attempt = request.attempts.last()?;
    let failure = attempt.failure.as_ref()?;
    let hopeless =
        matches!(failure.class, Class::Auth | Class::InvalidRequest | Class::Content | Class::TooLarge);
    (hopeless && !failure.retryable).then_some((failure, attempt))
}

fn same(a: &Failure, b: &Failure) -> bool {
    (a.class, a.reason, a.status, &a.code, &a.message) == (b.class, b.reason, b.status, &b.code, &b.message)
}
