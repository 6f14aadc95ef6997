//! `retryscope audit`: is the retry policy doing what it should?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use retryscope_analysis::rules::{self, Asked, Finding, Rule, Verdict, pack};
use retryscope_analysis::{Run, words};
use retryscope_policy::own::{self, OwnPolicy};
use retryscope_report::audit as show;
use retryscope_scan::choose::newest;
use serde_json::Value;

use crate::args::{Audit, Display, Format, Pack, Reading};
use crate::commands::replay;
use crate::context::Reader;
use crate::exit::{Exit, hinted};
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Audit,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    if args.rules {
        output.text(&show::markdown())?;
        return Ok(Exit::Ok);
    }
    if let Some(code) = &args.explain {
        let rule = rules::rule(code).ok_or_else(|| unknown(code))?;
        output.text(&show::explain(rule, width()))?;
        return Ok(Exit::Ok);
    }
    let wanted = chosen(args)?;
    let reader = open(reading, &args.run)?;
    reader.complain();
    let all = reader.runs();
    if all.is_empty() && (display.format == Format::Text || args.pack.is_some() || args.write_baseline) {
        return Err(reader.nothing_found());
    }
    let runs = audited(&args.run, &all)?;
    if let Some(Pack::ToolRetry) = args.pack {
        let chosen: Vec<Run> = all.into_iter().filter(|run| runs.contains(&run.key)).collect();
        return pack(&pack::tool_retry(&chosen), &reader, display, output);
    }
    let policy = args.policy.as_deref().map(read_policy).transpose()?;
    let asked = Asked {
        wanted: &|rule| wanted(rule),
        policy: policy.as_ref(),
        data_class: args.data_class.as_deref(),
    };
    let mut findings = rules::audit(&all, &asked);
    findings.retain(|finding| runs.contains(&finding.run));
    let known = match &args.baseline {
        Some(file) if !args.write_baseline => read_baseline(file)?,
        _ => BTreeSet::new(),
    };
    findings.retain(|finding| !known.contains(&show::fingerprint(finding)));
    if let (Some(file), true) = (&args.baseline, args.write_baseline) {
        write_baseline(file, &findings)?;
        let known = words::number(violations(&findings), "finding is", "findings are");
        output.text(&format!("{known} known from now on\n"))?;
        return Ok(reader.exit());
    }
    let unclear = findings.iter().any(|finding| finding.verdict == Verdict::Unknown);
    let broken = violations(&findings);
    if !args.all {
        findings.retain(|finding| finding.verdict == Verdict::Violation);
    }
    let path_of = |id| reader.scan.path(id);
    match display.format {
        Format::Sarif => output.json(&show::sarif(&findings, &path_of))?,
        Format::Junit => output.text(&show::junit(&findings))?,
        Format::Text => {
            output.text(&show::text(&findings, &path_of, width()))?;
            let line = format!(
                "{} in {}",
                words::number(broken, "violation", "violations"),
                words::number(runs.len(), "run", "runs")
            );
            output.text(&if findings.is_empty() { format!("{line}\n") } else { format!("\n{line}\n") })?;
        }
        _ => output.json(&show::json(&findings, &path_of))?,
    }
    Ok(match (broken, reader.exit()) {
        (1.., _) => Exit::Finding,
        (0, Exit::Ok) if args.strict && unclear => Exit::Incomplete,
        (0, exit) => exit,
    })
}

fn pack(
    behaviours: &[pack::Behaviour],
    reader: &Reader,
    display: Display,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let path_of = |id| reader.scan.path(id);
    match display.format {
        Format::Text => output.text(&show::pack(behaviours, &path_of, width()))?,
        Format::Json => output.json(&show::pack_json(behaviours, &path_of))?,
        _ => return Err(hinted("a pack has no such form", ["its forms are text, json".to_owned()])),
    }
    let broken = behaviours.iter().any(|behaviour| behaviour.verdict == Verdict::Violation);
    Ok(if broken { Exit::Finding } else { reader.exit() })
}

/// Returns the test of which rules are wanted: those that begin with a selected code, without the ignored.
fn chosen(args: &Audit) -> anyhow::Result<impl Fn(&Rule) -> bool> {
    let upper = |codes: &[String]| codes.iter().map(|code| code.to_ascii_uppercase()).collect::<Vec<_>>();
    let (select, ignore) = (upper(&args.select), upper(&args.ignore));
    for code in select.iter().chain(&ignore) {
        if !rules::rules().any(|rule| rule.code.starts_with(code.as_str())) {
            return Err(unknown(code));
        }
    }
    Ok(move |rule: &Rule| {
        let any = |codes: &[String]| codes.iter().any(|code| rule.code.starts_with(code.as_str()));
        (select.is_empty() || any(&select)) && !any(&ignore)
    })
}

fn unknown(code: &str) -> anyhow::Error {
    let codes: Vec<&str> = rules::rules().map(|rule| rule.code).collect();
    hinted(format!("there is no rule `{code}`"), [format!("rules are {}", codes.join(", "))])
}

/// Paths are read instead of the usual places; ids are looked up in what is read.
fn open(reading: &Reading, runs: &[String]) -> anyhow::Result<Reader> {
    let paths: Vec<PathBuf> = runs.iter().filter(|run| replay::is_path(run)).map(PathBuf::from).collect();
    if paths.is_empty() {
        return Reader::open(reading);
    }
    if let Some(id) = runs.iter().find(|run| !replay::is_path(run)) {
        return Err(hinted(
            format!("`{id}` is no path, and `{}` is one", paths[0].display()),
            [format!("a run in it: retryscope --root {} audit {id}", paths[0].display())],
        ));
    }
    for path in &paths {
        if !path.exists() {
            return Err(hinted(format!("{} does not exist", path.display()), []));
        }
    }
    Reader::open(&Reading { root: paths, ..reading.clone() })
}

/// Returns the runs that are meant; without any, all.
fn audited(wanted: &[String], all: &[Run]) -> anyhow::Result<BTreeSet<retryscope_record::RunKey>> {
    let ids: Vec<&String> = wanted.iter().filter(|run| !replay::is_path(run)).collect();
    if ids.is_empty() {
        return Ok(all.iter().map(|run| run.key.clone()).collect());
    }
    let mut keys = BTreeSet::new();
    for id in ids {
        let run = match id.as_str() {
            "latest" => newest(all, |_| true),
            id => Some(replay::by_id(id, all)?),
        };
        keys.extend(run.map(|run| run.key.clone()));
    }
    Ok(keys)
}

/// Reads a policy that can be relied on: one with errors would hold runs to what nobody meant.
pub(crate) fn read_policy(file: &Path) -> anyhow::Result<OwnPolicy> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    own::parse(&text).map_err(|error| {
        hinted(
            format!("{name}:{}:{}: {}", error.line, error.column, error.message),
            [format!("retryscope policy check {name} lists everything that is wrong")],
        )
    })
}

fn violations(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.verdict == Verdict::Violation).count()
}

fn read_baseline(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let name = file.display();
    let hints = || ["write one with --baseline FILE --write-baseline".to_owned()];
    let text = std::fs::read_to_string(file)
        .map_err(|error| hinted(format!("cannot read {name}: {error}"), hints()))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| hinted(format!("{name} is no baseline: {error}"), hints()))?;
    let known = value.get("known").and_then(Value::as_array);
    let Some(known) = known else { return Err(hinted(format!("{name} is no baseline"), hints())) };
    Ok(known.iter().filter_map(|entry| entry.as_str().map(str::to_owned)).collect())
}

fn write_baseline(file: &Path, findings: &[Finding]) -> anyhow::Result<()> {
    let known: BTreeSet<String> =
        findings.iter().filter(|f| f.verdict == Verdict::Violation).map(show::fingerprint).collect();
    let text = serde_json::to_string_pretty(
        &serde_json::json!({"schema": "retryscope.baseline/1", "known": known}),
    )?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}
