//! Finds files below a root.
//!
//! Hidden folders are entered, symbolic links are followed once (a folder is never entered twice), other file systems are
//! not entered. Not for: telling which files matter.

use std::collections::HashSet;
use std::ffi::OsString;
#[cfg(unix)]
use std::fs::File;
use std::fs::{self, FileType, Metadata};
#[cfg(unix)]
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::rotated::Age;

/// A regular file.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its path, below the root as given.
    pub path: PathBuf,
    /// Its metadata, symbolic links followed.
    pub metadata: Metadata,
}

#[cfg(unix)]
impl Found {
    /// Opens the file that was found; [`ErrorKind::NotFound`] if its name is another file's by now, as after a rotation.
    pub(crate) fn open(&self) -> io::Result<File> {
        let file = File::open(&self.path)?;
        if place(&self.path, &file.metadata()?) == place(&self.path, &self.metadata) {
            Ok(file)
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }
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
    // What the folder's own listing says of a name saves asking again for most of them.
    let mut stack: Vec<(PathBuf, Option<FileType>)> = vec![(root.to_path_buf(), None)];
    while let Some((path, kind)) = stack.pop() {
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
            let is_link = kind.map_or_else(|| is_link(&path), |kind| kind.is_symlink());
            found.push((is_link, Found { path, metadata }));
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
                    let mut names: Vec<(OsString, Option<FileType>)> = entries
                        .filter_map(Result::ok)
                        .map(|entry| (entry.file_name(), entry.file_type().ok()))
                        .collect();
                    names.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
                    stack.extend(names.into_iter().map(|(name, kind)| (path.join(name), kind)));
                }
                Err(source) => problems.push(WalkProblem { path, source }),
            }
        }
    }
    (unique(found), problems)
}

/// Returns the regular files below several roots, root by root, and what could not be read. Roots may lie inside each other or
/// be several names of one folder: a file is found once, below the first of them.
pub fn walk_all(roots: &[PathBuf], enter: &dyn Fn(&Path) -> bool) -> (Vec<Found>, Vec<WalkProblem>) {
    let mut all = Vec::new();
    let mut problems: Vec<WalkProblem> = Vec::new();
    let mut files = HashSet::new();
    for root in roots {
        let (found, of_root) = walk(root, enter);
        all.extend(
            found
                .into_iter()
                .filter(|found| roots.len() < 2 || files.insert(place(&found.path, &found.metadata))),
        );
        let is_new = |problem: &WalkProblem| problems.iter().all(|known| known.path != problem.path);
        problems.extend(of_root.into_iter().filter(is_new).collect::<Vec<_>>());
    }
    (all, problems)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink())
}

/// Returns the regular files in `folder` itself, sorted by path.
#[cfg(unix)]
pub(crate) fn list(folder: &Path) -> Vec<Found> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let files = entries.filter_map(|entry| {
        let path = entry.path();
        let metadata = fs::metadata(&path).ok().filter(Metadata::is_file)?;
        Some((is_link(&path), Found { path, metadata }))
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
fn unique(mut found: Vec<(bool, Found)>) -> Vec<Found> {
    // Names come nearly in order, and a stable sort makes use of that.
    found.sort_by(|(a_links, a), (b_links, b)| (a_links, &a.path).cmp(&(b_links, &b.path)));
    let mut files = HashSet::new();
    found.retain(|(_, f)| files.insert(place(&f.path, &f.metadata)));
    let mut found: Vec<Found> = found.into_iter().map(|(_, found)| found).collect();
    found.sort_by_cached_key(|found| Age::of(&found.path));
    found
}
