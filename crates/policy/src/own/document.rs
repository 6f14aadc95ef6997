//! The form of a `policy.toml`. Serialized, it is also what a run records as the policy it ran under.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::layer::Layer;

/// The failure classes a row can name.
pub const CLASSES: [&str; 9] = [
    "transient",
    "throttled",
    "exhausted",
    "invalid_request",
    "auth",
    "too_large",
    "content",
    "cancelled",
    "unknown",
];

/// A whole `policy.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPolicy {
    /// The shipped profile that holds where the file says nothing.
    #[serde(default)]
    pub profile: Profile,
    /// What holds for every failure without a row.
    #[serde(default)]
    pub defaults: Limits,
    /// Exceptions, the most specific wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// The retry budget over many requests. `None` for the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The candidates to try in turn.
    #[serde(default)]
    pub fallback: Fallback,
    /// Who may receive which data, by data class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recipients: BTreeMap<String, Recipients>,
    /// Tools that may be run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Other layers known to retry around or below this policy, declared so that they can be multiplied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<OwnLayer>,
}

/// A policy shipped with the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// A person is waiting: at most 3 retries, 90 s in all.
    #[default]
    Interactive,
    /// Nobody is waiting: up to 9 retries over 45 minutes.
    Batch,
}

/// Limits of retrying. Absent ones come from a less specific row, then from the profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Requests for one answer on one candidate, the first included; from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// First wait in milliseconds; each further one doubles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// Longest wait in milliseconds, before jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// Random part of the waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterRange>,
    /// Time for one answer in milliseconds, waits and attempts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
    /// Longest wait in milliseconds that a server may ask for; above it the request is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_cap_ms: Option<u64>,
}

/// Limits for one kind of failure. At least one of `provider`, `class`, `reason` should be set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Provider it holds for. `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Failure class it holds for, one of [`CLASSES`]. `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Reason within the class. `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// As in [`Limits::attempts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// As in [`Limits::base_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// As in [`Limits::cap_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// As in [`Limits::jitter`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterRange>,
    /// As in [`Limits::total_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
    /// As in [`Limits::retry_after_cap_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_cap_ms: Option<u64>,
}

impl Row {
    /// The limits it sets. (Fields are written out twice since a flattened struct cannot refuse unknown keys.)
    pub fn limits(&self) -> Limits {
        Limits {
            attempts: self.attempts,
            base_ms: self.base_ms,
            cap_ms: self.cap_ms,
            jitter: self.jitter,
            total_ms: self.total_ms,
            retry_after_cap_ms: self.retry_after_cap_ms,
        }
    }
}

/// A wait is multiplied by a random number between `low` and `high`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JitterRange {
    /// Smallest factor, from 0.
    pub low: f64,
    /// Largest factor, at least `low`.
    pub high: f64,
}

/// The share of requests that may be retries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Retries / upstream requests, between 0 and 1.
    pub limit: f64,
    /// Retries that are free in each window.
    #[serde(default = "default_floor")]
    pub floor: u64,
}

fn default_floor() -> u64 {
    10
}

/// The candidates to try in turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// `provider/model`, or `provider/model@region`; the first is the one normally used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
}

/// Who may receive data of one class when a request moves to another candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipients {
    /// The rule.
    pub to: RecipientsTo,
    /// Providers allowed by `allow-list`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// Regions allowed. Empty for any; otherwise a candidate without a region is not allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
}

/// Rules for recipients, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecipientsTo {
    /// No fallback.
    Off,
    /// Other models of the first candidate's provider.
    SameProvider,
    /// The providers listed, and the first candidate's.
    AllowList,
    /// Anyone.
    Any,
}

/// A tool that may be run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Whether running it twice is the same as once.
    pub idempotency: Idempotency,
    /// Runs in all, from 1.
    #[serde(default = "once")]
    pub attempts: u64,
    /// Whether a run whose end is not known is repeated.
    #[serde(default)]
    pub replay: Replay,
}

fn once() -> u64 {
    1
}

/// Whether running a tool twice is the same as once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idempotency {
    /// Yes.
    Idempotent,
    /// With the same idempotency key.
    Conditional,
    /// No.
    NonIdempotent,
}

/// Whether a tool run whose end is not known is repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// Without asking.
    Auto,
    /// After a person agreed.
    #[default]
    Ask,
    /// Never.
    Never,
}

/// A layer outside this policy that retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnLayer {
    /// Which layer.
    pub layer: Layer,
    /// Its attempts, the first included; from 1.
    pub attempts: u64,
}
