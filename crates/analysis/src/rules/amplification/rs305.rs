//! RS305: side work pressed on during an overload.

use retryscope_events::Source;
use retryscope_taxonomy::{Class, Reason};

use crate::judge::Failure;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::LogicalRequest;

pub(super) const RULE: Rule = Rule {
    code: "RS305",
    name: "side work retried during an overload",
    what: "A title, a summary or another request that nobody waits for was retried although the provider was overloaded or limited the rate.",
    why: "It takes the place of the request that a person waits for.",
    example: "The title of a session is asked for six times during an outage.",
    instead: "Give side work one try, or let it wait until the next success.",
    source: "https://sre.google/sre-book/handling-overload/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let turns = subject.run.turns.iter();
    let side = turns.flat_map(|turn| turn.requests.iter().map(move |request| (turn, request)));
    // The run waits for a compaction.
    let is_waited_for =
        |r: &LogicalRequest| r.purpose.as_deref().is_some_and(|what| what.contains("compact"));
    let side = side.filter(|(_, request)| request.source == Source::Background && !is_waited_for(request));
    let mut unknown = Vec::new();
    for (turn, request) in side {
        let again: Vec<_> = request
            .attempts
            .windows(2)
            .filter(|pair| pair[0].failure.as_ref().is_some_and(is_busy))
            .map(|pair| pair[1].origin)
            .collect();
        if !again.is_empty() {
            let what = request.purpose.as_deref().unwrap_or("side request");
            let n = crate::words::times(again.len() as u64);
            return vec![
                Found::violation(
                    format!("a {what} was sent again {n} while the provider was overloaded"),
                    again,
                )
                .fix(subject.setting_for("side_call")),
            ];
        }
        let last = request.attempts.last().filter(|a| a.failure.as_ref().is_some_and(is_busy));
        if let (Some(last), false) = (last, turn.background_counts.upstream_requests.bound.is_exact()) {
            let message = "side work failed while the provider was overloaded; whether it was sent again is not visible";
            unknown = vec![Found::unknown(message, vec![last.origin])];
        }
    }
    unknown
}

fn is_busy(failure: &Failure) -> bool {
    failure.class == Class::Throttled || failure.reason == Reason::Overloaded
}
