//! Takes the statements of all sources, gives the runs.
//!
//! Not for: reading sources or knowing the time. Invariant: the runs depend on what was said and on `AsOf`, not on how the
//! bytes were cut or in which order independent sources were read.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use retryscope_policy::Settings;
use retryscope_record::{Item, Origin, RunKey, SourceId, View};

use serde::{Deserialize, Serialize};

use crate::join::{Part, join};
use crate::run::Run;
use crate::view::{ViewOfRun, repeat_key};

/// What the caller knows of the world outside the logs.
#[derive(Debug)]
pub struct AsOf<'a> {
    /// The time that counts as now.
    pub now: DateTime<Utc>,
    /// State of each source.
    pub sources: &'a BTreeMap<SourceId, SourceState>,
}

impl AsOf<'_> {
    pub(crate) fn source(&self, id: SourceId) -> Option<&SourceState> {
        self.sources.get(&id)
    }
}

/// State of a source, as the caller sees it.
#[derive(Debug, Clone, Default)]
pub struct SourceState {
    /// Last time it was written to.
    pub written_at: Option<DateTime<Utc>>,
    /// Whether the program that writes it lives; `None` = unknown.
    pub writer_alive: Option<bool>,
    /// Retry settings of the agent's configuration beside it.
    pub settings: Option<Arc<Settings>>,
}

/// The state of everything read so far.
#[derive(Debug, Default)]
pub struct Engine {
    runs: BTreeMap<RunKey, BTreeMap<SourceKey, ViewOfRun>>,
    duplicates: u64,
    dirty: BTreeSet<RunKey>,
    /// The run that each source spoke of last.
    last: BTreeMap<SourceId, RunKey>,
    forgotten: Forgotten,
}

/// Ids of events of runs that were forgotten, as checksums, so that a repeat is still known as one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Forgotten {
    order: VecDeque<u64>,
    #[serde(skip)]
    ids: HashSet<u64>,
}

/// Most ids of forgotten runs that are remembered.
const FORGOTTEN_LIMIT: usize = 50_000;

impl Forgotten {
    fn insert(&mut self, id: u64) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > FORGOTTEN_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

/// FNV-1a, since it must be the same after an upgrade.
fn checksum(run: &RunKey, id: &str) -> u64 {
    let bytes = run.agent.bytes().chain([0]).chain(run.id.bytes()).chain([0]).chain(id.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What one source said of one run, to be saved and restored.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedView {
    run: RunKey,
    kind: String,
    source: SourceId,
    view: ViewOfRun,
}

/// Sources of our own schema continue each other (a rotated file goes on in the next), and files of one object each are
/// one view together; any other source is a view of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SourceKey {
    kind: View,
    source: Option<SourceId>,
    first: SourceId,
}

impl Engine {
    /// Returns an engine that has read nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one statement.
    pub fn apply(&mut self, kind: View, origin: Origin, item: &Item) {
        match item {
            Item::Event(event, raw) => {
                let key = RunKey::new(event.agent.as_deref().unwrap_or("agent"), event.run_id.as_str());
                if !self.forgotten.ids.is_empty()
                    && let Some(id) = repeat_key(event)
                    && self.forgotten.ids.contains(&checksum(&key, &id))
                {
                    self.duplicates += 1;
                    return;
                }
                if !self.view(key, kind, origin.source).event(origin, event, raw.as_deref()) {
                    self.duplicates += 1;
                }
            }
            Item::Mark { run, at, mark } => {
                self.view(run.clone(), kind, origin.source).mark(origin, *at, mark);
            }
        }
    }

    /// Takes note that something in a source could not be read: the run it spoke of last may have had more requests in its
    /// open turn than can be seen.
    pub fn gap(&mut self, kind: View, source: SourceId) {
        if let Some(run) = self.last.get(&source).cloned() {
            self.view(run, kind, source).gap();
        }
    }

    /// Forgets what a source said, because it was rewritten and will be read again.
    pub fn reset_source(&mut self, source: SourceId) {
        for (run, views) in &mut self.runs {
            let before = views.len();
            views.retain(|key, _| key.source != Some(source));
            if views.len() < before {
                self.dirty.insert(run.clone());
            }
        }
        self.runs.retain(|_, views| !views.is_empty());
    }

    /// Returns the runs that something was said of since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<RunKey> {
        std::mem::take(&mut self.dirty)
    }

    /// Forgets a run, to free its memory; repeats of its events are still known as such.
    pub fn forget(&mut self, run: &RunKey) {
        self.last.retain(|_, last| last != run);
        for view in self.runs.remove(run).into_iter().flat_map(BTreeMap::into_values) {
            for id in view.event_ids() {
                self.forgotten.insert(checksum(run, id));
            }
        }
    }

    /// Returns whether everything known of a run comes from logs of our own schema, which are never read twice.
    pub fn is_from_events(&self, run: &RunKey) -> bool {
        self.runs.get(run).is_some_and(|views| views.keys().all(|key| key.kind == View::EVENTS))
    }

    /// Returns when something last happened in each run.
    pub fn last_events(&self) -> impl Iterator<Item = (&RunKey, Option<DateTime<Utc>>)> {
        self.runs.iter().map(|(key, views)| (key, views.values().filter_map(|view| view.last_at).max()))
    }

    /// Returns the sources that are evidence of a run.
    pub fn sources(&self) -> BTreeSet<SourceId> {
        self.runs.values().flat_map(BTreeMap::keys).map(|key| key.first).collect()
    }

    /// Notes that something outside its log changed about a source.
    pub fn touch_source(&mut self, source: SourceId) {
        let of_source = self.runs.iter().filter(|(_, views)| views.keys().any(|key| key.first == source));
        self.dirty.extend(of_source.map(|(run, _)| run.clone()));
    }

    /// Returns what is remembered of forgotten runs, to be saved.
    pub fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Goes on with what was remembered of forgotten runs.
    pub fn restore_forgotten(&mut self, mut forgotten: Forgotten) {
        forgotten.ids = forgotten.order.iter().copied().collect();
        self.forgotten = forgotten;
    }

    /// Returns the keys of all runs.
    pub fn keys(&self) -> impl Iterator<Item = &RunKey> {
        self.runs.keys()
    }

    /// Returns everything that was said, to be saved. Cheap only for small states: it copies them.
    pub fn save(&self) -> Vec<SavedView> {
        let views =
            self.runs.iter().flat_map(|(run, views)| views.iter().map(move |(key, view)| (run, key, view)));
        views
            .map(|(run, key, view)| SavedView {
                run: run.clone(),
                kind: key.kind.0.to_owned(),
                source: key.first,
                view: view.clone(),
            })
            .collect()
    }

    /// Goes on from what was saved. Kinds of logs that this version does not know are left out.
    pub fn restore(&mut self, saved: Vec<SavedView>) {
        for SavedView { run, kind, source, view } in saved {
            let Some(kind) = View::from_name(&kind) else { continue };
            let shared = kind == View::EVENTS;
            let key = SourceKey { kind, source: (!shared).then_some(source), first: source };
            self.dirty.insert(run.clone());
            self.runs.entry(run).or_default().insert(key, view);
        }
    }

    /// Returns how many repeats were dropped.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns all runs, by agent and id.
    pub fn runs(&self, as_of: &AsOf<'_>) -> Vec<Run> {
        self.runs.iter().map(|(key, views)| join(key, parts(views), as_of)).collect()
    }

    /// Returns one run.
    pub fn run(&self, key: &RunKey, as_of: &AsOf<'_>) -> Option<Run> {
        self.runs.get(key).map(|views| join(key, parts(views), as_of))
    }

    fn view(&mut self, key: RunKey, kind: View, source: SourceId) -> &mut ViewOfRun {
        if !self.dirty.contains(&key) {
            self.dirty.insert(key.clone());
        }
        if self.last.get(&source) != Some(&key) {
            self.last.insert(source, key.clone());
        }
        let views = self.runs.entry(key).or_default();
        let shared = kind == View::EVENTS || kind == View::OBJECTS;
        if shared && let Some(known) = views.keys().find(|k| k.kind == kind).copied() {
            return views.entry(known).or_default();
        }
        let source_key = SourceKey { kind, source: (!shared).then_some(source), first: source };
        views.entry(source_key).or_default()
    }
}

fn parts(views: &BTreeMap<SourceKey, ViewOfRun>) -> Vec<Part<'_>> {
    views
        .iter()
        .map(|(key, view)| Part { source: key.first, kind: key.kind, view: Cow::Borrowed(view) })
        .collect()
}
