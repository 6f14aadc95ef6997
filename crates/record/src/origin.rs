//! Where a statement stands.

use serde::{Deserialize, Serialize};

/// Number of a source (file, database, stream) within one reading. Not stable between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceId(pub u32);

/// Place within a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// The source as a whole: its name, or a small file that is one document.
    Whole,
    /// Line number, from 1.
    Line(u64),
    /// Row id of a database table.
    Row(i64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Line(line) => write!(f, ":{line}"),
            Place::Row(row) => write!(f, " row {row}"),
        }
    }
}

/// Source and place: the evidence of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The source.
    pub source: SourceId,
    /// The place in it.
    pub place: Place,
}

/// What kind of log a source is, for example `transcript` or `otlp-logs`. One agent leaves several views of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct View(pub &'static str);

/// Declares the kinds of logs once.
macro_rules! views {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        impl View {
            $($(#[doc = $doc])+ pub const $name: View = View($text);)+

            /// Every kind of log.
            pub const ALL: &'static [View] = &[$(View::$name),+];

            /// Returns the kind with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|view| view.0 == name)
            }
        }
    };
}

views! {
    /// Our own schema, and what other programs write in its spirit.
    EVENTS = "events";
    /// Session file of an agent, written while it runs.
    SESSION = "session";
    /// Machine-readable standard output, kept by a person.
    STDOUT = "stdout";
    /// Standard error or a text log of the program.
    LOG = "log";
    /// Debug log, only on request.
    DEBUG_LOG = "debug-log";
    /// OTLP log records.
    OTLP_LOGS = "otlp-logs";
    /// OTLP spans.
    OTLP_TRACES = "otlp-traces";
    /// Sessions and messages in a database.
    DATABASE = "database";
    /// Small files, one object each, that together tell what a session file would.
    OBJECTS = "objects";
    /// Log lines in a database.
    LOGS_DB = "logs-db";
    /// Turns and their states in a database.
    HISTORY_DB = "history-db";
    /// Trace of model calls, only on request.
    TRACE = "trace";
    /// A small file with results or state beside the log.
    RESULT = "result";
    /// The agent's own configuration: retry settings only.
    SETTINGS = "settings";
}
