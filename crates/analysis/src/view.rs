//! One source's view of one run: statements in order become turns, logical requests and attempts.
//!
//! Not for: joining several sources (see `join`). Invariant: what is counted here follows from records of this source
//! alone, and what the source cannot show widens the bound instead of being guessed.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{
    AttemptKind, AttemptOutcome, Body, Candidate, Event, FallbackKind, ModelAttempt, ModelFailed,
    ModelFallback, ModelRequest, ModelResponse, ModelRetry, RunFinished, Sent, Source, Usage,
};
use retryscope_record::{Facts, Mark, Origin, RawFailure, Shown, TurnOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::count::{Bound, Evidence};
use crate::judge::{Failure, Said, judge};
use crate::run::Attempt;

/// What one source says of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ViewOfRun {
    pub(crate) facts: Facts,
    pub(crate) turns: Vec<TurnView>,
    pub(crate) foreground: Visibility,
    pub(crate) background: Visibility,
    /// Why the foreground visibility is what it is, as a clause.
    pub(crate) because: String,
    pub(crate) tail_may_be_lost: bool,
    pub(crate) fallbacks_hidden: bool,
    /// Ends of turns are said elsewhere.
    pub(crate) ends_elsewhere: bool,
    pub(crate) blind_spots: BTreeSet<String>,
    pub(crate) settings: Vec<(String, String)>,
    /// The agent's word and sentence for the end of the last turn, from a file beside the log.
    pub(crate) explained: Option<(Option<String>, String)>,
    pub(crate) first_at: Option<DateTime<Utc>>,
    pub(crate) last_at: Option<DateTime<Utc>>,
    seen: BTreeSet<String>,
    last_seq: Option<(String, u64)>,
    next_local: u64,
}

/// How much a source shows of one kind of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Visibility {
    pub(crate) requests: Shown,
    pub(crate) attempts: Shown,
}

impl Default for Visibility {
    fn default() -> Self {
        Self { requests: Shown::All, attempts: Shown::All }
    }
}

/// One turn in one source.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TurnView {
    pub(crate) key: Option<String>,
    pub(crate) anchors: BTreeSet<String>,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) last_at: Option<DateTime<Utc>>,
    pub(crate) end: Option<End>,
    /// Everything was said; sources that write late say so explicitly.
    pub(crate) complete: bool,
    /// Nothing before this time is missing.
    pub(crate) told_until: Option<DateTime<Utc>>,
    /// How much of this turn's foreground requests is shown, where the source says so within the turn.
    pub(crate) foreground_requests: Option<Shown>,
    /// Something in it could not be read.
    pub(crate) has_gap: bool,
    pub(crate) requests: Vec<RequestView>,
}

/// How a turn ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) outcome: TurnOutcome,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) at: Option<DateTime<Utc>>,
    pub(crate) origin: Origin,
}

/// One logical request in one source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RequestView {
    pub(crate) id: String,
    /// Whether the id is the agent's own, so that other sources may use it too.
    pub(crate) id_is_native: bool,
    pub(crate) source: Source,
    pub(crate) visibility: Visibility,
    pub(crate) purpose: Option<String>,
    pub(crate) step: Option<u64>,
    pub(crate) candidate: Candidate,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) end: Option<RequestEnd>,
    pub(crate) usage: Option<Usage>,
    pub(crate) requested_model: Option<String>,
    /// Sends beyond the visible attempts.
    pub(crate) extra: Option<Bound>,
    pub(crate) basis: Option<String>,
    /// When its last attempt had been sent at the latest.
    pub(crate) sent_by: Option<DateTime<Utc>>,
    pub(crate) origin: Origin,
    /// Attempts are records of their own; else they follow from retries and ends.
    explicit: bool,
    /// A wait was planned and nothing has been seen after it.
    pending: Option<Pending>,
    /// The kind of the next attempt, after a fallback.
    next_kind: Option<AttemptKind>,
    opened_at: Option<DateTime<Utc>>,
    /// Provider API of the attempts that follow.
    api: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RequestEnd {
    Answered,
    GivenUp,
    Cancelled,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Pending {
    at: Option<DateTime<Utc>>,
    delay_ms: Option<u64>,
}

impl RequestView {
    /// Returns the number of upstream requests as far as this source knows, given whether its turn is over and told.
    pub(crate) fn upstream(&self, settled: bool) -> (Bound, Evidence) {
        let mut sends = self.attempts.iter().map(|a| a.sends).fold(Bound::ZERO, Bound::plus);
        if let Some(extra) = self.extra {
            sends = sends.plus(extra);
        }
        // Asked for at all means sent at least once; a refused connection counts as an attempt.
        sends = Bound::range(sends.min.max(1), sends.max.map(|max| max.max(1)));
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

    pub(crate) fn fallbacks(&self) -> u64 {
        self.attempts.iter().filter(|a| a.kind == AttemptKind::Fallback).count() as u64
    }

    pub(crate) fn hedges(&self) -> u64 {
        self.attempts.iter().filter(|a| a.kind == AttemptKind::Hedge).count() as u64
    }

    fn last(&mut self) -> Option<&mut Attempt> {
        self.attempts.last_mut()
    }

    /// Attempts of the candidate that is being asked now.
    fn of_current_candidate(&self) -> usize {
        let start = self.attempts.iter().rposition(|a| a.kind == AttemptKind::Fallback).unwrap_or(0);
        if self.next_kind.is_some() { 0 } else { self.attempts.len() - start }
    }

    fn push(&mut self, origin: Origin, evidence: Evidence) -> &mut Attempt {
        // Sent again without a word about the one before: that one failed, its reason was not logged.
        if let Some(before) = self.attempts.last_mut().filter(|a| a.outcome.is_none()) {
            before.outcome = Some(AttemptOutcome::Failed);
        }
        let kind = match self.next_kind.take() {
            Some(kind) => kind,
            None if self.attempts.is_empty() => AttemptKind::Original,
            None => AttemptKind::Retry,
        };
        let started_at = match self.pending.take() {
            Some(Pending { at: Some(at), delay_ms: Some(delay) }) => after(at, delay),
            None if self.attempts.is_empty() => self.opened_at,
            Some(_) | None => None,
        };
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
        });
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }

    /// Returns the attempt that a failure or an answer speaks of, when attempts are not records of their own: the one in
    /// flight, or the one after the planned wait.
    fn current(&mut self, origin: Origin) -> &mut Attempt {
        let in_flight = self.attempts.last().is_some_and(|a| a.outcome.is_none());
        if in_flight && self.next_kind.is_none() {
            let last = self.attempts.len() - 1;
            return &mut self.attempts[last];
        }
        self.push(origin, Evidence::Derived)
    }
}

impl TurnView {
    fn touch(&mut self, at: Option<DateTime<Utc>>) {
        if let Some(at) = at {
            self.started_at = Some(self.started_at.map_or(at, |first| first.min(at)));
            self.last_at = Some(self.last_at.map_or(at, |last| last.max(at)));
        }
    }
}

impl ViewOfRun {
    /// Returns the ids by which repeats are known.
    pub(crate) fn event_ids(&self) -> impl Iterator<Item = &str> {
        self.seen.iter().map(String::as_str)
    }

    /// Takes one event. Returns false for a repeat that was dropped.
    pub(crate) fn event(&mut self, origin: Origin, event: &Event, raw: Option<&RawFailure>) -> bool {
        if let Some(key) = repeat_key(event)
            && !self.seen.insert(key)
        {
            return false;
        }
        self.note_envelope(event);
        let turn = match &event.turn {
            Some(key) => self.turn_of_key(key),
            None => self.open_turn(),
        };
        self.turns[turn].touch(event.ts);
        match &event.body {
            Body::RunStarted(body) => {
                if let Some(first) = body.candidates.iter().flatten().next() {
                    self.facts.provider = self.facts.provider.take().or_else(|| first.provider.clone());
                    self.facts.model = self.facts.model.take().or_else(|| first.model.clone());
                }
            }
            Body::ModelRequest(body) => self.request(turn, origin, event, body),
            Body::ModelAttempt(body) => self.attempt(turn, origin, event, body, raw),
            Body::ModelRetry(body) => self.retry(turn, origin, event, body, raw),
            Body::ModelFallback(body) => self.fallback(turn, origin, event, body),
            Body::ModelResponse(body) => self.response(turn, origin, event, body),
            Body::ModelFailed(body) => self.failed(turn, origin, event, body, raw),
            Body::RunFinished(body) => self.finished(turn, origin, event.ts, body),
            Body::RunCancelled(body) => self.end_turn(
                turn,
                End {
                    outcome: TurnOutcome::Cancelled,
                    reason: body.by.clone(),
                    message: None,
                    at: event.ts,
                    origin,
                },
            ),
            _ => {}
        }
        true
    }

    /// Takes one mark.
    pub(crate) fn mark(&mut self, origin: Origin, at: Option<DateTime<Utc>>, mark: &Mark) {
        self.touch(at);
        match mark {
            Mark::Facts(facts) => merge_facts(&mut self.facts, facts),
            Mark::TurnStarted { turn } => {
                let known =
                    turn.as_ref().and_then(|key| self.turns.iter().position(|t| t.key.as_ref() == Some(key)));
                let index = known.unwrap_or_else(|| {
                    // An open turn that holds nothing yet becomes this one.
                    match self.turns.last() {
                        Some(last)
                            if last.requests.is_empty() && last.end.is_none() && last.key.is_none() => {}
                        _ => self.turns.push(TurnView::default()),
                    }
                    self.turns.len() - 1
                });
                self.turns[index].key.clone_from(turn);
                self.turns[index].touch(at);
            }
            Mark::TurnEnded { turn, outcome, reason, message } => {
                let index = match turn {
                    Some(key) => self.turn_of_key(key),
                    None => self.open_or_last_turn(),
                };
                self.turns[index].touch(at);
                let end =
                    End { outcome: *outcome, reason: reason.clone(), message: message.clone(), at, origin };
                self.end_turn(index, end);
            }
            Mark::Anchor(id) => {
                let index = self.open_or_last_turn();
                self.turns[index].anchors.insert(id.clone());
            }
            Mark::Shows { source, requests, attempts, because } => {
                let shown = Visibility { requests: *requests, attempts: *attempts };
                match source {
                    Source::Foreground => {
                        self.foreground = shown;
                        (*because).clone_into(&mut self.because);
                        if let Some(open) = self.turns.last_mut().filter(|turn| turn.end.is_none()) {
                            open.foreground_requests = Some(*requests);
                        }
                    }
                    Source::Background => self.background = shown,
                }
            }
            Mark::Sends { request_id, attempt_id, min, max, basis } => {
                let found = self.turns.iter_mut().rev().flat_map(|t| t.requests.iter_mut().rev());
                if let Some(request) = found.into_iter().find(|r| r.id == *request_id) {
                    request.basis = Some(basis.clone());
                    let bound = Bound::range(*min, *max);
                    match attempt_id {
                        None => request.extra = Some(bound),
                        Some(id) => {
                            if let Some(a) =
                                request.attempts.iter_mut().rev().find(|a| a.id.as_ref() == Some(id))
                            {
                                a.sends = bound;
                                a.sends_told = true;
                                a.evidence = a.evidence.max(Evidence::Derived);
                            }
                        }
                    }
                }
            }
            Mark::Explained { reason, message } => self.explained = Some((reason.clone(), message.clone())),
            Mark::Copied => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.requests.retain(|r| r.end.is_some());
                }
            }
            Mark::TailMayBeLost => self.tail_may_be_lost = true,
            Mark::FallbacksHidden => self.fallbacks_hidden = true,
            Mark::ToldUntil => {
                let index = self.open_or_last_turn();
                self.turns[index].told_until = at.max(self.turns[index].told_until);
            }
            Mark::SentBy { request_id } => {
                let found = self.turns.iter_mut().rev().flat_map(|t| t.requests.iter_mut().rev());
                if let Some(request) = found.into_iter().find(|r| r.id == *request_id) {
                    request.sent_by = at.or(request.sent_by);
                }
            }
            Mark::EndsElsewhere => self.ends_elsewhere = true,
            Mark::TurnComplete => {
                let index = self.open_or_last_turn();
                self.turns[index].complete = true;
            }
            Mark::BlindSpot(text) => {
                self.blind_spots.insert(text.clone());
            }
            Mark::Setting { name, value } => self.settings.push((name.clone(), value.clone())),
        }
    }

    /// Takes note that something could not be read here.
    pub(crate) fn gap(&mut self) {
        if let Some(turn) = self.turns.last_mut() {
            turn.has_gap = true;
        }
        self.blind_spots
            .insert("something in a log of this run could not be read; it may have been a request".into());
    }

    fn touch(&mut self, at: Option<DateTime<Utc>>) {
        if let Some(at) = at {
            self.first_at = Some(self.first_at.map_or(at, |first| first.min(at)));
            self.last_at = Some(self.last_at.map_or(at, |last| last.max(at)));
        }
    }

    fn note_envelope(&mut self, event: &Event) {
        self.touch(event.ts);
        let said = Facts {
            agent_version: event.agent_version.clone(),
            parent_run_id: event.parent_run_id.clone(),
            parent_call_id: event.parent_call_id.clone(),
            ..Facts::default()
        };
        merge_facts(&mut self.facts, &said);
    }

    fn turn_of_key(&mut self, key: &str) -> usize {
        if let Some(index) = self.turns.iter().rposition(|t| t.key.as_deref() == Some(key)) {
            return index;
        }
        let fresh = matches!(self.turns.last(), Some(t) if t.key.is_none() && t.requests.is_empty() && t.end.is_none());
        if !fresh {
            self.turns.push(TurnView::default());
        }
        let index = self.turns.len() - 1;
        self.turns[index].key = Some(key.to_owned());
        index
    }

    /// Returns the turn that is open, or opens one.
    fn open_turn(&mut self) -> usize {
        if self.turns.last().is_none_or(|t| t.end.is_some()) {
            self.turns.push(TurnView::default());
        }
        self.turns.len() - 1
    }

    fn open_or_last_turn(&mut self) -> usize {
        if self.turns.is_empty() {
            self.turns.push(TurnView::default());
        }
        self.turns.len() - 1
    }

    /// Returns the request that an event speaks of: by id, else the open one, else a new one.
    fn request_of(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        id: Option<&String>,
    ) -> &mut RequestView {
        let visibility = self.foreground;
        let found = match id {
            Some(id) => self.turns[turn].requests.iter().rposition(|r| r.id == *id),
            None => self.turns[turn].requests.iter().rposition(|r| r.end.is_none()),
        };
        let index = found.unwrap_or_else(|| {
            self.next_local += 1;
            let candidate = Candidate {
                provider: self.facts.provider.clone(),
                model: self.facts.model.clone(),
                ..Candidate::default()
            };
            self.turns[turn].requests.push(RequestView {
                id: id.cloned().unwrap_or_else(|| format!("#{}", self.next_local)),
                id_is_native: id.is_some_and(|id| !id.starts_with('#')),
                source: Source::Foreground,
                visibility,
                purpose: None,
                step: event.step,
                candidate,
                attempts: Vec::new(),
                end: None,
                usage: None,
                requested_model: None,
                extra: None,
                basis: None,
                sent_by: None,
                origin,
                explicit: false,
                pending: None,
                next_kind: None,
                opened_at: event.ts,
                api: None,
            });
            self.turns[turn].requests.len() - 1
        });
        let request = &mut self.turns[turn].requests[index];
        request.api.clone_from(&self.facts.api);
        request
    }

    fn request(&mut self, turn: usize, origin: Origin, event: &Event, body: &ModelRequest) {
        let background = self.background;
        // A turn that asks again was not over.
        if self.turns[turn].end.as_ref().is_some_and(|end| end.outcome != TurnOutcome::Cancelled) {
            self.turns[turn].end = None;
        }
        // Without an id, a new request is a new request, also when the one before has no end in the log.
        if body.request_id.is_none() {
            for open in self.turns[turn].requests.iter_mut().filter(|r| r.end.is_none()) {
                close(open, origin, None, TurnOutcome::Unknown, false);
            }
        }
        let request = self.request_of(turn, origin, event, body.request_id.as_ref());
        if let Some(candidate) = &body.candidate {
            merge_candidate(&mut request.candidate, candidate);
        }
        if let Some(source) = body.source {
            request.source = source;
            if source == Source::Background {
                request.visibility = background;
            }
        }
        request.purpose = body.purpose.clone().or(request.purpose.take());
        request.step = event.step.or(request.step);
    }

    fn attempt(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelAttempt,
        raw: Option<&RawFailure>,
    ) {
        if let Some(id) = &body.upstream_request_id {
            self.turns[turn].anchors.insert(id.clone());
        }
        let request = self.request_of(turn, origin, event, body.request_id.as_ref());
        request.explicit = true;
        let known = body
            .attempt_id
            .as_ref()
            .and_then(|id| request.attempts.iter().position(|a| a.id.as_ref() == Some(id)));
        let index = known.unwrap_or_else(|| {
            let before = request.attempts.last().map(|a| a.candidate.clone());
            let kind = body.kind.or(request.next_kind.take());
            request.push(origin, Evidence::Observed);
            let index = request.attempts.len() - 1;
            let candidate = body.candidate.clone().unwrap_or_default();
            let attempt = &mut request.attempts[index];
            merge_candidate(&mut attempt.candidate, &candidate);
            attempt.started_at = body.started_at.or(event.ts);
            if let Some(kind) = kind {
                attempt.kind = kind;
            } else if before.is_some_and(|before| differs(&before, &attempt.candidate)) {
                attempt.kind = AttemptKind::Fallback;
            }
            index
        });
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
        if body.outcome.is_some() && known.is_some() {
            attempt.ended_at = attempt.ended_at.or(event.ts);
        }
        attempt.output_started = body.output_started.or(attempt.output_started);
        attempt.usage = body.usage.clone().or(attempt.usage.take());
        let failed = body.outcome == Some(AttemptOutcome::Failed) || body.status.is_some_and(|s| s >= 400);
        let detailed =
            body.status.is_some() || body.message.is_some() || body.code.is_some() || body.class.is_some();
        if detailed && (failed || body.message.is_some()) {
            let said = Said {
                provider: attempt.candidate.provider.as_deref(),
                status: body.status,
                code: body.code.as_deref(),
                message: body.message.as_deref(),
                class: body.class.as_deref(),
                reason: body.reason.as_deref(),
                retryable: body.retryable,
                retry_after_ms: body.retry_after_ms,
                reset_at: None,
                upstream_request_id: body.upstream_request_id.as_deref(),
                raw,
                at: event.ts,
            };
            let failure = judge(&said);
            attempt.reached = reached(&failure);
            attempt.failure = Some(failure);
        }
    }

    fn retry(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelRetry,
        raw: Option<&RawFailure>,
    ) {
        let request = self.request_of(turn, origin, event, body.request_id.as_ref());
        if let Some(candidate) = &body.candidate {
            let now = merged(&request.candidate, candidate);
            if request.attempts.last().is_some_and(|a| differs(&a.candidate, &now))
                && request.next_kind.is_none()
            {
                request.next_kind = Some(AttemptKind::Fallback);
                request.pending = None;
            }
            request.candidate = now;
        }
        let provider = request.candidate.provider.clone();
        let attempt = if request.explicit && !request.attempts.is_empty() {
            request.pending = None;
            let last = request.attempts.len() - 1;
            &mut request.attempts[last]
        } else {
            request.current(origin)
        };
        attempt.outcome = Some(AttemptOutcome::Failed);
        attempt.evidence = Evidence::Observed;
        attempt.origin = if attempt.failure.is_some() { attempt.origin } else { origin };
        attempt.ended_at = attempt.ended_at.or(event.ts);
        let said = Said {
            provider: provider.as_deref(),
            status: body.status,
            code: body.code.as_deref(),
            message: body.message.as_deref(),
            class: body.class.as_deref(),
            reason: body.reason.as_deref(),
            retryable: None,
            retry_after_ms: body.retry_after_ms,
            reset_at: None,
            upstream_request_id: body.upstream_request_id.as_deref(),
            raw,
            at: event.ts,
        };
        if attempt.failure.is_none() || body.status.is_some() || body.message.is_some() {
            let failure = judge(&said);
            attempt.reached = reached(&failure);
            attempt.failure = Some(failure);
        }
        attempt.delay_ms = body.delay_ms.or(attempt.delay_ms);
        attempt.waited_ms = body.waited_ms.or(attempt.waited_ms);
        attempt.delay_source = body.delay_source.or(attempt.delay_source);
        attempt.max_attempts = body.max_attempts.or(attempt.max_attempts);
        attempt.layer = body.layer.or(attempt.layer);
        attempt.output_started = body.output_started.or(attempt.output_started);
        attempt.output_discarded = body.output_discarded.or(attempt.output_discarded);
        if let Some(changed) = &body.changed {
            attempt.changed.clone_from(changed);
        }
        request.pending = Some(Pending { at: event.ts, delay_ms: body.delay_ms });
    }

    fn fallback(&mut self, turn: usize, origin: Origin, event: &Event, body: &ModelFallback) {
        let request = self.request_of(turn, origin, event, body.request_id.as_ref());
        if let Some(from) = &body.from {
            merge_candidate(&mut request.candidate, from);
        }
        if !request.explicit {
            let codes = body.failures.as_deref().unwrap_or_default();
            let told = if codes.is_empty() { body.attempts.unwrap_or(0) } else { codes.len() as u64 };
            let seen = request.of_current_candidate() as u64;
            // The last failed attempt of a candidate has no retry record; the list of codes, or the fallback itself,
            // proves it.
            let missing = if told > 0 {
                told.saturating_sub(seen)
            } else {
                u64::from(seen == 0 || request.pending.is_some())
            };
            for n in 0..missing {
                let status = codes
                    .get(usize::try_from(seen + n).unwrap_or(usize::MAX))
                    .and_then(|code| code_as_status(code.as_ref()));
                let provider = request.candidate.provider.clone();
                let attempt = request.push(origin, Evidence::Derived);
                attempt.outcome = Some(AttemptOutcome::Failed);
                if n + 1 == missing {
                    attempt.ended_at = event.ts;
                }
                let failure =
                    judge(&Said { provider: provider.as_deref(), status, at: event.ts, ..Said::default() });
                attempt.failure = Some(failure);
            }
        }
        request.pending = None;
        request.next_kind = Some(AttemptKind::Fallback);
        if let Some(to) = &body.to {
            request.candidate = if body.kind.is_none_or(|kind| kind == FallbackKind::Model) {
                to.clone()
            } else {
                merged(&request.candidate, to)
            };
        }
    }

    fn response(&mut self, turn: usize, origin: Origin, event: &Event, body: &ModelResponse) {
        let request = self.request_of(turn, origin, event, body.request_id.as_ref());
        if let Some(candidate) = &body.candidate {
            merge_candidate(&mut request.candidate, candidate);
        }
        if request.end == Some(RequestEnd::Answered) {
            // Said again, with more: one message on several lines, the last of which has the whole usage.
            request.usage = body.usage.clone().or(request.usage.take());
            return;
        }
        if request.explicit {
            request.pending = None;
            if let Some(last) = request.last().filter(|a| a.outcome.is_none()) {
                last.outcome = Some(AttemptOutcome::Ok);
                last.ended_at = last.ended_at.or(event.ts);
            }
        } else {
            let attempt = request.current(origin);
            attempt.outcome = Some(AttemptOutcome::Ok);
            attempt.evidence = Evidence::Observed;
            attempt.ended_at = event.ts;
        }
        if let (Some(told), false) = (body.attempts, request.explicit) {
            add_missing(request, told);
        }
        request.usage = body.usage.clone().or(request.usage.take());
        request.requested_model = body.requested_model.clone().or(request.requested_model.take());
        request.end = Some(RequestEnd::Answered);
    }

    fn failed(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelFailed,
        raw: Option<&RawFailure>,
    ) {
        if let Some(id) = &body.upstream_request_id {
            self.turns[turn].anchors.insert(id.clone());
        }
        let request = self.request_of(turn, origin, event, body.request_id.as_ref());
        if let Some(candidate) = &body.candidate {
            merge_candidate(&mut request.candidate, candidate);
        }
        let cut = matches!(
            body.decision,
            Some(
                retryscope_events::Decision::Cancelled
                    | retryscope_events::Decision::Deadline
                    | retryscope_events::Decision::Budget
            )
        ) && request.pending.is_some_and(|p| ends_before(&p, event.ts, 0));
        let provider = request.candidate.provider.clone();
        if !cut {
            let attempt = if request.explicit && !request.attempts.is_empty() {
                request.pending = None;
                let last = request.attempts.len() - 1;
                &mut request.attempts[last]
            } else {
                request.current(origin)
            };
            attempt.outcome = Some(AttemptOutcome::Failed);
            attempt.ended_at = attempt.ended_at.or(event.ts);
            let said = Said {
                provider: provider.as_deref(),
                status: body.status,
                code: body.code.as_deref(),
                message: body.message.as_deref(),
                class: body.class.as_deref(),
                reason: body.reason.as_deref(),
                retryable: None,
                retry_after_ms: body.retry_after_ms,
                reset_at: body.reset_at,
                upstream_request_id: body.upstream_request_id.as_deref(),
                raw,
                at: event.ts,
            };
            let detailed = body.status.is_some()
                || body.message.is_some()
                || body.code.is_some()
                || body.class.is_some();
            let failure = judge(&said);
            let better =
                attempt.failure.as_ref().is_none_or(|known| known.says_nothing() || !failure.says_nothing());
            if detailed && better {
                attempt.reached = reached(&failure);
                attempt.failure = Some(failure);
            }
        }
        if let (Some(told), false) = (body.attempts, request.explicit) {
            add_missing(request, told);
        }
        request.end = Some(if body.decision == Some(retryscope_events::Decision::Cancelled) {
            RequestEnd::Cancelled
        } else {
            RequestEnd::GivenUp
        });
    }

    fn finished(&mut self, turn: usize, origin: Origin, at: Option<DateTime<Utc>>, body: &RunFinished) {
        let outcome = match body.outcome.as_deref() {
            Some("succeeded" | "success" | "completed" | "ok") => TurnOutcome::Succeeded,
            Some("failed" | "error" | "failure") => TurnOutcome::Failed,
            Some("cancelled" | "canceled" | "aborted") => TurnOutcome::Cancelled,
            _ => TurnOutcome::Unknown,
        };
        let end =
            End { outcome, reason: body.terminal_reason.clone(), message: body.error.clone(), at, origin };
        self.end_turn(turn, end);
    }

    fn end_turn(&mut self, turn: usize, end: End) {
        let deadline = end.reason.as_deref().is_some_and(is_deadline);
        for request in self.turns[turn].requests.iter_mut().filter(|r| r.end.is_none()) {
            close(request, end.origin, end.at, end.outcome, deadline);
        }
        // A second end of the same turn adds words, it does not take any away.
        match &mut self.turns[turn].end {
            Some(known) => {
                if known.outcome == TurnOutcome::Unknown {
                    known.outcome = end.outcome;
                }
                known.reason = known.reason.take().or(end.reason);
                known.message = known.message.take().or(end.message);
            }
            none => *none = Some(end),
        }
    }
}

/// Closes a request whose own end the log does not give, because its turn ended.
fn close(
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
            Some(_) => {
                request.push(origin, Evidence::Derived).outcome = Some(AttemptOutcome::Cancelled);
            }
            None => request.extra = Some(Bound::range(0, Some(1))),
        },
        None if request.attempts.is_empty() && !request.explicit => {
            let attempt = request.push(origin, Evidence::Derived);
            attempt.outcome = match outcome {
                TurnOutcome::Succeeded => Some(AttemptOutcome::Ok),
                TurnOutcome::Cancelled => Some(AttemptOutcome::Cancelled),
                TurnOutcome::Failed | TurnOutcome::Unknown => None,
            };
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

/// Returns the time so many milliseconds later; `None` where the calendar ends before.
fn after(at: DateTime<Utc>, ms: u64) -> Option<DateTime<Utc>> {
    at.checked_add_signed(TimeDelta::try_milliseconds(i64::try_from(ms).ok()?)?)
}

fn ends_before(pending: &Pending, end: Option<DateTime<Utc>>, slack_ms: i64) -> bool {
    match (pending.at, pending.delay_ms, end) {
        (Some(at), Some(delay), Some(end)) => {
            after(at, delay.saturating_add_signed(slack_ms)).is_none_or(|until| end < until)
        }
        _ => false,
    }
}

fn is_deadline(reason: &str) -> bool {
    ["wall_time", "deadline", "time_limit", "timeout"].iter().any(|word| reason.contains(word))
}

/// Adds attempts that a total (`attempts: n`) proves beyond those that records show.
fn add_missing(request: &mut RequestView, told: u64) {
    let seen = request.attempts.len() as u64;
    if told > seen {
        request.extra = Some(Bound::exact(told - seen));
    }
}

fn code_as_status(code: Option<&Value>) -> Option<u16> {
    match code {
        Some(Value::Number(number)) => number.as_u64().and_then(|n| u16::try_from(n).ok()),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    }
}

fn reached(failure: &Failure) -> Option<bool> {
    match (failure.status, failure.reason.as_str()) {
        (Some(_), _) | (None, "stream_cut" | "idle_timeout") => Some(true),
        (None, "refused" | "dns" | "connect") => Some(false),
        _ => None,
    }
}

/// Returns the key under which a repeat of an event is dropped; `None` where nothing explicit tells.
/// Returns what an event has in common with its repeats; `None` for one without an id of its own.
pub(crate) fn repeat_key(event: &Event) -> Option<String> {
    if let Some(id) = &event.event_id {
        return Some(id.clone());
    }
    let seq = event.seq?;
    Some(format!("{}\u{1}{seq}", event.writer.as_deref().unwrap_or("")))
}

pub(crate) fn merge_facts(into: &mut Facts, said: &Facts) {
    fn take<T: Clone>(into: &mut Option<T>, said: Option<&T>) {
        if said.is_some() {
            *into = said.cloned();
        }
    }
    take(&mut into.agent_version, said.agent_version.as_ref());
    take(&mut into.parent_run_id, said.parent_run_id.as_ref());
    take(&mut into.parent_call_id, said.parent_call_id.as_ref());
    take(&mut into.forked_from, said.forked_from.as_ref());
    take(&mut into.provider, said.provider.as_ref());
    take(&mut into.model, said.model.as_ref());
    take(&mut into.api, said.api.as_ref());
    take(&mut into.policy_version, said.policy_version.as_ref());
    take(&mut into.started_at, said.started_at.as_ref());
    take(&mut into.directory, said.directory.as_ref());
}

fn merge_candidate(into: &mut Candidate, said: &Candidate) {
    *into = merged(into, said);
}

fn merged(base: &Candidate, said: &Candidate) -> Candidate {
    let pick = |said: &Option<String>, base: &Option<String>| said.clone().or_else(|| base.clone());
    Candidate {
        provider: pick(&said.provider, &base.provider),
        model: pick(&said.model, &base.model),
        alias: pick(&said.alias, &base.alias),
        endpoint: pick(&said.endpoint, &base.endpoint),
        region: pick(&said.region, &base.region),
        account: pick(&said.account, &base.account),
        transport: pick(&said.transport, &base.transport),
    }
}

/// Returns whether two candidates are known to be different: a part that only one of them names proves nothing.
fn differs(a: &Candidate, b: &Candidate) -> bool {
    let part = |a: &Option<String>, b: &Option<String>| matches!((a, b), (Some(a), Some(b)) if a != b);
    part(&a.provider, &b.provider)
        || part(&a.model, &b.model)
        || part(&a.endpoint, &b.endpoint)
        || part(&a.region, &b.region)
        || part(&a.account, &b.account)
        || part(&a.transport, &b.transport)
}
