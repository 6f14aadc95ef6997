//! What the fields of an error's object are for, by their names.

use serde_json::Value;

/// Fields whose value is a code, not a sentence.
pub(super) const CODE_KEYS: &[&str] = &[
    "type",
    "code",
    "status",
    "reason",
    "error_code",
    "errorcode",
    "error_type",
    "errortype",
    "err_code",
    "name",
    "__type",
    ":exception-type",
    "exception",
    "exception_type",
    "finish_reason",
    "finishreason",
    "stop_reason",
    "stopreason",
    "blockreason",
    "block_reason",
    "native_finish_reason",
    "limit_type",
    "x-amzn-errortype",
];

/// Fields that hold what the upstream said.
pub(super) const CAUSE_KEYS: &[&str] =
    &["raw", "cause", "original_error", "upstream_error", "upstreambody", "inner", "body"];

/// Fields that name things or repeat the request: their words are no evidence.
pub(super) const SILENT_KEYS: &[&str] = &[
    "request_id",
    "requestid",
    "id",
    "url",
    "documentation_url",
    "help",
    "doc_url",
    "input",
    "prompt",
    "content",
    "delta",
    "arguments",
    "instructions",
    "tools",
    "messages",
    "model",
    "param",
    "loc",
    "path",
    "field",
    "stack",
    "user_id",
    "object",
    "plan_type",
    "provider_name",
    "timestamp",
    "domain",
    "service",
    "@type",
    "$fault",
    "link",
    "links",
    "text",
    "description",
    "cf-ray",
    "date",
];

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 8 && text.bytes().all(|b| b.is_ascii_digit())
}

pub(super) fn is_wait_field(name: &str) -> bool {
    name.contains("retry_after")
        || name.contains("retryafter")
        || name.contains("retry-after")
        || wait_unit(name).is_some()
        || matches!(name, "resets_at" | "reset_at" | "quotaresettimestamp")
        || name.starts_with("x-ratelimit-reset")
        || name.starts_with("x-codex-")
        || name.starts_with("anthropic-ratelimit-")
}

/// Milliseconds in one unit of what a field of a body states as a wait, however its name is spelled; `None` for a field
/// that states none.
pub(crate) fn wait_unit(name: &str) -> Option<u128> {
    /// What is left of the name without its unit, and whether it says so much only with one.
    const STEMS: &[(&str, bool)] = &[
        ("retrydelay", false),
        ("retryafter", false),
        ("retryin", false),
        ("retrywait", false),
        ("resetsin", true),
        ("resetin", true),
        ("wait", true),
        ("waittime", true),
    ];
    const UNITS: &[(&str, u128)] = &[
        ("milliseconds", 1),
        ("millis", 1),
        ("ms", 1),
        ("seconds", 1_000),
        ("secs", 1_000),
        ("sec", 1_000),
        ("s", 1_000),
        ("", 1_000),
    ];
    if !name.starts_with(['r', 'R', 'w', 'W']) {
        return None;
    }
    let plain: String =
        name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect();
    STEMS.iter().find_map(|(stem, needs_unit)| {
        let unit = plain.strip_prefix(stem)?;
        UNITS.iter().find(|(name, _)| *name == unit && !(*needs_unit && unit.is_empty())).map(|(_, ms)| *ms)
    })
}

/// A duration as protobuf prints it: `{"seconds": 12, "nanos": 500000000}`.
pub(super) fn protobuf_duration(map: &serde_json::Map<String, Value>) -> Option<String> {
    let nanos = map.get("nanos").map_or(Some(0), Value::as_u64)?;
    let seconds = map.get("seconds")?.as_u64()?;
    Some(format!("{seconds}.{nanos:09}s"))
}
