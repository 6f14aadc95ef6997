//! The daemon's counters equal those of `report --format prom` over the same files at the same time.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use retryscope_analysis::Totals;
use retryscope_analysis::rules::HeldTo;
use retryscope_report::metrics::{Kind, RUN_METRICS, run_text};
use retryscope_scan::Scan;
use retryscope_testkit::copy;

use super::support::{Daemon, Place};

const NOW: &str = "2026-12-24T00:00:00Z";

fn cases() -> Vec<PathBuf> {
    retryscope_testkit::cases().into_iter().map(|case| case.folder).collect()
}

/// What `report --format prom` prints.
fn report(root: &Path) -> Vec<String> {
    let now: DateTime<Utc> = NOW.parse().unwrap();
    let runs = Scan::of_roots(&[root.to_path_buf()]).runs(now);
    lines(&run_text(&Totals::of(&runs, now)))
}

fn lines(text: &str) -> Vec<String> {
    let is_run_metric = |line: &&str| RUN_METRICS.iter().any(|(_, row)| line.starts_with(row.name));
    text.lines().filter(is_run_metric).map(str::to_owned).collect()
}

fn check(root: &Path) {
    let place = Place::new();
    let daemon = Daemon::start(root, &place.state(), &["--as-of", NOW]);
    let (ours, theirs) = (lines(&daemon.metrics()), report(root));
    assert!(!theirs.is_empty() || ours.is_empty());
    let differ: Vec<_> = ours
        .iter()
        .filter(|l| !theirs.contains(l))
        .map(|l| format!("daemon {l}"))
        .chain(theirs.iter().filter(|l| !ours.contains(l)).map(|l| format!("report {l}")))
        .collect();
    assert!(differ.is_empty(), "{}:\n{}", root.display(), differ.join("\n"));
}

/// One test a share of the fixtures, so that they run beside each other.
fn check_share(share: usize, of: usize) {
    for case in cases().iter().skip(share).step_by(of) {
        check(&case.join("logs"));
    }
}

#[test]
fn settings_above_the_root_are_in_force_and_stay_so_after_a_restart() {
    let place = Place::new();
    let sessions =
        retryscope_testkit::fixtures().join("pi/provider-retries-hidden/logs/home/.pi/agent/sessions");
    let runs = |_| {
        let daemon = Daemon::start(&sessions, &place.state(), &["--as-of", NOW]);
        let answer = daemon.get("/api/v1/runs").body;
        assert_eq!(daemon.stop(), Some(0));
        answer
    };
    let [first, second] = [1, 2].map(runs);
    let runs: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(runs["runs"][0]["counts"]["upstream_requests"]["max"], 3, "{first}");
    assert_eq!(first, second);
}

#[test]
fn every_fixture_counts_as_in_a_report_1() {
    check_share(0, 2);
}

#[test]
fn every_fixture_counts_as_in_a_report_2() {
    check_share(1, 2);
}

#[test]
fn all_fixtures_together_count_as_in_a_report() {
    check(&retryscope_testkit::fixtures());
}

#[test]
fn what_comes_line_by_line_counts_as_what_is_there() {
    let place = Place::new();
    let daemon = place.start_with(&["--as-of", NOW]);
    for case in cases().iter().step_by(9) {
        let name = case.file_name().unwrap();
        copy(&case.join("logs"), &place.folder.path().join("logs").join(name));
    }
    // Labels of what was counted before everything was known stay as they were; how much was counted does not.
    let wanted = sums(&report(&place.folder.path().join("logs")));
    super::support::until("the same counters", || {
        let ours = sums(&lines(&daemon.metrics()));
        if ours == wanted { Ok(()) } else { Err((ours, wanted.clone())) }
    });
}

/// Sum of each counter over all its series.
fn sums(lines: &[String]) -> Vec<(&'static str, f64)> {
    let counters = RUN_METRICS.iter().filter(|(_, row)| row.kind == Kind::Counter);
    counters.map(|(_, row)| (row.name, super::support::sum(&lines.join("\n"), row.name, ""))).collect()
}

/// A policy that the daemon is started with finds what the runs themselves do not say, as the report with that policy does.
#[test]
fn a_policy_decides_who_may_receive_data() {
    let place = Place::new();
    let moved = fs::read_to_string(retryscope_testkit::fixtures().join("rules/RS402/near.jsonl")).unwrap();
    place.append("events.jsonl", &moved);
    let text = "[recipients.code]\nto = \"same-provider\"\n";
    let file = place.state().with_file_name("policy.toml");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();

    let held = place.start_with(&["--as-of", NOW, "--policy", file, "--data-class", "code"]);
    assert_eq!(held.sum_of("retryscope_audit_findings_total", "rule=\"RS401\""), 1.0);
    let mut totals = Totals::default();
    let policy = retryscope_policy::own::parse(text).unwrap();
    totals.hold_to(Some(HeldTo { policy, data_class: Some("code".to_owned()) }));
    let now: DateTime<Utc> = NOW.parse().unwrap();
    for run in Scan::of_roots(&[place.log("events.jsonl")]).runs(now) {
        totals.add(&run, now);
    }
    assert_eq!(lines(&held.metrics()), lines(&run_text(&totals)));
    drop(held);

    let free = Place::new();
    free.append("events.jsonl", &moved);
    let free = free.start_with(&["--as-of", NOW]);
    assert_eq!(free.sum_of("retryscope_audit_findings_total", "rule=\"RS401\""), 0.0);
}

fn json(answer: &super::support::Answer) -> serde_json::Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// What the API answers is what the program says of the same logs.
#[test]
fn the_api_answers_as_the_program_does() {
    let place = Place::new();
    let line = |agent: &str, run: &str, kind: &str, more: &str| {
        format!(
            "{{\"v\":1,\"type\":\"{kind}\",\"ts\":\"2026-11-01T10:00:00.000Z\",\"run_id\":\"{run}\",\"agent\":\"{agent}\"{more}}}\n"
        )
    };
    for (agent, run) in [("demo", "same"), ("other", "same")] {
        place.append("events.jsonl", &line(agent, run, "model.response", ",\"request_id\":\"q\""));
        place.append("events.jsonl", &line(agent, run, "run.finished", ",\"outcome\":\"succeeded\""));
    }
    place.append("events.jsonl", &line("demo", "parent-1", "model.response", ",\"request_id\":\"q\""));
    place.append("events.jsonl", &line("demo", "parent-1", "run.finished", ",\"outcome\":\"succeeded\""));
    let child = ",\"parent_run_id\":\"parent-1\"";
    let failed = format!("{child},\"request_id\":\"q\",\"status\":503");
    place.append("events.jsonl", &line("demo", "child-1", "model.failed", &failed));
    let ended = format!("{child},\"outcome\":\"failed\"");
    place.append("events.jsonl", &line("demo", "child-1", "run.finished", &ended));

    let daemon = place.start_with(&["--as-of", NOW]);
    let now: DateTime<Utc> = NOW.parse().unwrap();
    let scan = Scan::of_roots(&[place.folder.path().join("logs")]);
    let runs = scan.runs(now);
    let parent = runs.iter().find(|run| &*run.key.id == "parent-1").unwrap();
    let children = retryscope_scan::choose::Children::among(&runs);
    let wanted = retryscope_analysis::summarize(parent, children.of(parent), now);
    assert!(wanted.contains("subagent"), "{wanted}");
    for name in ["parent-1", "demo:parent-1", "par"] {
        let told = json(&daemon.get(&format!("/api/v1/runs/{name}")));
        assert_eq!(told["run"]["run_id"], "parent-1", "{name}");
        assert_eq!(told["summary"], wanted.as_str(), "{name}");
    }
    let listed = json(&daemon.get("/api/v1/runs"));
    let listed = listed["runs"].as_array().unwrap();
    let listed = listed.iter().find(|entry| entry["run"]["run_id"] == "parent-1").unwrap();
    assert_eq!(listed["summary"], wanted.as_str());

    let several = daemon.get("/api/v1/runs/same");
    assert_eq!(several.status, 409);
    assert_eq!(json(&several)["candidates"], serde_json::json!(["demo:same", "other:same"]));
    assert_eq!(json(&daemon.get("/api/v1/runs/other:same"))["run"]["agent"], "other");
    for name in ["none", "third:same"] {
        assert_eq!(daemon.get(&format!("/api/v1/runs/{name}")).status, 404, "{name}");
    }
}

/// However many names a log makes up, each metric has as many series as the contract allows.
#[test]
fn names_beyond_the_limits_are_folded_in_every_metric() {
    let place = Place::new();
    let mut text = String::new();
    for n in 0..120 {
        let line = |kind: &str, more: &str| {
            format!(
                "{{\"v\":1,\"type\":\"{kind}\",\"ts\":\"2026-12-23T23:59:{:02}.000Z\",\"run_id\":\"r{n}\",\"agent\":\"agent{n}\",\"agent_version\":\"{n}\"{more}}}\n",
                n % 60
            )
        };
        let asked = format!(
            ",\"request_id\":\"q\",\"provider\":\"provider{n}\",\"model\":\"m\",\"status\":429,\"code\":\"insufficient_quota\",\"reset_at\":\"2026-12-25T00:00:00Z\""
        );
        text += &line("model.failed", &asked);
        // Versions of one agent.
        text += &line("model.response", &format!(",\"request_id\":\"p\",\"provider\":\"provider{n}\""))
            .replace(&format!("\"agent{n}\""), "\"agent1\"")
            .replace(&format!("\"r{n}\""), &format!("\"s{n}\""));
    }
    place.append("events.jsonl", &text);
    let daemon = place.start_with(&["--as-of", NOW]);
    let metrics = daemon.metrics();
    let series = |name: &str| metrics.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
    let sum = |name: &str| super::support::sum(&metrics, name, "");
    for (name, most) in [
        ("retryscope_runs_active", 21),
        ("retryscope_agent_info", 21 * 21),
        ("retryscope_hidden_requests_estimate", 2 * 101),
        ("retryscope_quota_reset_timestamp_seconds", 101),
    ] {
        assert!((1..=most).contains(&series(name)), "{name}: {}", series(name));
    }
    let versions = metrics
        .lines()
        .filter(|line| line.starts_with("retryscope_agent_info{") && line.contains("agent=\"agent1\""));
    assert_eq!(versions.count(), 21);
    // Whose names are folded is counted all the same, and under the same name everywhere.
    assert_eq!(sum("retryscope_runs_active"), 240.0);
    let names = |name: &str| -> std::collections::BTreeSet<String> {
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.filter_map(|line| Some(line.split("agent=\"").nth(1)?.split('"').next()?.to_owned())).collect()
    };
    assert_eq!(names("retryscope_runs_active"), names("retryscope_logical_requests_total"));
}
