//! What happened in a time, on one screen, for a person and a program; and two times beside each other.

use std::path::Path;

use chrono::{DateTime, Utc};
use retryscope_analysis::{Comparison, Digest, Group, Overview, Run, Spent, Sums, Waits, in_short, words};
use retryscope_record::RunKey;
use serde_json::{Value, json};

use crate::blocks::Block;
use crate::json;
use crate::page::quoted;
use crate::text::{self, ID_SHOWN, asked, moment, out_of_quota, sent, waited};

/// Rows of a table that are shown on a screen.
const SHOWN: usize = 10;

/// Everything a report shows.
#[derive(Debug)]
pub struct Summary<'a> {
    /// The runs it is about.
    pub runs: &'a [&'a Run],
    /// Sums over them.
    pub overview: &'a Overview,
    /// What stands out.
    pub digest: &'a Digest,
    /// Sums by what was asked for.
    pub groups: &'a [Group],
    /// Names of what the groups are by.
    pub by: &'a [&'static str],
    /// The time that counts as now.
    pub now: DateTime<Utc>,
}

/// Returns the blocks of a report.
pub fn blocks(of: &Summary<'_>) -> Vec<Block> {
    let mut blocks = vec![head(of)];
    for wave in of.digest.waves.iter().take(3) {
        blocks.push(Block::Line(format!(
            "{} runs failed within {} at {} ({}, {}): upstream, not you.",
            wave.runs,
            words::span(u64::try_from((wave.to - wave.from).num_milliseconds()).unwrap_or(0)),
            wave.provider,
            wave.reason,
            moment(wave.from),
        )));
    }
    blocks.push(groups(&of.groups[..of.groups.len().min(SHOWN)], of.by));
    if of.groups.len() > SHOWN {
        let text =
            format!("and {} more groups that lost less; --format csv has all", of.groups.len() - SHOWN);
        blocks.push(Block::Line(text));
    }
    blocks.extend(hidden(of.overview));
    blocks.extend(worst(of));
    blocks.extend(reasons(of.digest));
    blocks.extend(budgets(of.digest));
    blocks.extend(fallbacks(of.digest));
    blocks.extend(findings(of.digest));
    blocks
}

fn row(label: &str, text: impl Into<String>) -> (String, String) {
    (label.to_owned(), text.into())
}

fn cells<const N: usize>(of: [&str; N]) -> Vec<String> {
    of.map(str::to_owned).to_vec()
}

fn head(of: &Summary<'_>) -> Block {
    let sums = &of.overview.sums;
    let first = of.runs.iter().filter_map(|run| run.started_at).min();
    let last = of.runs.iter().filter_map(|run| run.ended_at).max();
    let span = first.zip(last).map(|(a, b)| format!(", {} to {}", moment(a), moment(b))).unwrap_or_default();
    let mut rows = vec![
        row("runs", format!("{}, {} with a failed turn{span}", sums.runs, sums.failed)),
        row("asked", asked(sums)),
        row("sent", sent(sums)),
    ];
    rows.extend(waited(sums).map(|waited| row("waited", waited)));
    rows.extend(single_waits(&sums.waits).map(|waits| row("single waits", waits)));
    for (index, account) in of.overview.exhausted.iter().take(5).enumerate() {
        rows.push(row(if index == 0 { "out of quota" } else { "" }, out_of_quota(account, of.now)));
    }
    Block::Rows(rows)
}

/// Says how long single waits were. A share is told only where so many waits can tell it: of three waits there is no p99.
fn single_waits(waits: &Waits) -> Option<String> {
    let shares = [(1, 0.5, "p50"), (10, 0.9, "p90"), (100, 0.99, "p99"), (1, 1.0, "longest")];
    let told: Vec<String> = shares
        .into_iter()
        .filter(|(enough, ..)| waits.count() >= *enough)
        .filter_map(|(_, share, name)| Some(format!("{name} {}", words::span(waits.at(share)?))))
        .collect();
    (!told.is_empty()).then(|| format!("{} (n = {})", told.join(", "), waits.count()))
}

/// Returns what was lost for a cell, where a bound is written short.
fn lost(sums: &Sums) -> String {
    text::span(sums.lost_ms, sums.lost_is_least)
        .map_or_else(|| "?".to_owned(), |span| span.replace("at least ", "≥"))
}

/// Returns the table of groups. Columns are narrow, so that ranges are written short.
fn groups(groups: &[Group], by: &[&'static str]) -> Block {
    let short =
        |text: String| text.replace("at least ", "≥").replace(" to ", "-").replace("not visible", "?");
    let rows = groups
        .iter()
        .map(|of| {
            let mut cells = of.keys.clone();
            cells.extend([
                of.sums.runs.to_string(),
                of.sums.failed.to_string(),
                short(words::count(&of.sums.counts.logical_requests)),
                short(words::count(&of.sums.counts.upstream_requests)),
                of.sums.countable.amplification().map_or_else(|| "?".to_owned(), |f| short(words::factor(f))),
                short(words::count(&of.sums.counts.retries)),
                of.sums.countable.retry_ratio().map_or_else(|| "?".to_owned(), |r| short(words::percent(r))),
                lost(&of.sums),
            ]);
            cells
        })
        .collect();
    let header =
        by.iter().copied().chain(["runs", "failed", "asked", "sent", "factor", "retries", "ratio", "lost"]);
    let n = by.len();
    Block::Table {
        title: String::new(),
        header: header.map(str::to_owned).collect(),
        rows,
        right: vec![n, n + 1],
    }
}

fn hidden(sums: &Overview) -> Option<Block> {
    let hidden = match sums.sums.not_countable {
        0 => return None,
        1 => "1 run is not countable: its logs are".to_owned(),
        n => format!("{n} runs are not countable: their logs are"),
    };
    Some(Block::Line(format!(
        "{hidden} cut or do not show retries; sums hold what is visible of them, ratios only the others"
    )))
}

fn worst(of: &Summary<'_>) -> Option<Block> {
    let find = |key: &RunKey| of.runs.iter().find(|run| run.key == *key);
    let rows: Vec<Vec<String>> = of
        .digest
        .worst
        .iter()
        .filter_map(find)
        .map(|run| {
            vec![
                run.key.id.chars().take(ID_SHOWN).collect(),
                run.key.agent.to_string(),
                lost(&Sums::of([*run])),
                words::count(&run.counts.upstream_requests),
                run.outcome.as_str().to_owned(),
                in_short(run),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Block::Table {
        title: "runs that lost the most time (retryscope replay RUN tells more)".to_owned(),
        header: cells(["run", "agent", "lost", "requests", "outcome", "what happened"]),
        rows,
        right: Vec::new(),
    })
}

fn reasons(digest: &Digest) -> Option<Block> {
    let rows: Vec<Vec<String>> =
        digest.reasons.iter().take(SHOWN).map(|(reason, n)| vec![reason.clone(), n.to_string()]).collect();
    (!rows.is_empty()).then(|| Block::Table {
        title: "failed attempts that logs show".to_owned(),
        header: cells(["answer", "attempts"]),
        rows,
        right: vec![1],
    })
}

fn budgets(digest: &Digest) -> Option<Block> {
    let state = |spent: &Spent| match spent.over {
        Some(true) => "over the budget",
        Some(false) => "within",
        None => "not known",
    };
    let mut spent: Vec<&Spent> =
        digest.budgets.iter().filter(|spent| spent.sums.countable.retries.bound.max != Some(0)).collect();
    spent.sort_by_key(|spent| spent.over != Some(true));
    let rows: Vec<Vec<String>> = spent
        .into_iter()
        .take(SHOWN)
        .map(|spent| {
            vec![
                format!("{} {}", spent.scope, spent.name).trim_end().to_owned(),
                (spent.sums.runs - spent.sums.not_countable).to_string(),
                words::bound(spent.sums.countable.retries.bound),
                words::bound(spent.sums.countable.upstream_requests.bound),
                spent.sums.countable.retry_ratio().map_or_else(|| "?".to_owned(), words::percent),
                state(spent).to_owned(),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Block::Table {
        title: "retry budget: 10 % of all requests, ten retries free".to_owned(),
        header: cells(["scope", "runs", "retries", "requests", "ratio", ""]),
        rows,
        right: vec![1],
    })
}

fn fallbacks(digest: &Digest) -> Option<Block> {
    let rows: Vec<Vec<String>> = digest
        .fallbacks
        .iter()
        .take(SHOWN)
        .map(|of| vec![of.from.clone(), of.to.clone(), of.moves.to_string(), of.answered.to_string()])
        .collect();
    (!rows.is_empty()).then(|| Block::Table {
        title: "fallbacks".to_owned(),
        header: cells(["from", "to", "moves", "answered"]),
        rows,
        right: vec![2, 3],
    })
}

fn findings(digest: &Digest) -> Option<Block> {
    let rows: Vec<Vec<String>> = digest
        .findings
        .iter()
        .take(SHOWN)
        .map(|(code, name, runs)| vec![(*code).to_owned(), (*name).to_owned(), runs.to_string()])
        .collect();
    (!rows.is_empty()).then(|| Block::Table {
        title: "findings (retryscope audit tells more)".to_owned(),
        header: cells(["rule", "", "runs"]),
        rows,
        right: vec![2],
    })
}

/// Returns the groups as comma-separated values: bounds in columns of their own, empty where there is none.
pub fn csv(groups: &[Group], by: &[&'static str]) -> String {
    let header = [
        "runs",
        "failed_runs",
        "not_countable_runs",
        "logical_min",
        "logical_max",
        "upstream_min",
        "upstream_max",
        "retries_min",
        "retries_max",
        "retry_ratio_min",
        "retry_ratio_max",
        "waiting_ms",
        "waiting_is_least",
        "lost_ms",
        "lost_is_least",
        "wait_p50_ms",
        "wait_p95_ms",
    ];
    let mut out = by.iter().copied().chain(header).collect::<Vec<_>>().join(",") + "\n";
    let or_empty = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    for of in groups {
        let bounds =
            [&of.sums.counts.logical_requests, &of.sums.counts.upstream_requests, &of.sums.counts.retries];
        let ratio = of.sums.countable.retry_ratio();
        let mut cells: Vec<String> = of.keys.iter().map(|key| quoted(key)).collect();
        cells.extend([of.sums.runs, of.sums.failed, of.sums.not_countable].map(|n| n.to_string()));
        cells.extend(bounds.iter().flat_map(|count| {
            if count.is_visible() {
                [count.bound.min.to_string(), or_empty(count.bound.max)]
            } else {
                [String::new(), String::new()]
            }
        }));
        cells.push(ratio.map(|(min, _)| format!("{min:.4}")).unwrap_or_default());
        cells.push(ratio.and_then(|(_, max)| max).map(|max| format!("{max:.4}")).unwrap_or_default());
        let least = |ms: Option<u64>, is_least: bool| [or_empty(ms), is_least.to_string()];
        cells.extend(least(of.sums.waiting_ms, of.sums.waiting_is_least));
        cells.extend(least(of.sums.lost_ms, of.sums.lost_is_least));
        cells.extend([of.sums.waits.at(0.5), of.sums.waits.at(0.95)].map(or_empty));
        out.push_str(&(cells.join(",") + "\n"));
    }
    out
}

/// Returns the object of a report.
pub fn json<'a>(of: &Summary<'_>, path_of: &'a dyn Fn(retryscope_record::SourceId) -> &'a Path) -> Value {
    let digest = of.digest;
    let find = |key: &RunKey| of.runs.iter().find(|run| run.key == *key);
    let budget = |spent: &Spent| {
        let counts = &spent.sums.countable;
        json!({
            "scope": spent.scope, "name": spent.name, "over": spent.over,
            "runs": spent.sums.runs - spent.sums.not_countable,
            "retries": json::count(&counts.retries), "upstream_requests": json::count(&counts.upstream_requests),
            "retry_ratio": json::ratio(counts.retry_ratio()),
        })
    };
    let mut object = json::sums(&of.overview.sums);
    let more = [
        ("schema", json!("retryscope.report/1")),
        ("by", json!(of.by.join(","))),
        ("groups", of.groups.iter().map(|group| json::group(group, of.by)).collect()),
        ("worst_runs", digest.worst.iter().filter_map(find).map(|run| json::runs_entry(run, &in_short(run), path_of)).collect()),
        ("reasons", digest.reasons.iter().map(|(reason, n)| json!({"answer": reason, "attempts": n})).collect()),
        ("budgets", digest.budgets.iter().map(budget).collect()),
        ("fallbacks", digest.fallbacks.iter().map(|of| json!({"from": of.from, "to": of.to, "moves": of.moves, "answered": of.answered})).collect()),
        ("exhausted", of.overview.exhausted.iter().map(json::exhausted).collect()),
        ("findings", digest.findings.iter().map(|(code, name, runs)| json!({"rule": code, "name": name, "runs": runs})).collect()),
        ("waves", digest.waves.iter().map(|wave| json!({"provider": wave.provider, "runs": wave.runs, "from": json::time(Some(wave.from)), "to": json::time(Some(wave.to)), "answer": wave.reason})).collect()),
    ];
    object.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(object)
}

/// Returns the blocks of a comparison of what `names` name.
pub fn comparison(of: &Comparison, names: (&str, &str)) -> Vec<Block> {
    let line =
        |name: &str, show: &dyn Fn(&Sums) -> String| vec![name.to_owned(), show(&of.before), show(&of.after)];
    let span = |ms, is_least| text::span(ms, is_least).unwrap_or_else(|| "?".to_owned());
    let mut rows = vec![
        line("runs", &|g| g.runs.to_string()),
        line("runs with a failed turn", &|g| match g.runs {
            0 => g.failed.to_string(),
            n => format!("{} ({} %)", g.failed, g.failed * 100 / n),
        }),
        line("logical requests", &|g| words::count(&g.counts.logical_requests)),
        line("upstream requests", &|g| words::count(&g.counts.upstream_requests)),
        line("retries", &|g| words::count(&g.counts.retries)),
        line("retry ratio", &|g| g.countable.retry_ratio().map_or_else(|| "?".to_owned(), words::percent)),
        line("amplification", &|g| g.countable.amplification().map_or_else(|| "?".to_owned(), words::factor)),
        line("runs not countable", &|g| g.not_countable.to_string()),
        line("waited", &|g| span(g.waiting_ms, g.waiting_is_least)),
        line("lost", &|g| span(g.lost_ms, g.lost_is_least)),
        line("single waits, p50", &|g| span(g.waits.at(0.5), false)),
    ];
    let classes = of.classes.iter();
    rows.extend(classes.map(|(class, a, b)| vec![format!("failed: {class}"), a.to_string(), b.to_string()]));
    let mut blocks = vec![Block::Table {
        title: String::new(),
        header: vec![String::new(), names.0.to_owned(), names.1.to_owned()],
        rows,
        right: vec![1, 2],
    }];
    if !of.first_seen.is_empty() {
        let first = of.first_seen.iter().enumerate();
        blocks.push(Block::Rows(
            first.map(|(n, what)| row(if n == 0 { "first seen" } else { "" }, what.clone())).collect(),
        ));
    }
    blocks
}

/// Returns the object of a comparison.
pub fn comparison_json(of: &Comparison, names: (&str, &str)) -> Value {
    let side = |name: &str, sums: &Sums| {
        let mut object = json::sums(sums);
        object.insert("name".into(), json!(name));
        object
    };
    json!({
        "schema": "retryscope.comparison/1",
        "before": side(names.0, &of.before),
        "after": side(names.1, &of.after),
        "failed_attempts": of.classes.iter().map(|(class, a, b)| json!({"class": class, "before": a, "after": b})).collect::<Vec<_>>(),
        "first_seen": of.first_seen,
    })
}
