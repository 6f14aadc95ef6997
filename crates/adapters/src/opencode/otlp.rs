//! OTLP logs of opencode since 1.18: each line of its program log as a record, fields as attributes, the message as body.
//!
//! Read as the log is (see `log`). The record form was read in the program and is not among the recordings. What a line
//! means follows from those before it: a session whose records do not come in the order of their times tells nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use retryscope_record::{Item, Mark, Place, RunKey, Sink};

use super::AGENT;
use super::log::{Fields, Log, is_message};
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
        let process =
            said.resource.get("opencode.run").or_else(|| said.attributes.get("run")).unwrap_or_default();
        if self.matters(said) && self.is_late(process, said.at) {
            let id = said.attributes.get("session.id").or_else(|| said.attributes.get("id"));
            if let Some(session) = id.filter(|id| id.starts_with("ses_")) {
                let run = RunKey::new(AGENT, session);
                sink.item(place, Item::Mark { run: &run, at: said.at, mark: &Mark::Unordered });
            }
            return;
        }
        self.log.hear(process, said.at);
        let mut fields: Vec<(&str, Cow<'_, str>)> =
            said.attributes.iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect();
        for (name, value) in [("message", said.body), ("level", said.severity)] {
            fields.extend(value.map(|value| (name, Cow::Borrowed(value))));
        }
        self.log.record(place, process, said.at, &Fields(fields), sink);
    }

    fn span(&mut self, _place: Place, _said: &Span<'_>, _sink: &mut dyn Sink) {}
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

    #[test]
    fn records_say_what_the_lines_say() {
        let lines = [
            "message=created id=ses_1 version=1.18.33 parentID=undefined",
            "message=loop session.id=ses_1 step=0",
            "message=process session.id=ses_1 messageID=msg_1",
            "message=stream providerID=p modelID=m session.id=ses_1 small=false agent=build mode=primary",
            "message=\"stream error\" session.id=ses_1 small=false error.error.message=\"AI_APICallError: Overloaded\"",
            "message=stream providerID=p modelID=m session.id=ses_1 small=false agent=build mode=primary",
            "message=loop session.id=ses_1 step=1",
            "message=\"exiting loop\" session.id=ses_1",
        ];
        let records: Vec<String> = lines.iter().enumerate().map(|(n, line)| exported(n, line)).collect();
        let Some(Recognized { reading: crate::Reading::Lines(mut decoder), .. }) =
            crate::otlp::recognize(records[0].as_bytes())
        else {
            panic!("an export is not recognized");
        };
        let mut said = Collected::default();
        for (n, record) in records.iter().enumerate() {
            decoder.line(retryscope_record::Place::Line(n as u64 + 1), record.as_bytes(), &mut said);
        }
        let logged = read(&lines);
        assert_eq!(names(&said), names(&logged));
        assert_eq!(said.items, logged.items);
        assert!(names(&said).contains(&"model.response".to_owned()));
    }
}
