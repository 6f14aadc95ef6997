//! One logical request in one source: its attempts, and what follows for those that have no record of their own.
//!
//! Not for: which event means what (see `events`). Rule: the last failed attempt of a candidate often has no record; it is
//! known from the fallback, the end of the request or the end of the turn, and never guessed otherwise.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome, Candidate, Decision, Layer, Source, Usage};
use retryscope_record::{Origin, Shown, TurnOutcome};
use serde::{Deserialize, Serialize};

use crate::count::{Bound, Evidence};
use crate::run::{Attempt, Told};
use crate::waits::is_long_enough;

use super::Visibility;

/// One logical request in one source.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a statement of its own that a source makes")]
pub(crate) struct RequestView {
    pub(crate) id: String,
    /// Whether the id is the agent's own, so that other sources may use it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) id_is_native: bool,
    pub(crate) source: Source,
    pub(crate) visibility: Visibility,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) purpose: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<u64>,
    pub(crate) candidate: Arc<Candidate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attempts: Vec<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<RequestEnd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Box<Usage>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requested_model: Option<String>,
    #[serde(default)]
    pub(crate) stop_reason: Option<String>,
    /// Why it was given up, as its end says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<Decision>,
    /// Attempts that its end says there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) told_attempts: Option<u64>,
    /// Of the attempts, those that have a record of their own or stand before one; others follow from other records.
    #[serde(default)]
    pub(super) own_records: usize,
    /// The number of the failed attempt that the last retry told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retry_number: Option<u64>,
    /// What was seen of fallbacks among its attempts.
    #[serde(skip)]
    pub(super) fallbacks_seen: FallbacksSeen,
    /// Attempts without any record that numbers speak of.
    #[serde(default)]
    pub(super) maybe_missing: u64,
    /// Sends beyond the visible attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extra: Option<Bound>,
    /// Nothing below the outer loop repeated its attempts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sent_once_each: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) basis: Option<String>,
    /// When its last attempt had been sent at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_by: Option<DateTime<Utc>>,
    pub(crate) origin: Origin,
    /// Its own record, which says whether it is foreground, may have been lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) source_is_open: bool,
    /// The process that asked ended before the request did: the end of its turn says nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_left_open: bool,
    /// Attempts are records of their own; else they follow from retries and ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) explicit: bool,
    /// A wait was planned and nothing has been seen after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pending: Option<Pending>,
    /// The kind of the next attempt, after a fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_kind: Option<AttemptKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) opened_at: Option<DateTime<Utc>>,
    /// Provider API of the attempts that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api: Option<Arc<str>>,
}

/// Where the last fallback stands of so many attempts that were looked at: a long storm is not looked through again for each
/// of its retries. Whatever changes an attempt before the last one begins it anew.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FallbacksSeen {
    until: usize,
    last: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RequestEnd {
    Answered,
    GivenUp,
    Cancelled,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) at: Option<DateTime<Utc>>,
    pub(super) delay_ms: Option<u64>,
}

impl RequestView {
    /// Returns the number of upstream requests as far as this source knows, given whether its turn is over and told.
    pub(crate) fn upstream(&self, settled: bool) -> (Bound, Evidence) {
        let mut sends = self.attempts.iter().map(|a| a.sends).fold(Bound::ZERO, Bound::plus);
        if let Some(extra) = self.extra {
            sends = sends.plus(extra);
        }
        // Asked for at all means sent at least once, a refused connection counts as an attempt; but attempts with records of
        // their own say themselves whether they were sent.
        if !self.explicit || self.attempts.is_empty() {
            sends = Bound::range(sends.min.max(1), sends.max.map(|max| max.max(1)));
        }
        let worst = self.attempts.iter().map(|a| a.evidence).max().unwrap_or(Evidence::Derived);
        let ended = self.end.is_some() || settled;
        match self.visibility.attempts {
            Shown::All if ended => {
                let evidence = if sends.is_exact() { worst } else { Evidence::Inferred };
                (sends, evidence)
            }
            // The format bounds what is hidden.
            Shown::None | Shown::Some if ended && self.extra.is_some() => {
                (sends, worst.max(Evidence::Derived))
            }
            Shown::None if self.attempts.len() <= 1 => (Bound::at_least(sends.min), Evidence::NotVisible),
            Shown::All | Shown::Some | Shown::None => {
                (Bound::at_least(sends.min), worst.max(Evidence::Derived))
            }
        }
    }

    /// Returns how many of its sends were the first ones to another candidate.
    pub(crate) fn fallbacks(&self) -> Bound {
        self.sent_as(AttemptKind::Fallback)
    }

    /// Returns how many of its sends were duplicates beside another one.
    pub(crate) fn hedges(&self) -> Bound {
        self.sent_as(AttemptKind::Hedge)
    }

    /// An attempt of several sends was of its kind once; one that was not sent was none.
    fn sent_as(&self, kind: AttemptKind) -> Bound {
        let of_kind = self.attempts.iter().filter(|a| a.kind == kind);
        of_kind.map(Attempt::sent_at_all).fold(Bound::ZERO, Bound::plus)
    }

    /// Returns how many sends are known not to have failed, of a request that was given up.
    pub(crate) fn ended_otherwise(&self) -> u64 {
        let otherwise = |a: &&Attempt| a.outcome.is_some_and(|outcome| outcome != AttemptOutcome::Failed);
        self.attempts.iter().filter(otherwise).map(|a| a.sent_at_all().min).sum()
    }

    /// Attempts that lost to another one that was sent beside them, and those that were called off: they did not fail.
    pub(crate) fn beside_the_answer(&self) -> u64 {
        let is_hedged = self.attempts.iter().any(|a| a.kind == AttemptKind::Hedge);
        let lost = |a: &&Attempt| match a.outcome {
            Some(AttemptOutcome::Ok | AttemptOutcome::Failed) => false,
            Some(AttemptOutcome::Cancelled | AttemptOutcome::Superseded) => true,
            None => is_hedged,
        };
        self.attempts.iter().filter(lost).map(|a| a.sent_at_all().min).sum()
    }

    /// Returns where the last attempt stands that its own record does not say to have been called off; the last of all where
    /// there is none. There must be one.
    pub(super) fn last_that_may_have_failed(&self) -> usize {
        let last = self.attempts.len() - 1;
        self.attempts.iter().rposition(|a| !a.was_called_off()).unwrap_or(last)
    }

    pub(super) fn last(&mut self) -> Option<&mut Attempt> {
        self.attempts.last_mut()
    }

    /// Attempts of the candidate that is being asked now.
    pub(super) fn of_current_candidate(&mut self) -> usize {
        if self.next_kind.is_some() {
            return 0;
        }
        // What the last attempt is may be told yet.
        let Some(last) = self.attempts.len().checked_sub(1) else { return 0 };
        let is_fallback = |attempt: &Attempt| attempt.kind == AttemptKind::Fallback;
        let mut seen = self.fallbacks_seen;
        if seen.until > last {
            seen = FallbacksSeen::default();
        }
        if let Some(further) = self.attempts[seen.until..last].iter().rposition(is_fallback) {
            seen.last = seen.until + further;
        }
        seen.until = last;
        self.fallbacks_seen = seen;
        let start = if is_fallback(&self.attempts[last]) { last } else { seen.last };
        debug_assert!(
            last > 64 || self.attempts.iter().rposition(is_fallback).unwrap_or(0) == start,
            "what was seen of fallbacks holds"
        );
        self.attempts.len() - start
    }

    /// Adds an attempt that a record written `now` speaks of.
    pub(super) fn push(
        &mut self,
        origin: Origin,
        evidence: Evidence,
        now: Option<DateTime<Utc>>,
    ) -> &mut Attempt {
        // Sent again without a word about the one before: that one failed, its reason was not logged. A hedge is sent beside it.
        if self.next_kind != Some(AttemptKind::Hedge)
            && let Some(before) = self.attempts.last_mut()
            && before.outcome.is_none()
            && before.kind != AttemptKind::Hedge
        {
            before.outcome = Some(AttemptOutcome::Failed);
        }
        let kind_is_told = self.next_kind.is_some() || self.pending.is_some();
        let is_beside = self.attempts.last().is_some_and(|a| a.outcome == Some(AttemptOutcome::Superseded));
        let kind = match self.next_kind.take() {
            Some(kind) => kind,
            None if self.attempts.is_empty() => AttemptKind::Original,
            // Only what was sent beside another one takes its place.
            None if is_beside && self.pending.is_none() => AttemptKind::Hedge,
            None => AttemptKind::Retry,
        };
        let started_at = match self.pending.take() {
            Some(Pending { at: Some(at), delay_ms: Some(delay) }) => match cut_short(at, delay, now) {
                // It waited for so long at the most; when it went on is not told.
                Some(waited) => {
                    if let Some(before) = self.attempts.last_mut() {
                        before.waited_ms.get_or_insert(waited);
                    }
                    None
                }
                None => after(at, delay),
            },
            None if self.attempts.is_empty() => self.opened_at,
            Some(_) | None => None,
        };
        // Most requests are sent once or twice.
        if self.attempts.len() < 2 {
            self.attempts.reserve_exact(1);
        }
        self.attempts.push(Attempt {
            id: None,
            candidate: self.candidate.clone(),
            kind,
            layer: None,
            outcome: None,
            started_at,
            ended_at: None,
            failure: None,
            delay_ms: None,
            waited_ms: None,
            delay_source: None,
            max_attempts: None,
            changed: Vec::new(),
            output_started: None,
            output_discarded: None,
            reached: None,
            sends: Bound::exact(1),
            sends_told: false,
            api: self.api.clone(),
            evidence,
            origin,
            usage: None,
            told: Told { kind: kind_is_told, ..Told::default() },
        });
        self.note_missing();
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }

    /// Returns where the attempt stands that a record of its own speaks of, which is the `number`th if that is told: one that
    /// other records proved before, else a new one.
    pub(super) fn own(
        &mut self,
        origin: Origin,
        number: Option<u64>,
        kind: Option<AttemptKind>,
        now: Option<DateTime<Utc>>,
    ) -> usize {
        self.explicit = true;
        let first = self.own_records;
        let numbered = number.and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
        let index = numbered.filter(|index| *index >= first).unwrap_or(first);
        // Without a number it is one of those only if it comes late.
        let may_be_one = numbered == Some(index) || self.end.is_some();
        let is_proven = may_be_one
            && index < self.attempts.len()
            && kind.is_none_or(|kind| kind == self.attempts[index].kind);
        if is_proven {
            self.own_records = index + 1;
            let attempt = &mut self.attempts[index];
            attempt.evidence = Evidence::Observed;
            attempt.origin = origin;
            attempt.told.kind |= kind.is_some();
            self.note_missing();
            return index;
        }
        self.next_kind = kind.or(self.next_kind.take());
        self.push(origin, Evidence::Observed, now);
        self.own_records = self.attempts.len();
        self.attempts.len() - 1
    }

    /// Takes note of how many attempts there were.
    pub(super) fn tell_attempts(&mut self, told: Option<u64>) {
        self.told_attempts = told.or(self.told_attempts);
        self.note_missing();
    }

    /// Takes note of the number that a retry gives the attempt that failed. A larger one than there are attempts of its
    /// candidate in the log says that some are missing; a writer may also count otherwise.
    pub(super) fn tell_number(&mut self, number: Option<u64>) {
        self.retry_number = number;
        let missing = number.unwrap_or(0).saturating_sub(self.of_current_candidate() as u64);
        self.maybe_missing = self.maybe_missing.max(missing);
        self.note_missing();
    }

    /// Returns whether a retry says again, within a planned wait, that the same attempt failed: it is the same wait.
    pub(super) fn goes_on_waiting(
        &self,
        number: Option<u64>,
        layer: Option<Layer>,
        now: Option<DateTime<Utc>>,
    ) -> bool {
        let Some(Pending { at: Some(at), delay_ms: Some(delay) }) = self.pending else { return false };
        let is_same = |a: &Attempt| a.outcome == Some(AttemptOutcome::Failed) && a.layer == layer;
        number.is_some()
            && number == self.retry_number
            && self.next_kind.is_none()
            && self.attempts.last().is_some_and(is_same)
            && cut_short(at, delay, now).is_some()
    }

    /// A total proves attempts beyond those that records show; where attempts have records of their own, those count.
    fn note_missing(&mut self) {
        if let Some(told) = self.told_attempts {
            let seen = self.attempts.len() as u64;
            self.extra = (told > seen && !self.explicit).then(|| Bound::exact(told - seen));
        } else if self.maybe_missing > 0 {
            self.extra = (!self.explicit).then(|| Bound::range(0, Some(self.maybe_missing)));
        }
    }

    /// Returns the attempt that a failure or an answer speaks of, when attempts are not records of their own: the one in
    /// flight, or the one after the planned wait.
    pub(super) fn current(&mut self, origin: Origin, now: Option<DateTime<Utc>>) -> &mut Attempt {
        let in_flight = self.attempts.last().is_some_and(|a| a.outcome.is_none() || self.was_cut_off(a));
        if in_flight && self.next_kind.is_none() {
            let last = self.attempts.len() - 1;
            return &mut self.attempts[last];
        }
        self.push(origin, Evidence::Derived, now)
    }

    /// Returns whether an attempt was taken to be in flight when its turn was cancelled: its own end may come yet.
    fn was_cut_off(&self, attempt: &Attempt) -> bool {
        self.end == Some(RequestEnd::Cancelled)
            && attempt.outcome == Some(AttemptOutcome::Cancelled)
            && attempt.evidence == Evidence::Derived
    }

    /// Ends a planned wait that is not over `now`: nothing more was sent.
    pub(super) fn stop_waiting(&mut self, now: Option<DateTime<Utc>>) {
        if let Some(Pending { at: Some(at), delay_ms: Some(delay) }) = self.pending
            && let Some(waited) = cut_short(at, delay, now)
            && let Some(last) = self.attempts.last_mut()
        {
            last.waited_ms.get_or_insert(waited);
            self.pending = None;
        }
    }

    /// Returns whether what a record speaks of `now` came before the last attempt ended, and its end was told already.
    pub(super) fn comes_before_the_end(&self, now: Option<DateTime<Utc>>) -> bool {
        let Some(last) = self.attempts.last() else { return false };
        match self.end {
            Some(RequestEnd::Answered) => true,
            Some(RequestEnd::GivenUp) => now.zip(last.ended_at).is_some_and(|(now, end)| now < end),
            Some(RequestEnd::Cancelled) | None => false,
        }
    }

    /// Adds an attempt that a record speaks of after the end was told: it stands before the one that ended the request.
    pub(super) fn before_the_end(&mut self, origin: Origin, now: Option<DateTime<Utc>>) -> &mut Attempt {
        self.push(origin, Evidence::Derived, now);
        let last = self.attempts.len() - 1;
        self.fallbacks_seen = FallbacksSeen::default();
        self.attempts.swap(last - 1, last);
        let kind = self.attempts[last - 1].kind;
        self.attempts[last - 1].kind = std::mem::replace(&mut self.attempts[last].kind, kind);
        &mut self.attempts[last - 1]
    }
}

/// Closes a request whose own end the log does not give, because its turn ended.
impl RequestView {
    /// Returns whether it had been answered before this time, as far as both are known.
    pub(super) fn was_answered_before(&self, at: Option<DateTime<Utc>>) -> bool {
        let last = self.attempts.last().and_then(|last| last.ended_at.or(last.started_at));
        self.end == Some(RequestEnd::Answered)
            && at.zip(last.max(self.opened_at)).is_some_and(|(at, last)| at > last)
    }
}

pub(super) fn close(
    request: &mut RequestView,
    origin: Origin,
    at: Option<DateTime<Utc>>,
    outcome: TurnOutcome,
    deadline: bool,
) {
    let slack_ms = if deadline { 1_000 } else { 0 };
    match request.pending {
        // The turn ended inside the planned wait: no further request left.
        Some(pending) if ends_before(&pending, at, slack_ms) => {
            if let (Some(from), Some(to), Some(last)) = (pending.at, at, request.attempts.last_mut()) {
                let waited = u64::try_from((to - from).num_milliseconds()).ok();
                last.waited_ms = last.waited_ms.or(waited);
            }
        }
        // The wait was over: the next request was in flight when the turn ended. Without times nothing is known of it.
        Some(_) if !request.explicit && outcome != TurnOutcome::Unknown => match at {
            Some(_) => request.push(origin, Evidence::Derived, at).outcome = outcome_in(outcome),
            None => request.extra = Some(Bound::range(0, Some(1))),
        },
        None if request.attempts.is_empty() && !request.explicit => {
            request.push(origin, Evidence::Derived, at).outcome = outcome_in(outcome);
        }
        _ => {}
    }
    request.end = match outcome {
        TurnOutcome::Cancelled => Some(RequestEnd::Cancelled),
        TurnOutcome::Failed => Some(RequestEnd::GivenUp),
        TurnOutcome::Succeeded => {
            let failed = request.attempts.last().is_some_and(|a| a.outcome == Some(AttemptOutcome::Failed));
            Some(if failed { RequestEnd::GivenUp } else { RequestEnd::Answered })
        }
        TurnOutcome::Unknown => None,
    };
}

/// Leaves a request without an end, whose process ended: one more may have been sent by then, unless a wait was still on.
pub(super) fn leave_open(request: &mut RequestView, origin: Origin, at: Option<DateTime<Utc>>) {
    let in_wait = request.pending.is_some_and(|pending| ends_before(&pending, at, 0));
    let may_have_left = request.pending.is_some() && !in_wait;
    close(request, origin, at, TurnOutcome::Unknown, false);
    if !request.explicit {
        // A fallback is sent at once, as a first attempt is.
        if request.next_kind.is_some() {
            request.push(origin, Evidence::Derived, at);
        } else if may_have_left {
            request.extra = Some(Bound::range(0, Some(1)));
        }
    }
    request.pending = None;
    request.is_left_open = true;
}

/// Returns how an attempt ended that was in flight when its turn ended; `None` where that does not tell.
fn outcome_in(turn: TurnOutcome) -> Option<AttemptOutcome> {
    match turn {
        TurnOutcome::Succeeded => Some(AttemptOutcome::Ok),
        TurnOutcome::Cancelled => Some(AttemptOutcome::Cancelled),
        TurnOutcome::Failed | TurnOutcome::Unknown => None,
    }
}

/// Returns how long a planned wait can have been at most, if something was sent or answered before its end.
fn cut_short(at: DateTime<Utc>, delay_ms: u64, now: Option<DateTime<Utc>>) -> Option<u64> {
    let passed = u64::try_from((now? - at).num_milliseconds()).ok()?;
    (!is_long_enough(passed, delay_ms)).then_some(passed)
}

/// Returns the time so many milliseconds later; `None` where the calendar ends before.
fn after(at: DateTime<Utc>, ms: u64) -> Option<DateTime<Utc>> {
    at.checked_add_signed(TimeDelta::try_milliseconds(i64::try_from(ms).ok()?)?)
}

pub(super) fn ends_before(pending: &Pending, end: Option<DateTime<Utc>>, slack_ms: i64) -> bool {
    match (pending.at, pending.delay_ms, end) {
        (Some(at), Some(delay), Some(end)) => {
            after(at, delay.saturating_add_signed(slack_ms)).is_none_or(|until| end < until)
        }
        _ => false,
    }
}
