//! The requests of a turn as they are shown: from the view that tells most, with details that other views hold of the same
//! attempts.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome, Source};
use retryscope_record::{Shown, TurnOutcome};
use retryscope_taxonomy::Reason;

use crate::count::{Bound, Counts};
use crate::judge::Failure;
use crate::run::{Attempt, LogicalRequest, RequestOutcome, Time};
use crate::view::{RequestEnd, RequestView, TurnView};

use super::counts::{counts_of_request, is_settled};
use super::rest::name_alike;
use super::{Joined, Part, end_of, rank};

/// The requests to show: from the view that tells most, with details that other views hold of the same attempts. Side calls
/// of which that view tells nothing are shown from the one that tells most of them.
///
/// Where there was one request only, what all views together know of the turn is known of it.
pub(super) fn requests_of(group: &Joined<'_>, joined: &Counts) -> Vec<LogicalRequest> {
    let told = |(part, turn): &&(&Part<'_>, &TurnView)| {
        // The prompt's own requests before side calls: a log of which only a title is left tells nothing of them.
        let attempts = (attempts_of(turn, Source::Foreground), attempts_of(turn, Source::Background));
        let known = |a: &&Attempt| match (&a.failure, a.outcome) {
            (Some(failure), _) => !failure.says_nothing(),
            (None, outcome) => outcome == Some(AttemptOutcome::Ok),
        };
        let details = turn.requests.iter().flat_map(|r| &r.attempts).filter(known).count();
        let exact = turn.requests.iter().all(|r| r.upstream(is_settled(part, turn, group)).0.is_exact());
        (attempts, exact, part.view.foreground.attempts, details, std::cmp::Reverse(rank(part.kind)))
    };
    let Some(member) = group.iter().max_by_key(|member| told(member)) else { return Vec::new() };
    let mut requests = requests_in(member, group, joined, |_| true);
    if attempts_of(member.1, Source::Background) == 0 {
        let beside = group.iter().filter(|(_, turn)| attempts_of(turn, Source::Background) > 0);
        if let Some(beside) = beside.max_by_key(|member| told(member)) {
            requests.extend(requests_in(beside, group, joined, |source| source == Source::Background));
        }
    }
    requests
}

fn attempts_of(turn: &TurnView, source: Source) -> usize {
    turn.requests.iter().filter(|r| r.source == source).map(|r| r.attempts.len()).sum()
}

/// The requests of one view, of some sources.
fn requests_in(
    (part, turn): &(&Part<'_>, &TurnView),
    group: &Joined<'_>,
    joined: &Counts,
    shows: fn(Source) -> bool,
) -> Vec<LogicalRequest> {
    let mut details: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for (other, turn) in group {
        if !std::ptr::eq(*other, *part) {
            for attempt in turn.requests.iter().flat_map(|r| &r.attempts) {
                if let Some(id) = attempt.failure.as_ref().and_then(|f| f.upstream_request_id.as_deref()) {
                    details.entry(id).or_default().push(attempt);
                }
            }
        }
    }
    // How a request that was given up ended, by the agent's own id: another log may hold the answer that this one lacks.
    let mut ends: BTreeMap<&str, &Attempt> = BTreeMap::new();
    let others = group.iter().filter(|(other, _)| !std::ptr::eq(*other, *part));
    for request in others.flat_map(|(_, turn)| &turn.requests) {
        let last = request.attempts.last().filter(|a| a.failure.is_some());
        if let (true, Some(RequestEnd::GivenUp), Some(last)) = (request.id_is_native, request.end, last) {
            ends.entry(&request.id).or_insert(last);
        }
    }
    let twins: Vec<&TurnView> =
        group.iter().filter(|(other, _)| !std::ptr::eq(*other, *part)).map(|(_, turn)| *turn).collect();
    let settled = is_settled(part, turn, group);
    let mut foreground = turn.requests.iter().filter(|r| r.source == Source::Foreground);
    let shows_all = joined.logical_requests.bound == Bound::exact(foreground.clone().count() as u64);
    let single = shows_all && foreground.clone().count() == 1;
    let last = foreground.next_back().filter(|last| shows_all && !last.is_left_open);
    let turn_outcome = end_of(group).map(|end| end.outcome);
    turn.requests
        .iter()
        .filter(|request| shows(request.source))
        .map(|request| {
            let counts = match request.source {
                Source::Foreground if single => joined.clone(),
                _ => counts_of_request(request, settled),
            };
            let mut attempts = request.attempts.clone();
            for attempt in &mut attempts {
                let id = attempt.failure.as_ref().and_then(|f| f.upstream_request_id.clone());
                for other in id.iter().flat_map(|id| details.get(id.as_str()).into_iter().flatten()) {
                    enrich(attempt, other);
                }
            }
            let mut end = request.end;
            for other in twins.iter().filter_map(|twin| same_request(request, turn, twin)) {
                end = end.or(other.end);
                for (attempt, other) in attempts.iter_mut().zip(&other.attempts) {
                    enrich(attempt, other);
                }
            }
            if (request.end == Some(RequestEnd::GivenUp) || request.end.is_none() && settled)
                && let (Some(last), Some(end)) = (attempts.last_mut(), ends.get(request.id.as_str()))
            {
                enrich(last, end);
            }
            if last.is_some_and(|last| std::ptr::eq(last, request)) {
                end = end.or_else(|| end_with_turn(turn_outcome?, single, &attempts));
                let sends = attempts.iter().map(|a| a.sends).fold(Bound::ZERO, Bound::plus);
                if end == Some(RequestEnd::Answered)
                    && sends == counts.upstream_requests.bound
                    && let Some(answered) = attempts.last_mut().filter(|last| last.output_started.is_none())
                {
                    // Once output had begun, how it ended is another matter.
                    answered.outcome.get_or_insert(AttemptOutcome::Ok);
                }
            }
            name_alike(&mut attempts);
            let outcome = outcome_of(request, end, &attempts, &counts);
            // What was cut off may look like an answer.
            if outcome == RequestOutcome::Cancelled
                && let Some(last) = attempts.last_mut().filter(|a| a.outcome == Some(AttemptOutcome::Ok))
            {
                last.outcome = Some(AttemptOutcome::Cancelled);
            }
            LogicalRequest {
                id: request.id.clone(),
                step: request.step,
                source: request.source,
                purpose: request.purpose.clone(),
                outcome,
                upstream: counts.upstream_requests,
                retries: counts.retries,
                fallbacks: request.fallbacks().min,
                opened_at: request.opened_at,
                candidate: request.candidate.clone(),
                attempts,
                shows_attempts: request.visibility.attempts == Shown::All,
                usage: request.usage.clone(),
                requested_model: request.requested_model.clone(),
                stop_reason: request.stop_reason.clone(),
                decision: request.decision,
                origin: request.origin,
            }
        })
        .collect()
}

/// Returns the request of another view that is this one: both views hold the same number of foreground requests, and for
/// this one the same attempts, none of which contradicts the other.
fn same_request<'a>(request: &RequestView, turn: &TurnView, twin: &'a TurnView) -> Option<&'a RequestView> {
    let foreground = |r: &&RequestView| r.source == Source::Foreground;
    let index = turn.requests.iter().filter(foreground).position(|r| std::ptr::eq(r, request))?;
    let others: Vec<&RequestView> = twin.requests.iter().filter(foreground).collect();
    let other = *others.get(index)?;
    let agree = |(a, b): (&Attempt, &Attempt)| {
        let status = |attempt: &Attempt| attempt.failure.as_ref().and_then(|f| f.status);
        let failures = a.failure.as_ref().zip(b.failure.as_ref());
        a.kind == b.kind
            && status(a).zip(status(b)).is_none_or(|(a, b)| a == b)
            && failures.is_none_or(|(a, b)| !are_two_ends(a, b))
    };
    let same = others.len() == turn.requests.iter().filter(foreground).count()
        && other.attempts.len() == request.attempts.len()
        && request.attempts.iter().zip(&other.attempts).all(agree);
    same.then_some(other)
}

fn enrich(attempt: &mut Attempt, other: &Attempt) {
    let lacks = |own: &Option<String>, theirs: &Option<String>| own.is_none() && theirs.is_some();
    let (own, theirs) = (&attempt.candidate, &other.candidate);
    if lacks(&own.provider, &theirs.provider)
        || lacks(&own.model, &theirs.model)
        || lacks(&own.endpoint, &theirs.endpoint)
    {
        let own = Arc::make_mut(&mut attempt.candidate);
        own.provider = own.provider.take().or_else(|| theirs.provider.clone());
        own.model = own.model.take().or_else(|| theirs.model.clone());
        own.endpoint = own.endpoint.take().or_else(|| theirs.endpoint.clone());
    }
    attempt.delay_ms = attempt.delay_ms.or(other.delay_ms);
    attempt.delay_source = attempt.delay_source.or(other.delay_source);
    attempt.max_attempts = attempt.max_attempts.or(other.max_attempts);
    attempt.layer = attempt.layer.or(other.layer);
    if attempt.failure.is_none() && attempt.outcome != Some(AttemptOutcome::Ok) {
        attempt.failure.clone_from(&other.failure);
        attempt.outcome = other.outcome.or(attempt.outcome);
    }
    if let (Some(own), Some(theirs)) = (&mut attempt.failure, &other.failure)
        && may_be_one(own, theirs)
    {
        own.retry_after_ms = own.retry_after_ms.or(theirs.retry_after_ms);
        own.reset_at = own.reset_at.or(theirs.reset_at);
        own.reset_clock = own.reset_clock.or(theirs.reset_clock).filter(|_| own.reset_at.is_none());
        own.status = own.status.or(theirs.status);
        if own.says_nothing() && !theirs.says_nothing() {
            own.class = theirs.class;
            own.reason = theirs.reason;
            own.retryable = theirs.retryable;
        }
    }
}

/// Whether two logs may speak of one failure: a stream that broke off had begun with a good status, and two classes are two
/// failures.
pub(super) fn may_be_one(a: &Failure, b: &Failure) -> bool {
    let same_class = a.class == b.class || a.says_nothing() || b.says_nothing();
    same_class && !are_two_ends(a, b)
}

/// Whether one answer was refused and the other broke off.
fn are_two_ends(a: &Failure, b: &Failure) -> bool {
    let broke_off = |f: &Failure| matches!(f.reason, Reason::StreamCut | Reason::IdleTimeout);
    let refused = |f: &Failure| f.status.is_some_and(|status| status >= 400);
    broke_off(a) && refused(b) || broke_off(b) && refused(a)
}

/// Returns how the last request of a turn ended of which this log does not hold the end: as the turn did. An answer may have
/// come to an attempt that is not shown, where this was the only request.
fn end_with_turn(turn: TurnOutcome, single: bool, attempts: &[Attempt]) -> Option<RequestEnd> {
    let failed = attempts.last().is_some_and(|a| a.outcome == Some(AttemptOutcome::Failed));
    match turn {
        TurnOutcome::Failed => Some(RequestEnd::GivenUp),
        TurnOutcome::Succeeded => (single || !failed).then_some(RequestEnd::Answered),
        TurnOutcome::Cancelled => Some(RequestEnd::Cancelled),
        TurnOutcome::Unknown => None,
    }
}

fn outcome_of(
    request: &RequestView,
    end: Option<RequestEnd>,
    attempts: &[Attempt],
    counts: &Counts,
) -> RequestOutcome {
    let sends = attempts.iter().map(|a| a.sends).chain(request.extra).fold(Bound::ZERO, Bound::plus);
    let hedges = request.hedges();
    // A hedge repeats nothing, unless it answered for an attempt that failed.
    let is_rescued = hedges.min > 0
        && end == Some(RequestEnd::Answered)
        && attempts.iter().any(|a| a.outcome == Some(AttemptOutcome::Failed));
    let repeated = sends.without(hedges).min > 1 || is_rescued || counts.retries.bound.min > 0;
    let fell_back = attempts.iter().any(|a| a.kind == AttemptKind::Fallback && a.sends.max != Some(0));
    let sure = request.visibility.attempts == Shown::All && sends.is_exact();
    match end {
        Some(RequestEnd::Answered) if fell_back => RequestOutcome::OkAfterFallback,
        Some(RequestEnd::Answered) if repeated => RequestOutcome::OkAfterRetry,
        Some(RequestEnd::Answered) if sure => RequestOutcome::OkFirstTry,
        Some(RequestEnd::Answered) => RequestOutcome::Ok,
        Some(RequestEnd::GivenUp) if repeated || fell_back => RequestOutcome::FailedAfterRetry,
        Some(RequestEnd::GivenUp) if counts.retries.bound.max == Some(0) => RequestOutcome::FailedNoRetry,
        Some(RequestEnd::GivenUp) => RequestOutcome::Failed,
        Some(RequestEnd::Cancelled) => RequestOutcome::Cancelled,
        None => RequestOutcome::Open,
    }
}

pub(super) fn time_of(
    requests: &[LogicalRequest],
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
) -> Time {
    let span = |a: DateTime<Utc>, b: DateTime<Utc>| u64::try_from((b - a).num_milliseconds()).ok();
    let mut time =
        Time { wall_ms: started_at.zip(ended_at).and_then(|(a, b)| span(a, b)), ..Time::default() };
    let attempts =
        requests.iter().flat_map(|r| r.attempts.iter().enumerate().map(|(i, a)| (a, r.attempts.get(i + 1))));
    for (attempt, next) in attempts {
        // The real wait where times tell it, else the planned one. A wait that no attempt followed was cut short, or is
        // known only up to the last line of the log.
        let open = attempt.ended_at.zip(ended_at).filter(|_| next.is_none());
        let planned = attempt.delay_ms.map(|delay| match open {
            Some((from, to)) => delay.min(span(from, to).unwrap_or(0)),
            None => delay,
        });
        let wait = attempt.waited_ms.or(planned);
        let failed = (attempt.outcome == Some(AttemptOutcome::Failed))
            .then(|| attempt.started_at.zip(attempt.ended_at).and_then(|(a, b)| span(a, b)))
            .flatten();
        if let Some(wait) = wait {
            time.waiting_ms = Some(time.waiting_ms.unwrap_or(0) + wait);
        }
        let told = (wait.is_some() || failed.is_some()).then(|| wait.unwrap_or(0) + failed.unwrap_or(0));
        // Where one of the two is not told, the start of the next attempt bounds both.
        let until_next = (attempt.outcome == Some(AttemptOutcome::Failed)
            && (wait.is_none() || failed.is_none()))
        .then(|| attempt.started_at.zip(next?.started_at).and_then(|(a, b)| span(a, b)))
        .flatten();
        if let Some(lost) = until_next.max(told) {
            time.lost_ms = Some(time.lost_ms.unwrap_or(0) + lost);
        }
    }
    time
}
