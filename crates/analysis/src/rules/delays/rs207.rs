//! RS207: nothing bounds how long one answer may take.

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{LogicalRequest, Turn};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS207",
    name: "no total time budget",
    what: "One answer was tried for longer than the policy's total time; without a policy, for longer than 45 minutes.",
    why: "Limits on attempts do not bound time: a few long waits keep a run, and whoever waits for it, for hours.",
    example: "Nine retries, each after a stated wait of ten minutes.",
    instead: "Give each answer a deadline (90 s where a person waits), and give up or fall back when the next wait would pass it.",
    source: "https://sre.google/sre-book/addressing-cascading-failures/",
    check: Check::Run(check),
};

/// The total time of the shipped `batch` profile, in ms: nothing should take longer.
const TOTAL: u64 = 2_700_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests().filter(|(_, request)| request.attempts.len() > 1) {
        let limits = request
            .attempts
            .first()
            .and_then(|attempt| subject.limits(&attempt.candidate, attempt.failure.as_ref()?));
        let total = limits.map_or(TOTAL, |limits| limits.total_ms);
        match tried_for(turn, request) {
            Some(took) if took > total => {
                let message = format!(
                    "one answer was tried for {} ({} attempts); the total time is {}",
                    words::span(took),
                    request.attempts.len(),
                    words::span(total)
                );
                return vec![Found::violation(message, vec![request.origin])];
            }
            None if limits.is_some() => {
                let message = "it was retried; how long that took is not in the log";
                out = vec![Found::unknown(message, vec![request.origin])];
            }
            Some(_) | None => {}
        }
    }
    out
}

/// Returns the time from the first send to the last end, in ms; an attempt that is open at the end lasts until its turn
/// ends.
fn tried_for(turn: &Turn, request: &LogicalRequest) -> Option<u64> {
    let first = request.attempts.first()?;
    let last = request.attempts.last()?;
    let from = first.started_at.or(first.ended_at)?;
    let to = match request.outcome {
        crate::run::RequestOutcome::Open => turn.ended_at.max(last.ended_at),
        _ => last.ended_at.or(last.started_at),
    }?;
    u64::try_from((to - from).num_milliseconds()).ok()
}
