//! A run in one line: what a list of runs shows and is sorted by, without the turns and requests behind it.
//!
//! Small enough to be kept for each of many runs, in memory and in an index on disk: it holds no text of a provider.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_record::RunKey;
use serde::{Deserialize, Serialize};

use crate::count::Count;
use crate::explain::in_short;
use crate::run::{LogicalRequest, Run, RunOutcome};
use crate::totals::Aliases;

/// A log that has been quiet without an end for less than this may go on: its run is running.
pub(crate) const MAY_GO_ON: TimeDelta = TimeDelta::minutes(5);

/// Returns since when a log without an end is quiet: since its last event, or since the wait is over that an open request
/// said it would take.
pub(crate) fn quiet_since(
    last_event: Option<DateTime<Utc>>,
    requests: &[LogicalRequest],
) -> Option<DateTime<Utc>> {
    let ends = requests.iter().filter_map(LogicalRequest::planned_wait).map(|(_, until)| until);
    ends.max().max(last_event)
}

/// One run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// Agent and native id.
    pub key: RunKey,
    /// The run that started this one.
    pub parent_run_id: Option<String>,
    /// First event time.
    pub started_at: Option<DateTime<Utc>>,
    /// Last event time.
    pub ended_at: Option<DateTime<Utc>>,
    /// Since when nothing is to be heard of it; later than its last event where it said that it waits.
    pub(crate) quiet_since: Option<DateTime<Utc>>,
    /// Outcome of the last turn.
    pub outcome: RunOutcome,
    /// How many turns failed.
    pub failed_turns: u32,
    /// Foreground requests sent.
    pub upstream_requests: Count,
    /// What happened, in a few words; empty where there is nothing to say.
    pub in_short: String,
    /// Providers that were asked; `unknown` among them where nothing names one.
    pub providers: BTreeSet<String>,
}

impl RunLine {
    /// Returns the line of a run.
    pub fn of(run: &Run) -> Self {
        let attempts = run.turns.iter().flat_map(|t| &t.requests).flat_map(|r| &r.attempts);
        // Under the names that the metrics have for them, so that what an alert names is found here.
        let unaliased = Aliases::default();
        let asked = attempts.map(|attempt| unaliased.provider(run, Some(&attempt.candidate)));
        let mut providers = BTreeSet::new();
        for provider in run.facts.provider.as_deref().into_iter().chain(asked) {
            if !providers.contains(provider) {
                providers.insert(provider.to_owned());
            }
        }
        Self {
            key: run.key.clone(),
            parent_run_id: run.facts.parent_run_id.clone(),
            started_at: run.started_at,
            ended_at: run.ended_at,
            quiet_since: quiet_since(run.ended_at, run.turns.last().map_or(&[], |turn| &turn.requests)),
            outcome: run.outcome,
            failed_turns: u32::try_from(run.failed_turns()).unwrap_or(u32::MAX),
            upstream_requests: run.counts.upstream_requests.clone(),
            in_short: in_short(run),
            providers,
        }
    }

    /// Returns whether the line would be the same at that time, given that no log has changed: only the outcome of a log
    /// that stops without an end depends on the time.
    pub fn holds_at(&self, now: DateTime<Utc>) -> bool {
        match self.outcome {
            RunOutcome::Running => false,
            RunOutcome::Interrupted => self.quiet_since.is_none_or(|at| now - at >= MAY_GO_ON),
            RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Cancelled | RunOutcome::Unknown => true,
        }
    }
}
