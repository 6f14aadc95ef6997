//! What is known of one followed file.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::listener::Interest;
use super::take::resume;
use crate::identity::{Checksum, Identity, Tail};
use crate::lines::LineReader;
use crate::steady::Steady;
use crate::walk::Found;

/// What must be known of a file to go on after a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileState {
    /// Number of the source.
    pub id: u32,
    /// Its path when last seen.
    #[serde(with = "any_path")]
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
    pub(super) tail: Tail,
    /// Size and time of the last change that were seen.
    pub(super) seen: Stamp,
}

/// A path as text, and as bytes where it is none.
mod any_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Saved {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => text.serialize(serializer),
            None => path.as_os_str().as_bytes().serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Saved::deserialize(deserializer)? {
            Saved::Text(path) => path,
            Saved::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

/// Size and time of the last change.
pub(super) type Stamp = (u64, Option<SystemTime>);

impl FileState {
    pub(super) fn new(id: u32, file: &Found, identity: Identity, interest: Interest) -> Self {
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

    /// When it was last changed, as far as was seen.
    pub(super) fn last_change(&self) -> Option<SystemTime> {
        self.seen.1
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
pub(super) struct Tracked {
    pub(super) state: FileState,
    /// Open while it is being read, or while a line has begun; kept while handles last.
    pub(super) reader: Option<LineReader<Steady>>,
    /// Gone from its path; read to the end, then dropped.
    pub(super) missing: bool,
    /// When it last grew, or was found to be gone.
    pub(super) active: Option<Instant>,
    /// When it is to be read as a whole once more: the index that makes the last rows of a database visible is in memory, and
    /// changes after the file.
    pub(super) settles: Option<Instant>,
}

/// How long after a change of a database its rows may still become visible.
const SETTLING_TIME: Duration = Duration::from_secs(1);

impl Tracked {
    pub(super) fn new(state: FileState) -> Self {
        Self { state, reader: None, missing: false, active: None, settles: None }
    }

    /// Opens the file again where it was left, if it still is that file.
    pub(super) fn reopen(&mut self) {
        // Opening anything but a regular file may wait for ever.
        let is_same =
            fs::metadata(&self.state.path).is_ok_and(|now| now.is_file() && self.state.identity.is_at(&now));
        let Some(file) = is_same.then(|| File::open(&self.state.path).ok()).flatten() else { return };
        if self.state.identity.still_begins(&file).unwrap_or(false) {
            self.reader = resume(file, &self.state);
            if let Some(reader) = &mut self.reader {
                reader.release();
            }
        }
    }

    /// Notes that a file that is read as a whole has changed.
    pub(super) fn unsettle(&mut self) {
        let now = Instant::now();
        self.active = Some(now);
        self.settles = Some(now + SETTLING_TIME);
    }

    /// Returns whether it is time to read it once more.
    pub(super) fn settles_now(&mut self) -> bool {
        let settles = self.settles.is_some_and(|at| Instant::now() >= at);
        if settles {
            self.settles = None;
        }
        settles
    }

    pub(super) fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(self.state.offset, LineReader::read_to)
    }

    pub(super) fn is_active(&self, within: Duration) -> bool {
        self.active.is_some_and(|at| at.elapsed() < within)
    }

    /// Returns whether what was taken of the file no longer stands in it. Of a line that has begun nothing was taken.
    pub(super) fn is_cut(&self, length: u64, file: &File) -> bool {
        let read_to = if self.state.offset > 0 { self.state.offset } else { self.read_to() };
        length < read_to
            || !self.state.identity.still_begins(file).unwrap_or(true)
            || !self.state.tail.still_stands(file)
    }
}

pub(super) fn place(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Size and time of the last change; of a database together with its write-ahead log, where new rows stand first.
pub(super) fn stamp(path: &Path, metadata: &Metadata, interest: Interest) -> Stamp {
    let own = (metadata.len(), changed_at(metadata));
    if interest != Interest::Whole {
        return own;
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match fs::metadata(log) {
        Ok(log) => (own.0 + log.len(), own.1.max(changed_at(&log))),
        Err(_) => own,
    }
}

/// When a file was last changed. Not when it says it was written: that can be set, as by what copies it over with its times.
fn changed_at(metadata: &Metadata) -> Option<SystemTime> {
    let seconds = u64::try_from(metadata.ctime()).ok()?;
    let nanos = u32::try_from(metadata.ctime_nsec()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}
