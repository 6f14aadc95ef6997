//! What the HTTP side answers with: metrics, runs, budgets, all read from the shared state.
//!
//! The text of the run metrics is kept until something is counted, so that a scrape of a quiet daemon costs a copy. Not
//! for: counting (the analysis) or names (the report).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use chrono::Utc;
use retryscope_analysis::{AsOf, BudgetState, Explainer, Run, summarize};
use retryscope_record::SourceId;
use retryscope_report::json;
use retryscope_report::metrics::{Extra, extra_text, run_text};
use retryscope_scan::choose::{self, Children, Unchosen};
use serde_json::{Value, json as value};

use crate::state::{Shared, State};

/// Kinds of gaps, all shown at 0 from the start.
const GAPS: &[&str] = &[
    "invalid_json",
    "torn_line",
    "oversized_line",
    "incomplete_record",
    "unusable_field",
    "newer_version",
    "missing_sequence",
    "database",
];

impl Shared {
    /// Returns the body of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        let now = self.now();
        let config = self.config();
        let mut extra = Extra::default();
        let mut runs: Arc<str> = "".into();
        {
            let state = self.look();
            self.add_own(&state, &mut extra);
            // Run metrics are withheld until the backlog is read, so that the first scrape is a baseline.
            if state.ready {
                extra.add_runs(state.gauges.values(), &state.totals, now);
                extra.add_budgets(&state.totals, config.budget, now);
                runs = self.text_of(&state);
            }
        }
        format!("{runs}{}", extra_text(&extra))
    }

    #[expect(clippy::cast_precision_loss, reason = "counts and seconds are far below 2^52")]
    fn add_own(&self, state: &State, extra: &mut Extra) {
        let number = |n: u64| n as f64;
        let counts = &state.counts;
        extra.add("retryscope_build_info", &[env!("CARGO_PKG_VERSION")], 1.0);
        extra.add("retryscope_ready", &[], if state.ready { 1.0 } else { 0.0 });
        extra.add("retryscope_revisions_total", &["reread"], number(state.totals.revisions()));
        extra.add("retryscope_folded_total", &[], number(state.totals.folded()));
        extra.add("retryscope_series", &[], state.totals.series() as f64);
        let records: u64 = state.engine.repeated_records().values().sum();
        let duplicates = counts.duplicates + state.engine.duplicates() + records;
        extra.add("retryscope_duplicates_total", &[], number(duplicates));
        for kind in GAPS {
            extra.add("retryscope_gaps_total", &[kind], number(counts.gaps.get(*kind).copied().unwrap_or(0)));
        }
        extra.add("retryscope_source_rotations_total", &[], number(counts.rotations));
        extra.add("retryscope_source_truncations_total", &[], number(counts.truncations));
        let without_copy = number(counts.truncations_without_copy);
        extra.add("retryscope_source_truncations_without_copy_total", &[], without_copy);
        extra.add("retryscope_oversized_lines_total", &[], number(counts.oversized));
        extra.add("retryscope_checkpoint_failures_total", &[], number(counts.checkpoint_failures));
        for mode in ["notify", "poll"] {
            extra.add("retryscope_watch_mode", &[mode], if state.mode == mode { 1.0 } else { 0.0 });
        }
        if let Some(at) = state.checkpoint_at {
            extra.add("retryscope_checkpoint_timestamp_seconds", &[], at.timestamp() as f64);
        }
        if let Some(at) = state.read_at {
            let lag = (Utc::now() - at).num_milliseconds().max(0) as f64 / 1e3;
            extra.add("retryscope_read_lag_seconds", &[], lag);
        }
        for ((kind, result), n) in &counts.pushed {
            extra.add("retryscope_pushed_requests_total", &[kind, result], number(*n));
        }
        let refused = self.connections_refused.load(Ordering::Relaxed);
        extra.add("retryscope_connections_refused_total", &[], number(refused));
        // Like the run metrics, not while the backlog is being read: its history would look new.
        if state.ready {
            for ((kind, name, window), n) in &counts.exhausted {
                extra.add("retryscope_retry_budget_exhausted_total", &[kind, name, window], number(*n));
            }
            extra.add_findings(&state.totals);
        }
        let mut agents: BTreeMap<&str, u64> = BTreeMap::new();
        for key in state.engine.keys() {
            *agents.entry(&key.agent).or_default() += 1;
        }
        extra.add("retryscope_runs_kept", &[], number(agents.values().sum()));
        extra.add("retryscope_sources", &[], state.paths.len() as f64);
        if let Some(bytes) = resident_bytes() {
            extra.add("process_resident_memory_bytes", &[], number(bytes));
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            extra.add("process_open_fds", &[], entries.count() as f64);
        }
    }

    /// Returns the run metrics, laid out anew only if something was counted.
    fn text_of(&self, state: &State) -> Arc<str> {
        let mut known = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != state.version {
            *known = (state.version, run_text(&state.totals).into());
        }
        known.1.clone()
    }

    /// Returns the list of runs.
    pub(crate) fn runs(&self) -> Value {
        let now = self.now();
        let state = self.look();
        let as_of = AsOf { now, sources: &state.states };
        let mut runs = state.engine.runs(&as_of);
        let path_of = |id: SourceId| path_in(&state, id);
        runs.sort_by_key(|run| (run.started_at, run.key.clone()));
        let children = Children::among(&runs);
        let entry = |run: &Run| json::runs_entry(run, &summarize(run, children.of(run), now), &path_of);
        let entries: Vec<Value> = runs.iter().map(entry).collect();
        value!({"schema": "retryscope.runs/1", "runs": entries})
    }

    /// Returns the run that a name means, as the replay object: an id, `agent:id`, or the beginning of an id.
    pub(crate) fn run(&self, name: &str) -> Result<Value, Unchosen> {
        let now = self.now();
        let state = self.look();
        let as_of = AsOf { now, sources: &state.states };
        let all = state.engine.runs(&as_of);
        let run = choose::by_id(name, &all)?;
        let path_of = |id: SourceId| path_in(&state, id);
        let children = Children::among(&all);
        let children = children.of(run);
        let told = run.told_turn().map(|turn| (turn, Explainer::new(run, children, now).explain(turn)));
        let told = told.as_ref().map(|(turn, told)| (*turn, told));
        Ok(json::replay(run, told, children, now, &path_of))
    }

    /// Returns the state of every budget.
    pub(crate) fn budgets(&self) -> Vec<BudgetState> {
        self.look().totals.budget().states(self.now(), self.config().budget)
    }
}

/// Returns the path of a source; empty for one that is no longer known.
fn path_in(state: &State, id: SourceId) -> &Path {
    state.paths.get(&id).map_or(Path::new(""), |path| path.as_path())
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
