//! What was pushed is kept for a while only: files that are too old or too many go, the oldest first.
//!
//! Their counts stay, since a file goes long after it was read. Not for: how much may come in a day (see `push`).

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{NaiveDate, TimeDelta};
use tracing::{info, warn};

/// How much of what was pushed is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Days, today not counted.
    pub days: u32,
    /// Bytes over all files.
    pub bytes: u64,
}

/// A file of one day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct OfDay {
    day: NaiveDate,
    path: PathBuf,
    bytes: u64,
}

/// Deletes what is beyond the limits.
pub(crate) fn clean(folder: &Path, kept: Kept, today: NaiveDate) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let bytes = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
        Some(OfDay { day: day_of(&entry.path())?, path: entry.path(), bytes })
    });
    for file in superfluous(files.collect(), kept, today) {
        match fs::remove_file(&file.path) {
            Ok(()) => info!(path = %file.path.display(), bytes = file.bytes, "pushed data is no longer kept"),
            Err(error) => warn!(path = %file.path.display(), %error, "cannot delete"),
        }
    }
}

/// Returns the day that stands at the end of a name of ours; `None` for a file that is none of ours.
fn day_of(path: &Path) -> Option<NaiveDate> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    let day = ["events-", "otlp-logs-", "otlp-traces-"].iter().find_map(|kind| name.strip_prefix(kind))?;
    day.parse().ok()
}

/// Returns the files that go. Those of today and yesterday stay: the reader may not be through with them.
fn superfluous(mut files: Vec<OfDay>, kept: Kept, today: NaiveDate) -> Vec<OfDay> {
    files.sort();
    let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
    files.retain(|file| {
        let age = today - file.day;
        let goes =
            age > TimeDelta::days(1) && (age > TimeDelta::days(kept.days.into()) || bytes > kept.bytes);
        if goes {
            bytes -= file.bytes;
        }
        goes
    });
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, u64)], kept: Kept, wanted: &[&str]) {
        let files = files.iter().map(|(name, bytes)| {
            let path = PathBuf::from(name);
            OfDay { day: day_of(&path).unwrap(), path, bytes: *bytes }
        });
        let gone = superfluous(files.collect(), kept, "2026-03-31".parse().unwrap());
        let gone: Vec<&str> = gone.iter().map(|file| file.path.to_str().unwrap()).collect();
        assert_eq!(gone, wanted);
    }

    #[test]
    fn old_files_go() {
        let files = [
            ("events-2026-03-01.jsonl", 1),
            ("otlp-logs-2026-02-28.jsonl", 1),
            ("events-2026-03-30.jsonl", 1),
        ];
        check(&files, Kept { days: 30, bytes: 100 }, &["otlp-logs-2026-02-28.jsonl"]);
        check(
            &files,
            Kept { days: 0, bytes: 100 },
            &["otlp-logs-2026-02-28.jsonl", "events-2026-03-01.jsonl"],
        );
    }

    #[test]
    fn the_oldest_go_until_the_rest_is_small_enough() {
        let files = [
            ("events-2026-03-31.jsonl", 50),
            ("events-2026-03-30.jsonl", 50),
            ("events-2026-03-20.jsonl", 10),
            ("otlp-traces-2026-03-21.jsonl", 10),
        ];
        check(&files, Kept { days: 30, bytes: 110 }, &["events-2026-03-20.jsonl"]);
        check(
            &files,
            Kept { days: 30, bytes: 1 },
            &["events-2026-03-20.jsonl", "otlp-traces-2026-03-21.jsonl"],
        );
    }

    #[test]
    fn files_of_others_are_left_alone() {
        for name in
            ["notes.txt", "events-2026-03.jsonl", "mine-2026-03-01.jsonl", "events-2026-03-01.jsonl.bak"]
        {
            assert_eq!(day_of(Path::new(name)), None, "{name}");
        }
    }
}
