//! Which thread a record of a rollout belongs to: this one, or one whose history was copied into the file.

use chrono::{DateTime, TimeDelta, Utc};

use crate::codex::time_of_uuid;

/// A history without turn ids is copied in one go when the thread begins.
const COPYING: TimeDelta = TimeDelta::milliseconds(1_000);

pub(super) struct Origin {
    /// The thread of the file's name.
    named: Option<String>,
    thread: Option<String>,
    /// The thread before, when a file goes on with another one.
    before: Option<String>,
    began_at: Option<DateTime<Utc>>,
    /// Nothing but metadata so far.
    fresh: bool,
    /// A history without turn ids is being copied.
    copying: bool,
}

impl Origin {
    pub(super) fn new(named: Option<String>) -> Self {
        Self { named, thread: None, before: None, began_at: None, fresh: true, copying: false }
    }

    /// Takes metadata; returns whether it is the file's own, and not that of a copied history.
    pub(super) fn meta(&mut self, id: &str, at: Option<DateTime<Utc>>) -> bool {
        self.before.clone_from(&self.thread);
        if self.thread.as_deref() == Some(id) {
            return true;
        }
        let own = self.named.as_deref() == Some(id);
        // Right after our own metadata stands that of the thread we come from. Later on, other threads' files were
        // appended to this one.
        if self.thread.is_some() && !own && (self.fresh || self.is_copied_time(at)) {
            self.copying = true;
            return false;
        }
        self.thread = Some(id.to_owned());
        self.began_at = at;
        self.fresh = true;
        self.copying = false;
        true
    }

    pub(super) fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// Returns whether the last metadata began another thread.
    pub(super) fn changed(&self) -> bool {
        self.before.is_some() && self.before != self.thread
    }

    /// Returns the thread of a record; `None` if it was copied.
    pub(super) fn of_record(&mut self, at: Option<DateTime<Utc>>, turn: Option<&str>) -> Option<&str> {
        if self.thread.is_none() {
            self.thread.clone_from(&self.named);
        }
        self.fresh = false;
        let thread = self.thread.as_deref()?;
        // A turn that began before its thread did belongs to another one.
        let older =
            turn.and_then(time_of_uuid).zip(time_of_uuid(thread)).is_some_and(|(turn, thread)| turn < thread);
        if older {
            return None;
        }
        if self.copying {
            // The program names turns of its own in words, which tell no time.
            self.copying = turn.and_then(time_of_uuid).is_none() && self.is_copied_time(at);
            if self.copying {
                return None;
            }
        }
        Some(thread)
    }

    fn is_copied_time(&self, at: Option<DateTime<Utc>>) -> bool {
        self.began_at.zip(at).is_some_and(|(began, at)| at - began < COPYING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(1_700_000_000_000 + ms)
    }

    #[test]
    fn a_copied_history_is_not_ours() {
        let mut origin = Origin::new(None);
        assert!(origin.meta("b", at(0)));
        assert!(!origin.meta("a", at(1)));
        assert_eq!(origin.of_record(at(50), None), None);
        assert_eq!(origin.of_record(at(5_000), None), Some("b"));
        assert_eq!(origin.of_record(at(5_001), None), Some("b"));
    }

    #[test]
    fn a_turn_without_a_time_in_its_id_is_copied_with_the_others() {
        let mut origin = Origin::new(None);
        assert!(origin.meta("b", at(0)));
        assert!(!origin.meta("a", at(1)));
        assert_eq!(origin.of_record(at(50), Some("auto-compact-0")), None);
        assert_eq!(origin.of_record(at(60), None), None);
        assert_eq!(origin.of_record(at(5_000), Some("auto-compact-1")), Some("b"));
    }

    #[test]
    fn an_appended_thread_is_another_run() {
        let mut origin = Origin::new(None);
        assert!(origin.meta("a", at(0)));
        assert_eq!(origin.of_record(at(10), None), Some("a"));
        assert!(origin.meta("b", at(60_000)));
        assert!(origin.changed());
        assert_eq!(origin.of_record(at(60_001), None), Some("b"));
    }

    #[test]
    fn a_turn_older_than_its_thread_was_copied() {
        let mut origin = Origin::new(None);
        let thread = "00000000-0100-7000-8000-000000000000";
        assert!(origin.meta(thread, at(0)));
        assert_eq!(origin.of_record(at(1), Some("00000000-0001-7000-8000-000000000000")), None);
        assert_eq!(origin.of_record(at(1), Some("00000000-0101-7000-8000-000000000000")), Some(thread));
    }
}
