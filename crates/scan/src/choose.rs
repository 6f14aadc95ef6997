//! Which run is meant by what a person or a client types, and which runs another one started.
//!
//! Commands and the daemon choose through the same code, so that a name means the same run everywhere. Not for: words (who
//! asks knows to whom it speaks).

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use retryscope_analysis::{Run, RunLine};
use retryscope_record::RunKey;

/// What a run is chosen by.
pub trait Choice {
    /// Agent and native id.
    fn key(&self) -> &RunKey;
    /// Last event time.
    fn ended_at(&self) -> Option<DateTime<Utc>>;
    /// Whether another run started it.
    fn has_parent(&self) -> bool;
}

impl Choice for Run {
    fn key(&self) -> &RunKey {
        &self.key
    }
    fn ended_at(&self) -> Option<DateTime<Utc>> {
        self.ended_at
    }
    fn has_parent(&self) -> bool {
        self.facts.parent_run_id.is_some()
    }
}

impl Choice for RunLine {
    fn key(&self) -> &RunKey {
        &self.key
    }
    fn ended_at(&self) -> Option<DateTime<Utc>> {
        self.ended_at
    }
    fn has_parent(&self) -> bool {
        self.parent_run_id.is_some()
    }
}

/// Why a name chooses no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unchosen {
    /// It fits none.
    None {
        /// The id that is nearly written so.
        nearest: Option<String>,
    },
    /// It fits several.
    Several(Vec<RunKey>),
}

/// Returns the run that ended last.
pub fn newest<T: Choice>(all: &[T], wanted: impl Fn(&T) -> bool) -> Option<&T> {
    let order = |a: &&T, b: &&T| (a.ended_at(), a.key()).cmp(&(b.ended_at(), b.key()));
    all.iter().filter(|run| wanted(run)).max_by(order)
}

/// Returns the run with this id, `agent:id`, or beginning of an id.
pub fn by_id<'a, T: Choice>(wanted: &str, all: &'a [T]) -> Result<&'a T, Unchosen> {
    let of_agent = |key: &RunKey| {
        let id = wanted.strip_prefix(&*key.agent).and_then(|rest| rest.strip_prefix(':'));
        id.is_some_and(|id| *key.id == *id)
    };
    let is_exact = |run: &&T| *run.key().id == *wanted || of_agent(run.key());
    let exact: Vec<&T> = all.iter().filter(is_exact).collect();
    if let [one] = exact.as_slice() {
        return Ok(one);
    }
    let beginning: Vec<&T> = all.iter().filter(|run| run.key().id.starts_with(wanted)).collect();
    let matching = if exact.is_empty() { beginning } else { exact };
    match matching.as_slice() {
        [one] => Ok(one),
        // A run and its subagents share their beginning; the run itself is meant.
        several if several.iter().filter(|run| !run.has_parent()).count() == 1 => {
            Ok(several.iter().find(|run| !run.has_parent()).unwrap_or(&several[0]))
        }
        [] => {
            let nearest = all.iter().map(|run| (distance(wanted, &run.key().id), run));
            let nearest = nearest
                .min_by_key(|(distance, _)| *distance)
                .filter(|(distance, _)| *distance <= wanted.len() / 3 + 1)
                .map(|(_, run)| run.key().id.to_string());
            Err(Unchosen::None { nearest })
        }
        several => Err(Unchosen::Several(several.iter().map(|run| run.key().clone()).collect())),
    }
}

/// Returns how many letters differ between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(64).enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = before + usize::from(ca != *cb);
            before = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

/// Runs by agent and by the one that started them.
#[derive(Debug)]
pub struct Children<'a>(HashMap<&'a str, HashMap<&'a str, Vec<&'a Run>>>);

impl<'a> Children<'a> {
    /// Looks through all runs once.
    pub fn among(all: &'a [Run]) -> Self {
        let mut by_agent: HashMap<&str, HashMap<_, Vec<_>>> = HashMap::new();
        for run in all {
            if let Some(parent) = run.facts.parent_run_id.as_deref() {
                by_agent.entry(&run.key.agent).or_default().entry(parent).or_default().push(run);
            }
        }
        Self(by_agent)
    }

    /// Returns the runs that name this one as their parent.
    pub fn of(&self, run: &Run) -> &[&'a Run] {
        let of_agent = self.0.get(&*run.key.agent);
        of_agent.and_then(|of| of.get(&*run.key.id)).map_or(&[], Vec::as_slice)
    }
}
