//! Files that were opened when they were heard of: one that is deleted before the next look is read all the same.
//!
//! Not for: files that are still there, whatever their name is by then; a look finds those by itself.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Follower;
use super::listener::{Happening, Interest, Listener};
use super::new::Beginning;
use super::state::{FileState, Tracked, place};
use super::take::{resume, take};
use crate::copies::Heads;
use crate::walk::Found;

/// One handle is held for so many that logs may have.
const HELD_OF: usize = 8;

/// How long a file may stay out of view before its handle is given up.
const HELD_TIME: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    file: File,
    since: Instant,
}

impl Follower {
    /// Keeps a new file open until a look has seen it, so that nothing is lost if it is deleted first.
    pub fn hold(&mut self, path: PathBuf, file: File) {
        if self.held.len() < self.handles / HELD_OF && self.is_below_roots(&path) && (self.maybe)(&path) {
            self.held.push(Held { path, file, since: Instant::now() });
        }
    }

    /// Reads those held files that are deleted, and lets go of those that are followed by now.
    pub(super) fn deleted_unseen(&mut self, listener: &mut dyn Listener) -> u64 {
        if self.held.is_empty() {
            return 0;
        }
        let followed: HashSet<(u64, u64)> = self.files.values().map(|t| t.state.identity.place()).collect();
        let mut heads = None;
        let mut lines = 0;
        for held in std::mem::take(&mut self.held) {
            let Ok(metadata) = held.file.metadata() else { continue };
            let is_followed = followed.contains(&place(&metadata))
                && self.files.values().any(|t| t.state.identity.is_at(&metadata));
            if is_followed {
                continue;
            }
            if metadata.nlink() > 0 {
                if held.since.elapsed() < HELD_TIME {
                    self.held.push(held);
                }
                continue;
            }
            let heads = heads.get_or_insert_with(|| self.heads());
            lines += self.deleted(&Found { path: held.path, metadata }, held.file, heads, listener);
        }
        lines
    }

    /// Reads a file that has no name any more. Only a log that goes on in other files: what else is replaced as a whole has
    /// said nothing that its successor does not say.
    fn deleted(&mut self, found: &Found, file: File, heads: &Heads, listener: &mut dyn Listener) -> u64 {
        let Ok(beginning) = Beginning::of(found, &file) else { return 0 };
        let is_copy = self.original_of(found, &file, heads).is_some();
        if beginning.head.is_empty() || is_copy {
            return 0;
        }
        let before = self.at_path(&found.path);
        let id = self.fresh_id();
        let interest = beginning.tell(id, &found.path, &file, before, listener);
        if interest != Some(Interest::Lines) || listener.replaced(id) {
            listener.happened(id, Happening::Removed);
            return 0;
        }
        let mut tracked = Tracked::new(FileState::new(id, found, beginning.identity, Interest::Lines));
        tracked.reader = resume(file, &tracked.state);
        let lines = take(&mut tracked, false, listener);
        tracked.missing = true;
        tracked.active = Some(Instant::now());
        self.files.insert(id, tracked);
        lines
    }
}
