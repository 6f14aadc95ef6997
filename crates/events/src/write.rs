//! Strict writing: one event, one line, one `write`.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::envelope::{Event, VERSION};

/// Longest provider text that is stored, in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 2048;

/// Why an event was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The event has no time.
    #[error("event `{kind}` has no time; set `ts`")]
    NoTime {
        /// The event's type.
        kind: String,
    },
    /// The event has an empty run id.
    #[error("event `{kind}` has an empty run_id")]
    NoRun {
        /// The event's type.
        kind: String,
    },
    /// A value cannot be JSON, for example a number that is not finite.
    #[error("cannot encode event: {0}")]
    Encode(#[from] serde_json::Error),
    /// The destination failed.
    #[error("cannot write event: {0}")]
    Io(#[from] io::Error),
}

/// Writes events to `W`, one `write` call a line, so that appends of several processes do not mix within a line.
///
/// That holds for a file opened for appending (`OpenOptions::new().append(true)`), and not through a `BufWriter`, which puts
/// lines together and cuts them where its buffer ends.
///
/// Numbers the events (`seq`) and names the writer where the event does not. A process that goes on with the runs of an
/// earlier one may begin at 0 again, under the same name.
#[derive(Debug)]
pub struct EventWriter<W> {
    out: W,
    writer: Option<String>,
    next_seq: u64,
    line: Vec<u8>,
}

impl<W: Write> EventWriter<W> {
    /// Returns a writer that numbers its events from 0.
    pub fn new(out: W) -> Self {
        Self { out, writer: None, next_seq: 0, line: Vec::new() }
    }

    /// Sets the name of this writer, put into every event that names none.
    #[must_use]
    pub fn writer(mut self, name: impl Into<String>) -> Self {
        self.writer = Some(name.into());
        self
    }

    /// Sets the number of the next event, for a writer that goes on after a restart.
    #[must_use]
    pub fn next_seq(mut self, seq: u64) -> Self {
        self.next_seq = seq;
        self
    }

    /// Writes one event and returns its `seq`.
    pub fn write(&mut self, event: &Event) -> Result<u64, WriteError> {
        let seq = event.seq.unwrap_or(self.next_seq);
        let mut object = to_object(event)?;
        object.insert("seq".into(), seq.into());
        if event.writer.is_none()
            && let Some(name) = &self.writer
        {
            object.insert("writer".into(), name.clone().into());
        }
        self.line.clear();
        serde_json::to_writer(&mut self.line, &Value::Object(object))?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)?;
        self.next_seq = seq.saturating_add(1);
        Ok(seq)
    }

    /// Flushes the destination.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the destination.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Returns the JSON object of an event, as it stands on the wire.
pub(crate) fn to_object(event: &Event) -> Result<Map<String, Value>, WriteError> {
    let kind = || event.body.kind().to_owned();
    let ts = event.ts.ok_or_else(|| WriteError::NoTime { kind: kind() })?;
    if event.run_id.is_empty() {
        return Err(WriteError::NoRun { kind: kind() });
    }
    let mut object = Map::new();
    object.insert("v".into(), VERSION.into());
    object.insert("type".into(), event.body.kind().into());
    object.insert("ts".into(), ts.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true).into());
    if ts.timestamp_subsec_nanos() == 0 {
        object.insert("ts".into(), ts.to_rfc3339_opts(chrono::SecondsFormat::Millis, true).into());
    }
    object.insert("run_id".into(), event.run_id.clone().into());
    event.put_envelope(&mut object);
    if let Value::Object(fields) = event.body.to_fields()? {
        for (name, mut value) in fields {
            if name == "message"
                && let Value::String(text) = &mut value
            {
                truncate(text, MESSAGE_LIMIT);
            }
            object.insert(name, value);
        }
    }
    for (name, value) in &event.extra {
        object.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Ok(object)
}

/// Cuts a text to at most `limit` bytes at a character boundary.
fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        let mut end = limit;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}
