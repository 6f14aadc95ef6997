//! The JSON Schema of one line of `events.jsonl`, made from the same declarations as the types.
//!
//! Not for: checking lines (see [`crate::check`], which says line and column). Additions need no new major version, so
//! the schema allows fields and types that it does not list.

use serde_json::{Map, Value, json};

use crate::body::{Body, Field};
use crate::envelope::{ENVELOPE, VERSION};
use crate::read::flat_parts;
use crate::values::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Sent,
    Source, ToolStatus,
};
use crate::write::MESSAGE_LIMIT;

/// Returns the schema (JSON Schema 2020-12).
pub fn json_schema() -> Value {
    let mut envelope = Map::new();
    envelope.insert("v".into(), json!({"const": VERSION, "description": "Major version of the schema."}));
    envelope.insert(
        "type".into(),
        json!({"type": "string", "description": "What happened.", "examples": Body::TYPES}),
    );
    envelope.insert(
        "ts".into(),
        json!({"type": "string", "format": "date-time", "description": "When it happened: RFC 3339 in UTC with at least milliseconds."}),
    );
    envelope.insert(
        "run_id".into(),
        json!({"type": "string", "minLength": 1, "description": "The run it belongs to."}),
    );
    add(&mut envelope, ENVELOPE);
    let bodies: Vec<Value> = Body::TYPES
        .iter()
        .map(|kind| {
            let mut own = Map::new();
            add(&mut own, Body::fields_of(kind).unwrap_or_default());
            add(&mut own, &flat_candidate(kind).collect::<Vec<_>>());
            json!({
                "if": {"properties": {"type": {"const": kind}}},
                "then": {"description": Body::doc_of(kind).trim(), "properties": own},
            })
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "retryscope events.jsonl, version 1",
        "description": "One line of events.jsonl. Unknown types and fields are kept by readers.",
        "type": "object",
        "required": ["v", "type", "ts", "run_id"],
        "properties": envelope,
        "allOf": bodies,
    })
}

/// Returns the parts of the candidate that may stand flat in an event of this type.
pub(crate) fn flat_candidate(kind: &str) -> impl Iterator<Item = Field> + use<> {
    let is_flat = flat_parts(kind).iter().any(|(prefix, _)| prefix.is_empty());
    let parts = Candidate::FIELDS.iter().filter(|part| matches!(part.name, "provider" | "model"));
    parts.copied().filter(move |_| is_flat)
}

fn add(properties: &mut Map<String, Value>, fields: &[Field]) {
    for field in fields {
        properties.insert(field.name.into(), of_field(field));
    }
}

/// Returns the schema of a field.
fn of_field(field: &Field) -> Value {
    let mut schema = of_kind(field.kind);
    if let Value::Object(members) = &mut schema {
        if field.name == "message" {
            members.insert("maxLength".into(), MESSAGE_LIMIT.into());
        }
        members.insert("description".into(), json!(field.doc.trim()));
    }
    schema
}

/// Returns the schema of a type.
fn of_kind(kind: &str) -> Value {
    if let Some(words) = words_of(kind) {
        // Writers in languages without such an enum write the JSON booleans.
        return if kind == "Sent" {
            json!({"enum": ["true", "false", "unknown", true, false]})
        } else {
            json!({"enum": words})
        };
    }
    if let Some(parts) = Field::parts(kind) {
        let mut properties = Map::new();
        add(&mut properties, parts);
        return json!({"type": "object", "properties": properties});
    }
    if let Some(element) = Field::element(kind) {
        return json!({"type": "array", "items": of_kind(element)});
    }
    match kind {
        "String" => json!({"type": "string"}),
        "bool" => json!({"type": "boolean"}),
        "f64" => json!({"type": "number"}),
        "u64" => json!({"type": "integer", "minimum": 0}),
        "u16" => json!({"type": "integer", "minimum": 100, "maximum": 599}),
        "DateTime<Utc>" => json!({"type": "string", "format": "date-time"}),
        // `Value`: free form.
        _ => json!({}),
    }
}

/// Returns the words of a closed set; `None` for a type that is none.
pub(crate) fn words_of(kind: &str) -> Option<Vec<&'static str>> {
    fn of<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> Vec<&'static str> {
        all.iter().map(|member| word(*member)).collect()
    }
    Some(match kind {
        "Layer" => of(Layer::ALL, Layer::as_str),
        "Source" => of(Source::ALL, Source::as_str),
        "AttemptKind" => of(AttemptKind::ALL, AttemptKind::as_str),
        "AttemptOutcome" => of(AttemptOutcome::ALL, AttemptOutcome::as_str),
        "ErrorSource" => of(ErrorSource::ALL, ErrorSource::as_str),
        "DelaySource" => of(DelaySource::ALL, DelaySource::as_str),
        "FallbackKind" => of(FallbackKind::ALL, FallbackKind::as_str),
        "Decision" => of(Decision::ALL, Decision::as_str),
        "Sent" => of(Sent::ALL, Sent::as_str),
        "ToolStatus" => of(ToolStatus::ALL, ToolStatus::as_str),
        _ => return None,
    })
}
