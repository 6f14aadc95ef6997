//! The `events.jsonl` schema, version 1: one JSON object a line, one line an event.
//!
//! For the author of an agent: build an [`Event`] with the typed bodies below and hand it to an [`EventWriter`].
//! For a reader: [`read::parse_line`] accepts the spellings that other programs use and keeps what it does not know.
//!
//! Not for: classifying errors (that is `retryscope-taxonomy`), counting (that is the analysis), or anything with a
//! clock, a file handle of its own or an async runtime.
//!
//! Invariant: what [`EventWriter`] writes, [`read::parse_line`] reads back to an equal value.

mod body;
pub mod check;
mod envelope;
mod fit;
mod flat;
pub mod known;
mod ledger;
pub mod otel;
pub mod read;
mod schema;
mod values;
mod write;

pub use body::{
    Body, BudgetDenied, BudgetState, Field, ModelAttempt, ModelFailed, ModelFallback, ModelRequest,
    ModelResponse, ModelRetry, PermissionDenied, RunCancelled, RunFinished, RunStarted, ToolAttempt,
};
pub use envelope::{Event, VERSION};
pub use schema::json_schema;
pub use values::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Sent,
    Source, ToolStatus, Usage,
};
pub use write::{EventWriter, WriteError};
