//! RS307: the provider said when to come back, and nobody did.

use crate::rules::{Check, Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS307",
    name: "gave up too early",
    what: "The error could pass, the provider stated a wait of at most a minute, and the request was not sent again.",
    why: "The answer was a short, known wait away.",
    example: "429 with Retry-After: 5 ends the run.",
    instead: "Wait as long as stated, then ask again.",
    source: "https://www.rfc-editor.org/rfc/rfc9110#field.retry-after",
    check: Check::Run(check),
};

/// Longest stated wait that is worth sitting out, in ms.
const SHORT: u64 = 60_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests().filter(|(_, r)| r.outcome.is_failed_at_once()) {
        let Some(attempt) = request.attempts.last() else { continue };
        let Some(failure) = attempt.failure.as_ref().filter(|f| f.retryable) else { continue };
        let Some(asked) = failure.retry_after_ms.filter(|ms| *ms <= SHORT) else { continue };
        let message = format!(
            "the provider asked to come back in {}, and the request was given up",
            words::span(asked)
        );
        out.push(if Subject::sent_once(turn, request) {
            Found::violation(message, vec![attempt.origin])
        } else {
            Found::unknown(
                "a short wait was stated; whether the request was sent again is not visible",
                vec![attempt.origin],
            )
        });
    }
    out
}
