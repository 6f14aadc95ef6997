//! What each event of the schema does to the view of its run.
//!
//! Not for: marks and turns (see the module above). A repeat of an event changes nothing; an event that completes another
//! one changes only what it says.

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptKind, AttemptOutcome, Candidate, Event, FallbackKind, ModelAttempt, ModelFallback, ModelRequest,
    ModelRetry, Sent, Source, Usage,
};
use retryscope_record::{Anchor, Origin, RawFailure, TurnOutcome};
use serde_json::Value;

use crate::count::{Bound, Evidence};
use crate::judge::{Failure, Said};
use crate::redact::{kept, redact};
use crate::run::Told;

use super::candidate::differs;
use super::memo::Memo;
use super::request::{FallbacksSeen, Pending, RequestView, leave_open};
use super::{End, ViewOfRun};

/// What a body says of a failure: the bodies of failures name most of it alike, and some say more.
macro_rules! said {
    ($body:ident, $provider:expr, $event:ident, $raw:ident $(, $more:ident)*) => {
        Said {
            provider: $provider,
            status: $body.status,
            code: $body.code.as_deref(),
            message: $body.message.as_deref(),
            class: $body.class.as_deref(),
            reason: $body.reason.as_deref(),
            retry_after_ms: span($body.retry_after_ms),
            upstream_request_id: $body.upstream_request_id.as_deref(),
            raw: $raw,
            at: $event.ts,
            $($more: $body.$more,)*
            ..Said::default()
        }
    };
}

pub(super) use said;

/// Longest span that is believed, in ms: some thirty years. Sums of such spans do not overflow.
const LONGEST_SPAN: u64 = 1_000_000_000_000;

/// Largest number of attempts of one request that is believed.
const MOST_ATTEMPTS: u64 = 1_000_000_000;

/// The same where each of them is made one by one.
const MOST_MADE: u64 = 10_000;

/// Most tokens of one answer that are believed. Sums of such numbers do not overflow.
const MOST_TOKENS: u64 = 1_000_000_000_000;

/// Purposes of requests that are never those of the prompt itself, where nothing says so.
const SIDE_CALLS: &[&str] = &["title", "summary", "compaction", "warmup", "warm-up", "warm_up", "classifier"];

/// Returns a span of a log; one that cannot be is not said.
pub(super) fn span(ms: Option<u64>) -> Option<u64> {
    ms.filter(|ms| *ms <= LONGEST_SPAN)
}

/// Returns the tokens of an answer; a number that cannot be is not said.
pub(super) fn tokens(usage: Option<&Usage>) -> Option<Box<Usage>> {
    let usage = usage?;
    let believed = |tokens: Option<u64>| tokens.filter(|tokens| *tokens <= MOST_TOKENS);
    Some(Box::new(Usage {
        input_tokens: believed(usage.input_tokens),
        output_tokens: believed(usage.output_tokens),
        cached_input_tokens: believed(usage.cached_input_tokens),
        reasoning_tokens: believed(usage.reasoning_tokens),
        cost_usd: usage.cost_usd.filter(|cost| cost.is_finite()),
    }))
}

/// Returns a number of attempts of a log; one that cannot be is not said.
pub(super) fn number(attempts: Option<u64>) -> Option<u64> {
    attempts.filter(|attempts| *attempts <= MOST_ATTEMPTS)
}

impl ViewOfRun {
    /// Returns the request that an event speaks of: by id, else the open one, else a new one.
    pub(super) fn request_of(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        id: Option<&String>,
        memo: &mut Memo,
    ) -> &mut RequestView {
        let requests = &self.turns[turn].requests;
        let found = match id {
            Some(id) => self.request_ids.find(turn, requests, id),
            None => requests.iter().rposition(|r| r.end.is_none()),
        };
        let index = found.unwrap_or_else(|| self.new_request(turn, origin, event, id, memo));
        let request = &mut self.turns[turn].requests[index];
        if request.api.as_deref() != self.facts.api.as_deref() {
            request.api = self.facts.api.as_deref().map(Into::into);
        }
        request
    }

    /// Adds a request to a turn; returns its place.
    fn new_request(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        id: Option<&String>,
        memo: &mut Memo,
    ) -> usize {
        self.next_local += 1;
        let named = Candidate {
            provider: self.facts.provider.clone(),
            model: self.facts.model.clone(),
            ..Candidate::default()
        };
        let has_gap = self.turns[turn].has_gap;
        let requests = &mut self.turns[turn].requests;
        let index = requests.len();
        if index == 0 {
            requests.reserve_exact(1);
        }
        requests.push(RequestView {
            id: id.cloned().unwrap_or_else(|| format!("#{}", self.next_local)),
            id_is_native: id.is_some_and(|id| !id.starts_with('#')),
            source: Source::Foreground,
            visibility: self.foreground,
            purpose: None,
            step: event.step,
            candidate: memo.candidate(&named),
            attempts: Vec::new(),
            end: None,
            usage: None,
            requested_model: None,
            stop_reason: None,
            decision: None,
            told_attempts: None,
            own_records: 0,
            retry_number: None,
            fallbacks_seen: FallbacksSeen::default(),
            maybe_missing: 0,
            extra: None,
            sent_once_each: false,
            basis: None,
            sent_by: None,
            origin,
            source_is_open: has_gap,
            is_left_open: false,
            explicit: false,
            pending: None,
            next_kind: None,
            opened_at: event.ts,
            api: None,
        });
        index
    }

    pub(super) fn request(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelRequest,
        memo: &mut Memo,
    ) {
        let background = self.background;
        // A turn that asks again was not over, unless the record is merely late.
        let goes_on = |end: &End| end.outcome != TurnOutcome::Cancelled && !is_before(event.ts, end.at);
        if self.turns[turn].end.as_ref().is_some_and(goes_on) {
            self.turns[turn].end = None;
        }
        // Without an id, a new request is a new request, also when the one before has no end in the log.
        let asks_anew = match &body.request_id {
            None => {
                for open in self.turns[turn].requests.iter_mut().filter(|r| r.end.is_none()) {
                    leave_open(open, origin, event.ts);
                }
                true
            }
            // A writer may begin to count again: what is asked for under a number after its answer is asked for anew. One that
            // was given up may be taken up again.
            Some(id) => {
                let known = self.request_ids.find(turn, &self.turns[turn].requests, id);
                known.is_some_and(|known| self.turns[turn].requests[known].was_answered_before(event.ts))
            }
        };
        if asks_anew {
            self.new_request(turn, origin, event, body.request_id.as_ref(), memo);
        }
        let request = self.request_of(turn, origin, event, body.request_id.as_ref(), memo);
        if let Some(candidate) = &body.candidate {
            request.candidate = memo.merged(&request.candidate, candidate);
        }
        let is_side = body.purpose.as_deref().is_some_and(|purpose| SIDE_CALLS.contains(&purpose));
        if let Some(source) = body.source.or(is_side.then_some(Source::Background)) {
            request.source = source;
            if source == Source::Background {
                request.visibility = background;
            }
        }
        request.source_is_open = false;
        request.purpose = kept(body.purpose.as_deref()).or(request.purpose.take());
        request.step = event.step.or(request.step);
    }

    pub(super) fn attempt(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelAttempt,
        raw: Option<&RawFailure>,
        memo: &mut Memo,
    ) {
        if let Some(id) = &body.upstream_request_id {
            self.turns[turn].note(Anchor::of(id));
        }
        let request = self.request_of(turn, origin, event, body.request_id.as_ref(), memo);
        if request.is_made_of_parts(body) {
            return;
        }
        let outer = body.parent_attempt_id.as_deref().and_then(|id| request.take_outer(id));
        let known = request.known(body);
        let index = known.unwrap_or_else(|| {
            let kind_is_told = body.kind.is_some() || request.next_kind.is_some();
            let already = request.attempts.len();
            let index = request.own(origin, number(body.attempt), body.kind, event.ts);
            let is_new = index >= already;
            let before = index.checked_sub(1).map(|before| request.attempts[before].candidate.clone());
            let attempt = &mut request.attempts[index];
            if let Some(candidate) = &body.candidate {
                attempt.candidate = memo.merged(&attempt.candidate, candidate);
            }
            let told_start = if is_new { event.ts } else { attempt.started_at };
            attempt.started_at = body.started_at.or(told_start);
            if !kind_is_told && before.is_some_and(|before| differs(&before, &attempt.candidate)) {
                attempt.kind = AttemptKind::Fallback;
            }
            attempt.told.parent = body.parent_attempt_id.as_deref().map(Into::into);
            if !is_new {
                request.fallbacks_seen = FallbacksSeen::default();
            }
            index
        });
        if let Some(outer) = outer {
            request.attempts[index].begins(&outer);
        }
        request.name_first_send(index);
        let wait_from = index.checked_sub(1).and_then(|i| request.attempts[i].ended_at);
        let attempt = &mut request.attempts[index];
        if known.is_none()
            && let (Some(from), Some(to)) = (wait_from, attempt.started_at)
        {
            let waited = (to - from).num_milliseconds();
            if let (Ok(waited), Some(before)) = (u64::try_from(waited), index.checked_sub(1)) {
                request.attempts[before].waited_ms.get_or_insert(waited);
            }
        }
        let attempt = &mut request.attempts[index];
        attempt.id = body.attempt_id.clone().or(attempt.id.take());
        attempt.layer = body.layer.or(attempt.layer);
        match body.sent {
            Some(Sent::No) => attempt.sends = Bound::ZERO,
            Some(Sent::Unknown) => attempt.sends = Bound::range(0, Some(1)),
            Some(Sent::Yes) | None => {}
        }
        attempt.outcome = body.outcome.or(attempt.outcome);
        attempt.ended_at = body.ended_at.or(attempt.ended_at);
        // The record of an attempt that is over was written when it was over.
        if body.outcome.is_some() && (known.is_some() || body.started_at.is_some()) {
            attempt.ended_at = attempt.ended_at.or(event.ts);
        }
        attempt.output_started = body.output_started.or(attempt.output_started);
        attempt.usage = tokens(body.usage.as_ref()).or(attempt.usage.take());
        attempt.told = Told {
            error_source: body.error_source.or(attempt.told.error_source),
            terminal_event: kept(body.terminal_event.as_deref()).or(attempt.told.terminal_event.take()),
            idle_ms: body.idle_ms.or(attempt.told.idle_ms),
            parent: attempt.told.parent.take(),
            kind: attempt.told.kind,
        };
        let failed = body.outcome == Some(AttemptOutcome::Failed) || body.status.is_some_and(|s| s >= 400);
        let detailed =
            body.status.is_some() || body.message.is_some() || body.code.is_some() || body.class.is_some();
        if detailed && (failed || body.message.is_some()) {
            let provider = attempt.candidate.provider.as_deref();
            let said = said!(body, provider, event, raw, retryable);
            let failure = memo.judge(&said);
            attempt.reached = reached(&failure);
            attempt.failure = Some(failure);
        }
    }

    pub(super) fn retry(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelRetry,
        raw: Option<&RawFailure>,
        memo: &mut Memo,
    ) {
        let request = self.request_of(turn, origin, event, body.request_id.as_ref(), memo);
        if let Some(candidate) = &body.candidate {
            let now = memo.merged(&request.candidate, candidate);
            if request.attempts.last().is_some_and(|a| differs(&a.candidate, &now))
                && request.next_kind.is_none()
            {
                request.next_kind = Some(AttemptKind::Fallback);
                request.pending = None;
            }
            request.candidate = now;
        }
        let asked = request.candidate.clone();
        let goes_on_waiting = request.goes_on_waiting(number(body.attempt), body.layer, event.ts);
        let attempt = if goes_on_waiting || request.explicit && !request.attempts.is_empty() {
            request.pending = None;
            let last = request.attempts.len() - 1;
            &mut request.attempts[last]
        } else if request.comes_before_the_end(event.ts) {
            request.before_the_end(origin, event.ts)
        } else {
            request.current(origin, event.ts)
        };
        attempt.outcome = Some(AttemptOutcome::Failed);
        attempt.evidence = Evidence::Observed;
        attempt.origin = if attempt.failure.is_some() { attempt.origin } else { origin };
        attempt.ended_at = attempt.ended_at.or(event.ts);
        let said = said!(body, asked.provider.as_deref(), event, raw);
        if attempt.failure.is_none() || body.status.is_some() || body.message.is_some() {
            let failure = memo.judge(&said);
            attempt.reached = reached(&failure);
            attempt.failure = Some(failure);
        }
        let delay_ms = span(body.delay_ms).map(|delay| match (goes_on_waiting, attempt.ended_at, event.ts) {
            (true, Some(from), Some(now)) => {
                delay.saturating_add(u64::try_from((now - from).num_milliseconds()).unwrap_or(0))
            }
            _ => delay,
        });
        attempt.delay_ms = delay_ms.or(attempt.delay_ms);
        attempt.waited_ms = span(body.waited_ms).or(attempt.waited_ms);
        attempt.delay_source = body.delay_source.or(attempt.delay_source);
        attempt.max_attempts = number(body.max_attempts).or(attempt.max_attempts);
        attempt.layer = body.layer.or(attempt.layer);
        attempt.output_started = body.output_started.or(attempt.output_started);
        attempt.output_discarded = body.output_discarded.or(attempt.output_discarded);
        if let Some(changed) = &body.changed {
            attempt.changed = changed.iter().map(|what| redact(what)).collect();
        }
        request.pending = Some(Pending { at: event.ts, delay_ms: span(body.delay_ms) });
        request.tell_number(number(body.attempt));
    }

    pub(super) fn fallback(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelFallback,
        memo: &mut Memo,
    ) {
        let request = self.request_of(turn, origin, event, body.request_id.as_ref(), memo);
        if let Some(from) = &body.from {
            request.candidate = memo.merged(&request.candidate, from);
        }
        if !request.explicit {
            let codes = body.failures.as_deref().unwrap_or_default();
            let told = if codes.is_empty() {
                number(body.attempts).filter(|told| *told <= MOST_MADE).unwrap_or(0)
            } else {
                codes.len() as u64
            };
            let seen = request.of_current_candidate() as u64;
            // The last failed attempt of a candidate has no retry record; the list of codes, or the fallback itself,
            // proves it.
            let missing = if told > 0 {
                told.saturating_sub(seen)
            } else {
                u64::from(seen == 0 || request.pending.is_some())
            };
            for n in 0..missing {
                let code =
                    codes.get(usize::try_from(seen + n).unwrap_or(usize::MAX)).and_then(Option::as_ref);
                let status = code_as_status(code);
                let code = code.and_then(Value::as_str).filter(|_| status.is_none());
                let meant = code.and_then(retryscope_events::read::class_of_code);
                let asked = request.candidate.clone();
                let attempt = request.push(origin, Evidence::Derived, event.ts);
                attempt.outcome = Some(AttemptOutcome::Failed);
                if n + 1 == missing {
                    attempt.ended_at = event.ts;
                }
                let failure = memo.judge(&Said {
                    provider: asked.provider.as_deref(),
                    status,
                    code,
                    class: meant.map(|(class, _)| class),
                    reason: meant.map(|(_, reason)| reason),
                    at: event.ts,
                    ..Said::default()
                });
                attempt.failure = Some(failure);
            }
        }
        request.pending = None;
        request.next_kind = Some(AttemptKind::Fallback);
        if let Some(to) = &body.to {
            request.candidate = if body.kind.is_none_or(|kind| kind == FallbackKind::Model) {
                memo.candidate(to)
            } else {
                memo.merged(&request.candidate, to)
            };
        }
    }
}

/// Returns whether something was certainly said of a time before another one.
pub(super) fn is_before(at: Option<DateTime<Utc>>, other: Option<DateTime<Utc>>) -> bool {
    at.zip(other).is_some_and(|(at, other)| at < other)
}

fn code_as_status(code: Option<&Value>) -> Option<u16> {
    match code {
        Some(Value::Number(number)) => number.as_u64().and_then(|n| u16::try_from(n).ok()),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    }
}

pub(super) fn reached(failure: &Failure) -> Option<bool> {
    match (failure.status, failure.reason.as_str()) {
        (Some(_), _) | (None, "stream_cut" | "idle_timeout") => Some(true),
        (None, "refused" | "dns" | "connect") => Some(false),
        _ => None,
    }
}
