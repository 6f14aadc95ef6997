//! `retryscope sources`: which logs were found, and what each can show.

use retryscope_report::{Page, words};
use serde_json::json;

use crate::args::{Display, Format, Reading};
use crate::commands::visibility;
use crate::context::Reader;
use crate::exit::Exit;
use crate::output::{Output, width};

/// Places that could not be read and are named.
const MOST_GAPS: usize = 20;

pub(crate) fn run(reading: &Reading, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    let scan = &reader.scan;
    if scan.sources.is_empty() && display.format == Format::Text {
        reader.complain();
        return Err(reader.nothing_found());
    }
    if display.format == Format::Text {
        // Paths are never wrapped: they are there to be copied.
        let mut page = Page::new(10_000);
        let rows: Vec<Vec<String>> = scan
            .sources
            .values()
            .map(|source| {
                vec![
                    source.agent.unwrap_or("by record").to_owned(),
                    source.view.0.to_owned(),
                    size(source.bytes),
                    if source.names_run { String::new() } else { "orphan: names no run".to_owned() },
                    source.path.display().to_string(),
                ]
            })
            .collect();
        page.table(&["agent", "log", "size", "", "file"], &rows, &[2], 0);
        output.text(&page.finish())?;
        let mut page = Page::new(width());
        visibility::show(&mut page, &visibility::of(&reader.runs()));
        if reader.scan.is_incomplete() {
            page.space();
        }
        for gap in scan.gaps.iter().take(MOST_GAPS) {
            page.line(&format!(
                "{}{}: {}",
                scan.path(gap.source).display(),
                gap.place,
                words::gap(&gap.kind)
            ));
        }
        if scan.gaps.len() > MOST_GAPS {
            let more = scan.gaps.len() - MOST_GAPS;
            page.line(&format!("and {more} more places that could not be read; --format json has all"));
        }
        for problem in &scan.problems {
            page.line(&format!("cannot read {}: {}", problem.path.display(), problem.message));
        }
        output.text(&page.finish())?;
    } else {
        let sources: Vec<_> = scan
            .sources
            .values()
            .map(|source| {
                json!({
                    "file": source.path.display().to_string(),
                    "agent": source.agent,
                    "log": source.view.0,
                    "bytes": source.bytes,
                    "orphan": !source.names_run,
                })
            })
            .collect();
        let gaps: Vec<_> = scan
            .gaps
            .iter()
            .map(|gap| {
                json!({
                    "file": scan.path(gap.source).display().to_string(),
                    "place": gap.place.to_string(),
                    "kind": gap.kind.label(),
                })
            })
            .collect();
        let problems: Vec<_> = scan
            .problems
            .iter()
            .map(|p| json!({"file": p.path.display().to_string(), "message": p.message}))
            .collect();
        output.json(&json!({"schema": "retryscope.sources/1", "sources": sources, "gaps": gaps, "problems": problems}))?;
    }
    Ok(reader.exit())
}

/// Returns a size in bytes for a person.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
