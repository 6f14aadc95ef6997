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

/// Folders that hold no logs and may be huge.
const SKIPPED: &[&str] =
    &["node_modules", ".git", "target", ".venv", "__pycache__", "packages", "file-history"];

/// Returns whether a folder may hold logs, by its name.
pub fn may_enter(folder: &Path) -> bool {
    folder.file_name().and_then(|name| name.to_str()).is_none_or(|name| !SKIPPED.contains(&name))
}
