//! OTLP logs of opencode since 1.18: each line of its program log as a record.
//!
//! The body is a list of two texts, the message and the fields as the program prints an object. The daemon keeps the fields
//! that are read as attributes, and the message as the body; both forms are read. What a line means (see `log`) follows
//! from those before it: a session whose records do not come in the order of their times tells nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use retryscope_record::{Item, Mark, Place, RunKey, Sink};
use serde_json::Value;

use super::AGENT;
use super::log::{Fields, Log, end_of_string, is_message};
use crate::otlp::{Attributes, Consumer, LogRecord, Span};

/// Most processes whose last record is remembered.
const PROCESS_LIMIT: usize = 4_096;

/// opencode's part of the telemetry.
#[derive(Default)]
pub(crate) struct Export {
    log: Log,
    /// Time of the latest record of each process.
    latest: BTreeMap<String, DateTime<Utc>>,
}

impl Export {
    /// Returns whether a record of the process stands before one that was read already.
    fn is_late(&mut self, process: &str, at: Option<DateTime<Utc>>) -> bool {
        let Some(at) = at else { return false };
        if let Some(latest) = self.latest.get_mut(process) {
            let is_late = at < *latest;
            *latest = at.max(*latest);
            return is_late;
        }
        if self.latest.len() >= PROCESS_LIMIT {
            self.latest.clear();
        }
        self.latest.insert(process.to_owned(), at);
        false
    }
}

impl Consumer for Export {
    fn claims(&self, resource: &Attributes, _scope: &str) -> bool {
        resource.get("service.name") == Some(AGENT)
    }

    fn matters(&self, said: &LogRecord<'_>) -> bool {
        said.body.is_some_and(is_message)
    }

    fn record(&mut self, place: Place, said: &LogRecord<'_>, sink: &mut dyn Sink) {
        let printed = said.further.map(printed_fields).unwrap_or_default();
        let process =
            said.resource.get("opencode.run").or_else(|| said.attributes.get("run")).unwrap_or_default();
        if self.matters(said) && self.is_late(process, said.at) {
            let of_printed =
                |key: &str| printed.iter().find(|(name, _)| *name == key).map(|(_, value)| &**value);
            let id = ["session.id", "id"]
                .iter()
                .find_map(|key| said.attributes.get(key).or_else(|| of_printed(key)));
            if let Some(session) = id.filter(|id| id.starts_with("ses_")) {
                let run = RunKey::new(AGENT, session);
                sink.item(place, Item::Mark { run: &run, at: said.at, mark: &Mark::Unordered });
            }
            return;
        }
        self.log.hear(process, said.at);
        let mut fields: Vec<(&str, Cow<'_, str>)> =
            said.attributes.iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect();
        fields.extend(printed.iter().map(|(name, value)| (&**name, Cow::Borrowed(&**value))));
        let level = said.severity.map(str::to_ascii_uppercase);
        for (name, value) in [("message", said.body), ("level", level.as_deref())] {
            fields.extend(value.map(|value| (name, Cow::Borrowed(value))));
        }
        self.log.record(place, process, said.at, &Fields(fields), sink);
    }

    fn span(&mut self, _place: Place, _said: &Span<'_>, _sink: &mut dyn Sink) {}
}

/// Fields that are read; the others may say what a person said.
const READ: &[&str] = &[
    "session.id",
    "id",
    "version",
    "parentID",
    "directory",
    "step",
    "messageID",
    "providerID",
    "modelID",
    "agent",
    "small",
    "error",
    "error.error",
    "error.error.message",
    "error.error.code",
    "error.error.type",
    "llm.runtime",
    "llm.provider",
    "llm.model",
];

/// Returns message and fields of a body that is a list, as far as they are read; `None` of any other body.
pub fn listed_body(body: &Value) -> Option<(&str, Vec<(String, String)>)> {
    let text = |index: usize| body.pointer("/arrayValue/values")?.get(index)?.get("stringValue")?.as_str();
    let message = text(0).filter(|message| is_message(message))?;
    Some((message, text(1).map(printed_fields).unwrap_or_default()))
}

/// Reads an object as the program prints it: keys and texts quoted, everything else, an error among it, as it stands.
fn printed_fields(text: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut within: Vec<String> = Vec::new();
    let mut rest = text.trim().strip_prefix('{').unwrap_or_default();
    while rest.starts_with('"') {
        let (key, after) = rest.split_at(end_of_string(rest));
        let (Some(key), Some(after)) = (crate::json::text(key), after.strip_prefix(':')) else { break };
        if let Some(inner) = after.strip_prefix('{').filter(|inner| inner.starts_with('"')) {
            within.push(key.into_owned());
            rest = inner;
            continue;
        }
        let is_text = after.starts_with('"');
        let end = if is_text { end_of_string(after) } else { after.find(",\"").unwrap_or(after.len()) };
        let (value, mut following) = after.split_at(end);
        let mut value = value;
        let name: Vec<&str> = within.iter().map(String::as_str).chain([&*key]).collect();
        let name = name.join(".");
        if !is_text {
            // The objects around it end with it.
            for _ in 0..=within.len() {
                let Some(shorter) = value.strip_suffix('}') else { break };
                value = shorter;
                within.pop();
            }
        }
        while let Some(after) = following.strip_prefix('}') {
            following = after;
            within.pop();
        }
        if READ.contains(&&*name) {
            let value = crate::json::text(value).unwrap_or(Cow::Borrowed(value));
            fields.push((name, value.into_owned()));
        }
        rest = following.strip_prefix(',').unwrap_or_default();
    }
    fields
}

#[cfg(test)]
mod tests {
    use retryscope_record::Collected;
    use serde_json::{Value, json};

    use super::super::log::tests::{names, read};
    use crate::Recognized;

    /// A line of the log as it would be exported.
    fn exported(n: usize, line: &str) -> String {
        let fields = super::Fields::parse(line);
        let attribute = |(name, value): &(&str, std::borrow::Cow<'_, str>)| json!({"key": name, "value": {"stringValue": value}});
        let attributes: Vec<Value> =
            fields.0.iter().filter(|(name, _)| *name != "message").map(attribute).collect();
        let message =
            fields.0.iter().find(|(name, _)| *name == "message").map(|(_, value)| value.to_string());
        // 2026-01-02T03:04:00Z, and a second for each line.
        let nanos = (1_767_323_040 + n as u64) * 1_000_000_000;
        json!({"resourceLogs": [{
            "resource": {"attributes": [
                {"key": "service.name", "value": {"stringValue": "opencode"}},
                {"key": "opencode.run", "value": {"stringValue": "00aa11bb"}},
            ]},
            "scopeLogs": [{"scope": {"name": "opencode"}, "logRecords": [{
                "timeUnixNano": nanos.to_string(), "severityText": "INFO",
                "body": {"stringValue": message}, "attributes": attributes,
            }]}],
        }]})
        .to_string()
    }

    /// The same as the program exports it: its fields as an object in which an error is not quoted.
    fn listed(n: usize, line: &str) -> String {
        let mut record: Value = serde_json::from_str(&exported(n, line)).unwrap();
        let record_of = record.pointer_mut("/resourceLogs/0/scopeLogs/0/logRecords/0").unwrap();
        let attributes = record_of["attributes"].take();
        let field = |attribute: &Value| {
            let (key, value) = (attribute["key"].as_str().unwrap(), &attribute["value"]["stringValue"]);
            match key.rsplit_once('.') {
                Some(("error.error", key)) => format!(r#""error":{{"error":{{"{key}":{value}}}}}"#),
                Some(("error", key)) => format!(r#""error":{{"{key}":{}}}"#, value.as_str().unwrap()),
                _ if value == "undefined" || key == "step" => {
                    format!(r#""{key}":{}"#, value.as_str().unwrap())
                }
                _ => format!(r#""{key}":{value}"#),
            }
        };
        let fields: Vec<String> = attributes.as_array().unwrap().iter().map(field).collect();
        let texts = [record_of["body"]["stringValue"].clone(), format!("{{{}}}", fields.join(",")).into()];
        let values: Vec<Value> = texts.into_iter().map(|text| json!({"stringValue": text})).collect();
        record_of["body"] = json!({"arrayValue": {"values": values}});
        record_of["attributes"] = json!([{"key": "fiberId", "value": {"intValue": 7}}]);
        record_of["severityText"] = json!("Info");
        record.to_string()
    }

    #[test]
    fn fields_are_read_as_the_program_prints_them() {
        let text = r#"{"session.id":"ses_1","small":"false","step":0,"title":"PLANTED","parentID":undefined,"error":{"error":AI_X: it {is} over}}"#;
        let fields = super::printed_fields(text);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            fields,
            [
                ("session.id", "ses_1"),
                ("small", "false"),
                ("step", "0"),
                ("parentID", "undefined"),
                ("error.error", "AI_X: it {is} over")
            ]
        );
        for broken in
            ["", "{", "{\"", "{\"a", "{\"a\":", "{\"a\":{\"b\":", "[]", "{\"a\":{\"b\":\"c\"}}}},\"id\":1"]
        {
            super::printed_fields(broken);
        }
    }

    #[test]
    fn records_say_what_the_lines_say() {
        let lines = [
            "message=created id=ses_1 version=1.18.33 parentID=undefined",
            "message=loop session.id=ses_1 step=0",
            "message=process session.id=ses_1 messageID=msg_1",
            "message=stream providerID=p modelID=m session.id=ses_1 small=false agent=build mode=primary",
            "message=\"stream error\" session.id=ses_1 small=false error.error.message=\"AI_APICallError: Overloaded\"",
            "message=stream providerID=p modelID=m session.id=ses_1 small=false agent=build mode=primary",
            "message=\"stream error\" session.id=ses_1 small=false error.error=\"AI_APICallError: Gone\"",
            "message=stream providerID=p modelID=m session.id=ses_1 small=false agent=build mode=primary",
            "message=loop session.id=ses_1 step=1",
            "message=\"exiting loop\" session.id=ses_1",
        ];
        for form in [exported, listed] {
            said_by_records(&lines, form);
        }
    }

    fn said_by_records(lines: &[&str], form: fn(usize, &str) -> String) {
        let records: Vec<String> = lines.iter().enumerate().map(|(n, line)| form(n, line)).collect();
        let Some(Recognized { reading: crate::Reading::Lines(mut decoder), .. }) =
            crate::otlp::recognize(records[0].as_bytes())
        else {
            panic!("an export is not recognized");
        };
        let mut said = Collected::default();
        for (n, record) in records.iter().enumerate() {
            decoder.line(retryscope_record::Place::Line(n as u64 + 1), record.as_bytes(), &mut said);
        }
        let logged = read(lines);
        assert_eq!(names(&said), names(&logged));
        assert_eq!(said.items, logged.items);
        assert!(names(&said).contains(&"model.response".to_owned()));
    }
}
