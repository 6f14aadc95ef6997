//! RS104: the decision followed a number where the words said otherwise.

use retryscope_taxonomy::{Class, Reason};

use crate::judge::Failure;
use crate::rules::subject::was_passed;
use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS104",
    name: "decided by a number where the words say otherwise",
    what: "A 429 whose body says that the quota is used up was retried as a rate limit; a 400 whose text says that the provider is busy was not retried; or a refused request was retried although only its text contains a number that looks like a server error.",
    why: "Providers use one status for different things, and texts contain numbers of all kinds: only code and words together tell.",
    example: "HTTP 400 \"max_tokens must be at most 1500\" is retried six times, because 1500 contains 500.",
    instead: "Decide by error code and type first, by status second, and match numbers in a text only as whole words after `status`.",
    source: "https://github.com/anomalyco/opencode (session/retry.ts)",
    check: Check::Run(check),
};

/// Numbers that retry lists of agents look for in texts.
const TEMPTING: &[&str] = &["429", "500", "502", "503", "504", "524", "529"];

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (request, failed, next) in subject.repeats() {
        let Some(failure) = &failed.failure else { continue };
        let same_account = !failed.changed.iter().any(|what| what == "credential" || what == "account");
        if failure.status == Some(429) && failure.class == Class::Exhausted && same_account {
            let places = vec![failed.origin, next.origin];
            out.push(if was_passed(request, failed) {
                let message =
                    "a 429 that speaks of a used-up quota was retried like a rate limit, and an answer came";
                Found::violation(message, places)
            } else {
                Found::violation("a 429 that means a used-up quota was retried like a rate limit", places)
                    .fix(subject.retry_less(failed))
            });
            break;
        }
        // The status may stand only with the last attempt; all of them failed the same way.
        let status =
            failure.status.or_else(|| request.attempts.iter().rev().find_map(|a| a.failure.as_ref()?.status));
        // What a layer sends again on purpose, with less in it, was not read as a number.
        let refused = failure.class == Class::InvalidRequest
            && !failure.retryable
            && !subject.resends_on_purpose(failed);
        let text = failure.message.as_deref().unwrap_or_default();
        let tempting = TEMPTING.iter().find(|number| {
            text.contains(**number) && status.is_none_or(|status| status.to_string() != **number)
        });
        if let (true, Some(number), true) = (refused, tempting, failed.changed.is_empty()) {
            out.push(
                Found::violation(
                    format!("a refused request was retried; its text merely contains {number}"),
                    vec![failed.origin, next.origin],
                )
                .fix(subject.retry_less(failed)),
            );
            break;
        }
    }
    if out.is_empty() {
        out.extend(misread_refusal(subject));
    }
    let doubtful = |f: &Failure| f.status == Some(429) && f.class == Class::Exhausted;
    if let (true, Some((_, origin))) = (out.is_empty(), subject.unseen(doubtful)) {
        let message =
            "a 429 that means a used-up quota ended a request; whether it was sent again is not visible";
        out.push(Found::unknown(message, vec![origin]));
    }
    out
}

/// A 400 whose text says that the provider is busy, and that was taken for a refusal.
fn misread_refusal(subject: &Subject<'_>) -> Option<Found> {
    subject.requests().filter(|(_, r)| r.outcome.is_failed_at_once()).find_map(|(turn, request)| {
        let attempt = request.attempts.last()?;
        let failure = attempt.failure.as_ref().filter(|f| f.status == Some(400) && f.retryable)?;
        let busy = failure.reason == Reason::Overloaded || failure.class == Class::Throttled;
        (busy && Subject::sent_once(turn, request)).then(|| {
            let message = "a 400 whose text says that the provider is busy ended the request without a retry";
            Found::violation(message, vec![attempt.origin])
        })
    })
}
