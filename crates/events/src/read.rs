//! Liberal reading: the usual spellings of other programs become schema-v1 events.
//!
//! What is missing is a gap, what is unknown is kept, and the unit of an unknown wait field is never guessed. Not for:
//! native logs of agents (those have adapters) or for judging whether an event is complete (`schema check` does).

use std::cell::Cell;

use chrono::{DateTime, TimeZone, Utc};
use serde_json::{Map, Value};

use crate::body::Body;
use crate::envelope::{Event, VERSION};
use crate::fit::{self, FromValue};
use crate::flat::Lines;
use crate::ledger;
use crate::values::Candidate;

/// Why a line is not an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON.
    #[error("not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but not an object.
    #[error("expected a JSON object")]
    NotAnObject,
    /// No field says what kind of event it is.
    #[error("no event type (looked for type, event_type, event, kind, name)")]
    NoType,
    /// No field says which run it belongs to.
    #[error("event `{kind}` has no run_id")]
    NoRun {
        /// The event's type.
        kind: String,
    },
    /// Written for a later major version.
    #[error("schema version {found} is newer than {supported}, the newest this program reads")]
    NewerMajor {
        /// Version in the line.
        found: u64,
        /// Newest version this crate reads.
        supported: u64,
    },
}

/// Reads one line. A nested ledger entry (`attempts: [...]`) gives one event for each of its attempts, and of a model request
/// one for its end.
pub fn parse_line(line: &[u8]) -> Result<Vec<Event>, ReadError> {
    match Lines::default().read(line) {
        Some(event) => Ok(vec![event.clone()]),
        None => parse_any(line),
    }
}

thread_local! {
    /// One for all logs: a log that is quiet takes no memory, and logs of one writer are alike.
    static LINES: Cell<Lines> = Cell::default();
}

/// Reads one line and hands over its events, as [`parse_line`] returns them. Of a usual one, what is the same in the line
/// that this thread read before is not read again.
pub fn each_event(line: &[u8], mut take: impl FnMut(&Event)) -> Result<(), ReadError> {
    let mut lines = LINES.take();
    let result = match lines.read(line) {
        Some(event) => {
            take(event);
            Ok(())
        }
        None => parse_any(line).map(|events| events.iter().for_each(take)),
    };
    LINES.set(lines);
    result
}

/// Reads a line of any form.
pub(crate) fn parse_any(line: &[u8]) -> Result<Vec<Event>, ReadError> {
    match serde_json::from_slice::<Value>(line)? {
        Value::Object(object) => parse_object(object),
        _ => Err(ReadError::NotAnObject),
    }
}

/// Reads one decoded object; see [`parse_line`].
pub fn parse_object(mut object: Map<String, Value>) -> Result<Vec<Event>, ReadError> {
    if let Some(found) = object.get("v").and_then(major)
        && found > VERSION
    {
        return Err(ReadError::NewerMajor { found, supported: VERSION });
    }
    let kind = take_type(&mut object).ok_or(ReadError::NoType)?;
    for payload in ["data", "payload"] {
        if let Some(Value::Object(_)) = object.get(payload)
            && let Some(Value::Object(inner)) = object.remove(payload)
        {
            for (name, value) in inner {
                object.entry(name).or_insert(value);
            }
        }
    }
    let mut fields = Map::new();
    for (name, value) in object {
        let (name, value) = canonical(&name, value);
        if !value.is_null() {
            fields.entry(name).or_insert(value);
        }
    }
    match ledger::take(&kind, &mut fields) {
        Some(list) => ledger::events(&kind, fields, list),
        None => Ok(vec![build(&kind, fields)?]),
    }
}

/// Reads a time: RFC 3339, or epoch seconds / milliseconds / microseconds / nanoseconds told apart by magnitude.
pub fn parse_time(value: &Value) -> Option<DateTime<Utc>> {
    match value {
        Value::String(text) => parse_time_text(text),
        Value::Number(number) => epoch(number.as_f64()?),
        _ => None,
    }
}

/// Reads a time written as text: RFC 3339 or an epoch number, as in [`parse_time`].
pub fn parse_time_text(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text.trim())
        .map(|time| time.with_timezone(&Utc))
        .ok()
        .or_else(|| text.parse::<f64>().ok().and_then(epoch))
}

fn epoch(number: f64) -> Option<DateTime<Utc>> {
    // Ranges around 1990-2100 do not overlap between the units.
    let nanos = match number {
        n if (6e8..5e9).contains(&n) => n * 1e9,
        n if (6e11..5e12).contains(&n) => n * 1e6,
        n if (6e14..5e15).contains(&n) => n * 1e3,
        n if (6e17..5e18).contains(&n) => n,
        _ => return None,
    };
    // Whole microseconds: a float cannot hold more at this size.
    #[expect(clippy::cast_possible_truncation, reason = "range checked above")]
    let micros = (nanos / 1e3).round() as i64;
    Utc.timestamp_micros(micros).single()
}

fn major(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.split('.').next().and_then(|major| major.parse().ok()),
        _ => None,
    }
}

/// Takes the type out of the object.
fn take_type(object: &mut Map<String, Value>) -> Option<String> {
    let (key, kind) = type_of(object)?;
    object.remove(key);
    Some(kind)
}

/// Returns the type, and the key at which it stands. `kind` and `name` count only when they look like one (`model.retry`).
pub(crate) fn type_of(object: &Map<String, Value>) -> Option<(&'static str, String)> {
    for key in ["event_type", "eventType", "type", "event", "kind", "name"] {
        let Some(Value::String(text)) = object.get(key) else { continue };
        let spaced = text.replacen('_', ".", 1);
        let known = Body::TYPES.contains(&spaced.as_str());
        if matches!(key, "event_type" | "eventType" | "type") || text.contains('.') || known {
            return Some((key, if known { spaced } else { text.clone() }));
        }
    }
    None
}

/// Returns the schema's name and value for a field of another spelling.
pub(crate) fn canonical(name: &str, value: Value) -> (String, Value) {
    let snake = snake_case(name);
    let seconds =
        |value: &Value| value.as_f64().filter(|s| s.is_finite() && *s >= 0.0).map(|s| (s * 1e3).round());
    let rename = match snake.as_str() {
        "timestamp" | "time" | "created_at" => "ts",
        "sequence" => "seq",
        "session_id" => "run_id",
        "error_message" | "error" | "msg" => "message",
        "status_code" | "http_status" | "error_status" => "status",
        "error_code" => "code",
        "request" => "request_id",
        "wait_ms" | "backoff_ms" | "retry_delay_ms" | "sleep_ms" => "delay_ms",
        "retry" => "attempt",
        "from_candidate" => "from",
        "to_candidate" => "to",
        "failure_codes" => "failures",
        "max_retries" => {
            // The field counts retries, ours counts attempts.
            return match value.as_u64() {
                Some(n) => ("max_attempts".into(), (n + 1).into()),
                None => (snake, value),
            };
        }
        "delay_seconds" | "wait_seconds" | "wait_sec" | "backoff_sec" | "backoff_seconds" => {
            return match seconds(&value) {
                Some(ms) => ("delay_ms".into(), ms.into()),
                None => (snake, value),
            };
        }
        "retry_after_seconds" | "retry_after_sec" | "retry_after_s" => {
            return match seconds(&value) {
                Some(ms) => ("retry_after_ms".into(), ms.into()),
                None => (snake, value),
            };
        }
        _ => return (snake, value),
    };
    (rename.to_owned(), value)
}

fn snake_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for (index, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() {
            if index > 0 && !out.ends_with('_') {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(if c == '-' { '_' } else { c });
        }
    }
    out
}

/// Returns what an error code of other programs means, as (class, reason) of the taxonomy; `None` for codes that are no such
/// name, for example those of providers.
pub fn class_of_code(code: &str) -> Option<(&'static str, &'static str)> {
    Some(match code.to_ascii_uppercase().as_str() {
        "RATE_LIMIT" | "RATE_LIMITED" => ("throttled", "rate_limit"),
        "TRANSIENT_NETWORK" | "NETWORK" | "NETWORK_ERROR" => ("transient", "connect"),
        "SERVER_ERROR" => ("transient", "server_error"),
        "TIMEOUT" => ("transient", "timeout"),
        "CANCELLED" | "ABORTED" => ("cancelled", "user_abort"),
        _ => return None,
    })
}

pub(crate) fn build(kind: &str, mut fields: Map<String, Value>) -> Result<Event, ReadError> {
    let run_id = fields.remove("run_id").and_then(|id| String::from_value(&id)).filter(|id| !id.is_empty());
    let Some(run_id) = run_id else { return Err(ReadError::NoRun { kind: kind.to_owned() }) };
    let mut event = Event::new(run_id, DateTime::<Utc>::UNIX_EPOCH, Body::Other { kind: kind.to_owned() });
    let ts = fields.remove("ts");
    event.ts = ts.as_ref().and_then(parse_time);
    if let (None, Some(odd)) = (event.ts, ts) {
        event.extra.insert("ts".to_owned(), odd);
    }
    fields.remove("v");
    event.take_envelope(&mut fields);
    if let Some(known) = Body::fields_of(kind) {
        adapt(kind, &mut fields, &mut event.extra);
        let mut own = Map::new();
        for field in known {
            if let Some(value) = fields.remove(field.name) {
                own.insert(field.name.to_owned(), coerce(field.name, value));
            }
        }
        event.body = fit::body(kind, own, &mut event.extra)?;
    }
    event.extra.extend(fields);
    Ok(event)
}

/// Returns how the names of a candidate's parts begin where they stand flat in an event of this type, and the field that
/// they belong to.
pub(crate) fn flat_parts(kind: &str) -> &'static [(&'static str, &'static str)] {
    match kind {
        "model.fallback" => &[("from_", "from"), ("to_", "to")],
        kind if kind.starts_with("model.") => &[("", "candidate")],
        _ => &[],
    }
}

/// Brings flat and foreign fields of one type into the shape of its body; what stands in their way is put into `odd`.
fn adapt(kind: &str, fields: &mut Map<String, Value>, odd: &mut Map<String, Value>) {
    let mut nest = |fields: &mut Map<String, Value>, prefix: &str, target: &str| {
        let mut inner = Map::new();
        for part in Candidate::FIELDS.iter().map(|part| part.name) {
            let name = format!("{prefix}{part}");
            match fields.remove(&name) {
                Some(value @ Value::String(_)) => {
                    inner.insert(part.to_owned(), value);
                }
                None | Some(Value::Null) => {}
                Some(value) => {
                    odd.insert(name, value);
                }
            }
        }
        match fields.get_mut(target) {
            Some(Value::Object(present)) => {
                let mut replaced = Map::new();
                for (name, value) in inner {
                    // A part that is null is not said.
                    if !present.get(&name).is_some_and(Value::is_string)
                        && let Some(before) = present.insert(name.clone(), value)
                        && !before.is_null()
                    {
                        replaced.insert(name, before);
                    }
                }
                if !replaced.is_empty() {
                    odd.insert(target.to_owned(), Value::Object(replaced));
                }
            }
            _ if !inner.is_empty() => {
                if let Some(before) = fields.insert(target.to_owned(), Value::Object(inner)) {
                    odd.insert(target.to_owned(), before);
                }
            }
            _ => {}
        }
    };
    for (prefix, target) in flat_parts(kind) {
        nest(fields, prefix, target);
    }
    if kind == "model.fallback" {
        if let Some(Value::Number(_)) = fields.get("failures") {
            let count = fields.remove("failures").unwrap_or(Value::Null);
            fields.entry("attempts").or_insert(count);
        }
    } else if kind == "run.finished"
        && let Some(text) = fields.remove("message")
    {
        // What other records call the message of their error.
        fields.entry("error").or_insert(text_of(text));
    } else if kind == "tool.attempt"
        && let Some(code) = fields.remove("code")
    {
        fields.insert("error_code".into(), code);
    }
    if let Some(message) = fields.get_mut("message") {
        *message = text_of(message.take());
    }
    if let Some(Value::String(code)) = fields.get("code")
        && let Some((class, reason)) = class_of_code(code)
    {
        fields.entry("class").or_insert_with(|| class.into());
        fields.entry("reason").or_insert_with(|| reason.into());
    }
}

/// An error object where a text is expected: its own message is the text.
fn text_of(message: Value) -> Value {
    match message {
        Value::Object(mut error) => match error.remove("message") {
            Some(text) => text,
            None => Value::Object(error).to_string().into(),
        },
        text => text,
    }
}

/// Accepts numbers written as text, floats where whole milliseconds are expected, and booleans for `sent`.
fn coerce(name: &str, value: Value) -> Value {
    let whole = name.ends_with("_ms") || matches!(name, "attempt" | "attempts" | "max_attempts" | "status");
    match (&value, whole) {
        (Value::String(text), true) => text.parse::<u64>().map_or_else(|_| value.clone(), Into::into),
        (Value::Number(number), true) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
            Some(float) if (0.0..9e15).contains(&float) && !number.is_u64() => (float.round() as u64).into(),
            _ => value,
        },
        (Value::Bool(sent), _) if name == "sent" => sent.to_string().into(),
        (Value::Number(_), _) if name == "code" || name.ends_with("_id") => value.to_string().into(),
        (Value::String(_) | Value::Number(_), _) if name.ends_with("_at") => {
            parse_time(&value).map_or(value, |time| time.to_rfc3339().into())
        }
        _ => value,
    }
}
