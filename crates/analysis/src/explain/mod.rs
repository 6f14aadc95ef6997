//! From a run to what a person wants to know: what happened, what it cost, who repeated, what to change.
//!
//! Not for: layout (the `report` crate does that) or for counting. Every sentence follows from the run it is given.

mod broken;
mod phrases;
mod remedy;
mod story;

use broken::Broken;
use chrono::{DateTime, Utc};
pub(crate) use phrases::describe;
pub use remedy::Remedy;
pub(crate) use remedy::{better_view, can_help, is_off, layers_at_work, remedies};
use retryscope_events::{AttemptKind, Layer, Source};

use crate::count::Bound;
use crate::rules::Finding;
use crate::run::{LogicalRequest, Run, RunOutcome, Turn};
use crate::words;

/// What is told of one turn of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// One to three sentences a person can act on.
    pub summary: String,
    /// Requests: logical, upstream, amplification.
    pub requests: String,
    /// Retry ratio against the default budget; `None` where nothing was repeated or nothing is visible.
    pub budget: Option<String>,
    /// Where the time went; `None` where nothing waited.
    pub time: Option<String>,
    /// Which layers repeated; `None` where none did.
    pub owner: Option<String>,
    /// What the tool ledger shows of repeated, failed and denied calls.
    pub tools: Vec<String>,
    /// Rules that the run broke.
    pub findings: Vec<Finding>,
    /// What the logs cannot show.
    pub blind_spots: Vec<String>,
    /// What to change, most useful first.
    pub remedies: Vec<Remedy>,
}

/// Explains the turns of one run; what concerns the run as a whole is looked at once.
#[derive(Debug)]
pub struct Explainer<'a> {
    run: &'a Run,
    children: &'a [&'a Run],
    now: DateTime<Utc>,
    broken: Broken<'a>,
}

impl<'a> Explainer<'a> {
    /// Explains turns of this run as of `now`. `children` are the runs that name it as their parent.
    pub fn new(run: &'a Run, children: &'a [&'a Run], now: DateTime<Utc>) -> Self {
        Explainer { run, children, now, broken: Broken::of(run, children) }
    }

    /// Explains one of its turns.
    pub fn explain(&self, turn: &Turn) -> Explanation {
        let Explainer { run, children, now, broken } = self;
        Explanation {
            summary: story::summary(run, turn, children, *now),
            requests: requests(turn),
            budget: budget(turn),
            time: time(turn),
            owner: owner(run, turn),
            tools: crate::tools::told(&run.ledger),
            findings: broken.as_told_of(turn),
            blind_spots: run.blind_spots.clone(),
            remedies: remedies(run, turn, children),
        }
    }
}

/// Returns the one-line summary of a run, for lists.
pub fn summarize(run: &Run, children: &[&Run], now: DateTime<Utc>) -> String {
    match run.told_turn() {
        Some(turn) => story::summary(run, turn, children, now),
        None => "The log names this run and holds nothing about its requests.".to_owned(),
    }
}

/// Returns what happened in a few words, for one line of a list: `503 unavailable, after 3 retries`.
pub fn in_short(run: &Run) -> String {
    let Some(turn) = run.told_turn() else { return String::new() };
    let counts = &turn.counts;
    let retries = counts.retries.bound;
    let repeats = match (retries.min, retries.max) {
        (0, _) => String::new(),
        _ => format!(", after {}", words::counted(retries, "retry", "retries")),
    };
    let told = match (turn.outcome, &turn.cause) {
        (RunOutcome::Failed, Some(cause)) => format!("{}{repeats}", describe(&cause.failure)),
        (RunOutcome::Failed, None) => phrases::spaced(turn.terminal_reason.as_deref().unwrap_or_default()),
        (RunOutcome::Succeeded, _) if retries.min > 0 || counts.fallbacks.bound.min > 0 => {
            let fallback =
                if counts.fallbacks.bound.min > 0 { "another candidate answered" } else { "recovered" };
            format!("{fallback}{repeats}")
        }
        (RunOutcome::Succeeded, _) if !turn.counts.upstream_requests.is_visible() => {
            "retries not visible".to_owned()
        }
        (RunOutcome::Succeeded, _) => String::new(),
        (_, _) => {
            let last = turn
                .requests
                .iter()
                .rev()
                .find_map(|r| r.attempts.iter().rev().find_map(|a| a.failure.as_ref()));
            last.map(|failure| format!("last failure {}{repeats}", describe(failure))).unwrap_or_default()
        }
    };
    let others = retries_of_others(run, turn);
    if !is_good(turn) || others.min == 0 {
        return told;
    }
    if retries.min == 0 && counts.fallbacks.bound.min == 0 {
        return format!("{} in other turns", words::counted(others, "retry", "retries"));
    }
    format!("{told} ({} in other turns)", words::bound(others))
}

/// Returns how often the run sent again in its turns beside this one.
fn retries_of_others(run: &Run, turn: &Turn) -> Bound {
    let others = run.turns.iter().filter(|other| other.number != turn.number);
    others.map(|other| other.counts.retries.bound).fold(Bound::ZERO, Bound::plus)
}

fn requests(turn: &Turn) -> String {
    let counts = &turn.counts;
    let mut text = format!("{} logical, ", words::count(&counts.logical_requests));
    if counts.upstream_requests.is_visible() {
        text.push_str(&format!("{} upstream", words::bound(counts.upstream_requests.bound)));
        if let Some(basis) = &counts.upstream_requests.basis {
            text.push_str(&format!(" ({basis})"));
        }
        let hedges = turn.foreground().flat_map(|r| &r.attempts).filter(|a| a.kind == AttemptKind::Hedge);
        let hedges = Bound::exact(hedges.count() as u64);
        if counts.retries.bound.min > 0 || counts.fallbacks.bound.min > 0 || hedges.min > 0 {
            let mut parts = vec![words::counted(counts.retries.bound, "retry", "retries")];
            if counts.fallbacks.bound.min > 0 {
                parts.push(words::counted(counts.fallbacks.bound, "fallback", "fallbacks"));
            }
            if hedges.min > 0 {
                parts.push(words::counted(hedges, "hedge", "hedges"));
            }
            text.push_str(&format!(": {}", words::list(&parts)));
        }
        if let Some(factor) =
            counts.amplification().filter(|(min, max)| *min > 1.0 || max.is_none_or(|max| max > 1.0))
        {
            text.push_str(&format!(", amplification {}", words::factor(factor)));
        }
    } else {
        text.push_str("upstream not visible in this log");
    }
    let background = &turn.background_counts;
    if background.logical_requests.is_visible() && background.logical_requests.bound.min > 0 {
        text.push_str(&format!(
            "; beside them {} for side calls",
            words::counted(background.upstream_requests.bound, "request", "requests")
        ));
    }
    text
}

fn budget(turn: &Turn) -> Option<String> {
    let ratio = turn.counts.retry_ratio()?;
    (turn.counts.retries.bound.min > 0)
        .then(|| format!("retry ratio {}, default budget 10 %", words::percent(ratio)))
}

fn time(turn: &Turn) -> Option<String> {
    let waiting = turn.time.waiting_ms?;
    let is_whole = turn.foreground().all(LogicalRequest::has_each_wait);
    if waiting == 0 && !is_whole {
        return None;
    }
    let least = if is_whole { "" } else { "at least " };
    // Waits of requests that overlap are summed.
    let wall = match turn.time.wall_ms {
        Some(wall) if waiting > wall => format!(", over requests at the same time in {},", words::span(wall)),
        Some(wall) => format!(" of {}", words::span(wall)),
        None => String::new(),
    };
    let asked = turn
        .requests
        .iter()
        .flat_map(|r| &r.attempts)
        .filter_map(|a| a.failure.as_ref()?.retry_after_ms)
        .max();
    let asked =
        asked.map(|ms| format!("; the provider asked for up to {}", words::span(ms))).unwrap_or_default();
    Some(format!("{least}{}{wall} spent waiting between attempts{asked}", words::span(waiting)))
}

fn owner(run: &Run, turn: &Turn) -> Option<String> {
    let mut layers: Vec<(Layer, u64, Option<u64>)> = Vec::new();
    let repeats = turn
        .requests
        .iter()
        .filter(|r| r.source == Source::Foreground)
        .flat_map(|r| r.attempts.windows(2))
        .filter(|pair| pair[1].kind == AttemptKind::Retry);
    for pair in repeats {
        // Logs name the layer with the attempt that failed, or with the one that repeats it.
        let Some(layer) = pair[0].layer.or(pair[1].layer) else { continue };
        let attempt = &pair[0];
        match layers.iter_mut().find(|(known, ..)| *known == layer) {
            Some((_, n, max)) => {
                *n += 1;
                *max = (*max).max(attempt.max_attempts);
            }
            None => layers.push((layer, 1, attempt.max_attempts)),
        }
    }
    if layers.is_empty() {
        return None;
    }
    let words: Vec<String> = layers
        .iter()
        .map(|(layer, n, max)| {
            let most =
                max.map(|max| format!(", up to {} allowed", max.saturating_sub(1))).unwrap_or_default();
            format!("{layer} layer {n}{most}")
        })
        .collect();
    let named: u64 = layers.iter().map(|(_, n, _)| n).sum();
    let unnamed = match turn.counts.retries.bound.min.saturating_sub(named) {
        0 => String::new(),
        n => format!("; of {n} more no layer is recorded"),
    };
    let multiply = if layers.len() > 1 { " (they multiply)" } else { "" };
    Some(format!("{}: {}{multiply}", words::agent(&run.key.agent), words.join("; ") + &unnamed))
}

/// Returns whether a turn ended as its person wanted.
pub(crate) fn is_good(turn: &Turn) -> bool {
    turn.outcome == RunOutcome::Succeeded
}
