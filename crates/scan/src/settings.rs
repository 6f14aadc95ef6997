//! Retry settings in the agents' own configuration files: found by place, read for nothing else.
//!
//! A file speaks for the runs whose logs lie in the same home.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use retryscope_analysis::{Settings, SourceState};
use retryscope_policy::settings::{MAX_FILE_BYTES, read};
use retryscope_record::SourceId;

use crate::Source;

/// Ends of the paths of configuration files, with their agent; how many parts of the path lie below the home.
const FILES: &[(&str, &str)] = &[
    ("codex", ".codex/config.toml"),
    ("claude-code", ".claude/settings.json"),
    ("claude-code", ".claude/settings.local.json"),
    ("opencode", ".config/opencode/opencode.json"),
    ("opencode", ".config/opencode/opencode.jsonc"),
    ("opencode", ".config/opencode/config.json"),
    ("pi", ".pi/agent/settings.json"),
    ("omp", ".omp/agent/config.yml"),
    ("omp", ".omp/agent/config.yaml"),
];

/// Returns the agent whose configuration a file is.
pub(crate) fn agent_of(path: &Path) -> Option<&'static str> {
    FILES.iter().find(|(_, end)| path.ends_with(end)).map(|(agent, _)| *agent)
}

/// Settings by agent and home.
#[derive(Debug, Default)]
pub(crate) struct Found {
    by_home: Vec<(&'static str, PathBuf, Arc<Settings>)>,
}

impl Found {
    /// Reads one file. A file that cannot be read gives no settings: the defaults are then said to be in force.
    pub(crate) fn read(&mut self, agent: &'static str, path: &Path) {
        let parts = FILES
            .iter()
            .find(|(_, end)| path.ends_with(end))
            .map_or(1, |(_, end)| Path::new(end).components().count());
        let Some(home) = path.ancestors().nth(parts) else { return };
        let small = fs::metadata(path).is_ok_and(|m| m.len() <= MAX_FILE_BYTES as u64);
        let Some(text) = small.then(|| fs::read(path).ok()).flatten() else { return };
        let text = String::from_utf8_lossy(&text);
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut entries = self.of(agent, home).map(|s| s.entries().to_vec()).unwrap_or_default();
        entries.extend(read(agent, &name, &text));
        self.by_home.retain(|(a, h, _)| !(*a == agent && h == home));
        self.by_home.push((agent, home.to_path_buf(), Arc::new(Settings::new(entries))));
    }

    /// Gives each source the settings of its agent and home.
    pub(crate) fn assign(
        &self,
        sources: &BTreeMap<SourceId, Source>,
        states: &mut BTreeMap<SourceId, SourceState>,
    ) {
        for (id, source) in sources {
            let beside = self.by_home.iter().filter(|(agent, home, _)| {
                source.agent.is_none_or(|of| of == *agent) && source.path.starts_with(home)
            });
            // Homes may lie inside each other; the innermost is meant.
            if let Some((_, _, settings)) = beside.max_by_key(|(_, home, _)| home.components().count()) {
                states.entry(*id).or_default().settings = Some(settings.clone());
            }
        }
    }

    fn of(&self, agent: &str, home: &Path) -> Option<&Settings> {
        self.by_home
            .iter()
            .find(|(a, h, _)| *a == agent && h == home)
            .map(|(_, _, settings)| settings.as_ref())
    }
}
