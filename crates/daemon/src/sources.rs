//! The decoders of all followed files: hands their lines, documents and rows to the engine.
//!
//! Not for: following files (the `tail` crate), what happens to them one by one (`listen`) or counting (see `count`). A source
//! that cannot be read is complained about and looked at again when it changes.

mod folders;
mod into;
mod listen;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_adapters::{
    DatabaseDecoder, DocumentDecoder, HEAD_LENGTH, LineDecoder, Reading, Recognized, may_hold_records,
    recognize,
};
use retryscope_record::{SourceId, View};
use retryscope_scan::settings::{Settled, agent_of};
use retryscope_scan::{feed, recognize_at};
use retryscope_tail::{FileState, Interest, Line, LineReader};
use serde::{Deserialize, Serialize, Serializer};

use self::folders::Folders;
use self::into::Into;
use crate::complain::Complaints;
use crate::count::{count, forget};
use crate::notify_systemd::Watchdog;
use crate::pipeline::roots;
use crate::state::{Shared, State};

/// A source that was not written to for this long has no more lines for now.
const QUIET: TimeDelta = TimeDelta::minutes(5);

/// Decoders by source.
pub(crate) struct Sources {
    shared: Arc<Shared>,
    decoders: BTreeMap<u32, Source>,
    /// Decoder states to go on from, by source.
    saved: BTreeMap<u32, SavedDecoder>,
    /// Followed files that have no decoder yet: the next line of one begins it.
    unbegun: BTreeSet<u32>,
    /// Files older than the history asked for are not counted.
    pub(crate) oldest: Option<SystemTime>,
    /// Retry settings of the agents.
    settings: Settled,
    /// Settings files changed since the states were last put right.
    settings_changed: bool,
    /// Sources that something was read of since then.
    touched: BTreeSet<u32>,
    /// Sources whose decoder has not been told that there are no more lines for now.
    going_on: BTreeSet<u32>,
    complaints: Complaints,
    pub(crate) watchdog: Watchdog,
    lines: u64,
}

struct Source {
    agent: Option<&'static str>,
    view: View,
    path: PathBuf,
    decoder: Decoder,
    /// Bytes of its beginning that it was recognized by.
    head: usize,
}

enum Decoder {
    Lines(Box<dyn LineDecoder>),
    Document(Box<dyn DocumentDecoder>),
    Database(Box<dyn DatabaseDecoder>),
    /// Configuration of the agent, read for its retry settings.
    Settings(&'static str),
}

/// What is saved of a decoder that can go on in the middle of its source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedDecoder {
    pub(crate) source: u32,
    pub(crate) state: serde_json::Value,
}

/// Returns whether a file is worth opening, by its name alone.
pub(crate) fn may_matter(path: &Path) -> bool {
    may_hold_records(path) || agent_of(path).is_some()
}

impl Sources {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            decoders: BTreeMap::new(),
            saved: BTreeMap::new(),
            unbegun: BTreeSet::new(),
            oldest: None,
            settings: Settled::default(),
            // What stood beside the sources may have changed since they were read last.
            settings_changed: true,
            touched: BTreeSet::new(),
            going_on: BTreeSet::new(),
            complaints: Complaints::default(),
            watchdog: Watchdog::from_environment(),
            lines: 0,
        }
    }

    /// Puts back the decoders that can go on; returns the files to follow.
    ///
    /// A decoder that cannot go on in the middle begins again, and what its source said is forgotten first; the totals know
    /// what each run has added, so nothing counts twice. What a file said that is gone stays.
    pub(crate) fn restore(&mut self, decoders: Vec<SavedDecoder>, files: Vec<FileState>) -> Vec<FileState> {
        self.saved = decoders.into_iter().map(|saved| (saved.source, saved)).collect();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let mut followed = Vec::new();
        let mut folders = Folders::below(&roots(&shared.config()));
        for mut file in files {
            let id = SourceId(file.id);
            let place = folders.place_of(&file);
            if let Some(path) = &place {
                file.path.clone_from(path);
            }
            state.paths.insert(id, file.path.clone());
            self.touched.insert(file.id);
            if file.interest == Interest::Lines {
                self.unbegun.insert(file.id);
            }
            match file.interest {
                Interest::None | Interest::Never | Interest::LinesFromEnd => {}
                Interest::Lines if self.reopen(&file) => {}
                Interest::Lines | Interest::Whole if !file.path.exists() => {}
                // What stands there is another file, which does not tell yet what it is: it decides at the first look.
                Interest::Lines if place.is_none() => {}
                Interest::Lines => {
                    state.engine.reset_source(id);
                    file.start_again();
                }
                // Read as a whole again, as a new source.
                Interest::Whole => state.engine.reset_source(id),
            }
            if file.interest != Interest::Whole {
                followed.push(file);
            }
        }
        // What else runs rest on was gone before.
        let there: BTreeSet<u32> = followed.iter().map(|file| file.id).collect();
        let gone = state.engine.sources().into_iter().filter(|id| !there.contains(&id.0));
        state.gone = gone.map(|id| (id, Utc::now())).collect();
        followed
    }

    /// Makes the decoder of a file again after a restart. Returns false if it must begin at the start of the file.
    fn reopen(&mut self, file: &FileState) -> bool {
        if !self.saved.contains_key(&file.id) {
            return false;
        }
        // What cannot be read for now, or is away, goes on when it is back.
        let Some(head) = head_of(&file.path) else { return true };
        let Some(saved) = self.saved.remove(&file.id) else { return false };
        let Some(recognized) = recognize_at(&file.path, &head) else { return false };
        let Reading::Lines(mut decoder) = recognized.reading else { return false };
        if !decoder.restore(&saved.state) {
            return false;
        }
        let (agent, view, path) = (recognized.agent, recognized.view, file.path.clone());
        let decoder = Decoder::Lines(decoder);
        self.decoders.insert(file.id, Source { agent, view, path, decoder, head: head.len() });
        self.unbegun.remove(&file.id);
        true
    }

    /// Decides anew what a file is, if more of its beginning stands there than when that was decided: a first line may be
    /// that of several kinds of logs. What it said as the other kind is void, and what stands before `line` is read again.
    fn recognize_anew(&mut self, id: u32, line: &Line<'_>) {
        let Some(source) = self.decoders.get_mut(&id) else { return };
        if source.head >= HEAD_LENGTH || line.offset < source.head as u64 || source.view == View::EVENTS {
            return;
        }
        let Some(head) = head_of(&source.path) else { return };
        source.head = head.len();
        let Some(recognized) = recognize(&source.path, &head) else { return };
        let Reading::Lines(decoder) = recognized.reading else { return };
        if (recognized.agent, recognized.view) == (source.agent, source.view) {
            return;
        }
        source.agent = recognized.agent;
        source.view = recognized.view;
        source.decoder = Decoder::Lines(decoder);
        self.read_again(id, line.offset);
    }

    /// Begins a known file anew.
    fn begin(&mut self, id: u32, path: &Path, head: &[u8]) {
        if let Some(recognized) = recognize_at(path, head) {
            self.take_up(id, path, recognized, head.len(), None);
        }
    }

    /// Makes the decoder of a file that was recognized by so many bytes of its beginning.
    fn take_up(
        &mut self,
        id: u32,
        path: &Path,
        recognized: Recognized,
        head: usize,
        before: Option<u32>,
    ) -> Interest {
        let changed_at = std::fs::metadata(path).and_then(|m| m.modified());
        let is_past = self.oldest.is_some_and(|oldest| changed_at.is_ok_and(|at| at < oldest));
        // A session cannot be understood from its middle; a log of our own schema can.
        if is_past && recognized.view != View::EVENTS {
            return Interest::Never;
        }
        let (interest, decoder) = match recognized.reading {
            Reading::Lines(mut decoder) => {
                // A log that goes on in a new file goes on with what its decoder knew, unless it was begun anew already.
                if let Some(known) = self.saved.remove(&id) {
                    decoder.restore(&known.state);
                } else if recognized.view == View::EVENTS
                    && let Some(Decoder::Lines(before)) =
                        before.and_then(|id| self.decoders.get(&id)).map(|source| &source.decoder)
                    && let Some(continued) = before.continued()
                {
                    decoder = continued;
                }
                let interest = if is_past { Interest::LinesFromEnd } else { Interest::Lines };
                (interest, Decoder::Lines(decoder))
            }
            Reading::Document(decoder) => (Interest::Whole, Decoder::Document(decoder)),
            Reading::Database(decoder) => (Interest::Whole, Decoder::Database(decoder)),
        };
        self.shared.lock().paths.insert(SourceId(id), path.to_path_buf());
        self.touched.insert(id);
        let (agent, view, path) = (recognized.agent, recognized.view, path.to_path_buf());
        self.decoders.insert(id, Source { agent, view, path, decoder, head });
        self.unbegun.remove(&id);
        interest
    }

    /// Reads what stands before an offset again, with a decoder that begins; what was said of it is void.
    fn read_again(&mut self, id: u32, end: u64) {
        let Some(Source { decoder: Decoder::Lines(decoder), view, path, .. }) = self.decoders.get_mut(&id)
        else {
            return;
        };
        let mut state = self.shared.lock();
        state.engine.reset_source(SourceId(id));
        let mut into = Into { state: &mut state, id: SourceId(id), view: *view };
        let mut before = File::open(path).map(LineReader::new).ok();
        while let Some(Ok(Some(known))) = before.as_mut().map(LineReader::next_complete_line)
            && known.offset < end
        {
            feed(decoder.as_mut(), known, &mut into);
        }
    }

    /// Puts right what is known of the sources beside their lines: when they were written, and settings in force.
    pub(crate) fn refresh_states(&mut self, state: &mut State) {
        let all = std::mem::take(&mut self.settings_changed);
        let touched = std::mem::take(&mut self.touched);
        let ids: Vec<u32> =
            if all { self.decoders.keys().copied().collect() } else { touched.into_iter().collect() };
        for id in ids {
            let Some(source) = self.decoders.get(&id) else { continue };
            self.settings.look_beside(&source.path);
            let settings = self.settings.of(source.agent, &source.path);
            let known = state.states.entry(SourceId(id)).or_default();
            let written = std::fs::metadata(&source.path).and_then(|m| m.modified());
            known.written_at = written.ok().map(DateTime::from).or(known.written_at);
            if known.settings != settings {
                known.settings = settings;
                state.engine.touch_source(SourceId(id));
            }
        }
    }

    /// Gives a sign of life.
    pub(crate) fn beat(&mut self) {
        self.shared.reader.beat();
        self.watchdog.beat();
    }

    /// Tells decoders that there are no more lines for now, once their source has been quiet for a while: a pause between
    /// two lines is no end.
    pub(crate) fn end_quiet(&mut self, state: &mut State, now: DateTime<Utc>) {
        let quiet = |id: &u32| {
            let written = state.states.get(&SourceId(*id)).and_then(|known| known.written_at);
            written.is_none_or(|at| now - at >= QUIET)
        };
        let ended: Vec<u32> = self.going_on.iter().copied().filter(quiet).collect();
        for id in ended {
            self.going_on.remove(&id);
            if let Some(Source { decoder: Decoder::Lines(decoder), view, .. }) = self.decoders.get_mut(&id) {
                decoder.end(&mut Into { state, id: SourceId(id), view: *view });
            }
        }
    }

    /// Keeps the memory of a long backlog bounded. Not where everything is to be counted as of one moment.
    fn count_so_far(&mut self) {
        let shared = self.shared.clone();
        if shared.config().as_of.is_some() {
            return;
        }
        let dirty = {
            let mut state = shared.lock();
            self.refresh_states(&mut state);
            state.engine.take_dirty()
        };
        count(&shared, &dirty);
        forget(&shared);
    }

    /// Forgets the places of sources that are neither followed nor evidence of a run.
    pub(crate) fn prune(&self, state: &mut State) {
        let evidence = state.engine.sources();
        let is_followed = |id: u32| self.decoders.contains_key(&id) || self.unbegun.contains(&id);
        let keeps = |id: &SourceId| is_followed(id.0) || evidence.contains(id);
        state.paths.retain(|id, _| keeps(id));
        state.states.retain(|id, _| keeps(id));
        state.gone.retain(|id, _| evidence.contains(id));
    }
}

/// What must be saved of the decoders.
impl Serialize for Sources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.decoders.iter().filter_map(|(id, source)| match &source.decoder {
            Decoder::Lines(decoder) => decoder.save().map(|state| SavedDecoder { source: *id, state }),
            Decoder::Document(_) | Decoder::Database(_) | Decoder::Settings(_) => None,
        }))
    }
}

fn head_of(path: &Path) -> Option<Vec<u8>> {
    // Opening anything but a regular file may wait for ever.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut head = Vec::new();
    File::open(path).and_then(|f| f.take(HEAD_LENGTH as u64).read_to_end(&mut head)).ok()?;
    Some(head)
}
