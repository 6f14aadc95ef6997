//! What a source says.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_events::{Event, Source};
use serde::{Deserialize, Serialize};

use crate::anchor::Anchor;
use crate::origin::Place;

/// Agent and native run id: together unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// Agent name, for example `codex`.
    pub agent: Arc<str>,
    /// The agent's own id of the run.
    pub id: Arc<str>,
}

impl RunKey {
    /// Returns the key of a run.
    pub fn new(agent: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { agent: agent.into(), id: id.into() }
    }
}

/// One statement of a source, on its way; [`Statement`] keeps one.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A schema-v1 event, and what of the provider's raw answer the source holds.
    ///
    /// The meaning of the sequence, for every adapter:
    /// - `model.request` opens a logical request in the open turn;
    /// - `model.attempt` is one visible send; a second one with the same `attempt_id` completes the first;
    /// - `model.retry` says that the last attempt failed and another was planned after a wait;
    /// - `model.fallback` moves on to another candidate; `model.response` and `model.failed` end the request;
    /// - `run.finished` and `run.cancelled` end the turn.
    Event(&'a Event, Option<&'a RawFailure>),
    /// Something about the run that is no event of the schema.
    Mark {
        /// The run.
        run: &'a RunKey,
        /// When, if the source says.
        at: Option<DateTime<Utc>>,
        /// What.
        mark: &'a Mark,
    },
}

/// One statement of a source, kept.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "few are kept, and not for long")]
pub enum Statement {
    /// See [`Item::Event`].
    Event(Box<Event>, Option<RawFailure>),
    /// See [`Item::Mark`].
    Mark {
        /// The run.
        run: RunKey,
        /// When, if the source says.
        at: Option<DateTime<Utc>>,
        /// What.
        mark: Mark,
    },
}

impl Statement {
    /// Returns the statement, to hand it on.
    pub fn item(&self) -> Item<'_> {
        match self {
            Statement::Event(event, raw) => Item::Event(event, raw.as_ref()),
            Statement::Mark { run, at, mark } => Item::Mark { run, at: *at, mark },
        }
    }
}

impl From<Item<'_>> for Statement {
    fn from(item: Item<'_>) -> Self {
        match item {
            Item::Event(event, raw) => Statement::Event(Box::new(event.clone()), raw.cloned()),
            Item::Mark { run, at, mark } => Statement::Mark { run: run.clone(), at, mark: mark.clone() },
        }
    }
}

/// What of a provider's answer a source holds beside status and text; only used to classify, never shown or stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawFailure {
    /// Response headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Response body, when it differs from the message.
    pub body: Option<String>,
}

/// Statements about a run beside its events.
#[derive(Debug, Clone, PartialEq)]
pub enum Mark {
    /// Names the run: version, parent, and so on. Later facts win, absent ones do not erase.
    Facts(Facts),
    /// A prompt begins. Ends an open turn without an outcome of its own.
    TurnStarted {
        /// The agent's id of the turn, if it has one; the same id continues a turn that is open or ended.
        turn: Option<String>,
    },
    /// The open turn ended.
    TurnEnded {
        /// The agent's id of the turn.
        turn: Option<String>,
        /// How.
        outcome: TurnOutcome,
        /// The agent's own word for it.
        reason: Option<String>,
        /// The agent's own sentence for it.
        message: Option<String>,
    },
    /// The agent's own words for the end of the last turn, from a place that may be stale: they add words, no outcome.
    Explained {
        /// The agent's own word for it.
        reason: Option<String>,
        /// The agent's own sentence for it.
        message: String,
    },
    /// What this source said of the open request is taken back: it is a copy of another run's history, or was never sent.
    Copied,
    /// An explicit id (message, prompt, provider request) that another log of the same run may hold too, in the open turn.
    Anchor(Anchor),
    /// What this source shows of this run, from here on.
    Shows {
        /// Which kind of requests this is about.
        source: Source,
        /// How much of the logical requests.
        requests: Shown,
        /// How much of their attempts.
        attempts: Shown,
        /// Why, as a lowercase clause a person can read.
        because: &'static str,
    },
    /// How many upstream requests the visible attempt of that id stands for, where the format itself tells.
    Sends {
        /// The logical request.
        request_id: String,
        /// The attempt; `None` = sends beyond the visible attempts.
        attempt_id: Option<String>,
        /// At least.
        min: u64,
        /// At most; `None` = no known bound.
        max: Option<u64>,
        /// The rule, as a lowercase clause.
        basis: String,
    },
    /// No layer below the agent's outer loop had the time to repeat an attempt of this request, however many there were.
    SentOnceEach {
        /// The logical request.
        request_id: String,
    },
    /// The last records of this source before the process ended may be missing.
    TailMayBeLost,
    /// Nothing that happened in the open turn up to the time of this mark is missing in this source.
    ToldUntil,
    /// The last attempt of the request had been sent by the time of this mark, as its output or its end shows.
    SentBy {
        /// The logical request.
        request_id: String,
    },
    /// The process ended while this request was open, and another one goes on without it: how it ended is not told.
    LeftOpen {
        /// The logical request.
        request_id: String,
    },
    /// What this source said of the run so far is taken back: it is told anew, since a record that stands earlier came late.
    ToldAnew,
    /// A record of the run came so late that its place can no longer be told: nothing that this source says of it counts.
    Unordered,
    /// The run moved to another candidate (a key, for example) in a place that no log of attempts shows.
    FallbacksHidden,
    /// The open turn, or the one that begins here, may have begun before the first record of this source: it may be one
    /// of which another source holds the beginning.
    BeginsElsewhere,
    /// The open turn may hold several turns of the run: this source does not tell where they begin.
    HoldsTurns,
    /// Another run asks for the open turn, and tells of its requests itself: a log that does not tell the two apart shows
    /// those, not requests of this run.
    AskedElsewhere,
    /// This source has no records of how turns end: that it stops tells nothing.
    EndsUntold,
    /// The same; and where another source says that a turn ended, and this one reaches so far, it has said everything of it.
    EndsElsewhere,
    /// Everything this source had to say of the open turn has been said; its counts are final.
    TurnComplete,
    /// A sentence about what this source cannot show, for the person.
    BlindSpot(String),
}

/// Facts that name a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of the agent program.
    pub agent_version: Option<String>,
    /// The run that started this one.
    pub parent_run_id: Option<String>,
    /// The parent's tool call that started this one.
    pub parent_call_id: Option<String>,
    /// The run whose history this one continues under a new id.
    pub forked_from: Option<String>,
    /// Provider, where the log names it apart from requests.
    pub provider: Option<String>,
    /// Model, where the log names it apart from requests.
    pub model: Option<String>,
    /// Provider API family (`openai-completions`, `anthropic-messages`), which decides about hidden layers.
    pub api: Option<String>,
    /// Version to look policies up with, where the log tells the generation but not the version.
    pub policy_version: Option<String>,
    /// When the process started.
    pub started_at: Option<DateTime<Utc>>,
    /// Repository or working directory, for grouping; never exported.
    pub directory: Option<String>,
}

/// How much of the attempts a source shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Shown {
    /// None: a request that was repeated looks like one that was not.
    None,
    /// Some: what is shown happened, more may have.
    Some,
    /// Each one.
    All,
}

/// How a turn ended, as its log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The agent answered.
    Succeeded,
    /// It gave up.
    Failed,
    /// A record says that somebody cancelled.
    Cancelled,
    /// The log does not say.
    Unknown,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Where.
    pub place: Place,
    /// What.
    pub kind: GapKind,
}

/// Kinds of gaps; a closed set, since they are a metric label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapKind {
    /// A line that is not valid JSON.
    InvalidJson,
    /// A line cut by the end of the file.
    TornLine,
    /// A line over the length limit of which no key could be read.
    OversizedLine,
    /// A record of a known type that lacks what it needs.
    IncompleteRecord,
    /// A field of a known record that holds, at least in part, what cannot be used; the rest of the record counts.
    UnusableField {
        /// Its name.
        name: String,
    },
    /// A record written for a newer major version.
    NewerVersion {
        /// Version found.
        found: u64,
        /// Newest version read.
        supported: u64,
    },
    /// Events missing between two sequence numbers.
    MissingSequence {
        /// How many.
        count: u64,
    },
    /// A database that could not be queried.
    Database {
        /// The database's own words.
        message: String,
    },
}

impl GapKind {
    /// Returns the closed label.
    pub fn label(&self) -> &'static str {
        match self {
            GapKind::InvalidJson => "invalid_json",
            GapKind::TornLine => "torn_line",
            GapKind::OversizedLine => "oversized_line",
            GapKind::IncompleteRecord => "incomplete_record",
            GapKind::UnusableField { .. } => "unusable_field",
            GapKind::NewerVersion { .. } => "newer_version",
            GapKind::MissingSequence { .. } => "missing_sequence",
            GapKind::Database { .. } => "database",
        }
    }

    /// Returns whether the runs of the source may hold more than was read. Not so of a field of a record that counts, nor
    /// of a database that could not be queried now, and is again.
    pub fn hides_records(&self) -> bool {
        !matches!(self, GapKind::UnusableField { .. } | GapKind::Database { .. })
    }
}
