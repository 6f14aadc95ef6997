//! The numbers that writers give their events, +1 each: a jump is loss.
//!
//! A writer counts over all its runs, or anew in each of them, and may begin again at 0 when its process does. Not for:
//! repeats, which are told by all that names an event (the analysis drops them).

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use retryscope_events::Event;
use serde::{Deserialize, Serialize};

/// Writers, and runs of writers, whose last number is remembered; beyond, the one seen first is forgotten.
const LIMIT: usize = 1_000;

/// What is known of the numbers of one log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Sequences {
    writers: VecDeque<Writer>,
    runs: VecDeque<OfRun>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Writer {
    name: String,
    last: u64,
    /// It begins at 0 in each run.
    counts_runs_apart: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OfRun {
    run: String,
    writer: String,
    last: u64,
    /// When number 0 was written.
    begun: Option<DateTime<Utc>>,
}

impl Sequences {
    /// Takes note of the number of an event; returns how many are missing before it.
    pub(super) fn missing_before(&mut self, event: &Event) -> u64 {
        let Some(seq) = event.seq else { return 0 };
        let name = event.writer.as_deref().unwrap_or(&event.run_id);
        let known = self.writers.iter().rposition(|known| known.name == name);
        let known_writer = known.is_some();
        let writer = known.unwrap_or_else(|| {
            let new = Writer { name: name.to_owned(), last: seq, counts_runs_apart: false };
            push(&mut self.writers, new)
        });
        let Some(writer) = self.writers.get_mut(writer) else { return 0 };
        let is_same = |of: &OfRun| of.run == event.run_id && of.writer == name;
        let run = self.runs.iter().rposition(is_same).and_then(|place| self.runs.get_mut(place));
        let begins = seq == 0 && run.as_ref().is_none_or(|run| run.begun != event.ts);
        writer.counts_runs_apart |= begins && known_writer && run.is_none();
        if begins {
            writer.last = 0;
        }
        let of_run = run.as_ref().map(|run| if begins { 0 } else { run.last });
        let last = match of_run {
            Some(last) if writer.counts_runs_apart => last,
            Some(last) => last.max(writer.last),
            // Where this run began is not told by the numbers of another one.
            None if writer.counts_runs_apart => seq,
            None => writer.last,
        };
        writer.last = writer.last.max(seq);
        let begun = (seq == 0).then_some(event.ts).flatten();
        if let Some(run) = run {
            run.last = if begins { 0 } else { run.last.max(seq) };
            run.begun = begun.or(run.begun);
        } else {
            let (run, writer) = (event.run_id.clone(), name.to_owned());
            push(&mut self.runs, OfRun { run, writer, last: seq, begun });
        }
        seq.saturating_sub(last.saturating_add(1))
    }
}

/// Adds one, forgets the oldest beyond the limit, and returns where the new one stands.
fn push<T>(known: &mut VecDeque<T>, new: T) -> usize {
    if known.len() == LIMIT {
        known.pop_front();
    }
    known.push_back(new);
    known.len() - 1
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use retryscope_events::{Event, ModelRequest};

    use super::Sequences;

    /// Returns what is missing before each event: run and number, written a second apart.
    fn missing(events: &[(&str, u64)], writer: Option<&str>) -> Vec<u64> {
        let mut sequences = Sequences::default();
        let mut at = DateTime::UNIX_EPOCH;
        let mut missing_before = |(run, seq): &(&str, u64)| {
            at += TimeDelta::seconds(1);
            let event = Event::new(*run, at, ModelRequest::new()).seq(*seq);
            sequences.missing_before(&match writer {
                Some(writer) => event.writer(writer),
                None => event,
            })
        };
        events.iter().map(&mut missing_before).collect()
    }

    #[test]
    fn a_jump_is_loss_however_a_writer_counts() {
        for writer in [Some("w"), None] {
            assert_eq!(missing(&[("a", 0), ("a", 1), ("a", 4)], writer), [0, 0, 2]);
            // A log may begin in the middle, and lines may come late.
            assert_eq!(missing(&[("a", 7), ("a", 9), ("a", 8), ("a", 10)], writer), [0, 1, 0, 0]);
            // Anew in each run, one after the other and side by side.
            assert_eq!(missing(&[("a", 0), ("a", 3), ("b", 0), ("b", 2)], writer), [0, 2, 0, 1]);
            assert_eq!(
                missing(&[("a", 0), ("a", 1), ("b", 0), ("a", 2), ("b", 1), ("a", 3), ("b", 3)], writer),
                [0, 0, 0, 0, 0, 0, 1]
            );
            // The process began again.
            assert_eq!(missing(&[("a", 0), ("a", 1), ("a", 2), ("a", 0), ("a", 2)], writer), [0, 0, 0, 0, 1]);
            assert_eq!(missing(&[("a", u64::MAX), ("a", 5), ("a", u64::MAX)], writer), [0, 0, 0]);
        }
        // Over all runs.
        assert_eq!(missing(&[("a", 0), ("b", 1), ("a", 2), ("b", 3)], Some("w")), [0, 0, 0, 0]);
        assert_eq!(missing(&[("a", 0), ("b", 1), ("a", 3), ("c", 6)], Some("w")), [0, 0, 1, 2]);
    }

    #[test]
    fn events_that_were_sent_again_begin_nothing_anew() {
        let mut sequences = Sequences::default();
        let event = |seq: u64| {
            let at = DateTime::UNIX_EPOCH + TimeDelta::seconds(i64::try_from(seq).unwrap());
            Event::new("a", at, ModelRequest::new()).seq(seq).writer("w")
        };
        let missing: Vec<u64> = [0, 1, 2, 0, 1, 3].map(|seq| sequences.missing_before(&event(seq))).to_vec();
        assert_eq!(missing, [0; 6]);
    }
}
