//! What is told of a turn that was answered: whether anything was sent again, and what that cost.

use retryscope_events::{AttemptKind, AttemptOutcome};
use retryscope_taxonomy::Class;

use super::Story;
use crate::count::Bound;
use crate::explain::phrases::{describe, fold, span_of, told_apart};
use crate::run::{Attempt, LogicalRequest, RequestOutcome};
use crate::words;

impl Story<'_> {
    pub(super) fn succeeded(&self) -> String {
        let recovered: Vec<&LogicalRequest> = self
            .foreground()
            .filter(|r| matches!(r.outcome, RequestOutcome::OkAfterRetry | RequestOutcome::OkAfterFallback))
            .collect();
        let lost: Vec<&LogicalRequest> = self.foreground().filter(|r| r.outcome.is_failed()).collect();
        let mut text = match recovered.as_slice() {
            [] if self.turn.counts.retries.bound.min > 0 && lost.is_empty() => self.succeeded_after_retries(),
            [] if !self.turn.counts.upstream_requests.is_visible() => {
                "It succeeded; whether requests were sent more than once is not visible in this log."
                    .to_owned()
            }
            [] if lost.is_empty() && !self.turn.counts.upstream_requests.bound.is_exact() => {
                let failed = self.foreground().flat_map(|r| &r.attempts).filter_map(|a| a.failure.as_ref());
                let failed: Vec<String> = failed.map(describe).collect();
                if failed.is_empty() {
                    "It succeeded; no repeat is recorded, but this log cannot show all of them.".to_owned()
                } else {
                    let after = words::list(&fold(&failed));
                    format!("It succeeded, after {after}; how often that was sent again is not certain.")
                }
            }
            [] if lost.is_empty() && self.has_hedge() => {
                "It succeeded; no retry was needed, and what was sent beside an attempt was a hedge."
                    .to_owned()
            }
            [] if lost.is_empty() && self.turn.background_counts.retries.bound.min > 0 => {
                "It succeeded; only side calls were sent more than once.".to_owned()
            }
            [] if lost.is_empty() => "It succeeded; nothing was sent twice.".to_owned(),
            [] => "It succeeded.".to_owned(),
            [one] => told_recovered(one),
            several => {
                let retries = several.iter().map(|r| r.retries.bound).fold(Bound::ZERO, Bound::plus);
                let least =
                    if self.foreground().all(LogicalRequest::has_each_loss) { "" } else { "at least " };
                let lost = self.turn.time.lost_ms.filter(|ms| *ms > 0 || least.is_empty());
                let lost = lost.map(|ms| format!(" ({least}{} lost)", words::span(ms))).unwrap_or_default();
                format!(
                    "It succeeded; {} of its requests needed {} in all{lost}, no work lost.",
                    several.len(),
                    words::counted(retries, "retry", "retries"),
                )
            }
        };
        let too_large = lost.iter().any(|r| {
            r.attempts.iter().filter_map(|a| a.failure.as_ref()).any(|f| f.class == Class::TooLarge)
        });
        if too_large {
            text.push_str(" One request was too large; the conversation was made smaller and asked again.");
        } else if !lost.is_empty() {
            text.push_str(&format!(
                " {} got no answer on the way{}.",
                words::counted(Bound::exact(lost.len() as u64), "request", "requests"),
                lost.iter()
                    .find_map(|r| r.attempts.iter().rev().find_map(|a| a.failure.as_ref()))
                    .map(|f| format!(" ({})", describe(f)))
                    .unwrap_or_default(),
            ));
        }
        text
    }

    /// Retries are known, but not which of them was answered.
    fn succeeded_after_retries(&self) -> String {
        let failures = self.foreground().flat_map(|r| &r.attempts).filter_map(|a| a.failure.as_ref());
        let failures: Vec<String> = failures.map(describe).collect();
        let after = match failures.as_slice() {
            [] => String::new(),
            all => format!(", after {}", words::list(&fold(all))),
        };
        let retries = self.turn.counts.retries.bound;
        format!("It succeeded with {}{after}; no work lost.", words::counted(retries, "retry", "retries"))
    }

    fn has_hedge(&self) -> bool {
        self.foreground().flat_map(|r| &r.attempts).any(|a| a.kind == AttemptKind::Hedge)
    }
}

/// "Recovered on attempt 3 after 2.1 s, after 503 unavailable (2 times); no work lost."
fn told_recovered(request: &LogicalRequest) -> String {
    let failed: Vec<&Attempt> =
        request.attempts.iter().filter(|a| a.outcome == Some(AttemptOutcome::Failed)).collect();
    let answers = failed.iter().filter_map(|a| a.failure.as_ref()).map(describe).collect::<Vec<_>>();
    let is_answered = |a: &Attempt| a.outcome == Some(AttemptOutcome::Ok);
    let before = request.attempts.split_last().map_or(&[][..], |(_, before)| before);
    let after = match answers.as_slice() {
        [] if !before.is_empty() && before.iter().all(is_answered) => {
            "after an answer that the agent did not take".to_owned()
        }
        [] => "the failures before it are not described in this log".to_owned(),
        all => format!("after {}", words::list(&fold(all))),
    };
    let took = span_of(request).map(|ms| format!(" after {}", words::span(ms))).unwrap_or_default();
    let silent = failed.iter().filter(|a| a.failure.is_none() && a.sends.max != Some(0)).count();
    let silent = match silent {
        0 => String::new(),
        1 => " One of the repeats is in no error record of this agent.".to_owned(),
        n => format!(" {n} of the repeats are in no error record of this agent."),
    };
    if request.outcome == RequestOutcome::OkAfterFallback {
        let (Some(first), Some(last)) = (request.attempts.first(), request.attempts.last()) else {
            return "Recovered with another candidate; no work lost.".to_owned();
        };
        let (to, from) = told_apart(&last.candidate, &first.candidate);
        return format!("Recovered: {to} answered{took} instead of {from}, {after}; no work lost.{silent}");
    }
    let attempt = request.upstream.bound;
    let on = if attempt.is_exact() {
        format!("on attempt {}", attempt.min)
    } else {
        format!("with {} attempts", words::bound(attempt))
    };
    format!("Recovered {on}{took}, {after}; no work lost.{silent}")
}
