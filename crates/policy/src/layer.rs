//! One retry layer of a known policy: how often it sends again, after what, and how long it waits.
//!
//! Plain data with one judgement, [`LayerPolicy::acts_on`]; how layers combine is in `bound`.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Who retries. Nested layers multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// A provider's client library.
    Sdk,
    /// The agent's HTTP requests.
    Transport,
    /// The agent's answer streams.
    Stream,
    /// The agent's conversation loop.
    Agent,
    /// A job queue around the agent.
    Queue,
    /// A gateway between agent and provider.
    Gateway,
    /// A person.
    User,
}

impl Layer {
    /// The layer's name as it stands in logs and data.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sdk => "sdk",
            Self::Transport => "transport",
            Self::Stream => "stream",
            Self::Agent => "agent",
            Self::Queue => "queue",
            Self::Gateway => "gateway",
            Self::User => "user",
        }
    }
}

/// Number of retries after the first try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Retries {
    /// At most this many.
    Count(u64),
    /// No number bounds them.
    Open(OpenRetries),
}

/// Why a layer has no number of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenRetries {
    /// The layer goes on without end.
    Unbounded,
    /// There is a bound, but it is not known to us.
    Unknown,
}

impl Retries {
    /// The number of retries; `None` when there is no known bound.
    pub fn count(self) -> Option<u64> {
        match self {
            Self::Count(count) => Some(count),
            Self::Open(_) => None,
        }
    }
}

/// How the attempts of a layer combine with those of the layers around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nesting {
    /// Each attempt of the layer outside starts this layer anew.
    #[default]
    Multiplies,
    /// The layer has one allowance for a logical request, spent beside the others.
    Adds,
}

/// One layer that sends a request again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPolicy {
    /// Which layer it is.
    pub layer: Layer,
    /// Name for a person: "session loop".
    pub name: String,
    /// Retries after the first try when nothing is configured.
    pub retries: Retries,
    /// The setting that holds `retries`. `None` when it cannot be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The largest value the agent accepts for `setting`. `None` when no limit is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting_max: Option<u64>,
    /// A setting that switches the layer on or off. `None` when it is always on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// A setting that raises `retries` to another number. `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_by: Option<Raise>,
    /// Provider interfaces it applies to: ids of `Policy::apis`, `any`, or `other` for those not listed there.
    pub when: Vec<String>,
    /// Failures it exists for. Empty for a general layer; a layer with entries is left out of
    /// [`Policy::max_attempts`](crate::Policy::max_attempts) and counts in
    /// [`Policy::attempts_under`](crate::Policy::attempts_under) those failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_on: Vec<String>,
    /// How it combines with the layers around it.
    #[serde(default)]
    pub nesting: Nesting,
    /// Wait before the first retry, in milliseconds. `None` when not known; 0 for at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// The setting that holds `base_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_setting: Option<String>,
    /// What each further wait is multiplied by.
    #[serde(default = "doubling")]
    pub factor: f64,
    /// Longest wait before jitter, in milliseconds. `None` when the growth is not capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// The setting that holds `cap_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_setting: Option<String>,
    /// The random part of a wait.
    #[serde(default)]
    pub jitter: Jitter,
    /// Failures it retries, as words of [`Failure`].
    #[serde(default)]
    pub retries_on: Vec<String>,
    /// Failures it does not retry; a more precise word wins over `retries_on`.
    #[serde(default)]
    pub stops_on: Vec<String>,
    /// Statuses it retries on purpose with some providers, although `stops_on` holds with the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries_with: Vec<RetriesWith>,
    /// What the words cannot say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What it does with a wait the server asks for.
    pub retry_after: RetryAfter,
    /// The log views that record every one of its attempts.
    #[serde(default)]
    pub visible_in: Vec<String>,
    /// Whether a failure it retries always uses up all its retries: no early exit on a long Retry-After or a
    /// header. Then a final failure seen from outside tells the exact count.
    #[serde(default)]
    pub always_runs_dry: bool,
}

fn doubling() -> f64 {
    2.0
}

/// Whether a layer reacts to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Acts {
    /// It retries.
    Yes,
    /// It does not.
    No,
    /// The data does not say.
    Unknown,
}

impl LayerPolicy {
    /// Whether the layer retries after `failure`.
    pub fn acts_on(&self, failure: Failure) -> Acts {
        let best = |words: &[String]| words.iter().filter_map(|word| failure.matches(word)).max();
        if !self.only_on.is_empty() {
            return if best(&self.only_on).is_some() { Acts::Yes } else { Acts::No };
        }
        match (best(&self.retries_on), best(&self.stops_on)) {
            (Some(retried), Some(stopped)) if retried > stopped => Acts::Yes,
            (_, Some(_)) => Acts::No,
            (Some(_), None) => Acts::Yes,
            (None, None) => Acts::Unknown,
        }
    }

    /// Whether a setting decides about its presence, its retries or its waits.
    pub fn is_ruled_by(&self, setting: &str) -> bool {
        let switch = self.switch.as_ref().map(|switch| &switch.setting);
        let raise = self.raised_by.as_ref().map(|raise| &raise.setting);
        let named =
            [self.setting.as_ref(), self.base_setting.as_ref(), self.cap_setting.as_ref(), switch, raise];
        named.into_iter().flatten().any(|name| name == setting)
    }

    /// Whether it retries a status on purpose with this provider.
    pub fn lists(&self, provider: &str, status: u16) -> bool {
        self.retries_with.iter().any(|with| with.status == status && provider.starts_with(&with.provider))
    }

    /// Whether it only repeats requests that never reached a provider.
    pub fn is_connection_only(&self) -> bool {
        !self.only_on.is_empty() && self.only_on.iter().all(|word| word == "connection")
    }
}

/// A status that is retried on purpose with some providers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetriesWith {
    /// Beginning of the provider's id, as the agent knows it.
    pub provider: String,
    /// The HTTP status.
    pub status: u16,
}

/// A setting that turns a layer on or off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The setting.
    pub setting: String,
    /// Whether the layer is on when the setting is absent.
    pub default: bool,
}

/// A setting that, when on, gives a layer more retries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raise {
    /// The setting.
    pub setting: String,
    /// Retries after the first try while it is on.
    pub retries: Retries,
}

/// The random part of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Smallest factor, or smallest addition in milliseconds, by `kind`.
    pub low: f64,
    /// Largest factor, or largest addition in milliseconds, by `kind`.
    pub high: f64,
    /// What `low` and `high` mean.
    pub kind: JitterKind,
}

impl Default for Jitter {
    fn default() -> Self {
        Self { low: 1.0, high: 1.0, kind: JitterKind::None }
    }
}

/// How jitter is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JitterKind {
    /// No random part: clients that fail together come back together.
    None,
    /// The wait is multiplied by a number between `low` and `high`.
    Factor,
    /// A number of milliseconds between `low` and `high` is added.
    Add,
    /// There is jitter, its size is not known; waits cannot be told from server hints.
    Unknown,
}

/// What a layer does with the wait a server asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryAfter {
    /// How the hint and the planned wait combine.
    pub treatment: Treatment,
    /// Longest hint that is taken as it is, in milliseconds. `None` when there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// What happens to a longer hint.
    #[serde(default)]
    pub above_cap: AboveCap,
    /// Forms read, exceptions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// How a server's hint and the planned wait combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// The hint is waited for; no jitter below it.
    Honoured,
    /// The hint is not looked at.
    Ignored,
    /// The longer of hint and planned wait is taken.
    Floor,
    /// The hint replaces the planned wait, also when shorter.
    Replaces,
    /// Not known.
    Unknown,
}

/// What happens to a hint above the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AboveCap {
    /// The request is given up.
    Fail,
    /// The hint is cut to the limit: the server is asked too early.
    Cut,
    /// The hint is dropped and the planned wait taken.
    Ignored,
    /// There is no limit.
    #[default]
    None,
}
