//! The reading thread: follows the files, feeds the engine, counts, saves.
//!
//! One loop on one thread owns the follower and the decoders; the state behind [`Shared`] is locked only while a file's new
//! lines are applied. A change notification only makes the next look come earlier.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::Utc;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use retryscope_adapters::{
    DatabaseDecoder, DocumentDecoder, LineDecoder, Reading, may_hold_records, open_database, recognize,
};
use retryscope_analysis::AsOf;
use retryscope_record::{GapKind, Item, Origin, Place, RunKey, Sink, SourceId, View};
use retryscope_scan::{feed, may_enter};
use retryscope_tail::{FileState, Follower, Happening, Interest, Line, Listener};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::checkpoint::{self, Restored};
use crate::config::{Config, History};
use crate::notify_systemd;
use crate::state::{Shared, State};

/// Longest time between two savings while something changes.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);

/// Largest document that is read.
const DOCUMENT_LIMIT: u64 = 16 << 20;

/// Runs whose last event is older than this are no longer kept in memory once they are over.
const FORGET_AFTER: chrono::TimeDelta = chrono::TimeDelta::hours(24);

/// The reading thread's own state.
pub(crate) struct Pipeline {
    config: Arc<Config>,
    shared: Arc<Shared>,
    follower: Follower,
    sources: Sources,
    saved_at: Instant,
    changed: bool,
}

/// Decoders by source.
struct Sources {
    shared: Arc<Shared>,
    decoders: BTreeMap<u32, Source>,
    /// Decoder states to go on from, by source.
    saved: BTreeMap<u32, SavedDecoder>,
    /// Files older than the history asked for are not counted.
    oldest: Option<std::time::SystemTime>,
}

struct Source {
    view: View,
    path: PathBuf,
    decoder: Decoder,
}

enum Decoder {
    Lines(Box<dyn LineDecoder>),
    Document(Box<dyn DocumentDecoder>),
    Database(Box<dyn DatabaseDecoder>),
}

/// What is saved of a decoder that can go on in the middle of its source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedDecoder {
    pub(crate) source: u32,
    pub(crate) state: serde_json::Value,
}

impl Pipeline {
    pub(crate) fn new(
        config: Arc<Config>,
        shared: Arc<Shared>,
        restored: Option<Restored>,
    ) -> anyhow::Result<Self> {
        let mut roots = config.roots.clone();
        roots.push(config.received_dir());
        let mut follower = Follower::new(roots, may_enter, may_hold_records);
        let mut sources = Sources {
            shared: shared.clone(),
            decoders: BTreeMap::new(),
            saved: BTreeMap::new(),
            oldest: None,
        };
        match restored {
            Some(restored) => restore(restored, &shared, &mut follower, &mut sources),
            None => {
                let now = std::time::SystemTime::now();
                sources.oldest = match config.history {
                    History::All => None,
                    History::None => Some(now),
                    History::Since(span) => span.to_std().ok().and_then(|span| now.checked_sub(span)),
                };
            }
        }
        Ok(Self { config, shared, follower, sources, saved_at: Instant::now(), changed: false })
    }

    /// Reads until told to stop.
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        let _watcher = self.watch();
        // The backlog: until a look finds nothing new.
        while self.look() > 0 && !stop.load(Ordering::SeqCst) {}
        // What is there when the daemon starts is the past; what comes from now on is not.
        self.sources.oldest = None;
        self.shared.lock().ready = true;
        info!(files = self.follower.len(), "backlog read");
        notify_systemd::ready();
        self.save();
        while !stop.load(Ordering::SeqCst) {
            self.shared.wait(Duration::from_millis(self.config.rescan_ms));
            if stop.load(Ordering::SeqCst) {
                break;
            }
            self.look();
            notify_systemd::watchdog();
            if self.changed && self.saved_at.elapsed() >= CHECKPOINT_EVERY {
                self.save();
            }
        }
        notify_systemd::stopping();
        if self.config.drain {
            while self.look() > 0 {}
        }
        self.save();
    }

    /// Starts change notification; polling alone works too.
    fn watch(&self) -> Option<RecommendedWatcher> {
        self.shared.lock().mode = "poll";
        if self.config.poll {
            return None;
        }
        let shared = self.shared.clone();
        let mut watcher = notify::recommended_watcher(move |_| shared.wake())
            .map_err(|error| warn!(%error, "no change notification"))
            .ok()?;
        for root in self.config.roots.iter().chain([&self.config.received_dir()]) {
            if let Err(error) = watcher.watch(root, RecursiveMode::Recursive) {
                warn!(root = %root.display(), %error, "not watched, polled instead");
            }
        }
        self.shared.lock().mode = "notify";
        Some(watcher)
    }

    /// Looks at all files once; returns how many lines were new.
    fn look(&mut self) -> u64 {
        let lines = self.follower.scan(&mut self.sources);
        let mut state = self.shared.lock();
        state.read_at = Some(Utc::now());
        let dirty = state.engine.take_dirty();
        if !dirty.is_empty() {
            self.changed = true;
            count(&mut state, &dirty, &self.config);
        }
        lines
    }

    fn save(&mut self) {
        let (files, next_id) = self.follower.states();
        let decoders = self.sources.decoders.iter().filter_map(|(id, source)| match &source.decoder {
            Decoder::Lines(decoder) => decoder.save().map(|state| SavedDecoder { source: *id, state }),
            Decoder::Document(_) | Decoder::Database(_) => None,
        });
        let mut state = self.shared.lock();
        let result = checkpoint::save(&self.config.state_dir, &state, files, next_id, decoders.collect());
        match result {
            Ok(()) => state.checkpoint_at = Some(Utc::now()),
            Err(error) => {
                state.counts.checkpoint_failures += 1;
                warn!(error = format!("{error:#}"), "cannot save the state");
            }
        }
        self.saved_at = Instant::now();
        self.changed = false;
    }
}

/// Puts back what was saved. A decoder that cannot go on in the middle begins again, and what its source said is forgotten
/// first; the totals know what each run has added, so nothing counts twice.
fn restore(restored: Restored, shared: &Arc<Shared>, follower: &mut Follower, sources: &mut Sources) {
    let mut state = shared.lock();
    state.totals = restored.totals;
    state.counts = restored.counts;
    state.engine.restore(restored.views);
    sources.saved = restored.decoders.into_iter().map(|saved| (saved.source, saved)).collect();
    let mut files: Vec<FileState> = Vec::new();
    for mut file in restored.files {
        let id = SourceId(file.id);
        state.paths.insert(id, file.path.clone());
        if file.interest == Interest::Lines && !sources.reopen(&file) {
            if file.path.exists() {
                state.engine.reset_source(id);
            }
            file.start_again();
        }
        if file.interest != Interest::Whole {
            files.push(file);
        }
    }
    follower.restore(files, restored.next_id);
}

/// Counts what is new in the runs that something was said of.
fn count(state: &mut State, dirty: &std::collections::BTreeSet<RunKey>, config: &Config) {
    let now = Utc::now();
    for key in dirty {
        let as_of = AsOf { now, sources: &state.states };
        let Some(run) = state.engine.run(key, &as_of) else { continue };
        state.totals.add(&run, now);
    }
    state.totals.budget_mut().forget_before(now);
    let exhausted: Vec<(String, String, String)> = state
        .totals
        .budget()
        .states(now, config.budget)
        .into_iter()
        .filter(|budget| budget.exhausted)
        .map(|budget| (budget.scope.kind, budget.scope.name, budget.window.to_owned()))
        .collect();
    for key in &exhausted {
        if !state.exhausted_now.contains(key) {
            *state.counts.exhausted.entry(key.clone()).or_default() += 1;
        }
    }
    state.exhausted_now = exhausted;
    let _ = FORGET_AFTER;
}

impl Sources {
    /// Makes the decoder of a file again after a restart. Returns false if it must begin at the start of the file.
    fn reopen(&mut self, file: &FileState) -> bool {
        let Some(saved) = self.saved.remove(&file.id) else { return false };
        let mut head = Vec::new();
        let read = File::open(&file.path).and_then(|f| f.take(16 << 10).read_to_end(&mut head));
        if read.is_err() {
            return false;
        }
        let Some(recognized) = recognize(&file.path, &head) else { return false };
        let Reading::Lines(mut decoder) = recognized.reading else { return false };
        if !decoder.restore(&saved.state) {
            return false;
        }
        let source =
            Source { view: recognized.view, path: file.path.clone(), decoder: Decoder::Lines(decoder) };
        self.decoders.insert(file.id, source);
        true
    }
}

impl Listener for Sources {
    fn opened(&mut self, id: u32, path: &Path, head: &[u8], before: Option<u32>) -> Interest {
        if let Some(oldest) = self.oldest
            && std::fs::metadata(path).and_then(|m| m.modified()).is_ok_and(|at| at < oldest)
        {
            return Interest::None;
        }
        let Some(recognized) = recognize(path, head) else { return Interest::None };
        let (interest, decoder) = match recognized.reading {
            Reading::Lines(mut decoder) => {
                // A log that goes on in a new file goes on with what its decoder knew, unless it was begun anew already.
                let known = self.saved.remove(&id).map(|saved| saved.state);
                let known = known.or_else(|| match &self.decoders.get(&before?)?.decoder {
                    Decoder::Lines(decoder) if recognized.view == View::EVENTS => decoder.save(),
                    _ => None,
                });
                if let Some(known) = known {
                    decoder.restore(&known);
                }
                (Interest::Lines, Decoder::Lines(decoder))
            }
            Reading::Document(decoder) => (Interest::Whole, Decoder::Document(decoder)),
            Reading::Database(decoder) => (Interest::Whole, Decoder::Database(decoder)),
        };
        self.shared.lock().paths.insert(SourceId(id), path.to_path_buf());
        self.decoders.insert(id, Source { view: recognized.view, path: path.to_path_buf(), decoder });
        interest
    }

    fn line(&mut self, id: u32, line: Line<'_>) {
        // A file whose decoder is not there was read before the last start and has not been begun again: begin it.
        if !self.decoders.contains_key(&id) {
            let path = self.shared.lock().paths.get(&SourceId(id)).cloned();
            if let Some(path) = path {
                self.opened(id, &path, line.bytes, None);
            }
        }
        let Some(source) = self.decoders.get_mut(&id) else { return };
        let Decoder::Lines(decoder) = &mut source.decoder else { return };
        let mut state = self.shared.lock();
        feed(decoder.as_mut(), line, &mut Into { state: &mut state, id: SourceId(id), view: source.view });
    }

    fn whole(&mut self, id: u32, path: &Path) {
        let Some(source) = self.decoders.get_mut(&id) else { return };
        source.path = path.to_path_buf();
        let mut state = self.shared.lock();
        let view = source.view;
        match &mut source.decoder {
            Decoder::Document(decoder) => {
                let mut bytes = Vec::new();
                if File::open(path).and_then(|f| f.take(DOCUMENT_LIMIT).read_to_end(&mut bytes)).is_ok() {
                    state.engine.reset_source(SourceId(id));
                    decoder.document(&bytes, &mut Into { state: &mut state, id: SourceId(id), view });
                }
            }
            Decoder::Database(decoder) => {
                let opened = open_database(path);
                let mut into = Into { state: &mut state, id: SourceId(id), view };
                let result = opened.and_then(|opened| decoder.rows(opened.connection(), &mut into));
                if let Err(error) = result {
                    into.gap(Place::Whole, GapKind::Database { message: error.to_string() });
                }
            }
            Decoder::Lines(_) => {}
        }
    }

    fn replaced(&mut self, id: u32) -> bool {
        // Our own schema is a log that goes on; a session file that was replaced holds everything anew.
        self.decoders.get(&id).is_none_or(|source| source.view != View::EVENTS)
    }

    fn reset(&mut self, id: u32) {
        let Some(source) = self.decoders.remove(&id) else { return };
        self.shared.lock().engine.reset_source(SourceId(id));
        let mut head = Vec::new();
        let read = File::open(&source.path).and_then(|f| f.take(16 << 10).read_to_end(&mut head));
        if read.is_ok() {
            self.opened(id, &source.path, &head, None);
        }
    }

    fn happened(&mut self, id: u32, happening: Happening) {
        let mut state = self.shared.lock();
        match happening {
            Happening::Renamed { to } => {
                state.counts.rotations += 1;
                state.paths.insert(SourceId(id), to);
            }
            Happening::Truncated { possible_loss } => {
                state.counts.truncations += 1;
                if possible_loss.is_none() {
                    warn!(source = id, "a file was cut; lines written just before may be lost");
                }
            }
            Happening::Rewritten => state.counts.rotations += 1,
            Happening::Removed => {
                drop(state);
                self.decoders.remove(&id);
            }
            Happening::Unreadable { message } => warn!(source = id, message, "cannot read a file for now"),
        }
    }
}

/// Hands what a decoder finds to the engine.
struct Into<'a> {
    state: &'a mut State,
    id: SourceId,
    view: View,
}

impl Sink for Into<'_> {
    fn item(&mut self, place: Place, item: Item) {
        self.state.engine.apply(self.view, Origin { source: self.id, place }, &item);
    }

    fn gap(&mut self, _place: Place, kind: GapKind) {
        if kind == GapKind::OversizedLine {
            self.state.counts.oversized += 1;
        }
        *self.state.counts.gaps.entry(kind.label().to_owned()).or_default() += 1;
    }
}
