//! Recorded runs of which one log lost its beginning, or lies in two files: what is claimed allows what the server saw.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;
use std::path::{Path, PathBuf};

use retryscope_analysis::{Bound, Counts};
use retryscope_scan::Scan;
use retryscope_testkit::Case;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Places at which each log is cut.
const CUTS: usize = 8;

/// A copy of the logs of a case, to change.
struct Copy {
    root: TempDir,
    files: Vec<PathBuf>,
}

impl Copy {
    fn of(case: &Case) -> Self {
        let root = tempfile::tempdir().unwrap();
        let logs = case.folder.join("logs");
        let files = retryscope_testkit::files(&logs);
        let copied = files.iter().map(|from| {
            let to = root.path().join(from.strip_prefix(&logs).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, &to).unwrap();
            to
        });
        let files = copied.collect();
        Self { root, files }
    }

    fn named(&self, is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        self.files.iter().filter(|path| is_it(&name(path))).cloned().collect()
    }

    /// Checks what is claimed of all runs together.
    fn check(&self, case: &Case, what: &str) {
        let runs =
            Scan::of_roots(&[self.root.path().to_path_buf()]).runs("2026-12-24T00:00:00Z".parse().unwrap());
        let sum = runs.iter().fold(Counts::ZERO, |sum, run| sum.plus(&run.counts));
        let claims = [
            ("logical_requests", sum.logical_requests),
            ("upstream_requests", sum.upstream_requests),
            ("retries", sum.retries),
        ];
        for (name, claim) in &claims {
            let Some(min) = case.truth[*name].as_u64() else { continue };
            let truth = Bound::range(min, case.truth[format!("{name}_max")].as_u64());
            let max = truth.max.unwrap_or(truth.min);
            let allows = claim.bound.min <= max && claim.bound.max.is_none_or(|most| most >= truth.min);
            assert!(allows, "{}, {what}: {name} {:?}, truth {truth:?}", case.name, claim.bound);
        }
        for run in &runs {
            let counts = &run.counts;
            let parts = [&counts.logical_requests, &counts.retries, &counts.fallbacks];
            let sends: u64 = parts.iter().map(|count| count.bound.min).sum();
            assert!(counts.upstream_requests.bound.min >= sends, "{}, {what}: {counts:?}", case.name);
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = retryscope_testkit::cases();
    cases.retain(|case| case.name.starts_with("codex/") || case.name.starts_with("opencode/"));
    cases
}

/// Returns the records of an export, one a line.
fn records(export: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for body in export.lines() {
        let body: Value = serde_json::from_str(body).unwrap();
        for resource in body["resourceLogs"].as_array().into_iter().flatten() {
            for scope in resource["scopeLogs"].as_array().into_iter().flatten() {
                for record in scope["logRecords"].as_array().into_iter().flatten() {
                    let scope = json!({"scope": scope["scope"], "logRecords": [record]});
                    let resource = json!({"resource": resource["resource"], "scopeLogs": [scope]});
                    lines.push(json!({"resourceLogs": [resource]}).to_string());
                }
            }
        }
    }
    lines
}

/// Takes the beginning of a log away, or puts it into a file of its own, at several places.
fn cut(case: &Case, copy: &Copy, path: &Path, lines: &[String]) {
    let write = |path: &Path, lines: &[String]| fs::write(path, lines.join("\n") + "\n").unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    for at in (1..lines.len()).step_by((lines.len() / CUTS).max(1)) {
        let (before, after) = lines.split_at(at);
        write(path, after);
        copy.check(case, &format!("{name} without its first {at} lines"));
        for other in [format!("a-{name}"), format!("z-{name}")] {
            let other = path.with_file_name(other);
            write(&other, before);
            copy.check(case, &format!("{name} in two files, cut after line {at}"));
            fs::remove_file(&other).unwrap();
        }
    }
    write(path, lines);
}

#[test]
fn exports_without_their_beginning_claim_no_more() {
    let mut found = 0;
    for case in cases() {
        let copy = Copy::of(&case);
        for path in copy.named(|name| name.starts_with("otlp-logs")) {
            found += 1;
            cut(&case, &copy, &path, &records(&fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(found > 10);
}

#[test]
fn text_logs_without_their_beginning_claim_no_more() {
    let mut found = 0;
    for case in cases() {
        let copy = Copy::of(&case);
        for path in copy.named(|name| Path::new(name).extension().is_some_and(|ending| ending == "log")) {
            found += 1;
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<String> =
                text.lines().filter(|line| line.contains("ses_")).map(str::to_owned).collect();
            cut(&case, &copy, &path, &lines);
        }
    }
    assert!(found > 10);
}

#[test]
fn databases_of_lines_without_some_rows_claim_no_more() {
    let mut found = 0;
    for case in cases() {
        let copy = Copy::of(&case);
        for path in copy.named(|name| name.starts_with("logs_")) {
            let whole = fs::read(&path).unwrap();
            let open = || rusqlite::Connection::open(&path).unwrap();
            let ids: Vec<i64> = {
                let database = open();
                let mut ids = database.prepare("select id from logs order by id").unwrap();
                ids.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            };
            for id in &ids {
                for lost in ["<", ">"] {
                    open().execute(&format!("delete from logs where id {lost} ?1"), [id]).unwrap();
                    copy.check(&case, &format!("without rows {lost} {id}"));
                    fs::write(&path, &whole).unwrap();
                }
            }
            found += ids.len();
        }
    }
    assert!(found > 3);
}
