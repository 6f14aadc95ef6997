//! What the reading thread and the HTTP server share.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use retryscope_analysis::{AsOf, BudgetState, Engine, Run, SourceState, Totals, summarize};
use retryscope_record::{RunKey, SourceId};
use retryscope_report::{json, metrics};
use serde_json::{Value, json as value};

use crate::config::Config;

/// Numbers about the daemon itself.
#[derive(Debug, Default, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct SelfCounts {
    pub(crate) gaps: BTreeMap<String, u64>,
    pub(crate) rotations: u64,
    pub(crate) truncations: u64,
    pub(crate) oversized: u64,
    pub(crate) checkpoint_failures: u64,
    pub(crate) pushed: BTreeMap<(String, String), u64>,
    /// Times that a budget became exhausted, by scope kind, scope name and window.
    pub(crate) exhausted: BTreeMap<(String, String, String), u64>,
}

/// The state of everything read so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) totals: Totals,
    pub(crate) counts: SelfCounts,
    pub(crate) paths: BTreeMap<SourceId, std::path::PathBuf>,
    pub(crate) states: BTreeMap<SourceId, SourceState>,
    /// Whether the backlog was consumed.
    pub(crate) ready: bool,
    pub(crate) mode: &'static str,
    pub(crate) checkpoint_at: Option<DateTime<Utc>>,
    pub(crate) read_at: Option<DateTime<Utc>>,
    /// Budgets that are exhausted now.
    pub(crate) exhausted_now: Vec<(String, String, String)>,
}

/// State behind its lock, and the means to wake the reading thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    state: Mutex<State>,
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Shared {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config, state: Mutex::new(State::default()), woken: Mutex::new(false), wake: Condvar::new() }
    }

    /// Returns the state. A thread that panicked while it held it left whole statements behind, so it stays usable.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the reading thread.
    pub(crate) fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Waits until woken, or until the time is up.
    pub(crate) fn wait(&self, most: Duration) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut woken, _) = self
            .wake
            .wait_timeout_while(woken, most, |woken| !*woken)
            .unwrap_or_else(PoisonError::into_inner);
        *woken = false;
    }

    /// Returns the body of `/metrics`.
    pub(crate) fn metrics(&self, now: DateTime<Utc>) -> Result<String, String> {
        let state = self.lock();
        let mut extra = metrics::Extra::default();
        self.own_metrics(&state, &mut extra);
        if !state.ready {
            // Run metrics are withheld until the backlog is read, so that the first scrape is a baseline.
            return metrics::text(&Totals::default(), &extra).map_err(|error| error.to_string());
        }
        let as_of = AsOf { now, sources: &state.states };
        let runs: Vec<Run> = state.engine.runs(&as_of);
        extra.add_runs(&runs, &state.totals, self.config.budget, now);
        metrics::text(&state.totals, &extra).map_err(|error| error.to_string())
    }

    fn own_metrics(&self, state: &State, extra: &mut metrics::Extra) {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let number = |n: u64| n as f64;
        extra.add("retryscope_build_info", &[env!("CARGO_PKG_VERSION")], 1.0);
        extra.add("retryscope_revisions_total", &["reread"], number(state.totals.revisions()));
        extra.add("retryscope_folded_total", &[], number(state.totals.folded()));
        extra.add("retryscope_duplicates_total", &[], number(state.engine.duplicates()));
        for kind in [
            "invalid_json",
            "torn_line",
            "oversized_line",
            "incomplete_record",
            "newer_version",
            "missing_sequence",
            "database",
        ] {
            extra.add(
                "retryscope_gaps_total",
                &[kind],
                number(state.counts.gaps.get(kind).copied().unwrap_or(0)),
            );
        }
        extra.add("retryscope_source_rotations_total", &[], number(state.counts.rotations));
        extra.add("retryscope_source_truncations_total", &[], number(state.counts.truncations));
        extra.add("retryscope_oversized_lines_total", &[], number(state.counts.oversized));
        extra.add("retryscope_checkpoint_failures_total", &[], number(state.counts.checkpoint_failures));
        for mode in ["notify", "poll"] {
            extra.add("retryscope_watch_mode", &[mode], if state.mode == mode { 1.0 } else { 0.0 });
        }
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
        if let Some(at) = state.checkpoint_at {
            extra.add("retryscope_checkpoint_timestamp_seconds", &[], at.timestamp() as f64);
        }
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the last look")]
        if let Some(at) = state.read_at {
            let lag = (Utc::now() - at).num_milliseconds().max(0) as f64 / 1e3;
            extra.add("retryscope_read_lag_seconds", &[], lag);
        }
        for ((kind, result), n) in &state.counts.pushed {
            extra.add("retryscope_pushed_records_total", &[kind, result], number(*n));
        }
        for ((kind, name, window), n) in &state.counts.exhausted {
            extra.add("retryscope_retry_budget_exhausted_total", &[kind, name, window], number(*n));
        }
        let mut agents: BTreeMap<&str, u64> = BTreeMap::new();
        for key in state.engine.keys() {
            *agents.entry(&key.agent).or_default() += 1;
        }
        for (agent, n) in agents {
            extra.add("retryscope_sources", &[agent], number(n));
        }
    }

    /// Returns the list of runs.
    pub(crate) fn runs(&self, now: DateTime<Utc>) -> Value {
        let state = self.lock();
        let as_of = AsOf { now, sources: &state.states };
        let path_of = |id: SourceId| state.paths.get(&id).map_or(std::path::Path::new(""), |p| p.as_path());
        let mut runs = state.engine.runs(&as_of);
        runs.sort_by_key(|run| (run.started_at, run.key.clone()));
        let entries: Vec<Value> =
            runs.iter().map(|run| json::runs_entry(run, &summarize(run, &[], now), &path_of)).collect();
        value!({"schema": "retryscope.runs/1", "runs": entries})
    }

    /// Returns one run by id, as the replay object; `None` if there is none.
    pub(crate) fn run(&self, id: &str, now: DateTime<Utc>) -> Option<Value> {
        let state = self.lock();
        let as_of = AsOf { now, sources: &state.states };
        let key: RunKey = state.engine.keys().find(|key| &*key.id == id)?.clone();
        let run = state.engine.run(&key, &as_of)?;
        let path_of = |id: SourceId| state.paths.get(&id).map_or(std::path::Path::new(""), |p| p.as_path());
        let all = state.engine.runs(&as_of);
        let children: Vec<&Run> = all
            .iter()
            .filter(|other| other.key.agent == key.agent && other.facts.parent_run_id.as_deref() == Some(id))
            .collect();
        json::replay(&run, &children, now, &path_of)
    }

    /// Returns the state of every budget.
    pub(crate) fn budgets(&self, now: DateTime<Utc>) -> Vec<BudgetState> {
        self.lock().totals.budget().states(now, self.config.budget)
    }
}
