//! RS306: retries that nothing ends.

use retryscope_policy::{Acts, OpenRetries, Retries};

use crate::explain::describe;
use crate::infer::kind_of;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{LogicalRequest, RequestOutcome, RunOutcome};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS306",
    name: "no attempt cap",
    what: "A request was still failing when it was cancelled or the log ends, after five or more retries by a layer that is known to have no limit, or after thirty or more with no limit announced.",
    why: "Only the outage or a person ends it: the run hangs, and every such run keeps asking a provider that is down.",
    example: "A local model server is not running: the agent connects again until somebody presses Ctrl-C.",
    instead: "Bound the attempts, and the time for one answer.",
    source: "https://sre.google/sre-book/addressing-cascading-failures/",
    check: Check::Run(check),
};

/// Retries of a layer without a limit from which it is told.
const SEEN: u64 = 5;
/// Retries from which a limit that nobody announced is doubtful.
const MANY: u64 = 30;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests() {
        let retries = request.retries.bound;
        // An agent that gave up by itself had a limit.
        let gone_on = matches!(request.outcome, RequestOutcome::Open | RequestOutcome::Cancelled)
            && !matches!(turn.outcome, RunOutcome::Failed | RunOutcome::Succeeded);
        let announced = request.attempts.iter().any(|a| a.max_attempts.is_some()) || subject.own.is_some();
        let Some(last) = request.attempts.iter().rev().find(|a| a.failure.is_some()) else { continue };
        let what = last.failure.as_ref().map(describe).unwrap_or_default();
        let n = words::counted(retries, "retry", "retries");
        if announced {
            if retries.min > 0 {
                out = vec![Found::pass("a limit was announced")];
            }
            continue;
        }
        match unbounded_layer(subject, request) {
            Some(layer) if gone_on && retries.min >= SEEN => {
                let message = format!("{what} was retried without a limit by the {layer}: {n} so far");
                return vec![
                    Found::violation(message, vec![last.origin]).fix(subject.setting_for("refused")),
                ];
            }
            _ if gone_on && retries.min >= MANY => {
                let message = format!("{n} after {what}, and no limit was announced");
                return vec![Found::violation(message, vec![last.origin])];
            }
            _ if retries.max.is_none() && retries.min > 0 && request.outcome == RequestOutcome::Open => {
                let message = format!("{what} was being retried when the log ends; a limit is not visible");
                out = vec![Found::unknown(message, vec![last.origin])];
            }
            _ => {}
        }
    }
    out
}

/// Returns the name of a layer that retries the errors met here without a limit.
fn unbounded_layer<'a>(subject: &Subject<'a>, request: &LogicalRequest) -> Option<&'a str> {
    let policy = subject.policy?;
    request.attempts.iter().find_map(|attempt| {
        let failure = attempt.failure.as_ref().and_then(kind_of)?;
        let layers = policy.layers_for(attempt.api.as_deref());
        let open = layers.into_iter().find(|layer| {
            layer.retries == Retries::Open(OpenRetries::Unbounded)
                && layer.acts_on(failure) == Acts::Yes
                && subject.retries_of(layer).is_none()
        })?;
        Some(open.name.as_str())
    })
}
