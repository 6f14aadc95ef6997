//! `export`: what it writes of old runs is what `report` counts.

use std::collections::BTreeMap;

use super::support::retryscope;

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
    assert!(all.lines().all(|line| line.split(',').count() >= 21));
}

#[test]
fn a_form_is_needed() {
    let ran = retryscope(&["export", "--root", "."]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("--format openmetrics"));
}
