//! From the raw failure a source holds to a classified one.
use chrono::{DateTime, Utc};
use retryscope_record::RawFailure;
use serde::{Deserialize, Serialize};

/// A failed attempt's error, classified.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Failure class.
    pub class: String,
    /// Reason within the class.
    pub reason: String,
    /// Whether a retry inside the run can help.
    pub retryable: bool,
    /// HTTP status; `None` without an answer or where the log lost it.
    pub status: Option<u16>,
    /// The provider's error code.
    pub code: Option<String>,
    /// The provider's text, redacted, at most 2 KiB.
    pub message: Option<String>,
    /// Wait that the provider stated.
    pub retry_after_ms: Option<u64>,
    /// When the quota resets.
    pub reset_at: Option<DateTime<Utc>>,
    /// The provider's request id.
    pub upstream_request_id: Option<String>,
}

/// What a source says of a failure.
#[derive(Debug, Default)]
pub(crate) struct Said<'a> {
    pub(crate) provider: Option<&'a str>,
    pub(crate) status: Option<u16>,
    pub(crate) code: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
    pub(crate) class: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) retryable: Option<bool>,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) reset_at: Option<DateTime<Utc>>,
    pub(crate) upstream_request_id: Option<&'a str>,
    pub(crate) raw: Option<&'a RawFailure>,
    pub(crate) at: Option<DateTime<Utc>>,
}

/// Classifies.
pub(crate) fn judge(said: &Said<'_>) -> Failure {
    let status = said.status;
    let (class, reason, retryable) = match status {
        Some(429) => ("throttled", "rate_limit", true),
        Some(401 | 403) => ("auth", "invalid_key", false),
        Some(400..=499) => ("invalid_request", "bad_request", false),
        Some(500..=599) => ("transient", "server_error", true),
        _ => ("unknown", "no_detail", false),
    };
    let _ = (said.provider, said.class, said.reason, said.retryable, said.raw, said.at);
    Failure {
        class: class.into(),
        reason: reason.into(),
        retryable,
        status,
        code: said.code.map(str::to_owned),
        message: said.message.map(str::to_owned),
        retry_after_ms: said.retry_after_ms,
        reset_at: said.reset_at,
        upstream_request_id: said.upstream_request_id.map(str::to_owned),
    }
}
