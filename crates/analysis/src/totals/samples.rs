//! What one run adds to the counters.
//!
//! Not for: how much of it was counted before (see [`super::Totals`]).

use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome};

use super::Metric;
use super::labels::{Aliases, Pairs};
use crate::count::Evidence;
use crate::run::{Attempt, LogicalRequest, RequestOutcome, Run, RunOutcome, Turn};

/// One thing that a run adds: `n` to a series, at a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) metric: Metric,
    pub(super) labels: Pairs,
    pub(super) at: Option<DateTime<Utc>>,
    /// How many, or how much for sums and the observed value for histograms.
    pub(super) n: u64,
}

/// Returns everything that a run adds.
pub(super) fn samples(run: &Run, aliases: &Aliases) -> Vec<Sample> {
    let run = &Told { run, aliases };
    let mut out = Vec::new();
    for turn in &run.run.turns {
        for request in &turn.requests {
            of_request(run, turn, request, &mut out);
        }
        of_turn(run, turn, &mut out);
    }
    out
}

fn of_turn(run: &Told<'_>, turn: &Turn, out: &mut Vec<Sample>) {
    if !matches!(turn.outcome, RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled) {
        return;
    }
    let last = turn.requests.last().and_then(|r| r.attempts.last());
    let class = turn.cause.as_ref().map_or("none", |cause| cause.failure.class.as_str());
    let mut labels = base(run, last);
    labels.push(("outcome", turn.outcome.as_str().into()));
    labels.push(("class", class.into()));
    out.push(Sample { metric: Metric::RunOutcomes, labels, at: turn.ended_at, n: 1 });
}

fn of_request(run: &Told<'_>, turn: &Turn, request: &LogicalRequest, out: &mut Vec<Sample>) {
    let first = request.attempts.first();
    let started = first.and_then(|a| a.started_at.or(a.ended_at)).or(turn.started_at);
    // While a request is open its bound has no end; what its log shows of attempts tells how it will be.
    let open_but_told = request.outcome == RequestOutcome::Open
        && request.shows_attempts
        && request.attempts.iter().all(|attempt| attempt.sends.is_exact());
    let visibility = match request.upstream.evidence {
        Evidence::NotVisible => "none",
        _ if request.upstream.bound.is_exact() || open_but_told => "full",
        _ => "partial",
    };
    let source = request.source.as_str();
    let with = |labels: Pairs, more: &[(&'static str, &str)]| {
        let mut labels = labels;
        labels.extend(more.iter().map(|(name, value)| (*name, Arc::from(*value))));
        labels
    };
    let labels = with(base(run, first), &[("source", source), ("visibility", visibility)]);
    out.push(Sample { metric: Metric::LogicalRequests, labels, at: started, n: 1 });
    let mut counted = 0;
    for attempt in &request.attempts {
        let at = attempt.started_at.or(attempt.ended_at).or(started);
        // Of several sends behind one visible attempt, the first is of its kind, the others are retries below it.
        let sends = attempt.sends.min;
        counted += sends;
        let upstream = |kind: AttemptKind, n: u64, out: &mut Vec<Sample>| {
            if n > 0 {
                out.push(sent(run, Some(attempt), kind, at, n));
                let more = [("kind", kind.as_str()), ("source", source), ("visibility", visibility)];
                out.push(Sample {
                    metric: Metric::UpstreamRequests,
                    labels: with(base(run, Some(attempt)), &more),
                    at,
                    n,
                });
            }
        };
        upstream(attempt.kind, sends.min(1), out);
        upstream(AttemptKind::Retry, sends.saturating_sub(1), out);
        of_attempt(run, attempt, at, out);
    }
    // What is known to have been sent beyond the visible attempts.
    if let Some(missing) = request.upstream.bound.min.checked_sub(counted).filter(|n| *n > 0) {
        let kind = if counted == 0 { AttemptKind::Original } else { AttemptKind::Retry };
        out.push(sent(run, first, kind, started, missing));
        let more = [("kind", kind.as_str()), ("source", source), ("visibility", visibility)];
        out.push(Sample {
            metric: Metric::UpstreamRequests,
            labels: with(base(run, first), &more),
            at: started,
            n: missing,
        });
    }
    retries(run, request, out);
    if request.outcome != RequestOutcome::Open {
        let ended = request.attempts.last().and_then(|a| a.ended_at.or(a.started_at)).or(turn.ended_at);
        let labels = with(base(run, request.attempts.last()), &[("outcome", request.outcome.as_str())]);
        out.push(Sample { metric: Metric::RequestOutcomes, labels, at: ended, n: 1 });
        let labels = narrow(run, first);
        out.push(Sample {
            metric: Metric::AttemptsPerRequest,
            labels,
            at: ended,
            n: request.upstream.bound.min,
        });
    }
}

/// Retries by layer, class and reason of the failure that led to them; and what happened in the waits.
fn retries(run: &Told<'_>, request: &LogicalRequest, out: &mut Vec<Sample>) {
    for (index, attempt) in request.attempts.iter().enumerate() {
        let next = request.attempts.get(index + 1);
        let hidden = attempt.sends.min.saturating_sub(1);
        let (class, reason) = class_of(attempt);
        let mut retry = |layer: &str, n: u64, at: Option<DateTime<Utc>>| {
            if n > 0 {
                let mut labels = base(run, Some(attempt));
                labels.extend([
                    ("layer", layer.into()),
                    ("class", class.clone()),
                    ("reason", reason.clone()),
                ]);
                out.push(Sample { metric: Metric::Retries, labels, at, n });
            }
        };
        retry("unknown", hidden, attempt.started_at.or(attempt.ended_at));
        if let Some(next) = next.filter(|next| next.kind == AttemptKind::Retry) {
            let layer = attempt.layer.or(next.layer).map_or("unknown", |layer| layer.as_str());
            let at = next.started_at.or(attempt.ended_at);
            retry(layer, next.sends.min.min(1), at);
        }
        // A plan that no attempt followed may have been cut short.
        let planned = attempt.delay_ms.filter(|_| next.is_some());
        if let Some(wait) = attempt.waited_ms.or(planned) {
            out.push(Sample {
                metric: Metric::RetryDelay,
                labels: narrow(run, Some(attempt)),
                at: attempt.ended_at,
                n: wait,
            });
            out.push(Sample {
                metric: Metric::Waiting,
                labels: base(run, Some(attempt)),
                at: attempt.ended_at,
                n: wait,
            });
        }
        if let Some(verdict) = verdict(attempt, next) {
            let mut labels = narrow(run, Some(attempt));
            labels.push(("verdict", verdict.into()));
            out.push(Sample { metric: Metric::RetryAfter, labels, at: attempt.ended_at, n: 1 });
        }
        if let Some(next) = next.filter(|next| next.kind == AttemptKind::Fallback) {
            let name = |attempt: &Attempt| provider(run, Some(attempt));
            let kind = if name(attempt) != name(next) || attempt.candidate.model != next.candidate.model {
                "model"
            } else if attempt.candidate.transport != next.candidate.transport {
                "transport"
            } else if attempt.candidate.account != next.candidate.account {
                "credential"
            } else {
                "endpoint"
            };
            let labels = vec![
                ("agent", run.run.key.agent.clone()),
                ("kind", kind.into()),
                ("from_provider", name(attempt)),
                ("to_provider", name(next)),
                ("reason", reason.clone()),
            ];
            out.push(Sample { metric: Metric::Fallbacks, labels, at: next.started_at, n: 1 });
        }
    }
}

fn of_attempt(run: &Told<'_>, attempt: &Attempt, at: Option<DateTime<Utc>>, out: &mut Vec<Sample>) {
    if attempt.outcome != Some(AttemptOutcome::Failed) || attempt.sends.min == 0 {
        return;
    }
    let (class, reason) = class_of(attempt);
    let status = attempt
        .failure
        .as_ref()
        .and_then(|f| f.status)
        .map_or_else(|| "none".into(), |s| s.to_string().into());
    let mut labels = base(run, Some(attempt));
    labels.extend([("class", class), ("reason", reason), ("status", status)]);
    out.push(Sample {
        metric: Metric::AttemptFailures,
        labels,
        at: attempt.ended_at.or(at),
        n: attempt.sends.min,
    });
}

/// How the provider's stated wait was treated; `None` for an attempt that did not fail or was not repeated.
fn verdict(attempt: &Attempt, next: Option<&Attempt>) -> Option<&'static str> {
    let failure = attempt.failure.as_ref()?;
    let repeated = next.is_some_and(|next| next.kind == AttemptKind::Retry);
    match (failure.retry_after_ms, attempt.waited_ms.or(attempt.delay_ms)) {
        (Some(_), _) if !repeated => None,
        (Some(asked), Some(waited)) if waited + asked / 50 + 20 >= asked => Some("honoured"),
        // Cut to a round limit: 60 s and 300 s are the caps in use.
        (Some(_), Some(waited))
            if [60_000_u64, 300_000].iter().any(|cap| waited.abs_diff(*cap) <= cap / 20) =>
        {
            Some("capped")
        }
        (Some(_), Some(_)) => Some("early"),
        (Some(_), None) => Some("unknown"),
        (None, _) => None,
    }
}

fn class_of(attempt: &Attempt) -> (Arc<str>, Arc<str>) {
    match &attempt.failure {
        Some(failure) => (failure.class.as_str().into(), failure.reason.as_str().into()),
        None => ("unknown".into(), "no_detail".into()),
    }
}

/// Agent, provider and model.
fn base(run: &Told<'_>, attempt: Option<&Attempt>) -> Pairs {
    let model = attempt
        .and_then(|a| a.candidate.model.as_deref())
        .or(run.run.facts.model.as_deref())
        .unwrap_or("unknown");
    let mut labels = narrow(run, attempt);
    labels.push(("model", model.into()));
    labels
}

/// Agent and provider.
fn narrow(run: &Told<'_>, attempt: Option<&Attempt>) -> Pairs {
    vec![("agent", run.run.key.agent.clone()), ("provider", provider(run, attempt))]
}

fn provider(run: &Told<'_>, attempt: Option<&Attempt>) -> Arc<str> {
    run.aliases.provider(run.run, attempt)
}

/// What the budget counts: at once, whatever is still open about the request.
fn sent(
    run: &Told<'_>,
    attempt: Option<&Attempt>,
    kind: AttemptKind,
    at: Option<DateTime<Utc>>,
    n: u64,
) -> Sample {
    let mut labels = narrow(run, attempt);
    labels.push(("kind", kind.as_str().into()));
    Sample { metric: Metric::Sent, labels, at, n }
}

/// A run, and the names its providers go by.
struct Told<'a> {
    run: &'a Run,
    aliases: &'a Aliases,
}
