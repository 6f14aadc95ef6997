//! Bare `retryscope`: everything found, on one screen.

use retryscope_analysis::{Run, overview, summarize};
use retryscope_report::{json, text};
use retryscope_scan::choose::Children;
use serde_json::{Value, json};

use crate::args::{Display, Format, Reading};
use crate::context::Reader;
use crate::exit::Exit;
use crate::output::{Output, width};

/// Failed runs that are told in a sentence.
const TOLD: usize = 3;

pub(crate) fn run(reading: &Reading, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let all = reader.runs();
    if all.is_empty() && display.format == Format::Text {
        return Err(reader.nothing_found());
    }
    let every: Vec<&Run> = all.iter().collect();
    let of = overview(&every);
    let mut failed: Vec<&Run> = all.iter().filter(|run| run.failed_turns() > 0).collect();
    failed.sort_by_key(|run| (std::cmp::Reverse(run.ended_at), run.key.clone()));
    let children = Children::among(&all);
    let recent: Vec<(&Run, String)> =
        failed.iter().take(TOLD).map(|run| (*run, summarize(run, children.of(run), reader.now))).collect();
    if display.format == Format::Text {
        output.text(&text::overview(&of, &recent, reader.now, width()))?;
        return Ok(reader.exit());
    }
    let settings: Vec<_> = of
        .settings
        .iter()
        .map(|(agent, text, n)| json!({"agent": agent, "advice": text, "runs": n}))
        .collect();
    let killed: Vec<_> = of.killed_by.iter().map(|(cause, n)| json!({"cause": cause, "turns": n})).collect();
    let mut object = json::sums(&of.sums);
    let more = [
        ("schema", json!("retryscope.overview/1")),
        ("ended_by", json!(killed)),
        ("unretried", json!(of.unretried)),
        ("exhausted", of.exhausted.iter().map(json::exhausted).collect()),
        ("settings", json!(settings)),
    ];
    object.extend(more.map(|(name, value)| (name.to_owned(), value)));
    output.json(&Value::Object(object))?;
    Ok(reader.exit())
}
