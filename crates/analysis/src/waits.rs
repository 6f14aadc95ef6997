//! How long single waits between attempts were.

use hdrhistogram::Histogram;
use retryscope_events::Source;

use crate::run::Run;

/// Longest wait that is told apart, in ms: a day.
const LONGEST: u64 = 86_400_000;

/// So many waits are kept as they are, so that each rank among them is exact.
const EXACT: usize = 1_000;

/// Returns whether a wait was as long as was asked for: timers tick and writers round, so that 2 % and 20 ms may be missing.
pub(crate) fn is_long_enough(waited_ms: u64, asked_ms: u64) -> bool {
    waited_ms.saturating_add(asked_ms / 50 + 20) >= asked_ms
}

/// The lengths of waits between attempts: real ones where times tell them, else planned ones. Exact up to a thousand of
/// them, kept to two digits beyond.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Waits {
    /// In order, as long as there are few.
    exact: Vec<u64>,
    many: Option<Histogram<u64>>,
}

impl Waits {
    /// Takes the foreground waits of a run.
    pub(crate) fn add(&mut self, run: &Run) {
        let foreground =
            run.turns.iter().flat_map(|t| &t.requests).filter(|r| r.source == Source::Foreground);
        for request in foreground {
            for (index, attempt) in request.attempts.iter().enumerate() {
                // A plan that no attempt followed may have been cut short.
                let planned = attempt.delay_ms.filter(|_| index + 1 < request.attempts.len());
                if let Some(wait) = attempt.waited_ms.or(planned) {
                    self.record(wait);
                }
            }
        }
    }

    fn record(&mut self, wait: u64) {
        if let Some(many) = &mut self.many {
            many.saturating_record(wait);
            return;
        }
        let at = self.exact.partition_point(|known| *known <= wait);
        self.exact.insert(at, wait);
        if self.exact.len() > EXACT {
            // Fails only for bounds that make no sense; then the waits stay as they are.
            self.many = Histogram::new_with_bounds(1, LONGEST, 2).ok();
            if let Some(many) = &mut self.many {
                self.exact.drain(..).for_each(|wait| many.saturating_record(wait));
            }
        }
    }

    /// Returns how many waits there are.
    pub fn count(&self) -> u64 {
        self.many.as_ref().map_or(self.exact.len() as u64, Histogram::len)
    }

    /// Returns the wait in ms that this share of the waits does not exceed (`0.0..=1.0`); `None` without waits.
    pub fn at(&self, share: f64) -> Option<u64> {
        if let Some(many) = &self.many {
            return Some(many.value_at_quantile(share));
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a thousand, times a share between 0 and 1"
        )]
        let rank = (self.exact.len() as f64 * share.clamp(0.0, 1.0)).ceil() as usize;
        self.exact.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_waits_have_exact_ranks() {
        let mut waits = Waits::default();
        assert_eq!((waits.count(), waits.at(0.5)), (0, None));
        for wait in [400, 100, 100_003, 203] {
            waits.record(wait);
        }
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 0.99, 1.0].map(|share| waits.at(share)),
            [Some(100), Some(100), Some(203), Some(400), Some(100_003), Some(100_003)]
        );
    }

    #[test]
    fn many_waits_are_near() {
        let mut waits = Waits::default();
        for wait in 1..=10_000 {
            waits.record(wait);
        }
        let near = |got: Option<u64>, want: u64| got.is_some_and(|got| got.abs_diff(want) * 50 <= want);
        assert_eq!(waits.count(), 10_000);
        assert!(near(waits.at(0.5), 5_000), "{:?}", waits.at(0.5));
        assert!(near(waits.at(1.0), 10_000), "{:?}", waits.at(1.0));
    }
}
