//! Takes the statements of all sources, gives the runs.
//!
//! Not for: reading sources or knowing the time. Invariant: the runs depend on what was said and on `AsOf`, not on how the
//! bytes were cut or in which order independent sources were read.

mod saved;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use foldhash::{HashMap, HashSet};
use retryscope_events::Body;
use retryscope_policy::Settings;
use retryscope_record::{Item, Origin, RunKey, SourceId, View};
pub use saved::{LeftOff, SavedView};

use crate::join::{Part, join};
use crate::repeats::{Forgotten, Records, repeat_id};
use crate::run::Run;
use crate::view::{Memo, ViewOfRun};

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
    /// Where each run stands in `known`.
    places: BTreeMap<RunKey, usize>,
    known: Vec<Option<KnownRun>>,
    /// Places in `known` that are free.
    free: Vec<usize>,
    duplicates: u64,
    /// Places of runs that something was said of.
    dirty: Vec<usize>,
    /// Runs that are no longer there because what was said of them is void.
    gone: Vec<RunKey>,
    /// Where the run stands that each source spoke of last.
    last: HashMap<SourceId, usize>,
    /// Where the runs stand that each source spoke of since something in it could not be read; some may be gone since.
    fresh: HashMap<SourceId, Vec<usize>>,
    /// Sources of which the last thing known is that something could not be read.
    gapped: HashSet<SourceId>,
    /// Sources in which something could not be read.
    has_gaps: HashSet<SourceId>,
    forgotten: Forgotten,
    records: Records,
    memo: Memo,
}

/// What is known of one run.
#[derive(Debug)]
struct KnownRun {
    key: RunKey,
    /// In the order of their keys; mostly one.
    views: Vec<(SourceKey, ViewOfRun)>,
    /// Sources that spoke of it.
    speakers: Vec<SourceId>,
    /// Those of them that did so since something in them could not be read.
    fresh: Vec<SourceId>,
    is_dirty: bool,
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
    pub fn apply(&mut self, kind: View, origin: Origin, item: Item<'_>) {
        match item {
            Item::Event(event, raw) => {
                let agent = event.agent.as_deref().unwrap_or("agent");
                let id = repeat_id(agent, event);
                if id.is_some_and(|id| self.forgotten.holds(id)) {
                    self.duplicates += 1;
                    return;
                }
                let place = self.place(agent, &event.run_id, origin.source);
                if !self.has_gaps.is_empty() && !matches!(event.body, Body::RunStarted(_)) {
                    self.note_lost_beginning(place, kind, origin.source);
                }
                let mut memo = std::mem::take(&mut self.memo);
                let is_new = self
                    .view(place, kind, origin.source)
                    .is_none_or(|view| view.event(origin, event, raw, id, &mut memo));
                self.memo = memo;
                self.duplicates += u64::from(!is_new);
            }
            Item::Mark { run, at, mark } => {
                let place = self.place(&run.agent, &run.id, origin.source);
                if let Some(view) = self.view(place, kind, origin.source) {
                    view.mark(origin, at, mark);
                }
            }
        }
    }

    /// Returns whether a record that its source gives a checksum is there for the first time; a repeat is counted.
    pub fn is_new_record(&mut self, source: SourceId, id: u64) -> bool {
        self.records.is_new(source, id)
    }

    /// Returns whether sources of this kind that speak of one run continue each other, so that their order matters.
    pub fn is_continued(kind: View) -> bool {
        kind == View::EVENTS || kind == View::OBJECTS
    }

    /// Returns whether a source of this kind, which others continue, spoke of a run.
    pub fn is_begun(&self, run: &RunKey, kind: View) -> bool {
        Self::is_continued(kind)
            && self.known(run).is_some_and(|run| run.views.iter().any(|(key, _)| key.kind == kind))
    }

    /// Takes over what another engine read from other sources. Where both hold a view of one run that sources continue
    /// (see [`Engine::is_continued`]), the other one's is lost: the caller reads such sources in order instead.
    pub fn absorb(&mut self, other: Engine) {
        self.duplicates += other.duplicates;
        if self.places.is_empty() {
            let records = std::mem::take(&mut self.records).and(other.records);
            *self = Engine { duplicates: self.duplicates, records, ..other };
            return;
        }
        self.records = std::mem::take(&mut self.records).and(other.records);
        let mut moved = HashMap::default();
        for (from, run) in other.known.into_iter().enumerate() {
            let Some(run) = run else { continue };
            let place = self.place_of(&run.key);
            moved.insert(from, place);
            if let Some(known) = &mut self.known[place] {
                for (key, view) in run.views {
                    if let Err(at) = known.views.binary_search_by_key(&key, |(key, _)| *key) {
                        known.views.insert(at, (key, view));
                    }
                }
                known.speakers.extend(run.speakers);
            }
            self.soil(place);
        }
        let last = other.last.into_iter().filter_map(|(source, from)| Some((source, *moved.get(&from)?)));
        self.last.extend(last.collect::<BTreeMap<_, _>>());
        self.gapped.extend(other.gapped);
        self.has_gaps.extend(other.has_gaps);
    }

    /// Takes note that something in a source could not be read: the run it spoke of last, and any other that it has spoken of
    /// and that is not over, may have had more requests than can be seen.
    pub fn gap(&mut self, kind: View, source: SourceId) {
        // Nothing was said since the gap before.
        if !self.gapped.insert(source) {
            return;
        }
        self.has_gaps.insert(source);
        let last = self.last.get(&source).copied();
        // Of what was hit before, and not spoken of since, nothing more is lost.
        for place in self.fresh.remove(&source).unwrap_or_default() {
            let Some(run) = &mut self.known[place] else { continue };
            let spoken = run.fresh.len();
            run.fresh.retain(|speaker| *speaker != source);
            let speaks = run.fresh.len() < spoken;
            let is_hit = |view: &&mut ViewOfRun| Some(place) == last || view.is_open();
            if speaks && let Some(view) = self.view(place, kind, source).filter(is_hit) {
                view.gap();
                self.soil(place);
            }
        }
        if let Some(last) = last {
            self.note_fresh(last, source);
        }
    }

    /// Takes note that a source spoke of a run.
    fn note_fresh(&mut self, place: usize, source: SourceId) {
        let Some(run) = &mut self.known[place] else { return };
        if run.fresh.contains(&source) {
            return;
        }
        run.fresh.push(source);
        let places = self.fresh.entry(source).or_default();
        // Runs that were forgotten leave their places behind.
        if places.len() > 1_000 && places.len() > 2 * self.known.len() {
            let known = &self.known;
            let is_there = |place: &usize| {
                known.get(*place).and_then(Option::as_ref).is_some_and(|run| run.fresh.contains(&source))
            };
            places.retain(is_there);
            places.sort_unstable();
            places.dedup();
        }
        places.push(place);
    }

    /// Forgets what a source said, because it was rewritten and will be read again.
    pub fn reset_source(&mut self, source: SourceId) {
        self.records.forget(source);
        self.fresh.remove(&source);
        // It speaks of its runs, and of what it lost, anew.
        self.last.remove(&source);
        self.gapped.remove(&source);
        self.has_gaps.remove(&source);
        for place in 0..self.known.len() {
            let Some(run) = &mut self.known[place] else { continue };
            run.fresh.retain(|speaker| *speaker != source);
            let before = run.views.len();
            run.views.retain(|(key, _)| key.source != Some(source));
            if run.views.len() < before {
                run.speakers.retain(|speaker| *speaker != source);
            }
            if run.views.is_empty() {
                let key = run.key.clone();
                self.remove(&key);
                self.gone.push(key);
            } else if run.views.len() < before {
                self.soil(place);
            }
        }
    }

    /// Returns the runs that something was said of since the last call, in order.
    pub fn take_dirty(&mut self) -> BTreeSet<RunKey> {
        let mut dirty: BTreeSet<RunKey> = std::mem::take(&mut self.gone).into_iter().collect();
        for place in std::mem::take(&mut self.dirty) {
            if let Some(run) = &mut self.known[place]
                && run.is_dirty
            {
                run.is_dirty = false;
                dirty.insert(run.key.clone());
            }
        }
        dirty
    }

    /// Forgets a run, to free its memory; repeats of its events are still known as such.
    pub fn forget(&mut self, run: &RunKey) {
        for (_, view) in self.remove(run).into_iter().flat_map(|run| run.views) {
            for id in view.event_ids() {
                self.forgotten.insert(id);
            }
        }
    }

    /// A run that a source speaks of for the first time, and not with its beginning: what could not be read may have been it.
    fn note_lost_beginning(&mut self, place: usize, kind: View, source: SourceId) {
        if self.has_gaps.contains(&source)
            && let Some(view) = self.view(place, kind, source)
            && view.is_empty()
        {
            view.gap();
        }
    }

    fn remove(&mut self, key: &RunKey) -> Option<KnownRun> {
        let place = self.places.remove(key)?;
        let run = self.known[place].take()?;
        for source in &run.speakers {
            if self.last.get(source) == Some(&place) {
                self.last.remove(source);
            }
        }
        self.free.push(place);
        Some(run)
    }

    fn soil(&mut self, place: usize) {
        if let Some(run) = &mut self.known[place]
            && !run.is_dirty
        {
            run.is_dirty = true;
            self.dirty.push(place);
        }
    }

    fn runs_in_order(&self) -> impl Iterator<Item = &KnownRun> {
        self.places.values().filter_map(|place| self.known[*place].as_ref())
    }

    fn known(&self, key: &RunKey) -> Option<&KnownRun> {
        self.known[*self.places.get(key)?].as_ref()
    }

    /// Returns whether everything known of a run comes from logs of our own schema, which are never read twice.
    pub fn is_from_events(&self, run: &RunKey) -> bool {
        self.known(run).is_some_and(|run| run.views.iter().all(|(key, _)| key.kind == View::EVENTS))
    }

    /// Returns when something last happened in each run.
    pub fn last_events(&self) -> impl Iterator<Item = (&RunKey, Option<DateTime<Utc>>)> {
        self.runs_in_order()
            .map(|run| (&run.key, run.views.iter().filter_map(|(_, view)| view.last_at).max()))
    }

    /// Returns the sources that are evidence of any run.
    pub fn sources(&self) -> BTreeSet<SourceId> {
        self.runs_in_order().flat_map(sources_of).collect()
    }

    /// Returns the sources that are evidence of a run.
    pub fn sources_of(&self, run: &RunKey) -> BTreeSet<SourceId> {
        self.known(run).into_iter().flat_map(sources_of).collect()
    }

    /// Notes that something outside its log changed about a source.
    pub fn touch_source(&mut self, source: SourceId) {
        for place in 0..self.known.len() {
            let speaks = |run: &KnownRun| {
                run.speakers.contains(&source) || run.views.iter().any(|(key, _)| key.first == source)
            };
            if self.known[place].as_ref().is_some_and(speaks) {
                self.soil(place);
            }
        }
    }

    /// Returns the keys of all runs.
    pub fn keys(&self) -> impl Iterator<Item = &RunKey> {
        self.places.keys()
    }

    /// Returns how many repeats were dropped since the start, beside those of [`Engine::repeated_records`].
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns all runs, by agent and id.
    pub fn runs(&self, as_of: &AsOf<'_>) -> Vec<Run> {
        self.runs_in_order().map(|run| join(&run.key, parts(run), as_of)).collect()
    }

    /// Hands over all runs, by agent and id, one after the other: none is kept.
    pub fn each_run(&self, as_of: &AsOf<'_>, mut take: impl FnMut(Run)) {
        for run in self.runs_in_order() {
            take(join(&run.key, parts(run), as_of));
        }
    }

    /// Returns one run.
    pub fn run(&self, key: &RunKey, as_of: &AsOf<'_>) -> Option<Run> {
        self.known(key).map(|run| join(&run.key, parts(run), as_of))
    }

    /// Returns where the run stands that a source speaks of now.
    fn place(&mut self, agent: &str, id: &str, source: SourceId) -> usize {
        let is_it = |place: &usize| {
            self.known[*place].as_ref().is_some_and(|run| *run.key.id == *id && *run.key.agent == *agent)
        };
        let last = self.last.get(&source).copied().filter(is_it);
        if !self.gapped.is_empty() {
            self.gapped.remove(&source);
        }
        let place = last.unwrap_or_else(|| {
            let place = self.place_of(&RunKey::new(agent, id));
            self.last.insert(source, place);
            if let Some(run) = &mut self.known[place]
                && !run.speakers.contains(&source)
            {
                run.speakers.push(source);
            }
            self.note_fresh(place, source);
            place
        });
        self.soil(place);
        place
    }

    /// Returns where a run stands, after making room for a new one.
    fn place_of(&mut self, key: &RunKey) -> usize {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.known.push(None);
            self.known.len() - 1
        });
        self.known[place] = Some(KnownRun {
            key: key.clone(),
            views: Vec::new(),
            speakers: Vec::new(),
            fresh: Vec::new(),
            is_dirty: false,
        });
        self.places.insert(key.clone(), place);
        place
    }

    /// Returns the view of a source on a run; `None` for a run that is not there.
    fn view(&mut self, place: usize, kind: View, source: SourceId) -> Option<&mut ViewOfRun> {
        let views = &mut self.known[place].as_mut()?.views;
        let shared = Self::is_continued(kind);
        let known =
            if shared { views.iter().map(|(key, _)| *key).find(|key| key.kind == kind) } else { None };
        let first = SourceKey { kind, source: (!shared).then_some(source), first: source };
        Some(view_at(views, known.unwrap_or(first)))
    }
}

/// Returns the view of a key, after making an empty one if there is none.
fn view_at(views: &mut Vec<(SourceKey, ViewOfRun)>, key: SourceKey) -> &mut ViewOfRun {
    let place = views.binary_search_by_key(&key, |(key, _)| *key).unwrap_or_else(|place| {
        // Most runs have one source.
        views.reserve_exact(1);
        views.insert(place, (key, ViewOfRun::default()));
        place
    });
    &mut views[place].1
}

fn sources_of(run: &KnownRun) -> impl Iterator<Item = SourceId> {
    run.views.iter().map(|(key, _)| key.first).chain(run.speakers.iter().copied())
}

fn parts(run: &KnownRun) -> Vec<Part<'_>> {
    let parts = run.views.iter().map(|(key, view)| {
        // What continues is told by all of them; any other view by its own source.
        let is_alone = key.source.is_some() || run.speakers.is_empty();
        let sources = if is_alone { vec![key.first] } else { run.speakers.clone() };
        Part { source: key.first, sources, kind: key.kind, view: Cow::Borrowed(view) }
    });
    parts.collect()
}
