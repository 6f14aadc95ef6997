//! Entries that hold what was tried as a list: `attempts: [...]` in the end of a tool call or of a model request.
//!
//! Each element becomes an event of its own, as if the program had written it when it happened.

use serde_json::{Map, Value};

use crate::envelope::Event;
use crate::read::{ReadError, build, canonical};

/// Members of the entry that are said of each of its attempts, too.
const OF_EACH: [&str; 19] = [
    "run_id",
    "writer",
    "turn",
    "step",
    "agent",
    "agent_version",
    "agent_id",
    "parent_run_id",
    "root_run_id",
    "conversation_id",
    "host",
    "trace_id",
    "request_id",
    "candidate",
    "provider",
    "model",
    "endpoint",
    "account",
    "layer",
];

/// Names of the wait after an attempt.
pub(crate) const WAITS: [&str; 2] = ["delay_before_next_ms", "delay_ms"];

/// Returns the type of the attempts that an entry of this type may list.
pub(crate) fn of_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "model.response" | "model.failed" => Some("model.attempt"),
        _ => kind.starts_with("tool.").then_some("tool.attempt"),
    }
}

/// Returns the list of attempts, if the entry holds one.
pub(crate) fn take(kind: &str, fields: &mut Map<String, Value>) -> Option<Vec<Value>> {
    of_kind(kind)?;
    let list = fields.get_mut("attempts")?.as_array_mut()?;
    if !list.iter().all(Value::is_object) {
        return None;
    }
    let list = std::mem::take(list);
    fields.remove("attempts");
    Some(list)
}

/// Returns the events of an entry whose list was taken.
pub(crate) fn events(
    kind: &str,
    mut fields: Map<String, Value>,
    list: Vec<Value>,
) -> Result<Vec<Event>, ReadError> {
    let mut events = Vec::with_capacity(list.len() + 1);
    let count = list.len();
    for (n, attempt) in (1..).zip(list) {
        let Value::Object(attempt) = attempt else { continue };
        let attempt = attempt.into_iter().map(|(name, value)| canonical(&name, value));
        if kind.starts_with("tool.") {
            let mut merged = fields.clone();
            merged.extend(attempt);
            number(&mut merged, &fields, n);
            events.push(build("tool.attempt", merged)?);
        } else {
            let mut merged = Map::new();
            for name in OF_EACH {
                if let Some(value) = fields.get(name) {
                    merged.insert(name.to_owned(), value.clone());
                }
            }
            merged.extend(attempt);
            number(&mut merged, &fields, n);
            let is_last = n == count as u64;
            events.extend(model_attempt(merged, is_last && kind == "model.response")?);
        }
    }
    if !kind.starts_with("tool.") {
        fields.insert("attempts".into(), count.into());
        events.push(build(kind, fields)?);
    }
    Ok(events)
}

/// Gives an attempt its number, and an id by which a repeat of the entry is known.
fn number(attempt: &mut Map<String, Value>, entry: &Map<String, Value>, n: u64) {
    attempt.entry("attempt").or_insert_with(|| n.into());
    let id = match (entry.get("event_id"), entry.get("seq")) {
        (Some(Value::String(id)), _) => Some(id.clone()),
        (_, Some(seq)) => {
            let writer = entry.get("writer").and_then(Value::as_str).unwrap_or_default();
            Some(format!("{writer}:{seq}"))
        }
        _ => None,
    };
    attempt.remove("seq");
    if let Some(id) = id {
        attempt.insert("event_id".into(), format!("{id}#{n}").into());
    }
    if let Some(Value::String(request)) = entry.get("request_id") {
        attempt.entry("attempt_id").or_insert_with(|| format!("{request}#{n}").into());
    }
}

/// Returns an attempt of a model request, and the wait after it if one is told.
fn model_attempt(mut attempt: Map<String, Value>, answered: bool) -> Result<Vec<Event>, ReadError> {
    let refused = attempt.get("status").and_then(Value::as_u64).is_some_and(|status| status >= 400);
    let failed = refused || ["code", "class", "message"].iter().any(|name| attempt.contains_key(*name));
    let outcome = if answered && !failed { "ok" } else { "failed" };
    attempt.entry("outcome").or_insert_with(|| outcome.into());
    let wait = WAITS.into_iter().find_map(|name| attempt.remove(name));
    let wait = wait.map(|wait| {
        let mut retry = attempt.clone();
        retry.retain(|name, _| OF_EACH.contains(&name.as_str()) || name == "attempt");
        retry.insert("delay_ms".into(), wait);
        if let Some(Value::String(id)) = attempt.get("event_id") {
            retry.insert("event_id".into(), format!("{id}.wait").into());
        }
        retry
    });
    let mut events = vec![build("model.attempt", attempt)?];
    if let Some(wait) = wait {
        events.push(build("model.retry", wait)?);
    }
    Ok(events)
}
