//! Records of agents to statements: one module an agent, recognized by place or content.
//!
//! An adapter says what its records say, in the vocabulary of `retryscope-record`, and what they cannot show. It never
//! counts, never classifies, never copies prompts, tool output or credentials, never fails and never panics: what it
//! cannot read is a gap.

mod claude_code;
mod codex;
mod json;
mod opencode;
mod otlp;
mod own;
mod pi;
mod rivumi;
mod say;
mod sqlite;
mod timeline;

use std::path::Path;

use retryscope_record::{Place, Sink, View};
use rusqlite::Connection;

pub use crate::json::{is_complete_json, records_run_together};
pub use crate::opencode::{is_message as is_read_body, listed_body};
pub use crate::sqlite::{Opened, open as open_database};

/// One agent's adapter.
#[derive(Debug)]
pub struct Adapter {
    /// Name of the agent.
    pub agent: &'static str,
    /// Where the agent keeps its logs.
    pub places: &'static [DefaultPlace],
    /// Recognizes a file by its path and its first bytes.
    recognize: fn(&Path, &[u8]) -> Option<Recognized>,
}

/// A folder in which an agent keeps its logs.
#[derive(Debug, Clone, Copy)]
pub struct DefaultPlace {
    /// Environment variable that moves it.
    pub env: Option<&'static str>,
    /// Folder below the value of the variable, or below [`DefaultPlace::home`] where it is not set.
    pub below: &'static str,
    /// Folder below the home directory.
    pub home: &'static str,
}

/// A file that an adapter can read.
pub struct Recognized {
    /// Name of the agent; `None` where only the records tell.
    pub agent: Option<&'static str>,
    /// What kind of log it is.
    pub view: View,
    /// How it is read.
    pub reading: Reading,
}

/// How a source is read.
pub enum Reading {
    /// Line by line.
    Lines(Box<dyn LineDecoder>),
    /// As one small document.
    Document(Box<dyn DocumentDecoder>),
    /// As an SQLite database, opened by the decoder itself.
    Database(Box<dyn DatabaseDecoder>),
}

/// Turns the lines of one source into statements; keeps what it needs to know of earlier lines.
pub trait LineDecoder: Send {
    /// Takes one line.
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink);

    /// Is told that the source has no more lines for now.
    fn end(&mut self, _sink: &mut dyn Sink) {}

    /// Returns the decoder of a further file that goes on with this log, and may share what is known; `None` if such a file
    /// begins anew.
    fn continued(&self) -> Option<Box<dyn LineDecoder>> {
        None
    }

    /// Returns what it must know to go on in the middle of the source; `None` if it can only begin at the start.
    fn save(&self) -> Option<serde_json::Value> {
        None
    }

    /// Goes on from what was saved. Returns false if it cannot.
    fn restore(&mut self, _saved: &serde_json::Value) -> bool {
        false
    }
}

/// Turns one document into statements.
pub trait DocumentDecoder: Send {
    /// Takes the whole document. It may have been taken before, in part or in another state: nothing of that is known here.
    fn document(&mut self, bytes: &[u8], sink: &mut dyn Sink);
}

/// Turns the rows of a database into statements; keeps a cursor, so that asking again gives what is new.
pub trait DatabaseDecoder: Send {
    /// Reads what has come since the last call, in short read transactions.
    fn rows(&mut self, database: &Connection, sink: &mut dyn Sink) -> rusqlite::Result<()>;
}

/// Bytes that [`recognize`] wants to see of a file.
pub const HEAD_LENGTH: usize = 16 << 10;

/// All adapters; those with the surest marks first.
pub const ADAPTERS: &[Adapter] = &[
    claude_code::ADAPTER,
    codex::ADAPTER,
    rivumi::ADAPTER,
    opencode::ADAPTER,
    pi::PI,
    pi::OMP,
    own::ADAPTER,
];

/// Recognizes a file by its path and its first [`HEAD_LENGTH`] bytes. Returns `None` for a file that no adapter reads.
pub fn recognize(path: &Path, head: &[u8]) -> Option<Recognized> {
    let head = without_padding(head);
    otlp::recognize(head).or_else(|| ADAPTERS.iter().find_map(|adapter| (adapter.recognize)(path, head)))
}

/// What may stand before the first record and is none: the zero bytes of a hole, and a byte order mark.
fn without_padding(head: &[u8]) -> &[u8] {
    let zeros = head.iter().take_while(|byte| **byte == 0).count();
    let head = head.get(zeros..).unwrap_or_default();
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head)
}

/// Returns whether a file is worth opening to look at its first bytes, by its name alone: also a log that was put aside with
/// a number or a date behind its name.
pub fn may_hold_records(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    let extension = path.extension().map(|e| e.to_string_lossy()).unwrap_or_default();
    let is_put_aside = |ending: &str| {
        let mut after = name.match_indices(ending).filter_map(|(at, _)| name.get(at + ending.len()..));
        after.any(|rest| rest.starts_with(['.', '-', '_', '~']))
    };
    matches!(
        &*extension,
        "jsonl" | "json" | "log" | "txt" | "db" | "sqlite" | "ndjson" | "toml" | "yml" | "yaml"
    ) || [".jsonl", ".ndjson", ".log"].into_iter().any(is_put_aside)
}
