//! The order in which files were written that are parts of one log: `log.2`, `log.1`, `log`.
//!
//! Not for: telling what is a part of what (content and place on disk decide that). A name only orders files beside each
//! other, the oldest first.

use std::path::Path;

/// Sorts by path, but what is rotated before what it was rotated from, and that by age.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    /// The path of the log that is being written.
    log: String,
    is_current: bool,
    /// Rotated copies by number count up with age, those by date down.
    number: std::cmp::Reverse<u32>,
    date: String,
}

impl Age {
    pub(crate) fn of(path: &Path) -> Self {
        let path = path.to_string_lossy();
        let rotated = path.rfind(['.', '-']).and_then(|at| Some((path.get(..at)?, path.get(at + 1..)?)));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match rotated {
            // Larger numbers are dates: nobody keeps ten thousand copies.
            Some((log, suffix)) if is_digits(suffix) && suffix.len() <= 4 => {
                Self::rotated(log, suffix.parse().unwrap_or(0), "")
            }
            Some((log, suffix)) if is_digits(suffix) => Self::rotated(log, 0, suffix),
            _ => Self {
                log: path.into_owned(),
                is_current: true,
                number: std::cmp::Reverse(0),
                date: String::new(),
            },
        }
    }

    fn rotated(log: &str, number: u32, date: &str) -> Self {
        Self {
            log: log.to_owned(),
            is_current: false,
            number: std::cmp::Reverse(number),
            date: date.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_part_of_a_log_comes_first() {
        let sorted = [
            "a/b.jsonl",
            "a/events.jsonl.10",
            "a/events.jsonl.2",
            "a/events.jsonl.1",
            "a/events.jsonl",
            "a/events.jsonl.bak",
            "a/log-20261031",
            "a/log-20261101",
            "a/log",
            "b/events.jsonl.1",
            "b/events.jsonl",
        ];
        let mut paths = sorted;
        paths.reverse();
        paths.sort_by_cached_key(|path| Age::of(Path::new(path)));
        assert_eq!(paths, sorted);
    }
}
