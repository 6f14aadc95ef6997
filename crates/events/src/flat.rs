//! The short way to read the usual lines: a flat object of model traffic, as a writer of this schema writes it.
//!
//! Nothing is built but the event itself, in the memory of the one before. Whatever is unusual (another spelling, an unknown
//! field, a value of another type, a name said twice) is left to the long way in [`crate::read`], which decides what it
//! means. Invariant, held by a test: what is read here is what the long way reads.

mod raw;

use retryscope_json::whole;

use crate::body::{Body, ModelAttempt, ModelFailed, ModelFallback, ModelRequest, ModelResponse, ModelRetry};
use crate::envelope::{Event, VERSION};
use crate::read::class_of_code;
use crate::values::Candidate;

pub(crate) use raw::{FromRaw, Raw, Spare};

/// Reads line after line into the same memory.
#[derive(Debug)]
pub(crate) struct Lines {
    event: Box<Event>,
    spare: Spare,
}

impl Default for Lines {
    fn default() -> Self {
        Self { event: Box::new(Event::blank()), spare: Spare::default() }
    }
}

impl Lines {
    /// Reads a line of model traffic; `None` for one that needs the long way.
    pub(crate) fn read(&mut self, line: &[u8]) -> Option<&mut Event> {
        let text = std::str::from_utf8(line).ok()?;
        let kind = likely_type(text)?;
        self.event.clear(&mut self.spare);
        match kind {
            "model.request" => self.event_of(text, |body: &mut ModelRequest| Some(&mut body.candidate)),
            "model.attempt" => self.event_of(text, |body: &mut ModelAttempt| Some(&mut body.candidate)),
            "model.retry" => self.event_of(text, |body: &mut ModelRetry| Some(&mut body.candidate)),
            "model.fallback" => self.event_of(text, |_: &mut ModelFallback| None),
            "model.response" => self.event_of(text, |body: &mut ModelResponse| Some(&mut body.candidate)),
            "model.failed" => self.event_of(text, |body: &mut ModelFailed| Some(&mut body.candidate)),
            _ => None,
        }
    }

    /// Builds the event. `candidate` tells where parts of a candidate go that stand flat beside the other fields.
    fn event_of<B: Fields>(
        &mut self,
        text: &str,
        candidate: fn(&mut B) -> Option<&mut Option<Candidate>>,
    ) -> Option<&mut Event> {
        let Self { event, spare } = self;
        B::within(&mut event.body, spare)?;
        let (mut typed, mut version) = (None, None);
        members(text, |name, value| match name {
            "type" => put(&mut typed, value.text().filter(|kind| *kind == B::TYPE)?),
            "v" => put(&mut version, value.whole().filter(|v| *v <= VERSION)?),
            "ts" => put(&mut event.ts, value.time()?),
            "run_id" if event.run_id.is_empty() => {
                event.run_id = value.string(spare)?;
                Some(())
            }
            // An error code of another program decides class and reason where they are not said.
            "code" if value.string(spare).is_some_and(|code| class_of_code(&code).is_some()) => None,
            name => {
                if let Some(set) = event.set(name, value, spare) {
                    return set;
                }
                let body = B::within(&mut event.body, spare)?;
                match name {
                    "provider" | "model" | "endpoint" | "region" | "account" | "transport" | "alias" => {
                        part(candidate(body)?, name, value, spare)
                    }
                    name => body.set(name, value, spare),
                }
            }
        })?;
        (!event.run_id.is_empty() && typed.is_some()).then_some(&mut **event)
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

/// Hands over the members of the object that the text is, but for those that are null; `None` for anything but a flat object
/// of plain values, or if `take` says so.
pub(crate) fn members<'a>(text: &'a str, mut take: impl FnMut(&'a str, Raw<'a>) -> Option<()>) -> Option<()> {
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
pub(crate) trait Fields: Sized {
    /// The `type` on the wire.
    const TYPE: &'static str;

    /// Returns the body of this type, after making it one if it is of another.
    fn within<'a>(body: &'a mut Body, spare: &mut Spare) -> Option<&'a mut Self>;

    /// Sets one; `None` for what only the long way understands.
    fn set(&mut self, name: &str, value: Raw<'_>, spare: &mut Spare) -> Option<()>;
}

/// Sets a part of the candidate that stands flat in the event.
pub(crate) fn part(
    candidate: &mut Option<Candidate>,
    name: &str,
    value: Raw<'_>,
    spare: &mut Spare,
) -> Option<()> {
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
    put(field, value.string(spare)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::parse_any;

    /// Both ways read the same; returns whether the short way did.
    fn agrees_in(lines: &mut Lines, line: &str) -> bool {
        let Some(event) = lines.read(line.as_bytes()) else { return false };
        assert_eq!(parse_any(line.as_bytes()).unwrap(), std::slice::from_ref(event), "{line}");
        true
    }

    /// The same in new memory.
    fn agrees(line: &str) -> bool {
        let mut lines = Lines::default();
        agrees_in(&mut lines, line)
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
            "{\"provider\":\"p\",\"account\":7}",
            "{\"input_tokens\":\"many\",\"output_tokens\":3}",
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
        let mut lines = Lines::default();
        for _ in 0..30_000 {
            let mut members =
                vec![format!("\"type\":\"{}\"", types[pick(types.len())]), "\"run_id\":\"r\"".to_owned()];
            for _ in 0..pick(4) {
                members.push(format!("\"{}\" : {}", names[pick(names.len())], values[pick(values.len())]));
            }
            let place = pick(members.len());
            members.swap(0, place);
            short += u32::from(agrees_in(&mut lines, &format!("{{{}}}", members.join(","))));
        }
        assert!(short > 5_000, "{short}");
    }
}
