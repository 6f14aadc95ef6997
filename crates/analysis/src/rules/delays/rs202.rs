//! RS202: a long wait was slept through, unseen.

use retryscope_events::{AttemptOutcome, DelaySource};
use retryscope_policy as policy;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS202",
    name: "long wait slept through",
    what: "A stated wait of more than a minute (or of more than one's own policy allows) was slept through instead of failing fast or falling back, or a wait far beyond the agent's own back-off went on without a word in its logs.",
    why: "The person sees a program that hangs; a fallback or an early message would have helped, and a wait of hours or days ends no run well.",
    example: "Retry-After: 120 on a 503: the agent sleeps for two minutes, and nothing says so.",
    instead: "Put a cap on stated waits (60 s is usual for interactive work); above it fail at once with the time to come back, or fall back. Log every wait before it begins.",
    source: "https://github.com/openai/openai-python (honours up to 120 s, above it does not retry)",
    check: Check::Run(check),
};

/// Longest wait that interactive work sits out, in ms.
const CAP: u64 = 60_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests() {
        for attempt in &request.attempts {
            let asked = attempt.failure.as_ref().and_then(|f| f.retry_after_ms);
            // What a person or a queue held up is no wait of the program's.
            if matches!(attempt.delay_source, Some(DelaySource::User | DelaySource::Queue)) {
                continue;
            }
            let stated =
                asked.or(attempt.delay_ms.filter(|_| attempt.delay_source == Some(DelaySource::Server)));
            // As far as it was really slept through; the plan, where that is not told.
            let slept = attempt.waited_ms.or(attempt.delay_ms);
            let own = attempt.failure.as_ref().and_then(|f| subject.limits(&attempt.candidate, f));
            let cap = own.map_or(CAP, |limits| limits.retry_after_cap_ms);
            if let Some(wait) =
                stated.zip(slept).map(|(stated, slept)| stated.min(slept)).filter(|wait| *wait > cap)
            {
                out.push(
                    Found::violation(
                        format!("a stated wait of {} was slept through", words::span(wait)),
                        vec![attempt.origin],
                    )
                    .fix(subject.setting_for("stated_wait")),
                );
                return out;
            }
        }
        let unseen = request.attempts.iter().zip(request.attempts.iter().skip(1)).find(|(failed, _)| {
            let asked = failed.failure.as_ref().and_then(|f| f.retry_after_ms);
            asked.is_some_and(|asked| asked > CAP) && failed.delay_ms.or(failed.waited_ms).is_none()
        });
        if let Some((failed, _)) = unseen {
            let message = "a long wait was stated and the request was sent again; how long was waited is not in the log";
            out.push(Found::unknown(message, vec![failed.origin]));
            return out;
        }
        // Still waiting at the end, far beyond what the agent's own back-off would be, and no record says why.
        let Some(last) = request.attempts.last().filter(|a| a.outcome == Some(AttemptOutcome::Failed)) else {
            continue;
        };
        let Some((from, to)) = last.ended_at.or(last.started_at).zip(turn.ended_at) else { continue };
        if !matches!(turn.outcome, RunOutcome::Cancelled | RunOutcome::Interrupted)
            || request.outcome.is_ok()
            || turn.cause.is_some()
            || last.delay_ms.is_some()
            || subject.policy.is_none()
        {
            continue;
        }
        let waited = u64::try_from((to - from).num_milliseconds()).unwrap_or(0);
        let own = own_backoff(subject, request.attempts.len() as u64);
        let worth = last.failure.as_ref().is_some_and(|f| f.retryable);
        if let Some(own) = own.filter(|own| worth && waited > own.saturating_mul(4) + 1_000) {
            out.push(Found::violation(
                format!(
                    "waited at least {} without a word; its own back-off would have been at most {}: a stated wait, most likely",
                    words::span(waited),
                    words::span(own)
                ),
                vec![last.origin],
            ).fix(subject.setting_for("stated_wait")));
        }
    }
    out
}

/// Returns the longest wait that any layer of the agent would plan by itself before retry `n`, in ms.
fn own_backoff(subject: &Subject<'_>, n: u64) -> Option<u64> {
    let policy: &policy::Policy = subject.policy?;
    let layers = policy.layers.iter().filter(|layer| !layer.is_connection_only());
    layers.filter_map(|layer| layer.backoff(n)).map(|(_, max)| max).max()
}
