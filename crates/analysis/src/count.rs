//! Numbers that carry how they are known.
//!
//! Not for: deciding what is counted (see `view` and `join`). Invariant: a bound never excludes the truth as far as its
//! sources are honest, and an unknown upper end absorbs every sum.

use serde::{Deserialize, Serialize};

/// Lower and upper end of a count; `max: None` = no known upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bound {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: Option<u64>,
}

impl Bound {
    /// Exactly zero.
    pub const ZERO: Bound = Bound::exact(0);

    /// Returns an exact count.
    pub const fn exact(value: u64) -> Self {
        Self { min: value, max: Some(value) }
    }

    /// Returns "at least `min`".
    pub const fn at_least(min: u64) -> Self {
        Self { min, max: None }
    }

    /// Returns a range; an upper end below the lower one is raised to it.
    pub fn range(min: u64, max: Option<u64>) -> Self {
        Self { min, max: max.map(|max| max.max(min)) }
    }

    /// Returns whether both ends are equal.
    pub fn is_exact(self) -> bool {
        self.max == Some(self.min)
    }

    /// Adds the ends; numbers of a log may be of any size.
    #[must_use]
    pub fn plus(self, other: Bound) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.zip(other.max).map(|(a, b)| a.saturating_add(b)),
        }
    }

    /// Multiplies the ends.
    #[must_use]
    pub fn times(self, other: Bound) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.zip(other.max).map(|(a, b)| a.saturating_mul(b)),
        }
    }

    /// Takes away a number that is part of it, at both ends.
    #[must_use]
    pub fn minus(self, part: u64) -> Self {
        Self { min: self.min.saturating_sub(part), max: self.max.map(|max| max.saturating_sub(part)) }
    }

    /// Takes away counts of the same things: the least of them from the least, the most from the most.
    #[must_use]
    pub fn without(self, part: Bound) -> Self {
        let max = self.max.map(|max| part.max.map_or(0, |part| max.saturating_sub(part)));
        Bound::range(self.min.saturating_sub(part.min), max)
    }

    /// Returns whether there is no number that both allow.
    pub(crate) fn excludes(self, other: Bound) -> bool {
        self.max.is_some_and(|max| max < other.min) || other.max.is_some_and(|max| max < self.min)
    }

    /// Returns what both allow. Where they contradict each other, the larger lower end stands alone: something that was seen
    /// happened, and one of the upper ends is wrong.
    #[must_use]
    pub fn intersect(self, other: Bound) -> Self {
        let min = self.min.max(other.min);
        let max = match (self.max, other.max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { min, max: max.filter(|max| *max >= min) }
    }
}

/// How a number is known, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A record says it.
    Observed,
    /// A documented rule over records.
    Derived,
    /// A range from the agent's known policy.
    Inferred,
    /// This log cannot tell.
    NotVisible,
}

/// A count with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The ends. For [`Evidence::NotVisible`] the lower end is what can be seen, for use in sums only.
    pub bound: Bound,
    /// How it is known; the worst of its parts.
    pub evidence: Evidence,
    /// Which policy or setting a range rests on; `None` for counts that rest on records alone.
    pub basis: Option<String>,
}

impl Count {
    /// An observed zero, the neutral element of [`Count::plus`].
    pub const ZERO: Count = Count { bound: Bound::ZERO, evidence: Evidence::Observed, basis: None };

    /// Returns a count that records state.
    pub fn observed(value: u64) -> Self {
        Self { bound: Bound::exact(value), evidence: Evidence::Observed, basis: None }
    }

    /// Returns a count with the given evidence.
    pub fn new(bound: Bound, evidence: Evidence) -> Self {
        Self { bound, evidence, basis: None }
    }

    /// Returns a count of which `seen` is what the log shows, and nothing else is known.
    pub fn not_visible(seen: u64) -> Self {
        Self::new(Bound::at_least(seen), Evidence::NotVisible)
    }

    /// Returns whether the log can tell anything.
    pub fn is_visible(&self) -> bool {
        self.evidence != Evidence::NotVisible
    }

    /// Adds two counts; the worse evidence is kept. A sum with a part that is not visible is a lower bound.
    #[must_use]
    pub fn plus(&self, other: &Count) -> Self {
        Self {
            bound: self.bound.plus(other.bound),
            evidence: self.evidence.max(other.evidence),
            basis: self.basis.clone().or_else(|| other.basis.clone()),
        }
    }

    /// Returns what two sources of the same thing allow together. Evidence and basis come from the source that tells
    /// more.
    #[must_use]
    pub fn intersect(&self, other: &Count) -> Self {
        let bound = self.bound.intersect(other.bound);
        let better = |a: &Count, b: &Count| {
            (b.bound == bound && a.bound != bound)
                || (a.bound == bound) == (b.bound == bound) && b.evidence < a.evidence
        };
        let from = if better(self, other) { other } else { self };
        let evidence = if bound.is_exact() || from.bound == bound {
            // Exact because a lower end of one source meets the upper end of another: a rule over records.
            if from.bound == bound { from.evidence } else { Evidence::Derived }
        } else {
            self.evidence.min(other.evidence).max(Evidence::Derived)
        };
        let evidence = if evidence == Evidence::NotVisible && bound.max.is_some() {
            Evidence::Inferred
        } else {
            evidence
        };
        Self { bound, evidence, basis: from.basis.clone() }
    }
}

/// The five counts of a run, a turn or a sum of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Model answers that were asked for.
    pub logical_requests: Count,
    /// Requests that were sent.
    pub upstream_requests: Count,
    /// Sends after the first to the same candidate.
    pub retries: Count,
    /// First sends to another candidate.
    pub fallbacks: Count,
    /// Sends that failed.
    pub failed_attempts: Count,
}

impl Counts {
    /// No requests at all.
    pub const ZERO: Counts = Counts {
        logical_requests: Count::ZERO,
        upstream_requests: Count::ZERO,
        retries: Count::ZERO,
        fallbacks: Count::ZERO,
        failed_attempts: Count::ZERO,
    };

    /// Returns the counts of which a log tells nothing.
    pub fn not_visible() -> Self {
        Counts {
            logical_requests: Count::not_visible(0),
            upstream_requests: Count::not_visible(0),
            retries: Count::not_visible(0),
            fallbacks: Count::not_visible(0),
            failed_attempts: Count::not_visible(0),
        }
    }

    /// Adds count by count. Where a part is not visible but retries were seen in another, the sum is a lower bound that
    /// tells something.
    #[must_use]
    pub fn plus(&self, other: &Counts) -> Self {
        let mut sum = self.zip(other, Count::plus);
        if sum.retries.bound.min > 0 {
            for count in [&mut sum.upstream_requests, &mut sum.retries, &mut sum.failed_attempts] {
                count.evidence = count.evidence.min(Evidence::Inferred);
            }
        }
        sum
    }

    /// Intersects count by count.
    #[must_use]
    pub fn intersect(&self, other: &Counts) -> Self {
        self.zip(other, Count::intersect)
    }

    fn zip(&self, other: &Counts, f: impl Fn(&Count, &Count) -> Count) -> Self {
        Self {
            logical_requests: f(&self.logical_requests, &other.logical_requests),
            upstream_requests: f(&self.upstream_requests, &other.upstream_requests),
            retries: f(&self.retries, &other.retries),
            fallbacks: f(&self.fallbacks, &other.fallbacks),
            failed_attempts: f(&self.failed_attempts, &other.failed_attempts),
        }
    }

    /// Whether ratios can be told: something says how often requests were sent, and how many were asked for is bounded. An
    /// unknown number of requests that were sent once would lower every ratio.
    pub fn is_countable(&self) -> bool {
        self.upstream_requests.is_visible()
            && self.logical_requests.is_visible()
            && self.logical_requests.bound.max.is_some()
    }

    /// Returns upstream / logical as (min, max); `None` where nothing was asked or it cannot be told.
    pub fn amplification(&self) -> Option<(f64, Option<f64>)> {
        let logical = self.logical_requests.bound;
        if !self.is_countable() || logical.min == 0 {
            return None;
        }
        let upstream = self.upstream_requests.bound;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let ratio = |a: u64, b: u64| a as f64 / b as f64;
        let low = ratio(upstream.min, logical.max?.min(upstream.min).max(1)).max(1.0);
        Some((low, upstream.max.map(|max| ratio(max, logical.min).max(low))))
    }

    /// Returns retries / upstream as (min, max); `None` where it cannot be told.
    pub fn retry_ratio(&self) -> Option<(f64, Option<f64>)> {
        if !self.is_countable() || !self.retries.is_visible() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let ratio =
            |retries: u64, upstream: u64| if upstream == 0 { 0.0 } else { retries as f64 / upstream as f64 };
        let (upstream, retries) = (self.upstream_requests.bound, self.retries.bound);
        if upstream.min == 0 {
            return None;
        }
        // What was sent is first sends, fallbacks and retries: the ratio is lowest with the fewest retries among the most
        // others.
        let others = self.logical_requests.bound.plus(self.fallbacks.bound).max;
        let low = others
            .map_or(0.0, |others| ratio(retries.min, upstream.min.max(others.saturating_add(retries.min))));
        let high = upstream.max.zip(retries.max).map(|(upstream, retries)| ratio(retries, upstream).max(low));
        (low > 0.0 || high.is_some()).then_some((low, high))
    }
}
