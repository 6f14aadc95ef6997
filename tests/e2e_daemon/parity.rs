//! The daemon's counters equal those of `report --format prom` over the same files at the same time.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use retryscope_analysis::Totals;
use retryscope_analysis::rules::HeldTo;
use retryscope_report::metrics::{Kind, RUN_METRICS, run_text};
use retryscope_scan::Scan;

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

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
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
