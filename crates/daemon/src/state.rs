//! What the reading thread and the HTTP server share: the state behind its lock, and the means to wake the reader.
//!
//! Not for: reading (the pipeline) or laying out answers (see `answers`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use retryscope_analysis::{Aliases, Engine, SourceState, Totals, pairs};
use retryscope_record::{RunKey, SourceId};
use retryscope_report::gauges::RunGauges;

use crate::config::Config;
use crate::handles;
use crate::sources::may_matter;

/// Paths that are noted between two looks; beyond, everything is looked at.
const CHANGED_LIMIT: usize = 4_096;

/// Numbers about the daemon itself that go on after a restart.
#[derive(Debug, Default, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct SelfCounts {
    pub(crate) gaps: BTreeMap<String, u64>,
    pub(crate) rotations: u64,
    pub(crate) truncations: u64,
    pub(crate) truncations_without_copy: u64,
    pub(crate) oversized: u64,
    pub(crate) checkpoint_failures: u64,
    /// Repeats that were dropped before the last start.
    pub(crate) duplicates: u64,
    /// Requests that pushed something, by kind and result.
    #[serde(with = "pairs")]
    pub(crate) pushed: BTreeMap<(String, String), u64>,
    /// Times that a budget became exhausted.
    #[serde(with = "pairs")]
    pub(crate) exhausted: BTreeMap<BudgetKey, u64>,
    /// Budgets that are exhausted now.
    pub(crate) exhausted_now: Vec<BudgetKey>,
}

/// Scope kind, scope name and window.
pub(crate) type BudgetKey = (String, String, String);

/// The state of everything read so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) totals: Totals,
    pub(crate) counts: SelfCounts,
    pub(crate) paths: BTreeMap<SourceId, PathBuf>,
    pub(crate) states: BTreeMap<SourceId, SourceState>,
    /// Files that are no longer there, and since when that is known: nothing is read of them again.
    pub(crate) gone: BTreeMap<SourceId, DateTime<Utc>>,
    /// What the gauges need of each run.
    pub(crate) gauges: BTreeMap<RunKey, RunGauges>,
    /// When each run was last spoken of by a log, whatever time its events have.
    pub(crate) spoken: BTreeMap<RunKey, DateTime<Utc>>,
    /// Goes up with each change of the run metrics.
    pub(crate) version: u64,
    /// Whether the backlog was consumed.
    pub(crate) ready: bool,
    pub(crate) mode: &'static str,
    pub(crate) checkpoint_at: Option<DateTime<Utc>>,
    pub(crate) read_at: Option<DateTime<Utc>>,
}

/// Why the reading thread wakes.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    due: bool,
    /// Paths that something was said to have happened to.
    pub(crate) changed: BTreeSet<PathBuf>,
    /// New files, opened at once: some are deleted before anybody looks.
    pub(crate) opened: Vec<(PathBuf, File)>,
    /// More happened than could be noted.
    pub(crate) everything: bool,
    /// The configuration is to be read again.
    pub(crate) reload: bool,
}

/// State behind its lock, and the means to wake the reading thread.
#[derive(Debug)]
pub(crate) struct Shared {
    config: RwLock<Arc<Config>>,
    state: RwLock<State>,
    /// Run metrics as text, and the version that they show.
    pub(crate) text: Mutex<(u64, Arc<str>)>,
    woken: Mutex<Woken>,
    wake: Condvar,
    /// Connections that were turned away.
    pub(crate) connections_refused: AtomicU64,
    pub(crate) reader: Pulse,
    /// How many logs may be open.
    pub(crate) handles: usize,
}

/// Signs of life of the reading thread, beside the lock, which it may hold for ever.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    /// When the last sign was given, in ms since the beginning.
    last: AtomicU64,
    has_stopped: AtomicBool,
}

/// Longest time without a sign of life: a look at everything on a slow file system, and saving, take less.
const SILENCE: Duration = Duration::from_mins(5);

impl Pulse {
    fn new() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0), has_stopped: AtomicBool::new(false) }
    }

    fn since_began(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives a sign of life.
    pub(crate) fn beat(&self) {
        self.last.store(self.since_began(Instant::now()), Ordering::Relaxed);
    }

    /// Returns what is wrong; `None` while the thread is at work.
    pub(crate) fn trouble(&self, now: Instant) -> Option<String> {
        if self.has_stopped.load(Ordering::Relaxed) {
            return Some("the reading thread has stopped".to_owned());
        }
        let silent = self.since_began(now).saturating_sub(self.last.load(Ordering::Relaxed));
        let silent = Duration::from_millis(silent);
        (silent > SILENCE)
            .then(|| format!("the reading thread has given no sign of life for {} s", silent.as_secs()))
    }
}

/// Notes the end of the reading thread, whatever ends it.
pub(crate) struct NotesEnd(pub(crate) Arc<Shared>);

impl Drop for NotesEnd {
    fn drop(&mut self) {
        self.0.reader.has_stopped.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let mut state = State::default();
        state.totals.configure(config.max_series, Aliases::new(&config.aliases));
        state.totals.hold_to(config.held_to.clone());
        Self {
            config: RwLock::new(config),
            state: RwLock::new(state),
            text: Mutex::new((u64::MAX, "".into())),
            woken: Mutex::default(),
            wake: Condvar::new(),
            connections_refused: AtomicU64::new(0),
            reader: Pulse::new(),
            handles: handles::for_logs(),
        }
    }

    /// Returns the settings in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts other settings in force.
    pub(crate) fn set_config(&self, config: Arc<Config>) {
        let mut state = self.lock();
        state.totals.configure(config.max_series, Aliases::new(&config.aliases));
        state.totals.hold_to(config.held_to.clone());
        state.version += 1;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Returns the time that counts as now.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.config().as_of.unwrap_or_else(Utc::now)
    }

    /// Returns the state, to change it: for the reading thread, and to count what was pushed. A thread that panicked while it held it left whole
    /// statements behind, so it stays usable.
    pub(crate) fn lock(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state, to read it; several may at once.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the reading thread, after a note of why.
    pub(crate) fn wake(&self, why: impl FnOnce(&mut Woken)) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        why(&mut woken);
        woken.due = true;
        self.wake.notify_all();
    }

    /// Waits until woken, or until the time is up; returns why.
    pub(crate) fn wait(&self, most: Duration) -> Woken {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut woken, _) = self
            .wake
            .wait_timeout_while(woken, most, |woken| !woken.due)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *woken)
    }

    pub(crate) fn refuse_connection(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    /// Notes a path that something happened to.
    pub(crate) fn note(&mut self, path: PathBuf) {
        if self.changed.len() < CHANGED_LIMIT {
            self.changed.insert(path);
        } else {
            self.everything = true;
        }
    }

    /// Opens a new file, unless so many are.
    pub(crate) fn open(&mut self, path: &Path, most: usize) {
        // Opening anything but a regular file may wait for ever.
        if self.opened.len() < most
            && may_matter(path)
            && fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
            && let Ok(file) = File::open(path)
        {
            self.opened.push((path.to_path_buf(), file));
        }
    }

    /// Takes what was noted since.
    pub(crate) fn and(&mut self, later: Woken) {
        self.changed.extend(later.changed);
        self.opened.extend(later.opened);
        self.everything |= later.everything;
        self.reload |= later.reload;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_silent_or_gone_is_told() {
        let pulse = Pulse::new();
        let later = pulse.began + SILENCE;
        assert_eq!(pulse.trouble(later), None);
        let silent = pulse.trouble(later + Duration::from_secs(1));
        assert_eq!(silent.as_deref(), Some("the reading thread has given no sign of life for 301 s"));
        pulse.last.store(60_000, Ordering::Relaxed);
        assert_eq!(pulse.trouble(later + Duration::from_secs(1)), None);
        // A clock that was read before the last sign.
        assert_eq!(pulse.trouble(pulse.began), None);
        pulse.has_stopped.store(true, Ordering::Relaxed);
        assert_eq!(pulse.trouble(later).as_deref(), Some("the reading thread has stopped"));
    }
}
