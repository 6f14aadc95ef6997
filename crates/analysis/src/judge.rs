//! From the raw failure that a source holds to a classified one. Only here is anything classified.
//!
//! A class that the writer of an event stated is used only where there is neither status nor text to judge. Texts are
//! redacted and bounded before they are kept; headers and bodies are used and dropped.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_record::RawFailure;
use retryscope_taxonomy::{self as taxonomy, Class, Reason};
use serde::{Deserialize, Serialize};

use crate::redact::redact;

/// A failed attempt's error, classified. Copies share what it holds: one outage is the same error a thousand times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failure(Arc<Classified>);

/// What is known of an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Classified {
    /// Failure class.
    pub class: Class,
    /// Reason within the class.
    pub reason: Reason,
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
    /// The row of the taxonomy that decided, for example `anthropic/overloaded`.
    pub rule: String,
}

impl Deref for Failure {
    type Target = Classified;

    fn deref(&self) -> &Classified {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Classified {
        Arc::make_mut(&mut self.0)
    }
}

impl Classified {
    /// Returns whether nothing is known of it but that it happened.
    pub fn says_nothing(&self) -> bool {
        self.class == Class::Unknown
    }
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
    let headers: Vec<(&str, &str)> = said
        .raw
        .into_iter()
        .flat_map(|raw| &raw.headers)
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    // A code without any other text is the text: `rate_limit_error`, `ECONNRESET`.
    let message = said.message.or(said.code);
    let judged = taxonomy::classify(&taxonomy::Failure {
        provider: said.provider,
        status: said.status,
        headers: &headers,
        body: said.raw.and_then(|raw| raw.body.as_deref()),
        message,
        now: said.at,
    });
    let mut failure = Classified {
        class: judged.class,
        reason: judged.reason,
        retryable: judged.retryable,
        status: said.status,
        code: said.code.map(redact),
        message: said.message.map(redact),
        retry_after_ms: said.retry_after_ms.or(judged.retry_after_ms),
        reset_at: said.reset_at.or(judged.reset_at),
        upstream_request_id: said.upstream_request_id.map(redact),
        rule: judged.rule.to_owned(),
    };
    let nothing_to_judge = said.status.is_none() && message.is_none();
    if let (true, Some(class)) =
        (nothing_to_judge || failure.says_nothing(), said.class.and_then(|c| c.parse::<Class>().ok()))
    {
        failure.class = class;
        let reason = said
            .reason
            .and_then(|reason| reason.parse::<Reason>().ok())
            .filter(|r| class.reasons().contains(r));
        failure.reason = reason.or_else(|| class.reasons().first().copied()).unwrap_or(failure.reason);
        failure.retryable = said.retryable.unwrap_or_else(|| class.is_retryable());
        "stated by the log".clone_into(&mut failure.rule);
    }
    Failure(Arc::new(failure))
}

/// The last failure that was judged by its plain fields alone, to share it with the next one that says the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent(Option<(Plain, Failure)>);

/// The fields of a failure without text: what they mean does not depend on time.
#[derive(Debug, Clone, PartialEq)]
struct Plain {
    provider: Option<String>,
    status: Option<u16>,
    class: Option<String>,
    reason: Option<String>,
    retryable: Option<bool>,
    retry_after_ms: Option<u64>,
}

impl Recent {
    /// Classifies; see [`judge`].
    pub(crate) fn judge(&mut self, said: &Said<'_>) -> Failure {
        let is_plain = said.code.is_none()
            && said.message.is_none()
            && said.raw.is_none()
            && said.reset_at.is_none()
            && said.upstream_request_id.is_none();
        if !is_plain {
            return judge(said);
        }
        if let Some((plain, failure)) = &self.0
            && plain.provider.as_deref() == said.provider
            && plain.status == said.status
            && plain.class.as_deref() == said.class
            && plain.reason.as_deref() == said.reason
            && plain.retryable == said.retryable
            && plain.retry_after_ms == said.retry_after_ms
        {
            return failure.clone();
        }
        let failure = judge(said);
        let plain = Plain {
            provider: said.provider.map(str::to_owned),
            status: said.status,
            class: said.class.map(str::to_owned),
            reason: said.reason.map(str::to_owned),
            retryable: said.retryable,
            retry_after_ms: said.retry_after_ms,
        };
        self.0 = Some((plain, failure.clone()));
        failure
    }
}
