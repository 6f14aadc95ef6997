//! What every reading command starts from: roots, now, and the scan.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use retryscope_analysis::{Run, RunLine};
use retryscope_record::{RunKey, SourceId};
use retryscope_scan::{
    Environment, Listing, Problem, Remember, Scan, SourceGap, default_roots, matching, wrong_pattern,
};

use crate::args::Reading;
use crate::exit::{Exit, hinted};
use crate::progress::Progress;

/// What was looked at.
#[derive(Debug, Clone)]
pub(crate) enum Looked {
    /// The agents' usual places, those that are there.
    Usual(Vec<PathBuf>),
    /// Folders and files that were named as roots.
    Roots(Vec<PathBuf>),
    /// One path that was named instead of a run.
    Path(PathBuf),
    /// Standard input.
    Stdin,
}

impl Looked {
    /// Looks at the roots that were given, or at the agents' usual places. Also returns what could not be looked into.
    fn of(reading: &Reading) -> anyhow::Result<(Self, Vec<Problem>)> {
        let environment = Environment::here();
        let mut named = environment.named_roots(&reading.root);
        if named.is_empty() {
            match configured(&environment)? {
                Some(roots) => named = roots,
                None => return Ok((Self::Usual(default_roots(&environment)), Vec::new())),
            }
        }
        let (mut roots, mut problems) = (Vec::new(), Vec::new());
        for root in &named {
            if let Some(wrong) = wrong_pattern(root) {
                return Err(hinted(format!("{}: {wrong}", root.display()), []));
            }
            let matched = matching(root);
            // What cannot be looked at may be there: the reading says so.
            let is_there = |root: &PathBuf| root.try_exists().unwrap_or(true);
            if !matched.found.iter().any(is_there) && matched.problems.is_empty() {
                return Err(hinted(format!("{} does not exist", root.display()), []));
            }
            roots.extend(matched.found);
            problems.extend(matched.problems);
        }
        Ok((Self::Roots(roots), problems))
    }

    /// Returns the folders and files.
    pub(crate) fn roots(&self) -> &[PathBuf] {
        match self {
            Looked::Usual(roots) | Looked::Roots(roots) => roots,
            Looked::Path(path) => std::slice::from_ref(path),
            Looked::Stdin => &[],
        }
    }

    /// Returns an error that says that no run was found there, and what may help.
    fn nothing_found(&self) -> anyhow::Error {
        let named = |roots: &[PathBuf]| {
            roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        let other = "name a folder or file with logs: retryscope --root DIR".to_owned();
        let again = |roots: &[PathBuf]| {
            let roots: Vec<String> = roots.iter().map(|root| format!(" --root {}", root.display())).collect();
            format!("retryscope sources{} shows which files were looked at", roots.concat())
        };
        match self {
            Looked::Usual(roots) if roots.is_empty() => {
                hinted("none of the known agents has logs in its usual place here", [other])
            }
            Looked::Usual(roots) => {
                hinted(format!("no run was found below {}", named(roots)), [other, again(&[])])
            }
            Looked::Roots(roots) => {
                hinted(format!("no run was found below {}", named(roots)), [again(roots)])
            }
            Looked::Path(path) => {
                let path = std::slice::from_ref(path);
                hinted(format!("no run was found in {}", named(path)), [again(path)])
            }
            Looked::Stdin => hinted(
                "no run was found in standard input",
                ["pipe in the log of an agent, or name its file: retryscope replay FILE".to_owned()],
            ),
        }
    }
}

/// Returns the roots of the configuration file, which is the daemon's too.
#[cfg(unix)]
fn configured(environment: &Environment) -> anyhow::Result<Option<Vec<PathBuf>>> {
    match environment.config_file() {
        Some(file) => retryscope_daemon::config::roots_in(&file, environment),
        None => Ok(None),
    }
}

/// There is no daemon here to configure.
#[cfg(not(unix))]
fn configured(_: &Environment) -> anyhow::Result<Option<Vec<PathBuf>>> {
    Ok(None)
}

/// A finished reading.
pub(crate) struct Reader {
    pub(crate) scan: Scan,
    pub(crate) now: DateTime<Utc>,
    pub(crate) looked: Looked,
}

impl Reader {
    /// Reads the roots that were given, or the agents' usual places.
    pub(crate) fn open(reading: &Reading) -> anyhow::Result<Self> {
        let (looked, problems) = Looked::of(reading)?;
        let mut reader = Self::of(reading, looked)?;
        reader.scan.problems.extend(problems);
        Ok(reader)
    }

    /// Reads one path only.
    pub(crate) fn open_path(reading: &Reading, path: PathBuf) -> anyhow::Result<Self> {
        Self::of(reading, Looked::Path(path))
    }

    fn of(reading: &Reading, looked: Looked) -> anyhow::Result<Self> {
        let now = now(reading)?;
        let progress = Progress::start();
        let scan = Scan::of_roots(looked.roots());
        drop(progress);
        Ok(Self { scan, now, looked })
    }

    /// Reads standard input.
    pub(crate) fn open_stdin(reading: &Reading) -> anyhow::Result<Self> {
        let now = now(reading)?;
        let mut scan = Scan::default();
        scan.add_stream("stdin", std::io::stdin().lock());
        Ok(Self { scan, now, looked: Looked::Stdin })
    }

    /// Returns all runs.
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.scan.runs(self.now)
    }

    /// Returns the exit code of an answer: 3 if something could not be read.
    pub(crate) fn exit(&self) -> Exit {
        if self.scan.is_incomplete() { Exit::Incomplete } else { Exit::Ok }
    }

    /// Says on standard error what could not be read.
    pub(crate) fn complain(&self) {
        complain(&self.scan.problems, &self.scan.gaps, &|id| self.scan.path(id));
    }

    /// Returns an error that says where was looked, for a command that found no run at all.
    pub(crate) fn nothing_found(&self) -> anyhow::Error {
        self.looked.nothing_found()
    }
}

/// A finished listing: each run in one line, taken from the index where nothing has changed.
pub(crate) struct Listed {
    listing: Listing,
    pub(crate) now: DateTime<Utc>,
    looked: Looked,
}

impl Listed {
    /// Lists the roots that were given, or the agents' usual places.
    pub(crate) fn open(reading: &Reading) -> anyhow::Result<Self> {
        let now = now(reading)?;
        let (looked, problems) = Looked::of(reading)?;
        let begun = SystemTime::now();
        let folder = if reading.no_cache { None } else { cache() };
        let index = folder.as_deref().map(|folder| Remember { folder, begun });
        let progress = Progress::start();
        let mut listing = Listing::of_roots(looked.roots(), now, index.as_ref());
        listing.problems.extend(problems);
        drop(progress);
        Ok(Self { listing, now, looked })
    }

    /// Returns the runs.
    pub(crate) fn lines(&self) -> &[RunLine] {
        &self.listing.lines
    }

    /// Reads what speaks of one run, and of the runs that it started.
    pub(crate) fn read(&self, run: &RunKey) -> Reader {
        Reader { scan: self.listing.scan(&[run]), now: self.now, looked: self.looked.clone() }
    }

    /// Returns the exit code of an answer: 3 if something could not be read.
    pub(crate) fn exit(&self) -> Exit {
        if self.listing.is_incomplete() { Exit::Incomplete } else { Exit::Ok }
    }

    /// Says on standard error what could not be read.
    pub(crate) fn complain(&self) {
        complain(&self.listing.problems, &self.listing.gaps, &|id| self.listing.path(id));
    }

    /// Returns an error that says where was looked, for a command that found no run at all.
    pub(crate) fn nothing_found(&self) -> anyhow::Error {
        self.looked.nothing_found()
    }
}

/// Returns the folder for what may be deleted at any time.
fn cache() -> Option<PathBuf> {
    let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(set.or_else(|| Some(std::env::home_dir()?.join(".cache")))?.join("retryscope"))
}

/// Says on standard error what could not be read, at most ten lines of it.
fn complain<'a>(problems: &[Problem], gaps: &[SourceGap], path_of: &dyn Fn(SourceId) -> &'a Path) {
    use std::io::Write as _;
    let mut stderr = std::io::stderr().lock();
    let of_problem = |p: &Problem| format!("cannot read {}: {}", p.path.display(), p.message);
    let of_gap = |gap: &SourceGap| {
        let path = path_of(gap.source).display();
        format!("{path}{}: {}", gap.place, retryscope_report::words::gap(&gap.kind))
    };
    for line in problems.iter().map(of_problem).chain(gaps.iter().map(of_gap)).take(10) {
        drop(writeln!(stderr, "warning: {}", retryscope_report::visible(&line)));
    }
    let all = problems.len() + gaps.len();
    if all > 10 {
        drop(writeln!(stderr, "warning: {} more places could not be read", all - 10));
    }
}

/// Returns the time that counts as now.
pub(crate) fn now(reading: &Reading) -> anyhow::Result<DateTime<Utc>> {
    match &reading.as_of {
        None => Ok(Utc::now()),
        Some(text) => point(text, Utc::now()).with_context(|| format!("--as-of {text}")),
    }
}

/// The runs that are meant by `--since` and `--until`.
pub(crate) struct Window {
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
}

impl Window {
    /// Reads both ends; an absent one is open.
    pub(crate) fn of(since: Option<&str>, until: Option<&str>, now: DateTime<Utc>) -> anyhow::Result<Self> {
        let end = |text: Option<&str>| text.map(|text| point(text, now)).transpose();
        Ok(Self { since: end(since)?, until: end(until)? })
    }

    /// Whether a run reaches into it. A run without times does only if both ends are open.
    pub(crate) fn holds(&self, run: &Run) -> bool {
        self.meets(run.started_at, run.ended_at)
    }

    /// Whether a span of time reaches into it.
    pub(crate) fn meets(&self, from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> bool {
        self.since.is_none_or(|since| to.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| from.is_some_and(|at| at < until))
    }
}

/// Reads a point in time: RFC 3339, a date, or a span back from now (`90m`, `12h`, `7d`).
pub(crate) fn point(text: &str, now: DateTime<Utc>) -> anyhow::Result<DateTime<Utc>> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.with_timezone(&Utc));
    }
    if let Ok(date) = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d")
        && let Some(midnight) = date.and_hms_opt(0, 0, 0)
    {
        return Ok(midnight.and_utc());
    }
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => 0,
    };
    match number.parse::<i64>() {
        Ok(n) if seconds > 0 => {
            Ok(now - chrono::TimeDelta::seconds(n.saturating_mul(seconds).min(10_000_000_000)))
        }
        _ => Err(hinted(
            format!("`{text}` is no point in time"),
            ["use RFC 3339 (2026-11-29T20:00:00Z), a date (2026-11-29) or a span back (90m, 12h, 7d)"
                .to_owned()],
        )),
    }
}
