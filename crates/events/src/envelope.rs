//! The envelope that every event shares.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::body::{Body, Field};
use crate::fit::FromValue;
use crate::flat::{FromRaw, Raw, Spare};
use crate::read::flat_parts;
use crate::values::Candidate;

/// Major version of the schema that this crate writes and reads.
pub const VERSION: u64 = 1;

/// Declares the optional envelope fields once, with a setter each.
macro_rules! envelope {
    ($($(#[doc = $doc:literal])* $field:ident : $type:ty),+ $(,)?) => {
        /// The optional fields of the envelope, in the order they are declared.
        pub(crate) const ENVELOPE: &[Field] = &[$(Field {
            name: stringify!($field),
            kind: stringify!($type),
            doc: concat!($($doc),*),
        }),+];

        /// One event: the shared envelope and a typed [`Body`].
        ///
        /// Build it with [`Event::new`] and the setters; fields may be added in a minor version.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct Event {
            /// When it happened, UTC; written with at least milliseconds. `None` only in events read from a log that
            /// gives no time; the writer refuses those.
            pub ts: Option<DateTime<Utc>>,
            /// The run it belongs to: the agent's native session id.
            pub run_id: String,
            $($(#[doc = $doc])* pub $field: Option<$type>,)+
            /// What happened.
            pub body: Body,
            /// Fields that this version does not know, kept as they were.
            pub extra: Map<String, Value>,
        }

        impl Event {
            /// Returns an event with no optional field set.
            pub fn new(run_id: impl Into<String>, ts: DateTime<Utc>, body: impl Into<Body>) -> Self {
                Self { ts: Some(ts), run_id: run_id.into(), $($field: None,)+ body: body.into(), extra: Map::new() }
            }

            /// Returns an event that says nothing yet.
            pub(crate) fn blank() -> Self {
                let body = Body::Other { kind: String::new() };
                Self { ts: None, run_id: String::new(), $($field: None,)+ body, extra: Map::new() }
            }

            /// Empties every field, and keeps the memory of their texts.
            pub(crate) fn clear(&mut self, spare: &mut Spare) {
                self.ts = None;
                spare.give(std::mem::take(&mut self.run_id));
                $(if let Some(value) = self.$field.take() { value.give_back(spare); })+
                self.body.clear(spare);
                self.extra.clear();
            }

            /// Sets an optional field of the envelope as read; outer `None` for a name that is none of them, inner `None`
            /// for what only the long way understands.
            pub(crate) fn set(&mut self, name: &str, value: Raw<'_>, spare: &mut Spare) -> Option<Option<()>> {
                Some(match name {
                    $(stringify!($field) => <$type>::from_raw(value, spare).map(|value| value.put_into(&mut self.$field, spare)),)+
                    _ => return None,
                })
            }

            /// Takes the optional fields of the envelope; those of another kind are put into `extra`.
            pub(crate) fn take_envelope(&mut self, fields: &mut Map<String, Value>) {
                $(if let Some(value) = fields.remove(stringify!($field)) {
                    self.$field = FromValue::from_value(&value);
                    if self.$field.is_none() && !value.is_null() {
                        self.extra.insert(stringify!($field).to_owned(), value);
                    }
                })+
            }

            /// Puts the optional fields of the envelope that are said into an object.
            pub(crate) fn put_envelope(&self, object: &mut Map<String, Value>) {
                $(if let Some(value) = &self.$field {
                    object.insert(stringify!($field).to_owned(), value.clone().into());
                })+
            }

            $(
                $(#[doc = $doc])*
                #[must_use]
                pub fn $field(mut self, value: impl Into<$type>) -> Self {
                    self.$field = Some(value.into());
                    self
                }
            )+
        }
    };
}

impl Event {
    /// Returns the names of the fields that this version knows and whose values, or parts of them, it could not use.
    pub fn unusable(&self) -> impl Iterator<Item = &str> {
        let kind = self.body.kind();
        let fields = Body::fields_of(kind).unwrap_or_default();
        let is_flat = move |name: &str| {
            flat_parts(kind)
                .iter()
                .any(|(prefix, _)| name.strip_prefix(prefix).is_some_and(Candidate::has_part))
        };
        self.extra.keys().map(String::as_str).filter(move |name| {
            *name == "ts" || ENVELOPE.iter().chain(fields).any(|field| field.name == *name) || is_flat(name)
        })
    }
}

envelope! {
    /// Unique id of the event; lets a reader drop repeats.
    event_id: String,
    /// Number of the event within its writer, +1 each: shows loss and repeats.
    seq: u64,
    /// Which process wrote it.
    writer: String,
    /// The prompt it belongs to: a number from 1, or the agent's own id.
    turn: String,
    /// Model step within the run, from 1.
    step: u64,
    /// Agent name, for example `codex`.
    agent: String,
    /// Version of the agent program.
    agent_version: String,
    /// Id of a subagent within the run.
    agent_id: String,
    /// The run that started this one.
    parent_run_id: String,
    /// The tool call of the parent that started this run.
    parent_call_id: String,
    /// The outermost run.
    root_run_id: String,
    /// The conversation, where it spans runs.
    conversation_id: String,
    /// Machine, opaque.
    host: String,
    /// OpenTelemetry trace id.
    trace_id: String,
    /// OpenTelemetry span id.
    span_id: String,
    /// OpenTelemetry parent span id.
    parent_span_id: String,
}
