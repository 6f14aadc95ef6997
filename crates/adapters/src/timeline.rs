//! Puts records of streams that are sent in pieces into the order of their times: an export that is sent again after a
//! failure comes after later ones.
//!
//! What was handed on is kept for a while, so that a stream can be told anew when an earlier record comes late. Memory is
//! bounded: a stream whose beginning was let go of goes on, but what comes late for it has no place any more.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

/// Most records that are kept over all streams, beside those of one export.
const KEPT_LIMIT: usize = 8_192;

/// Most streams that are known.
const STREAM_LIMIT: usize = 16_384;

/// When something happened; when that was noted, and its number, tell what that leaves open.
pub(crate) type When = (Option<DateTime<Utc>>, Option<DateTime<Utc>>, u64);

/// Records of all streams of a source.
pub(crate) struct Timeline<T> {
    streams: BTreeMap<String, Stream<T>>,
    kept: usize,
    /// Counts what was put.
    clock: u64,
    changed: BTreeSet<String>,
}

struct Stream<T> {
    kept: Vec<(When, T)>,
    /// How many of them were handed on.
    handed_on: usize,
    last: When,
    /// The last one that is no longer kept.
    cut_at: Option<When>,
    /// A record came late for what was handed on.
    is_late: bool,
    is_void: bool,
    /// The clock when something was put last.
    put_at: u64,
}

/// What is to be done with a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due<'a, T> {
    /// These follow.
    Next(&'a [(When, T)]),
    /// These are all there are, in another order than before.
    Anew(&'a [(When, T)]),
    /// The order is lost: nothing that was told of it holds. Said once.
    Void,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self { streams: BTreeMap::new(), kept: 0, clock: 0, changed: BTreeSet::new() }
    }
}

impl<T> Default for Stream<T> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            handed_on: 0,
            last: (None, None, 0),
            cut_at: None,
            is_late: false,
            is_void: false,
            put_at: 0,
        }
    }
}

impl<T> Timeline<T> {
    /// Adds a record. One without a time stands where it comes.
    pub(crate) fn put(&mut self, stream: &str, when: When, record: T) {
        if self.streams.len() >= STREAM_LIMIT && !self.streams.contains_key(stream) {
            self.forget_oldest();
        }
        self.clock += 1;
        let known = self.streams.entry(stream.to_owned()).or_default();
        known.put_at = self.clock;
        if known.is_void {
            return;
        }
        let when = if when.0.is_none() { known.last } else { when };
        known.last = known.last.max(when);
        let place = known.kept.partition_point(|(before, _)| *before <= when);
        known.is_late |= place < known.handed_on || known.cut_at.is_some_and(|cut| when < cut);
        known.kept.insert(place, (when, record));
        self.kept += 1;
        self.changed.insert(stream.to_owned());
    }

    /// Has a stream told anew.
    pub(crate) fn put_anew(&mut self, stream: &str) {
        if let Some(known) = self.streams.get_mut(stream) {
            known.is_late |= known.handed_on > 0 || known.cut_at.is_some();
        }
    }

    /// Returns the streams of which something is due.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Returns what is due of a stream.
    pub(crate) fn due(&mut self, stream: &str) -> Due<'_, T> {
        while self.kept > KEPT_LIMIT && self.cut_oldest(stream) {}
        let Some(known) = self.streams.get_mut(stream) else { return Due::Next(&[]) };
        let from = std::mem::replace(&mut known.handed_on, known.kept.len());
        if !std::mem::take(&mut known.is_late) {
            return Due::Next(&known.kept[from..]);
        }
        if known.cut_at.is_none() {
            return Due::Anew(&known.kept);
        }
        self.kept -= known.kept.len();
        *known = Stream { is_void: true, put_at: known.put_at, ..Stream::default() };
        Due::Void
    }

    /// Stops keeping what was handed on of the stream that has been quiet for longest, and of the `current` one last.
    /// Returns false if nothing was handed on.
    fn cut_oldest(&mut self, current: &str) -> bool {
        let done = self.streams.iter_mut().filter(|(_, stream)| stream.handed_on > 0);
        let Some((_, oldest)) = done.min_by_key(|(name, stream)| (*name == current, stream.put_at)) else {
            return false;
        };
        oldest.cut_at = oldest.kept.drain(..oldest.handed_on).map(|(when, _)| when).max();
        self.kept -= std::mem::take(&mut oldest.handed_on);
        true
    }

    fn forget_oldest(&mut self) {
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.put_at);
        if let Some(name) = oldest.map(|(name, _)| name.clone())
            && let Some(stream) = self.streams.remove(&name)
        {
            self.kept -= stream.kept.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> When {
        (DateTime::from_timestamp_millis(ms), None, 0)
    }

    fn values(records: &[(When, i64)]) -> Vec<i64> {
        records.iter().map(|(_, value)| *value).collect()
    }

    #[test]
    fn what_comes_late_is_told_anew() {
        let mut line = Timeline::default();
        for ms in [2, 4, 3] {
            line.put("s", at(ms), ms);
        }
        assert!(matches!(line.due("s"), Due::Next(of) if values(of) == [2, 3, 4]));
        line.put("s", at(5), 5);
        line.put("other", at(1), 1);
        assert!(matches!(line.due("s"), Due::Next(of) if values(of) == [5]));
        line.put("s", at(1), 1);
        assert!(matches!(line.due("s"), Due::Anew(of) if values(of) == [1, 2, 3, 4, 5]));
        assert_eq!(line.due("s"), Due::Next(&[]));
        line.put("s", (None, None, 0), 6);
        assert!(matches!(line.due("s"), Due::Next(of) if values(of) == [6]));
    }

    #[test]
    fn what_comes_too_late_has_no_place() {
        let mut line = Timeline::default();
        let many = i64::try_from(KEPT_LIMIT).unwrap();
        for ms in 1..=many {
            line.put("s", at(ms), ms);
        }
        assert!(matches!(line.due("s"), Due::Next(_)));
        line.put("s", at(many + 1), 0);
        assert!(matches!(line.due("s"), Due::Next(of) if of.len() == 1));
        assert_eq!(line.kept, 1);
        line.put("s", at(many + 2), 0);
        line.put("s", at(1), 0);
        assert_eq!(line.due("s"), Due::Void);
        line.put("s", at(many + 3), 0);
        assert_eq!(line.due("s"), Due::Next(&[]));
        assert_eq!(line.kept, 0);
    }
}
