//! A strict check of lines against schema v1: each deviation with its column.
//!
//! Stricter than [`crate::read`]: what a reader forgives is still said here, for the author of a writer.

use serde_json::{Map, Value};

use crate::body::{Body, Field};
use crate::envelope::{ENVELOPE, VERSION};
use crate::schema::words_of;

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
    let mut check = Check { line, out: Vec::new() };
    check.envelope(&object);
    check.out.sort_by_key(|deviation| deviation.column);
    check.out
}

struct Check<'a> {
    line: &'a [u8],
    out: Vec<Deviation>,
}

impl Check<'_> {
    fn say(&mut self, field: &str, message: String) {
        let column = self.column_of(field);
        self.out.push(Deviation { column, message });
    }

    /// Returns where a key stands; the beginning of the line for a key that is missing.
    fn column_of(&self, field: &str) -> usize {
        let needle = format!("\"{field}\"");
        let found = self.line.windows(needle.len()).position(|window| window == needle.as_bytes());
        found.map_or(1, |at| at + 1)
    }

    fn envelope(&mut self, object: &Map<String, Value>) {
        match object.get("v") {
            None => self.say("v", "`v` is missing: the major version of the schema, 1".into()),
            Some(value) if value.as_u64() != Some(VERSION) => {
                self.say("v", format!("`v` is {value}; this program knows version {VERSION}"));
            }
            Some(_) => {}
        }
        match object.get("ts") {
            None => self.say("ts", "`ts` is missing".into()),
            Some(Value::String(text)) => self.time("ts", text),
            Some(_) => self.say("ts", "`ts` must be a text in RFC 3339".into()),
        }
        match object.get("run_id") {
            None => self.say("run_id", "`run_id` is missing".into()),
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(_) => self.say("run_id", "`run_id` must be a text that is not empty".into()),
        }
        let kind = match object.get("type") {
            None => {
                self.say("type", "`type` is missing".into());
                return;
            }
            Some(Value::String(kind)) => kind.clone(),
            Some(_) => {
                self.say("type", "`type` must be a text".into());
                return;
            }
        };
        let Some(fields) = Body::fields_of(&kind) else {
            self.say(
                "type",
                format!("`{kind}` is no type of version {VERSION}; readers keep it without using it"),
            );
            return;
        };
        for (name, value) in object {
            if matches!(name.as_str(), "v" | "type" | "ts" | "run_id") {
                continue;
            }
            match fields.iter().chain(ENVELOPE).find(|field| field.name == name) {
                Some(field) => self.field(field, value),
                None if matches!(name.as_str(), "provider" | "model") && kind.starts_with("model.") => {}
                None => self
                    .say(name, format!("`{name}` is no field of `{kind}`; readers keep it without using it")),
            }
        }
    }

    fn field(&mut self, field: &Field, value: &Value) {
        let name = field.name;
        let wrong = |expected: &str| format!("`{name}` must be {expected}, found {}", kind_of(value));
        if let Some(words) = words_of(field.kind) {
            let sent = name == "sent" && value.is_boolean();
            match value.as_str() {
                Some(word) if words.contains(&word) => {}
                _ if sent => {}
                Some(word) => self.say(name, format!("`{name}` is `{word}`; known: {}", words.join(", "))),
                None => self.say(name, wrong("a text")),
            }
            return;
        }
        match field.kind {
            "String" => match value {
                Value::String(text) if name == "message" && text.len() > 2048 => {
                    self.say(name, format!("`message` has {} bytes; at most 2048 are kept", text.len()));
                }
                Value::String(_) => {}
                // A turn may be numbered.
                Value::Number(_) if name == "turn" => {}
                _ => self.say(name, wrong("a text")),
            },
            "bool" if !value.is_boolean() => self.say(name, wrong("true or false")),
            "u64" if !value.is_u64() => self.say(name, wrong("a whole number that is not negative")),
            "u16" if !value.as_u64().is_some_and(|n| (100..600).contains(&n)) => {
                self.say(name, wrong("an HTTP status from 100 to 599"));
            }
            "f64" if !value.is_number() => self.say(name, wrong("a number")),
            "DateTime<Utc>" => match value {
                Value::String(text) => self.time(name, text),
                _ => self.say(name, wrong("a time in RFC 3339")),
            },
            "Candidate" | "Usage" | "BudgetState" if !value.is_object() => self.say(name, wrong("an object")),
            kind if kind.starts_with("Vec<") && !value.is_array() => self.say(name, wrong("a list")),
            _ => {}
        }
    }

    fn time(&mut self, field: &str, text: &str) {
        if chrono::DateTime::parse_from_rfc3339(text).is_err() {
            self.say(field, format!("`{field}` is no time in RFC 3339: {text:?}"));
        } else if !text.ends_with('Z') && !text.ends_with("+00:00") {
            self.say(field, format!("`{field}` must be in UTC"));
        } else if !text.contains('.') {
            self.say(field, format!("`{field}` must have at least milliseconds"));
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
}
