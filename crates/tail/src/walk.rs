//! Finds files below a root.
//!
//! Hidden folders are entered, symbolic links are followed once (a folder is never entered twice), other file systems are
//! not entered. Not for: telling which files matter.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

/// A regular file.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its path, below the root as given.
    pub path: PathBuf,
    /// Its metadata, symbolic links followed.
    pub metadata: Metadata,
}

/// A place that could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct WalkProblem {
    /// The place.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// Returns the regular files below `root` (or `root` itself, if it is one), sorted by path, and what could not be read.
///
/// `enter` is asked for each folder below the root; saying no skips it whole.
pub fn walk(root: &Path, enter: &dyn Fn(&Path) -> bool) -> (Vec<Found>, Vec<WalkProblem>) {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    let mut seen = HashSet::new();
    let mut device = None;
    let mut stack = vec![root.to_path_buf()];
    while let Some(path) = stack.pop() {
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(source) => {
                // A dangling link is no problem of the person who asked.
                if path == root || fs::symlink_metadata(&path).is_ok_and(|m| !m.is_symlink()) {
                    problems.push(WalkProblem { path, source });
                }
                continue;
            }
        };
        if metadata.is_file() {
            found.push(Found { path, metadata });
        } else if metadata.is_dir() {
            let place = place(&path, &metadata);
            let here = *device.get_or_insert(place.0);
            if place.0 != here || !seen.insert(place) {
                continue;
            }
            if path != root && !enter(&path) {
                continue;
            }
            match fs::read_dir(&path) {
                Ok(entries) => {
                    let mut names: Vec<PathBuf> = entries.filter_map(Result::ok).map(|e| e.path()).collect();
                    names.sort_unstable_by(|a, b| b.cmp(a));
                    stack.extend(names);
                }
                Err(source) => problems.push(WalkProblem { path, source }),
            }
        }
    }
    (unique(found), problems)
}

/// Returns the regular files in `folder` itself, sorted by path.
#[cfg(unix)]
pub(crate) fn list(folder: &Path) -> Vec<Found> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let files = entries.filter_map(|entry| {
        let path = entry.path();
        fs::metadata(&path).ok().filter(Metadata::is_file).map(|metadata| Found { path, metadata })
    });
    unique(files.collect())
}

/// Device and inode.
#[cfg(unix)]
fn place(_: &Path, metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// One device, and a checksum of the path with its links resolved: the standard library tells no more here.
#[cfg(not(unix))]
fn place(path: &Path, _: &Metadata) -> (u64, u64) {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut sum = DefaultHasher::new();
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).hash(&mut sum);
    (0, sum.finish())
}

/// Several names of one file are one file; a name that is no link is the better one.
fn unique(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by_cached_key(|f| {
        (fs::symlink_metadata(&f.path).is_ok_and(|m| m.is_symlink()), f.path.clone())
    });
    let mut files = HashSet::new();
    found.retain(|f| files.insert(place(&f.path, &f.metadata)));
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
