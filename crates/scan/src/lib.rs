//! From roots to a filled engine: finds, recognizes and reads every source once, to its end.
//!
//! Not for: following files that grow (the daemon does, with the same parts) or for showing anything. A file that cannot
//! be read is a [`Problem`], a line that cannot be read a gap with its place; neither stops the rest.

mod places;
mod read;
mod spread;
pub mod settings;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use retryscope_analysis::{AsOf, Engine, Run, SourceState};
use retryscope_record::{GapKind, Place, SourceId, View};

use read::{Outcome, Said};
use retryscope_tail::Found;

pub use places::{Environment, default_roots, may_enter};
pub use read::feed;

/// What was read.
#[derive(Debug, Default)]
pub struct Scan {
    engine: Engine,
    /// Sources that an adapter read, by id.
    pub sources: BTreeMap<SourceId, Source>,
    /// Lines and records that could not be read.
    pub gaps: Vec<SourceGap>,
    /// Files and folders that could not be read.
    pub problems: Vec<Problem>,
    states: BTreeMap<SourceId, SourceState>,
    settings: settings::Settled,
    paths: HashSet<PathBuf>,
    /// Sources numbered so far.
    found: u32,
}

/// One source.
#[derive(Debug, Clone)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Whose log it is, where its place or form tells.
    pub agent: Option<&'static str>,
    /// What kind of log it is.
    pub view: View,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it named any run; one that did not is an orphan.
    pub names_run: bool,
}

/// Something in a source that could not be read.
#[derive(Debug, Clone)]
pub struct SourceGap {
    /// The source.
    pub source: SourceId,
    /// Where in it.
    pub place: Place,
    /// What.
    pub kind: GapKind,
}

/// A file or folder that could not be read.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The file or folder.
    pub path: PathBuf,
    /// Why, as the system says it.
    pub message: String,
}

impl Scan {
    /// Reads everything below the roots.
    pub fn of_roots(roots: &[PathBuf]) -> Self {
        let mut scan = Scan::default();
        for root in roots {
            scan.add_root(root);
        }
        scan
    }

    /// Reads what stands below one more root.
    pub fn add_root(&mut self, root: &Path) {
        let (found, problems) = retryscope_tail::walk(root, &places::may_enter);
        self.problems.extend(
            problems.into_iter().map(|p| Problem { path: p.path.clone(), message: p.source.to_string() }),
        );
        let mut logs = Vec::new();
        for file in found {
            if !self.paths.insert(file.path.clone()) {
                continue;
            }
            if let Some(agent) = settings::agent_of(&file.path) {
                self.settings.read(agent, &file.path);
            } else if read::is_candidate(&file) {
                logs.push((self.next_id(), file));
            }
        }
        let mut in_order = BTreeMap::new();
        spread::over_cores(&logs, |outcome| match outcome {
            Outcome::Said(said) if Engine::is_continued(said.source.view) => {
                in_order.insert(said.id, Some(said));
            }
            Outcome::InOrder(id) => {
                in_order.insert(id, None);
            }
            outcome => self.take(outcome),
        });
        self.take_in_order(in_order, &logs);
        self.gaps.sort_by_key(|gap| gap.source);
        self.settings.assign(&self.sources, &mut self.states);
    }

    /// Reads a stream, for example standard input; `name` stands for its path.
    pub fn add_stream(&mut self, name: &str, input: impl std::io::Read) {
        let id = self.next_id();
        self.take(read::stream(Path::new(name), id, input));
    }

    /// Sources are numbered in the order in which they were found.
    fn next_id(&mut self) -> SourceId {
        let id = SourceId(self.found);
        self.found = self.found.saturating_add(1);
        id
    }

    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Said(said) => {
                let Said { id, source, state, engine, gaps, problem } = *said;
                self.engine.absorb(engine);
                self.sources.insert(id, source);
                self.states.insert(id, state);
                self.gaps.extend(gaps);
                self.problems.extend(problem);
            }
            Outcome::InOrder(_) | Outcome::NotOurs => {}
            Outcome::Failed(problem) => self.problems.push(problem),
        }
    }

    /// Takes sources that may continue each other. What one source alone says of a run is taken as it is; a source that
    /// goes on where an earlier one ended is read again, after it.
    fn take_in_order(&mut self, sources: BTreeMap<SourceId, Option<Box<Said>>>, files: &[(SourceId, Found)]) {
        let mut buffer = Vec::new();
        for (id, said) in sources {
            let is_new = |said: &Said| !said.engine.keys().any(|run| self.engine.is_begun(run, said.source.view));
            let outcome = match said.filter(|said| is_new(said)) {
                Some(said) => Outcome::Said(said),
                None => {
                    let Ok(index) = files.binary_search_by_key(&id, |(id, _)| *id) else { continue };
                    read::file_in_order(&files[index].1, id, &mut buffer, &mut self.engine)
                }
            };
            self.take(outcome);
        }
    }

    /// Returns all runs.
    pub fn runs(&self, now: DateTime<Utc>) -> Vec<Run> {
        self.engine.runs(&AsOf { now, sources: &self.states })
    }

    /// Returns the path of a source.
    pub fn path(&self, id: SourceId) -> &Path {
        self.sources.get(&id).map_or(Path::new(""), |source| &source.path)
    }

    /// Returns whether something could not be read.
    pub fn is_incomplete(&self) -> bool {
        !self.gaps.is_empty() || !self.problems.is_empty()
    }
}
