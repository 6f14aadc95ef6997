//! What the tests of several crates share: where the fixtures are, and what the server saw of each.
//!
//! Only for tests: it panics where a fixture is missing, and says which.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One recorded case.
#[derive(Debug, Clone)]
pub struct Case {
    /// `agent/scenario`.
    pub name: String,
    /// Its folder, which holds `logs/`.
    pub folder: PathBuf,
    /// What the server saw, and how the run ended.
    pub truth: Value,
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder of the fixtures.
pub fn fixtures() -> PathBuf {
    repository().join("tests/fixtures")
}

/// Returns every recorded case, by name.
///
/// # Panics
///
/// Where a folder or a `truth.json` cannot be read, or next to nothing is there.
pub fn cases() -> Vec<Case> {
    let mut found = Vec::new();
    // `rules` holds cases of the audit, which have no server that saw anything.
    for agent in folders(&fixtures()).into_iter().filter(|agent| !agent.ends_with("rules")) {
        for folder in folders(&agent) {
            let truth = folder.join("truth.json");
            let truth = fs::read(&truth).unwrap_or_else(|error| panic!("{}: {error}", truth.display()));
            let truth = serde_json::from_slice(&truth)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            found.push(Case { name: format!("{}/{}", last(&agent), last(&folder)), folder, truth });
        }
    }
    assert!(found.len() > 30, "fixtures are missing");
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Copies a file, or a folder with all that is in it, to a new place.
///
/// # Panics
///
/// Where something cannot be copied.
pub fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let below = file.strip_prefix(from).unwrap_or(Path::new(""));
        let target = if below.as_os_str().is_empty() { to.to_path_buf() } else { to.join(below) };
        let made = target.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = made.and_then(|()| fs::copy(&file, &target).map(drop)) {
            panic!("{} to {}: {error}", file.display(), target.display());
        }
    }
}

/// Returns all files below a folder, in a fixed order.
///
/// # Panics
///
/// Where a folder cannot be read.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut stack = vec![folder.to_owned()];
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(entries(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn folders(path: &Path) -> Vec<PathBuf> {
    entries(path).into_iter().filter(|path| path.is_dir()).collect()
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    read.map(|entry| entry.unwrap_or_else(|error| panic!("{}: {error}", path.display())).path()).collect()
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
