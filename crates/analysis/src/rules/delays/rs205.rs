//! RS205: waits that do not grow, or grow without end.

use retryscope_events::DelaySource;
use retryscope_record::Origin;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::LogicalRequest;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS205",
    name: "back-off does not grow, or has no cap",
    what: "Four or more waits of the agent's own that stay the same and are shorter than half a minute, or one above ten minutes (or above the cap of one's own policy).",
    why: "Waits that do not grow keep up the pressure on a provider that is down; waits without a cap leave a run asleep long after the provider is back.",
    example: "Six retries, one second apart.",
    instead: "Double the wait each time up to a cap of about a minute, with jitter.",
    source: "https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/",
    check: Check::Run(check),
};

/// Waits that are needed to tell growth.
const ENOUGH: usize = 4;
/// A steady wait of so many ms is no pressure.
const LONG: u64 = 30_000;
/// No back-off should be longer than this, in ms.
const CAP: u64 = 600_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (_, request) in subject.requests() {
        let planned = own_waits(request);
        let limits = request
            .attempts
            .first()
            .and_then(|attempt| subject.limits(&attempt.candidate, attempt.failure.as_ref()?));
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "waits are far below 2^52 ms, factors are not negative"
        )]
        let cap =
            limits.map_or(CAP, |limits| (limits.cap_ms as f64 * limits.jitter.high.max(1.0)).ceil() as u64);
        if let Some((wait, origin)) = planned.iter().find(|(wait, _)| *wait > cap) {
            let message =
                format!("a wait of {} was planned; the cap is {}", words::span(*wait), words::span(cap));
            return vec![Found::violation(message, vec![*origin])];
        }
        if planned.len() >= ENOUGH {
            let (Some(least), Some(most)) =
                (planned.iter().map(|(wait, _)| *wait).min(), planned.iter().map(|(wait, _)| *wait).max())
            else {
                continue;
            };
            if most < least + least / 4 + 50 && most < LONG {
                let message = format!(
                    "{} waits in a row are between {} and {}: they do not grow",
                    planned.len(),
                    words::span(least),
                    words::span(most)
                );
                return vec![Found::violation(message, planned.iter().map(|(_, origin)| *origin).collect())];
            }
            out = vec![Found::pass(format!("{} waits, the longest {}", planned.len(), words::span(most)))];
        } else if planned.is_empty() && request.attempts.len() > ENOUGH {
            let evidence = vec![request.origin];
            let message = "it was retried; how long was waited in between is not in the log";
            out = vec![Found::unknown(message, evidence)];
        }
    }
    out
}

/// Returns the waits that the agent planned by itself, without one that the provider stated.
fn own_waits(request: &LogicalRequest) -> Vec<(u64, Origin)> {
    request
        .attempts
        .iter()
        .filter(|a| a.failure.as_ref().is_none_or(|f| f.retry_after_ms.is_none()))
        .filter(|a| matches!(a.delay_source, None | Some(DelaySource::Backoff)))
        .filter_map(|a| Some((a.delay_ms.filter(|delay| *delay > 0)?, a.origin)))
        .collect()
}
