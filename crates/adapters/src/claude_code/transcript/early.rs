//! Errors that stand in a file before the prompt that they are of.
//!
//! A session's file is begun with its first prompt. Versions that write errors of an interactive session hold back what they
//! wrote before, and its first error may then stand above the prompt. It is told once the turn has begun.

use chrono::{DateTime, Utc};
use retryscope_record::{Place, Sink};

use super::Transcript;
use crate::json::Object;

/// Most lines that are held. A request has some ten errors at most.
const LIMIT: usize = 32;

#[derive(Default)]
pub(super) struct Early {
    lines: Vec<(Place, Option<DateTime<Utc>>, Vec<u8>)>,
    /// Errors are told, not held.
    is_over: bool,
}

impl Early {
    pub(super) fn hold(&mut self, place: Place, at: Option<DateTime<Utc>>, line: &[u8]) {
        self.lines.push((place, at, line.to_vec()));
    }

    /// Returns whether what is held is of something before a record: that of a request, or of a later prompt.
    pub(super) fn is_before(&self, kind: &str, at: Option<DateTime<Utc>>) -> bool {
        let is_later =
            |(_, error, _): &(_, Option<DateTime<Utc>>, _)| error.zip(at).is_some_and(|(e, at)| e < at);
        match kind {
            "assistant" | "api-request" => !self.lines.is_empty(),
            "user" => self.lines.first().is_some_and(is_later),
            _ => self.lines.len() >= LIMIT,
        }
    }
}

impl Transcript {
    /// Returns whether a record is an error before anything was asked.
    pub(super) fn is_early(&self, kind: &str, record: &Object<'_>) -> bool {
        kind == "system"
            && !self.early.is_over
            && self.early.lines.len() < LIMIT
            && self.turn.is_none()
            && self.maybe_prompt.is_none()
            && self.request.is_none()
            && !self.has_request_lines
            && record.is("subtype", "api_error")
    }

    /// Tells what is held.
    pub(super) fn tell_early(&mut self, sink: &mut dyn Sink) {
        if self.early.lines.is_empty() {
            return;
        }
        self.early.is_over = true;
        for (place, _, line) in std::mem::take(&mut self.early.lines) {
            self.record(place, &line, sink);
        }
        self.early.is_over = false;
    }
}
