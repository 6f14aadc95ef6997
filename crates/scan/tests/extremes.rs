//! Recorded logs in which every number, and every time, is one that nobody writes: nothing stops at it.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;
use std::path::Path;

use chrono::{DateTime, Utc};
use retryscope_analysis::{
    Explainer,
    rules::{Asked, audit},
};
use retryscope_scan::Scan;

/// Numbers at the ends of what JSON and the calendar hold; the last two are times that are just about there.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "9e15",
    "1e308",
    "18446744073709551615",
    "-9223372036854775808",
    "8210266876799999",
    "8210266876",
];

const TIMES: &[&str] = &["0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"];

/// Returns the text with every number in it replaced, those in texts too, but for those that are part of a word or an id.
fn with_numbers(text: &str, number: &str) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        let is_apart = |c: Option<char>| c.is_none_or(|c| " :=,}](\"\n".contains(c));
        changed.push_str(before);
        let stands_alone = is_apart(before.chars().next_back()) && is_apart(after.chars().next());
        changed.push_str(if stands_alone { number } else { digits });
        rest = after;
    }
    changed.push_str(rest);
    changed
}

/// Returns the text with every RFC 3339 time in it replaced.
fn with_times(text: &str, time: &str) -> String {
    let pieces: Vec<&str> = text.split_inclusive('Z').collect();
    let replaced = pieces.iter().map(|piece| {
        let at = piece.rfind('T').and_then(|at| at.checked_sub("2026-01-02".len()));
        match at.and_then(|at| piece.split_at_checked(at)) {
            Some((before, stamp)) if stamp.parse::<DateTime<Utc>>().is_ok() => format!("{before}{time}"),
            _ => (*piece).to_owned(),
        }
    });
    replaced.collect()
}

/// Reads what `change` makes of every text file of every recording, and explains it.
fn read_all(change: impl Fn(&str) -> String) {
    let (mut files, mut runs) = (0, 0);
    for case in retryscope_testkit::cases() {
        let root = tempfile::tempdir().unwrap();
        let logs = case.folder.join("logs");
        for from in retryscope_testkit::files(&logs) {
            let Ok(text) = fs::read_to_string(&from) else { continue };
            let to = root.path().join(from.strip_prefix(&logs).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, change(&text)).unwrap();
            files += 1;
        }
        runs += explain_all(root.path());
    }
    assert!(files > 100 && runs > 50, "{files} files, {runs} runs");
}

fn explain_all(root: &Path) -> usize {
    let now = "2026-12-24T00:00:00Z".parse().unwrap();
    let runs = Scan::of_roots(&[root.to_path_buf()]).runs(now);
    for run in &runs {
        let explainer = Explainer::new(run, &[], now);
        for turn in &run.turns {
            explainer.explain(turn);
        }
    }
    audit(&runs, &Asked::all(None));
    runs.len()
}

#[test]
fn numbers_of_any_size_are_read() {
    for number in NUMBERS {
        read_all(|text| with_numbers(text, number));
    }
}

#[test]
fn times_at_the_ends_of_the_calendar_are_read() {
    for time in TIMES {
        read_all(|text| with_times(text, time));
    }
}

#[test]
fn only_what_stands_alone_is_replaced() {
    assert_eq!(
        with_numbers(r#"{"a":12.5,"id":"x12","b":"wait 3 s"}"#, "9e15"),
        r#"{"a":9e15,"id":"x12","b":"wait 9e15 s"}"#
    );
    assert_eq!(with_times(r#"{"T":"2026-01-02T03:04:05.6Z"}"#, "t"), r#"{"T":"t"}"#);
}
