//! What is pushed: appended to a source file under the state folder and synced before it is acknowledged.
//!
//! From there it is read like any other log, by the daemon and by the CLI. Not for: meaning (the adapters know that).

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Mutex;

use chrono::Utc;
use retryscope_events::read;
use serde_json::Value;

use crate::state::Shared;

/// What kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// OTLP log records.
    Logs,
    /// OTLP spans.
    Traces,
    /// Schema-v1 events, one a line.
    Events,
}

/// Why data was not taken.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) message: String,
}

/// Appends of several requests do not mix.
static APPEND: Mutex<()> = Mutex::new(());

/// Takes a body.
pub(crate) fn take(
    shared: &Shared,
    kind: Kind,
    content_type: Option<&str>,
    encoding: Option<&str>,
    body: &[u8],
) -> Result<(), Refused> {
    let result = lines_of(kind, content_type, encoding, body).and_then(|lines| append(shared, kind, &lines));
    let label = match kind {
        Kind::Logs => "logs",
        Kind::Traces => "traces",
        Kind::Events => "events",
    };
    let how = if result.is_ok() { "taken" } else { "refused" };
    *shared.lock().counts.pushed.entry((label.to_owned(), how.to_owned())).or_default() += 1;
    if result.is_ok() {
        shared.wake();
    }
    result
}

fn refused(status: u16, message: impl Into<String>) -> Refused {
    Refused { status, message: message.into() }
}

/// Checks a body and returns it as complete lines.
fn lines_of(
    kind: Kind,
    content_type: Option<&str>,
    encoding: Option<&str>,
    body: &[u8],
) -> Result<Vec<u8>, Refused> {
    match encoding {
        None | Some("identity") => {}
        Some(other) => return Err(refused(415, format!("content encoding `{other}` is not taken"))),
    }
    match kind {
        Kind::Events => {
            let mut out = Vec::with_capacity(body.len() + 1);
            for (index, line) in body
                .split(|b| *b == b'\n')
                .enumerate()
                .filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
            {
                if let Err(error) = read::parse_line(line) {
                    return Err(refused(400, format!("line {}: {error}", index + 1)));
                }
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            Ok(out)
        }
        Kind::Logs | Kind::Traces => {
            let json = content_type.is_some_and(|kind| kind.starts_with("application/json"));
            if !json {
                return Err(refused(
                    415,
                    "only OTLP/HTTP with JSON is taken (content type application/json)",
                ));
            }
            let value: Value = serde_json::from_slice(body)
                .map_err(|error| refused(400, format!("not valid JSON: {error}")))?;
            let wanted = if kind == Kind::Logs { "resourceLogs" } else { "resourceSpans" };
            if !value.is_object() || value.get(wanted).is_some_and(|v| !v.is_array()) {
                return Err(refused(400, format!("expected an object with `{wanted}`")));
            }
            let mut out = value.to_string().into_bytes();
            out.push(b'\n');
            Ok(out)
        }
    }
}

fn append(shared: &Shared, kind: Kind, lines: &[u8]) -> Result<(), Refused> {
    if lines.is_empty() {
        return Ok(());
    }
    let day = Utc::now().format("%Y-%m-%d");
    let name = match kind {
        Kind::Events => format!("events-{day}.jsonl"),
        Kind::Logs | Kind::Traces => format!("otlp-{day}.jsonl"),
    };
    let path = shared.config.received_dir().join(name);
    let _one = APPEND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let written = OpenOptions::new().create(true).append(true).open(&path).and_then(|mut file| {
        file.write_all(lines)?;
        file.sync_data()
    });
    written.map_err(|error| refused(503, format!("cannot keep the data: {error}")))
}
