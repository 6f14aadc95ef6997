//! Retry settings in the agents' own configuration files: found by place, read for nothing else.
//!
//! A file speaks for the runs whose logs lie in the same home. It is looked for below the roots, and in the folder that the
//! agent keeps its logs in, which may lie above the root and have any name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use retryscope_analysis::{Settings, SourceState};
use retryscope_policy::SettingInForce;
use retryscope_policy::settings::{MAX_FILE_BYTES, read};
use retryscope_record::SourceId;

use crate::Source;
use crate::index::checksum;

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

/// Folders in which agents keep their logs, and the configuration files that stand beside them.
const BESIDE: &[(&str, &str, &[&str])] = &[
    ("codex", "sessions", &["config.toml"]),
    ("codex", "archived_sessions", &["config.toml"]),
    ("claude-code", "projects", &["settings.json", "settings.local.json"]),
    ("pi", "sessions", &["settings.json"]),
    ("omp", "sessions", &["config.yml", "config.yaml"]),
];

/// The configuration of opencode stands apart from its logs: end of the folder of these, and of those.
const APART: (&str, &str, &[&str]) =
    (".local/share/opencode", ".config/opencode", &["opencode.json", "opencode.jsonc", "config.json"]);

/// Returns the agent whose configuration a file is.
pub fn agent_of(path: &Path) -> Option<&'static str> {
    // Asked of every file: most are told apart by their ending, which costs less than a look at the path.
    let ending = path.extension()?;
    if !["toml", "json", "jsonc", "yml", "yaml"].iter().any(|known| ending == *known) {
        return None;
    }
    FILES.iter().find(|(_, end)| path.ends_with(end)).map(|(agent, _)| *agent)
}

/// What was read, by agent and home.
#[derive(Debug, Clone, Default)]
pub struct Settled {
    homes: Vec<Home>,
    /// Folders of logs whose configuration was looked for, and where each is: a path may begin in the middle of it, or lead
    /// over a link.
    looked: BTreeMap<PathBuf, [PathBuf; 2]>,
}

#[derive(Debug, Clone)]
struct Home {
    agent: &'static str,
    folder: PathBuf,
    /// Settings by file; a later file wins.
    files: BTreeMap<PathBuf, Vec<SettingInForce>>,
    settings: Arc<Settings>,
}

impl Settled {
    /// Reads one file, again if it was read before. A file that cannot be read gives no settings: the defaults are then
    /// said to be in force.
    pub fn read(&mut self, agent: &'static str, path: &Path) {
        let parts = FILES
            .iter()
            .find(|(_, end)| path.ends_with(end))
            .map_or(1, |(_, end)| Path::new(end).components().count());
        if let Some(folder) = path.ancestors().nth(parts) {
            self.read_for(folder, agent, path);
        }
    }

    /// Looks for the configuration that belongs to a log by the folder that the log lies in.
    pub fn look_beside(&mut self, log: &Path) {
        let parent = log.parent().unwrap_or(Path::new(""));
        if self.looked.contains_key(parent) {
            return;
        }
        let named = std::path::absolute(parent).unwrap_or_default();
        let real = fs::canonicalize(&named).unwrap_or_default();
        let is_link = real != named;
        for folder in named.ancestors().chain(real.ancestors().filter(|_| is_link)) {
            let Some(home) = folder.parent() else { continue };
            for (agent, name, files) in BESIDE {
                if folder.file_name().is_some_and(|found| found == *name) {
                    files.iter().for_each(|file| self.read_for(home, agent, &home.join(file)));
                }
            }
            let (logs, settings, files) = APART;
            if folder.ends_with(logs)
                && let Some(home) = folder.ancestors().nth(Path::new(logs).components().count())
            {
                let settings = home.join(settings);
                for file in files {
                    self.read_for(home, "opencode", &settings.join(file));
                }
            }
        }
        self.looked.insert(parent.to_path_buf(), [named, real]);
    }

    fn read_for(&mut self, folder: &Path, agent: &'static str, path: &Path) {
        let small = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= MAX_FILE_BYTES as u64);
        let Some(text) = small.then(|| fs::read(path).ok()).flatten() else { return };
        let text = String::from_utf8_lossy(&text);
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let entries = read(agent, &name, &text);
        let known = self.homes.iter().position(|home| home.agent == agent && home.folder == folder);
        let index = known.unwrap_or_else(|| {
            let files = BTreeMap::new();
            let settings = Arc::new(Settings::new(Vec::new()));
            self.homes.push(Home { agent, folder: folder.to_path_buf(), files, settings });
            self.homes.len() - 1
        });
        let home = &mut self.homes[index];
        home.files.insert(path.to_path_buf(), entries);
        home.settings = Arc::new(Settings::new(home.files.values().flatten().cloned().collect()));
    }

    /// Returns the settings in force for a log: those of its agent in the innermost home that holds it.
    pub fn of(&self, agent: Option<&str>, log: &Path) -> Option<Arc<Settings>> {
        let places = log.parent().and_then(|parent| self.looked.get(parent)).map_or(&[][..], |places| places);
        let is_below =
            |folder: &Path| log.starts_with(folder) || places.iter().any(|p| p.starts_with(folder));
        let of_agent = |home: &&Home| agent.is_none_or(|of| of == home.agent);
        let beside = self.homes.iter().filter(of_agent).filter(|home| is_below(&home.folder));
        beside.max_by_key(|home| home.folder.components().count()).map(|home| home.settings.clone())
    }

    /// Returns a checksum of everything that was read.
    pub(crate) fn checksum(&self) -> u64 {
        let all: Vec<_> = self.homes.iter().map(|home| (home.agent, &home.folder, &home.files)).collect();
        checksum(format!("{all:?}").as_bytes())
    }

    /// Gives each source the settings of its agent and home.
    pub(crate) fn assign(
        &self,
        sources: &BTreeMap<SourceId, Source>,
        states: &mut BTreeMap<SourceId, SourceState>,
    ) {
        for (id, source) in sources {
            if let Some(settings) = self.of(source.agent, &source.path) {
                states.entry(*id).or_default().settings = Some(settings);
            }
        }
    }
}
