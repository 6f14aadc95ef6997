//! An export as lines of a source file: one resource and scope a line, and no line longer than a reader takes whole.
//!
//! What holds no record says nothing and is not kept. Not for: what a record means.

use serde_json::{Map, Value};

/// Bytes of records after which a new line begins; a reader takes lines of 4 MiB whole.
const ENOUGH: usize = 256 << 10;

/// Names of the three levels of an export.
pub(super) struct Levels {
    pub(super) resources: &'static str,
    pub(super) scopes: &'static str,
    pub(super) records: &'static str,
}

pub(super) const LOGS: Levels =
    Levels { resources: "resourceLogs", scopes: "scopeLogs", records: "logRecords" };

pub(super) const TRACES: Levels =
    Levels { resources: "resourceSpans", scopes: "scopeSpans", records: "spans" };

/// Returns the export as lines, each an export of its own.
pub(super) fn lines(export: &mut Value, levels: &Levels) -> Vec<u8> {
    let mut out = Vec::new();
    for mut resource in taken(export.as_object_mut(), levels.resources) {
        let scopes = taken(resource.as_object_mut(), levels.scopes);
        let resource = beginning(&resource);
        for mut scope in scopes {
            let records = taken(scope.as_object_mut(), levels.records);
            let scope = beginning(&scope);
            let before = format!(
                "{{\"{}\":[{resource}\"{}\":[{scope}\"{}\":[",
                levels.resources, levels.scopes, levels.records
            );
            let mut left = records.iter().map(Value::to_string).peekable();
            while let Some(first) = left.next() {
                let from = out.len();
                out.extend_from_slice(before.as_bytes());
                out.extend_from_slice(first.as_bytes());
                while let Some(next) = left.next_if(|next| out.len() - from + next.len() < ENOUGH) {
                    out.push(b',');
                    out.extend_from_slice(next.as_bytes());
                }
                out.extend_from_slice(b"]}]}]}\n");
            }
        }
    }
    out
}

fn taken(object: Option<&mut Map<String, Value>>, name: &str) -> Vec<Value> {
    match object.and_then(|object| object.remove(name)) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Returns an object up to where another member may follow.
fn beginning(object: &Value) -> String {
    let mut text = if object.is_object() { object.to_string() } else { "{}".to_owned() };
    text.pop();
    if text.len() > 1 {
        text.push(',');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn split(mut export: Value) -> Vec<Value> {
        let lines = lines(&mut export, &LOGS);
        let lines = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    #[test]
    fn each_resource_and_scope_has_its_line() {
        let of = |n: u64| json!({"scope": {"name": n}, "logRecords": [{"body": {"stringValue": n}}]});
        let lines = split(json!({"resourceLogs": [
            {"resource": {"attributes": []}, "scopeLogs": [of(1), of(2)]},
            {},
            {"scopeLogs": [of(3), {"scope": {}}, {"logRecords": []}]},
        ]}));
        assert_eq!(
            lines,
            [
                json!({"resourceLogs": [{"resource": {"attributes": []}, "scopeLogs": [of(1)]}]}),
                json!({"resourceLogs": [{"resource": {"attributes": []}, "scopeLogs": [of(2)]}]}),
                json!({"resourceLogs": [{"scopeLogs": [of(3)]}]}),
            ]
        );
    }

    #[test]
    fn no_line_is_longer_than_one_record_makes_it() {
        let record = |n: usize| json!({"n": n, "body": {"stringValue": "x".repeat(5_000)}});
        let records: Vec<Value> = (0..200).map(record).collect();
        let lines = split(json!({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}));
        assert!(lines.len() > 3);
        assert!(lines.iter().all(|line| line.to_string().len() <= ENOUGH + 100));
        let records = lines.iter().flat_map(|line| {
            line["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().cloned().unwrap_or_default()
        });
        assert!(records.map(|record| record["n"].as_u64()).eq((0..200).map(Some)));
    }
}
