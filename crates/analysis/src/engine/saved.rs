//! What an engine knows, to be saved and gone on with: what sources said of runs, where they left off, and what is known as a
//! repeat.
//!
//! Not for: files or formats of checkpoints; whoever saves chooses them.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use retryscope_record::{RunKey, SourceId, View};
use serde::{Deserialize, Serialize};

use super::{Engine, SourceKey, view_at};
use crate::repeats::Forgotten;
use crate::view::ViewOfRun;

/// What one source said of one run, to be saved and restored.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedView {
    run: RunKey,
    kind: String,
    source: SourceId,
    /// Sources that spoke of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    speakers: Vec<SourceId>,
    view: ViewOfRun,
}

/// Where sources left off, beside what they said.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LeftOff {
    /// The run that each source spoke of last, of those that speak of several.
    last: BTreeMap<SourceId, RunKey>,
    /// Sources of which the last thing known is that something could not be read.
    gapped: BTreeSet<SourceId>,
    /// Sources in which something could not be read.
    has_gaps: BTreeSet<SourceId>,
}

impl Engine {
    /// Returns what is remembered of forgotten runs, to be saved.
    pub fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Goes on with what was remembered of forgotten runs.
    pub fn restore_forgotten(&mut self, forgotten: Forgotten) {
        self.forgotten = forgotten.restored();
    }

    /// Returns everything that was said of a run, to be saved.
    pub fn save(&self, run: &RunKey) -> Vec<SavedView> {
        let Some(known) = self.known(run) else { return Vec::new() };
        let saved = known.views.iter().map(|(key, view)| SavedView {
            run: run.clone(),
            kind: key.kind.0.to_owned(),
            source: key.first,
            speakers: known.speakers.clone(),
            view: view.clone(),
        });
        saved.collect()
    }

    /// Goes on from what was saved. Kinds of logs that this version does not know are left out.
    pub fn restore(&mut self, saved: Vec<SavedView>) {
        for SavedView { run, kind, source, speakers, mut view } in saved {
            let Some(kind) = View::from_name(&kind) else { continue };
            let key =
                SourceKey { kind, source: (!Self::is_continued(kind)).then_some(source), first: source };
            let place = self.place_of(&run);
            self.soil(place);
            view.share(&mut self.memo);
            for speaker in speakers.iter().chain([&source]) {
                self.note_fresh(place, *speaker);
            }
            if let Some(run) = &mut self.known[place] {
                *view_at(&mut run.views, key) = view;
                run.speakers = speakers;
            }
        }
    }

    /// Returns where the sources left off, to be saved: what cannot be read next is of the run they spoke of last.
    pub fn left_off(&self) -> LeftOff {
        let only = self.only_runs();
        let last = self.last.iter().filter(|(source, _)| only.get(source).is_none_or(Option::is_none));
        LeftOff {
            last: last
                .filter_map(|(source, place)| Some((*source, self.known[*place].as_ref()?.key.clone())))
                .collect(),
            gapped: self.gapped.iter().copied().collect(),
            has_gaps: self.has_gaps.iter().copied().collect(),
        }
    }

    /// Returns where the run stands of each source that speaks of one alone, as most do; `None` for the others.
    fn only_runs(&self) -> HashMap<SourceId, Option<usize>> {
        let mut only: HashMap<SourceId, Option<usize>> = HashMap::default();
        for (place, run) in self.known.iter().enumerate() {
            for speaker in run.iter().flat_map(|run| &run.speakers) {
                only.entry(*speaker).and_modify(|known| *known = None).or_insert(Some(place));
            }
        }
        only
    }

    /// Goes on where the sources left off, after their views were restored.
    pub fn restore_left_off(&mut self, left_off: LeftOff) {
        let only = self.only_runs();
        self.last.extend(only.into_iter().filter_map(|(source, place)| Some((source, place?))));
        for (source, run) in left_off.last {
            if let Some(place) = self.places.get(&run) {
                self.last.insert(source, *place);
            }
        }
        self.gapped.extend(left_off.gapped);
        self.has_gaps.extend(left_off.has_gaps);
    }

    /// Returns how many records of each source were repeats, also before the start: their sources are read anew then.
    pub fn repeated_records(&self) -> BTreeMap<SourceId, u64> {
        self.records.repeated()
    }

    /// Goes on with what was counted before the start.
    pub fn restore_repeated_records(&mut self, repeated: BTreeMap<SourceId, u64>) {
        self.records.restore(repeated);
    }
}
