//! The shape of a known policy: what the files in `data/` say, and what `policy show` prints.
//!
//! Plain data. Its layers are in `layer`, bounds over them in `bound`, waits in `backoff`.

use serde::{Deserialize, Serialize};

use crate::{
    layer::{Layer, LayerPolicy},
    settings::SettingValue,
    version::VersionRange,
};

/// What one agent or SDK does about failed requests, over one range of its versions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    /// Id of the agent or SDK: `codex`, `claude-code`, `sdk-openai`, ...
    pub agent: String,
    /// Agent or SDK.
    pub kind: Kind,
    /// Name and version for a person, used in the basis of a bound: `codex 0.171`.
    pub title: String,
    /// The versions it holds for.
    pub versions: VersionRange,
    /// How the boundaries of `versions` are known. `None` when there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<String>,
    /// Provider interfaces the agent tells apart. Empty when its retries do not depend on them.
    pub apis: Vec<Api>,
    /// Retry layers, outermost first.
    pub layers: Vec<LayerPolicy>,
    /// When it moves to another candidate.
    pub fallbacks: Vec<Fallback>,
    /// Requests beside the conversation, with their own retries.
    pub background: Vec<Background>,
    /// What it does that a good policy would not: one sentence each.
    pub weaknesses: Vec<String>,
    /// What it does well: one sentence each.
    pub strengths: Vec<String>,
    /// The logs it leaves, and what each can show.
    pub views: Vec<View>,
    /// Retry settings a person can change.
    pub settings: Vec<Setting>,
    /// The statements all of this rests on.
    pub facts: Vec<Fact>,
    /// Statements that contradict each other.
    pub conflicts: Vec<Conflict>,
}

impl Policy {
    /// The log view with this id. `None` when the agent leaves no such log in these versions.
    pub fn view(&self, id: &str) -> Option<&View> {
        self.views.iter().find(|view| view.id == id)
    }

    /// The setting with this name. `None` when these versions have none.
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }
}

/// Agent or library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A program that runs a conversation.
    Agent,
    /// A client library below an agent.
    Sdk,
}

/// A provider interface whose requests are retried in their own way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// The agent's own word for it (`openai-completions`).
    pub id: String,
    /// What it stands for.
    #[serde(default)]
    pub note: String,
}

/// A move to another candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// What changes: `model`, `transport`, `credential`, `endpoint`.
    pub kind: String,
    /// What triggers it.
    pub when: String,
    /// The setting that configures it. `None` when it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// Whether the new candidate starts with a fresh number of retries, so that the bounds hold per candidate.
    pub fresh_budget: bool,
    /// Details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Versions it holds for.
    #[serde(default, skip_serializing)]
    pub versions: VersionRange,
}

/// Requests beside the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// What the request is for: `title`, `compaction`, `prewarm`, ...
    pub purpose: String,
    /// Retries after the first try. `None` when not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// Where the attempts can be seen, or that they cannot.
    pub visible: String,
    /// Details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Versions it holds for.
    #[serde(default, skip_serializing)]
    pub versions: VersionRange,
}

/// A log that an agent leaves, seen as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Short id: `transcript`, `stdout-json`, `otlp-logs`, ...
    pub id: String,
    /// Where it is, for a person.
    pub place: String,
    /// How many of the attempts it shows.
    pub attempts: Attempts,
    /// Whether it shows the planned waits.
    pub delays: Shows,
    /// Whether it shows what the server asked for.
    pub retry_after: Shows,
    /// Whether it shows the status of failed attempts.
    pub status: Shows,
    /// What a person must set to get it. `None` when it is there by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<String>,
    /// What to know before trusting it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Versions it holds for.
    #[serde(default, skip_serializing)]
    pub versions: VersionRange,
}

/// How many attempts a log shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempts {
    /// Every upstream request of the conversation.
    All,
    /// Those of the outer layers, or not in every case.
    Some,
    /// None: absence means nothing.
    None,
}

/// Whether a log shows a detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// Always.
    Yes,
    /// In some records.
    Partly,
    /// Never.
    No,
}

/// A retry setting of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The name a person knows it by; also [`SettingInForce::name`](crate::SettingInForce).
    pub name: String,
    /// The file it stands in, or `environment`.
    pub file: String,
    /// The full key path in that file.
    pub key: String,
    /// The value when it is absent, as text. `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// What it does.
    pub meaning: String,
    /// The layer whose retries, waits or presence it decides. `None` when it decides none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// In which situations changing it helps: `outlast` (the outage was longer than the retries), `fallback` (no other
    /// candidate is configured), `fallback_elsewhere` (the same, and the endpoint cannot be reached), `hidden_layer` (a layer below the log multiplies), `timeout`, `idle_timeout`, `refused`,
    /// `stated_wait` (the provider's wait was not kept), `transport_fallback`, `side_call`, `exhausted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helps: Vec<String>,
    /// What changing it would do, as advice.
    pub remedy: String,
    /// The value that `remedy` asks for, as text: of a switch, or a number to go down to. `None` where it names no one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<String>,
    /// Provider ids under which the agent is reported not to apply it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applied_in: Vec<String>,
    /// Versions it holds for.
    #[serde(default, skip_serializing)]
    pub versions: VersionRange,
}

impl Setting {
    /// Whether a value is what `remedy` asks for, so that following the advice would change nothing.
    pub fn is_reached_by(&self, value: &str) -> bool {
        let Some(sets) = self.sets.as_deref() else { return false };
        let is_on = |text: &str| SettingValue::Text(text.to_owned()).is_on();
        match (sets.parse::<u64>(), value.parse::<u64>()) {
            (Ok(most), Ok(value)) => value <= most,
            _ => is_on(sets).is_some() && is_on(sets) == is_on(value),
        }
    }
}

/// How a fact is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The maker says so.
    Documented,
    /// Read in source, a package or a public thread.
    Read,
    /// Seen in a run of the real program against a scripted server.
    Measured,
}

/// A statement about the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// The statement.
    pub text: String,
    /// How it is known.
    pub evidence: Evidence,
    /// Link, package with version, or recorded scenario.
    pub source: String,
    /// Versions it holds for.
    #[serde(default, skip_serializing)]
    pub versions: VersionRange,
}

/// Two statements that cannot both hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// What is said.
    pub claim: String,
    /// Who says it.
    pub claim_source: String,
    /// What was found instead.
    pub finding: String,
    /// How that is known.
    pub finding_source: String,
    /// Versions it holds for.
    #[serde(default, skip_serializing)]
    pub versions: VersionRange,
}
