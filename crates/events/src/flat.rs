//! The short way to read the usual lines: a flat object of model traffic, as a writer of this schema writes it.
//!
//! Nothing is built but the event itself. Whatever is unusual (another spelling, an unknown field, a value of another type,
//! a name said twice) is left to the long way in [`crate::read`], which decides what it means. Invariant, held by a test:
//! what is read here is what the long way reads.

use std::borrow::Cow;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::{Map, Value};

use crate::body::{Body, ModelAttempt, ModelFailed, ModelFallback, ModelRequest, ModelResponse, ModelRetry};
use crate::envelope::{Event, VERSION};
use crate::read::{class_of_code, parse_time};
use crate::values::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Sent,
    Source,
};

/// Members of one object; lines with more go the long way.
const MOST: usize = 40;

/// A value, not copied.
#[derive(Debug, Clone, Copy)]
enum Raw<'a> {
    /// A text without escapes.
    Text(&'a str),
    /// A text with escapes, with its quotes.
    Escaped(&'a str),
    Whole(u64),
    Flag(bool),
    /// An object, unparsed.
    Object(&'a str),
    /// Nothing; kept only to see a name that is said twice.
    Null,
}

/// Reads a line of model traffic; `None` for one that needs the long way.
pub(crate) fn read(line: &[u8]) -> Option<Event> {
    let mut members = [("", Raw::Flag(false)); MOST];
    let count = Scanner { text: std::str::from_utf8(line).ok()?, at: 0 }.members(&mut members)?;
    let members = &members[..count];
    let kind = members.iter().find(|(name, _)| *name == "type").and_then(|(_, value)| value.text())?;
    match kind {
        "model.request" => event(members, ModelRequest::default()),
        "model.attempt" => event(members, ModelAttempt::default()),
        "model.retry" => event(members, ModelRetry::default()),
        "model.fallback" => event(members, ModelFallback::default()),
        "model.response" => event(members, ModelResponse::default()),
        "model.failed" => event(members, ModelFailed::default()),
        _ => None,
    }
}

fn event<B: Fields + Into<Body>>(members: &[(&str, Raw<'_>)], mut body: B) -> Option<Event> {
    let mut event = Event {
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
    };
    let (mut typed, mut version) = (None, None);
    for (name, value) in members {
        let value = *value;
        match *name {
            "type" => put(&mut typed, value.text()?)?,
            "v" => put(&mut version, value.whole().filter(|v| *v <= VERSION)?)?,
            "ts" => put(&mut event.ts, value.time()?)?,
            "run_id" if event.run_id.is_empty() => event.run_id = value.string()?,
            "event_id" => put(&mut event.event_id, value.string()?)?,
            "seq" => put(&mut event.seq, value.whole()?)?,
            "writer" => put(&mut event.writer, value.string()?)?,
            "turn" => put(&mut event.turn, value.string()?)?,
            "step" => put(&mut event.step, value.whole()?)?,
            "agent" => put(&mut event.agent, value.string()?)?,
            "agent_version" => put(&mut event.agent_version, value.string()?)?,
            "agent_id" => put(&mut event.agent_id, value.string()?)?,
            "parent_run_id" => put(&mut event.parent_run_id, value.string()?)?,
            "parent_call_id" => put(&mut event.parent_call_id, value.string()?)?,
            "root_run_id" => put(&mut event.root_run_id, value.string()?)?,
            "conversation_id" => put(&mut event.conversation_id, value.string()?)?,
            "host" => put(&mut event.host, value.string()?)?,
            "trace_id" => put(&mut event.trace_id, value.string()?)?,
            "span_id" => put(&mut event.span_id, value.string()?)?,
            "parent_span_id" => put(&mut event.parent_span_id, value.string()?)?,
            name => body.set(name, value)?,
        }
    }
    if event.run_id.is_empty() {
        return None;
    }
    event.body = body.into();
    Some(event)
}

/// Sets a field; `None` if it is set already.
fn put<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// The fields of one type.
trait Fields {
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

/// An error code of another program decides class and reason where they are not said: left to the long way.
fn ordinary_code(value: Raw<'_>) -> Option<String> {
    value.string().filter(|code| class_of_code(code).is_none())
}

impl Fields for ModelRequest {
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        match name {
            "request_id" => put(&mut self.request_id, value.string()?),
            "source" => put(&mut self.source, Source::from_word(value.text()?)?),
            "purpose" => put(&mut self.purpose, value.string()?),
            "operation" => put(&mut self.operation, value.string()?),
            "stream" => put(&mut self.stream, value.flag()?),
            "candidate" => put(&mut self.candidate, value.object()?),
            _ => part(&mut self.candidate, name, value),
        }
    }
}

impl Fields for ModelAttempt {
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        match name {
            "request_id" => put(&mut self.request_id, value.string()?),
            "attempt_id" => put(&mut self.attempt_id, value.string()?),
            "parent_attempt_id" => put(&mut self.parent_attempt_id, value.string()?),
            "attempt" => put(&mut self.attempt, value.whole()?),
            "kind" => put(&mut self.kind, AttemptKind::from_word(value.text()?)?),
            "layer" => put(&mut self.layer, Layer::from_word(value.text()?)?),
            "started_at" => put(&mut self.started_at, value.time()?),
            "ended_at" => put(&mut self.ended_at, value.time()?),
            "sent" => put(&mut self.sent, value.sent()?),
            "outcome" => put(&mut self.outcome, AttemptOutcome::from_word(value.text()?)?),
            "class" => put(&mut self.class, value.string()?),
            "reason" => put(&mut self.reason, value.string()?),
            "retryable" => put(&mut self.retryable, value.flag()?),
            "status" => put(&mut self.status, value.status()?),
            "code" => put(&mut self.code, ordinary_code(value)?),
            "message" => put(&mut self.message, value.string()?),
            "error_source" => put(&mut self.error_source, ErrorSource::from_word(value.text()?)?),
            "upstream_request_id" => put(&mut self.upstream_request_id, value.string()?),
            "retry_after_ms" => put(&mut self.retry_after_ms, value.whole()?),
            "retry_after_source" => put(&mut self.retry_after_source, value.string()?),
            "first_token_ms" => put(&mut self.first_token_ms, value.whole()?),
            "output_started" => put(&mut self.output_started, value.flag()?),
            "terminal_event" => put(&mut self.terminal_event, value.string()?),
            "usage" => put(&mut self.usage, value.object()?),
            "candidate" => put(&mut self.candidate, value.object()?),
            _ => part(&mut self.candidate, name, value),
        }
    }
}

impl Fields for ModelRetry {
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        match name {
            "request_id" => put(&mut self.request_id, value.string()?),
            "attempt" => put(&mut self.attempt, value.whole()?),
            "max_attempts" => put(&mut self.max_attempts, value.whole()?),
            "class" => put(&mut self.class, value.string()?),
            "reason" => put(&mut self.reason, value.string()?),
            "status" => put(&mut self.status, value.status()?),
            "code" => put(&mut self.code, ordinary_code(value)?),
            "message" => put(&mut self.message, value.string()?),
            "upstream_request_id" => put(&mut self.upstream_request_id, value.string()?),
            "delay_ms" => put(&mut self.delay_ms, value.whole()?),
            "waited_ms" => put(&mut self.waited_ms, value.whole()?),
            "delay_source" => put(&mut self.delay_source, DelaySource::from_word(value.text()?)?),
            "retry_after_ms" => put(&mut self.retry_after_ms, value.whole()?),
            "layer" => put(&mut self.layer, Layer::from_word(value.text()?)?),
            "output_started" => put(&mut self.output_started, value.flag()?),
            "output_discarded" => put(&mut self.output_discarded, value.flag()?),
            "budget" => put(&mut self.budget, value.object()?),
            "candidate" => put(&mut self.candidate, value.object()?),
            _ => part(&mut self.candidate, name, value),
        }
    }
}

impl Fields for ModelFallback {
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        match name {
            "request_id" => put(&mut self.request_id, value.string()?),
            "kind" => put(&mut self.kind, FallbackKind::from_word(value.text()?)?),
            "from" => put(&mut self.from, value.object()?),
            "to" => put(&mut self.to, value.object()?),
            "attempts" => put(&mut self.attempts, value.whole()?),
            "reason" => put(&mut self.reason, value.string()?),
            _ => None,
        }
    }
}

impl Fields for ModelResponse {
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        match name {
            "request_id" => put(&mut self.request_id, value.string()?),
            "requested_model" => put(&mut self.requested_model, value.string()?),
            "attempts" => put(&mut self.attempts, value.whole()?),
            "stop_reason" => put(&mut self.stop_reason, value.string()?),
            "usage" => put(&mut self.usage, value.object()?),
            "elapsed_ms" => put(&mut self.elapsed_ms, value.whole()?),
            "first_token_ms" => put(&mut self.first_token_ms, value.whole()?),
            "candidate" => put(&mut self.candidate, value.object()?),
            _ => part(&mut self.candidate, name, value),
        }
    }
}

impl Fields for ModelFailed {
    fn set(&mut self, name: &str, value: Raw<'_>) -> Option<()> {
        match name {
            "request_id" => put(&mut self.request_id, value.string()?),
            "attempts" => put(&mut self.attempts, value.whole()?),
            "class" => put(&mut self.class, value.string()?),
            "reason" => put(&mut self.reason, value.string()?),
            "status" => put(&mut self.status, value.status()?),
            "code" => put(&mut self.code, ordinary_code(value)?),
            "message" => put(&mut self.message, value.string()?),
            "upstream_request_id" => put(&mut self.upstream_request_id, value.string()?),
            "retry_after_ms" => put(&mut self.retry_after_ms, value.whole()?),
            "reset_at" => put(&mut self.reset_at, value.time()?),
            "decision" => put(&mut self.decision, Decision::from_word(value.text()?)?),
            "candidate" => put(&mut self.candidate, value.object()?),
            _ => part(&mut self.candidate, name, value),
        }
    }
}

impl<'a> Raw<'a> {
    fn text(self) -> Option<&'a str> {
        if let Raw::Text(text) = self { Some(text) } else { None }
    }

    fn string(self) -> Option<String> {
        match self {
            Raw::Text(text) => Some(text.to_owned()),
            Raw::Escaped(quoted) => serde_json::from_str::<Cow<'_, str>>(quoted).ok().map(Cow::into_owned),
            _ => None,
        }
    }

    fn whole(self) -> Option<u64> {
        if let Raw::Whole(number) = self { Some(number) } else { None }
    }

    fn flag(self) -> Option<bool> {
        if let Raw::Flag(flag) = self { Some(flag) } else { None }
    }

    fn status(self) -> Option<u16> {
        u16::try_from(self.whole()?).ok()
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

    fn object<T: serde::de::DeserializeOwned>(self) -> Option<T> {
        if let Raw::Object(text) = self { serde_json::from_str(text).ok() } else { None }
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

/// Goes over one line.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Reads the members of the object that the text is; `None` for anything but a flat object of plain values.
    fn members(mut self, into: &mut [(&'a str, Raw<'a>); MOST]) -> Option<usize> {
        let (mut count, mut has_null) = (0, false);
        self.skip_space();
        self.expect(b'{')?;
        self.skip_space();
        loop {
            let Raw::Text(name) = self.string()? else { return None };
            self.skip_space();
            self.expect(b':')?;
            self.skip_space();
            if self.rest().starts_with(b"null") {
                self.at += 4;
                has_null = true;
                *into.get_mut(count)? = (name, Raw::Null);
            } else {
                *into.get_mut(count)? = (name, self.value()?);
            }
            count += 1;
            self.skip_space();
            match self.next()? {
                b',' => self.skip_space(),
                b'}' => break,
                _ => return None,
            }
        }
        self.skip_space();
        if self.at < self.text.len() {
            return None;
        }
        if has_null {
            let said = &into[..count];
            let is_repeated = |(index, (name, _)): (usize, &(&str, Raw<'_>))| {
                said[..index].iter().any(|(before, _)| before == name)
            };
            if said.iter().enumerate().any(is_repeated) {
                return None;
            }
            let mut kept = 0;
            for index in 0..count {
                if !matches!(into[index].1, Raw::Null) {
                    into[kept] = into[index];
                    kept += 1;
                }
            }
            count = kept;
        }
        Some(count)
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn skip_space(&mut self) {
        while matches!(self.text.as_bytes().get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Raw<'a>> {
        match self.rest().first()? {
            b'"' => self.string(),
            b'{' => self.object(),
            b'0'..=b'9' => self.whole(),
            b't' if self.rest().starts_with(b"true") => {
                self.at += 4;
                Some(Raw::Flag(true))
            }
            b'f' if self.rest().starts_with(b"false") => {
                self.at += 5;
                Some(Raw::Flag(false))
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Raw<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        let plain = self.rest().iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        self.at += plain;
        if self.next()? == b'"' {
            return Some(Raw::Text(self.text.get(start..self.at - 1)?));
        }
        // An escape, or a control character that the library refuses.
        let mut escaped = true;
        loop {
            match self.next()? {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Some(Raw::Escaped(self.text.get(start - 1..self.at)?)),
                _ => {}
            }
        }
    }

    /// A whole number without sign; others are rare.
    fn whole(&mut self) -> Option<Raw<'a>> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = self.text.get(self.at..self.at + digits)?;
        if digits > 18 || digits > 1 && text.starts_with('0') {
            return None;
        }
        self.at += digits;
        let ends = !matches!(self.rest().first(), Some(b'.' | b'e' | b'E'));
        ends.then_some(Raw::Whole(text.parse().ok()?))
    }

    /// An object whose end is found by its brackets; what stands in it is for the library.
    fn object(&mut self) -> Option<Raw<'a>> {
        let start = self.at;
        let mut depth = 0;
        loop {
            match self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(Raw::Object(self.text.get(start..self.at)?));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::parse_any;

    /// Both ways read the same; returns whether the short way did.
    fn agrees(line: &str) -> bool {
        let Some(event) = read(line.as_bytes()) else { return false };
        assert_eq!(parse_any(line.as_bytes()).unwrap(), [event], "{line}");
        true
    }

    #[test]
    fn usual_lines_are_read() {
        for line in [
            r#"{"v":1,"type":"model.request","ts":"2026-11-01T10:00:00.125Z","run_id":"r","agent":"a","request_id":"q","provider":"p","model":"m","stream":true}"#,
            r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:00Z","run_id":"r","request_id":"q","candidate":{"provider":"p","model":"m"},"attempt":1,"status":503,"delay_ms":100,"class":"transient","layer":"agent"}"#,
            r#"{"type":"model.response","ts":1767261600123,"run_id":"r","usage":{"input_tokens":3,"cost_usd":0.1},"attempts":2,"stop_reason":null}"#,
            r#"{"type":"model.failed","ts":"2026-11-01T10:00:00.1234567+02:00","run_id":"r","message":"a \"quoted\" \u00e9 text","reset_at":"2026-11-01T12:00:00Z","decision":"fail_fast"}"#,
            r#"{"type":"model.attempt","ts":"2026-11-01T10:00:00Z","run_id":"r","kind":"hedge","sent":false,"outcome":"failed","code":"overloaded_error"}"#,
            r#"{"type":"model.fallback","ts":"2026-11-01T10:00:00Z","run_id":"r","from":{"model":"a"},"to":{"model":"b"},"kind":"model"}"#,
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
