//! What stands in several files, or in one file under several names, counts once; what only begins alike counts.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use retryscope_analysis::RunLine;
use retryscope_scan::{Listing, Scan};
use tempfile::TempDir;

/// One answered request, without any id that would tell a repeat.
fn answered(request: usize) -> String {
    format!(
        r#"{{"v":1,"type":"model.response","ts":"2026-11-29T20:00:0{request}.000Z","run_id":"r","agent":"demo","request_id":"q{request}","provider":"openai","model":"m","attempts":2}}"#
    ) + "\n"
}

fn several(requests: impl IntoIterator<Item = usize>) -> String {
    requests.into_iter().map(answered).collect()
}

fn place(files: &[(&str, String)]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    place
}

/// Lowest numbers of logical requests and of requests sent of the only run; a listing says the same as a full reading.
fn counted(roots: &[PathBuf]) -> [u64; 2] {
    let now: DateTime<Utc> = "2026-12-24T00:00:00Z".parse().unwrap();
    let runs = Scan::of_roots(roots).runs(now);
    assert_eq!(runs.len(), 1, "{runs:#?}");
    let listing = Listing::of_roots(roots, now, None);
    assert_eq!(listing.lines, [RunLine::of(&runs[0])]);
    assert_eq!(listing.scan(&[&runs[0].key]).runs(now), runs);
    [&runs[0].counts.logical_requests, &runs[0].counts.upstream_requests].map(|count| count.bound.min)
}

fn counted_below(place: &TempDir) -> [u64; 2] {
    counted(&[place.path().to_path_buf()])
}

#[test]
fn one_folder_under_several_names_counts_once() {
    let place = place(&[("logs/a.jsonl", several(1..4))]);
    let below = |name: &str| place.path().join(name);
    let twice = |other: PathBuf| assert_eq!(counted(&[below("logs"), other]), [3, 6]);
    twice(below("logs"));
    twice(below("logs/"));
    twice(below("./logs"));
    twice(below("logs/../logs"));
    twice(below("logs/a.jsonl"));
    twice(place.path().to_path_buf());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(below("logs"), below("link")).unwrap();
        twice(below("link"));
        fs::create_dir(below("hard")).unwrap();
        fs::hard_link(below("logs/a.jsonl"), below("hard/b.jsonl")).unwrap();
        twice(below("hard"));
    }
}

#[test]
fn a_copy_adds_nothing_whatever_its_name() {
    for (original, copy) in [("a.jsonl", "b.jsonl"), ("b.jsonl", "a.jsonl"), ("x/e.jsonl", "y/e.jsonl")] {
        for older in [1..4, 1..3, 1..2] {
            let place = place(&[(original, several(1..4)), (copy, several(older))]);
            assert_eq!(counted_below(&place), [3, 6], "{original} {copy}");
        }
        // A copy that was made in the middle of a line, and one whose last line lacks its end.
        for cut in [10, 1] {
            let whole = several(1..3);
            let place = place(&[
                (original, several(1..4)),
                (copy, whole.get(..whole.len() - cut).unwrap().to_owned()),
            ]);
            assert_eq!(counted_below(&place), [3, 6], "{original} {copy}");
        }
    }
}

#[test]
fn what_goes_on_or_only_begins_alike_counts() {
    let rotated = place(&[("e.jsonl.1", several(1..3)), ("e.jsonl", several(3..5))]);
    assert_eq!(counted_below(&rotated), [4, 8]);
    // Repeats without any id are events of their own within one file, and where the files differ.
    let alike = place(&[("a.jsonl", several([1, 2])), ("b.jsonl", several([1, 3]))]);
    let again = place(&[("a.jsonl", several([1, 2, 1, 3]))]);
    assert_eq!(counted_below(&alike), counted_below(&again));
}

#[test]
fn a_problem_below_several_roots_is_told_once() {
    let place = place(&[("a.jsonl", several(1..2))]);
    let gone: &Path = &place.path().join("gone");
    let scan = Scan::of_roots(&[gone.to_path_buf(), place.path().to_path_buf(), gone.to_path_buf()]);
    assert_eq!(scan.problems.iter().map(|p| &*p.path).collect::<Vec<_>>(), [gone]);
}
