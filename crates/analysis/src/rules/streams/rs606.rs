//! RS606: a request that nothing would have ended.

use retryscope_events::AttemptOutcome;
use retryscope_taxonomy::Reason;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{Attempt, RunOutcome, Turn};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS606",
    name: "hung attempt without a time-out",
    what: "An attempt with a record of its own was in flight for more than ten minutes without output, and something else than a time-out ended it. Needs attempt records of our own schema.",
    why: "The agent waits for an answer that will not come, and only a person or the other end stops it.",
    example: "A provider accepts the connection and never answers; after forty minutes somebody presses Ctrl-C.",
    instead: "Set a time-out to the first byte (a minute or two), and one between chunks.",
    source: "https://github.com/openai/openai-python#timeouts (default: 10 minutes)",
    check: Check::Run(check),
};

/// Nobody should wait longer than this for the first byte, in ms: the usual time-out of client libraries.
const LONG: u64 = 600_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests() {
        for attempt in request.attempts.iter().filter(|a| a.id.is_some() && a.output_started != Some(true)) {
            let timed_out = attempt.failure.as_ref().is_some_and(|f| {
                matches!(f.reason, Reason::Timeout | Reason::IdleTimeout | Reason::GatewayTimeout)
            });
            if attempt.outcome == Some(AttemptOutcome::Ok)
                || attempt.failure.as_ref().is_some_and(|f| f.status.is_some())
            {
                continue;
            }
            match (in_flight(turn, attempt), timed_out) {
                (_, true) => out = vec![Found::pass("a time-out ended an attempt")],
                (Some(ms), false) if ms > LONG => {
                    let message = format!(
                        "an attempt was in flight for {} without output, and no time-out ended it",
                        words::span(ms)
                    );
                    return vec![
                        Found::violation(message, vec![attempt.origin]).fix(subject.setting_for("timeout")),
                    ];
                }
                (None, false) if attempt.outcome.is_none() && turn.outcome == RunOutcome::Interrupted => {
                    out = vec![Found::unknown(
                        "an attempt was in flight when the log ends; for how long is not visible",
                        vec![attempt.origin],
                    )];
                }
                _ => {}
            }
        }
    }
    out
}

fn in_flight(turn: &Turn, attempt: &Attempt) -> Option<u64> {
    let end = match attempt.outcome {
        // Nothing says that it ended before the turn did.
        None => turn.ended_at.filter(|end| Some(*end) > attempt.started_at),
        Some(_) => attempt.ended_at,
    };
    u64::try_from((end? - attempt.started_at?).num_milliseconds()).ok()
}
