//! The bodies of the events, one struct a `type`, each with setters.
//!
//! Every field is optional on reading: a log that does not say is a gap, not an error. Which fields a good writer sets is
//! said at each struct. Times are UTC, durations whole milliseconds.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::flat::{FromRaw, Raw, Spare};
use crate::values::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Sent,
    Source, ToolStatus, Usage, record,
};

/// One field of a body, for schemas and checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name on the wire.
    pub name: &'static str,
    /// Type in Rust.
    pub(crate) kind: &'static str,
    /// What it means.
    pub doc: &'static str,
}

impl Field {
    /// Returns the type of the elements, of a list.
    pub(crate) fn element(kind: &str) -> Option<&str> {
        kind.strip_prefix("Vec<")?.strip_suffix('>')
    }

    /// Returns the parts of a record; `None` for a type that is none.
    pub(crate) fn parts(kind: &str) -> Option<&'static [Field]> {
        Some(match kind {
            "Candidate" => Candidate::FIELDS,
            "Usage" => Usage::FIELDS,
            "BudgetState" => BudgetState::FIELDS,
            _ => return None,
        })
    }
}

/// Declares the bodies: struct, setters, wire name, and the [`Body`] enum over them.
macro_rules! bodies {
    ($($(#[doc = $doc:literal])* $name:ident = $wire:literal {
        $($(#[doc = $fdoc:literal])* $field:ident : $type:ty),* $(,)?
    })+) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
            #[serde(default)]
            #[non_exhaustive]
            pub struct $name {
                $($(#[doc = $fdoc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
            }

            impl $name {
                /// The `type` on the wire.
                pub const TYPE: &'static str = $wire;

                /// The fields on the wire, in the order they are written.
                pub const FIELDS: &'static [Field] = &[$(Field {
                    name: stringify!($field),
                    kind: stringify!($type),
                    doc: concat!($($fdoc),*),
                }),*];

                /// Returns a body with no field set.
                pub fn new() -> Self {
                    Self::default()
                }

                $(
                    $(#[doc = $fdoc])*
                    #[must_use]
                    pub fn $field(mut self, value: impl Into<$type>) -> Self {
                        self.$field = Some(value.into());
                        self
                    }
                )*
            }

            impl From<$name> for Body {
                fn from(body: $name) -> Self {
                    Body::$name(body)
                }
            }
        )+

        /// What happened. Types that this version does not know are kept as [`Body::Other`].
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Body {
            $($(#[doc = $doc])* $name($name),)+
            /// A type of a later minor version, or of another program.
            Other {
                /// The `type` as read.
                kind: String,
            },
        }

        impl Body {
            /// Every `type` that this version knows.
            pub const TYPES: &'static [&'static str] = &[$($wire),+];

            /// Returns the `type` on the wire.
            pub fn kind(&self) -> &str {
                match self { $(Body::$name(_) => $wire,)+ Body::Other { kind } => kind }
            }

            /// Returns the fields of a type; `None` for a type that this version does not know.
            pub fn fields_of(kind: &str) -> Option<&'static [Field]> {
                match kind { $($wire => Some($name::FIELDS),)+ _ => None }
            }

            /// Returns a body of a type with no field set; `None` for a type that this version does not know.
            pub(crate) fn blank(kind: &str) -> Option<Self> {
                match kind { $($wire => Some(Body::$name($name::default())),)+ _ => None }
            }

            /// Sets a field as read; `None` for what only the long way understands.
            pub(crate) fn set(&mut self, name: &str, value: Raw<'_>, spare: &mut Spare) -> Option<()> {
                match self {
                    $(Body::$name(body) => match name {
                        $(stringify!($field) => <$type>::from_raw(value, spare)?.put_into(&mut body.$field, spare),)*
                        _ => return None,
                    },)+
                    Body::Other { .. } => return None,
                }
                Some(())
            }

            /// Empties every field, and keeps the memory of their texts.
            pub(crate) fn clear(&mut self, spare: &mut Spare) {
                match self {
                    $(Body::$name(body) => {
                        $(if let Some(value) = body.$field.take() { value.give_back(spare); })*
                    })+
                    Body::Other { kind } => kind.clear(),
                }
            }

            /// Returns what a type means.
            pub(crate) fn doc_of(kind: &str) -> &'static str {
                match kind { $($wire => concat!($($doc),*),)+ _ => "" }
            }

            pub(crate) fn from_fields(kind: &str, fields: Value) -> Result<Self, serde_json::Error> {
                Ok(match kind {
                    $($wire => Body::$name(serde_json::from_value(fields)?),)+
                    other => Body::Other { kind: other.to_owned() },
                })
            }

            pub(crate) fn to_fields(&self) -> Result<Value, serde_json::Error> {
                match self {
                    $(Body::$name(body) => serde_json::to_value(body),)+
                    Body::Other { .. } => Ok(Value::Object(serde_json::Map::new())),
                }
            }
        }
    };
}

bodies! {
    /// A run began. Set `candidates`, and `policy` and `tools` when the agent has them.
    RunStarted = "run.started" {
        /// Who may answer, in the order they are tried.
        candidates: Vec<Candidate>,
        /// The retry policy in force, in the form of `policy.toml`.
        policy: Value,
        /// Limits of the run: steps, seconds, tokens.
        limits: Value,
        /// `interactive` or `batch`.
        workload: String,
        /// Class of the data that is sent out.
        data_class: String,
        /// The failed run that this one repeats.
        retry_of_run_id: String,
        /// Declared tools: name, idempotency, replay policy, effect.
        tools: Vec<Value>,
    }

    /// The agent wants one model answer. `request_id` is needed as soon as requests overlap.
    ModelRequest = "model.request" {
        /// Id of the logical request.
        request_id: String,
        /// Who is asked first.
        candidate: Candidate,
        /// On whose behalf.
        source: Source,
        /// `main`, `title`, `summary`, `compaction`, and so on.
        purpose: String,
        /// `chat`, `batch`, and so on.
        operation: String,
        /// Whether the answer is streamed.
        stream: bool,
    }

    /// One upstream request, also when the connection failed. Where these exist, upstream = those sent.
    ModelAttempt = "model.attempt" {
        /// The logical request it serves.
        request_id: String,
        /// Id of the attempt; a later event with the same id completes it.
        attempt_id: String,
        /// The attempt inside which this one was made, for nested layers.
        parent_attempt_id: String,
        /// Number within the logical request, from 1.
        attempt: u64,
        /// What it was.
        kind: AttemptKind,
        /// Who sent it.
        layer: Layer,
        /// Who was asked.
        candidate: Candidate,
        /// When it was sent.
        started_at: DateTime<Utc>,
        /// When it ended.
        ended_at: DateTime<Utc>,
        /// Whether it left the process.
        sent: Sent,
        /// How it ended; absent while in flight.
        outcome: AttemptOutcome,
        /// Failure class.
        class: String,
        /// Failure reason.
        reason: String,
        /// The writer's opinion whether another attempt could help.
        retryable: bool,
        /// HTTP status; absent without an answer.
        status: u16,
        /// The provider's error code.
        code: String,
        /// The provider's error text, without credentials: whoever writes it takes them out. Cut to 2 KiB.
        message: String,
        /// Where the error came from.
        error_source: ErrorSource,
        /// The provider's request id.
        upstream_request_id: String,
        /// Wait that the provider stated, in ms.
        retry_after_ms: u64,
        /// Where the stated wait stood: a header name, `body` or `text`.
        retry_after_source: String,
        /// Time to the first token, in ms.
        first_token_ms: u64,
        /// Whether output had begun before the end.
        output_started: bool,
        /// Last event of the stream, for example `message_stop`.
        terminal_event: String,
        /// Longest silence of the stream, between two chunks or before its end, in ms.
        idle_ms: u64,
        /// Tokens of this attempt.
        usage: Usage,
    }

    /// An attempt failed and will be repeated after a wait. Write it before the wait.
    ModelRetry = "model.retry" {
        /// The logical request.
        request_id: String,
        /// Who failed, and will be asked again.
        candidate: Candidate,
        /// Number of the failed attempt of this candidate, from 1.
        attempt: u64,
        /// Attempts that the policy allows for this candidate.
        max_attempts: u64,
        /// Failure class.
        class: String,
        /// Failure reason.
        reason: String,
        /// HTTP status; absent without an answer.
        status: u16,
        /// The provider's error code.
        code: String,
        /// The provider's error text, without credentials: whoever writes it takes them out. Cut to 2 KiB.
        message: String,
        /// The provider's request id.
        upstream_request_id: String,
        /// Planned wait in ms.
        delay_ms: u64,
        /// Real wait in ms, when the event is written after it.
        waited_ms: u64,
        /// What decided the wait.
        delay_source: DelaySource,
        /// Wait that the provider stated, in ms.
        retry_after_ms: u64,
        /// Who repeats.
        layer: Layer,
        /// Whether output had begun before the failure.
        output_started: bool,
        /// Whether what was shown has been taken back.
        output_discarded: bool,
        /// What differs in the next attempt: `credential`, `max_tokens`, `context`, `transport`, `features`.
        changed: Vec<String>,
        /// The retry budget that allowed it.
        budget: BudgetState,
    }

    /// The next candidate is asked. It is not a retry, but it is amplification.
    ModelFallback = "model.fallback" {
        /// The logical request.
        request_id: String,
        /// What differs.
        kind: FallbackKind,
        /// Who failed.
        from: Candidate,
        /// Who is asked now.
        to: Candidate,
        /// HTTP status or code of each failed attempt of `from`, in order; null where there was no answer.
        failures: Vec<Option<Value>>,
        /// Failed attempts of `from`.
        attempts: u64,
        /// Why.
        reason: String,
    }

    /// The logical request was answered.
    ModelResponse = "model.response" {
        /// The logical request.
        request_id: String,
        /// Who answered.
        candidate: Candidate,
        /// The model that was asked for, when another one answered.
        requested_model: String,
        /// Attempts in all, every candidate counted.
        attempts: u64,
        /// Why the answer ended.
        stop_reason: String,
        /// Tokens of the answer.
        usage: Usage,
        /// From first attempt to last byte, in ms.
        elapsed_ms: u64,
        /// Time to the first token, in ms.
        first_token_ms: u64,
    }

    /// The logical request was given up.
    ModelFailed = "model.failed" {
        /// The logical request.
        request_id: String,
        /// Who failed last.
        candidate: Candidate,
        /// Attempts in all, every candidate counted.
        attempts: u64,
        /// Failure class of the last attempt.
        class: String,
        /// Failure reason of the last attempt.
        reason: String,
        /// HTTP status; absent without an answer.
        status: u16,
        /// The provider's error code.
        code: String,
        /// The provider's error text, without credentials: whoever writes it takes them out. Cut to 2 KiB.
        message: String,
        /// The provider's request id.
        upstream_request_id: String,
        /// Wait that the provider stated, in ms.
        retry_after_ms: u64,
        /// When the quota resets.
        reset_at: DateTime<Utc>,
        /// Who was asked.
        candidates_tried: Vec<Candidate>,
        /// Why no further attempt was made.
        decision: Decision,
    }

    /// One execution of a tool. Never holds arguments or output, only keyed hashes.
    ToolAttempt = "tool.attempt" {
        /// The tool call.
        call_id: String,
        /// Tool name.
        tool: String,
        /// Keyed hash of the input; the key stays with the run.
        input_hash: String,
        /// Keyed hash of what the call would do, whatever the tool's name or argument order.
        action_key: String,
        /// `read`, `write` or `external`.
        effect: String,
        /// Number of the attempt, from 1.
        attempt: u64,
        /// Attempts that the policy allows.
        max_attempts: u64,
        /// When it began.
        started_at: DateTime<Utc>,
        /// When it ended.
        ended_at: DateTime<Utc>,
        /// Its state.
        status: ToolStatus,
        /// Error code.
        error_code: String,
        /// `idempotent`, `conditional` or `non_idempotent`.
        idempotency: String,
        /// Key under which a repeat is recognized by the receiver.
        idempotency_key: String,
        /// `auto`, `ask` or `never`.
        replay_policy: String,
        /// Result of the check before a conditional replay: `{ok, reason}`.
        replay_check: Value,
        /// Whether a person approved it.
        approved: bool,
        /// Wait that the tool stated, in ms.
        retry_after_ms: u64,
        /// Planned wait before the next attempt, in ms.
        delay_before_next_ms: u64,
    }

    /// A tool call was not allowed.
    PermissionDenied = "permission.denied" {
        /// The tool call.
        call_id: String,
        /// Tool name.
        tool: String,
        /// Keyed hash of the input.
        input_hash: String,
        /// Keyed hash of what the call would do.
        action_key: String,
    }

    /// A retry was not made because a budget was spent.
    BudgetDenied = "budget.denied" {
        /// What is budgeted.
        kind: String,
        /// Over what.
        scope: String,
        /// The limit.
        limit: f64,
        /// What was used.
        used: f64,
        /// What was left.
        remaining: f64,
    }

    /// Somebody cancelled the run.
    RunCancelled = "run.cancelled" {
        /// Who.
        by: String,
    }

    /// The run, or one turn of it, ended.
    RunFinished = "run.finished" {
        /// `succeeded`, `failed` or `cancelled`.
        outcome: String,
        /// Reason for machines.
        terminal_reason: String,
        /// Reason for a person.
        error: String,
        /// Tokens of the run.
        usage: Usage,
    }
}

record! {
    /// State of a retry budget when a retry was allowed.
    BudgetState {
        /// What is budgeted, for example `retries`.
        kind: String,
        /// The limit, in the unit of `kind`.
        limit: f64,
        /// What was used before this retry.
        used: f64,
        /// What is left after it.
        remaining: f64,
    }
}
