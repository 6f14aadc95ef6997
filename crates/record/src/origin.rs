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

impl View {
    /// Every kind of log.
    pub const ALL: &'static [View] = &[
        View::EVENTS,
        View::SESSION,
        View::STDOUT,
        View::LOG,
        View::DEBUG_LOG,
        View::OTLP_LOGS,
        View::OTLP_TRACES,
        View::DATABASE,
        View::LOGS_DB,
        View::HISTORY_DB,
        View::TRACE,
        View::RESULT,
        View::SETTINGS,
    ];

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|view| view.0 == name)
    }

    /// Our own schema, and what other programs write in its spirit.
    pub const EVENTS: View = View("events");
    /// Session file of an agent, written while it runs.
    pub const SESSION: View = View("session");
    /// Machine-readable standard output, kept by a person.
    pub const STDOUT: View = View("stdout");
    /// Standard error or a text log of the program.
    pub const LOG: View = View("log");
    /// Debug log, only on request.
    pub const DEBUG_LOG: View = View("debug-log");
    /// OTLP log records.
    pub const OTLP_LOGS: View = View("otlp-logs");
    /// OTLP spans.
    pub const OTLP_TRACES: View = View("otlp-traces");
    /// Sessions and messages in a database.
    pub const DATABASE: View = View("database");
    /// Small files, one object each, that together tell what a session file would.
    pub const OBJECTS: View = View("objects");
    /// Log lines in a database.
    pub const LOGS_DB: View = View("logs-db");
    /// Turns and their states in a database.
    pub const HISTORY_DB: View = View("history-db");
    /// Trace of model calls, only on request.
    pub const TRACE: View = View("trace");
    /// A small file with results or state beside the log.
    pub const RESULT: View = View("result");
    /// The agent's own configuration: retry settings only.
    pub const SETTINGS: View = View("settings");
}
