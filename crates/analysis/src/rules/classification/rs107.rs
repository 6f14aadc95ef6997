//! RS107: a request that was too large was sent again as it was.

use retryscope_taxonomy::Class;

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS107",
    name: "too large, sent again unshrunk",
    what: "After an error that says the request is too large, the same request was sent again without anything taken out of it.",
    why: "It has the same size, so it fails the same way, each time with the whole prompt on the wire.",
    example: "\"prompt is too long: 209001 > 200000\" is answered twice more.",
    instead: "Compact or cut the conversation, then ask once.",
    source: "https://docs.claude.com/en/api/errors",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let again: Vec<_> = subject
        .repeats()
        .filter(|(_, failed, next)| {
            failed.failure.as_ref().is_some_and(|f| f.class == Class::TooLarge)
                && failed.changed.is_empty()
                && next.changed.is_empty()
        })
        .map(|(_, _, next)| next.origin)
        .collect();
    if again.is_empty() {
        let hidden = subject.unseen(|failure| failure.class == Class::TooLarge);
        let message =
            "a request that was too large failed; whether it was sent again as it was is not visible";
        return hidden.map(|(_, origin)| Found::unknown(message, vec![origin])).into_iter().collect();
    }
    vec![Found::violation("a request that was too large was sent again as it was", again)]
}
