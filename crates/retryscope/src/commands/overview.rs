//! Bare `retryscope`: everything found, on one screen.

use retryscope_analysis::{Run, overview, summarize};
use retryscope_report::{json, text};
use serde_json::json;

use crate::args::{Display, Format, Reading};
use crate::commands::runs::children;
use crate::context::Reader;
use crate::exit::Exit;
use crate::output::{Output, width};

/// Failed runs that are told in a sentence.
const TOLD: usize = 3;

pub(crate) fn run(reading: &Reading, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let all = reader.runs();
    if all.is_empty() {
        return Err(reader.nothing_found());
    }
    let every: Vec<&Run> = all.iter().collect();
    let of = overview(&every, reader.now);
    let mut failed: Vec<&Run> = all.iter().filter(|run| run.failed_turns() > 0).collect();
    failed.sort_by_key(|run| (std::cmp::Reverse(run.ended_at), run.key.clone()));
    let recent: Vec<(&Run, String)> = failed
        .iter()
        .take(TOLD)
        .map(|run| (*run, summarize(run, &children(run, &all), reader.now)))
        .collect();
    if display.format == Format::Text {
        output.text(&text::overview(&of, &recent, reader.now, width()))?;
        return Ok(reader.exit());
    }
    let exhausted: Vec<_> = of
        .exhausted
        .iter()
        .map(|e| json!({"provider": e.provider, "reason": e.reason, "reset_at": json::time(e.reset_at), "seen_at": json::time(e.seen_at)}))
        .collect();
    let settings: Vec<_> = of
        .settings
        .iter()
        .map(|(agent, text, n)| json!({"agent": agent, "advice": text, "runs": n}))
        .collect();
    let killed: Vec<_> = of.killed_by.iter().map(|(cause, n)| json!({"cause": cause, "turns": n})).collect();
    output.json(&json!({
        "schema": "retryscope.overview/1",
        "runs": of.runs,
        "failed_runs": of.failed,
        "not_countable_runs": of.not_countable,
        "counts": json::counts(&of.counts),
        "background_counts": json::counts(&of.background_counts),
        "amplification": json::ratio(of.countable.amplification()),
        "retry_ratio": json::ratio(of.countable.retry_ratio()),
        "waiting_ms": of.waiting_ms,
        "lost_ms": of.lost_ms,
        "ended_by": killed,
        "unretried": of.unretried,
        "exhausted": exhausted,
        "settings": settings,
    }))?;
    Ok(reader.exit())
}
