//! What is pushed: appended to a source file under the state folder and synced before it is acknowledged.
//!
//! From there it is read like any other log, by the daemon and by the CLI. Not for: meaning (the adapters know that).

mod private;
mod protobuf;
mod room;
mod split;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::Utc;
use retryscope_events::read;
use serde_json::Value;

pub(crate) use self::room::Room;
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

/// Largest body, decoded.
pub(crate) const BODY_LIMIT: usize = 8 << 20;

/// Most requests that are taken at the same time.
const IN_FLIGHT: usize = 8;

/// Most bytes that are kept of one kind and day.
const DAY_LIMIT: u64 = 4 << 30;

static TAKING: AtomicUsize = AtomicUsize::new(0);

/// Largest body that is taken apart beside others, decoded.
const SMALL: usize = 1 << 20;

/// Most objects in a body: a small one takes some hundred times its bytes in memory. An export of 8 MiB holds fewer.
const MOST_OBJECTS: usize = 400_000;

/// Larger bodies are taken apart one by one.
static LARGE: Mutex<()> = Mutex::new(());

/// Appends of several requests do not mix.
static APPEND: Mutex<()> = Mutex::new(());

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Kind::Logs => "logs",
            Kind::Traces => "traces",
            Kind::Events => "events",
        }
    }
}

/// Takes a body, or counts why there is none.
pub(crate) fn take(
    shared: &Shared,
    kind: Kind,
    content_type: Option<&str>,
    encoding: Option<&str>,
    body: Result<Room, Refused>,
) -> Result<(), Refused> {
    let result = if TAKING.fetch_add(1, Ordering::SeqCst) < IN_FLIGHT {
        body.and_then(|body| lines_of(kind, content_type, encoding, body.bytes()))
            .and_then(|lines| append(shared, kind, &lines))
    } else {
        Err(refused(429, "too many requests at the same time"))
    };
    TAKING.fetch_sub(1, Ordering::SeqCst);
    let how = match &result {
        Ok(()) => "taken",
        Err(Refused { status: 429, .. }) => "limited",
        Err(Refused { status: 413, .. }) => "too_large",
        Err(_) => "refused",
    };
    *shared.lock().counts.pushed.entry((kind.label().to_owned(), how.to_owned())).or_default() += 1;
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
    let decoded;
    let body = match encoding.map(str::trim) {
        None | Some("" | "identity") => body,
        Some("gzip") => {
            decoded = unzipped(body)?;
            &decoded
        }
        Some(other) => return Err(refused(415, format!("content encoding `{other}` is not taken"))),
    };
    let _one = (body.len() > SMALL).then(|| LARGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
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
                out.extend_from_slice(&private::event(line));
                out.push(b'\n');
            }
            Ok(out)
        }
        Kind::Logs | Kind::Traces => {
            let content_type = content_type.and_then(|text| text.split(';').next()).map(str::trim);
            let mut value: Value = match content_type {
                Some("application/json") => {
                    if memchr::memchr_iter(b'{', body).count() > MOST_OBJECTS {
                        return Err(refused(413, format!("more than {MOST_OBJECTS} objects")));
                    }
                    serde_json::from_slice(body)
                        .map_err(|error| refused(400, format!("not valid JSON: {error}")))?
                }
                Some("application/x-protobuf") => {
                    let read = if kind == Kind::Logs { protobuf::logs } else { protobuf::traces };
                    read(body).map_err(|error| refused(400, error.to_string()))?
                }
                _ => {
                    return Err(refused(
                        415,
                        "OTLP/HTTP is taken as application/json or application/x-protobuf",
                    ));
                }
            };
            let levels = if kind == Kind::Logs { &split::LOGS } else { &split::TRACES };
            let wanted = levels.resources;
            if !value.is_object() || value.get(wanted).is_some_and(|v| !v.is_array()) {
                return Err(refused(400, format!("expected an object with `{wanted}`")));
            }
            private::export(&mut value);
            Ok(split::lines(&mut value, levels))
        }
    }
}

/// Decodes a body, up to the limit.
fn unzipped(body: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut decoded = Vec::new();
    let limit = BODY_LIMIT as u64 + 1;
    flate2::read::MultiGzDecoder::new(body)
        .take(limit)
        .read_to_end(&mut decoded)
        .map_err(|error| refused(400, format!("not valid gzip: {error}")))?;
    if decoded.len() > BODY_LIMIT {
        return Err(refused(413, format!("more than {BODY_LIMIT} bytes when decoded")));
    }
    Ok(decoded)
}

/// Ends a line that a crash left without an end.
fn end_line(file: &mut File, length: u64) -> io::Result<()> {
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

fn append(shared: &Shared, kind: Kind, lines: &[u8]) -> Result<(), Refused> {
    if lines.is_empty() {
        return Ok(());
    }
    let day = Utc::now().format("%Y-%m-%d");
    let name = match kind {
        Kind::Events => format!("events-{day}.jsonl"),
        Kind::Logs | Kind::Traces => format!("otlp-{}-{day}.jsonl", kind.label()),
    };
    let path = shared.config().received_dir().join(name);
    let _one = APPEND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let written = OpenOptions::new().create(true).read(true).append(true).open(&path).and_then(|mut file| {
        let length = file.metadata()?.len();
        if length + lines.len() as u64 > DAY_LIMIT {
            return Ok(false);
        }
        let result =
            end_line(&mut file, length).and_then(|()| file.write_all(lines)).and_then(|()| file.sync_data());
        if result.is_err() {
            // What was refused must not be read, nor what comes next be joined to it.
            file.set_len(length)?;
        }
        result.map(|()| true)
    });
    shared.wake(|woken| woken.note(path));
    match written {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused(429, "the limit of what is kept of a day is reached")),
        Err(error) => Err(refused(503, format!("cannot keep the data: {error}"))),
    }
}
