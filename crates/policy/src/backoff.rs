//! The planned wait before a retry: the range that a layer's base, factor, cap and jitter allow.
//!
//! A wait outside that range was not the layer's own choice: a server hint was in force, or the agent was
//! busy or suspended. Telling those apart is up to the reader of the log.

use crate::{
    layer::{JitterKind, Layer, LayerPolicy},
    model::Policy,
    settings::{Lookup, Settings},
};

impl LayerPolicy {
    /// Returns the shortest and longest planned wait before retry `n` (from 1), in milliseconds, by default
    /// settings.
    ///
    /// `None` when the layer has no such retry, or its waits or jitter are not known.
    pub fn backoff(&self, n: u64) -> Option<(u64, u64)> {
        self.backoff_in_force(n, &Settings::default())
    }

    /// Like [`Self::backoff`], with the base and cap that settings hold. The number of retries is not checked
    /// against settings.
    pub fn backoff_in_force(&self, n: u64, overrides: &Settings) -> Option<(u64, u64)> {
        let read = |setting: &Option<String>| match overrides.look_up(setting.as_deref()?) {
            Lookup::One(found) => found.value.as_count(),
            Lookup::Absent | Lookup::Several(_) => None,
        };
        let base = read(&self.base_setting).or(self.base_ms)?;
        let cap = read(&self.cap_setting).or(self.cap_ms);
        let is_absent = |setting: &String| matches!(overrides.look_up(setting), Lookup::Absent);
        let is_default = self.setting.as_ref().is_none_or(is_absent)
            && self.raised_by.as_ref().is_none_or(|raise| is_absent(&raise.setting));
        if n == 0 || (is_default && self.retries.count().is_some_and(|retries| n > retries)) {
            return None;
        }
        // Beyond 2^1000 the wait is infinite anyway; the conversion below saturates.
        let exponent = i32::try_from(n - 1).unwrap_or(i32::MAX).min(1000);
        let grown = to_float(base) * self.factor.powi(exponent);
        let planned = cap.map_or(grown, |cap| grown.min(to_float(cap)));
        match self.jitter.kind {
            JitterKind::None => Some((to_millis(planned), to_millis(planned))),
            JitterKind::Factor => {
                Some((to_millis(planned * self.jitter.low), to_millis(planned * self.jitter.high)))
            }
            JitterKind::Add => {
                Some((to_millis(planned + self.jitter.low), to_millis(planned + self.jitter.high)))
            }
            JitterKind::Unknown => None,
        }
    }
}

impl Policy {
    /// Returns the range of the planned wait before retry `n` (from 1) of a layer, in milliseconds, by default
    /// settings: the widest range of the layers of that kind.
    ///
    /// `None` when the policy has no such retry, or its waits are not known.
    pub fn backoff(&self, layer: Layer, n: u64) -> Option<(u64, u64)> {
        self.backoff_in_force(layer, n, None, &Settings::default())
    }

    /// Like [`Self::backoff`], for one provider interface and the settings in force.
    pub fn backoff_in_force(
        &self,
        layer: Layer,
        n: u64,
        api: Option<&str>,
        overrides: &Settings,
    ) -> Option<(u64, u64)> {
        self.layers_for(api)
            .into_iter()
            .filter(|candidate| candidate.layer == layer && candidate.only_on.is_empty())
            .filter_map(|candidate| candidate.backoff_in_force(n, overrides))
            .reduce(|(low, high), (other_low, other_high)| (low.min(other_low), high.max(other_high)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "waits beyond 2^53 ms need no precision")]
fn to_float(millis: u64) -> f64 {
    millis as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and negative waits are zero"
)]
fn to_millis(wait: f64) -> u64 {
    wait.round() as u64
}
