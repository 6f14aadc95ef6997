//! `retryscope runs`: lists runs.

use retryscope_analysis::{Run, RunLine, summarize};
use retryscope_report::{json, text};
use retryscope_scan::choose::Children;
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
    let mut chosen: Vec<&RunLine> =
        listed.lines().iter().filter(|line| is_wanted(line, args, &window)).collect();
    chosen.sort_by(|a, b| (a.started_at, &a.key).cmp(&(b.started_at, &b.key)));
    if listed.lines().is_empty() {
        return Err(listed.nothing_found());
    }
    if chosen.is_empty() {
        output.text("no run matches\n")?;
    } else {
        output.text(&text::runs(&chosen, width()))?;
    }
    Ok(exit(args, chosen.iter().any(|line| line.failed_turns > 0), listed.exit()))
}

/// One object a run, with sums and a summary.
fn objects(reading: &Reading, args: &Runs, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let window = Window::of(args.since.as_deref(), args.until.as_deref(), reader.now)?;
    let all = reader.runs();
    let mut chosen: Vec<&Run> =
        all.iter().filter(|run| is_wanted(&RunLine::of(run), args, &window)).collect();
    chosen.sort_by_key(|run| (run.started_at, run.key.clone()));
    let path_of = |id| reader.scan.path(id);
    let children = Children::among(&all);
    let entry = |run: &&Run| json::runs_entry(run, &summarize(run, children.of(run), reader.now), &path_of);
    let runs: Vec<_> = chosen.iter().map(entry).collect();
    // For a program an empty list is an answer; a person is told where runs were looked for.
    output.json(&json!({"schema": "retryscope.runs/1", "runs": runs}))?;
    Ok(exit(args, chosen.iter().any(|run| run.failed_turns() > 0), reader.exit()))
}

/// Returns whether a run is to be listed.
fn is_wanted(run: &RunLine, args: &Runs, window: &Window) -> bool {
    (!args.failed || run.failed_turns > 0)
        && args.agent.as_deref().is_none_or(|agent| *run.key.agent == *agent)
        && args.provider.as_deref().is_none_or(|provider| run.providers.contains(provider))
        && window.meets(run.started_at, run.ended_at)
}

fn exit(args: &Runs, any_failed: bool, read: Exit) -> Exit {
    if args.exit_code && any_failed { Exit::Finding } else { read }
}
