//! RS103: an error that nothing is known of was treated the wrong way round.

use retryscope_taxonomy::Class;

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS103",
    name: "unknown error treated the wrong way round",
    what: "An unrecognized 4xx was retried, or an unrecognized 5xx was not retried even once.",
    why: "A 4xx says that the request is at fault, so the same request fails again; a 5xx says that the server is, and one bounded retry is cheap.",
    example: "A 418 is sent five times.",
    instead: "Unknown 4xx: none. Unknown 5xx: one, after a wait.",
    source: "https://www.rfc-editor.org/rfc/rfc9110#section-15.5",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    let client = |status: u16| (400..500).contains(&status);
    let unknown = |f: &crate::judge::Failure, is: &dyn Fn(u16) -> bool| {
        f.class == Class::Unknown && f.status.is_some_and(is)
    };
    let retried: Vec<_> = subject
        .repeats()
        .filter(|(_, failed, _)| failed.failure.as_ref().is_some_and(|f| unknown(f, &client)))
        .map(|(_, failed, next)| (failed.failure.as_ref().and_then(|f| f.status), next.origin))
        .collect();
    if let Some((status, _)) = retried.first() {
        let evidence = retried.iter().map(|(_, origin)| *origin).collect();
        out.push(Found::violation(
            format!("an unknown {} was retried", status.unwrap_or_default()),
            evidence,
        ));
    }
    for (turn, request) in subject.requests().filter(|(_, r)| r.outcome.is_failed_at_once()) {
        let Some(attempt) = request.attempts.last() else { continue };
        let server = |status: u16| status >= 500;
        if attempt.failure.as_ref().is_some_and(|f| unknown(f, &server)) && Subject::sent_once(turn, request)
        {
            out.push(Found::violation(
                "an unknown 5xx ended the request without one retry",
                vec![attempt.origin],
            ));
        }
    }
    let odd = |f: &crate::judge::Failure| f.class == Class::Unknown && f.status.is_some_and(|s| s >= 400);
    if let (true, Some((failure, origin))) = (out.is_empty(), subject.unseen(odd)) {
        let status = failure.status.unwrap_or_default();
        let message =
            format!("an unknown {status} ended a request; whether it was sent again is not visible");
        out.push(Found::unknown(message, vec![origin]));
    }
    out
}
