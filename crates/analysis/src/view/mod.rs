//! One source's view of one run: statements in order become turns, logical requests and attempts.
//!
//! Not for: joining several sources (see `join`). Invariant: what is counted here follows from records of this source
//! alone, and what the source cannot show widens the bound instead of being guessed.

mod candidate;
mod ends;
mod events;
mod ids;
mod marks;
mod memo;
mod nested;
mod request;
mod turns;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use foldhash::HashSet;
use retryscope_events::{Body, Event};
use retryscope_record::{Anchor, Facts, Origin, RawFailure, Shown, TurnOutcome};
use serde::{Deserialize, Serialize};

use crate::redact::{kept, redact};
use crate::run::Declared;
use crate::tools::{Entry, What};

pub(crate) use candidate::merge_facts;
use candidate::{take, take_name};
use ids::RequestIds;
pub(crate) use memo::Memo;
pub(crate) use request::{RequestEnd, RequestView};

/// Entries of a ledger that are kept.
const LEDGER_LIMIT: usize = 10_000;

/// Ids that a line of a log gives at most, about: so far back a repeat is looked for.
const REPEATED_IDS: usize = 4;

/// Requests of earlier turns that are looked through for the one that a late record speaks of.
const LATE_REQUESTS: usize = 256;

/// What one source says of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a statement of its own that a source makes")]
pub(crate) struct ViewOfRun {
    pub(crate) facts: Facts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) declared: Option<Box<Declared>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) turns: Vec<TurnView>,
    pub(crate) foreground: Visibility,
    pub(crate) background: Visibility,
    /// Why the foreground visibility is what it is, as a clause.
    pub(crate) because: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tail_may_be_lost: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fallbacks_hidden: bool,
    /// How turns end is not said here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ends_untold: bool,
    /// Ends of turns are said elsewhere, after everything that is said here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ends_elsewhere: bool,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) blind_spots: BTreeSet<String>,
    /// The agent's word and sentence for the end of the last turn, from a file beside the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) explained: Option<(Option<String>, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_at: Option<DateTime<Utc>>,
    /// What the tool ledger says, and what else happened after it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ledger: Vec<Entry>,
    /// Ids by which repeats are known, as checksums.
    #[serde(default)]
    seen: HashSet<u64>,
    next_local: u64,
    /// Records came in an order that nobody knows: nothing that is said here counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unordered: bool,
    /// Something could not be read, and nobody knows in which turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gap_anywhere: bool,
    /// Something could not be read where the next turn may have begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gap_pending: bool,
    #[serde(skip)]
    request_ids: RequestIds,
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
#[expect(clippy::struct_excessive_bools, reason = "each is a statement of its own that a source makes")]
pub(crate) struct TurnView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Ids that stand in it beside its key and those of its requests; some more than once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ids: Vec<Anchor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
    /// Everything was said; sources that write late say so explicitly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) complete: bool,
    /// Nothing before this time is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) told_until: Option<DateTime<Utc>>,
    /// How much of this turn's foreground requests is shown, where the source says so within the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) foreground_requests: Option<Shown>,
    /// The same of its background requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) background_requests: Option<Shown>,
    /// It may go on with a turn of which another source holds the beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) begins_elsewhere: bool,
    /// It may hold several turns of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) holds_turns: bool,
    /// Another run asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) asked_elsewhere: bool,
    /// Something in it could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_gap: bool,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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

impl End {
    pub(super) fn new(
        outcome: TurnOutcome,
        reason: Option<&str>,
        message: Option<&str>,
        at: Option<DateTime<Utc>>,
        origin: Origin,
    ) -> Self {
        Self { outcome, reason: kept(reason), message: kept(message), at, origin }
    }
}

impl TurnView {
    /// Notes an id that stands in it. Lines of one message repeat what those just before them say.
    fn note(&mut self, id: Anchor) {
        if !self.ids.iter().rev().take(REPEATED_IDS).any(|known| *known == id) {
            self.ids.push(id);
        }
    }

    fn touch(&mut self, at: Option<DateTime<Utc>>) {
        if let Some(at) = at {
            self.started_at = Some(self.started_at.map_or(at, |first| first.min(at)));
            self.last_at = Some(self.last_at.map_or(at, |last| last.max(at)));
        }
    }
}

impl ViewOfRun {
    /// Returns the ids by which repeats are known, in order.
    pub(crate) fn event_ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.seen.iter().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Lets what was restored share what many attempts have in common.
    pub(crate) fn share(&mut self, memo: &mut Memo) {
        for request in self.turns.iter_mut().flat_map(|turn| &mut turn.requests) {
            request.candidate = memo.candidate(&request.candidate);
            for attempt in &mut request.attempts {
                attempt.candidate = memo.candidate(&attempt.candidate);
                if let Some(failure) = &mut attempt.failure {
                    memo.share(failure);
                }
            }
        }
    }

    /// Takes one event; `id` is the checksum by which a repeat is known. Returns false for a repeat that was dropped.
    pub(crate) fn event(
        &mut self,
        origin: Origin,
        event: &Event,
        raw: Option<&RawFailure>,
        id: Option<u64>,
        memo: &mut Memo,
    ) -> bool {
        if id.is_some_and(|id| !self.seen.insert(id)) {
            return false;
        }
        self.note_envelope(event);
        if self.unordered {
            return true;
        }
        let turn = match &event.turn {
            Some(key) => self.turn_of_key(key),
            None => self.turn_of(event),
        };
        self.turns[turn].touch(event.ts);
        self.note_ledger(turn, origin, event);
        match &event.body {
            Body::RunStarted(body) => {
                if let Some(why) = self.declared.get_or_insert_default().take(body) {
                    let why = redact(&why);
                    self.blind_spots
                        .insert(format!("the policy that this run recorded cannot be read: {why}"));
                }
                if let Some(first) = body.candidates.iter().flatten().next() {
                    let named = |said: &Option<String>| kept(said.as_deref());
                    self.facts.provider = self.facts.provider.take().or_else(|| named(&first.provider));
                    self.facts.model = self.facts.model.take().or_else(|| named(&first.model));
                }
            }
            Body::ModelRequest(body) => self.request(turn, origin, event, body, memo),
            Body::ModelAttempt(body) => self.attempt(turn, origin, event, body, raw, memo),
            Body::ModelRetry(body) => self.retry(turn, origin, event, body, raw, memo),
            Body::ModelFallback(body) => self.fallback(turn, origin, event, body, memo),
            Body::ModelResponse(body) => self.response(turn, origin, event, body, memo),
            Body::ModelFailed(body) => self.failed(turn, origin, event, body, raw, memo),
            Body::RunFinished(body) => self.finished(turn, origin, event.ts, body),
            Body::RunCancelled(body) => self
                .end_turn(turn, End::new(TurnOutcome::Cancelled, body.by.as_deref(), None, event.ts, origin)),
            _ => {}
        }
        true
    }

    /// Keeps what the ledger needs. Model traffic counts only once there is something that it may have to stop for.
    fn note_ledger(&mut self, turn: usize, origin: Origin, event: &Event) {
        let what = match &event.body {
            Body::ToolAttempt(body) => What::attempt(body),
            Body::PermissionDenied(body) => What::denied(body),
            Body::BudgetDenied(body) => What::budget_spent(body),
            Body::RunCancelled(_) => What::Cancelled,
            _ if self.ledger.is_empty() => return,
            Body::RunFinished(_) => What::Ended,
            Body::ModelRequest(_) => What::Asked { in_named_turn: event.turn.is_some() },
            Body::ModelAttempt(_) | Body::ModelRetry(_) | Body::ModelFallback(_) => What::Activity,
            _ => return,
        };
        if self.ledger.len() < LEDGER_LIMIT {
            // The record of an attempt that is over is written when it is over.
            let at = match &event.body {
                Body::ModelAttempt(body) if body.outcome.is_some() => body.started_at,
                _ => event.ts,
            };
            self.ledger.push(Entry { at, origin, turn, what });
        }
    }

    /// Forgets what was said of turns, since it is said anew. What could not be read is not.
    fn tell_anew(&mut self) {
        let before = std::mem::take(self);
        let gap_anywhere = before.has_gap();
        *self = Self {
            seen: before.seen,
            gap_anywhere,
            blind_spots: if gap_anywhere { before.blind_spots } else { BTreeSet::new() },
            ..Self::default()
        };
    }

    fn has_gap(&self) -> bool {
        self.gap_anywhere || self.gap_pending || self.turns.iter().any(|turn| turn.has_gap)
    }

    fn lose_order(&mut self) {
        const BECAUSE: &str =
            "records of this run came too late to be put in order, so that one log does not count";
        let before = std::mem::take(self);
        let hidden = Visibility { requests: Shown::None, attempts: Shown::None };
        *self = Self {
            facts: before.facts,
            foreground: hidden,
            background: hidden,
            because: BECAUSE.to_owned(),
            blind_spots: BTreeSet::from([BECAUSE.to_owned()]),
            ends_untold: true,
            first_at: before.first_at,
            last_at: before.last_at,
            seen: before.seen,
            unordered: true,
            ..Self::default()
        };
    }

    /// Returns whether nothing has been said of the run yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.first_at.is_none() && self.facts == Facts::default()
    }

    /// Returns whether more may follow in the turn that came last, or nothing has begun yet.
    pub(crate) fn is_open(&self) -> bool {
        self.turns.last().is_none_or(|turn| turn.end.is_none())
    }

    /// Takes note that something could not be read here.
    pub(crate) fn gap(&mut self) {
        match self.turns.last_mut() {
            Some(turn) => {
                turn.has_gap = true;
                // It may also have begun what comes next.
                self.gap_pending = turn.end.is_some();
            }
            None => self.gap_pending = true,
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
        take_name(&mut self.facts.agent_version, event.agent_version.as_ref());
        take(&mut self.facts.parent_run_id, event.parent_run_id.as_ref());
        take(&mut self.facts.parent_call_id, event.parent_call_id.as_ref());
    }
}
