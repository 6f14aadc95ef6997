//! From roots to a filled engine: finds, recognizes and reads every source once, to its end.
//!
//! Not for: following files that grow (the daemon does, with the same parts) or for showing anything. A file that cannot
//! be read is a [`Problem`], a line that cannot be read a gap with its place; neither stops the rest.

pub mod choose;
mod copies;
mod index;
mod list;
mod places;
mod progress;
mod read;
pub mod settings;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use retryscope_analysis::{AsOf, Engine, Run, SourceState};
use retryscope_record::{GapKind, Place, RunKey, SourceId, View};
use retryscope_tail::WalkProblem;

use read::{Outcome, Said};

pub use list::{Listing, Remember};
pub use places::{Environment, Matched, default_roots, matched_by, matching, may_enter, wrong_pattern};
pub use progress::progress;
pub use read::{feed, recognize_at, tell_document, whole_document};

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

/// What stands below some roots.
struct Found {
    /// Files that may hold records, numbered in the order of the roots and paths.
    logs: Vec<(SourceId, retryscope_tail::Found)>,
    settings: settings::Settled,
    problems: Vec<Problem>,
}

fn search(roots: &[PathBuf]) -> Found {
    let (found, problems) = retryscope_tail::walk_all(roots, &places::may_enter);
    let problem = |p: WalkProblem| Problem { message: p.source.to_string(), path: p.path };
    let problems = problems.into_iter().map(problem).collect();
    let mut all = Found { logs: Vec::new(), settings: settings::Settled::default(), problems };
    for file in found {
        if let Some(agent) = settings::agent_of(&file.path) {
            all.settings.read(agent, &file.path);
        } else if read::is_candidate(&file) {
            all.settings.look_beside(&file.path);
            let id = SourceId(u32::try_from(all.logs.len()).unwrap_or(u32::MAX));
            all.logs.push((id, file));
        }
    }
    all
}

/// Returns those of the sources that repeat what another one says of the same run.
fn copies_in(
    sources: &BTreeMap<SourceId, Option<Box<Said>>>,
    files: &[(SourceId, retryscope_tail::Found)],
) -> BTreeSet<SourceId> {
    let mut speaking: BTreeMap<&RunKey, Vec<SourceId>> = BTreeMap::new();
    for said in sources.values().flatten() {
        said.engine.keys().for_each(|run| speaking.entry(run).or_default().push(said.id));
    }
    let several: BTreeSet<SourceId> = speaking.into_values().filter(|ids| ids.len() > 1).flatten().collect();
    copies::among(several.into_iter().filter_map(|id| {
        let index = files.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some((id, &files[index].1))
    }))
}

impl Scan {
    /// Reads everything below the roots.
    pub fn of_roots(roots: &[PathBuf]) -> Self {
        let Found { logs, settings, problems } = search(roots);
        let mut scan = Scan { problems, settings, ..Scan::default() };
        scan.read(&logs);
        scan
    }

    /// Reads these files.
    fn read(&mut self, files: &[(SourceId, retryscope_tail::Found)]) {
        self.found = files.last().map_or(0, |(id, _)| id.0.saturating_add(1));
        let mut in_order = BTreeMap::new();
        spread::over_cores(
            files,
            |(_, file)| file.metadata.len(),
            |(id, file), buffer| read::file(file, *id, buffer),
            |outcome| match outcome {
                Outcome::Said(said) if Engine::is_continued(said.source.view) => {
                    in_order.insert(said.id, Some(said));
                }
                Outcome::InOrder(id) => {
                    in_order.insert(id, None);
                }
                outcome => self.take(outcome),
            },
        );
        self.take_in_order(in_order, files);
        self.gaps.sort_by_key(|gap| gap.source);
        self.problems.sort_by(|a, b| a.path.cmp(&b.path));
        self.settings.assign(&self.sources, &mut self.states);
    }

    /// Reads a stream, for example standard input; `name` stands for its path.
    pub fn add_stream(&mut self, name: &str, input: impl std::io::Read) {
        self.take(read::stream(Path::new(name), SourceId(self.found), input));
        self.found = self.found.saturating_add(1);
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
    fn take_in_order(
        &mut self,
        sources: BTreeMap<SourceId, Option<Box<Said>>>,
        files: &[(SourceId, retryscope_tail::Found)],
    ) {
        let copies = copies_in(&sources, files);
        let mut buffer = Vec::new();
        for (id, said) in sources {
            if copies.contains(&id) {
                if let Some(said) = said {
                    self.take(Outcome::Said(Box::new(said.of_a_copy())));
                }
                continue;
            }
            let is_new =
                |said: &Said| !said.engine.keys().any(|run| self.engine.is_begun(run, said.source.view));
            let outcome = if let Some(said) = said.filter(|said| is_new(said)) {
                Outcome::Said(said)
            } else {
                let Ok(index) = files.binary_search_by_key(&id, |(id, _)| *id) else { continue };
                read::file_in_order(&files[index].1, id, &mut buffer, &mut self.engine)
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
