//! Lists the runs below the roots, one line each, without keeping what the logs say of them.
//!
//! Each file is read by itself and forgotten but for the lines of its runs, so that memory does not grow with what is
//! read. A run of which several files speak is put together from all of these; nothing else is read twice. What was
//! listed before is taken from the index, where its files are still what they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use retryscope_analysis::{AsOf, Engine, RunLine};
use retryscope_record::{GapKind, Place, RunKey, SourceId};
use retryscope_tail::Found;
use serde::{Deserialize, Serialize};

use crate::index::{Entry, Index, Joined, Stamp};
use crate::read::{self, Outcome};
use crate::settings::Settled;
use crate::{Problem, Scan, SourceGap, copies, search, spread};

/// The runs below the roots.
#[derive(Debug, Default)]
pub struct Listing {
    /// Runs, by agent and id.
    pub lines: Vec<RunLine>,
    /// Lines and records that could not be read.
    pub gaps: Vec<SourceGap>,
    /// Files and folders that could not be read.
    pub problems: Vec<Problem>,
    files: Vec<(SourceId, Found)>,
    settings: Settled,
    /// Files that speak of each run, by place in `files`.
    speaking: BTreeMap<RunKey, Vec<usize>>,
}

/// Where listings are remembered.
#[derive(Debug, Clone, Copy)]
pub struct Remember<'a> {
    /// The folder; made where it is missing.
    pub folder: &'a Path,
    /// The system's time at the start: files touched just before it are read again the next time.
    pub begun: SystemTime,
}

/// What one file says, by itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fact {
    /// Its runs, as if it were the only file that speaks of them.
    pub(crate) lines: Vec<RunLine>,
    pub(crate) gaps: Vec<(Place, GapKind)>,
}

/// A file's fact; `None` with a problem if it could not be read to its end.
type Told = (usize, Fact, Option<Problem>);

impl Listing {
    /// Lists everything below the roots; without an index every file is read.
    pub fn of_roots(roots: &[PathBuf], now: DateTime<Utc>, index: Option<&Remember<'_>>) -> Self {
        let begun = index.map_or(SystemTime::UNIX_EPOCH, |index| index.begun);
        // The folders are looked at while what is remembered of them is read.
        let (mut index, found) = std::thread::scope(|scope| {
            let opened = index.map(|index| scope.spawn(|| Index::open(index.folder, roots)));
            let found = search(roots);
            (opened.and_then(|opened| opened.join().ok().flatten()), found)
        });
        let mut listing =
            Self { problems: found.problems, files: found.logs, settings: found.settings, ..Self::default() };
        let settings = listing.settings.checksum();
        let known = index.as_mut().map(|index| index.take(settings)).unwrap_or_default();
        let stamps: Vec<Option<Stamp>> = match index {
            Some(_) => listing.files.iter().map(|(_, file)| Stamp::of(file)).collect(),
            None => Vec::new(),
        };
        let mut facts: Vec<Option<Fact>> = vec![None; listing.files.len()];
        let mut changed: Vec<usize> = Vec::new();
        let mut entries = known.entries;
        for (place, (_, file)) in listing.files.iter().enumerate() {
            let entry = file.path.to_str().and_then(|path| entries.remove(path));
            let still = entry.filter(|entry| {
                stamps.get(place).is_some_and(|stamp| stamp.as_ref() == Some(&entry.stamp))
                    && entry.fact.lines.iter().all(|line| line.holds_at(now))
            });
            match still {
                Some(entry) => facts[place] = Some(entry.fact),
                None => changed.push(place),
            }
        }
        let is_changed = !changed.is_empty() || !entries.is_empty();
        let failed = listing.read(&changed, &mut facts, now);
        let facts: Vec<Fact> = facts.into_iter().map(Option::unwrap_or_default).collect();
        let fresh: BTreeSet<usize> = changed.into_iter().collect();
        let joined = listing.join(&facts, &fresh, known.joined, now);
        if let Some(index) = index.filter(|_| is_changed) {
            let entries = listing.files.iter().zip(stamps).zip(&facts).enumerate();
            let entries = entries.filter(|(place, _)| !failed.contains(place)).filter_map(
                |(_, (((_, file), stamp), fact))| {
                    let stamp = stamp.filter(|stamp| stamp.is_settled(begun))?;
                    Some((&*file.path, Entry { stamp, fact: fact.clone() }))
                },
            );
            index.save(entries, &joined);
        }
        listing.collect(facts, joined);
        listing
    }

    /// Reads what speaks of some runs, and of the runs that these started: all of it, and nothing else.
    pub fn scan(&self, wanted: &[&RunKey]) -> Scan {
        let is_wanted = |line: &&RunLine| {
            let is_child_of = |run: &&RunKey| {
                run.agent == line.key.agent && line.parent_run_id.as_deref() == Some(&*run.id)
            };
            wanted.iter().any(|run| **run == line.key || is_child_of(run))
        };
        let runs = self.lines.iter().filter(is_wanted).map(|line| &line.key);
        let places: BTreeSet<usize> =
            runs.filter_map(|run| self.speaking.get(run)).flatten().copied().collect();
        let files: Vec<_> = places.into_iter().filter_map(|place| self.files.get(place).cloned()).collect();
        let mut scan = Scan { settings: self.settings.clone(), ..Scan::default() };
        scan.read(&files);
        // What could not be read anywhere may have been a part of these runs.
        scan.gaps.clone_from(&self.gaps);
        scan.problems.clone_from(&self.problems);
        scan
    }

    /// Returns the path of a source.
    pub fn path(&self, id: SourceId) -> &Path {
        let place = self.files.binary_search_by_key(&id, |(id, _)| *id);
        place.map_or(Path::new(""), |place| &self.files[place].1.path)
    }

    /// Returns whether something could not be read.
    pub fn is_incomplete(&self) -> bool {
        !self.gaps.is_empty() || !self.problems.is_empty()
    }

    /// Reads files, each by itself. Returns those that could not be read to their end.
    fn read(&mut self, places: &[usize], facts: &mut [Option<Fact>], now: DateTime<Utc>) -> BTreeSet<usize> {
        let mut failed = BTreeSet::new();
        let (files, settings) = (&self.files, &self.settings);
        let mut problems = Vec::new();
        spread::over_cores(
            places,
            |place| files[*place].1.metadata.len(),
            |place, buffer| alone(*place, &files[*place], settings, now, buffer),
            |(place, fact, problem): Told| {
                facts[place] = Some(fact);
                if let Some(problem) = problem {
                    failed.insert(place);
                    problems.push(problem);
                }
            },
        );
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        self.problems.extend(problems);
        failed
    }

    /// Puts the runs together of which several files speak.
    fn join(
        &mut self,
        facts: &[Fact],
        fresh: &BTreeSet<usize>,
        mut known: BTreeMap<RunKey, Joined>,
        now: DateTime<Utc>,
    ) -> BTreeMap<RunKey, Joined> {
        for (place, fact) in facts.iter().enumerate() {
            for line in &fact.lines {
                self.speaking.entry(line.key.clone()).or_default().push(place);
            }
        }
        let mut joined = BTreeMap::new();
        let mut open: Vec<&RunKey> = Vec::new();
        for (run, places) in self.speaking.iter().filter(|(_, places)| places.len() > 1) {
            let paths = || places.iter().map(|place| &*self.files[*place].1.path);
            let still = known.remove(run).filter(|joined| {
                places.iter().all(|place| !fresh.contains(place))
                    && joined.line.holds_at(now)
                    && joined.files.iter().map(PathBuf::as_path).eq(paths())
            });
            match still {
                Some(same) => {
                    joined.insert(run.clone(), same);
                }
                None => open.push(run),
            }
        }
        let groups = connected(&open, &self.speaking);
        let (files, settings) = (&self.files, &self.settings);
        spread::over_cores(
            &groups,
            |group| group.files.iter().map(|place| files[*place].1.metadata.len()).sum(),
            |group, buffer| together(group, files, settings, now, buffer),
            |lines| {
                for line in lines {
                    let places = self.speaking.get(&line.key).map(Vec::as_slice).unwrap_or_default();
                    let files = places.iter().map(|place| self.files[*place].1.path.clone()).collect();
                    joined.insert(line.key.clone(), Joined { line, files });
                }
            },
        );
        joined
    }

    fn collect(&mut self, facts: Vec<Fact>, mut joined: BTreeMap<RunKey, Joined>) {
        for ((id, _), fact) in self.files.iter().zip(facts) {
            self.gaps.extend(fact.gaps.into_iter().map(|(place, kind)| SourceGap {
                source: *id,
                place,
                kind,
            }));
            for line in fact.lines {
                // Of a run that several files speak of, only the line over all of them is true.
                let line = match self.speaking.get(&line.key) {
                    Some(places) if places.len() > 1 => joined.remove(&line.key).map(|joined| joined.line),
                    _ => Some(line),
                };
                self.lines.extend(line);
            }
        }
        self.lines.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    }
}

/// Files that speak of common runs.
struct Group<'a> {
    files: BTreeSet<usize>,
    runs: Vec<&'a RunKey>,
}

/// Puts runs that share files into one group, so that each of these files is read once.
fn connected<'a>(runs: &[&'a RunKey], speaking: &BTreeMap<RunKey, Vec<usize>>) -> Vec<Group<'a>> {
    let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
    let mut groups: Vec<Option<Group<'a>>> = Vec::new();
    for run in runs {
        let mut group = Group { files: BTreeSet::new(), runs: vec![*run] };
        for place in speaking.get(*run).into_iter().flatten() {
            group.files.insert(*place);
            if let Some(other) = group_of.get(place).and_then(|at| groups[*at].take()) {
                // The smaller one moves.
                let (mut large, small) =
                    if other.files.len() > group.files.len() { (other, group) } else { (group, other) };
                large.files.extend(small.files);
                large.runs.extend(small.runs);
                group = large;
            }
        }
        for place in &group.files {
            group_of.insert(*place, groups.len());
        }
        groups.push(Some(group));
    }
    groups.into_iter().flatten().collect()
}

/// Reads one file by itself.
fn alone(
    place: usize,
    (id, found): &(SourceId, Found),
    settings: &Settled,
    now: DateTime<Utc>,
    buffer: &mut Vec<u8>,
) -> Told {
    // It has no files before it here: what it continues is put together later.
    match read::file_in_order(found, *id, buffer, &mut Engine::new()) {
        Outcome::Said(said) => {
            let mut state = said.state;
            state.settings = settings.of(said.source.agent, &found.path);
            let sources = BTreeMap::from([(*id, state)]);
            let mut lines = Vec::new();
            said.engine.each_run(&AsOf { now, sources: &sources }, |run| lines.push(RunLine::of(&run)));
            let gaps = said.gaps.into_iter().map(|gap| (gap.place, gap.kind)).collect();
            (place, Fact { lines, gaps }, said.problem)
        }
        Outcome::InOrder(_) | Outcome::NotOurs => (place, Fact::default(), None),
        Outcome::Failed(problem) => (place, Fact::default(), Some(problem)),
    }
}

/// Reads the files of a group one after the other, and returns the lines of its runs.
fn together(
    group: &Group<'_>,
    files: &[(SourceId, Found)],
    settings: &Settled,
    now: DateTime<Utc>,
    buffer: &mut Vec<u8>,
) -> Vec<RunLine> {
    let mut engine = Engine::new();
    let mut sources = BTreeMap::new();
    let all = || group.files.iter().map(|place| &files[*place]);
    let copies = copies::among(all().map(|(id, found)| (*id, found)));
    for (id, found) in all().filter(|(id, _)| !copies.contains(id)) {
        // That a file cannot be read was said when it was read by itself.
        if let Outcome::Said(said) = read::file_in_order(found, *id, buffer, &mut engine) {
            engine = said.engine;
            let mut state = said.state;
            state.settings = settings.of(said.source.agent, &found.path);
            sources.insert(*id, state);
        }
    }
    let as_of = AsOf { now, sources: &sources };
    group.runs.iter().filter_map(|run| engine.run(run, &as_of)).map(|run| RunLine::of(&run)).collect()
}
