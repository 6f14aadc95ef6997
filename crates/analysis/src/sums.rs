//! Runs added up: what was asked, what was sent, how long was waited.
//!
//! Not for: which runs (see `grouped`), or what stands out among them (see `overview` and `digest`).

use crate::count::Counts;
use crate::run::{LogicalRequest, Run, Turn};
use crate::waits::Waits;

/// The sum of some runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sums {
    /// Runs, subagents included.
    pub runs: usize,
    /// Runs with a failed turn.
    pub failed: usize,
    /// Runs whose ratios cannot be told ([`Counts::is_countable`]); the sums hold what is visible of them.
    pub not_countable: usize,
    /// Foreground counts.
    pub counts: Counts,
    /// Foreground counts of the runs whose ratios can be told.
    pub countable: Counts,
    /// Counts of side calls.
    pub background_counts: Counts,
    /// Waiting between attempts, in ms; `None` where no log tells any.
    pub waiting_ms: Option<u64>,
    /// Waiting, and the duration of failed attempts, in ms; `None` where no log tells any.
    pub lost_ms: Option<u64>,
    /// Some waits are in no log, so that more was waited than the sum.
    pub waiting_is_least: bool,
    /// Of some failed attempts no log tells how long they took, so that more was lost than the sum.
    pub lost_is_least: bool,
    /// How long single waits were.
    pub waits: Waits,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            runs: 0,
            failed: 0,
            not_countable: 0,
            counts: Counts::ZERO,
            countable: Counts::ZERO,
            background_counts: Counts::ZERO,
            waiting_ms: None,
            lost_ms: None,
            waiting_is_least: false,
            lost_is_least: false,
            waits: Waits::default(),
        }
    }
}

impl Sums {
    /// Returns the sum of some runs.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut sums = Self::default();
        runs.into_iter().for_each(|run| sums.add(run));
        sums
    }

    /// Adds one run.
    pub(crate) fn add(&mut self, run: &Run) {
        self.runs += 1;
        self.failed += usize::from(run.failed_turns() > 0);
        if run.counts.is_countable() {
            self.countable = self.countable.plus(&run.counts);
        } else {
            self.not_countable += 1;
        }
        self.counts = self.counts.plus(&run.counts);
        self.background_counts = self.background_counts.plus(&run.background_counts);
        self.waits.add(run);
        let each =
            |tells: fn(&LogicalRequest) -> bool| run.turns.iter().flat_map(Turn::foreground).all(tells);
        let is_whole = run.counts.is_countable() && run.counts.upstream_requests.bound.max.is_some();
        self.waiting_is_least |= !is_whole || !each(LogicalRequest::has_each_wait);
        self.lost_is_least |= !is_whole || !each(LogicalRequest::has_each_loss);
        for (sum, more) in
            [(&mut self.waiting_ms, run.time.waiting_ms), (&mut self.lost_ms, run.time.lost_ms)]
        {
            if let Some(more) = more {
                *sum.get_or_insert(0) += more;
            }
        }
    }
}
