//! The short way to read the usual lines: a flat object of model traffic, as a writer of this schema writes it.
//!
//! Nothing is built but the event itself, in the memory of the one before. Whatever is unusual (another spelling, an unknown
//! field, a value of another type, a name said twice) is left to the long way in [`crate::read`], which decides what it
//! means. Invariant, held by a test: what is read here is what the long way reads.

mod raw;

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use retryscope_json::{Cursor, whole};

use crate::body::Body;
use crate::envelope::{Event, VERSION};
use crate::read::class_of_code;
use crate::values::Candidate;

pub(crate) use raw::{FromRaw, Raw, Spare};

/// Types that can be read so.
const TYPES: &[&str] =
    &["model.request", "model.attempt", "model.retry", "model.fallback", "model.response", "model.failed"];

/// Longest line that is kept to read others against, in bytes.
const KEPT_LENGTH: usize = 4 << 10;

/// Reads line after line.
///
/// One writer's lines of one type differ in little more than times and ids. So the last one of each type is kept, and of the
/// next only the values are read that are not the same, byte for byte.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// At most one of each type.
    known: Vec<Known>,
    spare: Spare,
}

impl Lines {
    /// Reads a line of model traffic; `None` for one that needs the long way.
    pub(crate) fn read(&mut self, line: &[u8]) -> Option<&Event> {
        let text = std::str::from_utf8(line).ok()?;
        let kind = likely_type(text)?;
        let place = if let Some(place) = self.known.iter().position(|known| known.event.body.kind() == kind) {
            place
        } else {
            self.known.push(Known::of_type(TYPES.iter().find(|known| **known == kind)?)?);
            self.known.len() - 1
        };
        let known = self.known.get_mut(place)?;
        if known.read_against(text, &mut self.spare).is_none() {
            known.read(text, &mut self.spare)?;
        }
        Some(&self.known.get(place)?.event)
    }
}

/// A line that was read.
#[derive(Debug)]
struct Known {
    event: Event,
    /// The line itself; empty if others cannot be read against it.
    text: String,
    /// Where its values stand, in order.
    values: Vec<Range<usize>>,
}

impl Known {
    fn of_type(kind: &str) -> Option<Self> {
        let event = Event { body: Body::blank(kind)?, ..Event::blank() };
        Some(Self { event, text: String::new(), values: Vec::new() })
    }

    /// Reads the values of a line that are others than those of the line before; `None` if it is not of the same form, and
    /// then the event is not to be used.
    fn read_against(&mut self, text: &str, spare: &mut Spare) -> Option<()> {
        if self.text.is_empty() {
            return None;
        }
        let (line, before) = (text.as_bytes(), self.text.as_bytes());
        let (mut at, mut done) = (0, 0);
        for value in &mut self.values {
            // A value ends where the byte behind it is the same too.
            let same = before.get(done..=value.end)?;
            let name = before.get(done..value.start)?;
            let from = at + name.len();
            if line.get(at..at + same.len()) == Some(same) {
                at += same.len() - 1;
            } else if line.get(at..from) == Some(name) {
                let mut cursor = Cursor::at(text, from);
                let new = Raw::read(&mut cursor)?;
                at = cursor.place();
                let name = self.text.get(done..value.start)?;
                let name = name.get(name.find('"')? + 1..name.rfind('"')?)?;
                // What a null takes the place of would stay.
                (!new.is_null()).then(|| set(&mut self.event, name, new, spare))??;
            } else {
                return None;
            }
            done = value.end;
            *value = from..at;
        }
        if line.get(at..) != before.get(done..) {
            return None;
        }
        self.text.clear();
        self.text.push_str(text);
        Some(())
    }

    /// Reads a whole line; `None` for one that needs the long way.
    fn read(&mut self, text: &str, spare: &mut Spare) -> Option<()> {
        let Self { event, text: kept, values } = self;
        event.clear(spare);
        kept.clear();
        values.clear();
        let (mut has_type, mut has_candidate, mut has_part) = (false, false, false);
        members(text, |name, place, value| {
            has_type |= name == "type";
            has_candidate |= name == "candidate";
            has_part |= Candidate::has_part(name);
            values.push(place);
            set(event, name, value, spare)
        })?;
        if !has_type || event.run_id.is_empty() || has_candidate && has_part {
            return None;
        }
        if text.len() <= KEPT_LENGTH {
            kept.push_str(text);
        }
        Some(())
    }
}

/// Sets a field to the value of a member; `None` for what only the long way understands.
fn set(event: &mut Event, name: &str, value: Raw<'_>, spare: &mut Spare) -> Option<()> {
    if value.is_null() {
        return Some(());
    }
    match name {
        "type" => value.text().filter(|kind| *kind == event.body.kind()).map(drop),
        "v" => value.whole().filter(|version| *version <= VERSION).map(drop),
        "ts" => {
            event.ts = Some(value.time()?);
            Some(())
        }
        "run_id" => {
            let id = value.string(spare)?;
            spare.give(std::mem::replace(&mut event.run_id, id));
            (!event.run_id.is_empty()).then_some(())
        }
        // An error code of another program decides class and reason where they are not said.
        "code" if value.string(spare).is_some_and(|code| class_of_code(&code).is_some()) => None,
        name => {
            if let Some(set) = event.set(name, value, spare) {
                return set;
            }
            if Candidate::has_part(name) {
                return part(candidate_of(&mut event.body)?, name, value, spare);
            }
            event.body.set(name, value, spare)
        }
    }
}

/// Returns where parts of a candidate go that stand flat in the event.
fn candidate_of(body: &mut Body) -> Option<&mut Option<Candidate>> {
    match body {
        Body::ModelRequest(body) => Some(&mut body.candidate),
        Body::ModelAttempt(body) => Some(&mut body.candidate),
        Body::ModelRetry(body) => Some(&mut body.candidate),
        Body::ModelResponse(body) => Some(&mut body.candidate),
        Body::ModelFailed(body) => Some(&mut body.candidate),
        _ => None,
    }
}

/// Returns what stands behind the first `"type"`, wherever that is: whether it is the object's own is seen when its members
/// are read.
fn likely_type(text: &str) -> Option<&str> {
    static NAME: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"type\""));
    let behind = NAME.find(text.as_bytes())? + NAME.needle().len();
    let value = text.get(behind..)?.trim_ascii_start().strip_prefix(':')?.trim_ascii_start();
    let value = value.strip_prefix('"')?;
    value.get(..value.bytes().position(|byte| byte == b'"')?)
}

/// Hands over the members of the object that the text is, and where their values stand; `None` for anything but an object of
/// plain values that says each name once, or if `take` says so.
pub(crate) fn members<'a>(
    text: &'a str,
    mut take: impl FnMut(&'a str, Range<usize>, Raw<'a>) -> Option<()>,
) -> Option<()> {
    let mut names = Vec::new();
    whole(text, |at| {
        at.members(|at, name| {
            let (name, from) = (name.plain()?, at.place());
            if names.contains(&name) {
                return None;
            }
            names.push(name);
            let value = Raw::read(at)?;
            take(name, from..at.place(), value)
        })
    })
}

/// Sets a part of the candidate that stands flat in the event.
pub(crate) fn part(
    candidate: &mut Option<Candidate>,
    name: &str,
    value: Raw<'_>,
    spare: &mut Spare,
) -> Option<()> {
    if value.is_null() {
        return Some(());
    }
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
    value.string(spare)?.put_into(field, spare);
    Some(())
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
    fn what_changed_in_a_line_is_read() {
        let mut lines = Lines::default();
        let line = |run: &str, ts: &str, attempt: &str, candidate: &str, rest: &str| {
            format!(
                r#"{{"type":"model.retry","run_id":{run},"ts":{ts},"attempt":{attempt},"candidate":{candidate},"class":"transient"}}{rest}"#
            )
        };
        let (time, other) = (r#""2026-11-01T10:00:00Z""#, r#""2026-11-01T10:00:01.5Z""#);
        let candidate = r#"{"provider":"p","model":"m"}"#;
        for line in [
            line(r#""r""#, time, "1", candidate, ""),
            line(r#""r""#, time, "1", candidate, ""),
            line(r#""r2""#, other, "1", candidate, ""),
            line(r#""r""#, other, "12", r#"{"provider":"p"}"#, " "),
            line(r#""r""#, "null", "1", candidate, " "),
            line(r#""r""#, time, "null", r#"{"model":"a long name of a model","provider":null}"#, ""),
            line(r#""r""#, time, "2", candidate, ""),
            line(r#""r\u00e9\"""#, time, "2", candidate, ""),
            line(r#""r""#, time, "2", candidate, ""),
        ] {
            assert!(agrees_in(&mut lines, &line), "{line}");
        }
        for odd in [
            line(r#""r""#, time, "2", candidate, "}"),
            line(r#""r""#, time, "2", candidate, ","),
            line(r#""""#, time, "2", candidate, ""),
            line(r#""r""#, time, "2.5", candidate, ""),
            line(r#""r""#, time, "2,", candidate, ""),
            line(r#""r""#, time, "2", candidate, "").replace("transient", "transient\",\"class\":\"none"),
        ] {
            assert!(lines.read(odd.as_bytes()).is_none(), "{odd}");
            assert!(agrees_in(&mut lines, &line(r#""r""#, other, "7", candidate, "")));
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
        for _ in 0..10_000 {
            let mut members =
                vec![format!("\"type\":\"{}\"", types[pick(types.len())]), "\"run_id\":\"r\"".to_owned()];
            for _ in 0..pick(4) {
                members.push(format!("\"{}\" : {}", names[pick(names.len())], values[pick(values.len())]));
            }
            let place = pick(members.len());
            members.swap(0, place);
            short += u32::from(agrees_in(&mut lines, &format!("{{{}}}", members.join(","))));
            // Lines of the same form.
            for _ in 0..6 {
                let place = pick(members.len());
                let before = members[place].clone();
                let (name, value) = before.split_once(':').expect("a member");
                let value =
                    if pick(4) == 0 { value.to_owned() + "0" } else { values[pick(values.len())].to_owned() };
                members[place] = format!("{name}:{value}");
                if agrees_in(&mut lines, &format!("{{{}}}", members.join(","))) {
                    short += 1;
                } else {
                    members[place] = before;
                }
            }
        }
        assert!(short > 6_000, "{short}");
    }
}
