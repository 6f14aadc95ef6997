//! `retryscope report`: totals over all runs.

use retryscope_analysis::Totals;
use retryscope_report::metrics;

use crate::args::{Display, Format, Reading, Report};
use crate::context::Reader;
use crate::exit::Exit;
use crate::output::Output;

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    _args: &Report,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    reader.complain();
    let runs = reader.runs();
    let totals = Totals::of(&runs, reader.now);
    if display.format == Format::Prom {
        output.text(&metrics::run_text(&totals))?;
    }
    Ok(reader.exit())
}
