//! The short way to read the usual lines: a flat object of model traffic, as a writer of this schema writes it.
//!
//! Nothing is built but the event itself. Whatever is unusual (another spelling, an unknown field, a value of another type,
//! a name said twice) is left to the long way in [`crate::read`], which decides what it means. Invariant, held by a test:
//! what is read here is what the long way reads.

use std::borrow::Cow;

use chrono::{DateTime, NaiveDate, Utc};
use retryscope_json::{Cursor, Quoted, whole};
use serde_json::{Map, Value};

use crate::body::{
    Body, BudgetState, ModelAttempt, ModelFailed, ModelFallback, ModelRequest, ModelResponse, ModelRetry,
};
use crate::envelope::{Event, VERSION};
use crate::read::{class_of_code, parse_time};
use crate::values::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Sent,
    Source, ToolStatus, Usage,
};

/// Reads a line of model traffic; `None` for one that needs the long way.
pub(crate) fn read(line: &[u8]) -> Option<Box<Event>> {
    let text = std::str::from_utf8(line).ok()?;
    match likely_type(text)? {
        "model.request" => event(text, ModelRequest::default(), |body| Some(&mut body.candidate)),
        "model.attempt" => event(text, ModelAttempt::default(), |body| Some(&mut body.candidate)),
        "model.retry" => event(text, ModelRetry::default(), |body| Some(&mut body.candidate)),
        "model.fallback" => event(text, ModelFallback::default(), |_| None),
        "model.response" => event(text, ModelResponse::default(), |body| Some(&mut body.candidate)),
        "model.failed" => event(text, ModelFailed::default(), |body| Some(&mut body.candidate)),
        _ => None,
    }
}

/// Returns what stands behind the first `"type"`, wherever that is: whether it is the object's own is seen when its members
/// are read.
fn likely_type(text: &str) -> Option<&str> {
    const NAME: &[u8] = b"\"type\"";
    let behind = memchr::memmem::find(text.as_bytes(), NAME)? + NAME.len();
    let value = text.get(behind..)?.trim_ascii_start().strip_prefix(':')?.trim_ascii_start();
    let value = value.strip_prefix('"')?;
    value.get(..value.bytes().position(|byte| byte == b'"')?)
}

/// Builds the event. `candidate` tells where parts of a candidate go that stand flat beside the other fields.
fn event<B: Fields + Into<Body>>(
    text: &str,
    mut body: B,
    candidate: fn(&mut B) -> Option<&mut Option<Candidate>>,
) -> Option<Box<Event>> {
    let mut event = Box::new(Event {
        ts: None,
        run_id: String::new(),
        event_id: None,
        seq: None,
        writer: None,
        turn: None,
        step: None,
        agent: None,
        agent_version: None,
        agent_id: None,
        parent_run_id: None,
        parent_call_id: None,
        root_run_id: None,
        conversation_id: None,
        host: None,
        trace_id: None,
        span_id: None,
        parent_span_id: None,
        body: Body::Other { kind: String::new() },
        extra: Map::new(),
    });
    let (mut typed, mut version) = (None, None);
    members(text, |name, value| {
        match name {
            "type" => put(&mut typed, value.text().filter(|kind| *kind == B::TYPE)?),
            "v" => put(&mut version, value.whole().filter(|v| *v <= VERSION)?),
            "ts" => put(&mut event.ts, value.time()?),
            "run_id" if event.run_id.is_empty() => {
                event.run_id = value.string()?;
                Some(())
            }
            "event_id" => put(&mut event.event_id, value.string()?),
            "seq" => put(&mut event.seq, value.whole()?),
            "writer" => put(&mut event.writer, value.string()?),
            "turn" => put(&mut event.turn, value.string()?),
            "step" => put(&mut event.step, value.whole()?),
            "agent" => put(&mut event.agent, value.string()?),
            "agent_version" => put(&mut event.agent_version, value.string()?),
            "agent_id" => put(&mut event.agent_id, value.string()?),
            "parent_run_id" => put(&mut event.parent_run_id, value.string()?),
            "parent_call_id" => put(&mut event.parent_call_id, value.string()?),
            "root_run_id" => put(&mut event.root_run_id, value.string()?),
            "conversation_id" => put(&mut event.conversation_id, value.string()?),
            "host" => put(&mut event.host, value.string()?),
            "trace_id" => put(&mut event.trace_id, value.string()?),
            "span_id" => put(&mut event.span_id, value.string()?),
            "parent_span_id" => put(&mut event.parent_span_id, value.string()?),
            // An error code of another program decides class and reason where they are not said.
            "code" if value.string().is_some_and(|code| class_of_code(&code).is_some()) => None,
            "provider" | "model" | "endpoint" | "region" | "account" | "transport" | "alias" => {
                part(candidate(&mut body)?, name, value)
            }
            name => body.set(name, value),
        }
    })?;
    if event.run_id.is_empty() || typed.is_none() {
        return None;
    }
    event.body = body.into();
    Some(event)
}

/// Hands over the members of the object that the text is, but for those that are null; `None` for anything but a flat object
/// of plain values, or if `take` says so.
fn members<'a>(text: &'a str, mut take: impl FnMut(&'a str, Raw<'a>) -> Option<()>) -> Option<()> {
    let mut has_null = false;
    whole(text, |at| {
        at.members(|at, name| {
            let (name, value) = (name.plain()?, Raw::read(at)?);
            if matches!(value, Raw::Null) {
                has_null = true;
                return Some(());
            }
            take(name, value)
        })
    })?;
    (!has_null || says_each_name_once(text)?).then_some(())
}

/// Returns whether no name stands twice in an object. Of two members with one name a null one may be what counts.
fn says_each_name_once(text: &str) -> Option<bool> {
    let mut names = Vec::new();
    let mut is_unique = true;
    whole(text, |at| {
        at.members(|at, name| {
            is_unique &= !names.contains(&name);
            names.push(name);
            at.value()
        })
    })?;
    Some(is_unique)
}

/// Sets a field; `None` if it is set already.
pub(crate) fn put<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// The fields of one type; written with the bodies themselves.
pub(crate) trait Fields {
    /// The `type` on the wire.
    const TYPE: &'static str;

    /// Sets one; `None` for what only the long way understands.
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()>;
}

/// Sets a part of the candidate that stands flat in the event.
fn part(candidate: &mut Option<Candidate>, name: &str, value: Raw<'_>) -> Option<()> {
    let candidate = candidate.get_or_insert_default();
    let field = match name {
        "provider" => &mut candidate.provider,
        "model" => &mut candidate.model,
        "endpoint" => &mut candidate.endpoint,
        "region" => &mut candidate.region,
        "account" => &mut candidate.account,
        "transport" => &mut candidate.transport,
        "alias" => &mut candidate.alias,
        _ => return None,
    };
    put(field, value.string()?)
}

/// Reads a candidate as it is usually written.
fn candidate(text: &str) -> Option<Candidate> {
    let mut candidate = Some(Candidate::default());
    members(text, |name, value| part(&mut candidate, name, value))?;
    candidate
}

/// Reads tokens as they are usually written.
fn usage(text: &str) -> Option<Usage> {
    let mut usage = Usage::default();
    members(text, |name, value| {
        let field = match name {
            "input_tokens" => &mut usage.input_tokens,
            "output_tokens" => &mut usage.output_tokens,
            "cached_input_tokens" => &mut usage.cached_input_tokens,
            "reasoning_tokens" => &mut usage.reasoning_tokens,
            _ => return None,
        };
        put(field, value.whole()?)
    })?;
    Some(usage)
}

/// What a field can be read from without the long way.
pub(crate) trait FromRaw: Sized {
    /// Returns the value; `None` for what only the long way understands.
    fn from_raw(raw: Raw<'_>) -> Option<Self>;
}

/// Declares how types are read.
macro_rules! from_raw {
    ($($raw:ident => $read:expr, for $($of:ty),+;)+) => {
        $($(impl FromRaw for $of {
            fn from_raw($raw: Raw<'_>) -> Option<Self> {
                $read
            }
        })+)+
    };
}

from_raw! {
    raw => raw.string(), for String;
    raw => raw.whole(), for u64;
    raw => u16::try_from(raw.whole()?).ok(), for u16;
    raw => if let Raw::Flag(flag) = raw { Some(flag) } else { None }, for bool;
    raw => raw.time(), for DateTime<Utc>;
    raw => Self::from_word(raw.text()?),
        for AttemptKind, AttemptOutcome, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Source, ToolStatus;
    raw => raw.sent(), for Sent;
    raw => raw.object(|text| candidate(text).or_else(|| serde_json::from_str(text).ok())), for Candidate;
    raw => raw.object(|text| usage(text).or_else(|| serde_json::from_str(text).ok())), for Usage;
    raw => raw.object(|text| serde_json::from_str(text).ok()), for BudgetState;
    _raw => None, for f64, Value, Vec<Candidate>, Vec<Option<Value>>, Vec<String>, Vec<Value>;
}

/// A value, not copied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw<'a> {
    Null,
    /// A text without escapes.
    Text(&'a str),
    /// A text with escapes.
    Escaped(Quoted<'a>),
    /// A whole number without sign; others are rare.
    Whole(u64),
    Flag(bool),
    /// An object, unparsed.
    Object(&'a str),
}

impl<'a> Raw<'a> {
    /// Reads the value that stands here.
    fn read(at: &mut Cursor<'a>) -> Option<Self> {
        if at.peek()? == b'"' {
            let quoted = at.string()?;
            return Some(quoted.plain().map_or(Raw::Escaped(quoted), Raw::Text));
        }
        let text = at.slice(Cursor::value)?;
        match text.as_bytes() {
            b"null" => Some(Raw::Null),
            b"true" => Some(Raw::Flag(true)),
            b"false" => Some(Raw::Flag(false)),
            [b'{', ..] => Some(Raw::Object(text)),
            _ => text.parse().ok().map(Raw::Whole),
        }
    }

    fn text(self) -> Option<&'a str> {
        if let Raw::Text(text) = self { Some(text) } else { None }
    }

    fn string(self) -> Option<String> {
        match self {
            Raw::Text(text) => Some(text.to_owned()),
            Raw::Escaped(quoted) => {
                serde_json::from_str::<Cow<'_, str>>(quoted.as_json()).ok().map(Cow::into_owned)
            }
            _ => None,
        }
    }

    fn whole(self) -> Option<u64> {
        if let Raw::Whole(number) = self { Some(number) } else { None }
    }

    fn object<T>(self, read: impl FnOnce(&'a str) -> Option<T>) -> Option<T> {
        if let Raw::Object(text) = self { read(text) } else { None }
    }

    fn sent(self) -> Option<Sent> {
        match self {
            Raw::Flag(true) => Some(Sent::Yes),
            Raw::Flag(false) => Some(Sent::No),
            Raw::Text(word) => Sent::from_word(word),
            _ => None,
        }
    }

    fn time(self) -> Option<DateTime<Utc>> {
        match self {
            Raw::Text(text) => plain_time(text).or_else(|| parse_time(&Value::from(text))),
            Raw::Whole(number) => parse_time(&Value::from(number)),
            _ => None,
        }
    }
}

/// Reads `2026-07-01T10:00:00Z` with up to nine decimals; `None` for any other form.
fn plain_time(text: &str) -> Option<DateTime<Utc>> {
    let bytes = text.as_bytes();
    let (date_time, fraction) = bytes.split_at_checked(19)?;
    let digits = |from: usize, to: usize| -> Option<u32> {
        date_time[from..to]
            .iter()
            .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
    };
    let separators = [date_time[4], date_time[7], date_time[10], date_time[13], date_time[16]];
    if &separators != b"--T::" {
        return None;
    }
    let fraction = fraction.strip_suffix(b"Z")?;
    let nanos = match fraction.split_first() {
        None => 0,
        Some((b'.', decimals)) if (1..=9).contains(&decimals.len()) => {
            let mut nanos = 0;
            for index in 0..9 {
                let digit = *decimals.get(index).unwrap_or(&b'0');
                if !digit.is_ascii_digit() {
                    return None;
                }
                nanos = nanos * 10 + u32::from(digit - b'0');
            }
            nanos
        }
        Some(_) => return None,
    };
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    // A leap second is for the long way.
    let date = NaiveDate::from_ymd_opt(i32::try_from(digits(0, 4)?).ok()?, digits(5, 7)?, digits(8, 10)?)?;
    Some(date.and_hms_nano_opt(hour, minute, second, nanos)?.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::parse_any;

    /// Both ways read the same; returns whether the short way did.
    fn agrees(line: &str) -> bool {
        let Some(event) = read(line.as_bytes()) else { return false };
        assert_eq!(parse_any(line.as_bytes()).unwrap(), [*event], "{line}");
        true
    }

    #[test]
    fn usual_lines_are_read() {
        for line in [
            r#"{"v":1,"type":"model.request","ts":"2026-11-01T10:00:00.125Z","run_id":"r","agent":"a","request_id":"q","provider":"p","model":"m","stream":true}"#,
            r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:00Z","run_id":"r","request_id":"q","candidate":{"provider":"p","model":"m"},"attempt":1,"status":503,"delay_ms":100,"class":"transient","layer":"agent"}"#,
            r#"{"type":"model.response","ts":1767261600123,"run_id":"r","usage":{"input_tokens":3,"cost_usd":0.1},"attempts":2,"stop_reason":null}"#,
            r#"{"type":"model.failed","ts":"2026-11-01T10:00:00.1234567+02:00","run_id":"r","message":"a \"quoted\" \u00e9 text","reset_at":"2026-11-01T12:00:00Z","decision":"fail_fast"}"#,
            r#"{"type":"model.attempt","ts":"2026-11-01T10:00:00Z","run_id":"r","kind":"hedge","sent":false,"idle_ms":9,"outcome":"failed","code":"overloaded_error"}"#,
            r#"{"type":"model.fallback","ts":"2026-11-01T10:00:00Z","run_id":"r","from":{"model":"a"},"to":{"model":"b"},"kind":"model"}"#,
            r#"{"message":"the \"type\": is","run_id":"r","type":"model.retry"}"#,
        ] {
            assert!(agrees(line), "{line}");
        }
    }

    #[test]
    fn unusual_lines_take_the_long_way() {
        for line in [
            r#"{"type":"model.retry","run_id":"r","delay_seconds":5}"#,
            r#"{"type":"model.retry","run_id":"r","status":"503"}"#,
            r#"{"type":"model.retry","run_id":"r","attempt":1.0}"#,
            r#"{"type":"model.retry","run_id":"r","code":"RATE_LIMIT"}"#,
            r#"{"type":"model.retry","run_id":"r","attempt":1,"attempt":2}"#,
            r#"{"type":"model.retry","run_id":"r","attempt":null,"attempt":2}"#,
            r#"{"type":"model.retry","run_id":"r","attempt":2,"attempt":null}"#,
            r#"{"data":{"type":"model.retry"},"type":"model.retry","run_id":"r"}"#,
            r#"{"decision":"type","type":"model.retry","run_id":"r"}"#,
            r#"{"type":"model.retry","run_id":"r","type":"model.request"}"#,
            r#"{"type":"model.retry","run_id":"r","data":{"attempt":2}}"#,
            r#"{"type":"run.finished","run_id":"r","outcome":"failed"}"#,
            r#"{"v":2,"type":"model.retry","run_id":"r"}"#,
            r#"{"type":"model.retry","run_id":""}"#,
        ] {
            assert!(!agrees(line), "{line}");
        }
    }

    /// Every name and every value in every type, in an order and number that a small generator of its own decides.
    #[test]
    fn both_ways_agree_on_any_members() {
        let types = [
            "model.request",
            "model.attempt",
            "model.retry",
            "model.fallback",
            "model.response",
            "model.failed",
        ];
        let envelope = crate::envelope::ENVELOPE.iter().map(|field| field.name);
        let bodies = types.iter().flat_map(|kind| Body::fields_of(kind).unwrap()).map(|field| field.name);
        let flat = [
            "provider",
            "model",
            "endpoint",
            "alias",
            "v",
            "unknown",
            "data",
            "error",
            "from_model",
            "runId",
        ];
        let names: Vec<&str> = envelope.chain(bodies).chain(flat).collect();
        let values = [
            "1",
            "0",
            "503",
            "-1",
            "1.5",
            "99999999999999999999",
            "true",
            "false",
            "null",
            "\"x\"",
            "\"\"",
            "\"7\"",
            "\"a\\nb\"",
            "\"retry\"",
            "\"agent\"",
            "\"server\"",
            "\"failed\"",
            "\"model\"",
            "\"unknown\"",
            "\"foreground\"",
            "\"2026-11-01T10:00:00.5Z\"",
            "\"2026-11-01T10:00:60Z\"",
            "\"2026-13-01T10:00:00Z\"",
            "\"RATE_LIMIT\"",
            "{}",
            "{\"provider\":\"p\",\"model\":null}",
            "{\"provider\":\"p\\n\",\"model\":\"m\",\"alias\":\"\"}",
            "{\"provider\":\"p\",\"provider\":\"q\"}",
            "{\"provider\":1,\"other\":[]}",
            "{\"input_tokens\":3,\"cost_usd\":0.5,\"other\":{}}",
            "{\"input_tokens\":3}",
            "{\"input_tokens\":1.5}",
            "[1]",
        ];
        let mut state = 7_u64;
        let mut pick = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % n
        };
        let mut short = 0;
        for _ in 0..30_000 {
            let mut members =
                vec![format!("\"type\":\"{}\"", types[pick(types.len())]), "\"run_id\":\"r\"".to_owned()];
            for _ in 0..pick(4) {
                members.push(format!("\"{}\" : {}", names[pick(names.len())], values[pick(values.len())]));
            }
            let place = pick(members.len());
            members.swap(0, place);
            short += u32::from(agrees(&format!("{{{}}}", members.join(","))));
        }
        assert!(short > 5_000, "{short}");
    }
}
