//! Counts what is new, and forgets what is over.
//!
//! Not for: what counts (the analysis decides). The lock on the state is given up between runs, so that a scrape never
//! waits for a whole backlog.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::AsOf;
use retryscope_record::{RunKey, SourceId};
use retryscope_report::gauges::RunGauges;

use crate::state::{BudgetKey, Shared, State};

/// Beyond this many runs or requests in memory, those that are over are forgotten, the oldest first.
const KEPT_RUNS: usize = 1_000;
const KEPT_REQUESTS: usize = 10_000;

/// A run is not looked at again for its silence alone before this.
const MAY_BE_OVER: TimeDelta = TimeDelta::minutes(5);

/// A run without an end is taken for over when it has been quiet for this long.
const QUIET: TimeDelta = TimeDelta::hours(1);

/// A run that is over is kept at least this long, for the API and for records that come late.
const KEPT_AT_LEAST: TimeDelta = TimeDelta::minutes(2);

/// The same where so many requests are in memory that most of it is theirs.
const KEPT_IN_A_CROWD: TimeDelta = TimeDelta::seconds(15);
const CROWD: usize = 5 * KEPT_REQUESTS;

/// A run whose files are gone is kept this long all the same: some come back, from a backup or a disk that was away.
const GONE_FOR: TimeDelta = TimeDelta::hours(1);

/// Counts what is new in the runs that something was said of.
pub(crate) fn count(shared: &Shared, dirty: &BTreeSet<RunKey>) {
    let now = shared.now();
    for key in dirty {
        let mut state = shared.lock();
        let State { engine, totals, states, gauges, spoken, .. } = &mut *state;
        let Some(run) = engine.run(key, &AsOf { now, sources: states }) else {
            gauges.remove(key);
            spoken.remove(key);
            continue;
        };
        spoken.insert(key.clone(), Utc::now());
        totals.add(&run, now);
        gauges.insert(key.clone(), RunGauges::of(&run, totals.aliases()));
        state.version += 1;
    }
    spend(shared);
}

/// Looks again at runs that were going on and have become quiet: time alone may end them.
pub(crate) fn look_at_running(shared: &Shared) {
    let now = shared.now();
    let running: BTreeSet<RunKey> = {
        let state = shared.lock();
        let quiet = state.gauges.iter().filter(|(_, gauges)| {
            gauges.is_running && gauges.last_at.is_none_or(|at| now - at >= MAY_BE_OVER)
        });
        quiet.map(|(key, _)| key.clone()).collect()
    };
    for key in running {
        let mut state = shared.lock();
        let State { engine, totals, states, gauges, .. } = &mut *state;
        if let Some(run) = engine.run(&key, &AsOf { now, sources: states }) {
            let known = RunGauges::of(&run, totals.aliases());
            if !known.is_running {
                totals.add(&run, now);
                gauges.insert(key, known);
                state.version += 1;
            }
        }
    }
    spend(shared);
}

/// Notes budgets that became exhausted.
fn spend(shared: &Shared) {
    let now = shared.now();
    let policy = shared.config().budget;
    let mut state = shared.lock();
    state.totals.budget_mut().forget_before(now);
    let exhausted: Vec<BudgetKey> = state
        .totals
        .budget()
        .states(now, policy)
        .into_iter()
        .filter(|budget| budget.exhausted)
        .map(|budget| (budget.scope.kind, budget.scope.name, budget.window.to_owned()))
        .collect();
    for key in &exhausted {
        if !state.counts.exhausted_now.contains(key) {
            *state.counts.exhausted.entry(key.clone()).or_default() += 1;
        }
    }
    state.counts.exhausted_now = exhausted;
}

/// Forgets runs that are over and are never read again from the start: their counts stay. These are runs of our own schema,
/// and runs whose files are gone; a session file that is there may be read anew as a whole.
pub(crate) fn forget(shared: &Shared) {
    let now = shared.now();
    let mut state = shared.lock();
    let mut runs = state.gauges.len();
    let mut requests: usize = state.gauges.values().map(|gauges| gauges.requests).sum();
    if runs <= KEPT_RUNS && requests <= KEPT_REQUESTS {
        return;
    }
    let clock = Utc::now();
    let at_least = if requests > CROWD { KEPT_IN_A_CROWD } else { KEPT_AT_LEAST };
    let mut over: Vec<_> = state
        .engine
        .last_events()
        .filter(|(key, at)| {
            at.is_some_and(|at| now - at > at_least) && is_never_read_again(&state, key, clock)
        })
        .map(|(key, at)| (at, key.clone()))
        .collect();
    over.sort_unstable();
    for (at, key) in over {
        let age = at.map_or(TimeDelta::zero(), |at| now - at);
        let gauges = state.gauges.get(&key);
        // Its events may be old and its log be written now. In a backlog only one that has ended needs no more patience.
        let has_ended = !state.ready && gauges.is_some_and(|gauges| gauges.is_over);
        if !has_ended && state.spoken.get(&key).is_some_and(|at| clock - at <= at_least) {
            continue;
        }
        // One that waits for its quota will go on.
        let is_quiet = age > QUIET && gauges.is_none_or(|gauges| !gauges.is_running);
        let is_over = is_quiet || gauges.is_some_and(|gauges| gauges.is_over);
        if is_over && (runs > KEPT_RUNS || requests > KEPT_REQUESTS) {
            runs = runs.saturating_sub(1);
            requests = requests.saturating_sub(gauges.map_or(0, |gauges| gauges.requests));
            state.engine.forget(&key);
            state.totals.settle(&key);
            state.gauges.remove(&key);
            state.spoken.remove(&key);
        }
    }
}

fn is_never_read_again(state: &State, run: &RunKey, clock: DateTime<Utc>) -> bool {
    let is_gone = |id: &SourceId| state.gone.get(id).is_some_and(|since| clock - since >= GONE_FOR);
    state.engine.is_from_events(run) || state.engine.sources_of(run).iter().all(is_gone)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use retryscope_events::{Event, ModelRequest, RunFinished};
    use retryscope_record::{Item, Origin, Place, View};

    use super::*;
    use crate::args::Args;
    use crate::config::Config;

    #[test]
    fn runs_whose_files_are_gone_are_forgotten() {
        let args = Args::parse_from(["retryscoped", "--state-dir", "/nowhere"]);
        let shared = Shared::new(Config::from_args(&args).unwrap().into());
        let runs = u32::try_from(2 * KEPT_RUNS).unwrap();
        for id in 0..runs {
            let mut state = shared.lock();
            for (line, body) in
                [(1, ModelRequest::new().into()), (2, RunFinished::new().outcome("succeeded").into())]
            {
                let body: retryscope_events::Body = body;
                let event = Event::new(format!("r{id}"), DateTime::UNIX_EPOCH, body).agent("pi");
                let origin = Origin { source: SourceId(id), place: Place::Line(line) };
                state.engine.apply(View::SESSION, origin, Item::Event(&event, None));
            }
            if id % 2 == 0 {
                let since = if id % 4 == 0 { GONE_FOR } else { GONE_FOR / 2 };
                state.gone.insert(SourceId(id), Utc::now() - since);
            }
        }
        let dirty = shared.lock().engine.take_dirty();
        count(&shared, &dirty);
        let requests = |state: &State| -> u64 {
            state.totals.counters_of(retryscope_analysis::Metric::LogicalRequests).map(|(_, n)| n).sum()
        };
        let before = requests(&shared.lock());
        shared.lock().spoken.clear();
        forget(&shared);
        let state = shared.lock();
        // Those that are there, and those that may come back.
        assert_eq!(state.engine.keys().count(), 3 * KEPT_RUNS / 2);
        assert_eq!((requests(&state), before), (u64::from(runs), u64::from(runs)));
    }
}
