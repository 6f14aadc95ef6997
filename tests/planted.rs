//! Logs with credentials in every place where a sentence may stand, for the tests that look for them in what comes out.

use retryscope_events::json_schema;
use serde_json::{Map, Value, json};

/// Credentials of the forms that providers and services give them.
pub(crate) const SECRETS: &[&str] = &[
    "sk-ant-api03-PlantedPlantedPlanted0123456789-PlantedAA",
    "sk-proj-Planted0123456789Planted0123456789",
    "sk-or-v1-0123456789abcdef0123456789abcdef0123456789abcdef",
    "xai-Planted0123456789Planted0123456789",
    "gsk_Planted0123456789Planted0123456789",
    "hf_Planted0123456789Planted012345",
    "AIzaPlanted0123456789Planted0123456789",
    "AKIAPLANTED012345678",
    "ghp_Planted0123456789Planted0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIwMTIzIn0.Planted0123456789",
];

/// What stands behind a text longer than any that is kept.
pub(crate) const TAIL: &str = "PLANTED-TAIL";

/// A sentence with a credential, longer than what is kept.
fn sentence(secret: &str) -> String {
    format!("the server refused {secret} at last. {} {TAIL}", "long ".repeat(600))
}

/// Logs, each with a name: one of the event schema with a credential in each text of each record, and native ones.
pub(crate) fn logs(secret: &str) -> Vec<(&'static str, String)> {
    let text = sentence(secret);
    let line = |records: &[Value]| records.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let claude = [
        json!({"type": "system", "subtype": "init", "session_id": "planted-claude", "claude_code_version": "2.1.200", "model": "m"}),
        json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "session_id": "planted-claude", "num_turns": 1,
            "result": text, "errors": [text], "terminal_reason": text, "api_error_status": 401}),
    ];
    let codex = [
        json!({"type": "thread.started", "thread_id": "planted-codex"}),
        json!({"type": "turn.started"}),
        json!({"type": "error", "message": text}),
        json!({"type": "turn.failed", "error": {"message": text}}),
    ];
    let rollout = [
        json!({"timestamp": "2026-11-01T10:00:00.000Z", "type": "session_meta", "payload": {"id": "0199aaaa-0000-7000-8000-000000000001", "timestamp": "2026-11-01T10:00:00.000Z", "cli_version": "0.140.0", "originator": "codex_exec", "model_provider": "openai"}}),
        json!({"timestamp": "2026-11-01T10:00:01.000Z", "type": "event_msg", "payload": {"type": "task_started", "turn_id": "t1"}}),
        json!({"timestamp": "2026-11-01T10:00:02.000Z", "type": "event_msg", "payload": {"type": "error", "message": text, "codex_error_info": "other"}}),
        json!({"timestamp": "2026-11-01T10:00:03.000Z", "type": "event_msg", "payload": {"type": "task_complete", "turn_id": "t1", "last_agent_message": null}}),
    ];
    let pi = [
        json!({"type": "session", "version": 3, "id": "planted-pi", "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/home/dev"}),
        json!({"type": "message", "id": "e1", "parentId": null, "timestamp": "2026-11-01T10:00:01.000Z",
            "message": {"role": "user", "content": [], "timestamp": 1_793_527_201_000_u64}}),
        json!({"type": "message", "id": "e2", "parentId": "e1", "timestamp": "2026-11-01T10:00:02.000Z",
            "message": {"role": "assistant", "content": [], "provider": "openai", "model": "m", "api": "openai-responses",
                "stopReason": "error", "errorMessage": text, "timestamp": 1_793_527_201_500_u64}}),
    ];
    vec![
        ("events.jsonl", own(&text)),
        ("claude.jsonl", line(&claude)),
        ("codex.jsonl", line(&codex)),
        ("rollout-2026-11-01T10-00-00-0199aaaa-0000-7000-8000-000000000001.jsonl", line(&rollout)),
        ("pi.jsonl", line(&pi)),
    ]
}

/// One record of each type of the event schema, in an order in which runs go, with `text` wherever words stand.
fn own(text: &str) -> String {
    let schema = json_schema();
    let mut lines = String::new();
    for (second, body) in schema["allOf"].as_array().unwrap().iter().enumerate() {
        let kind = body["if"]["properties"]["type"]["const"].as_str().unwrap();
        let mut record = Map::new();
        for (name, field) in body["then"]["properties"].as_object().unwrap() {
            if let Some(value) = planted(name, field, text) {
                record.insert(name.clone(), value);
            }
        }
        record.extend([
            ("v".into(), json!(1)),
            ("type".into(), json!(kind)),
            ("ts".into(), json!(format!("2026-11-01T10:00:{second:02}.000Z"))),
            ("run_id".into(), json!("planted")),
            ("agent".into(), json!("demo")),
            ("agent_version".into(), json!(text)),
        ]);
        match kind {
            "model.attempt" | "run.finished" => record.insert("outcome".into(), json!("failed")),
            "tool.attempt" => record.insert("status".into(), json!("failed")),
            _ => None,
        };
        lines.push_str(&Value::Object(record).to_string());
        lines.push('\n');
    }
    lines
}

/// Returns a field's value with `text` in it; `None` for ids and hashes, which are compared, and for what is no text.
fn planted(name: &str, field: &Value, text: &str) -> Option<Value> {
    let candidate = json!({"provider": text, "model": text, "alias": text, "endpoint": text, "region": text,
        "account": text, "transport": text});
    let is_id = ["_id", "_hash", "_key"].iter().any(|end| name.ends_with(end));
    match field["type"].as_str() {
        Some("string") if is_id || field.get("format").is_some() || field.get("enum").is_some() => None,
        Some("string") => Some(json!(text)),
        Some("array") if name == "candidates" => Some(json!([candidate])),
        Some("array") if name == "tools" => Some(json!([{"name": text}])),
        Some("array") => Some(json!([text])),
        Some("object") if matches!(name, "candidate" | "from" | "to") => Some(candidate),
        None if field.get("enum").is_none() => Some(json!({"ok": false, "reason": text})),
        _ => None,
    }
}
