//! Where in time the samples of a run stood when it was last counted: what is new in it stands elsewhere.
//!
//! Not for: how many are new (see [`super::growth`]); this tells which ones.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::growth::BySeries;
use super::keys::{SeriesId, Table};
use super::samples::Sample;
use super::{LATE_AFTER, Metric, has_arrival};
use crate::budget::{Budget, WINDOWS};

/// Returns whether it matters when something was counted that the metric counts.
pub(super) fn is_timed(metric: Metric) -> bool {
    has_arrival(metric) || metric == Metric::Sent
}

/// Series, minute, and how many stand there; sorted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Shown(Vec<(SeriesId, i64, u64)>);

impl Shown {
    /// Returns where the samples of a run stand.
    pub(super) fn of(by_series: &BySeries, table: &Table, now: DateTime<Utc>) -> Self {
        let mut all: Vec<(SeriesId, i64, u64)> = Vec::new();
        for (series, samples) in by_series.iter().filter(|(id, _)| is_timed(table.series(*id).metric)) {
            let from = all.len();
            let oldest = oldest_minute(now);
            for sample in samples {
                let minute = minute_of(sample, oldest);
                match all[from..].last_mut() {
                    Some((_, last, n)) if *last == minute => *n += sample.n,
                    _ => all.push((series, minute, sample.n)),
                }
            }
        }
        all.sort_unstable();
        all.dedup_by(|next, first| {
            let is_same = (first.0, first.1) == (next.0, next.1);
            if is_same {
                first.2 += next.2;
            }
            is_same
        });
        Self(all)
    }
}

/// The first minute that is told apart: what is older is late, and in no window of a budget.
fn oldest_minute(now: DateTime<Utc>) -> i64 {
    let longest = WINDOWS.iter().map(|(_, minutes)| *minutes).max().unwrap_or(0);
    Budget::minute(now - LATE_AFTER - TimeDelta::minutes(longest))
}

/// Returns the minute of a sample; one minute for all that are older than the oldest, and one for those without a time.
fn minute_of(sample: &Sample, oldest: i64) -> i64 {
    sample.at.map_or(i64::MAX, |at| not_older(Budget::minute(at), oldest))
}

fn not_older(minute: i64, oldest: i64) -> i64 {
    if minute < oldest { i64::MIN } else { minute }
}

/// What was there before and has not been found again yet.
pub(super) struct Before {
    /// From when on what is told is not late.
    pub(super) live_from: DateTime<Utc>,
    /// The first minute that is told apart.
    oldest: i64,
    of_series: BTreeMap<(SeriesId, i64), u64>,
    /// What is gone from its series: it may be known under another name, or as something else.
    gone: BTreeMap<(Metric, i64), u64>,
}

impl Before {
    /// Compares where samples stood with where they stand now.
    pub(super) fn new(before: &Shown, shown: &Shown, table: &Table, now: DateTime<Utc>) -> Self {
        let oldest = oldest_minute(now);
        let mut of_series = BTreeMap::new();
        for (series, minute, n) in &before.0 {
            *of_series.entry((*series, not_older(*minute, oldest))).or_default() += n;
        }
        let mut gone = BTreeMap::new();
        for ((series, minute), n) in &of_series {
            let place =
                shown.0.binary_search_by_key(&(*series, *minute), |(series, minute, _)| (*series, *minute));
            let left = u64::saturating_sub(*n, place.map_or(0, |place| shown.0[place].2));
            if left > 0 {
                *gone.entry((table.series(*series).metric, *minute)).or_default() += left;
            }
        }
        Self { live_from: now - LATE_AFTER, oldest, of_series, gone }
    }

    /// Returns the samples of a series: first those that were not there before, the newest of them first, then the others.
    pub(super) fn new_first(&mut self, series: SeriesId, metric: Metric, samples: &[Sample]) -> Vec<Sample> {
        let mut by_time = samples.to_vec();
        // Of those in one minute the ones that were told first are the known ones; without times, the first.
        by_time.sort_by_key(|sample| sample.told);
        let (mut new, mut known) = (Vec::new(), Vec::new());
        for sample in by_time {
            let minute = minute_of(&sample, self.oldest);
            let mut n = sample.n;
            let there = [self.of_series.get_mut(&(series, minute)), self.gone.get_mut(&(metric, minute))];
            for there in there.into_iter().flatten() {
                let found = n.min(*there);
                *there -= found;
                n -= found;
            }
            new.push(Sample { n, ..sample });
            known.push(Sample { n: sample.n - n, ..sample });
        }
        new.into_iter().rev().chain(known.into_iter().rev()).collect()
    }
}
