//! Follows files that grow, move, are cut and are rewritten, without losing or repeating a line.
//!
//! Asking again is the truth: [`Follower::scan`] looks at every file below the roots; a change notification only makes the
//! caller ask earlier. Not for: what a line means, or for keeping state on disk (the caller saves [`FileState`]s together
//! with what it made of the lines). Files are only ever read, never locked.
//!
//! - A renamed file keeps its place (inode), so it is read on under its new name; a file that was deleted while open is
//!   read to its end before its handle goes.
//! - Files whose root is away (a file system that is not mounted) are waited for, and read on when they are back.
//! - A file that was deleted before any look saw it is read through the handle that the caller opened when it heard of it
//!   ([`Follower::hold`]).
//! - A file that is cut (copytruncate) is read from its start again. If a copy of what was read lies below the roots, its
//!   rest is read first, and nothing is lost; else the possible loss is reported.
//! - A file that holds nothing but the beginning of another one is a copy, or becomes one: it waits until it has more.
//! - A file that begins otherwise than it did, or another file in its place, has been rewritten: see [`Listener::replaced`].

mod changed;
mod held;
mod listener;
mod new;
mod state;
mod take;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::held::Held;
pub use self::listener::{Happening, Interest, Listener};
pub use self::state::FileState;
use self::state::{Tracked, place, stamp};
use crate::copies::{Waiting, holds_all_read};
use crate::lines::LineReader;
use crate::rotated::Age;
use crate::walk::{Found, list, walk, walk_all};

/// Open handles that are kept unless told otherwise; files beyond are opened when they change.
const HANDLES: usize = 256;

/// How long a file that is gone is kept after its last line unless told otherwise; its writer may still have it open.
const MISSING_TIME: Duration = Duration::from_secs(30);

/// How long a file that grew is looked at closely.
const ACTIVE_TIME: Duration = Duration::from_mins(1);

/// What a look covers.
enum Scope {
    /// Everything below the roots.
    All,
    /// These folders, without what lies in folders below them.
    Folders(BTreeSet<PathBuf>),
    /// Single files; nothing follows for others.
    Files,
}

/// Files that no source is known for, and what else one look needs to know.
struct Look {
    places: HashMap<(u64, u64), Vec<u32>>,
    unknown: Vec<Found>,
    /// Files that were cut before anything was listed, so that the listing shows each copy of what they held.
    was_cut: BTreeSet<u32>,
}

/// Follows all files below its roots.
#[derive(Debug)]
pub struct Follower {
    roots: Vec<PathBuf>,
    files: BTreeMap<u32, Tracked>,
    next_id: u32,
    handles: usize,
    missing_time: Duration,
    /// Files that hold nothing of their own, by place on disk.
    waiting: BTreeMap<(u64, u64), Waiting>,
    /// New files that no look has seen yet.
    held: Vec<Held>,
    /// Files that were found to be cut. A copy of what they held may have been made while their folders were being listed, so
    /// that the next listing settles it.
    cut: BTreeSet<u32>,
    /// Handles that were opened since the limit was last seen to.
    opened: usize,
    gone: u64,
    enter: fn(&Path) -> bool,
    maybe: fn(&Path) -> bool,
}

impl Follower {
    /// Returns a follower. `enter` says whether a folder is looked into, `maybe` whether a file is worth opening.
    pub fn new(roots: Vec<PathBuf>, enter: fn(&Path) -> bool, maybe: fn(&Path) -> bool) -> Self {
        Self {
            roots,
            files: BTreeMap::new(),
            next_id: 0,
            handles: HANDLES,
            missing_time: MISSING_TIME,
            waiting: BTreeMap::new(),
            held: Vec::new(),
            cut: BTreeSet::new(),
            opened: 0,
            gone: 0,
            enter,
            maybe,
        }
    }

    /// Goes on where an earlier follower stopped.
    pub fn restore(&mut self, states: Vec<FileState>, next_id: u32) {
        self.next_id = next_id;
        for state in states {
            self.next_id = self.next_id.max(state.id + 1);
            self.files.insert(state.id, Tracked::new(state));
        }
        // Without a handle the last lines of a file that is deleted next would be lost.
        let mut logs: Vec<&mut Tracked> =
            self.files.values_mut().filter(|t| t.state.interest == Interest::Lines).collect();
        logs.sort_by_key(|t| std::cmp::Reverse(t.state.last_change()));
        for tracked in logs.into_iter().take(self.handles) {
            tracked.reopen();
        }
    }

    /// Follows what lies below other roots from now on.
    pub fn set_roots(&mut self, roots: Vec<PathBuf>) {
        self.roots = roots;
    }

    /// Sets how many handles may stay open.
    pub fn set_handles(&mut self, most: usize) {
        self.handles = most;
    }

    /// Sets how long a file that is gone is kept after its last line.
    pub fn set_missing_time(&mut self, time: Duration) {
        self.missing_time = time;
    }

    /// Returns what must be saved to go on later, together with [`Follower::next_id`].
    pub fn states(&self) -> impl Iterator<Item = &FileState> {
        self.files.values().map(|t| &t.state)
    }

    /// Returns the next free number of a source.
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Returns how many times a file was gone from its path or cut, so that what was taken of it may not be there again.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Returns the path of a source.
    pub fn path(&self, id: u32) -> Option<&Path> {
        self.files.get(&id).map(|t| t.state.path.as_path())
    }

    /// Returns how many files are followed.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether no file is followed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Looks at every file below the roots and takes what is new. Returns how many lines that was.
    pub fn scan(&mut self, listener: &mut dyn Listener) -> u64 {
        let lines = self.look_everywhere(listener);
        // Once more at most: somebody may cut files all the time.
        if self.cut.is_empty() { lines } else { lines + self.look_everywhere(listener) }
    }

    fn look_everywhere(&mut self, listener: &mut dyn Listener) -> u64 {
        // A root that is not there yet is no problem: it may come.
        let (mut found, _) = walk_all(&self.roots, &self.enter);
        found.sort_by_cached_key(|found| Age::of(&found.path));
        let places: BTreeSet<(u64, u64)> = found.iter().map(|f| place(&f.metadata)).collect();
        self.waiting.retain(|place, _| places.contains(place));
        self.look(found, &Scope::All, listener)
    }

    /// Looks at what something was said to have happened to: files, or folders with what is new in them.
    pub fn check(&mut self, changed: &BTreeSet<PathBuf>, listener: &mut dyn Listener) -> u64 {
        let by_path: HashMap<&Path, u32> =
            self.files.iter().map(|(id, t)| (t.state.path.as_path(), *id)).collect();
        let mut files = Vec::new();
        let mut folders = BTreeSet::new();
        let mut below = Vec::new();
        for path in changed {
            let path = of_database(path);
            if !self.is_below_roots(&path) {
                continue;
            }
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    folders.insert(path.clone());
                    below.extend(walk(&path, &self.enter).0);
                }
                Ok(metadata) => match by_path.get(&*path).and_then(|id| self.files.get(id)) {
                    Some(tracked) if tracked.state.identity.is_at(&metadata) => {
                        let file = Found { path, metadata };
                        let is_cut = tracked.state.interest == Interest::Lines
                            && tracked.state.seen != stamp(&file.path, &file.metadata, Interest::Lines)
                            && file.open().is_ok_and(|open| tracked.is_cut(file.metadata.len(), &open));
                        if is_cut {
                            // A copy of what was cut may lie anywhere.
                            self.cut.insert(tracked.state.id);
                            return self.scan(listener);
                        }
                        files.push(file);
                    }
                    _ => folders.extend(path.parent().map(Path::to_path_buf)),
                },
                Err(_) => folders.extend(path.parent().map(Path::to_path_buf)),
            }
        }
        // A root that is a file of its own has no folder that is ours.
        folders.retain(|folder| self.roots.iter().any(|root| folder.starts_with(root)));
        if folders.is_empty() {
            return self.look_and_settle(files, &Scope::Files, listener);
        }
        files.extend(folders.iter().flat_map(|folder| list(folder)));
        files.extend(below);
        files.sort_by_cached_key(|found| Age::of(&found.path));
        files.dedup_by(|a, b| a.path == b.path);
        self.look_and_settle(files, &Scope::Folders(folders), listener)
    }

    fn look_and_settle(&mut self, found: Vec<Found>, scope: &Scope, listener: &mut dyn Listener) -> u64 {
        let lines = self.look(found, scope, listener);
        if self.cut.is_empty() { lines } else { lines + self.scan(listener) }
    }

    /// Looks at the files that grew lately and at those that are gone: what a change notification cannot tell.
    pub fn check_active(&mut self, listener: &mut dyn Listener) -> u64 {
        let active = self.files.values().filter(|t| !t.missing && t.is_active(ACTIVE_TIME));
        let paths: BTreeSet<PathBuf> = active.map(|t| t.state.path.clone()).collect();
        if paths.is_empty() && self.held.is_empty() && !self.files.values().any(|t| t.missing) {
            return 0;
        }
        self.check(&paths, listener)
    }

    fn is_below_roots(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| {
            path.strip_prefix(root).is_ok_and(|below| {
                let folders = below.parent().into_iter().flat_map(Path::ancestors);
                folders.filter(|f| !f.as_os_str().is_empty()).all(|folder| (self.enter)(&root.join(folder)))
            })
        })
    }

    fn look(&mut self, found: Vec<Found>, scope: &Scope, listener: &mut dyn Listener) -> u64 {
        let was_cut = match scope {
            Scope::All => std::mem::take(&mut self.cut),
            Scope::Folders(_) | Scope::Files => BTreeSet::new(),
        };
        let mut look = Look { places: HashMap::new(), unknown: Vec::new(), was_cut };
        for (id, tracked) in &self.files {
            look.places.entry(tracked.state.identity.place()).or_default().push(*id);
        }
        let mut seen = Vec::new();
        for file in found {
            match self.at_place(&look, &file) {
                Some(id) if self.is_other_now(id, &file) => {
                    listener.happened(id, Happening::Removed);
                    self.files.remove(&id);
                    look.unknown.push(file);
                }
                Some(id) => seen.push((id, file)),
                None if file.metadata.len() == 0 || !(self.maybe)(&file.path) => {}
                None => look.unknown.push(file),
            }
        }
        let here: BTreeSet<u32> = seen.iter().map(|(id, _)| *id).collect();
        for (id, tracked) in &mut self.files {
            let covered = match scope {
                Scope::All => true,
                Scope::Folders(folders) => {
                    tracked.state.path.parent().is_some_and(|parent| folders.contains(parent))
                }
                Scope::Files => false,
            };
            if here.contains(id) {
                tracked.missing = false;
            } else if covered && !tracked.missing && is_gone(&tracked.state, &self.roots) {
                tracked.missing = true;
                self.gone += 1;
                tracked.active = Some(Instant::now());
            }
        }
        // Renames first: a name that is free again may be taken by a new file.
        for (id, file) in &seen {
            if let Some(tracked) = self.files.get_mut(id)
                && tracked.state.path != file.path
            {
                tracked.state.path.clone_from(&file.path);
                listener.happened(*id, Happening::Renamed { to: file.path.clone() });
            }
        }
        let mut lines = 0;
        for (id, file) in seen {
            lines += self.known(id, &file, &mut look, listener);
            self.close_idle_in_time();
        }
        lines += self.adopt(&mut look.unknown, listener);
        // What is gone from its path is read to its end before anything that follows it.
        lines += self.drain_missing(&look.unknown, listener);
        lines += self.deleted_unseen(listener);
        lines += self.new_files(look.unknown, listener);
        self.close_idle();
        lines
    }

    /// Returns the source that a file is, by its place on disk. Places are used again: where the file system does not tell
    /// when a file was made, under another name only a file that begins as the source did is the source.
    fn at_place(&self, look: &Look, file: &Found) -> Option<u32> {
        let ids = look.places.get(&place(&file.metadata))?;
        let tracked = ids.iter().filter_map(|id| self.files.get(id));
        let tracked = tracked.into_iter().find(|t| t.state.identity.is_at(&file.metadata))?;
        let same_name = tracked.state.path == file.path;
        let begins = || file.open().is_ok_and(|f| tracked.state.identity.still_begins(&f).unwrap_or(false));
        (same_name || tracked.state.identity.born.is_some() || tracked.reader.is_some() || begins())
            .then_some(tracked.state.id)
    }

    /// Returns whether a file has been written over with something that is to be looked at as if it were new: one that was
    /// put aside, with anything, and one that is followed, with a copy of another one.
    fn is_other_now(&self, id: u32, file: &Found) -> bool {
        let Some(tracked) = self.files.get(&id) else { return false };
        let is_aside = tracked.state.interest == Interest::None;
        if !is_aside && tracked.state.interest != Interest::Lines
            || tracked.state.seen == stamp(&file.path, &file.metadata, tracked.state.interest)
        {
            return false;
        }
        let begins_otherwise =
            file.open().is_ok_and(|open| !tracked.state.identity.still_begins(&open).unwrap_or(true));
        let is_copy = || {
            let mut others =
                self.files.values().filter(|other| other.state.id != id && other.state.offset > 0);
            others.any(|other| holds_all_read(&file.path, &other.state))
        };
        begins_otherwise && (is_aside || is_copy())
    }

    fn fresh_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Closes handles during a look that opens many.
    fn close_idle_in_time(&mut self) {
        if self.opened > self.handles / 4 {
            self.close_idle();
        }
    }

    /// Closes handles beyond the limit: those of the files that grew the longest ago, and those of files with a begun line
    /// last, since it is read again.
    fn close_idle(&mut self) {
        self.opened = 0;
        let open = self.files.values().filter(|t| t.reader.is_some()).count();
        if open <= self.handles {
            return;
        }
        let mut closable: Vec<&mut Tracked> =
            self.files.values_mut().filter(|t| !t.missing && t.reader.is_some()).collect();
        closable.sort_by_key(|t| (t.reader.as_ref().is_some_and(LineReader::has_partial_line), t.active));
        for tracked in closable.into_iter().take(open - self.handles) {
            tracked.reader = None;
        }
    }
}

fn is_followed(state: &FileState, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| state.path.starts_with(root))
}

/// Returns whether a file that was not found is gone: one in a folder that may not be looked into for now is not.
fn is_gone(state: &FileState, roots: &[PathBuf]) -> bool {
    !is_followed(state, roots)
        || match fs::metadata(&state.path) {
            Ok(metadata) => !state.identity.is_at(&metadata),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
}

/// Returns whether a file is out of view together with its whole root, as when a file system is not mounted: it will be
/// back, perhaps under another device number.
fn is_away(state: &FileState, roots: &[PathBuf]) -> bool {
    let mut above = roots.iter().filter(|root| state.path != **root && state.path.starts_with(root));
    above.any(|root| match fs::metadata(root) {
        Ok(metadata) => {
            metadata.dev() != state.identity.device
                && fs::read_dir(root).is_ok_and(|mut names| names.next().is_none())
        }
        Err(_) => true,
    })
}

/// Returns the database that a file beside it belongs to, or the path itself.
fn of_database(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let database = ["-wal", "-shm", "-journal"].iter().find_map(|ending| text.strip_suffix(ending));
    database.map_or_else(|| path.to_path_buf(), PathBuf::from)
}
