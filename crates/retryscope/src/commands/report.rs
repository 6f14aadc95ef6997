//! `retryscope report`: what happened, on one screen; or two sets of runs beside each other.

use retryscope_analysis::rules::HeldTo;
use retryscope_analysis::{By, Run, Totals, compare, digest, grouped, overview};
use retryscope_report::metrics::{self, Extra};
use retryscope_report::{blocks, summary};

use crate::args::{Display, Format, GroupBy, Reading, Report};
use crate::commands::audit;
use crate::commands::sides::{Sides, sides};
use crate::context::{Reader, Window};
use crate::exit::{Exit, hinted};
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Report,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    if args.compare.is_some() && matches!(display.format, Format::Prom | Format::Csv) {
        let forms = "its forms are text, json, markdown".to_owned();
        return Err(hinted("a comparison has no such form", [forms]));
    }
    let reader = Reader::open(reading)?;
    reader.complain();
    let window = Window::of(args.since.as_deref(), args.until.as_deref(), reader.now)?;
    let all = reader.runs();
    let chosen: Vec<&Run> = all.iter().filter(|run| window.holds(run)).collect();
    if display.format == Format::Prom {
        let policy = args.policy.as_deref().map(audit::read_policy).transpose()?;
        let mut totals = Totals::default();
        totals.hold_to(policy.map(|policy| HeldTo { policy, data_class: args.data_class.clone() }));
        for run in chosen {
            totals.add(run, reader.now);
        }
        let mut findings = Extra::default();
        findings.add_findings(&totals);
        output.text(&metrics::text(&totals, &findings))?;
        return Ok(reader.exit());
    }
    if all.is_empty() && (display.format == Format::Text || args.compare.is_some()) {
        return Err(reader.nothing_found());
    }
    if chosen.is_empty() && matches!(display.format, Format::Text | Format::Markdown) {
        output.text("no run matches\n")?;
        return Ok(reader.exit());
    }
    match &args.compare {
        Some(range) => compared(&sides(range, &chosen, reader.now)?, display, output)?,
        None => told(&chosen, &args.by, &reader, display, output)?,
    }
    Ok(reader.exit())
}

fn told(
    runs: &[&Run],
    by: &[GroupBy],
    reader: &Reader,
    display: Display,
    output: &mut Output,
) -> anyhow::Result<()> {
    let named: Vec<(By, &'static str)> = by
        .iter()
        .enumerate()
        // What is named twice groups no finer than once.
        .filter(|(n, name)| !by[..*n].contains(name))
        .map(|(_, by)| by)
        .map(|by| match by {
            GroupBy::Agent => (By::Agent, "agent"),
            GroupBy::Provider => (By::Provider, "provider"),
            GroupBy::Model => (By::Model, "model"),
            GroupBy::Day => (By::Day, "day"),
        })
        .collect();
    let (by, names): (Vec<By>, Vec<&'static str>) = named.into_iter().unzip();
    let groups = grouped(runs.iter().copied(), &by);
    if display.format == Format::Csv {
        output.text(&summary::csv(&groups, &names))?;
        return Ok(());
    }
    let of = summary::Summary {
        runs,
        overview: &overview(runs),
        digest: &digest(runs),
        groups: &groups,
        by: &names,
        now: reader.now,
    };
    match display.format {
        Format::Text => output.text(&blocks::text(&summary::blocks(&of), width()))?,
        Format::Markdown => {
            output.text(&blocks::markdown("Retries of coding agents", &summary::blocks(&of)))?;
        }
        _ => output.json(&summary::json(&of, &|id| reader.scan.path(id)))?,
    }
    Ok(())
}

fn compared(of: &Sides<'_>, display: Display, output: &mut Output) -> anyhow::Result<()> {
    let found = compare(&of.before, &of.after);
    let names = (of.names.0.as_str(), of.names.1.as_str());
    match display.format {
        Format::Text => output.text(&blocks::text(&summary::comparison(&found, names), width()))?,
        Format::Markdown => {
            let title = format!("{} and {}", names.0, names.1);
            output.text(&blocks::markdown(&title, &summary::comparison(&found, names)))?;
        }
        _ => output.json(&summary::comparison_json(&found, names))?,
    }
    Ok(())
}
