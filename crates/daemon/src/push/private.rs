//! What of a pushed body is not kept: what a person, a model or a tool said, and credentials.
//!
//! What the schema knows of an event stays, and so do attributes that are not private by name; credentials inside texts are
//! cut out of both. Ids and names stay as they are, since records are told apart and joined by them. Not for: what a
//! record means (the adapters know that).

use retryscope_adapters::{is_read_body, listed_body};
use retryscope_analysis::without_credentials;
use retryscope_events::known;
use serde_json::{Map, Value, json};

/// Last parts of names of what was said: messages, tool calls and whole bodies.
const SAID: &[&str] = &[
    "prompt",
    "prompts",
    "user_prompt",
    "system_prompt",
    "completion",
    "completions",
    "messages",
    "input_messages",
    "output_messages",
    "system_instructions",
    "instructions",
    "content",
    "text",
    "thinking",
    "arguments",
    "args",
    "input",
    "output",
    "result",
    "tool_input",
    "tool_output",
    "tool_parameters",
    "tool_result",
    "tool_definitions",
    "definitions",
    "command",
    "full_command",
    "bash_command",
    "stdout",
    "stderr",
    "body",
    "request_body",
    "response_body",
];

/// Ends of names of credentials.
const CREDENTIALS: &[&str] = &[
    "authorization",
    "cookie",
    "api_key",
    "apikey",
    "password",
    "passwd",
    "secret",
    "credential",
    "credentials",
    "private_key",
    "access_key",
    "access_token",
    "refresh_token",
    "id_token",
    "auth_token",
    "bearer_token",
    "session_token",
];

/// Names and keys: texts by which records are told apart, joined and counted.
const NAMES: &[&str] = &[
    "type",
    "agent",
    "agent_version",
    "writer",
    "turn",
    "provider",
    "model",
    "alias",
    "requested_model",
    "input_hash",
    "action_key",
    "idempotency_key",
];

/// Longest text of a field that the schema does not know, in bytes.
const UNKNOWN_TEXT: usize = 128;

/// Returns an event without what is private; the line as it stands if there is nothing.
pub(super) fn event(line: &[u8]) -> Vec<u8> {
    let Ok(Value::Object(said)) = serde_json::from_slice::<Value>(line) else { return line.to_vec() };
    let mut kept = said.clone();
    known::retain(&mut kept, &mut |name, is_known, value| {
        let keeps = is_known || is_harmless(name, value);
        clean(name, value);
        keeps
    });
    // A key that stands twice has a value that is not among those that were read.
    let hides = std::str::from_utf8(line).is_ok_and(|text| without_credentials(text) != text);
    if kept == said && !hides { line.to_vec() } else { Value::Object(kept).to_string().into_bytes() }
}

/// Returns whether a field that the schema does not know may stay: a number, or a short text that is not private by name.
fn is_harmless(name: &str, value: &Value) -> bool {
    match value {
        // What says something of a known event says what went wrong; of an unknown one it may be what was asked.
        Value::String(text) => text.len() <= UNKNOWN_TEXT && !is_private(name) && plain(name) != "message",
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    }
}

/// Takes what is private out of an export.
pub(super) fn export(value: &mut Value) {
    clean("", value);
}

/// Takes what is private out of a value of this name.
fn clean(name: &str, value: &mut Value) {
    match value {
        Value::Array(list) => {
            list.retain(|member| attribute(member).is_none_or(|key| !is_private(key)));
            for member in list {
                clean(name, member);
            }
        }
        Value::Object(members) => {
            if let Some(records) = members.get_mut("logRecords").and_then(Value::as_array_mut) {
                records.iter_mut().filter_map(Value::as_object_mut).for_each(without_body);
            }
            let key = attribute_of(members).map(str::to_owned);
            // The body of a record that is still there is read.
            let is_body = |name: &str, value: &Value| name == "body" && value.get("stringValue").is_some();
            members.retain(|name, value| key.is_some() || is_body(name, value) || !is_private(name));
            for (member, value) in members.iter_mut() {
                // Around a value stands only of which kind it is.
                let name = if member.ends_with("Value") { name } else { member };
                clean(key.as_deref().unwrap_or(name), value);
            }
        }
        Value::String(text) if !is_name(name) => {
            let without = without_credentials(text);
            if without != *text {
                *text = without;
            }
        }
        _ => {}
    }
}

/// Takes out the text of a log record, unless an adapter reads it. Of a list of texts what is read of it stays, as
/// attributes.
fn without_body(record: &mut Map<String, Value>) {
    let listed = record.get("body").and_then(listed_body);
    if let Some((message, fields)) = listed.map(|(message, fields)| (message.to_owned(), fields)) {
        let attribute = |(key, value): (String, String)| json!({"key": key, "value": {"stringValue": value}});
        let attributes = record.entry("attributes").or_insert_with(|| json!([]));
        if let Some(attributes) = attributes.as_array_mut() {
            attributes.extend(fields.into_iter().map(attribute));
        }
        record.insert("body".to_owned(), json!({"stringValue": message}));
        return;
    }
    let body = record.get("body").and_then(|body| body.get("stringValue")).and_then(Value::as_str);
    if !body.is_some_and(is_read_body) {
        record.remove("body");
    }
}

/// Returns the key of an attribute, as OTLP writes them.
fn attribute(value: &Value) -> Option<&str> {
    attribute_of(value.as_object()?)
}

fn attribute_of(members: &Map<String, Value>) -> Option<&str> {
    members.get("value")?;
    members.get("key")?.as_str()
}

/// Returns the last part of a name in one spelling: `http.request.header.X-Api-Key` is `x_api_key`.
fn plain(name: &str) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    let mut out = String::with_capacity(last.len() + 2);
    let mut after_small = false;
    for c in last.chars() {
        if c.is_ascii_uppercase() && after_small {
            out.push('_');
        }
        after_small = c.is_ascii_lowercase();
        out.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    out
}

/// Returns whether what stands under a name is never kept.
fn is_private(name: &str) -> bool {
    let last = plain(name);
    let lower = name.to_ascii_lowercase();
    SAID.contains(&last.as_str())
        || CREDENTIALS.iter().any(|end| last.ends_with(end))
        // What a request carries besides its body: whatever its header is called, it may prove who sends it.
        || lower.starts_with("http.request.header.")
        // How OpenInference calls messages.
        || matches!(lower.as_str(), "input.value" | "output.value")
}

fn is_name(name: &str) -> bool {
    let name = plain(name);
    name.ends_with("id") || NAMES.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "sk-ant-api03-AAAABBBBCCCCDDDD1234";

    fn kept(line: &Value) -> Value {
        serde_json::from_slice(&event(line.to_string().as_bytes())).unwrap_or_default()
    }

    #[test]
    fn an_event_keeps_what_the_schema_knows() {
        let line = json!({"v": 1, "type": "model.failed", "ts": "2026-11-30T10:00:00.000Z", "run_id": "r", "seq": 4,
            "event_id": SECRET, "writer": "w", "statusCode": 401, "candidate": {"model": "m"},
            "message": format!("Incorrect API key provided: {SECRET}."),
            "prompt": "PLANTED", "systemPrompt": "PLANTED", "api-key": "PLANTED", "note": "x".repeat(200),
            "more": {"a": "PLANTED"}, "short": "yes", "n": 7});
        assert_eq!(
            kept(&line),
            json!({"v": 1, "type": "model.failed", "ts": "2026-11-30T10:00:00.000Z", "run_id": "r", "seq": 4,
                "event_id": SECRET, "writer": "w", "statusCode": 401, "candidate": {"model": "m"},
                "message": "Incorrect API key provided: [redacted].", "short": "yes", "n": 7})
        );
        let said = json!({"type": "chat.said", "run_id": "r", "message": "PLANTED", "text": "PLANTED"});
        assert_eq!(kept(&said), json!({"type": "chat.said", "run_id": "r"}));
    }

    #[test]
    fn an_event_without_anything_private_stays_as_it_was_written() {
        let line = br#"{ "type":"model.response", "run_id": "r", "usage":{"input_tokens":3}, "seq":1e0 }"#;
        assert_eq!(event(line), line);
        let twice = format!(r#"{{"type":"model.failed","run_id":"r","message":"{SECRET}","message":"x"}}"#);
        assert!(!String::from_utf8_lossy(&event(twice.as_bytes())).contains(SECRET));
    }

    #[test]
    fn free_forms_and_ledgers_lose_what_is_private_too() {
        let line = json!({"type": "tool.calls", "run_id": "r",
            "attempts": [{"tool": "t", "status": "failed", "arguments": "PLANTED"}]});
        assert_eq!(kept(&line)["attempts"], json!([{"tool": "t", "status": "failed"}]));
        let line =
            json!({"type": "run.started", "run_id": "r", "tools": [{"name": "t", "input": "PLANTED"}]});
        assert_eq!(kept(&line)["tools"], json!([{"name": "t"}]));
    }

    #[test]
    fn names_tell_what_is_private() {
        for name in [
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.prompt",
            "gen_ai.prompt.0.content",
            "gen_ai.completion",
            "gen_ai.system_instructions",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.definitions",
            "input.value",
            "authorization",
            "Proxy-Authorization",
            "http.request.header.x-anything",
            "http.response.header.set-cookie",
            "x-goog-api-key",
            "OPENAI_API_KEY",
            "clientSecret",
        ] {
            assert!(is_private(name), "{name}");
        }
        for name in [
            "prompt.id",
            "prompt_length",
            "input_tokens",
            "gen_ai.usage.output_tokens",
            "output_started",
            "token_type",
            "error.message",
            "session.id",
            "auth.header_attached",
            "attempt",
        ] {
            assert!(!is_private(name), "{name}");
        }
    }

    #[test]
    fn bodies_of_records_stay_only_where_they_are_read() {
        let record = |body: &str| json!({"timeUnixNano": "1", "body": {"stringValue": body}});
        let mut body = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [
            record("stream error"), record("PLANTED"), record("stream PLANTED"), {"body": {"kvlistValue": {}}},
        ]}]}]});
        export(&mut body);
        let kept = body.pointer("/resourceLogs/0/scopeLogs/0/logRecords").cloned();
        assert_eq!(
            kept,
            Some(json!([record("stream error"), {"timeUnixNano": "1"}, {"timeUnixNano": "1"}, {}]))
        );
    }

    #[test]
    fn of_a_list_of_texts_what_is_read_stays_as_attributes() {
        let record = |message: &str| {
            let fields =
                format!(r#"{{"session.id":"ses_1","title":"PLANTED","error":{{"error":bad key {SECRET}}}}}"#);
            json!({"timeUnixNano": "1", "body": {"arrayValue": {"values": [
                {"stringValue": message}, {"stringValue": fields},
            ]}}})
        };
        let mut body = json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [
            record("stream error"), record("PLANTED"),
        ]}]}]});
        export(&mut body);
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let attributes = [text("session.id", "ses_1"), text("error.error", "bad key [redacted]")];
        assert_eq!(
            body.pointer("/resourceLogs/0/scopeLogs/0/logRecords").cloned(),
            Some(json!([
                {"timeUnixNano": "1", "attributes": attributes, "body": {"stringValue": "stream error"}},
                {"timeUnixNano": "1"},
            ]))
        );
    }

    #[test]
    fn credentials_are_cut_out_of_attributes_and_ids_stay() {
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let mut body = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{
            "traceId": "eyJ0123456789abcdef", "status": {"message": format!("Bearer {SECRET}")},
            "attributes": [text("error", &format!("invalid {SECRET}")), text("session.id", SECRET), text("prompt", "x")],
        }]}]}]});
        export(&mut body);
        let span = body.pointer("/resourceSpans/0/scopeSpans/0/spans/0").cloned();
        let attributes = [text("error", "invalid [redacted]"), text("session.id", SECRET)];
        assert_eq!(
            span,
            Some(json!({"traceId": "eyJ0123456789abcdef", "status": {"message": "Bearer [redacted]"},
                "attributes": attributes}))
        );
    }
}
