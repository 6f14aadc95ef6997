//! The embedded policy files: their form, and access to the parsed policies.
//!
//! A file describes one program (`sdks.toml` several). What holds for several version ranges is written once
//! with the versions it holds for, and copied into each policy it covers, so that a [`Policy`] is complete in
//! itself.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::{
    layer::LayerPolicy,
    model::{Api, Background, Conflict, Fact, Fallback, Kind, Policy, Setting, View},
    version::{Version, VersionRange},
};

const AGENTS: [(&str, &str); 6] = [
    ("claude-code.toml", include_str!("../data/claude-code.toml")),
    ("codex.toml", include_str!("../data/codex.toml")),
    ("omp.toml", include_str!("../data/omp.toml")),
    ("opencode.toml", include_str!("../data/opencode.toml")),
    ("pi.toml", include_str!("../data/pi.toml")),
    ("rivumi.toml", include_str!("../data/rivumi.toml")),
];
const SDKS: (&str, &str) = ("sdks.toml", include_str!("../data/sdks.toml"));

/// An embedded file that cannot be read. Only a mistake in this crate can cause it; a test rules it out.
#[derive(Debug, thiserror::Error)]
#[error("policy data {file}: not readable")]
pub struct DataError {
    /// The file's name.
    pub file: &'static str,
    /// What the parser says, with line and column.
    #[source]
    pub source: toml::de::Error,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SdkFile {
    programs: Vec<Program>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    agent: String,
    kind: Kind,
    #[serde(default)]
    aliases: Vec<String>,
    policies: Vec<Ranged>,
    #[serde(default)]
    fallbacks: Vec<Fallback>,
    #[serde(default)]
    background: Vec<Background>,
    #[serde(default)]
    weaknesses: Vec<Remark>,
    #[serde(default)]
    strengths: Vec<Remark>,
    #[serde(default)]
    views: Vec<View>,
    #[serde(default)]
    settings: Vec<Setting>,
    #[serde(default)]
    facts: Vec<Fact>,
    #[serde(default)]
    conflicts: Vec<Conflict>,
}

/// The part of a policy that is written per version range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ranged {
    title: String,
    #[serde(default)]
    versions: VersionRange,
    boundary: Option<String>,
    #[serde(default)]
    apis: Vec<Api>,
    #[serde(default)]
    layers: Vec<LayerPolicy>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remark {
    text: String,
    #[serde(default)]
    versions: VersionRange,
}

/// A statement that holds for some versions only.
trait Dated: Clone {
    fn versions(&self) -> &VersionRange;
}

macro_rules! dated {
    ($($statement:ty),*) => {
        $(impl Dated for $statement {
            fn versions(&self) -> &VersionRange {
                &self.versions
            }
        })*
    };
}
dated!(Fallback, Background, View, Setting, Fact, Conflict, Remark);

fn those_for<T: Dated>(statements: &[T], range: &VersionRange) -> Vec<T> {
    statements.iter().filter(|statement| statement.versions().overlaps(range)).cloned().collect()
}

impl Program {
    fn expand(self) -> Entry {
        let texts = |remarks: &[Remark], range: &VersionRange| {
            those_for(remarks, range).into_iter().map(|remark| remark.text).collect()
        };
        let policies = self
            .policies
            .iter()
            .map(|ranged| Policy {
                agent: self.agent.clone(),
                kind: self.kind,
                title: ranged.title.clone(),
                versions: ranged.versions.clone(),
                boundary: ranged.boundary.clone(),
                apis: ranged.apis.clone(),
                layers: ranged.layers.clone(),
                fallbacks: those_for(&self.fallbacks, &ranged.versions),
                background: those_for(&self.background, &ranged.versions),
                weaknesses: texts(&self.weaknesses, &ranged.versions),
                strengths: texts(&self.strengths, &ranged.versions),
                views: those_for(&self.views, &ranged.versions),
                settings: those_for(&self.settings, &ranged.versions),
                facts: those_for(&self.facts, &ranged.versions),
                conflicts: those_for(&self.conflicts, &ranged.versions),
            })
            .collect();
        Entry { agent: self.agent, aliases: self.aliases, policies }
    }
}

#[derive(Debug)]
struct Entry {
    agent: String,
    aliases: Vec<String>,
    /// Oldest first; never empty (tested).
    policies: Vec<Policy>,
}

fn load() -> Result<Vec<Entry>, DataError> {
    let mut entries = Vec::new();
    for (file, text) in AGENTS {
        let program: Program = toml::from_str(text).map_err(|source| DataError { file, source })?;
        entries.push(program.expand());
    }
    let (file, text) = SDKS;
    let sdks: SdkFile = toml::from_str(text).map_err(|source| DataError { file, source })?;
    entries.extend(sdks.programs.into_iter().map(Program::expand));
    Ok(entries)
}

fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    // The text is part of the program and tested; without data, everything is "not known", never a panic.
    ENTRIES.get_or_init(|| load().unwrap_or_default())
}

fn entry(agent: &str) -> Option<&'static Entry> {
    entries().iter().find(|entry| {
        entry.agent.eq_ignore_ascii_case(agent)
            || entry.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(agent))
    })
}

/// Returns all policies: agents by name, then SDKs; each oldest version first.
pub fn all() -> impl Iterator<Item = &'static Policy> {
    entries().iter().flat_map(|entry| &entry.policies)
}

/// Returns the ids of the agents and SDKs that have a policy.
pub fn known_agents() -> impl Iterator<Item = &'static str> {
    entries().iter().map(|entry| entry.agent.as_str())
}

/// Returns every policy of one agent, oldest version first; empty for an agent that is not known.
///
/// Where a log does not tell the version, this is what a bound must cover ([`Bound::or`](crate::Bound::or)).
pub fn by_agent(agent: &str) -> &'static [Policy] {
    entry(agent).map_or(&[], |entry| &entry.policies)
}

/// Returns every setting that any version of an agent knows, each name and key once.
pub(crate) fn settings_of(agent: &str) -> Vec<&'static Setting> {
    let mut settings: Vec<&Setting> = Vec::new();
    for setting in by_agent(agent).iter().flat_map(|policy| &policy.settings) {
        if !settings.iter().any(|known| known.name == setting.name && known.key == setting.key) {
            settings.push(setting);
        }
    }
    settings
}

/// Returns the policy of an agent version. `agent` is an id or an alias, upper or lower case.
///
/// Without a version, or with one that holds no number, it is the newest policy: say so in the report. `None`
/// for an agent that is not known.
///
/// ```
/// let codex = retryscope_policy::find("codex", Some("0.171.0")).expect("codex is known");
/// let bound = codex.max_attempts(None, &Default::default());
/// assert_eq!(bound.max, Some(30));
/// ```
pub fn find(agent: &str, version: Option<&str>) -> Option<&'static Policy> {
    let policies = by_agent(agent);
    version
        .and_then(Version::parse)
        .and_then(|version| policies.iter().find(|policy| policy.versions.contains(&version)))
        .or_else(|| policies.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_file_is_readable() {
        let entries = load().unwrap();
        assert!(entries.iter().all(|entry| !entry.policies.is_empty()));
    }

    #[test]
    fn every_word_and_reference_is_known() {
        for policy in all() {
            let title = &policy.title;
            for layer in &policy.layers {
                for word in layer.retries_on.iter().chain(&layer.stops_on).chain(&layer.only_on) {
                    assert!(crate::Failure::is_word(word), "{title}: {word}");
                }
                for when in &layer.when {
                    let is_known =
                        when == "any" || when == "other" || policy.apis.iter().any(|a| a.id == *when);
                    assert!(is_known, "{title}: {when}");
                }
                for view in &layer.visible_in {
                    assert!(policy.views.iter().any(|known| known.id == *view), "{title}: {view}");
                }
                let switch = layer.switch.as_ref().map(|switch| &switch.setting);
                let raise = layer.raised_by.as_ref().map(|raise| &raise.setting);
                for setting in [&layer.setting, &layer.base_setting, &layer.cap_setting]
                    .into_iter()
                    .flatten()
                    .chain(switch)
                    .chain(raise)
                {
                    assert!(policy.settings.iter().any(|known| known.name == *setting), "{title}: {setting}");
                }
            }
        }
    }

    /// What is written once must hold for the whole of each range it is copied into.
    #[test]
    fn shared_statements_end_where_the_ranges_do() {
        fn check<T: Dated + std::fmt::Debug>(statements: &[T], policies: &[Ranged]) {
            for statement in statements {
                for policy in policies {
                    let range = statement.versions();
                    assert!(
                        range.covers(&policy.versions) || !range.overlaps(&policy.versions),
                        "{statement:?} holds for a part of {}",
                        policy.title
                    );
                }
            }
        }
        let sdks: SdkFile = toml::from_str(SDKS.1).unwrap();
        let agents = AGENTS.map(|(_, text)| toml::from_str::<Program>(text).unwrap());
        for program in agents.into_iter().chain(sdks.programs) {
            check(&program.fallbacks, &program.policies);
            check(&program.background, &program.policies);
            check(&program.weaknesses, &program.policies);
            check(&program.strengths, &program.policies);
            check(&program.views, &program.policies);
            check(&program.settings, &program.policies);
            check(&program.facts, &program.policies);
            check(&program.conflicts, &program.policies);
        }
    }
}
