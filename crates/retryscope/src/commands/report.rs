//! `retryscope report`: totals over all runs.

use retryscope_analysis::{By, Run, Totals, grouped};
use retryscope_report::{json, metrics, text};
use serde_json::json;

use crate::args::{Display, Format, GroupBy, Reading, Report};
use crate::context::{Reader, Window};
use crate::exit::Exit;
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Report,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let window = Window::of(args.since.as_deref(), args.until.as_deref(), reader.now)?;
    let all = reader.runs();
    let chosen: Vec<&Run> = all.iter().filter(|run| window.holds(run)).collect();
    let (by, name) = match args.by {
        GroupBy::Agent => (By::Agent, "agent"),
        GroupBy::Provider => (By::Provider, "provider"),
        GroupBy::Model => (By::Model, "model"),
        GroupBy::Day => (By::Day, "day"),
    };
    match display.format {
        Format::Prom => output.text(&metrics::run_text(&Totals::of(chosen, reader.now)))?,
        Format::Text if all.is_empty() => return Err(reader.nothing_found()),
        Format::Text if chosen.is_empty() => output.text("no run matches\n")?,
        Format::Text => output.text(&text::grouped(&grouped(chosen, by), name, width()))?,
        _ => {
            let groups: Vec<_> = grouped(chosen, by).iter().map(json::group).collect();
            output.json(&json!({"schema": "retryscope.report/1", "by": name, "groups": groups}))?;
        }
    }
    Ok(reader.exit())
}
