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
//! - A file that begins otherwise than it did, or another file in its place, has been rewritten: see [`Listener::replaced`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::identity::{Checksum, Identity};
use crate::lines::{Line, LineReader};
use crate::walk::{Found, walk};

/// Open handles that are kept; files beyond are opened when they change.
const HANDLES: usize = 256;

/// Looks at a copy before it is read as a file of its own.
const COPY_LOOKS: u32 = 4;

/// Looks at a file that is gone before its handle is closed; its writer may still have it open.
const MISSING_LOOKS: u32 = 20;

/// Bytes of a new file that the listener sees before it decides.
pub(crate) const HEAD: usize = 16 << 10;

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interest {
    /// Not at all.
    None,
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
    /// Checksum of the bytes taken.
    checksum: Checksum,
    /// Size and time of the last change that were seen.
    seen: (u64, Option<SystemTime>),
}

impl FileState {
    /// Makes the file be read from its start again.
    pub fn start_again(&mut self) {
        self.offset = 0;
        self.lines = 0;
        self.checksum = Checksum::default();
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
    /// Looks in a row at a missing file that brought nothing.
    idle: u32,
}

/// Follows all files below its roots.
#[derive(Debug)]
pub struct Follower {
    roots: Vec<PathBuf>,
    files: BTreeMap<u32, Tracked>,
    next_id: u32,
    /// Copies of followed files, by place on disk, and how often they were looked at: the original may be cut next.
    copies: BTreeMap<(u64, u64), u32>,
    enter: fn(&Path) -> bool,
    maybe: fn(&Path) -> bool,
}

impl Follower {
    /// Returns a follower. `enter` says whether a folder is looked into, `maybe` whether a file is worth opening.
    pub fn new(roots: Vec<PathBuf>, enter: fn(&Path) -> bool, maybe: fn(&Path) -> bool) -> Self {
        Self { roots, files: BTreeMap::new(), next_id: 0, copies: BTreeMap::new(), enter, maybe }
    }

    /// Goes on where an earlier follower stopped.
    pub fn restore(&mut self, states: Vec<FileState>, next_id: u32) {
        self.next_id = next_id;
        for state in states {
            self.next_id = self.next_id.max(state.id + 1);
            self.files.insert(state.id, Tracked { state, reader: None, missing: false, idle: 0 });
        }
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
        self.look(found, true, listener)
    }

    /// Looks at one file, because something was said to have happened to it.
    pub fn check(&mut self, path: &Path, listener: &mut dyn Listener) -> u64 {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                self.look(vec![Found { path: path.to_path_buf(), metadata }], false, listener)
            }
            _ => 0,
        }
    }

    fn look(&mut self, found: Vec<Found>, everything: bool, listener: &mut dyn Listener) -> u64 {
        let mut lines = 0;
        let mut unknown = Vec::new();
        let mut seen = Vec::new();
        for file in found {
            if file.metadata.len() == 0 || !(self.maybe)(&file.path) {
                if let Some(id) = self.at_place(&file) {
                    seen.push((id, file));
                }
                continue;
            }
            match self.at_place(&file) {
                Some(id) => seen.push((id, file)),
                None => unknown.push(file),
            }
        }
        if everything {
            let here: Vec<u32> = seen.iter().map(|(id, _)| *id).collect();
            for (id, tracked) in &mut self.files {
                tracked.missing = !here.contains(id);
            }
        }
        // Renames first: a name that is free again may be taken by a new file.
        for (id, file) in &seen {
            if let Some(tracked) = self.files.get_mut(id)
                && tracked.state.path != file.path
            {
                tracked.state.path.clone_from(&file.path);
                tracked.missing = false;
                listener.happened(*id, Happening::Renamed { to: file.path.clone() });
            }
        }
        for (id, file) in seen {
            lines += self.known(id, &file, &mut unknown, listener);
        }
        // What is gone from its path is read to its end before anything that follows it.
        if everything {
            lines += self.drain_missing(&unknown, listener);
        }
        for file in unknown {
            lines += self.new_file(&file, listener);
        }
        self.close_idle();
        lines
    }

    /// Returns the source that a file is, by its place on disk. Places are used again: where the file system does not tell
    /// when a file was made, under another name only a file that begins as the source did is the source.
    fn at_place(&self, file: &Found) -> Option<u32> {
        let (id, tracked) = self.files.iter().find(|(_, t)| t.state.identity.is_at(&file.metadata))?;
        let same_name = tracked.state.path == file.path;
        let begins = || {
            File::open(&file.path)
                .is_ok_and(|mut f| tracked.state.identity.still_begins(&mut f).unwrap_or(false))
        };
        (same_name || tracked.state.identity.born.is_some() || tracked.reader.is_some() || begins())
            .then_some(*id)
    }

    /// A file whose place on disk is known: grown, cut or rewritten.
    fn known(&mut self, id: u32, file: &Found, unknown: &mut Vec<Found>, listener: &mut dyn Listener) -> u64 {
        let stamp = (file.metadata.len(), file.metadata.modified().ok());
        let Some(tracked) = self.files.get_mut(&id) else { return 0 };
        if tracked.state.interest == Interest::None || tracked.state.seen == stamp && tracked.reader.is_none()
        {
            return 0;
        }
        if tracked.state.seen == stamp {
            return 0;
        }
        let mut handle = match File::open(&file.path) {
            Ok(handle) => handle,
            Err(error) => {
                listener.happened(id, Happening::Unreadable { message: error.to_string() });
                return 0;
            }
        };
        let begins = tracked.state.identity.still_begins(&mut handle).unwrap_or(false);
        if tracked.state.interest == Interest::Whole {
            tracked.state.seen = stamp;
            listener.whole(id, &file.path);
            return 0;
        }
        let read_to = tracked.reader.as_ref().map_or(tracked.state.offset, LineReader::read_to);
        if stamp.0 < read_to || !begins {
            return self.cut(id, file, handle, unknown, listener);
        }
        tracked.state.seen = stamp;
        // A beginning that cannot be read now is taken at the next change.
        drop(tracked.state.identity.extend(&mut handle));
        if tracked.reader.is_none() {
            if handle.seek(SeekFrom::Start(tracked.state.offset)).is_err() {
                return 0;
            }
            tracked.reader = Some(LineReader::resume(handle, tracked.state.offset, tracked.state.lines));
        }
        Self::take(id, tracked, false, listener)
    }

    /// The file is shorter than what was read of it, or begins otherwise.
    fn cut(
        &mut self,
        id: u32,
        file: &Found,
        mut handle: File,
        unknown: &mut Vec<Found>,
        listener: &mut dyn Listener,
    ) -> u64 {
        let Some(tracked) = self.files.get_mut(&id) else { return 0 };
        let mut lines = 0;
        let read_to = tracked.reader.as_ref().map_or(tracked.state.offset, LineReader::read_to);
        let rewritten = file.metadata.len() >= read_to;
        if rewritten && listener.replaced(id) {
            listener.reset(id);
            listener.happened(id, Happening::Rewritten);
        } else {
            // Cut: its log goes on from the start. A copy of what was read may lie beside it; its rest comes first.
            let copy = unknown.iter().position(|other| is_copy(&other.path, &tracked.state));
            let possible_loss = match copy {
                Some(index) => {
                    let other = unknown.swap_remove(index);
                    lines += Self::rest_of_copy(id, tracked, &other.path, listener);
                    self.ignore(&other);
                    Some(0)
                }
                // How much was written between the last reading and the cut is not known.
                None => None,
            };
            listener.happened(id, Happening::Truncated { possible_loss });
        }
        let Some(tracked) = self.files.get_mut(&id) else { return lines };
        tracked.reader = None;
        if let Ok(identity) = Identity::of(&mut handle, &file.metadata) {
            tracked.state.identity = identity;
        }
        tracked.state.offset = 0;
        tracked.state.lines = 0;
        tracked.state.checksum = Checksum::default();
        tracked.state.seen = (file.metadata.len(), file.metadata.modified().ok());
        if handle.seek(SeekFrom::Start(0)).is_ok() {
            tracked.reader = Some(LineReader::new(handle));
            lines += Self::take(id, tracked, false, listener);
        }
        lines
    }

    fn rest_of_copy(id: u32, tracked: &mut Tracked, path: &Path, listener: &mut dyn Listener) -> u64 {
        let Ok(mut copy) = File::open(path) else { return 0 };
        if copy.seek(SeekFrom::Start(tracked.state.offset)).is_err() {
            return 0;
        }
        let mut reader = LineReader::resume(copy, tracked.state.offset, tracked.state.lines);
        let mut lines = 0;
        while let Ok(Some(line)) = reader.next_line() {
            listener.line(id, line);
            lines += 1;
        }
        lines
    }

    /// Notes a file that is not to be read.
    fn ignore(&mut self, file: &Found) {
        if let Ok(mut handle) = File::open(&file.path)
            && let Ok(identity) = Identity::of(&mut handle, &file.metadata)
        {
            let id = self.fresh_id();
            let state = FileState {
                id,
                path: file.path.clone(),
                identity,
                interest: Interest::None,
                offset: 0,
                lines: 0,
                checksum: Checksum::default(),
                seen: (file.metadata.len(), file.metadata.modified().ok()),
            };
            self.files.insert(id, Tracked { state, reader: None, missing: false, idle: 0 });
        }
    }

    /// A file that begins with all that was read of another one is its copy, or the beginning of something else that
    /// only looks so far alike. It is left alone for a moment, in case the original is cut; for good while it holds nothing
    /// of its own.
    fn waits_as_copy(&mut self, file: &Found) -> bool {
        let original = self.files.values().find(|t| {
            t.state.interest == Interest::Lines
                && t.state.offset > 0
                && !t.missing
                && is_copy(&file.path, &t.state)
        });
        let Some(original) = original else { return false };
        let place = (file.metadata.dev(), file.metadata.ino());
        let looks = self.copies.entry(place).or_default();
        *looks += 1;
        if *looks <= COPY_LOOKS || file.metadata.len() == original.state.offset {
            return true;
        }
        self.copies.remove(&place);
        false
    }

    fn fresh_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn new_file(&mut self, file: &Found, listener: &mut dyn Listener) -> u64 {
        let mut handle = match File::open(&file.path) {
            Ok(handle) => handle,
            Err(error) => {
                listener.happened(self.next_id, Happening::Unreadable { message: error.to_string() });
                return 0;
            }
        };
        let Ok(identity) = Identity::of(&mut handle, &file.metadata) else { return 0 };
        if self.waits_as_copy(file) {
            return 0;
        }
        let before = self.files.values().find(|t| t.state.path == file.path).map(|t| t.state.id);
        if let Some(before) = before
            && listener.replaced(before)
        {
            listener.reset(before);
            listener.happened(before, Happening::Rewritten);
            self.files.remove(&before);
        }
        let mut head = vec![0; HEAD];
        let length = match read_head(&mut handle, &mut head) {
            Ok(length) => length,
            Err(error) => {
                listener.happened(self.next_id, Happening::Unreadable { message: error.to_string() });
                return 0;
            }
        };
        let id = self.fresh_id();
        let interest = listener.opened(id, &file.path, &head[..length], before);
        // What cannot be told from a few bytes yet is asked again when there are more.
        if interest == Interest::None && length < HEAD {
            return 0;
        }
        let state = FileState {
            id,
            path: file.path.clone(),
            identity,
            interest,
            offset: 0,
            lines: 0,
            checksum: Checksum::default(),
            seen: (file.metadata.len(), file.metadata.modified().ok()),
        };
        let mut tracked = Tracked { state, reader: None, missing: false, idle: 0 };
        let mut lines = 0;
        match interest {
            Interest::None => {}
            Interest::Whole => listener.whole(id, &file.path),
            Interest::Lines => {
                if handle.seek(SeekFrom::Start(0)).is_ok() {
                    tracked.reader = Some(LineReader::new(handle));
                    lines = Self::take(id, &mut tracked, false, listener);
                }
            }
        }
        self.files.insert(id, tracked);
        lines
    }

    /// Reads files that are gone from their path to their end; they stay while something may still write to them.
    fn drain_missing(&mut self, unknown: &[Found], listener: &mut dyn Listener) -> u64 {
        let mut lines = 0;
        let missing: Vec<u32> = self.files.iter().filter(|(_, t)| t.missing).map(|(id, _)| *id).collect();
        for id in missing {
            let Some(tracked) = self.files.get_mut(&id) else { continue };
            let taken_over = unknown.iter().any(|file| file.path == tracked.state.path);
            let before = lines;
            if tracked.reader.is_some() {
                lines += Self::take(id, tracked, false, listener);
            }
            tracked.idle = if lines == before { tracked.idle + 1 } else { 0 };
            if tracked.reader.is_none() || tracked.idle > MISSING_LOOKS {
                // What is left is a last line without an end.
                if tracked.reader.is_some() {
                    lines += Self::take(id, tracked, true, listener);
                }
                if !taken_over {
                    listener.happened(id, Happening::Removed);
                    self.files.remove(&id);
                } else if let Some(tracked) = self.files.get_mut(&id) {
                    tracked.reader = None;
                }
            }
        }
        lines
    }

    /// Hands over the complete lines that can be read now; with `last`, also one without an end.
    fn take(id: u32, tracked: &mut Tracked, last: bool, listener: &mut dyn Listener) -> u64 {
        let Some(reader) = tracked.reader.as_mut() else { return 0 };
        let mut lines = 0;
        loop {
            let next = if last { reader.next_line() } else { reader.next_complete_line() };
            match next {
                Ok(Some(line)) => {
                    add_line(&mut tracked.state.checksum, line);
                    lines += 1;
                    listener.line(id, line);
                }
                Ok(None) => break,
                Err(error) => {
                    listener.happened(id, Happening::Unreadable { message: error.to_string() });
                    break;
                }
            }
        }
        let (offset, count) = reader.position();
        tracked.state.offset = offset;
        tracked.state.lines = count;
        lines
    }

    /// Closes handles that are not needed: those without a half line, beyond the limit.
    fn close_idle(&mut self) {
        let mut open = self.files.values().filter(|t| t.reader.is_some()).count();
        for tracked in self.files.values_mut() {
            if open <= HANDLES {
                return;
            }
            if tracked.reader.as_ref().is_some_and(|r| !r.has_partial_line()) {
                tracked.reader = None;
                open -= 1;
            }
        }
    }
}

/// Returns whether a file begins with all that was read of a source.
fn is_copy(path: &Path, state: &FileState) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let Ok(metadata) = file.metadata() else { return false };
    let begins = metadata.len() >= state.offset && state.identity.still_begins(&mut file).unwrap_or(false);
    if state.identity.is_at(&metadata) || !begins || file.seek(SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut lines = LineReader::new(file);
    let mut checksum = Checksum::default();
    for _ in 0..state.lines {
        match lines.next_complete_line() {
            Ok(Some(line)) => add_line(&mut checksum, line),
            _ => return false,
        }
    }
    checksum == state.checksum && lines.position().0 == state.offset
}

/// A shortened line stands for itself by its place alone: where it was cut depends on how it was read.
fn add_line(checksum: &mut Checksum, line: Line<'_>) {
    if !line.shortened {
        checksum.add(line.bytes);
    }
    checksum.add(b"\n");
}

fn read_head(file: &mut File, head: &mut [u8]) -> io::Result<usize> {
    file.seek(SeekFrom::Start(0))?;
    let mut length = 0;
    while length < head.len() {
        match file.read(&mut head[length..]) {
            Ok(0) => break,
            Ok(got) => length += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
