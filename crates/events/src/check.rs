//! A strict check of lines against schema v1: each deviation with its column.
//!
//! Stricter than [`crate::read`]: what a reader forgives is still said here, for the author of a writer.

use std::fmt;

use retryscope_json::{Cursor, whole};
use serde_json::{Map, Value};

use crate::body::{Body, Field};
use crate::envelope::{ENVELOPE, VERSION};
use crate::schema::{flat_candidate, words_of};
use crate::write::MESSAGE_LIMIT;

/// One deviation from the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// Column of the line, from 1, in bytes.
    pub column: usize,
    /// What is wrong, as a lowercase clause.
    pub message: String,
}

/// Checks one line. An empty list means that it keeps the schema.
pub fn line(line: &[u8]) -> Vec<Deviation> {
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => {
            return vec![Deviation {
                column: error.column().max(1),
                message: format!("not valid JSON: {error}"),
            }];
        }
    };
    let Value::Object(object) = value else {
        return vec![Deviation { column: 1, message: "expected a JSON object".into() }];
    };
    // What is valid JSON is valid UTF-8.
    let mut check = Check { line: std::str::from_utf8(line).unwrap_or_default(), out: Vec::new() };
    check.envelope(&object);
    check.out.sort_by_key(|deviation| deviation.column);
    check.out
}

/// A step from a value to one inside it.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Member(&'a str),
    Element(usize),
}

/// Where a value stands, as steps from the whole line.
#[derive(Debug, Clone)]
struct At<'a>(Vec<Step<'a>>);

impl<'a> At<'a> {
    fn field(name: &'a str) -> Self {
        Self(vec![Step::Member(name)])
    }

    fn and(&self, step: Step<'a>) -> Self {
        Self(self.0.iter().copied().chain([step]).collect())
    }

    /// Returns the column; the beginning of the line for what is missing.
    fn column(&self, line: &str) -> usize {
        let place = self.0.iter().try_fold(("", line), |(_, value), step| inside(value, *step));
        place.map_or(1, |(named, _)| named.as_ptr() as usize - line.as_ptr() as usize + 1)
    }
}

/// Returns where a step leads: the text that names it, and its value.
fn inside<'t>(text: &'t str, step: Step<'_>) -> Option<(&'t str, &'t str)> {
    let mut found = None;
    match step {
        Step::Member(wanted) => whole(text, |at| {
            at.members(|at, name| {
                let value = at.slice(Cursor::value)?;
                let is_wanted = match name.plain() {
                    Some(name) => name == wanted,
                    None => serde_json::from_str::<String>(name.as_json()).is_ok_and(|name| name == wanted),
                };
                // Of two with one name the last counts.
                if is_wanted {
                    found = Some((name.as_json(), value));
                }
                Some(())
            })
        })?,
        Step::Element(wanted) => {
            let mut n = 0;
            whole(text, |at| {
                at.elements(|value| {
                    if n == wanted {
                        found = Some((value, value));
                    }
                    n += 1;
                })
            })?;
        }
    }
    found
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.0.iter().enumerate() {
            match step {
                Step::Member(name) if n == 0 => f.write_str(name)?,
                Step::Member(name) => write!(f, ".{name}")?,
                Step::Element(n) => write!(f, "[{n}]")?,
            }
        }
        Ok(())
    }
}

struct Check<'a> {
    line: &'a str,
    out: Vec<Deviation>,
}

impl Check<'_> {
    fn say(&mut self, at: &At<'_>, message: String) {
        self.out.push(Deviation { column: at.column(self.line), message });
    }

    fn say_field(&mut self, field: &str, message: String) {
        self.say(&At::field(field), message);
    }

    fn envelope(&mut self, object: &Map<String, Value>) {
        match object.get("v") {
            None => self.say_field("v", "`v` is missing: the major version of the schema, 1".into()),
            Some(value) if value.as_u64() != Some(VERSION) => {
                self.say_field("v", format!("`v` is {value}; this program knows version {VERSION}"));
            }
            Some(_) => {}
        }
        match object.get("ts") {
            None => self.say_field("ts", "`ts` is missing".into()),
            Some(Value::String(text)) => self.time(&At::field("ts"), text),
            Some(_) => self.say_field("ts", "`ts` must be a text in RFC 3339".into()),
        }
        match object.get("run_id") {
            None => self.say_field("run_id", "`run_id` is missing".into()),
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(_) => self.say_field("run_id", "`run_id` must be a text that is not empty".into()),
        }
        let kind = match object.get("type") {
            None => {
                self.say_field("type", "`type` is missing".into());
                return;
            }
            Some(Value::String(kind)) => kind.clone(),
            Some(_) => {
                self.say_field("type", "`type` must be a text".into());
                return;
            }
        };
        let Some(fields) = Body::fields_of(&kind) else {
            self.say_field(
                "type",
                format!("`{kind}` is no type of version {VERSION}; readers keep it without using it"),
            );
            return;
        };
        for (name, value) in object {
            if matches!(name.as_str(), "v" | "type" | "ts" | "run_id") {
                continue;
            }
            let known = fields.iter().chain(ENVELOPE).copied().chain(flat_candidate(&kind));
            match known.into_iter().find(|field| field.name == name) {
                Some(field) => self.value(&At::field(name), field.kind, value),
                None => self.say_field(
                    name,
                    format!("`{name}` is no field of `{kind}`; readers keep it without using it"),
                ),
            }
        }
    }

    fn value(&mut self, at: &At<'_>, kind: &str, value: &Value) {
        let wrong = |expected: &str| format!("`{at}` must be {expected}, found {}", kind_of(value));
        if let Some(words) = words_of(kind) {
            match value.as_str() {
                Some(word) if words.contains(&word) => {}
                _ if kind == "Sent" && value.is_boolean() => {}
                Some(word) => self.say(at, format!("`{at}` is `{word}`; known: {}", words.join(", "))),
                None => self.say(at, wrong("a text")),
            }
            return;
        }
        if let Some(parts) = Field::parts(kind) {
            let Some(object) = value.as_object() else { return self.say(at, wrong("an object")) };
            for (name, value) in object {
                let part = at.and(Step::Member(name));
                match parts.iter().find(|part| part.name == name) {
                    Some(known) => self.value(&part, known.kind, value),
                    None => self.say(&part, format!("`{name}` is no part of `{at}`; readers drop it")),
                }
            }
            return;
        }
        if let Some(kind) = Field::element(kind) {
            let Some(list) = value.as_array() else { return self.say(at, wrong("a list")) };
            for (n, value) in list.iter().enumerate() {
                self.value(&at.and(Step::Element(n)), kind, value);
            }
            return;
        }
        let name = at.to_string();
        match kind {
            "String" => match value {
                Value::String(text) if name == "message" && text.len() > MESSAGE_LIMIT => {
                    let n = text.len();
                    self.say(at, format!("`message` has {n} bytes; at most {MESSAGE_LIMIT} are kept"));
                }
                Value::String(_) => {}
                // A turn may be numbered.
                Value::Number(_) if name == "turn" => {}
                _ => self.say(at, wrong("a text")),
            },
            "bool" if !value.is_boolean() => self.say(at, wrong("true or false")),
            "u64" if !value.is_u64() => self.say(at, wrong("a whole number that is not negative")),
            "u16" if !value.as_u64().is_some_and(|n| (100..600).contains(&n)) => {
                self.say(at, wrong("an HTTP status from 100 to 599"));
            }
            "f64" if !value.is_number() => self.say(at, wrong("a number")),
            "DateTime<Utc>" => match value {
                Value::String(text) => self.time(at, text),
                _ => self.say(at, wrong("a time in RFC 3339")),
            },
            // `Value`: free form.
            _ => {}
        }
    }

    fn time(&mut self, at: &At<'_>, text: &str) {
        if chrono::DateTime::parse_from_rfc3339(text).is_err() {
            self.say(at, format!("`{at}` is no time in RFC 3339: {text:?}"));
        } else if !text.ends_with('Z') && !text.ends_with("+00:00") {
            self.say(at, format!("`{at}` must be in UTC"));
        } else if !text.contains('.') {
            self.say(at, format!("`{at}` must have at least milliseconds"));
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<(usize, String)> {
        line(text.as_bytes()).into_iter().map(|d| (d.column, d.message)).collect()
    }

    #[test]
    fn a_good_line_has_no_deviation() {
        let good = r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:00.000Z","run_id":"r","attempt":1,"delay_ms":500,"layer":"agent","provider":"openai"}"#;
        assert_eq!(said(good), []);
    }

    #[test]
    fn each_deviation_names_its_column() {
        let bad = r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:00Z","run_id":"r","attempt":-1,"layer":"moon","wait":5}"#;
        let columns: Vec<usize> = said(bad).iter().map(|(column, _)| *column).collect();
        assert_eq!(
            columns,
            ["\"ts\"", "\"attempt\"", "\"layer\"", "\"wait\""].map(|key| bad.find(key).unwrap() + 1)
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        let missing: Vec<String> = said("{}").into_iter().map(|(_, message)| message).collect();
        assert_eq!(missing.len(), 4, "{missing:?}");
        assert_eq!(said("{\"v\":2")[0].0, 6);
    }

    fn fields(kind: &str, more: &str) -> String {
        format!(r#"{{"v":1,"type":"{kind}","ts":"2026-11-01T10:00:00.000Z","run_id":"r",{more}}}"#)
    }

    #[test]
    fn parts_and_elements_are_checked() {
        for (kind, more, column_of, expected) in [
            (
                "model.request",
                r#""candidate":{"provider":5}"#,
                r#""provider":5"#,
                "`candidate.provider` must be a text",
            ),
            (
                "model.request",
                r#""candidate":{"modle":"m"}"#,
                r#""modle""#,
                "`modle` is no part of `candidate`",
            ),
            ("run.started", r#""candidates":["gpt"]"#, r#""gpt""#, "`candidates[0]` must be an object"),
            (
                "run.started",
                r#""candidates":[{},{"model":7}]"#,
                r#""model":7"#,
                "`candidates[1].model` must be a text",
            ),
            (
                "model.response",
                r#""usage":{"input_tokens":"many"}"#,
                r#""input_tokens""#,
                "`usage.input_tokens` must be a whole",
            ),
            ("model.retry", r#""budget":{"used":"all"}"#, r#""used""#, "`budget.used` must be a number"),
            ("model.retry", r#""changed":["a",5]"#, "5]", "`changed[1]` must be a text"),
            (
                "model.fallback",
                r#""provider":"p""#,
                r#""provider""#,
                "`provider` is no field of `model.fallback`",
            ),
            ("run.started", r#""model":"m""#, r#""model":"m""#, "`model` is no field of `run.started`"),
            ("model.retry", r#""provider":5"#, r#""provider":5"#, "`provider` must be a text"),
        ] {
            let bad = fields(kind, more);
            let said = said(&bad);
            assert_eq!(said.len(), 1, "{bad}: {said:?}");
            assert!(said[0].1.starts_with(expected), "{said:?}");
            assert_eq!(said[0].0, bad.find(column_of).unwrap() + 1, "{bad}");
        }
        for (kind, more) in [
            ("model.request", r#""candidate":{"provider":"p","model":"m"},"model":"m""#),
            ("model.fallback", r#""from":{"model":"a"},"failures":[503,null,"timeout"]"#),
            ("model.response", r#""usage":{"input_tokens":1,"cost_usd":0.5}"#),
            ("run.started", r#""candidates":[{}],"policy":{"any":[1]},"tools":[{"name":"t"}]"#),
        ] {
            assert_eq!(said(&fields(kind, more)), [], "{kind} {more}");
        }
    }

    #[test]
    fn the_column_is_that_of_the_field_itself() {
        let bad =
            fields("model.retry", r#""message":"\"attempt\"","candidate":{"attempt":"x"},"attempt":-1"#);
        let columns: Vec<usize> = said(&bad).into_iter().map(|(column, _)| column).collect();
        let places: Vec<usize> = bad.match_indices("\"attempt\":").map(|(at, _)| at + 1).collect();
        assert_eq!(columns, places);
        let bad = fields("model.retry", r#""\u0061ttempt":1,"attempt":-1"#);
        assert_eq!(said(&bad)[0].0, bad.rfind("\"attempt\"").unwrap() + 1);
    }
}
