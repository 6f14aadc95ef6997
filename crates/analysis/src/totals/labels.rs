//! Labels of series: closed sets, or folded beyond a limit; names of providers; series that are known in advance.
//!
//! Not for: which labels a metric has (the table of the `report` crate says that).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use retryscope_events::Candidate;
use retryscope_taxonomy::{Class, Reason};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Metric, Series};
use crate::run::{RequestOutcome, Run};

/// Label names and values, as a sample has them.
pub(super) type Pairs = Vec<(&'static str, Arc<str>)>;

/// Every label name, so that what was saved can be read back without keeping a name for each series.
const NAMES: &[&str] = &[
    "agent",
    "provider",
    "model",
    "account",
    "source",
    "arrival",
    "visibility",
    "kind",
    "layer",
    "class",
    "reason",
    "outcome",
    "status",
    "from_provider",
    "to_provider",
    "verdict",
];

/// Labels that tell who is named, and how much the log shows: what may be known better later.
const NAMED: &[&str] =
    &["agent", "provider", "model", "account", "visibility", "from_provider", "to_provider"];

/// What stands for values beyond a limit.
pub(super) const OTHER: &str = "other";

/// Labels that tell who was asked, in the order in which they are folded.
pub(super) const FOLDED: [&[&str]; 3] =
    [&["model"], &["provider", "from_provider", "to_provider"], &["agent"]];

/// Labels of a series, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Pairs);

impl Labels {
    pub(super) fn new(mut pairs: Pairs) -> Self {
        pairs.sort_unstable_by_key(|(name, _)| *name);
        Self(pairs)
    }

    /// Returns the value of a label; `None` for one that the series does not have.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Returns whether a label tells more than that its value was folded.
    pub(super) fn tell(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != OTHER)
    }

    /// Returns whether any label tells who was asked.
    pub(super) fn name_anybody(&self) -> bool {
        FOLDED.iter().copied().flatten().any(|name| self.tell(name))
    }

    /// Returns the value of a label, looked for first where it stood in the series before; most series of a metric have the
    /// same labels.
    pub fn get_near(&self, name: &str, place: &mut usize) -> Option<&str> {
        if self.0.get(*place).is_none_or(|(known, _)| *known != name) {
            *place = self.0.iter().position(|(known, _)| *known == name)?;
        }
        self.0.get(*place).map(|(_, value)| &**value)
    }

    /// Returns whether only who is named differs, or how much of it the log shows.
    pub(super) fn say_the_same(&self, other: &Self) -> bool {
        let said = |labels: &Self| {
            labels.0.iter().filter(|(name, _)| !NAMED.contains(name)).cloned().collect::<Pairs>()
        };
        said(self) == said(other)
    }

    /// Returns the same labels with one of them set.
    pub(super) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut pairs = self.0.clone();
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value.into(),
            None => pairs.push((name, value.into())),
        }
        Self::new(pairs)
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::<(String, Arc<str>)>::deserialize(deserializer)?;
        let known = pairs
            .into_iter()
            .filter_map(|(name, value)| Some((*NAMES.iter().find(|known| **known == name)?, value)));
        Ok(Self::new(known.collect()))
    }
}

/// Names of providers for endpoint hosts, and for provider ids of one's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aliases(BTreeMap<String, Arc<str>>);

impl Aliases {
    /// Returns the aliases of a table.
    pub fn new<'a>(table: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        Self(table.into_iter().map(|(from, to)| (from.clone(), Arc::from(to.as_str()))).collect())
    }

    /// Returns the provider of a candidate under its usual name; `unknown` where nothing names it.
    pub fn provider<'a>(&'a self, run: &'a Run, candidate: Option<&'a Candidate>) -> &'a str {
        let named = candidate.and_then(|c| c.provider.as_deref()).or(run.facts.provider.as_deref());
        if !self.0.is_empty() {
            let host = candidate.and_then(|c| c.endpoint.as_deref()).map(host);
            // A configured id says more than the host behind it.
            if let Some(alias) = [named, host].into_iter().flatten().find_map(|name| self.0.get(name)) {
                return alias;
            }
        }
        named.unwrap_or("unknown")
    }
}

/// Returns the host of an endpoint, without scheme, port and path.
fn host(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    host.rsplit_once(':').map_or(host, |(host, _)| host)
}

const MODEL_LIMIT: usize = 50;
const PROVIDER_LIMIT: usize = 30;
const AGENT_LIMIT: usize = 20;
const ACCOUNT_LIMIT: usize = 50;
const VERSION_LIMIT: usize = 20;
const PAIR_LIMIT: usize = 100;

/// Label values that have been seen; beyond the limits they are folded into `other`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    models: BTreeSet<Arc<str>>,
    providers: BTreeSet<Arc<str>>,
    agents: BTreeSet<Arc<str>>,
    #[serde(default)]
    accounts: BTreeSet<Arc<str>>,
    pairs: BTreeSet<(Arc<str>, Arc<str>)>,
    pub(super) folded: u64,
    /// One copy of each value, however many runs have it.
    #[serde(skip)]
    values: BTreeSet<Arc<str>>,
}

/// The folding of the counters, for what is shown beside them: what is `other` there is `other` here.
#[derive(Debug)]
pub struct Folding(Seen);

impl Folding {
    /// Returns the name under which an agent is shown.
    pub fn agent(&mut self, name: &str) -> Arc<str> {
        self.0.agent(name).into()
    }

    /// Returns the names under which an agent and its provider are shown.
    pub fn provider(&mut self, agent: &str, provider: &str) -> (Arc<str>, Arc<str>) {
        let labels = self.0.labels(vec![("agent", agent.into()), ("provider", provider.into())]);
        let find = |name| labels.get(name).unwrap_or(OTHER).into();
        (find("agent"), find("provider"))
    }

    /// Returns the versions of one agent under which it is shown: those that ran last, and `other` for the rest.
    pub fn versions<'a, T: Ord>(all: impl IntoIterator<Item = (&'a str, T)>) -> BTreeSet<&'a str> {
        let mut all: Vec<(&str, T)> = all.into_iter().collect();
        all.sort_by(|a, b| (&b.1, a.0).cmp(&(&a.1, b.0)));
        let rest = (all.len() > VERSION_LIMIT).then_some(OTHER);
        all.into_iter().take(VERSION_LIMIT).map(|(version, _)| version).chain(rest).collect()
    }
}

impl Seen {
    /// Returns the same folding for what is shown beside the counters.
    pub(super) fn folding(&self) -> Folding {
        let Self { models: _, providers, agents, accounts: _, pairs, folded, values: _ } = self;
        let (models, accounts, values) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (providers, agents, pairs) = (providers.clone(), agents.clone(), pairs.clone());
        Folding(Self { models, providers, agents, accounts, pairs, folded: *folded, values })
    }

    /// Returns the name of an agent, folded where it is beyond the limit.
    pub(super) fn agent(&mut self, name: &str) -> String {
        if admits(&mut self.agents, &name.into(), AGENT_LIMIT) {
            return name.to_owned();
        }
        self.folded += 1;
        OTHER.to_owned()
    }

    /// Returns the labels of a series, folded where they are beyond a limit.
    pub(super) fn labels(&mut self, mut pairs: Pairs) -> Labels {
        for (name, value) in &mut pairs {
            let (known, limit) = match *name {
                "model" => (&mut self.models, MODEL_LIMIT),
                "provider" | "from_provider" | "to_provider" => (&mut self.providers, PROVIDER_LIMIT),
                "agent" => (&mut self.agents, AGENT_LIMIT),
                "account" => (&mut self.accounts, ACCOUNT_LIMIT),
                _ => continue,
            };
            if !admits(known, value, limit) {
                self.folded += 1;
                *value = OTHER.into();
            }
        }
        let find = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, v)| v.clone());
        if let (Some(agent), Some(provider)) = (find("agent"), find("provider"))
            && !admits(&mut self.pairs, &(agent, provider), PAIR_LIMIT)
        {
            self.folded += 1;
            for (_, value) in pairs.iter_mut().filter(|(name, _)| *name == "provider") {
                *value = OTHER.into();
            }
        }
        for (_, value) in &mut pairs {
            match self.values.get(value) {
                Some(known) => value.clone_from(known),
                None => {
                    self.values.insert(value.clone());
                }
            }
        }
        Labels::new(pairs)
    }
}

/// Returns whether a value is known, or is still within the limit and then becomes known.
fn admits<T: Ord + Clone>(known: &mut BTreeSet<T>, value: &T, limit: usize) -> bool {
    known.contains(value) || known.len() < limit && known.insert(value.clone())
}

/// Statuses that usually stand beside a reason: the series of a first failure should be there before it.
fn usual_statuses(class: Class, reason: Reason) -> &'static [&'static str] {
    use Reason as R;
    match (class, reason) {
        (_, R::Overloaded) => &["529", "503"],
        (_, R::ServerError) => &["500"],
        (_, R::BadGateway) => &["502"],
        (_, R::GatewayTimeout) => &["504"],
        (_, R::Unavailable) => &["503"],
        (_, R::Timeout) => &["none", "408"],
        (Class::Throttled, R::Capacity) => &["429", "503"],
        (Class::Exhausted, R::Credit) => &["402", "400", "429"],
        (Class::Throttled | Class::Exhausted, _) => &["429"],
        (_, R::TlsVerify | R::OutOfMemory) => &["none"],
        (_, R::ModelNotFound | R::EndpointNotFound) => &["404"],
        (Class::InvalidRequest, _) => &["400"],
        (_, R::InvalidKey | R::MissingKey | R::ExpiredToken) => &["401"],
        (Class::Auth, _) => &["403"],
        (_, R::RequestBytes) => &["413"],
        (_, R::TpmRequest) => &["429"],
        (Class::TooLarge, _) | (_, R::PromptBlocked) => &["400"],
        _ => &["none"],
    }
}

/// Layers in which an agent is known to retry.
fn usual_layers(agent: &str) -> &'static [&'static str] {
    match agent {
        "codex" => &["transport", "stream", "unknown"],
        "claude-code" | "opencode" | "pi" | "omp" => &["agent", "sdk", "unknown"],
        _ => &["agent", "unknown"],
    }
}

/// Series that will come with the first failure of each kind. A series that begins above 0 shows no increase.
pub(super) fn known_in_advance(agent: &str, base: &Labels) -> Vec<Series> {
    let mut known = Vec::new();
    let live = base.with("arrival", "live");
    for class in Class::ALL {
        for reason in class.reasons() {
            let failure = live.with("class", class.as_str()).with("reason", reason.as_str());
            for status in usual_statuses(*class, *reason) {
                let labels = failure.with("status", status);
                known.push(Series { metric: Metric::AttemptFailures, labels });
            }
            if matches!(class, Class::Transient | Class::Throttled) || *reason == Reason::NoDetail {
                for layer in usual_layers(agent) {
                    known.push(Series { metric: Metric::Retries, labels: failure.with("layer", layer) });
                }
            }
        }
    }
    for outcome in RequestOutcome::ENDED.map(RequestOutcome::as_str) {
        known.push(Series { metric: Metric::RequestOutcomes, labels: live.with("outcome", outcome) });
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_names_a_host() {
        assert_eq!(host("https://llm.example.com:8443/v1?x"), "llm.example.com");
        assert_eq!(host("llm.example.com"), "llm.example.com");
    }

    #[test]
    fn values_beyond_the_limit_are_folded() {
        let mut seen = Seen::default();
        let of = |n: usize| vec![("agent", Arc::from("a")), ("model", Arc::from(format!("m{n}").as_str()))];
        for n in 0..MODEL_LIMIT {
            assert_ne!(seen.labels(of(n)).get("model"), Some("other"));
        }
        assert_eq!(seen.labels(of(MODEL_LIMIT)).get("model"), Some("other"));
        assert_eq!(seen.labels(of(3)).get("model"), Some("m3"));
        assert_eq!(seen.folded, 1);
    }

    #[test]
    fn labels_are_read_back() {
        let labels = Labels::new(vec![("model", "m".into()), ("agent", "a".into())]);
        let text = serde_json::to_string(&labels).unwrap();
        assert_eq!(serde_json::from_str::<Labels>(&text).unwrap(), labels);
    }
}
