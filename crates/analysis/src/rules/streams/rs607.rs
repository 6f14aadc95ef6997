//! RS607: a stream that went silent, and was waited for.

use retryscope_taxonomy::Reason;

use crate::rules::{Check, Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS607",
    name: "no idle limit between chunks",
    what: "A stream was silent for more than five minutes and no idle time-out ended it. Needs `idle_ms` in the attempt records of our own schema; no agent's own log holds it.",
    why: "A connection that is dead on the other side looks like a slow answer, for as long as one is patient.",
    example: "After a change of network the stream says nothing for an hour.",
    instead: "End a stream that is silent for a minute or two, take back what was shown, and send again.",
    source: "https://developers.openai.com/codex/config-reference (stream_idle_timeout_ms: 300000)",
    check: Check::Run(check),
};

/// The longest usual idle time-out, in ms.
const LONG: u64 = 300_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for attempt in subject.requests().flat_map(|(_, request)| &request.attempts) {
        let idle_limit =
            attempt.failure.as_ref().is_some_and(|failure| failure.reason == Reason::IdleTimeout);
        let took = attempt.started_at.zip(attempt.ended_at).map(|(a, b)| (b - a).num_milliseconds());
        match attempt.told.idle_ms {
            Some(idle) if idle > LONG && !idle_limit => {
                let message = format!("a stream was silent for {}, and no limit ended it", words::span(idle));
                return vec![
                    Found::violation(message, vec![attempt.origin]).fix(subject.setting_for("idle_timeout")),
                ];
            }
            Some(_) => out = vec![Found::pass("silences were bounded")],
            None if attempt.output_started == Some(true)
                && !idle_limit
                && attempt.failure.is_some()
                && took.is_some_and(|ms| ms > i64::try_from(LONG).unwrap_or(i64::MAX)) =>
            {
                out = vec![Found::unknown(
                    "a stream broke off after a long time; how long it was silent is not in the log",
                    vec![attempt.origin],
                )];
            }
            None => {}
        }
    }
    out
}
