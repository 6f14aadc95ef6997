//! The reading thread: follows the files, has them counted, saves.
//!
//! One loop on one thread owns the follower and the decoders; the state behind [`Shared`] is locked only while a file's new
//! lines are applied. A change notification makes the next look come earlier and tells where; a look at everything, at an
//! interval that grows with what it costs, is the truth.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use chrono::Utc;
use retryscope_scan::{matched_by, matching, may_enter};
use retryscope_tail::Follower;
use tracing::{error, info, warn};

use crate::checkpoint::{self, Restored, Saved};
use crate::config::{Config, History};
use crate::count::{count, forget, look_at_running};
use crate::notify_systemd;
use crate::received;
use crate::recent;
use crate::sources::{Sources, may_matter};
use crate::state::{SelfCounts, Shared, Woken};
use crate::watch::Watch;

/// Shortest time between two savings. What was counted since the last one is counted again after the machine crashed, if it
/// still lies there.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Saving takes at most this part of the time.
const SAVE_SHARE: u32 = 20;

/// Bytes a second that saving puts on the disk on average, whatever the size of the state, up to a longest time between two
/// savings: disks wear out. What was kept meanwhile holds for a process that is killed.
const SAVED_BYTES: u64 = 128 << 10;
const SAVE_AT_LEAST: Duration = Duration::from_mins(1);

/// Keeping the state for the case that this process is killed takes at most this part of a core's time.
const KEEP_SHARE: u32 = 50;

/// The same when a log is gone, which cannot be read again.
const KEEP_SHARE_WHEN_GONE: u32 = 4;

/// What keeping it is taken to cost at least.
const KEEP_COST: Duration = Duration::from_millis(1);

/// Looking at everything takes at most this part of a core's time, but for looks so long that the next would be too late.
const SCAN_SHARE: u32 = 300;

/// Looking at what was notified takes at most this part of the time; long looks take more, since none waits over 100 ms.
const CHECK_SHARE: u32 = 8;

/// A look that is over so soon has left nothing of a backlog behind: what comes meanwhile is not the past.
const SHORT_LOOK: Duration = Duration::from_millis(500);

/// Looks at a backlog, while others write on.
const MOST_LOOKS: usize = 16;

/// Longest time between two looks at everything.
const SCAN_AT_LEAST: Duration = Duration::from_mins(1);

/// Time between two rounds of housekeeping.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(5);

/// The reading thread's own state.
pub(crate) struct Pipeline {
    config: Arc<Config>,
    /// Folders that are followed: those that were named, and what has matched a pattern.
    roots: Vec<PathBuf>,
    shared: Arc<Shared>,
    follower: Follower,
    sources: Sources,
    /// Whether anything changed since the state was saved, and since it was kept.
    changed: bool,
    unkept: bool,
    /// The numbers about the daemon itself that were saved last.
    saved_counts: SelfCounts,
    next_save: Instant,
    next_keep: Instant,
    /// The same if a log goes before.
    next_keep_when_gone: Instant,
    /// Logs that were gone when the state was kept last.
    gone: u64,
    next_scan: Instant,
    next_tick: Instant,
    next_housekeeping: Instant,
}

impl Pipeline {
    pub(crate) fn new(shared: Arc<Shared>, restored: Option<Restored>) -> Self {
        let config = shared.config();
        let mut roots = roots(&config);
        // What a pattern matched before the last stop may be away just now.
        let known = restored.iter().flat_map(|restored| &restored.files);
        for root in known.flat_map(|file| config.roots.iter().filter_map(|root| matched_by(root, &file.path)))
        {
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        let mut follower = Follower::new(roots.clone(), may_enter, may_matter);
        follower.set_handles(shared.handles);
        let mut sources = Sources::new(shared.clone());
        match restored {
            Some(restored) => restore(restored, &shared, &mut follower, &mut sources),
            None => sources.oldest = oldest(config.history),
        }
        let now = Instant::now();
        Self {
            config,
            roots,
            shared,
            follower,
            sources,
            changed: true,
            unkept: true,
            saved_counts: SelfCounts::default(),
            next_save: now,
            next_keep: now,
            next_keep_when_gone: now,
            gone: 0,
            next_scan: now,
            next_tick: now,
            next_housekeeping: now,
        }
    }

    /// Reads until told to stop.
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        let mut watch = Watch::start(&self.shared);
        watch.roots(self.roots.iter().map(PathBuf::as_path));
        notify_systemd::status("reading the backlog");
        self.read_backlog(|| stop.load(Ordering::SeqCst));
        // What is there when the daemon starts is the past; what comes from now on is not.
        self.sources.oldest = None;
        if self.config.as_of.is_none() {
            forget(&self.shared);
        }
        self.shared.lock().ready = true;
        info!(files = self.follower.len(), "backlog read");
        self.save();
        notify_systemd::status("following");
        let mut earliest = Instant::now();
        while !stop.load(Ordering::SeqCst) {
            let mut woken = self.shared.wait(self.patience());
            if stop.load(Ordering::SeqCst) {
                break;
            }
            // Many changes in a row are looked at together.
            if let Some(pause) = earliest.checked_duration_since(Instant::now()) {
                std::thread::sleep(pause);
                woken.and(self.shared.wait(Duration::ZERO));
            }
            let began = Instant::now();
            if woken.reload {
                self.reload();
            }
            if watch.roots(self.roots.iter().map(PathBuf::as_path)) {
                woken.everything = true;
            }
            self.look(woken);
            self.keep_house();
            earliest = Instant::now() + (began.elapsed() * CHECK_SHARE).min(Duration::from_millis(100));
            self.sources.beat();
            if self.changed && Instant::now() >= self.next_save {
                self.save();
            } else if self.unkept && Instant::now() >= self.when_to_keep() {
                self.keep();
            }
        }
        notify_systemd::stopping();
        if self.config.drain {
            self.read_backlog(|| false);
        }
        self.save();
    }

    /// Reads what is there now: until a look finds nothing new, or nothing but what was written during the look before.
    fn read_backlog(&mut self, stops: impl Fn() -> bool) {
        for look in 0..MOST_LOOKS {
            let began = Instant::now();
            if self.scan() == 0 || look >= 2 && began.elapsed() < SHORT_LOOK || stops() {
                return;
            }
            self.sources.beat();
        }
    }

    /// Returns how long nothing need be done.
    fn patience(&self) -> Duration {
        let mut until = self.next_tick.min(self.next_scan).min(self.next_housekeeping);
        if self.changed {
            until = until.min(self.next_save);
        }
        if self.unkept {
            until = until.min(self.when_to_keep());
        }
        let patience = until.saturating_duration_since(Instant::now());
        self.sources.watchdog.every().map_or(patience, |every| patience.min(every / 2))
    }

    /// Looks at what is due.
    fn look(&mut self, woken: Woken) {
        let now = Instant::now();
        for (path, file) in woken.opened {
            self.follower.hold(path, file);
        }
        if woken.everything || now >= self.next_scan {
            self.scan();
            return;
        }
        if !woken.changed.is_empty() {
            self.follower.check(&woken.changed, &mut self.sources);
        }
        if now >= self.next_tick {
            self.next_tick = now + Duration::from_millis(self.config.rescan_ms);
            self.follower.check_active(&mut self.sources);
        }
        self.count();
    }

    /// Looks at everything; returns how many lines were new.
    fn scan(&mut self) -> u64 {
        let began = own_time();
        self.look_for_roots();
        let lines = self.follower.scan(&mut self.sources);
        let rescan = Duration::from_millis(self.config.rescan_ms);
        // Files that bring much are read, not looked at: only the looking must stay cheap.
        let pause = if lines > 0 {
            rescan
        } else {
            (own_time().saturating_sub(began) * SCAN_SHARE).clamp(rescan, SCAN_AT_LEAST.max(rescan))
        };
        self.next_scan = Instant::now() + pause;
        self.next_tick = Instant::now() + rescan;
        self.count();
        lines
    }

    fn count(&mut self) {
        let now = self.shared.now();
        let dirty = {
            let mut state = self.shared.lock();
            self.sources.refresh_states(&mut state);
            self.sources.end_quiet(&mut state, now);
            state.read_at = Some(Utc::now());
            self.changed |= state.counts != self.saved_counts;
            state.engine.take_dirty()
        };
        if !dirty.is_empty() {
            self.changed = true;
            self.unkept = true;
            count(&self.shared, &dirty);
        }
    }

    fn keep_house(&mut self) {
        if Instant::now() < self.next_housekeeping {
            return;
        }
        look_at_running(&self.shared);
        received::clean(&self.config.received_dir(), self.config.received, Utc::now().date_naive());
        forget(&self.shared);
        self.sources.prune(&mut self.shared.lock());
        self.next_housekeeping = Instant::now() + HOUSEKEEPING_EVERY;
    }

    /// Follows what came to match a pattern. What has matched once stays: a folder that goes away for a while is waited for.
    fn look_for_roots(&mut self) {
        let before = self.roots.len();
        for root in roots(&self.config) {
            if !self.roots.contains(&root) {
                self.roots.push(root);
            }
        }
        if self.roots.len() > before {
            self.follower.set_roots(self.roots.clone());
        }
    }

    /// Reads the configuration again; one that is no good changes nothing.
    fn reload(&mut self) {
        match Config::from_args(&self.config.args).and_then(|config| config.check().map(|()| config)) {
            Ok(mut config) => {
                if config.listen != self.config.listen || config.state_dir != self.config.state_dir {
                    warn!("another address or state folder needs a restart");
                    config.listen = self.config.listen;
                    config.state_dir.clone_from(&self.config.state_dir);
                }
                self.config = Arc::new(config);
                self.shared.set_config(self.config.clone());
                self.roots = roots(&self.config);
                self.follower.set_roots(self.roots.clone());
                self.next_scan = Instant::now();
                info!("configuration read again");
            }
            Err(error) => error!(error = format!("{error:#}"), "the configuration stays as it was"),
        }
        notify_systemd::reloading_done();
    }

    fn when_to_keep(&self) -> Instant {
        if self.follower.gone() == self.gone { self.next_keep } else { self.next_keep_when_gone }
    }

    /// Keeps the state for the case that this process is killed.
    fn keep(&mut self) {
        let began = own_time();
        let saved = Saved::of(&self.shared, &self.follower, &self.sources);
        let kept = recent::keep(&saved, &self.config.state_dir);
        let cost = own_time().saturating_sub(began).max(KEEP_COST);
        let now = Instant::now();
        // Where it cannot be kept, saving tells why.
        self.next_keep = if kept.is_ok() { now + cost * KEEP_SHARE } else { self.next_save };
        self.next_keep_when_gone = self.next_keep.min(now + cost * KEEP_SHARE_WHEN_GONE);
        self.unkept = kept.is_err();
        self.gone = self.follower.gone();
    }

    fn save(&mut self) {
        let began = Instant::now();
        let counts = self.shared.look().counts.clone();
        let saved = Saved::of(&self.shared, &self.follower, &self.sources);
        let result = saved.write(&self.config.state_dir);
        let mut state = self.shared.lock();
        match result {
            Ok(()) => {
                state.checkpoint_at = Some(Utc::now());
                self.saved_counts = counts;
                self.changed = false;
                self.unkept = false;
                self.gone = self.follower.gone();
            }
            Err(error) => {
                state.counts.checkpoint_failures += 1;
                warn!(error = format!("{error:#}"), "cannot save the state");
            }
        }
        let bytes =
            std::fs::metadata(self.config.state_dir.join(checkpoint::NAME)).map_or(0, |file| file.len());
        let for_disk = Duration::from_secs(bytes / SAVED_BYTES).clamp(SAVE_EVERY, SAVE_AT_LEAST);
        self.next_save = Instant::now() + (began.elapsed() * SAVE_SHARE).max(for_disk);
    }
}

/// Returns the folders to follow that are known now.
pub(crate) fn roots(config: &Config) -> Vec<PathBuf> {
    config.roots.iter().flat_map(|root| matching(root).found).chain([config.received_dir()]).collect()
}

fn oldest(history: History) -> Option<SystemTime> {
    let now = SystemTime::now();
    match history {
        History::All => None,
        History::None => Some(now),
        History::Since(span) => span.to_std().ok().and_then(|span| now.checked_sub(span)),
    }
}

/// Returns the time that this thread has used of a core. Not the time of day: a look that was kept waiting by a busy machine
/// has cost no more than another one, and must not make the next one late.
fn own_time() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn restore(restored: Restored, shared: &Arc<Shared>, follower: &mut Follower, sources: &mut Sources) {
    {
        let mut state = shared.lock();
        let config = shared.config();
        state.totals = restored.totals;
        state.totals.configure(config.max_series, retryscope_analysis::Aliases::new(&config.aliases));
        state.totals.hold_to(config.held_to.clone());
        state.counts = restored.counts;
        state.engine.restore(restored.views);
        state.engine.restore_left_off(restored.left_off);
        state.engine.restore_forgotten(restored.forgotten);
        state.engine.restore_repeated_records(restored.repeated);
    }
    let files = sources.restore(restored.decoders, restored.files);
    follower.restore(files, restored.next_id);
}
