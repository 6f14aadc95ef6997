//! RS402: another candidate was asked for something that it cannot do better.

use retryscope_events::{AttemptKind, AttemptOutcome, Candidate};
use retryscope_taxonomy::{Class, Reason};

use crate::explain::describe;
use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS402",
    name: "fallback where it cannot help",
    what: "A refused request, a request that is too large and was not shrunk, or a used-up quota or refused key was moved to a candidate with the same problem.",
    why: "The next candidate gets the same broken request, or shares the account that is used up: it fails again and costs time.",
    example: "An invalid parameter is sent to a second model.",
    instead: "Fall back for overload and rate limits; for a used-up quota or a refused key only to another account or provider.",
    source: "https://docs.litellm.ai/docs/proxy/reliability",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (_, request) in subject.requests() {
        for pair in request.attempts.windows(2).filter(|pair| pair[1].kind == AttemptKind::Fallback) {
            let Some(failure) = &pair[0].failure else { continue };
            let evidence = vec![pair[0].origin, pair[1].origin];
            let unchanged = pair[0].changed.iter().all(|what| what == "model" || what == "provider");
            let what = describe(failure);
            match failure.class {
                // Another candidate may have the model or the path that this one lacks, or take what this one does not.
                Class::InvalidRequest
                    if unchanged
                        && !matches!(failure.reason, Reason::ModelNotFound | Reason::EndpointNotFound)
                        && pair[1].outcome != Some(AttemptOutcome::Ok) =>
                {
                    out.push(Found::violation(format!("{what} was handed to another candidate unchanged"), evidence));
                }
                Class::Exhausted | Class::Auth => match same_account(&pair[0].candidate, &pair[1].candidate) {
                    Some(true) => {
                        out.push(Found::violation(format!("{what} was followed by a fallback to the same account"), evidence));
                    }
                    Some(false) => out.push(Found::pass(format!("{what} was followed by a fallback to another account"))),
                    None => out.push(Found::unknown(
                        format!("{what} was followed by a fallback; whether it uses the same account is not in the log"),
                        evidence,
                    )),
                },
                _ => {}
            }
        }
    }
    out
}

/// Whether two candidates are paid by one account; `None` where the log does not say.
fn same_account(a: &Candidate, b: &Candidate) -> Option<bool> {
    match (&a.provider, &b.provider) {
        (Some(from), Some(to)) if from != to => return Some(false),
        _ => {}
    }
    match (&a.account, &b.account) {
        (Some(from), Some(to)) => Some(from == to),
        _ => None,
    }
}
