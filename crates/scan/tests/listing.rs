//! The list of runs: the same lines as a full reading gives, with and without the index, whatever happened to the files.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use retryscope_analysis::{Run, RunLine};
use retryscope_scan::{Listing, Remember, Scan};
use tempfile::TempDir;

fn now() -> DateTime<Utc> {
    "2026-12-24T00:00:00Z".parse().unwrap()
}

/// Some time after all files were written, so that they are remembered.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_mins(1)
}

fn whole(root: &Path) -> Vec<Run> {
    Scan::of_roots(&[root.to_path_buf()]).runs(now())
}

fn lines_of(runs: &[Run]) -> Vec<RunLine> {
    runs.iter().map(RunLine::of).collect()
}

/// Where a test keeps logs and index.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.logs()).unwrap();
        place
    }

    fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("index")
    }

    fn list(&self, root: &Path) -> Listing {
        let (folder, begun) = (self.index(), later());
        let index = Remember { folder: &folder, begun };
        Listing::of_roots(&[root.to_path_buf()], now(), Some(&index))
    }

    /// Lists the logs and checks the lines against a reading of everything.
    fn check(&self) -> Vec<RunLine> {
        let lines = self.list(&self.logs()).lines;
        assert_eq!(lines, lines_of(&whole(&self.logs())));
        lines
    }

    fn write(&self, name: &str, run: &str, retries: usize) -> PathBuf {
        let path = self.logs().join(name);
        fs::write(&path, events(run, retries)).unwrap();
        path
    }
}

fn events(run: &str, retries: usize) -> String {
    let line = |n: usize| {
        format!(
            "{{\"v\":1,\"type\":\"model.retry\",\"ts\":\"2026-11-29T20:00:0{n}.000Z\",\"run_id\":\"{run}\",\"agent\":\"own\",\"attempt\":{n},\"status\":503,\"delay_ms\":100}}\n"
        )
    };
    (1..=retries).map(line).collect()
}

#[test]
fn every_fixture_lists_as_it_reads() {
    let place = Place::new();
    for folder in fs::read_dir(retryscope_testkit::fixtures()).unwrap() {
        let root = folder.unwrap().path();
        let scan = Scan::of_roots(std::slice::from_ref(&root));
        let runs = scan.runs(now());
        let without = Listing::of_roots(std::slice::from_ref(&root), now(), None);
        for listing in [without, place.list(&root), place.list(&root)] {
            assert_eq!(listing.lines, lines_of(&runs), "{}", root.display());
            let gaps = |gaps: &[retryscope_scan::SourceGap]| format!("{gaps:?}");
            assert_eq!(gaps(&listing.gaps), gaps(&scan.gaps));
            assert_eq!(format!("{:?}", listing.problems), format!("{:?}", scan.problems));
        }
    }
}

#[test]
fn a_run_read_alone_is_the_run_read_among_all() {
    let root = retryscope_testkit::fixtures();
    let listing = Listing::of_roots(std::slice::from_ref(&root), now(), None);
    for run in whole(&root) {
        let alone = listing.scan(&[&run.key]).runs(now());
        assert_eq!(alone.iter().find(|other| other.key == run.key), Some(&run), "{:?}", run.key);
    }
}

#[test]
fn a_file_that_changed_is_read_again() {
    let place = Place::new();
    let file = place.write("a.jsonl", "run-a", 1);
    place.write("b.jsonl", "run-b", 1);
    assert_eq!(place.check().len(), 2);
    // Grown.
    fs::write(&file, events("run-a", 2)).unwrap();
    assert_eq!(place.check()[0].upstream_requests.bound.min, 2);
    // As long as before, under the old date.
    let date = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, events("run-c", 2)).unwrap();
    File::options().append(true).open(&file).unwrap().set_modified(date).unwrap();
    assert_eq!(&*place.check()[1].key.id, "run-c");
    // Another file under the name.
    let other = place.write("x.jsonl", "run-d", 2);
    fs::rename(other, &file).unwrap();
    assert_eq!(&*place.check()[1].key.id, "run-d");
    fs::remove_file(&file).unwrap();
    assert_eq!(place.check().len(), 1);
}

#[test]
fn a_run_in_several_files_is_listed_over_all_of_them() {
    let place = Place::new();
    place.write("a.1.jsonl", "run-a", 1);
    let second = place.write("a.2.jsonl", "run-a", 1);
    let after_the_first =
        |retries| events("run-a", retries).lines().skip(1).collect::<Vec<_>>().join("\n") + "\n";
    fs::write(&second, after_the_first(2)).unwrap();
    for _ in 0..2 {
        assert_eq!(place.check()[0].upstream_requests.bound.min, 2);
    }
    fs::write(second, after_the_first(4)).unwrap();
    assert_eq!(place.check()[0].upstream_requests.bound.min, 4);
}

#[test]
fn a_log_that_may_go_on_is_looked_at_again_when_time_has_passed() {
    let place = Place::new();
    place.write("a.jsonl", "run-a", 1);
    let folder = place.index();
    let at = |time: &str| {
        let index = Remember { folder: &folder, begun: later() };
        let listing = Listing::of_roots(&[place.logs()], time.parse().unwrap(), Some(&index));
        listing.lines[0].outcome.as_str()
    };
    assert_eq!(at("2026-11-29T20:01:00Z"), "running");
    assert_eq!(at("2026-11-29T21:00:00Z"), "interrupted");
    assert_eq!(at("2026-11-29T20:01:00Z"), "running");
}

#[test]
fn a_damaged_index_is_made_anew() {
    let place = Place::new();
    place.write("a.jsonl", "run-a", 1);
    place.check();
    let file = fs::read_dir(place.index()).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&file).unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        fs::write(&file, &bad).unwrap();
        place.check();
        assert_eq!(fs::read(&file).unwrap(), good, "byte {at}");
        fs::write(&file, &good[..at]).unwrap();
        place.check();
    }
}

#[test]
fn a_file_touched_just_now_is_not_remembered() {
    let place = Place::new();
    place.write("a.jsonl", "run-a", 1);
    let folder = place.index();
    let size = |begun| {
        let index = Remember { folder: &folder, begun };
        Listing::of_roots(&[place.logs()], now(), Some(&index));
        fs::metadata(fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path()).unwrap().len()
    };
    let without = size(SystemTime::now());
    assert!(without < size(later()));
}

#[test]
fn the_index_holds_nothing_that_was_said() {
    let place = Place::new();
    let line = r#"{"v":1,"type":"model.failed","ts":"2026-11-29T20:00:01.000Z","run_id":"run-a","agent":"own","status":503,"message":"overloaded, says the secret-word"}"#;
    fs::write(place.logs().join("a.jsonl"), line).unwrap();
    place.check();
    for entry in fs::read_dir(place.index()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("secret-word"));
    }
}
