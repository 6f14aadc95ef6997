//! Where agents keep their logs, and which folders are never worth entering.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use retryscope_adapters::ADAPTERS;

use crate::Problem;

/// Variable that names folders and files to read, separated as in `PATH`.
const ROOTS: &str = "RETRYSCOPE_ROOTS";

/// The parts of the environment that decide about places. Names and values may be no UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The home directory.
    pub home: Option<PathBuf>,
    /// All environment variables.
    pub variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// Returns the environment of this process.
    pub fn here() -> Self {
        Self { home: std::env::home_dir(), variables: std::env::vars_os().collect() }
    }

    /// Returns a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_os_str())
    }

    /// Returns a path in which `~` stands for the home directory, as in a shell.
    pub fn in_home(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(below), Some(home)) => home.join(below),
            _ => path.to_path_buf(),
        }
    }

    /// Returns the roots that were named: by flags, or else by `RETRYSCOPE_ROOTS`, whose empty parts name nothing.
    pub fn named_roots(&self, flags: &[PathBuf]) -> Vec<PathBuf> {
        if !flags.is_empty() {
            return flags.to_vec();
        }
        let parts = self.get(ROOTS).into_iter().flat_map(std::env::split_paths);
        parts.filter(|part| !part.as_os_str().is_empty()).collect()
    }

    /// Returns the configuration file of the person who is here, if there is one.
    pub fn config_file(&self) -> Option<PathBuf> {
        let set = self.get("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let folder = set.or_else(|| Some(self.home.as_ref()?.join(".config")))?;
        Some(folder.join("retryscope/config.toml")).filter(|file| file.is_file())
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

/// What a root stands for now.
#[derive(Debug, Default)]
pub struct Matched {
    /// Folders and files, in order.
    pub found: Vec<PathBuf>,
    /// Folders that could not be looked into for more.
    pub problems: Vec<Problem>,
}

/// Returns the folders and files that a root stands for: itself, or what is there now of a pattern such as
/// `/home/*/.codex`. A path that is there is no pattern.
pub fn matching(root: &Path) -> Matched {
    let Some(pattern) = pattern(root) else {
        return Matched { found: vec![root.to_path_buf()], problems: Vec::new() };
    };
    let mut matched = Matched::default();
    for entry in glob::glob(pattern).into_iter().flatten() {
        match entry {
            Ok(path) => matched.found.push(path),
            Err(error) => {
                let (path, message) = (error.path().to_path_buf(), error.error().to_string());
                matched.problems.push(Problem { path, message });
            }
        }
    }
    matched
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
        let matching = |root: &Path| super::matching(root).found;
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
    #[test]
    fn roots_are_named_by_flags_or_the_environment() {
        let of = |value: &str| Environment { home: None, variables: vec![(ROOTS.into(), value.into())] };
        let named = |value: &str, flags: &[&str]| {
            let flags: Vec<PathBuf> = flags.iter().map(PathBuf::from).collect();
            of(value).named_roots(&flags)
        };
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(named("", &[]), paths(&[]));
        assert_eq!(named("/a", &[]), paths(&["/a"]));
        assert_eq!(named("/a:", &["/b:c"]), paths(&["/b:c"]));
        #[cfg(unix)]
        assert_eq!(named(":/a::/b c:", &[]), paths(&["/a", "/b c"]));
    }
}
