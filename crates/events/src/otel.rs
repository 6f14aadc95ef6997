//! How events map to OpenTelemetry, for programs that already send spans.
//!
//! A logical request is an inference span, each attempt an HTTP client span below it:
//!
//! | event field | span | attribute |
//! | --- | --- | --- |
//! | `candidate.provider` | inference | `gen_ai.provider.name` |
//! | `candidate.model` / `requested_model` | inference | `gen_ai.response.model` / `gen_ai.request.model` |
//! | `operation` | inference | `gen_ai.operation.name` |
//! | `conversation_id` | inference | `gen_ai.conversation.id` |
//! | `usage.input_tokens`, `usage.output_tokens` | inference | `gen_ai.usage.input_tokens`, `gen_ai.usage.output_tokens` |
//! | `stop_reason` | inference | `gen_ai.response.finish_reasons` |
//! | `attempt` - 1 | attempt | `http.request.resend_count` (absent on the first) |
//! | `status` | attempt | `http.response.status_code` |
//! | `status`, else `reason` | both | `error.type` |
//! | `candidate.endpoint` | attempt | `server.address` |
//! | `trace_id`, `span_id`, `parent_span_id` | both | ids of the span itself |
//!
//! Names: <https://opentelemetry.io/docs/specs/semconv/gen-ai/> and
//! <https://opentelemetry.io/docs/specs/semconv/http/http-spans/>. Waits and layers have no standard name; they are kept
//! as `retryscope.delay_ms` and `retryscope.layer`.

use serde_json::Value;

use crate::body::Body;
use crate::envelope::Event;

/// Returns the span attributes of an attempt, a retry or the end of a logical request; empty for other events.
pub fn attributes(event: &Event) -> Vec<(&'static str, Value)> {
    fn put(out: &mut Vec<(&'static str, Value)>, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            out.push((name, value.into()));
        }
    }
    let mut out = Vec::new();
    let (candidate, status, reason) = match &event.body {
        Body::ModelAttempt(body) => {
            put(&mut out, "http.request.resend_count", body.attempt.filter(|n| *n > 1).map(|n| n - 1));
            put(&mut out, "retryscope.layer", body.layer.map(crate::Layer::as_str));
            (&body.candidate, body.status, &body.reason)
        }
        Body::ModelRetry(body) => {
            put(&mut out, "retryscope.delay_ms", body.delay_ms);
            put(&mut out, "retryscope.layer", body.layer.map(crate::Layer::as_str));
            (&body.candidate, body.status, &body.reason)
        }
        Body::ModelResponse(body) => {
            put(&mut out, "gen_ai.request.model", body.requested_model.clone());
            put(&mut out, "gen_ai.response.finish_reasons", body.stop_reason.clone());
            let usage = body.usage.clone().unwrap_or_default();
            put(&mut out, "gen_ai.usage.input_tokens", usage.input_tokens);
            put(&mut out, "gen_ai.usage.output_tokens", usage.output_tokens);
            (&body.candidate, None, &None)
        }
        Body::ModelFailed(body) => (&body.candidate, body.status, &body.reason),
        _ => return out,
    };
    if let Some(candidate) = candidate {
        put(&mut out, "gen_ai.provider.name", candidate.provider.clone());
        put(&mut out, "gen_ai.response.model", candidate.model.clone());
        put(&mut out, "server.address", candidate.endpoint.clone());
    }
    put(&mut out, "http.response.status_code", status);
    put(&mut out, "error.type", status.map(|s| s.to_string()).or_else(|| reason.clone()));
    put(&mut out, "gen_ai.conversation.id", event.conversation_id.clone());
    out
}
