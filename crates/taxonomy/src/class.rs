//! The closed set of failure classes: what kind of failure it is, and so what a person or a policy may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Reason;

/// Says that a string is not one of the classes in [`Class::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown failure class {0:?}")]
pub struct UnknownClass(String);

/// What kind of failure a request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The provider, or the way to it, failed for a moment.
    Transient,
    /// Too much in a short window; the same request passes later.
    Throttled,
    /// A quota, a balance or a plan's window is used up; no retry within a run helps.
    Exhausted,
    /// The request is wrong and stays wrong.
    InvalidRequest,
    /// The key, the permission, the region or a firewall is in the way.
    Auth,
    /// The request is too large; a smaller one may pass.
    TooLarge,
    /// A content filter, or the model, declined.
    Content,
    /// A person or a program stopped it.
    Cancelled,
    /// Not enough is known.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: &'static [Self] = &[
        Self::Transient,
        Self::Throttled,
        Self::Exhausted,
        Self::InvalidRequest,
        Self::Auth,
        Self::TooLarge,
        Self::Content,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// Returns the stable `snake_case` string, the same one serde writes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Exhausted => "exhausted",
            Self::InvalidRequest => "invalid_request",
            Self::Auth => "auth",
            Self::TooLarge => "too_large",
            Self::Content => "content",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the reasons that may stand beside this class, and no others.
    pub const fn reasons(self) -> &'static [Reason] {
        use Reason as R;
        match self {
            Self::Transient => &[
                R::Overloaded,
                R::ServerError,
                R::BadGateway,
                R::GatewayTimeout,
                R::Unavailable,
                R::Timeout,
                R::IdleTimeout,
                R::Connect,
                R::Refused,
                R::Reset,
                R::Dns,
                R::StreamCut,
            ],
            Self::Throttled => &[R::RateLimit, R::Rpm, R::Tpm, R::Concurrency, R::Capacity],
            Self::Exhausted => {
                &[R::Quota, R::Credit, R::SpendCap, R::UsageLimit, R::DailyQuota, R::FreeTier, R::ZeroQuota]
            }
            Self::InvalidRequest => &[
                R::BadRequest,
                R::UnsupportedParam,
                R::MaxTokensParam,
                R::ModelNotFound,
                R::EndpointNotFound,
                R::TlsVerify,
                R::OutOfMemory,
            ],
            Self::Auth => &[
                R::InvalidKey,
                R::MissingKey,
                R::ExpiredToken,
                R::Permission,
                R::ModelAccess,
                R::Region,
                R::WafBlock,
            ],
            Self::TooLarge => &[R::ContextLength, R::RequestBytes, R::TpmRequest],
            Self::Content => &[R::PromptBlocked, R::OutputBlocked, R::Refusal, R::Recitation],
            Self::Cancelled => &[R::UserAbort, R::Abort],
            Self::Unknown => &[R::Unrecognized4xx, R::NoDetail, R::RetriesExhausted, R::ClientBug],
        }
    }

    /// Returns one sentence on what the class means.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Transient => "The provider or the way to it failed for a moment.",
            Self::Throttled => "A limit over a short window was hit; the same request passes later.",
            Self::Exhausted => "A quota, a balance or a plan's window is used up.",
            Self::InvalidRequest => "The request, or the setup it came from, is wrong and stays wrong.",
            Self::Auth => "The key, a permission, the region or a firewall is in the way.",
            Self::TooLarge => "The request is larger than the model or the gateway takes.",
            Self::Content => "A content filter or the model itself declined.",
            Self::Cancelled => "A person or a program stopped the request.",
            Self::Unknown => "The error does not say enough to tell.",
        }
    }

    /// Returns what a person, or a policy in their place, should do next.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Transient => "retry a few times with growing, jittered waits",
            Self::Throttled => "wait as long as the provider says, then retry; send less at once",
            Self::Exhausted => "do not retry; top up, raise the limit, or wait until the reset time",
            Self::InvalidRequest => "do not retry; fix the request or the setup",
            Self::Auth => "do not retry; fix the key, the permission or the account",
            Self::TooLarge => "shrink the request (compact the context), then try once",
            Self::Content => "do not retry the same input; change it, or ask a person",
            Self::Cancelled => "nothing to retry; it was stopped on purpose",
            Self::Unknown => "retry once at most, then ask a person to read the error",
        }
    }

    /// Returns whether a retry within the run can help when nothing more than the class is known.
    ///
    /// For [`Class::TooLarge`] the retry is one after shrinking. [`Class::Unknown`] says no here: whether it gets
    /// its one retry hangs on the status, see [`crate::Judgement::retryable`].
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Transient | Self::Throttled | Self::TooLarge)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|class| class.as_str() == text)
            .ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_belongs_to_exactly_one_class() {
        for reason in Reason::ALL {
            let owners = Class::ALL.iter().filter(|class| class.reasons().contains(reason)).count();
            assert_eq!(owners, 1, "{reason}");
        }
    }

    #[test]
    fn strings_are_those_of_serde() {
        for class in Class::ALL {
            assert_eq!(serde_json::to_string(class).expect("a unit variant"), format!("\"{class}\""));
            assert_eq!(class.as_str().parse(), Ok(*class));
        }
        assert!("fatal".parse::<Class>().is_err());
    }
}
