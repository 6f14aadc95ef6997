//! Files that no source is known for: the rest of one that is gone, a copy, or something new.

use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;
use std::time::Instant;

use super::Follower;
use super::changed::unreadable;
use super::listener::{Deaf, HEAD, Happening, Interest, Listener};
use super::state::{FileState, Tracked, place, stamp};
use super::take::{resume, take};
use crate::beginning::first_lines;
use crate::copies::{Heads, Relation, Waiting, compare, holds_all_read};
use crate::identity::{Identity, read_span};
use crate::walk::Found;

/// What must be read of a new file before anything is decided about it.
pub(super) struct Beginning {
    pub(super) identity: Identity,
    pub(super) head: Vec<u8>,
}

impl Beginning {
    pub(super) fn of(found: &Found, file: &File) -> io::Result<Self> {
        Ok(Self { identity: Identity::of(file, &found.metadata)?, head: read_span(file, 0, HEAD)? })
    }

    /// Asks the listener about the file: by its first bytes, and by its first lines where these are not enough. `None`: what
    /// cannot be told from as much as there is yet is asked again when there is more.
    pub(super) fn tell(
        &self,
        id: u32,
        path: &Path,
        mut file: &File,
        before: Option<u32>,
        listener: &mut dyn Listener,
    ) -> Option<Interest> {
        let interest = listener.opened(id, path, &self.head, before);
        if interest != Interest::None {
            return Some(interest);
        }
        if self.head.len() < HEAD {
            return None;
        }
        // Through its handle: it may have no name any more.
        let Ok(first) = file.rewind().and_then(|()| first_lines(file)) else { return Some(interest) };
        let interest = listener.opened(id, path, &first.bytes, before);
        (interest != Interest::None || !first.may_grow).then_some(interest)
    }
}

impl Follower {
    /// A new file that begins with all that was read of one that is gone continues it: it was moved between file systems,
    /// or written anew with more at its end. Returns how many lines were new.
    pub(super) fn adopt(&mut self, unknown: &mut Vec<Found>, listener: &mut dyn Listener) -> u64 {
        let gone = self.files.values().filter(|t| {
            t.missing && t.state.interest == Interest::Lines && t.state.offset > 0 && t.state.lines > 0
        });
        let mut heads = Heads::default();
        for tracked in gone {
            heads.insert(&tracked.state.identity, tracked.state.id);
        }
        let mut lines = 0;
        if heads.is_empty() {
            return lines;
        }
        unknown.retain(|file| {
            let Ok(handle) = file.open() else { return true };
            let candidates = heads.alike(&handle);
            let source = candidates.into_iter().find(|id| {
                self.files.get(id).is_some_and(|t| t.missing && holds_all_read(&file.path, &t.state))
            });
            let Some(tracked) = source.and_then(|id| self.files.get_mut(&id)) else { return true };
            let Ok(identity) = Identity::of(&handle, &file.metadata) else { return true };
            // What the old file still holds comes from the new one.
            tracked.reader = None;
            tracked.missing = false;
            tracked.active = Some(Instant::now());
            tracked.state.identity = identity;
            tracked.state.path.clone_from(&file.path);
            tracked.state.seen = (0, None);
            self.waiting.remove(&place(&file.metadata));
            listener.happened(tracked.state.id, Happening::Renamed { to: file.path.clone() });
            tracked.reader = resume(handle, &tracked.state);
            lines += take(tracked, false, listener);
            tracked.state.seen = stamp(&file.path, &file.metadata, Interest::Lines);
            false
        });
        lines
    }

    pub(super) fn new_files(&mut self, unknown: Vec<Found>, listener: &mut dyn Listener) -> u64 {
        if unknown.is_empty() {
            return 0;
        }
        let mut heads = self.heads();
        let mut lines = 0;
        for file in unknown {
            let next = self.next_id;
            lines += self.new_file(&file, &heads, listener);
            self.close_idle_in_time();
            if let Some(tracked) = self.files.get(&next).filter(|t| t.state.interest == Interest::Lines) {
                heads.insert(&tracked.state.identity, next);
            }
        }
        lines
    }

    /// Returns the followed logs by how they begin.
    pub(super) fn heads(&self) -> Heads {
        let mut heads = Heads::default();
        for tracked in self.files.values().filter(|t| t.state.interest == Interest::Lines) {
            heads.insert(&tracked.state.identity, tracked.state.id);
        }
        heads
    }

    /// Returns the source that stands at a path, as far as is known.
    pub(super) fn at_path(&self, path: &Path) -> Option<u32> {
        self.files.values().find(|t| t.state.path == path).map(|t| t.state.id)
    }

    /// A file that holds only what another one begins with is its copy, or becomes one, or is the beginning of something
    /// else that only looks so far alike. It waits while that is so: the original may be cut next.
    fn waits(&mut self, file: &Found, handle: &File, heads: &Heads) -> bool {
        let now = stamp(&file.path, &file.metadata, Interest::Lines);
        let place = place(&file.metadata);
        if let Some(waiting) = self.waiting.get(&place)
            && waiting.seen == now
            && self.files.get(&waiting.original).is_some_and(|t| !t.missing)
        {
            return true;
        }
        self.waiting.remove(&place);
        let original = self.original_of(file, handle, heads);
        if let Some(original) = original {
            self.waiting.insert(place, Waiting { original, seen: now });
        }
        original.is_some()
    }

    /// Returns the source that begins with all that a file holds.
    pub(super) fn original_of(&self, file: &Found, handle: &File, heads: &Heads) -> Option<u32> {
        heads.alike(handle).into_iter().find(|id| {
            let Some(tracked) = self.files.get(id).filter(|t| !t.missing && t.state.offset > 0) else {
                return false;
            };
            let Ok(original) = File::open(&tracked.state.path) else { return false };
            let Ok(metadata) = original.metadata() else { return false };
            // A move or a cut that has not been looked at yet is looked at first, also one that came while they were compared.
            !tracked.state.identity.is_at(&metadata)
                || compare(handle, file.metadata.len(), &original, metadata.len()) == Relation::IsBeginning
                || original.metadata().is_ok_and(|now| tracked.is_cut(now.len(), &original))
        })
    }

    fn new_file(&mut self, file: &Found, heads: &Heads, listener: &mut dyn Listener) -> u64 {
        let opened = file.open().and_then(|handle| Ok((Beginning::of(file, &handle)?, handle)));
        let (beginning, handle) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                unreadable(self.next_id, &error, listener);
                return 0;
            }
        };
        if self.waits(file, &handle, heads) {
            return 0;
        }
        let before = self.at_path(&file.path);
        if let Some(before) = before
            && listener.replaced(before)
        {
            listener.reset(before);
            listener.happened(before, Happening::Rewritten);
            listener.happened(before, Happening::Removed);
            self.files.remove(&before);
        }
        let id = self.fresh_id();
        let Some(interest) = beginning.tell(id, &file.path, &handle, before, listener) else { return 0 };
        let kept = if interest == Interest::LinesFromEnd { Interest::Lines } else { interest };
        let mut tracked = Tracked::new(FileState::new(id, file, beginning.identity, kept));
        let mut lines = 0;
        match interest {
            Interest::None | Interest::Never => {}
            Interest::LinesFromEnd => {
                tracked.reader = resume(handle, &tracked.state);
                take(&mut tracked, false, &mut Deaf);
            }
            Interest::Whole => {
                tracked.unsettle();
                listener.whole(id, &file.path);
            }
            Interest::Lines => {
                tracked.reader = resume(handle, &tracked.state);
                lines = take(&mut tracked, false, listener);
            }
        }
        self.opened += usize::from(tracked.reader.is_some());
        self.files.insert(id, tracked);
        lines
    }
}
