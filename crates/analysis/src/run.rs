//! A run as every face shows it.
//!
//! Not for: how it came to be (see `view` for one source, `join` for several).

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, Layer, Source, Usage,
};
use retryscope_policy::own::OwnPolicy;
use retryscope_record::{Facts, Origin, RunKey, SourceId, View};
use serde::{Deserialize, Serialize};

use crate::count::{Bound, Count, Counts, Evidence};
use crate::judge::Failure;
use crate::tools::Entry;

/// One agent session, joined over all its sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Agent and native id.
    pub key: RunKey,
    /// What the logs say of the run as a whole.
    pub facts: Facts,
    /// What the run said of itself when it began.
    pub declared: Declared,
    /// First event time.
    pub started_at: Option<DateTime<Utc>>,
    /// Last event time.
    pub ended_at: Option<DateTime<Utc>>,
    /// Outcome of the last turn.
    pub outcome: RunOutcome,
    /// Turns in order.
    pub turns: Vec<Turn>,
    /// Foreground counts, children excluded.
    pub counts: Counts,
    /// Counts of side calls.
    pub background_counts: Counts,
    /// Time spent.
    pub time: Time,
    /// Sources that hold a part of it.
    pub sources: Vec<SourceId>,
    /// Kinds of the logs that hold a part of it.
    pub views: Vec<View>,
    /// What the logs cannot show, as sentences.
    pub blind_spots: Vec<String>,
    /// What the tool ledger says, in order; empty where the log has none.
    pub ledger: Vec<Entry>,
    /// Retry settings read from the agent's configuration, by name.
    pub settings: Vec<(String, String)>,
}

/// What a run says of itself when it begins (`run.started`); all absent for agents that say nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// Who may answer, in the order they are tried.
    pub candidates: Vec<Candidate>,
    /// The retry policy in force.
    pub policy: Option<OwnPolicy>,
    /// A policy was recorded that cannot be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub policy_unread: bool,
    /// `interactive` or `batch`.
    pub workload: Option<String>,
    /// Class of the data that is sent out.
    pub data_class: Option<String>,
}

impl Run {
    /// Returns how many turns failed.
    pub fn failed_turns(&self) -> usize {
        self.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed).count()
    }

    /// Returns the last turn that failed.
    pub fn last_failed_turn(&self) -> Option<&Turn> {
        self.turns.iter().rev().find(|turn| turn.outcome == RunOutcome::Failed)
    }

    /// Returns the run with other turns; all else of it, its counts included, as it is.
    pub(crate) fn with_turns(&self, turns: Vec<Turn>) -> Run {
        Run {
            turns,
            key: self.key.clone(),
            facts: self.facts.clone(),
            declared: self.declared.clone(),
            counts: self.counts.clone(),
            background_counts: self.background_counts.clone(),
            sources: self.sources.clone(),
            views: self.views.clone(),
            blind_spots: self.blind_spots.clone(),
            ledger: self.ledger.clone(),
            settings: self.settings.clone(),
            ..*self
        }
    }

    /// Returns the turn that an explanation is about: the last failed one, else the last.
    pub fn told_turn(&self) -> Option<&Turn> {
        self.last_failed_turn().or_else(|| self.turns.last())
    }
}

/// How a run or a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The agent answered.
    Succeeded,
    /// It gave up.
    Failed,
    /// A record says that somebody cancelled.
    Cancelled,
    /// The log stops without an end and the writer is gone.
    Interrupted,
    /// The writer is alive, or wrote a moment ago.
    Running,
    /// The log does not say.
    Unknown,
}

impl RunOutcome {
    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            RunOutcome::Succeeded => "succeeded",
            RunOutcome::Failed => "failed",
            RunOutcome::Cancelled => "cancelled",
            RunOutcome::Interrupted => "interrupted",
            RunOutcome::Running => "running",
            RunOutcome::Unknown => "unknown",
        }
    }
}

/// One prompt until the agent stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Number within the run, from 1.
    pub number: usize,
    /// The agent's own id.
    pub key: Option<String>,
    /// First event time.
    pub started_at: Option<DateTime<Utc>>,
    /// Last event time.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The agent's word for the end.
    pub terminal_reason: Option<String>,
    /// The agent's sentence for the end.
    pub error: Option<String>,
    /// Why it failed; `None` unless it failed.
    pub cause: Option<Cause>,
    /// Foreground counts.
    pub counts: Counts,
    /// Counts of side calls.
    pub background_counts: Counts,
    /// Time spent.
    pub time: Time,
    /// Logical requests in order, foreground and background.
    pub requests: Vec<LogicalRequest>,
    /// Where the end is said.
    pub end_origin: Option<Origin>,
}

impl Turn {
    /// Returns the last request of the prompt itself; the last side call where there is none.
    pub fn last_asked(&self) -> Option<&LogicalRequest> {
        self.requests.iter().rfind(|request| request.source == Source::Foreground).or(self.requests.last())
    }

    /// Returns the attempt at which a turn stopped that neither succeeded nor failed, if that attempt has an error.
    pub fn stopped_at(&self) -> Option<&Attempt> {
        if matches!(self.outcome, RunOutcome::Succeeded | RunOutcome::Failed) {
            return None;
        }
        let open = self.foreground().next_back().filter(|request| !request.outcome.is_ok())?;
        open.attempts.last().filter(|last| last.failure.is_some())
    }

    /// Returns whether the log says how it ended.
    pub fn is_over(&self) -> bool {
        matches!(self.outcome, RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled)
    }

    /// Returns the requests of the turn's own work, in order.
    pub fn foreground(&self) -> impl DoubleEndedIterator<Item = &LogicalRequest> {
        self.requests.iter().filter(|r| r.source == Source::Foreground)
    }
}

/// One model answer that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct LogicalRequest {
    /// The agent's own id, or a number within the run.
    pub id: String,
    /// Step within the run, where the log numbers them.
    pub step: Option<u64>,
    /// On whose behalf.
    pub source: Source,
    /// `main`, `title`, `compaction`, and so on.
    pub purpose: Option<String>,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// Requests sent for it.
    pub upstream: Count,
    /// Retries among them.
    pub retries: Count,
    /// Fallbacks among them.
    pub fallbacks: u64,
    /// When its first record was written; `None` where the log gives no time.
    pub opened_at: Option<DateTime<Utc>>,
    /// Who is asked, as far as its log goes; what was asked first is told by the first attempt.
    pub candidate: Arc<Candidate>,
    /// Visible attempts in order.
    pub attempts: Vec<Attempt>,
    /// Whether its log has a record for each attempt.
    pub shows_attempts: bool,
    /// Tokens of the answer.
    pub usage: Option<Box<Usage>>,
    /// The model that was asked for, when another one answered.
    pub requested_model: Option<String>,
    /// The provider's word for why the answer ended; `None` without an answer, or where the log does not say.
    pub stop_reason: Option<String>,
    /// Why it was given up, as the agent says; `None` where it was not, or the log does not say.
    pub decision: Option<Decision>,
    /// Where it begins.
    pub origin: Origin,
}

/// How a logical request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestOutcome {
    /// The first attempt answered.
    OkFirstTry,
    /// A retry answered.
    OkAfterRetry,
    /// Another candidate answered.
    OkAfterFallback,
    /// It was answered; this log cannot show on which attempt.
    Ok,
    /// It failed without a retry.
    FailedNoRetry,
    /// It failed after retries or fallbacks.
    FailedAfterRetry,
    /// It failed; this log cannot show whether after retries.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It has not ended, as far as the log goes.
    Open,
}

impl RequestOutcome {
    /// All but [`RequestOutcome::Open`].
    pub const ENDED: [Self; 8] = [
        Self::OkFirstTry,
        Self::OkAfterRetry,
        Self::OkAfterFallback,
        Self::Ok,
        Self::FailedNoRetry,
        Self::FailedAfterRetry,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestOutcome::OkFirstTry => "ok_first_try",
            RequestOutcome::OkAfterRetry => "ok_after_retry",
            RequestOutcome::OkAfterFallback => "ok_after_fallback",
            RequestOutcome::Ok => "ok",
            RequestOutcome::FailedNoRetry => "failed_no_retry",
            RequestOutcome::FailedAfterRetry => "failed_after_retry",
            RequestOutcome::Failed => "failed",
            RequestOutcome::Cancelled => "cancelled",
            RequestOutcome::Open => "open",
        }
    }

    /// Returns whether an answer came.
    pub fn is_ok(self) -> bool {
        matches!(
            self,
            RequestOutcome::OkFirstTry
                | RequestOutcome::OkAfterRetry
                | RequestOutcome::OkAfterFallback
                | RequestOutcome::Ok
        )
    }

    /// Returns whether it was given up.
    pub fn is_failed(self) -> bool {
        self.is_failed_at_once() || self == RequestOutcome::FailedAfterRetry
    }

    /// Returns whether it was given up, and no retry or fallback of it is in the log.
    pub fn is_failed_at_once(self) -> bool {
        matches!(self, RequestOutcome::FailedNoRetry | RequestOutcome::Failed)
    }
}

/// One visible send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The agent's id of it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Who was asked.
    pub candidate: Arc<Candidate>,
    /// What it was.
    pub kind: AttemptKind,
    /// Who sent it again; `None` for a first send or where the log does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// How it ended; `None` = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// When it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Planned wait after it, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Real wait after it, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// What decided the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_source: Option<DelaySource>,
    /// Attempts that the agent said it would make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u64>,
    /// What differs in the next attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Whether output had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_started: Option<bool>,
    /// Whether what was shown has been taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_discarded: Option<bool>,
    /// Whether it reached a server; `None` = unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// How many upstream requests it stands for.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub sends: Bound,
    /// Whether the log's own format tells `sends`, so that no policy needs to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sends_told: bool,
    /// Provider API, which decides about hidden layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<Arc<str>>,
    /// How it is known.
    pub evidence: Evidence,
    /// Where it stands.
    pub origin: Origin,
    /// Tokens it used, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<Usage>>,
    /// What the record of this attempt says of its stream and of where its error came from.
    #[serde(default)]
    pub told: Told,
}

impl Attempt {
    /// Returns whether its own record says that it was given up for another one, or by its person.
    pub(crate) fn was_called_off(&self) -> bool {
        matches!(self.outcome, Some(AttemptOutcome::Cancelled | AttemptOutcome::Superseded))
            && self.evidence == Evidence::Observed
    }

    /// Returns 1 for an attempt that was sent, once or more often; 0 for one that was not.
    pub fn sent_at_all(&self) -> Bound {
        Bound::range(self.sends.min.min(1), self.sends.max.map_or(Some(1), |max| Some(max.min(1))))
    }

    /// Returns the time so many milliseconds after its end; `None` where either is not known, or the calendar ends before.
    pub fn after_end(&self, ms: Option<u64>) -> Option<DateTime<Utc>> {
        self.ended_at?.checked_add_signed(TimeDelta::try_milliseconds(i64::try_from(ms?).ok()?)?)
    }
}

impl LogicalRequest {
    /// Returns how many requests were surely sent for it that are not among its attempts.
    pub fn unrecorded(&self) -> u64 {
        let shown = self.attempts.iter().map(|a| a.sends).fold(Bound::ZERO, Bound::plus);
        self.upstream.bound.min.saturating_sub(shown.min)
    }

    /// Returns whether the log tells how long was waited before each retry, and shows each of them.
    pub fn has_each_wait(&self) -> bool {
        let tells = |pair: &[Attempt]| {
            pair[1].kind != AttemptKind::Retry || pair[0].waited_ms.or(pair[0].delay_ms).is_some()
        };
        // Between the requests that one attempt stands for are waits as well.
        let is_one = |attempt: &Attempt| attempt.sends == Bound::exact(1);
        let shows_each = self.unrecorded() == 0 && self.attempts.iter().all(is_one);
        (shows_each || self.attempts.is_empty()) && self.attempts.windows(2).all(tells)
    }

    /// Returns whether the log tells how long each attempt took that failed, and what was waited after it.
    pub fn has_each_loss(&self) -> bool {
        let tells = |pair: &[Attempt]| {
            let [failed, next] = pair else { return true };
            let lasted = failed.started_at.is_some() && failed.ended_at.is_some();
            let waited = failed.waited_ms.or(failed.delay_ms).is_some();
            (lasted && waited) || (failed.started_at.is_some() && next.started_at.is_some())
        };
        self.unrecorded() == 0 && self.attempts.windows(2).all(tells)
    }

    /// Returns from when to when an open request said that it would wait; `None` where something followed, or nothing was
    /// planned.
    pub fn planned_wait(&self) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        let last = self.attempts.last().filter(|_| self.outcome == RequestOutcome::Open)?;
        Some((last.ended_at?, last.after_end(last.delay_ms)?))
    }
}

/// What a record of an attempt says beside its outcome; all absent where attempts have no records of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Where the error came from.
    pub error_source: Option<ErrorSource>,
    /// Last event of the stream.
    pub terminal_event: Option<String>,
    /// Longest silence of the stream, in ms.
    pub idle_ms: Option<u64>,
    /// The attempt of an outer layer that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<str>>,
    /// Whether a record says what kind of attempt it was: its own, or a planned retry or fallback before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kind: bool,
}

fn once() -> Bound {
    Bound::exact(1)
}

fn is_once(sends: &Bound) -> bool {
    *sends == once()
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// The error.
    pub failure: Failure,
    /// Who gave it.
    pub candidate: Arc<Candidate>,
    /// Place among the requests of its turn of the one that it ended; `None` where it ended none of them.
    pub request: Option<usize>,
    /// Where it stands.
    pub evidence: Vec<Origin>,
}

/// Time spent, in ms. Sums over parallel requests may exceed wall time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// First to last event; `None` without times.
    pub wall_ms: Option<u64>,
    /// Waits between a failed attempt and the next, and a wait open at the end.
    pub waiting_ms: Option<u64>,
    /// Waiting, and the duration of failed attempts.
    pub lost_ms: Option<u64>,
}

impl Time {
    /// Adds two spans that do not overlap.
    #[must_use]
    pub fn plus(self, other: Time) -> Time {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        Time {
            wall_ms: add(self.wall_ms, other.wall_ms),
            waiting_ms: add(self.waiting_ms, other.waiting_ms),
            lost_ms: add(self.lost_ms, other.lost_ms),
        }
    }
}
