//! Remembers what was listed, by file: a second listing reads only what has changed.
//!
//! An entry holds while its file is the same one (device, inode), as long, and neither written nor changed since: a file
//! that was put back under an old date has a new time of change. Files that were touched around the time they were read
//! are not remembered, since clocks are coarse. The whole index holds for one build of the program and one state of the
//! agents' configuration files; another one is ignored, as is one that is damaged, and written anew. It may be deleted at
//! any time. It holds paths, ids, times, counts and reasons: nothing of prompts, answers or error texts.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use retryscope_analysis::RunLine;
use retryscope_record::RunKey;
use retryscope_tail::Found;
use serde::{Deserialize, Serialize};

use crate::list::Fact;

/// Version of the form.
const FORM: &str = "retryscope index 3";

/// A file touched less than this before it was read may be touched again without a new date.
const COARSE: Duration = Duration::from_secs(2);

/// An index that was not written for this long is of roots that nobody asks for any more.
const FORGOTTEN: Duration = Duration::from_hours(60 * 24);

/// What tells whether a file is what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    main: FileStamp,
    /// Of a database: its log, in which new rows stand first.
    log: Option<FileStamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Nanoseconds since the epoch.
    written: i128,
    changed: i128,
}

impl Stamp {
    /// Returns the stamp of a file; `None` where the system does not tell enough.
    pub(crate) fn of(found: &Found) -> Option<Self> {
        let main = FileStamp::of(&found.metadata)?;
        let is_database = found.path.extension().is_some_and(|end| end == "db" || end == "sqlite");
        let log = is_database.then(|| {
            let mut name = found.path.clone().into_os_string();
            name.push("-wal");
            FileStamp::of(&fs::metadata(name).ok()?)
        });
        Some(Self { main, log: log.flatten() })
    }

    /// Returns whether a file that was read from then on can be told from the same file touched since.
    pub(crate) fn is_settled(&self, begun: SystemTime) -> bool {
        let Ok(begun) = begun.duration_since(SystemTime::UNIX_EPOCH) else { return false };
        let latest = begun.saturating_sub(COARSE).as_nanos().cast_signed();
        [Some(self.main), self.log].into_iter().flatten().all(|file| file.written.max(file.changed) < latest)
    }
}

impl FileStamp {
    #[cfg(unix)]
    #[expect(clippy::unnecessary_wraps, reason = "other systems tell less")]
    fn of(metadata: &fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            written: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// The standard library tells neither identity nor time of change here: nothing is remembered.
    #[cfg(not(unix))]
    fn of(_: &fs::Metadata) -> Option<Self> {
        None
    }
}

/// What is remembered of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) stamp: Stamp,
    pub(crate) fact: Fact,
}

/// A run of which several files speak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Joined {
    pub(crate) line: RunLine,
    pub(crate) files: Vec<PathBuf>,
}

/// Everything that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// By path; a path that is no text is not remembered.
    pub(crate) entries: HashMap<String, Entry>,
    pub(crate) joined: BTreeMap<RunKey, Joined>,
}

/// The index of some roots.
#[derive(Debug)]
pub(crate) struct Index {
    file: PathBuf,
    /// What the whole index holds for, but for the settings.
    holds_for: String,
    /// Checksum of the settings that it holds for.
    settings: u64,
    known: Known,
}

impl Index {
    /// Opens the index of these roots; an absent or unreadable one is empty. `None` where none can be kept.
    pub(crate) fn open(folder: &Path, roots: &[PathBuf]) -> Option<Self> {
        let here = std::env::current_dir().ok();
        let mut places = Vec::new();
        for root in roots {
            let root = here.as_ref().map_or_else(|| root.clone(), |here| here.join(root));
            places.extend_from_slice(root.as_os_str().as_encoded_bytes());
            places.push(0);
        }
        let file = folder.join(format!("runs-{:016x}.index", checksum(&places)));
        let holds_for = format!("{FORM} {}", program()?);
        let read = fs::read(&file).ok().and_then(|bytes| read(&bytes, &holds_for));
        let (settings, known) = read.unwrap_or_default();
        Some(Self { file, holds_for, settings, known })
    }

    /// Takes what is remembered, if it holds for these settings; from now on the index does.
    pub(crate) fn take(&mut self, settings: u64) -> Known {
        let known = std::mem::take(&mut self.known);
        if std::mem::replace(&mut self.settings, settings) == settings { known } else { Known::default() }
    }

    /// Remembers a listing in place of what was remembered. That it cannot be written is no reason to fail.
    pub(crate) fn save<'a>(
        &self,
        entries: impl Iterator<Item = (&'a Path, Entry)>,
        joined: &BTreeMap<RunKey, Joined>,
    ) {
        // A name that is no text is not remembered, so that its file is read each time.
        let entries: Vec<(&str, Entry)> =
            entries.filter_map(|(path, entry)| Some((path.to_str()?, entry))).collect();
        let is_text = |joined: &&Joined| joined.files.iter().all(|file| file.to_str().is_some());
        let joined: Vec<&Joined> = joined.values().filter(is_text).collect();
        let Ok(body) = postcard::to_stdvec(&(entries, joined)) else { return };
        let Ok(head) = postcard::to_stdvec(&(&self.holds_for, self.settings, checksum(&body))) else {
            return;
        };
        drop(self.write(&head, &body));
    }

    /// Writes beside the index and renames: who reads at the same time sees the old one or the new one.
    fn write(&self, head: &[u8], body: &[u8]) -> std::io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        create_private(folder)?;
        let mut file = tempfile::Builder::new().prefix(".runs-").suffix(".part").tempfile_in(folder)?;
        file.write_all(head)?;
        file.write_all(body)?;
        file.persist(&self.file).map_err(|error| error.error)?;
        forget_old(folder);
        Ok(())
    }
}

#[cfg(unix)]
fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

/// Takes away what was left behind: indexes of other roots that nobody asks for, and parts of writers that died.
fn forget_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.starts_with("runs-") && name.ends_with(".index")
            || name.starts_with(".runs-") && name.ends_with(".part");
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|at| at.elapsed().ok());
        if ours && age.is_some_and(|age| age > FORGOTTEN) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Tells one build of the program from another: what it makes of a log may differ though its version is the same.
fn program() -> Option<String> {
    let metadata = fs::metadata(std::env::current_exe().ok()?).ok()?;
    let built = metadata.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), metadata.len(), built.as_nanos()))
}

fn read(bytes: &[u8], holds_for: &str) -> Option<(u64, Known)> {
    let ((of, settings, sum), body): ((&str, u64, u64), _) = postcard::take_from_bytes(bytes).ok()?;
    if of != holds_for || sum != checksum(body) {
        return None;
    }
    let (entries, joined): (Vec<(String, Entry)>, Vec<Joined>) = postcard::from_bytes(body).ok()?;
    let known = Known {
        entries: entries.into_iter().collect(),
        joined: joined.into_iter().map(|joined| (joined.line.key.clone(), joined)).collect(),
    };
    Some((settings, known))
}

/// Returns a checksum that tells damage, by words of eight bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(bytes.len() as u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}
