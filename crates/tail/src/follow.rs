//! Follows files that grow, move, are cut and are rewritten, without losing or repeating a line.
//!
//! Asking again is the truth: [`Follower::scan`] looks at every file below the roots; a change notification only makes the
//! caller ask earlier. Not for: what a line means, or for keeping state on disk (the caller saves [`FileState`]s together
//! with what it made of the lines). Files are only ever read, never locked.
//!
//! - A renamed file keeps its place (inode), so it is read on under its new name; a file that was deleted while open is
//!   read to its end before its handle goes.
//! - A file that is cut (copytruncate) is read from its start again. If a copy of what was read lies below the roots, its
//!   rest is read first, and nothing is lost; else the possible loss is reported.
//! - A file that holds nothing but the beginning of another one is a copy, or becomes one: it waits until it has more.
//! - A file that begins otherwise than it did, or another file in its place, has been rewritten: see [`Listener::replaced`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::copies::{Heads, Relation, Waiting, add_line, compare, holds_all_read};
use crate::identity::{Checksum, Identity, Tail, read_span};
use crate::lines::{Line, LineReader};
use crate::walk::{Found, list, walk};

/// Open handles that are kept unless told otherwise; files beyond are opened when they change.
const HANDLES: usize = 256;

/// How long the handle of a file that is gone is kept after its last line; its writer may still have it open.
const MISSING_TIME: Duration = Duration::from_secs(30);

/// How long a file that grew is looked at closely.
const ACTIVE_TIME: Duration = Duration::from_mins(1);

/// Bytes of a new file that the listener sees before it decides.
pub(crate) const HEAD: usize = 16 << 10;

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interest {
    /// Not at all for now; asked again when there is more to tell it by.
    None,
    /// Not at all, whatever comes.
    Never,
    /// What comes from now on, line by line.
    LinesFromEnd,
    /// Line by line as it grows.
    Lines,
    /// As a whole, again after each change.
    Whole,
}

/// What happened to a file, for counting and logging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// It was renamed and is read on.
    Renamed {
        /// Its path now.
        to: PathBuf,
    },
    /// It was cut and is read from its start.
    Truncated {
        /// Bytes that may have been lost between the last reading and the cut; 0 when a copy of them was read.
        possible_loss: Option<u64>,
    },
    /// It was rewritten.
    Rewritten,
    /// It is gone.
    Removed,
    /// It cannot be read for now.
    Unreadable {
        /// Why, as the system says it.
        message: String,
    },
}

/// Takes what a follower finds. `id` is the follower's number of the source, stable over restarts.
pub trait Listener {
    /// Decides about a file seen for the first time, by its path and first bytes. `before` is the source that stood at the
    /// same path until now, whose log this file may continue.
    fn opened(&mut self, id: u32, path: &Path, head: &[u8], before: Option<u32>) -> Interest;
    /// Takes a line of a file.
    fn line(&mut self, id: u32, line: Line<'_>);
    /// Says whether what stands after the last line end is a whole line, so that no more can come that belongs to it.
    fn is_whole_line(&self, _bytes: &[u8]) -> bool {
        false
    }
    /// Is told that a file of interest [`Interest::Whole`] is new or has changed.
    fn whole(&mut self, id: u32, path: &Path);
    /// Decides what another beginning, or another file in the same place, means: true = the source was rewritten and what
    /// was taken of it must be forgotten; false = its log goes on in the new file.
    fn replaced(&mut self, id: u32) -> bool;
    /// Is told that everything taken from a source is void; its lines come again.
    fn reset(&mut self, id: u32);
    /// Is told what happened.
    fn happened(&mut self, id: u32, happening: Happening);
}

/// What must be known of a file to go on after a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileState {
    /// Number of the source.
    pub id: u32,
    /// Its path when last seen.
    pub path: PathBuf,
    /// What makes it the same file.
    pub identity: Identity,
    /// How it is read.
    pub interest: Interest,
    /// Bytes of complete lines that were taken.
    pub offset: u64,
    /// Lines that were taken.
    pub lines: u64,
    /// Checksum of the lines taken.
    pub(crate) checksum: Checksum,
    /// The last bytes that were taken.
    #[serde(default)]
    tail: Tail,
    /// Size and time of the last change that were seen.
    seen: Stamp,
}

/// Size and time of the last change.
type Stamp = (u64, Option<SystemTime>);

impl FileState {
    fn new(id: u32, file: &Found, identity: Identity, interest: Interest) -> Self {
        Self {
            id,
            path: file.path.clone(),
            identity,
            interest,
            offset: 0,
            lines: 0,
            checksum: Checksum::default(),
            tail: Tail::default(),
            seen: stamp(&file.path, &file.metadata, interest),
        }
    }

    /// Makes the file be read from its start again.
    pub fn start_again(&mut self) {
        self.offset = 0;
        self.lines = 0;
        self.checksum = Checksum::default();
        self.tail = Tail::default();
        self.seen = (0, None);
    }
}

#[derive(Debug)]
struct Tracked {
    state: FileState,
    /// Open while it is being read, or while a line has begun; kept while handles last.
    reader: Option<LineReader<File>>,
    /// Gone from its path; read to the end, then dropped.
    missing: bool,
    /// When it last gave a line, or was found to be gone.
    active: Option<Instant>,
}

impl Tracked {
    fn new(state: FileState) -> Self {
        Self { state, reader: None, missing: false, active: None }
    }

    fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(self.state.offset, LineReader::read_to)
    }

    fn is_active(&self, within: Duration) -> bool {
        self.active.is_some_and(|at| at.elapsed() < within)
    }

    /// Returns whether what was read of the file no longer stands in it.
    fn is_cut(&self, length: u64, file: &File) -> bool {
        length < self.read_to()
            || !self.state.identity.still_begins(file).unwrap_or(false)
            || !self.state.tail.still_stands(file)
    }
}

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
}

/// Follows all files below its roots.
#[derive(Debug)]
pub struct Follower {
    roots: Vec<PathBuf>,
    files: BTreeMap<u32, Tracked>,
    next_id: u32,
    handles: usize,
    /// Files that hold nothing of their own, by place on disk.
    waiting: BTreeMap<(u64, u64), Waiting>,
    enter: fn(&Path) -> bool,
    maybe: fn(&Path) -> bool,
}

impl Follower {
    /// Returns a follower. `enter` says whether a folder is looked into, `maybe` whether a file is worth opening.
    pub fn new(roots: Vec<PathBuf>, enter: fn(&Path) -> bool, maybe: fn(&Path) -> bool) -> Self {
        let (files, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { roots, files, next_id: 0, handles: HANDLES, waiting, enter, maybe }
    }

    /// Goes on where an earlier follower stopped.
    pub fn restore(&mut self, states: Vec<FileState>, next_id: u32) {
        self.next_id = next_id;
        for state in states {
            self.next_id = self.next_id.max(state.id + 1);
            self.files.insert(state.id, Tracked::new(state));
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

    /// Returns what must be saved to go on later, and the next free number.
    pub fn states(&self) -> (Vec<FileState>, u32) {
        (self.files.values().map(|t| t.state.clone()).collect(), self.next_id)
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
        let mut found: Vec<Found> = Vec::new();
        for root in &self.roots {
            // A root that is not there yet is no problem: it may come.
            found.extend(walk(root, &self.enter).0);
        }
        // Roots may lie inside each other.
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found.dedup_by(|a, b| a.path == b.path);
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
                        let is_cut = tracked.state.interest == Interest::Lines
                            && tracked.state.seen != stamp(&path, &metadata, Interest::Lines)
                            && File::open(&path).is_ok_and(|file| tracked.is_cut(metadata.len(), &file));
                        if is_cut {
                            // A copy of what was cut may lie anywhere.
                            return self.scan(listener);
                        }
                        files.push(Found { path, metadata });
                    }
                    _ => folders.extend(path.parent().map(Path::to_path_buf)),
                },
                Err(_) => folders.extend(path.parent().map(Path::to_path_buf)),
            }
        }
        // A root that is a file of its own has no folder that is ours.
        folders.retain(|folder| self.roots.iter().any(|root| folder.starts_with(root)));
        if folders.is_empty() {
            return self.look(files, &Scope::Files, listener);
        }
        files.extend(folders.iter().flat_map(|folder| list(folder)));
        files.extend(below);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        self.look(files, &Scope::Folders(folders), listener)
    }

    /// Looks at the files that grew lately and at those that are gone: what a change notification cannot tell.
    pub fn check_active(&mut self, listener: &mut dyn Listener) -> u64 {
        let active = self.files.values().filter(|t| !t.missing && t.is_active(ACTIVE_TIME));
        let paths: BTreeSet<PathBuf> = active.map(|t| t.state.path.clone()).collect();
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
        let mut look = Look { places: HashMap::new(), unknown: Vec::new() };
        for (id, tracked) in &self.files {
            look.places.entry(tracked.state.identity.place()).or_default().push(*id);
        }
        let mut seen = Vec::new();
        for file in found {
            match self.at_place(&look, &file) {
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
            } else if covered && !tracked.missing {
                tracked.missing = true;
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
            lines += self.known(id, &file, &mut look.unknown, listener);
        }
        self.adopt(&mut look.unknown, listener);
        // What is gone from its path is read to its end before anything that follows it.
        lines += self.drain_missing(&look.unknown, listener);
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
        let begins =
            || File::open(&file.path).is_ok_and(|f| tracked.state.identity.still_begins(&f).unwrap_or(false));
        (same_name || tracked.state.identity.born.is_some() || tracked.reader.is_some() || begins())
            .then_some(tracked.state.id)
    }

    /// A file whose place on disk is known: grown, cut or rewritten.
    fn known(&mut self, id: u32, file: &Found, unknown: &mut Vec<Found>, listener: &mut dyn Listener) -> u64 {
        let Some(tracked) = self.files.get_mut(&id) else { return 0 };
        let now = stamp(&file.path, &file.metadata, tracked.state.interest);
        if !matches!(tracked.state.interest, Interest::Lines | Interest::Whole) || tracked.state.seen == now {
            return 0;
        }
        let handle = match File::open(&file.path) {
            Ok(handle) => handle,
            Err(error) => {
                listener.happened(id, Happening::Unreadable { message: error.to_string() });
                return 0;
            }
        };
        if tracked.state.interest == Interest::Whole {
            tracked.state.seen = now;
            listener.whole(id, &file.path);
            return 0;
        }
        if tracked.is_cut(file.metadata.len(), &handle) {
            return self.cut(id, file, handle, unknown, listener);
        }
        tracked.state.seen = now;
        // A beginning that cannot be read now is taken at the next change.
        drop(tracked.state.identity.extend(&handle));
        if tracked.reader.is_none() {
            tracked.reader = resume(handle, &tracked.state);
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
        let Some(tracked) = self.files.get(&id) else { return 0 };
        let mut lines = 0;
        if file.metadata.len() >= tracked.read_to() && listener.replaced(id) {
            listener.reset(id);
            listener.happened(id, Happening::Rewritten);
        } else {
            // Cut: its log goes on from the start. A copy of what was read may lie somewhere; its rest comes first.
            let copy = unknown.iter().position(|other| holds_all_read(&other.path, &tracked.state));
            let copy = copy.map(|index| unknown.swap_remove(index));
            if let Some(copy) = &copy {
                lines += rest_of_copy(&tracked.state, &copy.path, listener);
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
        if let Ok(handle) = File::open(&file.path)
            && let Ok(identity) = Identity::of(&handle, &file.metadata)
        {
            let id = self.fresh_id();
            self.files.insert(id, Tracked::new(FileState::new(id, file, identity, Interest::None)));
        }
    }

    fn fresh_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// A new file that begins with all that was read of one that is gone continues it: it was moved between file systems,
    /// or written anew with more at its end.
    fn adopt(&mut self, unknown: &mut Vec<Found>, listener: &mut dyn Listener) {
        let gone = self.files.values().filter(|t| {
            t.missing && t.state.interest == Interest::Lines && t.state.offset > 0 && t.state.lines > 0
        });
        let mut heads = Heads::default();
        for tracked in gone {
            heads.insert(&tracked.state.identity, tracked.state.id);
        }
        if heads.is_empty() {
            return;
        }
        unknown.retain(|file| {
            let Ok(handle) = File::open(&file.path) else { return true };
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
            take(tracked, false, listener);
            tracked.state.seen = stamp(&file.path, &file.metadata, Interest::Lines);
            false
        });
    }

    fn new_files(&mut self, unknown: Vec<Found>, listener: &mut dyn Listener) -> u64 {
        if unknown.is_empty() {
            return 0;
        }
        let mut heads = Heads::default();
        for tracked in self.files.values().filter(|t| t.state.interest == Interest::Lines) {
            heads.insert(&tracked.state.identity, tracked.state.id);
        }
        let mut lines = 0;
        for file in unknown {
            let next = self.next_id;
            lines += self.new_file(&file, &heads, listener);
            if let Some(tracked) = self.files.get(&next).filter(|t| t.state.interest == Interest::Lines) {
                heads.insert(&tracked.state.identity, next);
            }
        }
        lines
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
        let original = heads.alike(handle).into_iter().find(|id| {
            let Some(tracked) = self.files.get(id).filter(|t| !t.missing && t.state.offset > 0) else {
                return false;
            };
            let Ok(original) = File::open(&tracked.state.path) else { return false };
            let Ok(metadata) = original.metadata() else { return false };
            // A cut that has not been looked at yet is looked at first.
            metadata.len() < tracked.state.offset
                || compare(handle, file.metadata.len(), &original, metadata.len()) == Relation::IsBeginning
        });
        if let Some(original) = original {
            self.waiting.insert(place, Waiting { original, seen: now });
        }
        original.is_some()
    }

    fn new_file(&mut self, file: &Found, heads: &Heads, listener: &mut dyn Listener) -> u64 {
        let opened = File::open(&file.path).and_then(|handle| {
            Ok((Identity::of(&handle, &file.metadata)?, read_span(&handle, 0, HEAD)?, handle))
        });
        let (identity, head, handle) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                listener.happened(self.next_id, Happening::Unreadable { message: error.to_string() });
                return 0;
            }
        };
        if self.waits(file, &handle, heads) {
            return 0;
        }
        let before = self.files.values().find(|t| t.state.path == file.path).map(|t| t.state.id);
        if let Some(before) = before
            && listener.replaced(before)
        {
            listener.reset(before);
            listener.happened(before, Happening::Rewritten);
            listener.happened(before, Happening::Removed);
            self.files.remove(&before);
        }
        let id = self.fresh_id();
        let interest = listener.opened(id, &file.path, &head, before);
        // What cannot be told from a few bytes yet is asked again when there are more.
        if interest == Interest::None && head.len() < HEAD {
            return 0;
        }
        let kept = if interest == Interest::LinesFromEnd { Interest::Lines } else { interest };
        let mut tracked = Tracked::new(FileState::new(id, file, identity, kept));
        let mut lines = 0;
        match interest {
            Interest::None | Interest::Never => {}
            Interest::LinesFromEnd => {
                tracked.reader = resume(handle, &tracked.state);
                take(&mut tracked, false, &mut Deaf);
            }
            Interest::Whole => listener.whole(id, &file.path),
            Interest::Lines => {
                tracked.reader = resume(handle, &tracked.state);
                lines = take(&mut tracked, false, listener);
            }
        }
        self.files.insert(id, tracked);
        lines
    }

    /// Reads files that are gone from their path to their end; they stay while something may still write to them.
    fn drain_missing(&mut self, unknown: &[Found], listener: &mut dyn Listener) -> u64 {
        let mut lines = 0;
        let missing: Vec<u32> = self.files.iter().filter(|(_, t)| t.missing).map(|(id, _)| *id).collect();
        if missing.is_empty() {
            return 0;
        }
        let taken: BTreeSet<&Path> = unknown.iter().map(|file| file.path.as_path()).collect();
        for id in missing {
            let Some(tracked) = self.files.get_mut(&id) else { continue };
            let taken_over = taken.contains(tracked.state.path.as_path());
            lines += take(tracked, false, listener);
            if tracked.reader.is_none() || !tracked.is_active(MISSING_TIME) {
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

    /// Closes handles that are not needed, beyond the limit: those of the files that grew the longest ago, and of those
    /// without a begun line.
    fn close_idle(&mut self) {
        let open = self.files.values().filter(|t| t.reader.is_some()).count();
        if open <= self.handles {
            return;
        }
        let idle = |t: &&mut Tracked| {
            !t.missing && t.reader.as_ref().is_some_and(|reader| !reader.has_partial_line())
        };
        let mut closable: Vec<&mut Tracked> = self.files.values_mut().filter(idle).collect();
        closable.sort_by_key(|t| t.active);
        for tracked in closable.into_iter().take(open - self.handles) {
            tracked.reader = None;
        }
    }
}

/// Hands over the complete lines that can be read now; with `last`, also one without an end.
fn take(tracked: &mut Tracked, last: bool, listener: &mut dyn Listener) -> u64 {
    let Some(reader) = tracked.reader.as_mut() else { return 0 };
    let id = tracked.state.id;
    let mut lines = 0;
    let mut last = last;
    loop {
        let next = if last { reader.next_line() } else { reader.next_complete_line() };
        match next {
            Ok(Some(line)) => {
                add_line(&mut tracked.state.checksum, line);
                lines += 1;
                listener.line(id, line);
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                listener.happened(id, Happening::Unreadable { message: error.to_string() });
                break;
            }
        }
        if last || !listener.is_whole_line(reader.partial_line()) {
            break;
        }
        last = true;
    }
    reader.release();
    if lines > 0 {
        tracked.active = Some(Instant::now());
        let (offset, count) = reader.position();
        tracked.state.offset = offset;
        tracked.state.lines = count;
        // Without them a cut that goes unseen otherwise is seen later, at the next one that can be read.
        tracked.state.tail = Tail::before(reader.input(), offset).unwrap_or_default();
    }
    lines
}

/// Hears nothing: for lines that are passed over.
struct Deaf;

impl Listener for Deaf {
    fn opened(&mut self, _: u32, _: &Path, _: &[u8], _: Option<u32>) -> Interest {
        Interest::None
    }
    fn line(&mut self, _: u32, _: Line<'_>) {}
    fn whole(&mut self, _: u32, _: &Path) {}
    fn replaced(&mut self, _: u32) -> bool {
        false
    }
    fn reset(&mut self, _: u32) {}
    fn happened(&mut self, _: u32, _: Happening) {}
}

fn resume(mut handle: File, state: &FileState) -> Option<LineReader<File>> {
    handle.seek(SeekFrom::Start(state.offset)).ok()?;
    Some(LineReader::resume(handle, state.offset, state.lines))
}

fn rest_of_copy(state: &FileState, path: &Path, listener: &mut dyn Listener) -> u64 {
    let Some(mut reader) = File::open(path).ok().and_then(|copy| resume(copy, state)) else { return 0 };
    let mut lines = 0;
    while let Ok(Some(line)) = reader.next_line() {
        listener.line(state.id, line);
        lines += 1;
    }
    lines
}

fn place(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Size and time of the last change; of a database together with its write-ahead log, where new rows stand first.
fn stamp(path: &Path, metadata: &Metadata, interest: Interest) -> Stamp {
    let own = (metadata.len(), metadata.modified().ok());
    if interest != Interest::Whole {
        return own;
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match fs::metadata(log) {
        Ok(log) => (own.0 + log.len(), own.1.max(log.modified().ok())),
        Err(_) => own,
    }
}

/// Returns the database that a file beside it belongs to, or the path itself.
fn of_database(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let database = ["-wal", "-shm", "-journal"].iter().find_map(|ending| text.strip_suffix(ending));
    database.map_or_else(|| path.to_path_buf(), PathBuf::from)
}
