//! RS208: the provider said when to come back, and the agent never heard of it.

use retryscope_events::{ErrorSource, Layer};
use retryscope_taxonomy::Class;

use crate::rules::{Check, Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS208",
    name: "stated wait lost on the way",
    what: "A gateway's attempt was answered with a stated wait, and the failure that it handed to the agent has none. Needs events of the gateway in the same log (`layer: gateway`).",
    why: "The agent plans its own, shorter wait and asks too early, however well it honours what it is told.",
    example: "The provider asks for 30 s, the gateway answers 429 without Retry-After, and the agent comes back after 2 s.",
    instead: "Let the gateway hand on Retry-After (header and body) with the status.",
    source: "https://www.rfc-editor.org/rfc/rfc9110#field.retry-after",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (_, request) in subject.requests() {
        let at_gateway = |layer| layer == Some(Layer::Gateway);
        for (index, attempt) in request.attempts.iter().enumerate() {
            let stated = attempt.failure.as_ref().and_then(|f| f.retry_after_ms);
            let (Some(asked), true) = (stated, at_gateway(attempt.layer)) else { continue };
            let handed =
                request.attempts[index + 1..].iter().find(|a| !at_gateway(a.layer) && a.failure.is_some());
            let Some(handed) = handed else { continue };
            let told = handed.failure.as_ref().is_some_and(|failure| failure.retry_after_ms.is_some());
            if !told {
                let message = format!(
                    "the provider asked the gateway to wait {}, and what the gateway handed on does not say so",
                    words::span(asked)
                );
                return vec![Found::violation(message, vec![attempt.origin, handed.origin])];
            }
            out = vec![Found::pass(format!("a stated wait of {} was handed on", words::span(asked)))];
        }
        let seen = request.attempts.iter().any(|a| at_gateway(a.layer));
        let silent = request.attempts.iter().find(|attempt| {
            let limited =
                |f: &crate::judge::Failure| f.class == Class::Throttled && f.retry_after_ms.is_none();
            attempt.told.error_source == Some(ErrorSource::Gateway)
                && attempt.failure.as_ref().is_some_and(limited)
        });
        if let (false, Some(attempt)) = (seen, silent) {
            let message = "a gateway answered that the rate is limited and stated no wait; whether the provider did is not in the log";
            out.push(Found::unknown(message, vec![attempt.origin]));
        }
    }
    out
}
