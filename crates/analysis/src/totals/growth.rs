//! What is new in a run since it was last counted.
//!
//! Not for: what a run adds in all (see [`super::samples`]), or for the counters themselves.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::keys::{Bases, Names, SeriesId};
use super::samples::{Sample, samples};
use super::shown::{Before, Shown, is_timed};
use super::{Metric, Totals, bounds_of, bucket_of, has_arrival, is_histogram};
use crate::budget::Budget;
use crate::run::Run;

/// What one run has added: by series without arrival.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Added {
    series: Vec<(SeriesId, u64)>,
    /// The values that a histogram has been given, and how often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    observed: Vec<(SeriesId, BTreeMap<u64, u64>)>,
    /// What it has added to the sum of a histogram, where that is not the sum of the values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sums: Vec<(SeriesId, u64)>,
    /// Where in time its samples stood when it was last counted.
    #[serde(default)]
    shown: Shown,
    /// How much of it later readings took back.
    taken_back: u64,
    /// Rules that it was found to break.
    #[serde(default)]
    pub(super) broken: BTreeSet<String>,
}

impl Added {
    fn of(&self, series: SeriesId) -> u64 {
        self.series.iter().find(|(id, _)| *id == series).map_or(0, |(_, n)| *n)
    }

    fn observed(&mut self, series: SeriesId) -> &mut BTreeMap<u64, u64> {
        let place = self.observed.iter().position(|(id, _)| *id == series).unwrap_or_else(|| {
            self.observed.push((series, BTreeMap::new()));
            self.observed.len() - 1
        });
        &mut self.observed[place].1
    }

    /// Returns what the sum of a histogram has been given.
    fn sum(&self, series: SeriesId) -> u64 {
        let corrected = self.sums.iter().find(|(id, _)| *id == series).map(|(_, sum)| *sum);
        corrected.unwrap_or_else(|| {
            let values = self.observed.iter().find(|(id, _)| *id == series);
            values.map_or(0, |(_, values)| values.iter().map(|(value, times)| value * times).sum())
        })
    }

    fn set_sum(&mut self, series: SeriesId, sum: u64) {
        match self.sums.iter_mut().find(|(id, _)| *id == series) {
            Some((_, known)) => *known = sum,
            None => self.sums.push((series, sum)),
        }
    }

    fn grow(&mut self, series: SeriesId, n: u64) {
        match self.series.iter_mut().find(|(id, _)| *id == series) {
            Some((_, known)) => *known += n,
            None => self.series.push((series, n)),
        }
    }
}

/// What a later reading took back of one series.
struct Fall {
    series: SeriesId,
    left: u64,
}

/// What is new of one series.
struct Growth {
    series: SeriesId,
    /// Where its samples stand in [`BySeries`].
    place: usize,
    left: u64,
}

/// The samples of one run by series. Its memory is used again for the next run.
#[derive(Debug, Clone, Default)]
pub(super) struct BySeries {
    /// Where in `samples` those of a series stand, by its number.
    places: Vec<Option<usize>>,
    samples: Vec<(SeriesId, Vec<Sample>)>,
    /// Emptied lists.
    spare: Vec<Vec<Sample>>,
}

impl BySeries {
    fn push(&mut self, series: SeriesId, sample: Sample) {
        if self.places.len() <= series.index() {
            self.places.resize(series.index() + 1, None);
        }
        let place = *self.places[series.index()].get_or_insert_with(|| {
            self.samples.push((series, self.spare.pop().unwrap_or_default()));
            self.samples.len() - 1
        });
        self.samples[place].1.push(sample);
    }

    fn of(&self, series: SeriesId) -> &[Sample] {
        let place = self.places.get(series.index()).copied().flatten();
        place.map_or(&[], |place| &self.samples[place].1)
    }

    /// Returns the series and their samples.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SeriesId, &[Sample])> {
        self.samples.iter().map(|(series, samples)| (*series, &samples[..]))
    }

    fn clear(&mut self) {
        for (series, mut samples) in self.samples.drain(..) {
            self.places[series.index()] = None;
            samples.clear();
            // What one large run needed is not kept for ever.
            if samples.capacity() <= 1_024 {
                self.spare.push(samples);
            }
        }
    }
}

impl Totals {
    /// Adds a run as it is known now, or what is new in it since the last time.
    ///
    /// A later record may change a label of what was counted (a model that was not known yet, a failure that is explained
    /// later). It is not counted again: of each metric, a run adds no more than it has in all.
    pub fn add(&mut self, run: &Run, now: DateTime<Utc>) {
        if self.table.forget_keys() {
            self.names = Names::default();
        }
        let mut by_series = std::mem::take(&mut self.scratch);
        {
            let Self { table, seen, names, aliases, .. } = self;
            samples(run, Bases::new(names, run, aliases), |names, key, sample| {
                by_series.push(table.find(key, names, seen), sample);
            });
        }
        let mut added = self.added.remove(&run.key).unwrap_or_default();
        let shown = Shown::of(&by_series, &self.table, now);
        let mut before = Before::new(&added.shown, &shown, &self.table, now);
        let given: Vec<(SeriesId, u64)> =
            added.observed.iter().map(|(id, _)| (*id, added.sum(*id))).collect();
        let mut fallen: BTreeMap<Metric, Vec<Fall>> = BTreeMap::new();
        let mut growths: BTreeMap<Metric, Vec<Growth>> = BTreeMap::new();
        for (series, known) in &added.series {
            let metric = self.table.series(*series).metric;
            let total = total_of(metric, by_series.of(*series));
            if total < *known {
                fallen.entry(metric).or_default().push(Fall { series: *series, left: known - total });
            }
        }
        let mut order: Vec<usize> = (0..by_series.samples.len()).collect();
        order.sort_unstable_by_key(|place| self.table.series(by_series.samples[*place].0));
        for place in order {
            let (series, samples) = &mut by_series.samples[place];
            let metric = self.table.series(*series).metric;
            let known = added.of(*series);
            let left = total_of(metric, samples).saturating_sub(known);
            if left > 0 {
                growths.entry(metric).or_default().push(Growth { series: *series, place, left });
            }
        }
        let sum = |falls: &[Fall]| falls.iter().map(|fall| fall.left).sum::<u64>();
        // Waits are sums of time, not counts.
        let is_count = |metric: &Metric| !matches!(metric, Metric::Waiting | Metric::Sent);
        let taken_back = fallen.iter().filter(|(m, _)| is_count(m)).map(|(_, falls)| sum(falls)).sum();
        for (metric, mut growths) in growths {
            let falls = fallen.entry(metric).or_default();
            self.match_renamed(falls, &mut growths);
            let grown: u64 = growths.iter().map(|growth| growth.left).sum();
            let allowed = grown.saturating_sub(sum(falls));
            self.grow(metric, growths, &mut by_series, allowed, &mut added, &mut before);
        }
        added.shown = shown;
        for metric in [Metric::AttemptsPerRequest, Metric::RetryDelay] {
            self.add_to_sums(metric, &by_series, &given, &mut added);
        }
        by_series.clear();
        self.scratch = by_series;
        self.revisions += u64::saturating_sub(taken_back, added.taken_back);
        added.taken_back = added.taken_back.max(taken_back);
        self.look_for_findings(run, &mut added);
        self.added.insert(run.key.clone(), added);
    }

    /// Takes out what fell in one series and grew in another that says the same of somebody else: it is known better by now
    /// who was asked, or how much of it the log shows, and it has been counted.
    fn match_renamed(&self, falls: &mut [Fall], growths: &mut [Growth]) {
        for fall in falls {
            let labels = &self.table.series(fall.series).labels;
            for growth in growths.iter_mut() {
                let moved = fall.left.min(growth.left);
                if moved > 0 && labels.say_the_same(&self.table.series(growth.series).labels) {
                    fall.left -= moved;
                    growth.left -= moved;
                }
            }
        }
    }

    /// Counts what is new, at most `allowed` of it.
    fn grow(
        &mut self,
        metric: Metric,
        growths: Vec<Growth>,
        by_series: &mut BySeries,
        mut allowed: u64,
        added: &mut Added,
        before: &mut Before,
    ) {
        for Growth { series: id, place, mut left } in growths {
            let samples = &mut by_series.samples[place].1;
            if is_histogram(metric) {
                let counted = self.observe_new(id, samples, left.min(allowed), added);
                allowed -= counted;
                continue;
            }
            // Where all are new the order does not matter.
            if is_timed(metric) && left.min(allowed) < total_of(metric, samples) {
                *samples = before.new_first(id, metric, samples);
            }
            let series = self.table.series(id).clone();
            // Those that are counted in one place are counted together.
            let mut together: Option<(CountedIn, u64)> = None;
            let mut counted = 0;
            for sample in samples.iter() {
                let n = sample.n.min(left).min(allowed);
                if left == 0 || allowed == 0 {
                    break;
                }
                if n == 0 {
                    continue;
                }
                let place = CountedIn::of(metric, sample, before);
                match &mut together {
                    Some((same, sum)) if *same == place => *sum += n,
                    _ => {
                        if let Some((place, sum)) = together.replace((place, n)) {
                            self.count(&series, place, sum);
                        }
                    }
                }
                left -= n;
                allowed -= n;
                counted += n;
            }
            if let Some((place, sum)) = together {
                self.count(&series, place, sum);
            }
            if counted > 0 {
                added.grow(id, counted);
            }
        }
    }

    /// Gives a histogram the values that its buckets do not hold yet, at most so many; returns how many it was. A value
    /// that is told a little better later is none of them.
    fn observe_new(&mut self, id: SeriesId, samples: &[Sample], most: u64, added: &mut Added) -> u64 {
        let bounds = bounds_of(self.table.series(id).metric);
        let mut held = vec![0_u64; bounds.len() + 1];
        for (value, times) in added.observed(id).iter() {
            held[bucket_of(bounds, *value)] += times;
        }
        let new = samples.iter().map(|sample| sample.n).filter(|value| {
            let held = &mut held[bucket_of(bounds, *value)];
            let is_new = *held == 0;
            *held = held.saturating_sub(1);
            is_new
        });
        let mut new: Vec<u64> = new.take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
        new.sort_unstable();
        let series = self.table.series(id).clone();
        for alike in new.chunk_by(|a, b| a == b) {
            let times = alike.len() as u64;
            self.observe(&series, alike[0], times);
            *added.observed(id).entry(alike[0]).or_default() += times;
        }
        let counted = new.len() as u64;
        if counted > 0 {
            added.grow(id, counted);
        }
        counted
    }

    /// Adds to the sums of a histogram what the values of the run are more than they have been `given`, in all its series
    /// together: a value that was told better later, and one that is new.
    fn add_to_sums(
        &mut self,
        metric: Metric,
        by_series: &BySeries,
        given: &[(SeriesId, u64)],
        added: &mut Added,
    ) {
        let of_metric = |totals: &Self, id: SeriesId| totals.table.series(id).metric == metric;
        let sum_of = |samples: &[Sample]| samples.iter().map(|sample| sample.n).sum::<u64>();
        let known: u64 = given.iter().filter(|(id, _)| of_metric(self, *id)).map(|(_, sum)| sum).sum();
        let told: u64 =
            by_series.iter().filter(|(id, _)| of_metric(self, *id)).map(|(_, samples)| sum_of(samples)).sum();
        let mut left = told.saturating_sub(known);
        let series: Vec<SeriesId> =
            added.observed.iter().map(|(id, _)| *id).filter(|id| of_metric(self, *id)).collect();
        let mut sums: Vec<(SeriesId, u64)> = Vec::new();
        for id in &series {
            let before = given.iter().find(|(known, _)| known == id).map_or(0, |(_, sum)| *sum);
            let more = sum_of(by_series.of(*id)).saturating_sub(before).min(left);
            left -= more;
            sums.push((*id, before + more));
        }
        // What is told better of a value that was counted for somebody else stays where it was counted.
        if let Some((_, sum)) = sums.first_mut() {
            *sum += left;
        }
        for (id, sum) in sums {
            let before = given.iter().find(|(known, _)| *known == id).map_or(0, |(_, sum)| *sum);
            let series = self.within_limit(self.table.series(id).clone());
            if let Some(histogram) = self.histograms.get_mut(&series) {
                histogram.sum += sum - before;
            }
            added.set_sum(id, sum);
        }
    }
}

/// Where a sample of a series is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedIn {
    /// A counter.
    Counter,
    /// The counter of what was read late, or that of what was not.
    Arrived { late: bool },
    /// A minute of the budget; what has no time is in none.
    Minute(Option<i64>),
}

impl CountedIn {
    fn of(metric: Metric, sample: &Sample, before: &Before) -> Self {
        if metric == Metric::Sent {
            CountedIn::Minute(sample.at.map(Budget::minute))
        } else if has_arrival(metric) {
            CountedIn::Arrived { late: sample.told.is_some_and(|told| told < before.live_from) }
        } else {
            CountedIn::Counter
        }
    }
}

fn total_of(metric: Metric, samples: &[Sample]) -> u64 {
    if is_histogram(metric) { samples.len() as u64 } else { samples.iter().map(|sample| sample.n).sum() }
}
