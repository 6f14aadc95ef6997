//! `retryscope runs`: lists runs.

use retryscope_analysis::{Run, summarize};
use retryscope_report::{json, text};
use serde_json::json;

use crate::args::{Display, Format, Reading, Runs};
use crate::context::{Reader, Window};
use crate::exit::Exit;
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Runs,
    output: &mut Output,
) -> anyhow::Result<Exit> {
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
    let summary = |run: &Run| summarize(run, &children(run, &all), reader.now);
    match display.format {
        Format::Text if chosen.is_empty() => {
            if all.is_empty() {
                return Err(reader.nothing_found());
            }
            output.text("no run matches\n")?;
        }
        Format::Text => {
            output.text(&text::runs(&chosen, width()))?;
        }
        _ => {
            let path_of = |id| reader.scan.path(id);
            let runs: Vec<_> =
                chosen.iter().map(|run| json::runs_entry(run, &summary(run), &path_of)).collect();
            output.json(&json!({"schema": "retryscope.runs/1", "runs": runs}))?;
        }
    }
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
