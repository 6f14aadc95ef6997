//! From what a sample names to its series, found once and then by a number.
//!
//! A run adds some ten samples a request, most of them to series that were added to a moment ago. Not for: folding labels
//! (see [`super::labels`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::HashMap;
use retryscope_events::Candidate;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::labels::{Aliases, Pairs, Seen};
use super::{Metric, Series};
use crate::run::Run;
use crate::words::visible;

/// Number of an agent, provider and model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Base(u32);

/// Number of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Account(Base);

/// Number of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct SeriesId(u32);

impl SeriesId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a sample names: its metric, and its labels as words of closed sets.
///
/// Words are compared by where they stand: the same constant is nearly always at the same place, and if it is not, two keys
/// have one series.
#[derive(Debug, Clone, Copy, Eq)]
pub(super) struct Key {
    metric: Metric,
    base: Base,
    /// Who is moved on to.
    to: Option<Base>,
    /// Who pays, where that is known.
    account: Option<Account>,
    words: [&'static str; 3],
    status: Option<u16>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |key: &Self| (key.metric, key.base, key.to, key.account, key.status);
        numbers(self) == numbers(other)
            && self.words.iter().zip(other.words).all(|(word, other)| std::ptr::eq(*word, other))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.metric as u64 | u64::from(self.base.0) << 8);
        // No metric has both.
        let other = self.to.or(self.account.map(|Account(name)| name)).map_or(0, |other| other.0);
        state.write_u64(u64::from(self.status.unwrap_or(0)) | u64::from(other) << 16);
        for word in self.words {
            state.write_usize(word.as_ptr().addr());
        }
    }
}

impl Key {
    pub(super) fn new(metric: Metric, base: Base) -> Self {
        Self { metric, base, to: None, account: None, words: [""; 3], status: None }
    }

    /// Sets the words, in the order of [`word_names`].
    pub(super) fn words(mut self, words: &[&'static str]) -> Self {
        self.words[..words.len()].copy_from_slice(words);
        self
    }

    pub(super) fn to(self, to: Base) -> Self {
        Self { to: Some(to), ..self }
    }

    pub(super) fn account(self, account: Option<Account>) -> Self {
        Self { account, ..self }
    }

    pub(super) fn status(self, status: Option<u16>) -> Self {
        Self { status, ..self }
    }
}

/// Names of the labels that a metric has beyond agent, provider and model.
fn word_names(metric: Metric) -> &'static [&'static str] {
    match metric {
        Metric::LogicalRequests => &["source", "visibility"],
        Metric::UpstreamRequests => &["kind", "source", "visibility"],
        Metric::Retries => &["layer", "class", "reason"],
        Metric::RequestOutcomes => &["outcome"],
        Metric::AttemptFailures => &["class", "reason"],
        Metric::Fallbacks => &["kind", "reason"],
        Metric::AttemptsPerRequest | Metric::RetryDelay | Metric::Waiting => &[],
        Metric::RetryAfter => &["verdict"],
        Metric::RunOutcomes => &["outcome", "class"],
        Metric::Sent => &["kind"],
    }
}

/// Returns whether the series of a metric are told apart by model.
fn has_model(metric: Metric) -> bool {
    !matches!(
        metric,
        Metric::AttemptsPerRequest
            | Metric::RetryDelay
            | Metric::RetryAfter
            | Metric::Sent
            | Metric::Fallbacks
    )
}

/// Agent, provider and model, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    all: Vec<[Arc<str>; 3]>,
    by_name: HashMap<String, Base>,
    /// For looking up.
    buffer: String,
}

impl Names {
    fn of(&mut self, names: [&str; 3]) -> Base {
        self.buffer.clear();
        for name in names {
            self.buffer.push_str(name);
            self.buffer.push('\0');
        }
        if let Some(base) = self.by_name.get(&self.buffer) {
            return *base;
        }
        let base = Base(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        // Two names that look alike then have one series: a scrape refuses two lines with the same labels.
        self.all.push(names.map(|name| visible(name).into()));
        self.by_name.insert(self.buffer.clone(), base);
        base
    }

    /// Returns all labels of a key, before any is folded.
    fn labels(&self, key: &Key) -> Pairs {
        let [agent, provider, model] = &self.all[key.base.0 as usize];
        let mut pairs: Pairs = vec![("agent", agent.clone())];
        if let Some(to) = key.to {
            let [_, to_provider, _] = &self.all[to.0 as usize];
            pairs.extend([("from_provider", provider.clone()), ("to_provider", to_provider.clone())]);
        } else {
            pairs.push(("provider", provider.clone()));
        }
        if let Some(Account(account)) = key.account {
            pairs.push(("account", self.all[account.0 as usize][0].clone()));
        }
        if has_model(key.metric) {
            pairs.push(("model", model.clone()));
        }
        let words = word_names(key.metric).iter().zip(key.words);
        pairs.extend(words.map(|(name, word)| (*name, Arc::from(word))));
        if key.metric == Metric::AttemptFailures {
            let status = key.status.map_or_else(|| "none".into(), |status| status.to_string().into());
            pairs.push(("status", status));
        }
        pairs
    }
}

/// Names the agents, providers and models of one run.
pub(super) struct Bases<'a> {
    names: &'a mut Names,
    run: &'a Run,
    aliases: &'a Aliases,
    /// Candidates that were named already; `None` for an attempt that is not known.
    named: Vec<(Option<&'a Arc<Candidate>>, Base)>,
}

impl<'a> Bases<'a> {
    pub(super) fn new(names: &'a mut Names, run: &'a Run, aliases: &'a Aliases) -> Self {
        Self { names, run, aliases, named: Vec::new() }
    }

    /// Returns the names.
    pub(super) fn names(&self) -> &Names {
        self.names
    }

    /// Returns the number of a candidate's names; of the run's own where there is none.
    pub(super) fn of(&mut self, candidate: Option<&'a Arc<Candidate>>) -> Base {
        let same = |known: Option<&Arc<_>>| match (known, candidate) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if let Some((_, base)) = self.named.iter().find(|(known, _)| same(*known)) {
            return *base;
        }
        let model = candidate.and_then(|candidate| candidate.model.as_deref());
        let model = model.or(self.run.facts.model.as_deref()).unwrap_or("unknown");
        let provider = self.aliases.provider(self.run, candidate.map(|candidate| &**candidate));
        let base = self.names.of([&self.run.key.agent, provider, model]);
        if self.named.len() < 16 {
            self.named.push((candidate, base));
        }
        base
    }

    /// Returns the number of the account that a candidate is asked with; `None` where no log names it.
    pub(super) fn account(&mut self, candidate: &Candidate) -> Option<Account> {
        let account = candidate.account.as_deref().filter(|account| !account.is_empty())?;
        Some(Account(self.names.of([account, "", ""])))
    }

    pub(super) fn same_provider(&self, a: Base, b: Base) -> bool {
        self.names.all[a.0 as usize][1] == self.names.all[b.0 as usize][1]
    }
}

/// All series that samples were counted in, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    all: Vec<Series>,
    by_series: HashMap<Series, SeriesId>,
    /// The series of a key, and how many of its labels were folded.
    by_key: HashMap<Key, (SeriesId, u64)>,
    /// What was found last after each series: requests that go alike add alike.
    followed_by: Vec<Option<(Key, SeriesId, u64)>>,
    /// Found last.
    last: usize,
}

/// Keys that are remembered; beyond, all are found anew. Only names that are folded can be so many.
const KEYS: usize = 20_000;

impl Table {
    /// Returns the series of a number.
    pub(super) fn series(&self, id: SeriesId) -> &Series {
        &self.all[id.index()]
    }

    /// Returns the number of the series that a key stands for.
    pub(super) fn find(&mut self, key: Key, names: &Names, seen: &mut Seen) -> SeriesId {
        if let Some(Some((known, id, folded))) = self.followed_by.get(self.last)
            && *known == key
        {
            seen.folded += folded;
            self.last = id.index();
            return *id;
        }
        let (id, folded) = match self.by_key.get(&key) {
            Some(found) => *found,
            None => self.find_anew(key, names, seen),
        };
        seen.folded += folded;
        if self.followed_by.len() < self.all.len() {
            self.followed_by.resize(self.all.len(), None);
        }
        self.followed_by[self.last] = Some((key, id, folded));
        self.last = id.index();
        id
    }

    /// Returns the series of a key, and how many of its labels are folded.
    fn find_anew(&mut self, key: Key, names: &Names, seen: &mut Seen) -> (SeriesId, u64) {
        let before = seen.folded;
        let series = Series { metric: key.metric, labels: seen.labels(names.labels(&key)) };
        let id = self.by_series.get(&series).copied().unwrap_or_else(|| {
            let id = SeriesId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
            self.all.push(series.clone());
            self.by_series.insert(series, id);
            id
        });
        let found = (id, seen.folded - before);
        // Each sample counts those of its key.
        seen.folded = before;
        self.by_key.insert(key, found);
        found
    }

    /// Forgets keys, if there are too many; the numbers of series stay. Returns whether it did: the numbers of names in
    /// keys are void then.
    pub(super) fn forget_keys(&mut self) -> bool {
        let too_many = self.by_key.len() > KEYS;
        if too_many {
            self.by_key.clear();
            self.followed_by.clear();
            self.last = 0;
        }
        too_many
    }
}

/// What is found again is no state of its own.
impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::<Series>::deserialize(deserializer)?;
        let numbered = (0..).map(SeriesId);
        let by_series = all.iter().cloned().zip(numbered).collect();
        Ok(Self { all, by_series, ..Self::default() })
    }
}
