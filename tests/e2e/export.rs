//! `export`: what it writes of old runs is what `report` counts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::support::{all_fixtures, retryscope};

/// Series to their last value, without zeros; arrival, which differs on purpose, is summed over.
fn last_values(text: &str, has_times: bool) -> BTreeMap<String, f64> {
    let mut last: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let line = if has_times { line.rsplit_once(' ').unwrap().0 } else { line };
        let (series, value) = line.rsplit_once(' ').unwrap();
        last.insert(series.to_owned(), value.parse().unwrap());
    }
    let mut sums = BTreeMap::new();
    for (series, value) in last.into_iter().filter(|(_, value)| *value > 0.0) {
        let (name, labels) = series.split_once('{').unwrap();
        let mut labels: Vec<&str> = labels.trim_end_matches('}').split("\",").collect();
        labels.retain(|label| !label.starts_with("arrival="));
        let labels: Vec<&str> = labels.iter().map(|label| label.trim_end_matches('"')).collect();
        *sums.entry(format!("{name} {labels:?}")).or_insert(0.0) += value;
    }
    sums
}

fn stdout(args: &[&str]) -> String {
    String::from_utf8(retryscope(args).output().unwrap().stdout).unwrap()
}

#[test]
fn openmetrics_ends_at_the_numbers_of_the_report() {
    let exported = stdout(&["export", "--format", "openmetrics", "--root", "."]);
    assert!(exported.ends_with("# EOF\n"));
    let exported = last_values(&exported, true);
    let reported = last_values(&stdout(&["report", "--format", "prom", "--root", "."]), false);
    assert!(reported.len() > 300, "only {} series", reported.len());
    let differ: Vec<_> = reported
        .iter()
        // Findings are no counters of requests, and have no time.
        .filter(|(series, _)| !series.starts_with("retryscope_audit_findings_total"))
        .filter(|(series, value)| exported.get(*series).is_none_or(|other| (other - **value).abs() > 1e-6))
        .map(|(series, value)| format!("{series}: {value} reported, {:?} exported", exported.get(series)))
        .chain(exported.keys().filter(|s| !reported.contains_key(*s)).map(|s| format!("{s}: not reported")))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn counters_only_grow_and_times_do_too() {
    let mut before: BTreeMap<String, (i64, f64)> = BTreeMap::new();
    for line in stdout(&["export", "--format", "openmetrics", "--root", "."]).lines() {
        if line.starts_with('#') {
            continue;
        }
        let (rest, at) = line.rsplit_once(' ').unwrap();
        let (series, value) = rest.rsplit_once(' ').unwrap();
        let now: (i64, f64) = (at.parse().unwrap(), value.parse().unwrap());
        if let Some(known) = before.insert(series.to_owned(), now) {
            assert!(known.0 < now.0 && known.1 <= now.1, "{series}: {known:?}, then {now:?}");
        } else {
            assert!(now.1 <= 0.0, "{series} begins at {}, so its first increase is lost", now.1);
        }
    }
}

#[test]
fn a_span_cuts_both_ends() {
    let all = stdout(&["export", "--format", "csv", "--root", "rivumi"]);
    let none = stdout(&["export", "--format", "csv", "--root", "rivumi", "--until", "2001-01-01"]);
    assert!(all.lines().count() > 20, "{all}");
    assert_eq!(none.lines().count(), 1, "the heading alone: {none}");
    assert!(all.lines().all(|line| line.split(',').count() >= 22));
}

/// Least and most of a number, as far as it has a most.
type Ends = (u64, Option<u64>);

fn ends(value: &Value) -> Ends {
    let of = |key: &str| value[key].as_u64();
    of("value").map_or_else(|| (of("min").unwrap_or(0), of("max")), |exact| (exact, Some(exact)))
}

/// The lines of a table add up to what is counted and waited, run by run.
#[test]
fn a_table_holds_what_is_counted() {
    let mut looked_at = 0;
    for (name, folder, _) in all_fixtures() {
        let logs = folder.join("logs");
        let root = ["--root", logs.to_str().unwrap()];
        let table = stdout(&[&["export", "--format", "csv"], &root[..]].concat());
        let mut lines = table.lines().map(cells);
        let heading = lines.next().unwrap();
        let lines: Vec<BTreeMap<String, String>> =
            lines.map(|line| heading.iter().cloned().zip(line).collect()).collect();
        let listed: Value =
            serde_json::from_str(&stdout(&[&["runs", "--format", "json"], &root[..]].concat())).unwrap();
        for run in listed["runs"].as_array().unwrap() {
            for (source, counts) in
                [("foreground", &run["counts"]), ("background", &run["background_counts"])]
            {
                let wanted = &counts["upstream_requests"];
                let of_run = lines.iter().filter(|line| {
                    line["run_id"] == run["run"]["run_id"]
                        && line["agent"] == run["run"]["agent"]
                        && line["source"] == source
                });
                let sum = of_run.clone().fold((0, Some(0)), |(min, max): Ends, line| {
                    let more = line["sends_max"].parse::<u64>().ok();
                    (min + line["sends_min"].parse::<u64>().unwrap(), max.zip(more).map(|(a, b)| a + b))
                });
                looked_at += of_run.clone().count();
                if wanted["evidence"] == "not_visible" {
                    assert!(source == "background" || sum.1.is_none(), "{name}: {sum:?}");
                    continue;
                }
                assert_eq!(sum, ends(wanted), "{name}: {source} requests of {}", run["run"]["run_id"]);
            }
        }
    }
    assert!(looked_at > 200, "only {looked_at} lines");
}

/// The cells of a line, of which those with commas stand in quotes.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells
}

#[test]
fn a_form_is_needed() {
    let ran = retryscope(&["export", "--root", "."]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("--format openmetrics"));
}
