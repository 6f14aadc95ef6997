//! `retryscope doctor`: what was found, what is not visible and how to see it, and what this machine limits.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use retryscope_analysis::Run;
use retryscope_report::{Page, json, text, words};
use serde_json::{Value, json};

use crate::args::{Display, Format, Reading};
use crate::commands::sources::size;
use crate::commands::visibility;
use crate::context::Reader;
use crate::exit::Exit;
use crate::output::{Output, width};

/// Places that could not be read that a page names.
const SHOWN: usize = 10;

/// What was found of one agent.
#[derive(Default)]
struct Found<'a> {
    files: usize,
    bytes: u64,
    orphans: usize,
    runs: Vec<&'a Run>,
    versions: BTreeSet<&'a str>,
}

pub(crate) fn run(reading: &Reading, display: Display, output: &mut Output) -> anyhow::Result<Exit> {
    let reader = Reader::open(reading)?;
    let runs = reader.runs();
    let found = agents(&reader, &runs);
    let limits = limits();
    if display.format == Format::Text {
        output.text(&page(&reader, &runs, &found, &limits))?;
    } else {
        output.json(&object(&reader, &runs, &found, &limits))?;
    }
    Ok(reader.exit())
}

fn agents<'a>(reader: &'a Reader, runs: &'a [Run]) -> BTreeMap<&'a str, Found<'a>> {
    let mut found: BTreeMap<&str, Found<'_>> = BTreeMap::new();
    for source in reader.scan.sources.values() {
        let of = found.entry(source.agent.unwrap_or("by record")).or_default();
        of.files += 1;
        of.bytes += source.bytes;
        of.orphans += usize::from(!source.names_run);
    }
    for run in runs {
        let of = found.entry(&run.key.agent).or_default();
        of.runs.push(run);
        of.versions.extend(run.facts.agent_version.as_deref());
    }
    found
}

fn page(
    reader: &Reader,
    runs: &[Run],
    found: &BTreeMap<&str, Found<'_>>,
    limits: &[(String, String)],
) -> String {
    let mut page = Page::new(width());
    page.line(&format!(
        "retryscope {} on {} {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    ));
    for (index, root) in reader.looked.roots().iter().enumerate() {
        page.row(if index == 0 { "looked in" } else { "" }, &root.display().to_string());
    }
    if reader.looked.roots().is_empty() {
        page.row(
            "looked in",
            "none of the usual places of the known agents is there; retryscope --root DIR reads others",
        );
    }
    if !found.is_empty() {
        page.space();
        let rows: Vec<Vec<String>> = found
            .iter()
            .map(|(agent, of)| {
                let newest = of.runs.iter().filter_map(|run| run.ended_at).max();
                vec![
                    (*agent).to_owned(),
                    versions(&of.versions),
                    of.files.to_string(),
                    size(of.bytes),
                    of.runs.len().to_string(),
                    of.runs.iter().filter(|run| !run.counts.is_countable()).count().to_string(),
                    newest.map_or_else(|| "-".to_owned(), |at| text::ago(at, reader.now)),
                ]
            })
            .collect();
        page.table(
            &["agent", "versions", "files", "size", "runs", "not countable", "newest"],
            &rows,
            &[2, 3, 4, 5],
            0,
        );
        visibility::show(&mut page, &visibility::of(runs));
    }
    let orphans: usize = found.values().map(|of| of.orphans).sum();
    if orphans > 0 {
        page.space();
        let name = if orphans == 1 { "file names" } else { "files name" };
        page.line(&format!(
            "{orphans} {name} no run, and no total holds them (retryscope sources lists them)"
        ));
    }
    page.space();
    for (name, what) in limits {
        page.row(name, what);
    }
    let problems = problems(reader);
    if !problems.is_empty() {
        page.space();
        page.line("could not be read");
        for problem in problems.iter().take(SHOWN) {
            page.line(&format!("  {problem}"));
        }
        if problems.len() > SHOWN {
            page.line(&format!("  and {} more", problems.len() - SHOWN));
        }
    }
    page.finish()
}

/// Names up to three versions, the newest last.
fn versions(all: &BTreeSet<&str>) -> String {
    let mut names: Vec<&str> = all.iter().copied().collect();
    names.sort_by_key(|name| visibility::parts(name));
    match names.as_slice() {
        [] => "not in the logs".to_owned(),
        [first, .., last] if names.len() > 3 => format!("{first} ... {last} ({})", names.len()),
        few => few.join(", "),
    }
}

fn problems(reader: &Reader) -> Vec<String> {
    let files = reader.scan.problems.iter().map(|p| format!("{}: {}", p.path.display(), p.message));
    let gaps = reader.scan.gaps.iter();
    let gaps = gaps.map(|gap| {
        format!("{}{}: {}", reader.scan.path(gap.source).display(), gap.place, words::gap(&gap.kind))
    });
    files.chain(gaps).collect()
}

/// Returns what this machine limits, and whether a daemon runs here.
fn limits() -> Vec<(String, String)> {
    let mut limits = Vec::new();
    if let Some(open) = open_files() {
        let note = if open < 1024 { "; the daemon wants 1024 or more (ulimit -n)" } else { "" };
        limits.push(("open files".to_owned(), format!("{open} at a time{note}")));
    }
    let inotify = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    if let (Some(watches), Some(instances)) = (inotify("max_user_watches"), inotify("max_user_instances")) {
        let note = if watches < 8192 || instances < 64 {
            "; low: the daemon then looks at folders in turn, a little later (sysctl fs.inotify.max_user_watches)"
        } else {
            ""
        };
        limits.push(("inotify".to_owned(), format!("{watches} folders, {instances} instances{note}")));
    }
    limits.push(("daemon".to_owned(), daemon()));
    limits
}

#[cfg(unix)]
fn open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn open_files() -> Option<u64> {
    None
}

/// Asks the usual place of the daemon whether it lives.
fn daemon() -> String {
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, 9748));
    let wait = Duration::from_millis(300);
    let ask = || -> std::io::Result<String> {
        let mut connection = TcpStream::connect_timeout(&place, wait)?;
        connection.set_read_timeout(Some(wait))?;
        connection.write_all(b"GET /-/ready HTTP/1.0\r\nHost: 127.0.0.1:9748\r\n\r\n")?;
        let mut answer = String::new();
        connection.take(4096).read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200") => {
            format!("serves metrics at http://{place}/metrics")
        }
        Ok(answer) if answer.contains(" 503 ") => format!("at {place} reads its backlog"),
        Ok(_) => format!("something else answers at {place}"),
        Err(_) => format!("none at {place} (retryscoped starts one)"),
    }
}

fn object(
    reader: &Reader,
    runs: &[Run],
    found: &BTreeMap<&str, Found<'_>>,
    limits: &[(String, String)],
) -> Value {
    let agents = found.iter().map(|(agent, of)| {
        json!({
            "agent": agent,
            "versions": of.versions,
            "files": of.files,
            "bytes": of.bytes,
            "orphans": of.orphans,
            "runs": of.runs.len(),
            "not_countable_runs": of.runs.iter().filter(|run| !run.counts.is_countable()).count(),
            "newest": json::time(of.runs.iter().filter_map(|run| run.ended_at).max()),
        })
    });
    let policies = visibility::of(runs);
    let views = policies.iter().flat_map(|policy| policy.views.iter().map(move |view| (policy, view))).map(|(policy, view)| {
        json!({"policy": policy.title, "log": view.id, "place": view.place, "shows": visibility::shows(view.attempts), "enable": view.enable})
    });
    json!({
        "schema": "retryscope.doctor/1",
        "version": env!("CARGO_PKG_VERSION"),
        "platform": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "roots": reader.looked.roots(),
        "agents": agents.collect::<Vec<_>>(),
        "logs": views.collect::<Vec<_>>(),
        "limits": limits.iter().map(|(name, what)| json!({"name": name, "what": what})).collect::<Vec<_>>(),
        "unreadable": problems(reader),
    })
}
