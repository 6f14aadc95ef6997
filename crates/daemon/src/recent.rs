//! What changed since the last checkpoint, for a process that is killed.
//!
//! A log may be deleted as soon as its numbers are seen, so what is counted is kept within milliseconds. Not for: a machine
//! that loses its power; nothing here is synced, and what cannot be read is passed over. Each state is a file of its own,
//! and the one before goes only after it: a file that replaces another one would be written to disk at once.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::info;

use crate::checkpoint::{Head, NAME, Restored, Saved, VERSION};

/// Beginning of the names; a number follows, the newest is the highest.
const BEGINNING: &str = "checkpoint.recent-";

/// The checkpoint that a recent state follows: beside another one it says nothing.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Follows {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Follows {
    fn now(folder: &Path) -> std::io::Result<Self> {
        let saved = fs::metadata(folder.join(NAME))?;
        Ok(Self { inode: saved.ino(), bytes: saved.len(), changed: (saved.mtime(), saved.mtime_nsec()) })
    }
}

/// Keeps a state, in place of the one before.
pub(crate) fn keep(saved: &Saved<'_>, folder: &Path) -> anyhow::Result<()> {
    let before = kept(folder);
    let number = before.first().map_or(0, |(number, _)| number + 1);
    let path = folder.join(format!("{BEGINNING}{number:08}"));
    let follows = serde_json::to_string(&Follows::now(folder)?)?;
    let mut file = File::create(&path)?;
    let written = writeln!(file, "{follows}").map_err(Into::into).and_then(|()| saved.write_to(&file));
    // On a disk that is full each further one would leave a name behind, and take the room that saving needs.
    if written.is_ok() {
        remove(&before);
    } else {
        remove(&[(number, path)]);
    }
    written
}

/// Returns the newest state that was kept since the checkpoint that lies there.
pub(crate) fn load(folder: &Path) -> Option<Restored> {
    let follows = Follows::now(folder).ok()?;
    let restored = kept(folder).into_iter().find_map(|(_, path)| {
        let bytes = fs::read(path).ok()?;
        let end = memchr::memchr(b'\n', &bytes)?;
        let (first, state) = bytes.split_at(end);
        let is_its = serde_json::from_slice::<Follows>(first).is_ok_and(|of| of == follows)
            && serde_json::from_slice::<Head>(state).is_ok_and(|head| head.version == VERSION);
        is_its.then(|| serde_json::from_slice(state).ok()).flatten()
    });
    if restored.is_some() {
        info!("the last process was killed; going on with what it had kept");
    }
    restored
}

/// Removes what was kept: it is saved.
pub(crate) fn clean(folder: &Path) {
    remove(&kept(folder));
}

fn remove(kept: &[(u64, PathBuf)]) {
    for (_, path) in kept {
        // What stays is older than what is read first.
        drop(fs::remove_file(path));
    }
}

/// Returns what is kept, the newest first.
fn kept(folder: &Path) -> Vec<(u64, PathBuf)> {
    let names = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut kept: Vec<(u64, PathBuf)> = names
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(BEGINNING)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept
}
