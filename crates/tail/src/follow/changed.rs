//! Files whose place on disk is known: grown, cut, rewritten, or gone from their path.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::listener::{Happening, Interest, Listener};
use super::state::{FileState, Tracked, place, stamp};
use super::take::{rest_of_copy, resume, take};
use super::{Follower, Look, is_away, is_followed};
use crate::copies::holds_all_read;
use crate::identity::Identity;
use crate::walk::Found;

/// Says that a file cannot be read; one that moved meanwhile is found at the next look.
pub(super) fn unreadable(id: u32, error: &io::Error, listener: &mut dyn Listener) {
    if error.kind() != ErrorKind::NotFound {
        listener.happened(id, Happening::Unreadable { message: error.to_string() });
    }
}

impl Follower {
    /// A file whose place on disk is known: grown, cut or rewritten.
    pub(super) fn known(
        &mut self,
        id: u32,
        file: &Found,
        look: &mut Look,
        listener: &mut dyn Listener,
    ) -> u64 {
        let Some(tracked) = self.files.get_mut(&id) else { return 0 };
        let now = stamp(&file.path, &file.metadata, tracked.state.interest);
        let is_changed = tracked.state.seen != now;
        if !matches!(tracked.state.interest, Interest::Lines | Interest::Whole)
            || !is_changed && !tracked.settles_now()
        {
            return 0;
        }
        let handle = match file.open() {
            Ok(handle) => handle,
            Err(error) => {
                unreadable(id, &error, listener);
                return 0;
            }
        };
        if tracked.state.interest == Interest::Whole {
            tracked.state.seen = now;
            if is_changed {
                tracked.unsettle();
            }
            listener.whole(id, &file.path);
            return 0;
        }
        if tracked.is_cut(file.metadata.len(), &handle) {
            if look.was_cut.contains(&id) {
                return self.cut(id, file, handle, &mut look.unknown, listener);
            }
            self.cut.insert(id);
            return 0;
        }
        tracked.state.seen = now;
        if tracked.reader.is_none() {
            tracked.reader = resume(handle, &tracked.state);
            self.opened += 1;
        }
        take(tracked, false, listener)
    }

    /// The file is shorter than what was read of it, or holds something else in its place.
    fn cut(
        &mut self,
        id: u32,
        file: &Found,
        handle: File,
        unknown: &mut Vec<Found>,
        listener: &mut dyn Listener,
    ) -> u64 {
        self.gone += 1;
        let Some(tracked) = self.files.get(&id) else { return 0 };
        let mut lines = 0;
        let is_shorter = file.metadata.len() < tracked.read_to();
        let begins_again = tracked.state.identity.still_begins(&handle).unwrap_or(false);
        let is_rewritten = !is_shorter || begins_again || listener.is_document(id);
        if is_rewritten && listener.replaced(id) {
            listener.reset(id);
            listener.happened(id, Happening::Rewritten);
        } else {
            // Cut: its log goes on from the start. A copy of what was read may lie somewhere; its rest comes first.
            let copy = unknown.iter().position(|other| holds_all_read(&other.path, &tracked.state));
            let copy = copy.map(|index| unknown.swap_remove(index));
            if let Some(copy) = &copy {
                lines += rest_of_copy(&tracked.state, copy, listener);
                self.waiting.remove(&place(&copy.metadata));
                self.ignore(copy);
            }
            // How much was written between the last reading and the cut is not known without a copy.
            listener.happened(id, Happening::Truncated { possible_loss: copy.map(|_| 0) });
        }
        let Ok(identity) = Identity::of(&handle, &file.metadata) else { return lines };
        let Some(tracked) = self.files.get_mut(&id) else { return lines };
        tracked.state = FileState::new(id, file, identity, Interest::Lines);
        tracked.reader = resume(handle, &tracked.state);
        lines + take(tracked, false, listener)
    }

    /// Notes a file that is not to be read.
    fn ignore(&mut self, file: &Found) {
        if let Ok(handle) = file.open()
            && let Ok(identity) = Identity::of(&handle, &file.metadata)
        {
            let id = self.fresh_id();
            self.files.insert(id, Tracked::new(FileState::new(id, file, identity, Interest::None)));
        }
    }

    /// Reads files that are gone from their path to their end; they stay while something may still write to them.
    pub(super) fn drain_missing(&mut self, unknown: &[Found], listener: &mut dyn Listener) -> u64 {
        let mut lines = 0;
        let missing: Vec<u32> = self.files.iter().filter(|(_, t)| t.missing).map(|(id, _)| *id).collect();
        if missing.is_empty() {
            return 0;
        }
        let taken: BTreeSet<&Path> = unknown.iter().map(|file| file.path.as_path()).collect();
        for id in missing {
            let Some(tracked) = self.files.get_mut(&id) else { continue };
            // What nobody asks for any more may be asked for again, and goes on where it was left.
            if !is_followed(&tracked.state, &self.roots) {
                tracked.reader = None;
                continue;
            }
            let taken_over = taken.contains(tracked.state.path.as_path());
            lines += take(tracked, false, listener);
            // Without a handle too: it may be found again under the name that it got while its folder was being listed.
            if !tracked.is_active(self.missing_time) && !is_away(&tracked.state, &self.roots) {
                // What is left is a last line without an end.
                lines += take(tracked, true, listener);
                if taken_over {
                    tracked.reader = None;
                } else {
                    listener.happened(id, Happening::Removed);
                    self.files.remove(&id);
                }
            }
        }
        lines
    }
}
