//! Change notification: wakes the reading thread and says where something happened. A hint, never the truth.
//!
//! Not for: looking (the follower does, on a timer too). Roots that appear later are watched from then on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tracing::warn;

use crate::handles::for_new_files;
use crate::state::Shared;

/// Watches folders, as far as the system can.
pub(crate) struct Watch {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// Folders about which was complained.
    refused: BTreeSet<PathBuf>,
}

impl Watch {
    /// Starts change notification, unless only polling is wanted or possible.
    pub(crate) fn start(shared: &Arc<Shared>) -> Self {
        let watcher = if shared.config().poll { None } else { watcher(shared.clone()) };
        shared.lock().mode = if watcher.is_some() { "notify" } else { "poll" };
        Self { watcher, watched: BTreeSet::new(), refused: BTreeSet::new() }
    }

    /// Watches these roots; those that are not there yet are asked for again at the next call. Returns whether one is new.
    pub(crate) fn roots<'a>(&mut self, roots: impl Iterator<Item = &'a Path>) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let mut new = false;
        for root in roots {
            if self.watched.contains(root) {
                // A folder that went away and came again needs a new watch.
                if !root.exists() {
                    self.watched.remove(root);
                    drop(watcher.unwatch(root));
                }
                continue;
            }
            if !root.exists() {
                continue;
            }
            match watcher.watch(root, RecursiveMode::Recursive) {
                Ok(()) => {
                    self.watched.insert(root.to_path_buf());
                    new = true;
                }
                Err(error) if self.refused.insert(root.to_path_buf()) => {
                    warn!(root = %root.display(), %error, "not watched, polled instead");
                }
                Err(_) => {}
            }
        }
        new
    }
}

fn watcher(shared: Arc<Shared>) -> Option<RecommendedWatcher> {
    let told = move |event: notify::Result<notify::Event>| match event {
        Ok(event) if event.need_rescan() => shared.wake(|woken| woken.everything = true),
        // Our own reading opens files too.
        Ok(event) if is_change(event.kind) => {
            shared.wake(|woken| {
                for path in event.paths {
                    if event.kind.is_create() {
                        woken.open(&path, for_new_files(shared.handles));
                    }
                    woken.note(path);
                }
            });
        }
        Ok(_) => {}
        Err(_) => shared.wake(|woken| woken.everything = true),
    };
    notify::recommended_watcher(told).map_err(|error| warn!(%error, "no change notification")).ok()
}

fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
