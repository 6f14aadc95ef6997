//! Bare `retryscope`: everything found, on one screen.

use retryscope_analysis::{Counts, Run, summarize, words};
use retryscope_report::{Page, text};
use serde_json::json;

use crate::args::{Display, Format, Reading};
use crate::commands::runs::children;
use crate::context::Reader;
use crate::exit::Exit;
use crate::output::{Output, width};

pub(crate) fn run(reading: &Reading, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let all = reader.runs();
    if all.is_empty() {
        return Err(reader.nothing_found());
    }
    let counts = all.iter().map(|run| &run.counts).fold(Counts::ZERO, |a, b| a.plus(b));
    let hidden = all.iter().filter(|run| !run.counts.upstream_requests.is_visible()).count();
    let mut failed: Vec<&Run> = all.iter().filter(|run| run.failed_turns() > 0).collect();
    failed.sort_by_key(|run| std::cmp::Reverse(run.ended_at));
    if display.format != Format::Text {
        output.json(&json!({"schema": "retryscope.overview/1", "runs": all.len(), "failed": failed.len(), "not_countable": hidden,
            "counts": retryscope_report::json::counts(&counts)}))?;
        return Ok(reader.exit());
    }
    let mut page = Page::new(width());
    page.line(&format!("{} runs, {} with a failed turn", all.len(), failed.len()));
    page.space();
    page.row("asked", &format!("{} logical requests", words::bound(counts.logical_requests.bound)));
    page.row("sent", &format!("{} upstream requests", words::bound(counts.upstream_requests.bound)));
    if hidden > 0 {
        page.row(
            "",
            &format!("{hidden} of {} runs not countable: their logs do not show retries", all.len()),
        );
    }
    for run in failed.iter().take(5) {
        page.space();
        page.heading(
            &format!("{}  {}", run.key.agent, run.key.id),
            &run.ended_at.map(|at| text::ago(at, reader.now)).unwrap_or_default(),
        );
        page.paragraph(&summarize(run, &children(run, &all), reader.now));
    }
    output.text(&page.finish())?;
    Ok(reader.exit())
}
