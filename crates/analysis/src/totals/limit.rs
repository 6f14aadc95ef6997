//! How many series there may be, and which stand at 0 before anything is counted in them.
//!
//! What logs bring in without end is who was asked: agents, providers, models. Beyond the limit these names are folded, the
//! finest first. Series that name nobody any more come on top, since every count needs a place; all their labels are closed
//! sets. Not for: limits of single labels (see [`super::labels`]).

use std::sync::Arc;

use super::labels::{self, FOLDED, Labels, OTHER, known_in_advance};
use super::{Metric, Series, Totals};

impl Totals {
    /// Returns the series, or one with folded labels if there are too many. Those that stand at 0 give way first.
    pub(super) fn within_limit(&mut self, mut series: Series) -> Series {
        if self.admits(&series) {
            return series;
        }
        self.counters.retain(|series, n| *n > 0 || !series.labels.name_anybody());
        for names in FOLDED {
            if self.admits(&series) {
                return series;
            }
            for name in names.iter().filter(|name| series.labels.tell(name)).collect::<Vec<_>>() {
                self.seen.folded += 1;
                series.labels = series.labels.with(name, OTHER);
            }
        }
        if self.admits(&series) {
            return series;
        }
        let nobody = ["agent", "provider", "model"].map(|name| (name, Arc::from(OTHER)));
        let known = self.first_of(Labels::new(nobody.to_vec()));
        self.begin(known);
        // The usual statuses have their series by now; any other number may stand in a log.
        if series.labels.get("status").is_some() && !self.knows(&series) {
            self.seen.folded += 1;
            series.labels = series.labels.with("status", OTHER);
        }
        series
    }

    /// Returns whether a series is there, or there is room for it. The more closely it tells who was asked, the less of the
    /// limit is open to it, so that there is room for what is folded.
    fn admits(&self, series: &Series) -> bool {
        let [model, provider, _] = FOLDED.map(|names| names.iter().any(|name| series.labels.tell(name)));
        let kept_free = match (model, provider) {
            (true, _) => self.limit / 4,
            (false, true) => self.limit / 8,
            (false, false) => 0,
        };
        self.series() < self.limit - kept_free || self.knows(series)
    }

    fn knows(&self, series: &Series) -> bool {
        self.counters.contains_key(series) || self.histograms.contains_key(series)
    }

    /// Makes the series at 0 that a first failure of this agent, provider and model will need.
    pub(super) fn prepare(&mut self, of: &Labels) {
        let label = |name: &str| of.get(name).unwrap_or_default();
        let base: labels::Pairs =
            ["agent", "provider", "model"].into_iter().map(|name| (name, Arc::from(label(name)))).collect();
        let mut known = self.first_of(Labels::new(base));
        for kind in ["original", "retry", "fallback"] {
            let labels = of.with("kind", kind).with("arrival", "live");
            known.push(Series { metric: Metric::UpstreamRequests, labels });
        }
        if !of.name_anybody() || self.series() + known.len() <= self.limit - self.limit / 4 {
            self.begin(known);
        }
    }

    /// Returns the series that are known in advance, the first time that this agent, provider and model are asked for.
    fn first_of(&mut self, base: Labels) -> Vec<Series> {
        if self.prepared.contains(&base) {
            return Vec::new();
        }
        let known = known_in_advance(base.get("agent").unwrap_or_default(), &base);
        self.prepared.insert(base);
        known
    }

    fn begin(&mut self, known: Vec<Series>) {
        for series in known {
            self.counters.entry(series).or_default();
        }
    }
}
