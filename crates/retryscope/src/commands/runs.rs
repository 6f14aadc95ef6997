//! `retryscope runs`: lists runs.

use retryscope_analysis::{Run, RunLine, summarize};
use retryscope_report::{json, text};
use serde_json::json;

use crate::args::{Display, Format, Reading, Runs};
use crate::context::{Listed, Reader, Window};
use crate::exit::Exit;
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Runs,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    if display.format == Format::Text { lines(reading, args, output) } else { objects(reading, args, output) }
}

/// One line a run, which needs no more than the index holds.
fn lines(reading: &Reading, args: &Runs, output: &mut Output) -> anyhow::Result<Exit> {
    let listed = Listed::open(reading)?;
    listed.complain();
    let window = Window::of(args.since.as_deref(), args.until.as_deref(), listed.now)?;
    let mut chosen: Vec<&RunLine> = listed
        .lines()
        .iter()
        .filter(|run| !args.failed || run.failed_turns > 0)
        .filter(|run| args.agent.as_deref().is_none_or(|agent| *run.key.agent == *agent))
        .filter(|run| args.provider.as_deref().is_none_or(|provider| run.providers.contains(provider)))
        .filter(|run| window.meets(run.started_at, run.ended_at))
        .collect();
    chosen.sort_by(|a, b| (a.started_at, &a.key).cmp(&(b.started_at, &b.key)));
    if !chosen.is_empty() {
        output.text(&text::runs(&chosen, width()))?;
    } else if listed.lines().is_empty() {
        return Err(listed.nothing_found());
    } else {
        output.text("no run matches\n")?;
    }
    if args.exit_code && chosen.iter().any(|run| run.failed_turns > 0) {
        return Ok(Exit::Finding);
    }
    Ok(listed.exit())
}

/// One object a run, with sums and a summary.
fn objects(reading: &Reading, args: &Runs, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let window = Window::of(args.since.as_deref(), args.until.as_deref(), reader.now)?;
    let all = reader.runs();
    let mut chosen: Vec<&Run> = all
        .iter()
        .filter(|run| !args.failed || run.failed_turns() > 0)
        .filter(|run| args.agent.as_deref().is_none_or(|agent| *run.key.agent == *agent))
        .filter(|run| args.provider.as_deref().is_none_or(|provider| asked(run, provider)))
        .filter(|run| window.holds(run))
        .collect();
    chosen.sort_by_key(|run| (run.started_at, run.key.clone()));
    let path_of = |id| reader.scan.path(id);
    let entry =
        |run: &&Run| json::runs_entry(run, &summarize(run, &children(run, &all), reader.now), &path_of);
    let runs: Vec<_> = chosen.iter().map(entry).collect();
    output.json(&json!({"schema": "retryscope.runs/1", "runs": runs}))?;
    if args.exit_code && chosen.iter().any(|run| run.failed_turns() > 0) {
        return Ok(Exit::Finding);
    }
    Ok(reader.exit())
}

/// Returns the runs that name this one as their parent.
pub(crate) fn children<'a>(run: &Run, all: &'a [Run]) -> Vec<&'a Run> {
    all.iter()
        .filter(|other| {
            other.key.agent == run.key.agent && other.facts.parent_run_id.as_deref() == Some(&*run.key.id)
        })
        .collect()
}

fn asked(run: &Run, provider: &str) -> bool {
    let attempts = run.turns.iter().flat_map(|t| &t.requests).flat_map(|r| &r.attempts);
    run.facts.provider.as_deref() == Some(provider)
        || attempts.into_iter().any(|a| a.candidate.provider.as_deref() == Some(provider))
}
