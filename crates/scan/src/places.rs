//! Where agents keep their logs, and which folders are never worth entering.

use std::path::{Path, PathBuf};

use retryscope_adapters::ADAPTERS;

/// The parts of the environment that decide about places.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The home directory.
    pub home: Option<PathBuf>,
    /// Looks up an environment variable.
    pub variables: Vec<(String, String)>,
}

impl Environment {
    /// Returns a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }
}

/// Returns the usual places of all known agents that exist here.
pub fn default_roots(environment: &Environment) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for place in ADAPTERS.iter().flat_map(|adapter| adapter.places) {
        let root = match place.env.and_then(|name| environment.get(name)) {
            Some(value) => Some(Path::new(value).join(place.below)),
            None => environment.home.as_ref().map(|home| home.join(place.home)),
        };
        if let Some(root) = root.filter(|root| root.is_dir())
            && !roots.contains(&root)
        {
            roots.push(root);
        }
    }
    roots
}

/// Returns the folders and files that a root stands for: itself, or what is there now of a pattern such as
/// `/home/*/.codex`. A path that is there is no pattern.
pub fn matching(root: &Path) -> Vec<PathBuf> {
    match pattern(root) {
        Some(pattern) => glob::glob(pattern).into_iter().flatten().flatten().collect(),
        None => vec![root.to_path_buf()],
    }
}

/// Returns the folder above a file that matches a root which is a pattern, whether the folder is there or not.
pub fn matched_by(root: &Path, file: &Path) -> Option<PathBuf> {
    let pattern = glob::Pattern::new(pattern(root)?).ok()?;
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    file.ancestors().find(|path| pattern.matches_path_with(path, options)).map(Path::to_path_buf)
}

/// Returns what is wrong with a root that is a pattern, if anything.
pub fn wrong_pattern(root: &Path) -> Option<String> {
    glob::Pattern::new(pattern(root)?).err().map(|error| error.to_string())
}

fn pattern(root: &Path) -> Option<&str> {
    root.to_str().filter(|text| text.contains(['*', '?', '[']) && !root.exists())
}

/// Folders that hold no logs and may be huge.
const SKIPPED: &[&str] =
    &["node_modules", ".git", "target", ".venv", "__pycache__", "packages", "file-history"];

/// Returns whether a folder may hold logs, by its name.
pub fn may_enter(folder: &Path) -> bool {
    folder.file_name().and_then(|name| name.to_str()).is_none_or(|name| !SKIPPED.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_what_matches_it() {
        let place = tempfile::tempdir().expect("a folder");
        let below = |name: &str| place.path().join(name);
        for name in ["a/logs", "b/logs", "c/other", "[d]/logs"] {
            std::fs::create_dir_all(below(name)).expect("a folder");
        }
        let all = ["[d]/logs", "a/logs", "b/logs"].map(below);
        assert_eq!(matching(&below("*/logs")), all);
        assert_eq!(matching(&below("[ab]/logs")), all[1..]);
        assert_eq!(matching(&below("x*/logs")), [""; 0].map(below));
        // What is there is meant itself; what is no pattern may come.
        assert_eq!(matching(&below("[d]/logs")), all[..1]);
        assert_eq!(matching(&below("later")), [below("later")]);
        let file = below("gone/logs/x/events.jsonl");
        assert_eq!(matched_by(&below("*/logs"), &file), Some(below("gone/logs")));
        assert_eq!(matched_by(&below("*"), &file), Some(below("gone")));
        assert_eq!(matched_by(&below("*/other"), &file), None);
        assert_eq!(matched_by(&below("gone"), &file), None);
        assert!(wrong_pattern(&below("[a/logs")).is_some());
        assert!(wrong_pattern(&below("*/logs")).is_none());
    }
}
