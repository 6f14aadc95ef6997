//! The retry settings in force, read from the text of an agent's own configuration file.
//!
//! Which keys count is data: the `settings` of the agent's policies. Nothing else in the file is kept, since
//! such files hold credentials. Bad input is normal here (half-written files, newer formats): what can be read
//! is returned, the rest is skipped, nothing fails.
//!
//! Settings from the environment or the command line of a run are not visible in files; a bound over settings
//! read here still says "if nothing overrides them".

mod json;
mod toml_file;
mod yaml;

use serde::{Deserialize, Serialize};

use crate::data;

/// Files longer than this are not read: a person's configuration is never that long.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;

/// Nesting deeper than this is not followed.
const MAX_DEPTH: usize = 64;

/// One retry setting with the value it has in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingInForce {
    /// The setting's name, as in [`Setting::name`](crate::Setting).
    pub name: String,
    /// The full key path where it stands: `model_providers.lab.request_max_retries`.
    pub key: String,
    /// Its value.
    pub value: SettingValue,
    /// Line in the file, from 1. `None` when the format's reader cannot tell.
    pub line: Option<u32>,
    /// What it is limited to: a provider id (Codex), or the key of a fallback chain (oh-my-pi). `None` when it
    /// holds for all requests.
    pub scope: Option<String>,
    /// The name of the file it was read from.
    pub file: String,
}

/// A value in a configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text; environment variables are always text.
    Text(String),
    /// A list of plain values, as text.
    List(Vec<String>),
}

impl SettingValue {
    /// The value as a number that is not negative. `None` when it is none.
    pub fn as_count(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            // `2.0` is the number 2 where all numbers are of one kind.
            Self::Float(number) if number.fract() == 0.0 => format!("{number:.0}").parse().ok(),
            Self::Text(text) => text.trim().parse().ok(),
            Self::Bool(_) | Self::Float(_) | Self::List(_) => None,
        }
    }

    /// The value as a switch, in the spellings agents accept. `None` when it is none.
    pub fn is_on(&self) -> Option<bool> {
        match self {
            Self::Bool(is_on) => Some(*is_on),
            Self::Integer(number) => Some(*number != 0),
            Self::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => Some(true),
                "" | "0" | "false" | "no" | "off" => Some(false),
                _ => None,
            },
            Self::Float(_) | Self::List(_) => None,
        }
    }

    /// Types a word that stands without quotes. `None` for `null`.
    fn from_bare(word: &str) -> Option<Self> {
        match word {
            "null" | "~" => None,
            "true" => Some(Self::Bool(true)),
            "false" => Some(Self::Bool(false)),
            _ => Some(match (word.parse(), word.parse::<f64>()) {
                (Ok(number), _) => Self::Integer(number),
                (_, Ok(number)) if number.is_finite() => Self::Float(number),
                _ => Self::Text(word.to_owned()),
            }),
        }
    }
}

impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
            Self::List(values) => write!(f, "[{}]", values.join(", ")),
        }
    }
}

/// The settings that apply to a run: those of several files, later files over earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Settings {
    entries: Vec<SettingInForce>,
    provider: Option<String>,
}

impl Settings {
    /// Puts settings together. Where two entries have the same name and scope, the later one holds: pass a
    /// user's file before a project's.
    pub fn new(entries: Vec<SettingInForce>) -> Self {
        Self { entries, provider: None }
    }

    /// Names the provider id that the run used, which selects among settings that are made per provider.
    #[must_use]
    pub fn for_provider(mut self, provider: &str) -> Self {
        self.provider = Some(provider.to_owned());
        self
    }

    /// All entries, in the order they were given.
    pub fn entries(&self) -> &[SettingInForce] {
        &self.entries
    }

    /// The entry in force for a setting. `None` when it is not set, or when it is set per provider and the
    /// provider is not known.
    pub fn get(&self, name: &str) -> Option<&SettingInForce> {
        match self.look_up(name) {
            Lookup::One(entry) => Some(entry),
            Lookup::Absent | Lookup::Several(_) => None,
        }
    }

    pub(crate) fn look_up(&self, name: &str) -> Lookup<'_> {
        let named = || self.entries.iter().rev().filter(|entry| entry.name == name);
        let general = named().find(|entry| entry.scope.is_none());
        if let Some(provider) = &self.provider {
            let own = named().find(|entry| entry.scope.as_ref() == Some(provider));
            return own.or(general).map_or(Lookup::Absent, Lookup::One);
        }
        let all: Vec<_> = named().collect();
        if all.iter().any(|entry| entry.scope.is_some()) {
            Lookup::Several(all)
        } else {
            general.map_or(Lookup::Absent, Lookup::One)
        }
    }
}

/// What is known about a setting in force.
pub(crate) enum Lookup<'a> {
    /// Not set: the default holds.
    Absent,
    /// Set.
    One(&'a SettingInForce),
    /// Set for some providers, and it is not known which one answered.
    Several(Vec<&'a SettingInForce>),
}

/// A plain value in a file, before it is known to be a retry setting.
struct Leaf {
    path: Vec<String>,
    value: SettingValue,
    line: Option<u32>,
}

/// Reads the retry settings of `agent` from the text of one of its configuration files.
///
/// The format follows from the name (`.toml`, `.yml`, else JSON, comments allowed). Empty for an agent without
/// settings in files, and for text that holds none. Never fails.
///
/// ```
/// let text = "[model_providers.lab]\nrequest_max_retries = 2\napi_key = \"secret\"\n";
/// let read = retryscope_policy::settings::read("codex", "config.toml", text);
/// assert_eq!(read.len(), 1);
/// assert_eq!(read[0].value.as_count(), Some(2));
/// assert_eq!((read[0].scope.as_deref(), read[0].line), (Some("lab"), Some(2)));
/// ```
pub fn read(agent: &str, file_name: &str, text: &str) -> Vec<SettingInForce> {
    let known = data::settings_of(agent);
    if known.is_empty() || text.len() > MAX_FILE_BYTES {
        return Vec::new();
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file = file_name.rsplit(['/', '\\']).next().unwrap_or(file_name);
    let leaves = match file.rsplit_once('.').map(|(_, extension)| extension) {
        Some("toml") => toml_file::leaves(text),
        Some("yml" | "yaml") => yaml::leaves(text),
        _ => json::leaves(text),
    };
    leaves
        .into_iter()
        .filter_map(|leaf| {
            let (setting, scope) = known
                .iter()
                .filter(|setting| setting.file != "environment")
                .find_map(|setting| Some((setting, scope_of(&setting.key, &leaf.path)?)))?;
            Some(SettingInForce {
                name: setting.name.clone(),
                key: leaf.path.join("."),
                value: leaf.value,
                line: leaf.line,
                scope,
                file: file.to_owned(),
            })
        })
        .collect()
}

/// Matches a key pattern of the data with a path. Gives the part that stands for `*`, if the pattern has one.
#[expect(clippy::option_option, reason = "no match, a match without a scope, and one with a scope differ")]
fn scope_of(pattern: &str, path: &[String]) -> Option<Option<String>> {
    let mut scope = None;
    let mut parts = path.iter();
    for expected in pattern.split('.') {
        let part = parts.next()?;
        if expected == "*" {
            scope = Some(part.clone());
        } else if part != expected {
            return None;
        }
    }
    parts.next().is_none().then_some(scope)
}
