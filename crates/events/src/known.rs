//! Which fields of a line have a meaning in the schema, in whatever spelling: for who keeps lines of others.
//!
//! Not for: reading them (see [`crate::read`]), or for what an unknown field may hold.

use serde_json::{Map, Value};

use crate::body::Body;
use crate::envelope::ENVELOPE;
use crate::ledger;
use crate::read::{canonical, type_of};
use crate::values::Candidate;

/// Calls `visit` with each field of a line, its payload and its ledger, and whether the schema knows it; a field for which it
/// returns `false` is taken out. What is left reads as the whole line does, but for the fields that were taken out.
pub fn retain(line: &mut Map<String, Value>, visit: &mut dyn FnMut(&str, bool, &mut Value) -> bool) {
    let Some((at, kind)) = type_of(line) else { return };
    retain_of(line, &kind, Some(at), visit);
}

fn retain_of(
    object: &mut Map<String, Value>,
    kind: &str,
    type_at: Option<&str>,
    visit: &mut dyn FnMut(&str, bool, &mut Value) -> bool,
) {
    object.retain(|name, value| match (name.as_str(), value) {
        (name, _) if type_at == Some(name) => true,
        ("data" | "payload", Value::Object(inner)) if type_at.is_some() => {
            retain_of(inner, kind, None, visit);
            true
        }
        ("attempts", Value::Array(ledger))
            if ledger::of_kind(kind).is_some() && ledger.iter().all(Value::is_object) =>
        {
            let of_each = ledger::of_kind(kind).unwrap_or_default();
            let entries = ledger.iter_mut().filter_map(Value::as_object_mut);
            entries.for_each(|attempt| retain_of(attempt, of_each, None, visit));
            true
        }
        (name, value) => visit(name, is_known(kind, name), value),
    });
}

fn is_known(kind: &str, name: &str) -> bool {
    // A number has the unit of its name taken off, as reading does.
    let (name, _) = canonical(name, 1.into());
    let part = name.strip_prefix("from_").or(name.strip_prefix("to_")).unwrap_or(&name);
    let Some(fields) = Body::fields_of(kind) else { return is_envelope(&name) };
    is_envelope(&name)
        || fields.iter().any(|field| field.name == name)
        || kind.starts_with("model.") && Candidate::has_part(part)
        || kind == "tool.attempt" && name == "code"
        || kind == "run.finished" && name == "message"
        || kind == "model.attempt" && ledger::WAITS.contains(&&*name)
}

fn is_envelope(name: &str) -> bool {
    matches!(name, "v" | "ts" | "run_id") || ENVELOPE.iter().any(|field| field.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_spelling_that_is_read_is_known() {
        let known = |line: Value| {
            let Value::Object(mut line) = line else { return Vec::new() };
            retain(&mut line, &mut |_, known, _| known);
            line.keys().cloned().collect()
        };
        assert_eq!(
            known(json!({"eventType": "model_retry", "sessionId": "r", "backoff_sec": 2, "prompt": "x",
                "data": {"statusCode": 503, "toProvider": "p", "text": "y"}})),
            ["backoff_sec", "data", "eventType", "sessionId"]
        );
        let mut line =
            json!({"type": "tool.calls", "run_id": "r", "attempts": [{"code": "E", "output": "x"}]});
        let Some(object) = line.as_object_mut() else { return };
        retain(object, &mut |_, known, _| known);
        assert_eq!(line["attempts"], json!([{"code": "E"}]));
        let ledger = json!({"type": "model.failed", "run_id": "r", "error": "x",
            "attempts": [{"status": 503, "delay_before_next_ms": 5, "output": "x"}]});
        let Value::Object(mut line) = ledger else { return };
        retain(&mut line, &mut |_, known, _| known);
        assert_eq!(line["attempts"], json!([{"status": 503, "delay_before_next_ms": 5}]));
        assert_eq!(
            known(json!({"type": "run.finished", "run_id": "r", "error": "x", "detail": "y"})),
            ["error", "run_id", "type"]
        );
        assert_eq!(
            known(json!({"type": "my.thing", "seq": 3, "text": "x", "run_id": "r"})),
            ["run_id", "seq", "type"]
        );
    }
}
