//! What goes into a classification and what comes out.

use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Serialize;

use crate::{Class, Reason};

/// One failed request, as far as a log or a client knows it.
///
/// Everything is optional: a log that kept only a printed line fills `message` and nothing else.
#[derive(Debug, Clone, Copy, Default)]
pub struct Failure<'a> {
    /// Who answered, by any of its usual names (`"anthropic"`, `"azure"`, `"integrate.api.nvidia.com"`).
    /// Without it, or with a name no table knows, the texts themselves are searched for the provider.
    pub provider: Option<&'a str>,
    /// The HTTP status, when one was seen. Without it the status is looked for in the texts.
    pub status: Option<u16>,
    /// Response headers as (name, value), in any case and order.
    pub headers: &'a [(&'a str, &'a str)],
    /// What the provider sent: JSON, an event of a stream, HTML, or anything else.
    pub body: Option<&'a str>,
    /// The code that a log or a client keeps beside the text (`usage_limit_exceeded`, `StreamTruncated`). A code that
    /// settles it goes before general words; without a text it is the text.
    pub code: Option<&'a str>,
    /// What a client printed about it, with whatever it wrapped around.
    pub message: Option<&'a str>,
    /// When the failure was seen. Only used to turn a wait into a date when no `date` header is there.
    pub now: Option<DateTime<Utc>>,
}

/// How sure a [`Judgement`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The status alone, or nothing, decided.
    Low,
    /// A wording or code that many providers share decided, or a coarse code of this one.
    Medium,
    /// This provider's own code or wording decided.
    High,
}

/// What a failure is, and what the provider said about trying again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The class.
    pub class: Class,
    /// The reason, one of [`Class::reasons`] of `class`.
    pub reason: Reason,
    /// Whether any retry inside the run can help. For [`Class::TooLarge`]: after shrinking. False for a throttle
    /// whose stated wait is over one hour.
    pub retryable: bool,
    /// The wait that the provider stated, in milliseconds, rounded up. `None` when it stated none; a client's own
    /// plan ("retrying in 4s") is none. It may be stated on a failure that must not be retried at all.
    pub retry_after_ms: Option<u64>,
    /// When the limit resets, as stated or as following from a stated wait; see
    /// [`crate::reset_from_ms`] for which waits count. For header buckets it is the time
    /// at which the bucket is full again: an upper bound.
    pub reset_at: Option<DateTime<Utc>>,
    /// What a clock will show when the limit resets, where the text names no time zone and so no moment. `None` beside
    /// `reset_at`.
    pub reset_clock: Option<NaiveDateTime>,
    /// The `x-should-retry` header, when it was sent.
    pub should_retry: Option<bool>,
    /// The table row that decided, as `provider/row`, for example `"anthropic/overloaded"`. `"none"` when no row
    /// matched.
    pub rule: &'static str,
    /// How sure this is.
    pub confidence: Confidence,
}

impl Judgement {
    /// Returns what a person, or a policy in their place, should do next: as [`Class::advice`], unless something that was said
    /// beside the class decides otherwise about a retry.
    pub const fn advice(&self) -> &'static str {
        match (self.retryable, self.class) {
            (false, Class::Transient | Class::Throttled) if self.retry_after_ms.is_some() => {
                "do not retry within the run; start again after the stated wait, or ask another provider"
            }
            (false, Class::Transient | Class::Throttled) => {
                "do not retry within the run; start again later, or ask another provider"
            }
            (false, Class::TooLarge) => "do not retry; make the request smaller by hand",
            (false, Class::Unknown) => "do not retry; ask a person to read the error",
            (
                true,
                Class::Exhausted | Class::Auth | Class::InvalidRequest | Class::Content | Class::Cancelled,
            ) => "retry once or twice with growing, jittered waits; where that fails, it stays",
            (_, class) => class.advice(),
        }
    }
}
