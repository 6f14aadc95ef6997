//! From the raw failure that a source holds to a classified one. Only here is anything classified.
//!
//! A class that the writer of an event stated is used only where there is neither status nor text to judge. Texts are
//! redacted and bounded before they are kept; headers and bodies are used and dropped.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, Utc};
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
    /// What a clock will show then, where the text names no time zone and so no moment.
    #[serde(default)]
    pub reset_clock: Option<NaiveDateTime>,
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

    /// Returns whether the log holds no word of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.reason == Reason::NoDetail
            && self.class == Class::Unknown
            && self.status.is_none()
            && self.message.is_none()
            && self.code.is_none()
    }

    /// Returns whether something came that is no answer of a model, which is often somebody in between.
    pub(crate) fn is_no_answer_of_a_model(&self) -> bool {
        self.rule.ends_with("/bad-answer")
    }

    /// Returns whether the answer was cut at the limit that the agent itself had set for it.
    pub(crate) fn is_output_limit(&self) -> bool {
        self.rule.ends_with("/output-limit")
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
    let judged = taxonomy::classify(&taxonomy::Failure {
        provider: said.provider,
        status: said.status,
        headers: &headers,
        body: said.raw.and_then(|raw| raw.body.as_deref()),
        code: said.code,
        message: said.message,
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
        reset_clock: judged.reset_clock.filter(|_| said.reset_at.is_none()),
        upstream_request_id: said.upstream_request_id.map(redact),
        rule: judged.rule.to_owned(),
    };
    let nothing_to_judge = said.status.is_none() && said.message.is_none() && said.code.is_none();
    if let (true, Some(class)) =
        (nothing_to_judge || failure.says_nothing(), said.class.and_then(|c| c.parse::<Class>().ok()))
    {
        failure.class = class;
        let reason = said
            .reason
            .and_then(|reason| reason.parse::<Reason>().ok())
            .filter(|r| class.reasons().contains(r));
        failure.reason = reason.unwrap_or(Reason::NoDetail);
        failure.retryable = said.retryable.unwrap_or_else(|| class.is_retryable());
        "stated by the log".clone_into(&mut failure.rule);
    }
    Failure(Arc::new(failure))
}

/// Failures that were judged last, to share them with the next ones that say the same: in an outage all do.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    known: Vec<(Words, Failure)>,
    /// Where the next one goes.
    next: usize,
}

/// How many are kept.
const RECENT: usize = 8;

/// A longer text is not kept for this.
const LONGEST_TEXT: usize = 2_048;

/// What was said of a failure, but for what each one says anew.
#[derive(Debug)]
struct Words {
    provider: Option<String>,
    status: Option<u16>,
    code: Option<String>,
    message: Option<String>,
    class: Option<String>,
    reason: Option<String>,
    retryable: Option<bool>,
    retry_after_ms: Option<u64>,
}

impl Words {
    fn of(said: &Said<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            provider: owned(said.provider),
            status: said.status,
            code: owned(said.code),
            message: owned(said.message),
            class: owned(said.class),
            reason: owned(said.reason),
            retryable: said.retryable,
            retry_after_ms: said.retry_after_ms,
        }
    }

    fn are_those_of(&self, said: &Said<'_>) -> bool {
        self.status == said.status
            && self.message.as_deref() == said.message
            && self.provider.as_deref() == said.provider
            && self.code.as_deref() == said.code
            && self.class.as_deref() == said.class
            && self.reason.as_deref() == said.reason
            && self.retryable == said.retryable
            && self.retry_after_ms == said.retry_after_ms
    }
}

impl Recent {
    /// Classifies; see [`judge`].
    pub(crate) fn judge(&mut self, said: &Said<'_>) -> Failure {
        let is_long = |text: Option<&str>| text.is_some_and(|text| text.len() > LONGEST_TEXT);
        if said.raw.is_some() || is_long(said.message) || is_long(said.code) {
            return judge(said);
        }
        let known = self.known.iter().find(|(words, _)| words.are_those_of(said)).map(|(_, known)| known);
        let mut failure = known.cloned().unwrap_or_else(|| self.judge_anew(said));
        if said.reset_at.is_some() {
            failure.reset_at = said.reset_at;
            failure.reset_clock = None;
        }
        if let Some(id) = said.upstream_request_id {
            failure.upstream_request_id = Some(redact(id));
        }
        failure
    }

    /// Classifies what the words say, without what each failure says anew.
    fn judge_anew(&mut self, said: &Said<'_>) -> Failure {
        let words = Said { retry_after_ms: None, reset_at: None, upstream_request_id: None, ..*said };
        let mut failure = judge(&words);
        // A wait that a text states may depend on when it is said; a text that states none at a known time never states one.
        let is_timeless = said.at.is_some() && failure.retry_after_ms.is_none() && failure.reset_at.is_none();
        if said.retry_after_ms.is_some() {
            failure.retry_after_ms = said.retry_after_ms;
        }
        if is_timeless {
            self.keep(Words::of(said), failure.clone());
        }
        failure
    }

    fn keep(&mut self, words: Words, failure: Failure) {
        if self.known.len() < RECENT {
            self.known.push((words, failure));
        } else {
            self.known[self.next] = (words, failure);
        }
        self.next = (self.next + 1) % RECENT;
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    /// Whatever was judged before, a failure is what it is by itself.
    #[test]
    fn what_is_shared_is_what_is_judged_alone() {
        let start = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        let messages = [
            None,
            Some("The model is overloaded"),
            Some("Rate limit reached. Please try again in 1.5s."),
            Some("Usage limit reached, resets at 2026-10-01T00:00:00Z"),
            Some("Usage limit reached, try again at Oct 1st, 2026 0:00"),
            Some(r#"{"error":{"type":"rate_limit_error","resets_in_seconds":30}}"#),
            Some("insufficient_quota"),
            Some("connection reset by peer"),
        ];
        let mut recent = Recent::default();
        for round in 0..40_u64 {
            for (place, message) in messages.iter().enumerate() {
                let varies = round + place as u64;
                let every = |n: u64| varies.is_multiple_of(n);
                let id = format!("req_{round}");
                let said = Said {
                    provider: (!every(3)).then_some("openai"),
                    status: [None, Some(429), Some(503)][usize::try_from(varies % 3).unwrap()],
                    message: *message,
                    class: every(2).then_some("exhausted"),
                    retryable: every(5).then_some(true),
                    retry_after_ms: every(4).then_some(varies),
                    reset_at: every(7).then_some(start + TimeDelta::hours(1)),
                    upstream_request_id: (!every(2)).then_some(&id),
                    at: (!every(6)).then(|| start + TimeDelta::minutes(i64::try_from(round).unwrap())),
                    ..Said::default()
                };
                assert_eq!(recent.judge(&said), judge(&said), "{said:?}");
            }
        }
        assert!(!recent.known.is_empty() && recent.known.len() <= RECENT);
    }

    #[test]
    fn rules_that_are_known_by_name_are_there() {
        let judged = |text: &str| judge(&Said { message: Some(text), ..Said::default() });
        assert!(judged("Invalid JSON response").is_no_answer_of_a_model());
        assert!(judged("The response exceeded the 9000 output token maximum").is_output_limit());
        let other = judged("The model is overloaded");
        assert!(!other.is_no_answer_of_a_model() && !other.is_output_limit());
    }

    #[test]
    fn the_code_counts_beside_the_text() {
        let said =
            Said { code: Some("StreamTruncated"), message: Some("Connection error."), ..Said::default() };
        assert_eq!(judge(&said).reason, Reason::StreamCut);
        assert_eq!(judge(&Said { code: None, ..said }).reason, Reason::Connect);
        assert_eq!(judge(&Said { code: Some("ECONNRESET"), ..Said::default() }).reason, Reason::Reset);
    }

    #[test]
    fn an_outage_is_one_failure() {
        let mut recent = Recent::default();
        let mut said =
            Said { status: Some(503), message: Some("The model is overloaded"), ..Said::default() };
        said.at = DateTime::from_timestamp(1_790_000_000, 0);
        let first = recent.judge(&said);
        said.at = DateTime::from_timestamp(1_790_000_005, 0);
        assert!(Arc::ptr_eq(&first.0, &recent.judge(&said).0));
    }
}
