//! RS305: side work pressed on during an overload.

use retryscope_events::Source;
use retryscope_taxonomy::{Class, Reason};

use crate::rules::{Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS305",
    name: "side work retried during an overload",
    what: "A title, a summary or another request that nobody waits for was retried although the provider was overloaded or limited the rate.",
    why: "It takes the place of the request that a person waits for.",
    example: "The title of a session is asked for six times during an outage.",
    instead: "Give side work one try, or let it wait until the next success.",
    source: "https://sre.google/sre-book/handling-overload/",
    check,
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let side =
        subject.run.turns.iter().flat_map(|turn| &turn.requests).filter(|r| r.source == Source::Background);
    for request in side {
        let again: Vec<_> = request
            .attempts
            .windows(2)
            .filter(|pair| {
                pair[0]
                    .failure
                    .as_ref()
                    .is_some_and(|f| f.class == Class::Throttled || f.reason == Reason::Overloaded)
            })
            .map(|pair| pair[1].origin)
            .collect();
        if !again.is_empty() {
            let what = request.purpose.as_deref().unwrap_or("side request");
            let n = crate::words::times(again.len() as u64);
            return vec![Found::violation(
                format!("a {what} was sent again {n} while the provider was overloaded"),
                again,
            )];
        }
    }
    Vec::new()
}
