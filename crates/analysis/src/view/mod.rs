//! One source's view of one run: statements in order become turns, logical requests and attempts.
//!
//! Not for: joining several sources (see `join`). Invariant: what is counted here follows from records of this source
//! alone, and what the source cannot show widens the bound instead of being guessed.

mod candidate;
mod events;
mod request;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use retryscope_events::{Body, Event, Source};
use retryscope_record::{Facts, Mark, Origin, RawFailure, Shown, TurnOutcome};
use serde::{Deserialize, Serialize};

use crate::count::{Bound, Evidence};
use crate::run::Declared;
use crate::tools::{Entry, What};

pub(crate) use candidate::merge_facts;
pub(crate) use request::{RequestEnd, RequestView};

/// Entries of a ledger that are kept.
const LEDGER_LIMIT: usize = 10_000;

/// What one source says of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ViewOfRun {
    pub(crate) facts: Facts,
    #[serde(default)]
    pub(crate) declared: Option<Box<Declared>>,
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
    /// What the tool ledger says, and what else happened after it began.
    pub(crate) ledger: Vec<Entry>,
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
        self.note_ledger(origin, event);
        match &event.body {
            Body::RunStarted(body) => {
                self.declared.get_or_insert_default().take(body);
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

    /// Keeps what the ledger needs. Model traffic counts only once there is something that it may have to stop for.
    fn note_ledger(&mut self, origin: Origin, event: &Event) {
        let what = match &event.body {
            Body::ToolAttempt(body) => What::Attempt(Box::new(body.clone())),
            Body::PermissionDenied(body) => What::Denied(body.clone()),
            Body::BudgetDenied(body) => What::BudgetSpent(body.clone()),
            Body::RunCancelled(_) => What::Cancelled,
            Body::ModelRequest(_) | Body::ModelAttempt(_) | Body::ModelRetry(_) | Body::ModelFallback(_)
                if !self.ledger.is_empty() =>
            {
                What::Activity
            }
            _ => return,
        };
        if self.ledger.len() < LEDGER_LIMIT {
            self.ledger.push(Entry { at: event.ts, origin, what });
        }
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
}

/// Returns the key under which a repeat of an event is dropped; `None` where nothing explicit tells.
pub(crate) fn repeat_key(event: &Event) -> Option<String> {
    if let Some(id) = &event.event_id {
        return Some(id.clone());
    }
    let seq = event.seq?;
    Some(format!("{}\u{1}{seq}", event.writer.as_deref().unwrap_or("")))
}
