//! `retryscope replay`: explains one run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use retryscope_analysis::{Run, RunOutcome, Turn, explain, words};
use retryscope_record::SourceId;
use retryscope_report::share::Sharer;
use retryscope_report::{json, text};
use serde_json::{Value, json};

use crate::args::{Display, Format, Reading, Replay};
use crate::commands::recipients;
use crate::commands::runs::children;
use crate::context::Reader;
use crate::exit::{Exit, hinted};
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Replay,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let reader = match args.run.as_deref() {
        Some("-") => Reader::open_stdin(reading)?,
        Some(path) if is_path(path) => Reader::open_path(reading, PathBuf::from(path))?,
        _ => Reader::open(reading)?,
    };
    if !args.share {
        reader.complain();
    }
    let all = reader.runs();
    if all.is_empty() {
        return Err(reader.nothing_found());
    }
    let chosen = match args.run.as_deref() {
        Some(path) if path == "-" || is_path(path) => in_order(&all),
        Some("latest") => newest(&all, |_| true).into_iter().collect(),
        Some(id) => vec![by_id(id, &all)?],
        None => newest(&all, |run| run.failed_turns() > 0).into_iter().collect(),
    };
    if chosen.is_empty() {
        return none_failed(&all, &reader, display, output);
    }
    if !args.share {
        let path_of = |id| reader.scan.path(id);
        return show(&Told { chosen, all: &all, path_of: &path_of, reader: &reader }, args, display, output);
    }
    // Everything is replaced before anything is written.
    let sharer = Sharer::new(&all, |provider| retryscope_taxonomy::provider(provider).is_some());
    let places = chosen.iter().filter_map(|run| all.iter().position(|other| other.key == run.key));
    let shared: Vec<Run> = all.iter().map(|run| sharer.run(run)).collect();
    let paths: BTreeMap<SourceId, PathBuf> =
        reader.scan.sources.iter().map(|(id, source)| (*id, sharer.path(&source.path))).collect();
    let chosen = places.map(|place| &shared[place]).collect();
    let path_of = |id| paths.get(&id).map_or(Path::new(""), PathBuf::as_path);
    show(&Told { chosen, all: &shared, path_of: &path_of, reader: &reader }, args, display, output)
}

/// Runs to tell of, among all.
struct Told<'a> {
    chosen: Vec<&'a Run>,
    all: &'a [Run],
    path_of: &'a dyn Fn(SourceId) -> &'a Path,
    reader: &'a Reader,
}

fn show(of: &Told<'_>, args: &Replay, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let (chosen, all, path_of, reader) = (&of.chosen, of.all, of.path_of, of.reader);
    if args.recipients {
        return recipients::show(chosen, path_of, display, output).map(|()| reader.exit());
    }
    let mut failed = false;
    for (index, run) in chosen.iter().enumerate() {
        failed |= run.failed_turns() > 0;
        for (n, turn) in turns(run, args)?.into_iter().enumerate() {
            let told = explain(run, turn, &children(run, all), reader.now);
            match display.format {
                Format::Text => {
                    if index + n > 0 {
                        output.text("\n")?;
                    }
                    output.text(&text::replay(run, turn, &told, args.evidence, path_of, width()))?;
                }
                Format::Json if n > 0 => {}
                Format::Json => {
                    if let Some(object) = json::replay(run, &children(run, all), reader.now, path_of) {
                        output.json(&object)?;
                    }
                }
                _ => output.json(&brief(run, turn, &told))?,
            }
        }
        if run.turns.is_empty() && display.format == Format::Text {
            output.text(&format!(
                "run {}: the log names this run and holds nothing about its requests\n",
                run.key.id
            ))?;
        }
    }
    if args.exit_code && failed {
        return Ok(Exit::Finding);
    }
    Ok(reader.exit())
}

/// A small object for a model or a wrapper: two sentences, no headers, no stacks.
fn brief(run: &Run, turn: &Turn, told: &retryscope_analysis::Explanation) -> Value {
    let ok = turn.outcome == RunOutcome::Succeeded;
    let failure = turn.cause.as_ref().map(|cause| &cause.failure);
    let code = match failure {
        Some(failure) if !ok => format!("{}.{}", failure.class, failure.reason),
        _ => turn.outcome.as_str().to_owned(),
    };
    let upstream = &turn.counts.upstream_requests;
    let attempts = match upstream.is_visible() {
        true if upstream.bound.is_exact() => json!(upstream.bound.min),
        true => json!({"min": upstream.bound.min, "max": upstream.bound.max}),
        false => Value::Null,
    };
    json!({
        "schema": "retryscope.replay.brief/1",
        "ok": ok,
        "code": code,
        "content": two_sentences(&told.summary),
        "metadata": {
            "run_id": &*run.key.id,
            "retryable": failure.map(|f| f.retryable),
            "attempts": attempts,
            "retry_after_ms": failure.and_then(|f| f.retry_after_ms),
        },
    })
}

/// Returns the first two sentences of a text.
fn two_sentences(text: &str) -> String {
    let ends: Vec<usize> = text.match_indices(". ").map(|(at, _)| at + 1).collect();
    ends.get(1).and_then(|end| text.get(..*end)).unwrap_or(text).to_owned()
}

fn turns<'a>(run: &'a Run, args: &Replay) -> anyhow::Result<Vec<&'a Turn>> {
    match args.turn.as_deref() {
        None => Ok(run.told_turn().into_iter().collect()),
        Some("all") => Ok(run.turns.iter().collect()),
        Some(number) => {
            let wanted: usize = number.parse().map_err(|_| {
                hinted(format!("`{number}` is no turn"), ["give a number from 1, or `all`".to_owned()])
            })?;
            match run.turns.iter().find(|turn| turn.number == wanted) {
                Some(turn) => Ok(vec![turn]),
                None => Err(hinted(
                    format!("run {} has no turn {wanted}", run.key.id),
                    [format!(
                        "it has {}",
                        match run.turns.len() {
                            1 => "one turn".to_owned(),
                            n => format!("{n} turns"),
                        }
                    )],
                )),
            }
        }
    }
}

/// A run id never holds a slash, and a file that is there is meant.
pub(crate) fn is_path(text: &str) -> bool {
    text.contains('/') || text.starts_with('.') || Path::new(text).exists()
}

fn in_order(all: &[Run]) -> Vec<&Run> {
    let mut runs: Vec<&Run> = all.iter().collect();
    runs.sort_by_key(|run| (run.started_at, run.key.clone()));
    runs
}

pub(crate) fn newest(all: &[Run], wanted: impl Fn(&Run) -> bool) -> Option<&Run> {
    all.iter().filter(|run| wanted(run)).max_by_key(|run| (run.ended_at, run.key.clone()))
}

pub(crate) fn by_id<'a>(wanted: &str, all: &'a [Run]) -> anyhow::Result<&'a Run> {
    let id_of = |run: &&Run| *run.key.id == *wanted || format!("{}:{}", run.key.agent, run.key.id) == wanted;
    let exact: Vec<&Run> = all.iter().filter(|run| id_of(run)).collect();
    if let [one] = exact.as_slice() {
        return Ok(one);
    }
    let beginning: Vec<&Run> = all.iter().filter(|run| run.key.id.starts_with(wanted)).collect();
    let matching = if exact.is_empty() { beginning } else { exact };
    match matching.as_slice() {
        [one] => Ok(one),
        // A run and its subagents share their beginning; the run itself is meant.
        several if several.iter().filter(|run| run.facts.parent_run_id.is_none()).count() == 1 => {
            Ok(several.iter().find(|run| run.facts.parent_run_id.is_none()).unwrap_or(&several[0]))
        }
        [] => {
            let mut near: Vec<(usize, &Run)> =
                all.iter().map(|run| (distance(wanted, &run.key.id), run)).collect();
            near.sort_by_key(|(distance, _)| *distance);
            let hint = near
                .first()
                .filter(|(distance, _)| *distance <= wanted.len() / 3 + 1)
                .map(|(_, run)| format!("did you mean {}?", run.key.id));
            Err(hinted(
                format!("no run `{wanted}`"),
                hint.into_iter().chain(["retryscope runs lists the runs that were found".to_owned()]),
            ))
        }
        several => {
            let ids: Vec<String> =
                several.iter().take(5).map(|run| format!("{}:{}", run.key.agent, run.key.id)).collect();
            Err(hinted(
                format!("`{wanted}` fits {} runs", several.len()),
                [format!("say which: {}", words::list(&ids))],
            ))
        }
    }
}

/// Returns how many letters differ between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(64).enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = before + usize::from(ca != *cb);
            before = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

fn none_failed(all: &[Run], reader: &Reader, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let blind = all.iter().filter(|run| !run.counts.upstream_requests.is_visible()).count();
    let newest = newest(all, |_| true).map(|run| run.key.id.to_string());
    match display.format {
        Format::Text => {
            output.text(&format!("none of the {} runs found failed", all.len()))?;
            if blind > 0 {
                output.text(&format!("; {blind} of them have logs that do not show retries"))?;
            }
            output.text("\n")?;
            if let Some(id) = newest {
                output.text(&format!("the newest run is {id}: retryscope replay latest\n"))?;
            }
        }
        _ => {
            output.json(&json!({"schema": "retryscope.replay/1", "run": null, "summary": "no run failed", "runs": all.len()}))?;
        }
    }
    Ok(reader.exit())
}
