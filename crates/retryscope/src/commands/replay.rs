//! `retryscope replay`: explains one run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use retryscope_analysis::{Explainer, Names, Run, RunOutcome, Turn, summarize, words};
use retryscope_record::SourceId;
use retryscope_report::share::Sharer;
use retryscope_report::{json, text};
use retryscope_scan::choose::{self, Children, Choice, Unchosen, newest};
use serde_json::{Value, json};

use crate::args::{Display, Format, Reading, Replay};
use crate::commands::recipients;
use crate::context::{Listed, Reader};
use crate::exit::{Exit, hinted};
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Replay,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let (reader, wanted) = match args.run.as_deref() {
        Some("-") => (Reader::open_stdin(reading)?, None),
        Some(path) if is_path(path) => (Reader::open_path(reading, PathBuf::from(path))?, None),
        name => {
            // One run is wanted: a list of all tells which, and only its own files are read.
            let listed = Listed::open(reading)?;
            if !args.share {
                listed.complain();
            }
            let lines = listed.lines();
            if lines.is_empty() {
                return Err(listed.nothing_found());
            }
            let line = match name {
                Some("latest") => newest(lines, |_| true),
                Some(id) => Some(by_id(id, lines)?),
                None => newest(lines, |line| line.failed_turns > 0),
            };
            let Some(line) = line else { return none_failed(&listed, display, output) };
            (listed.read(&line.key), Some(line.key.clone()))
        }
    };
    let all = reader.runs();
    let chosen: Vec<&Run> = if let Some(key) = &wanted {
        all.iter().filter(|run| run.key == *key).collect()
    } else {
        if !args.share {
            reader.complain();
        }
        in_order(&all)
    };
    if chosen.is_empty() {
        return Err(reader.nothing_found());
    }
    if !args.share {
        let path_of = |id| reader.scan.path(id);
        return show(&Told { chosen, all: &all, path_of: &path_of, reader: &reader }, args, display, output);
    }
    // Everything is replaced before anything is written.
    let sharer = Sharer::new(&all, |names, name| match names {
        Names::Agent => retryscope_policy::known_agents().any(|agent| agent == name),
        _ => retryscope_taxonomy::provider(name).is_some(),
    });
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
    let failed = chosen.iter().any(|run| run.failed_turns() > 0);
    let exit = if args.exit_code && failed { Exit::Finding } else { reader.exit() };
    if args.recipients {
        return recipients::show(chosen, path_of, display, output).map(|()| exit);
    }
    let children = Children::among(all);
    for (index, run) in chosen.iter().enumerate() {
        let turns = turns(run, args)?;
        if display.format == Format::Json && turns.is_empty() {
            output.json(&json::replay(run, None, children.of(run), reader.now, path_of))?;
            continue;
        }
        let explainer = Explainer::new(run, children.of(run), reader.now);
        for (n, turn) in turns.into_iter().enumerate() {
            let told = explainer.explain(turn);
            match display.format {
                Format::Json => {
                    let explained = Some((turn, &told));
                    output.json(&json::replay(run, explained, children.of(run), reader.now, path_of))?;
                }
                Format::Text => {
                    if index + n > 0 {
                        output.text("\n")?;
                    }
                    output.text(&text::replay(run, turn, &told, args.evidence, path_of, width()))?;
                }
                _ => output.json(&brief(run, Some(turn), &told.summary))?,
            }
        }
        if run.turns.is_empty() && display.format != Format::Text {
            output.json(&brief(run, None, &summarize(run, &[], reader.now)))?;
        } else if run.turns.is_empty() {
            let nothing = "the log names this run and holds nothing about its requests".to_owned();
            let told: Vec<String> = std::iter::once(nothing).chain(run.blind_spots.iter().cloned()).collect();
            output.text(&format!("run {}: {}\n", run.key.id, told.join("; ")))?;
        }
    }
    Ok(exit)
}

/// A small object for a model or a wrapper: two sentences, no headers, no stacks.
fn brief(run: &Run, turn: Option<&Turn>, summary: &str) -> Value {
    let outcome = turn.map_or(run.outcome, |turn| turn.outcome);
    let ok = outcome == RunOutcome::Succeeded;
    let failure = turn.and_then(|turn| turn.cause.as_ref()).map(|cause| &cause.failure);
    let code = match failure {
        Some(failure) if !ok => format!("{}.{}", failure.class, failure.reason),
        _ => outcome.as_str().to_owned(),
    };
    let upstream = &turn.map_or(&run.counts, |turn| &turn.counts).upstream_requests;
    let attempts = match upstream.is_visible() {
        true if upstream.bound.is_exact() => json!(upstream.bound.min),
        true => json!({"min": upstream.bound.min, "max": upstream.bound.max}),
        false => Value::Null,
    };
    json!({
        "schema": "retryscope.replay.brief/1",
        "ok": ok,
        "code": code,
        "content": two_sentences(summary),
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

/// What begins like a path is one, and a file that is there is meant; `latest` is a word, and an id may hold a slash.
pub(crate) fn is_path(text: &str) -> bool {
    text.starts_with(['.', '/', '~']) || text != "latest" && Path::new(text).exists()
}

fn in_order(all: &[Run]) -> Vec<&Run> {
    let mut runs: Vec<&Run> = all.iter().collect();
    runs.sort_by_key(|run| (run.started_at, run.key.clone()));
    runs
}

/// Returns the run that a name means.
pub(crate) fn by_id<'a, T: Choice>(wanted: &str, all: &'a [T]) -> anyhow::Result<&'a T> {
    choose::by_id(wanted, all).map_err(|why| match why {
        Unchosen::None { nearest } => {
            let hint = nearest.map(|id| format!("did you mean {id}?"));
            hinted(
                format!("no run `{wanted}`"),
                hint.into_iter().chain(["retryscope runs lists the runs that were found".to_owned()]),
            )
        }
        Unchosen::Several(keys) => {
            let ids: Vec<String> =
                keys.iter().take(5).map(|key| format!("{}:{}", key.agent, key.id)).collect();
            hinted(
                format!("`{wanted}` fits {} runs", keys.len()),
                [format!("say which: {}", words::list(&ids))],
            )
        }
    })
}

fn none_failed(listed: &Listed, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let all = listed.lines();
    let blind = all.iter().filter(|run| !run.upstream_requests.is_visible()).count();
    let newest = newest(all, |_| true).map(|run| run.key.id.to_string());
    match display.format {
        Format::Text => {
            output.text(&match all.len() {
                1 => "the one run that was found did not fail".to_owned(),
                n => format!("none of the {n} runs found failed"),
            })?;
            match (blind, all.len()) {
                (0, _) => {}
                (_, 1) => output.text("; its logs do not show retries")?,
                (1, _) => output.text("; 1 of them has logs that do not show retries")?,
                (n, _) => output.text(&format!("; {n} of them have logs that do not show retries"))?,
            }
            output.text("\n")?;
            if let Some(id) = newest {
                output.text(&format!("the newest run is {id}: retryscope replay latest\n"))?;
            }
        }
        Format::Brief => output.json(&json!({
            "schema": "retryscope.replay.brief/1", "ok": true, "code": "none_failed", "content": "no run failed",
            "metadata": {"run_id": null, "retryable": null, "attempts": null, "retry_after_ms": null},
        }))?,
        _ => {
            output.json(&json!({"schema": "retryscope.replay/1", "run": null, "summary": "no run failed", "runs": all.len()}))?;
        }
    }
    Ok(listed.exit())
}
