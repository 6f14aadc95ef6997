//! What one run adds to the counters.
//!
//! Not for: how much of it was counted before (see [`super::Totals`]), or for labels as they are shown (see
//! [`super::keys`]): a sample names its labels by words of closed sets and a number for agent, provider and model.

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome};

use super::Metric;
use super::keys::{Account, Base, Bases, Key, Names};
use crate::count::Evidence;
use crate::run::{Attempt, LogicalRequest, RequestOutcome, Run, RunOutcome, Turn};
use crate::waits::is_long_enough;

/// One thing that a run adds: `n` to a series, at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// When it happened.
    pub(super) at: Option<DateTime<Utc>>,
    /// When the log told of it: later than that for what took long.
    pub(super) told: Option<DateTime<Utc>>,
    /// How many, or how much for sums and the observed value for histograms.
    pub(super) n: u64,
}

/// Hands over everything that a run adds.
pub(super) fn samples<'a>(run: &'a Run, bases: Bases<'a>, take: impl FnMut(&Names, Key, Sample)) {
    let mut told = Told { bases, take };
    for turn in &run.turns {
        for request in &turn.requests {
            told.of_request(turn, request);
        }
        told.of_turn(turn);
    }
}

/// When something happened, and when it was told.
type Times = (Option<DateTime<Utc>>, Option<DateTime<Utc>>);

/// Who was asked, and with which account.
type Payer = (Base, Option<Account>);

/// Class and reason of a failure that no log tells anything of.
const UNTOLD: (&str, &str) = ("unknown", "no_detail");

/// Names what is told of one run.
struct Told<'a, F> {
    bases: Bases<'a>,
    take: F,
}

impl<'a, F: FnMut(&Names, Key, Sample)> Told<'a, F> {
    fn base(&mut self, attempt: Option<&'a Attempt>) -> Base {
        self.bases.of(attempt.map(|attempt| &attempt.candidate))
    }

    fn add(&mut self, key: Key, at: Option<DateTime<Utc>>, n: u64) {
        self.add_told(key, (at, at), n);
    }

    /// Adds what happened at one time, and was told at another.
    fn add_told(&mut self, key: Key, (at, told): Times, n: u64) {
        (self.take)(self.bases.names(), key, Sample { at, told, n });
    }

    fn of_turn(&mut self, turn: &'a Turn) {
        if !turn.is_over() {
            return;
        }
        let last = turn.last_asked().and_then(|r| r.attempts.last());
        let class = turn.cause.as_ref().map_or("none", |cause| cause.failure.class.as_str());
        let key = Key::new(Metric::RunOutcomes, self.base(last)).words(&[turn.outcome.as_str(), class]);
        self.add(key, turn.ended_at, 1);
    }

    fn of_request(&mut self, turn: &'a Turn, request: &'a LogicalRequest) {
        let first = request.attempts.first();
        let opened = request.opened_at.or(turn.started_at);
        let started = first.and_then(|a| a.started_at.or(a.ended_at)).or(opened);
        // While a request is open its bound has no end; what its log shows of attempts tells how it will be.
        let open_but_told = request.outcome == RequestOutcome::Open
            && !turn.is_over()
            && request.shows_attempts
            && request.attempts.iter().all(|attempt| attempt.sends.is_exact());
        let visibility = match request.upstream.evidence {
            Evidence::NotVisible => "none",
            _ if request.upstream.bound.is_exact() || open_but_told => "full",
            _ => "partial",
        };
        let source = request.source.as_str();
        let of_first = self.bases.of(Some(first.map_or(&request.candidate, |first| &first.candidate)));
        self.add(Key::new(Metric::LogicalRequests, of_first).words(&[source, visibility]), started, 1);
        let upstream = |told: &mut Self, (base, account): Payer, kind: AttemptKind, times: Times, n: u64| {
            if n > 0 {
                // What the budget counts: at once, whatever is still open about the request.
                let sent = Key::new(Metric::Sent, base).account(account).words(&[kind.as_str()]);
                told.add_told(sent, times, n);
                let words = [kind.as_str(), source, visibility];
                told.add_told(Key::new(Metric::UpstreamRequests, base).words(&words), times, n);
            }
        };
        let mut counted = 0;
        for attempt in &request.attempts {
            let at = attempt.started_at.or(attempt.ended_at).or(started);
            // Of several sends behind one visible attempt, the first is of its kind, the others are retries below it.
            let sends = attempt.sends.min;
            counted += sends;
            let base = self.base(Some(attempt));
            let times = (at, attempt.ended_at.or(at));
            let payer = (base, self.bases.account(&attempt.candidate));
            upstream(self, payer, attempt.kind, times, sends.min(1));
            upstream(self, payer, AttemptKind::Retry, times, sends.saturating_sub(1));
            if is_settled(turn, request, attempt) {
                self.of_attempt(base, attempt, at);
            }
        }
        // What is known to have been sent beyond the visible attempts: the first send if none is visible, then retries.
        let hidden = request.upstream.bound.min.saturating_sub(counted);
        let original = hidden.min(u64::from(counted == 0));
        let times = (started, request.attempts.last().and_then(|a| a.ended_at).or(started));
        let payer =
            (of_first, self.bases.account(first.map_or(&request.candidate, |first| &first.candidate)));
        upstream(self, payer, AttemptKind::Original, times, original);
        upstream(self, payer, AttemptKind::Retry, times, hidden - original);
        self.retries_for(of_first, "unknown", UNTOLD, hidden - original, times);
        self.retries(request);
        if request.outcome != RequestOutcome::Open {
            let ended = request.attempts.last().and_then(|a| a.ended_at.or(a.started_at)).or(turn.ended_at);
            let of_last = request.attempts.last().map_or(of_first, |last| self.base(Some(last)));
            self.add(Key::new(Metric::RequestOutcomes, of_last).words(&[request.outcome.as_str()]), ended, 1);
            self.add(Key::new(Metric::AttemptsPerRequest, of_first), ended, request.upstream.bound.min);
        }
    }

    /// Retries by layer, class and reason of the failure that led to them; and what happened in the waits.
    fn retries(&mut self, request: &'a LogicalRequest) {
        for (index, attempt) in request.attempts.iter().enumerate() {
            let next = request.attempts.get(index + 1);
            let hidden = attempt.sends.min.saturating_sub(1);
            let because = class_of(attempt);
            let base = self.base(Some(attempt));
            let began = attempt.started_at.or(attempt.ended_at);
            self.retries_for(base, "unknown", because, hidden, (began, attempt.ended_at.or(began)));
            if let Some(next) = next.filter(|next| next.kind == AttemptKind::Retry) {
                let layer = attempt.layer.or(next.layer).map_or("unknown", |layer| layer.as_str());
                let at = next.started_at.or(attempt.ended_at);
                self.retries_for(base, layer, because, next.sends.min.min(1), (at, next.ended_at.or(at)));
            }
            // A plan that no attempt followed may have been cut short.
            let planned = attempt.delay_ms.filter(|_| next.is_some());
            if let Some(wait) = attempt.waited_ms.or(planned) {
                self.add(Key::new(Metric::RetryDelay, base), attempt.ended_at, wait);
                self.add(Key::new(Metric::Waiting, base), attempt.ended_at, wait);
            }
            if let Some(verdict) = verdict(attempt, next) {
                self.add(Key::new(Metric::RetryAfter, base).words(&[verdict]), attempt.ended_at, 1);
            }
            let is_move = |next: &&Attempt| next.kind == AttemptKind::Fallback && next.sends.min > 0;
            if let Some(next) = next.filter(is_move) {
                let to = self.base(Some(next));
                let kind = if !self.bases.same_provider(base, to)
                    || attempt.candidate.model != next.candidate.model
                {
                    "model"
                } else if attempt.candidate.transport != next.candidate.transport {
                    "transport"
                } else if attempt.candidate.account != next.candidate.account {
                    "credential"
                } else {
                    "endpoint"
                };
                let key = Key::new(Metric::Fallbacks, base).to(to).words(&[kind, because.1]);
                self.add(key, next.started_at, 1);
            }
        }
    }

    /// Adds retries of one layer, after a failure of this class and reason.
    fn retries_for(
        &mut self,
        base: Base,
        layer: &'static str,
        (class, reason): (&'static str, &'static str),
        n: u64,
        times: Times,
    ) {
        if n > 0 {
            self.add_told(Key::new(Metric::Retries, base).words(&[layer, class, reason]), times, n);
        }
    }

    fn of_attempt(&mut self, base: Base, attempt: &Attempt, at: Option<DateTime<Utc>>) {
        if attempt.outcome != Some(AttemptOutcome::Failed) || attempt.sends.min == 0 {
            return;
        }
        let (class, reason) = class_of(attempt);
        let status = attempt.failure.as_ref().and_then(|f| f.status);
        let key = Key::new(Metric::AttemptFailures, base).words(&[class, reason]).status(status);
        self.add(key, attempt.ended_at.or(at), attempt.sends.min);
    }
}

/// Returns whether what failed an attempt is not to be told better at once: it was followed by something, or a wait is
/// planned. The last failure of a run is told by several of its logs, and not first by the one that knows most.
fn is_settled(turn: &Turn, request: &LogicalRequest, attempt: &Attempt) -> bool {
    let is_last = request.attempts.last().is_some_and(|last| std::ptr::eq(last, attempt));
    let is_open = request.outcome == RequestOutcome::Open && turn.outcome == RunOutcome::Running;
    !(is_last && is_open) || attempt.delay_ms.is_some()
}

/// How the provider's stated wait was treated; `None` for an attempt that did not fail or was not repeated.
fn verdict(attempt: &Attempt, next: Option<&Attempt>) -> Option<&'static str> {
    let failure = attempt.failure.as_ref()?;
    let repeated = next.is_some_and(|next| next.kind == AttemptKind::Retry);
    match (failure.retry_after_ms, attempt.waited_ms.or(attempt.delay_ms)) {
        (Some(_), _) if !repeated => None,
        (Some(asked), Some(waited)) if is_long_enough(waited, asked) => Some("honoured"),
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

fn class_of(attempt: &Attempt) -> (&'static str, &'static str) {
    match &attempt.failure {
        Some(failure) => (failure.class.as_str(), failure.reason.as_str()),
        None => UNTOLD,
    }
}
