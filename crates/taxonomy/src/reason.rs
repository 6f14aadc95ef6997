//! The closed list of reasons: the second, finer word of a judgement.
//!
//! A reason never decides anything on its own; whether to retry is said by the class and by
//! [`crate::Judgement::retryable`]. The strings are stable and are what logs and metrics carry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Says that a string is not one of the reasons in [`Reason::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown failure reason {0:?}")]
pub struct UnknownReason(String);

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// Why a request failed, within its [`crate::Class`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of the classes they belong to.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the stable `snake_case` string, the same one serde writes.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// The provider says that it is too busy.
    Overloaded = "overloaded",
    /// The provider failed inside.
    ServerError = "server_error",
    /// A gateway got no usable answer from the server behind it.
    BadGateway = "bad_gateway",
    /// A gateway waited too long for the server behind it.
    GatewayTimeout = "gateway_timeout",
    /// The service, or the model, is down for now.
    Unavailable = "unavailable",
    /// No answer in time.
    Timeout = "timeout",
    /// An open stream stayed silent for too long.
    IdleTimeout = "idle_timeout",
    /// No connection; the text does not say why.
    Connect = "connect",
    /// Nothing listens at that address.
    Refused = "refused",
    /// The peer dropped the connection.
    Reset = "reset",
    /// The host name did not resolve.
    Dns = "dns",
    /// The stream ended before its terminal event.
    StreamCut = "stream_cut",
    /// A rate limit without a named unit.
    RateLimit = "rate_limit",
    /// Requests in a short window.
    Rpm = "rpm",
    /// Tokens in a short window.
    Tpm = "tpm",
    /// Too many requests at the same time.
    Concurrency = "concurrency",
    /// The shared pool or the model has no room; not this account's limit.
    Capacity = "capacity",
    /// A quota of the account is used up.
    Quota = "quota",
    /// The prepaid balance is used up, or a payment is due.
    Credit = "credit",
    /// A spending limit was reached.
    SpendCap = "spend_cap",
    /// The window of a subscription is used up.
    UsageLimit = "usage_limit",
    /// The allowance of the day is used up.
    DailyQuota = "daily_quota",
    /// The free allowance is used up.
    FreeTier = "free_tier",
    /// The account never had an allowance for this model.
    ZeroQuota = "zero_quota",
    /// The request is malformed.
    BadRequest = "bad_request",
    /// The model does not take this parameter or this value.
    UnsupportedParam = "unsupported_param",
    /// The output limit asked for is out of range.
    MaxTokensParam = "max_tokens_param",
    /// No such model, or none that this account may see.
    ModelNotFound = "model_not_found",
    /// No such path at this host.
    EndpointNotFound = "endpoint_not_found",
    /// The certificate of the host is not trusted.
    TlsVerify = "tls_verify",
    /// The model does not fit the machine it should run on.
    OutOfMemory = "out_of_memory",
    /// The key is wrong or revoked.
    InvalidKey = "invalid_key",
    /// No key was sent.
    MissingKey = "missing_key",
    /// The token was good once.
    ExpiredToken = "expired_token",
    /// The key is good but may not do this.
    Permission = "permission",
    /// The account has no access to this model.
    ModelAccess = "model_access",
    /// Not offered at this place.
    Region = "region",
    /// A firewall in front of the provider refused.
    WafBlock = "waf_block",
    /// More tokens than the model's context holds.
    ContextLength = "context_length",
    /// More bytes than the gateway takes.
    RequestBytes = "request_bytes",
    /// One request is larger than a whole per-minute token budget.
    TpmRequest = "tpm_request",
    /// The input was refused by a filter.
    PromptBlocked = "prompt_blocked",
    /// The output was stopped by a filter.
    OutputBlocked = "output_blocked",
    /// The model declined.
    Refusal = "refusal",
    /// The output was stopped for repeating known works.
    Recitation = "recitation",
    /// A person stopped it.
    UserAbort = "user_abort",
    /// A program stopped it.
    Abort = "abort",
    /// A 4xx that no table knows.
    #[serde(rename = "unrecognized_4xx")]
    Unrecognized4xx = "unrecognized_4xx",
    /// Nothing to go by.
    NoDetail = "no_detail",
    /// Retries ran out and the cause was not kept.
    RetriesExhausted = "retries_exhausted",
    /// The client itself failed.
    ClientBug = "client_bug",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_those_of_serde() {
        for reason in Reason::ALL {
            let written = serde_json::to_string(reason).expect("a unit variant");
            assert_eq!(written, format!("\"{reason}\""));
            assert_eq!(reason.as_str().parse(), Ok(*reason));
        }
        assert!("flaky".parse::<Reason>().is_err());
    }
}
