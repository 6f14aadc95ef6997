//! RS102: a failure that no retry can pass was retried.

use retryscope_events::Layer;
use retryscope_record::Origin;
use retryscope_taxonomy::{Class, Reason};

use crate::explain::describe;
use crate::judge::Failure;
use crate::rules::subject::was_passed;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{Attempt, LogicalRequest};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS102",
    name: "non-retryable error retried",
    what: "The same request was sent again to the same candidate after a used-up quota, a refused key, a refused request or a content filter.",
    why: "None of these passes by itself: every retry costs time, money and the provider's patience, and delays the message that a person must act on.",
    example: "A wrong API key is sent six times; a used-up quota is asked for ten minutes.",
    instead: "Stop at once and say what to fix. One try after a token refresh is fine.",
    source: "https://platform.openai.com/docs/guides/error-codes",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut first: Option<(&Failure, Option<String>)> = None;
    let mut has_passed = false;
    let mut evidence: Vec<Origin> = Vec::new();
    for (request, failed, next) in subject.repeats() {
        let Some(failure) = &failed.failure else { continue };
        let hopeless = is_hopeless(failure.class);
        // What was changed before it was sent again is another question.
        if !hopeless || !failed.changed.is_empty() || !next.changed.is_empty() || failure.retryable {
            continue;
        }
        // A person may have put right what was wrong.
        if failed.layer == Some(Layer::User) || next.layer == Some(Layer::User) {
            continue;
        }
        if is_listed(subject, request, failed) {
            continue;
        }
        let refresh = failure.reason == Reason::ExpiredToken
            && request.attempts.first().is_some_and(|a| std::ptr::eq(a, failed));
        if refresh {
            continue;
        }
        first.get_or_insert_with(|| (failure, subject.retry_less(failed)));
        has_passed |= was_passed(request, failed);
        evidence.push(next.origin);
    }
    let Some((failure, fix)) = first else { return unseen(subject) };
    let what = describe(failure);
    let n = words::times(evidence.len() as u64);
    if has_passed {
        let message = format!("{what} was sent again {n}, and an answer came: the error was not final");
        return vec![Found::violation(message, evidence)];
    }
    let although = match failure.reason {
        // The answer differs from try to try.
        Reason::OutputBlocked | Reason::Refusal => "the same input meets the same filter",
        _ => "no retry can pass it",
    };
    let message = format!("{what} was sent again {n}, although {although}");
    vec![Found::violation(message, evidence).fix(fix)]
}

/// A request that ended in such an error after retries whose reasons the log does not give.
fn unseen(subject: &Subject<'_>) -> Vec<Found> {
    let ended_so = subject.requests().find_map(|(_, request)| {
        let silent =
            |attempt: &Attempt| attempt.failure.as_ref().is_some_and(|f| f.reason == Reason::NoDetail);
        let last = request.attempts.last()?;
        let failure = last.failure.as_ref().filter(|f| is_hopeless(f.class) && !f.retryable)?;
        request.attempts.iter().any(silent).then_some((failure, last.origin))
    });
    if let Some((failure, origin)) = ended_so {
        let what = describe(failure);
        let message = format!("{what} ended a request after retries; what led to them is not in this log");
        return vec![Found::unknown(message, vec![origin])];
    }
    let Some((failure, origin)) = subject.unseen(|f| is_hopeless(f.class) && !f.retryable) else {
        return Vec::new();
    };
    let message = format!("{} ended a request; whether it was sent again is not visible", describe(failure));
    vec![Found::unknown(message, vec![origin])]
}

/// Whether the agent's policy, or one's own, retries this on purpose: some providers answer 404 while a model is being
/// loaded, and whose policy names it knows that. The status may stand only with the last attempt; all failed the same way.
fn is_listed(subject: &Subject<'_>, request: &LogicalRequest, failed: &Attempt) -> bool {
    let Some(failure) = &failed.failure else { return false };
    if subject.limits(&failed.candidate, failure).is_some_and(|limits| limits.attempts > 1) {
        return true;
    }
    let provider = failed.candidate.provider.as_deref().unwrap_or_default();
    let told = || request.attempts.iter().rev().find_map(|attempt| attempt.failure.as_ref()?.status);
    let Some(status) = failure.status.or_else(told) else { return false };
    subject.policy.is_some_and(|policy| policy.layers.iter().any(|layer| layer.lists(provider, status)))
}

fn is_hopeless(class: Class) -> bool {
    matches!(class, Class::Exhausted | Class::Auth | Class::InvalidRequest | Class::Content)
}
