//! How many requests a policy allows: for one logical request, and behind one attempt that a log shows.
//!
//! All bounds hold for **one candidate** (a fallback usually starts a fresh number of retries, see
//! [`Policy::fallbacks`]) and for requests that reach a server: a loop that waits for a network is left out
//! unless asked for with [`Failure::Connection`].

use serde::Serialize;

use crate::{
    failure::Failure,
    layer::{Acts, LayerPolicy, Nesting},
    model::Policy,
    settings::{Lookup, SettingValue, Settings},
};

/// A range of request counts, with what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// At least this many.
    pub min: u64,
    /// At most this many. `None` when there is no known bound.
    pub max: Option<u64>,
    /// The policy and settings used: "codex 0.171 defaults: `request_max_retries` 4".
    pub basis: String,
}

impl Bound {
    /// Whether the count is known exactly.
    pub fn is_exact(&self) -> bool {
        self.max == Some(self.min)
    }

    /// The bound when either may be true, as when the agent's version is not known.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let basis = if self.basis == other.basis {
            self.basis.clone()
        } else {
            format!("either {}, or {}", self.basis.trim_start_matches("either "), other.basis)
        };
        Self {
            min: self.min.min(other.min),
            max: self.max.zip(other.max).map(|(mine, theirs)| mine.max(theirs)),
            basis,
        }
    }
}

impl Policy {
    /// Returns the layers that apply to a provider interface, outermost first.
    ///
    /// Without one, or with one the policy does not list, all that may apply are returned.
    pub fn layers_for(&self, api: Option<&str>) -> Vec<&LayerPolicy> {
        let variants = self.variants(api);
        self.layers
            .iter()
            .filter(|layer| variants.iter().any(|variant| self.applies(layer, variant)))
            .collect()
    }

    /// Returns the most requests one logical request can cost on one candidate, if every attempt fails with an
    /// ordinary server error. `min` is 1.
    pub fn max_attempts(&self, api: Option<&str>, overrides: &Settings) -> Bound {
        self.bound(api, overrides, |layer| layer.only_on.is_empty(), "")
    }

    /// Like [`Self::max_attempts`], if every attempt fails in the same given way.
    ///
    /// A layer of which the data does not say whether it retries that is counted, so that `max` stays a bound.
    pub fn attempts_under(&self, failure: Failure, api: Option<&str>, overrides: &Settings) -> Bound {
        self.bound(api, overrides, |layer| layer.acts_on(failure) != Acts::No, "no layer retries this")
    }

    /// Returns how many requests can stand behind one attempt that the log view `view` records.
    ///
    /// The layers below the innermost one that the view records are hidden. A view that records none, or is not
    /// known, hides all of them: then the bound is for a logical request.
    pub fn hidden_per_visible_attempt(&self, view: &str, api: Option<&str>, overrides: &Settings) -> Bound {
        self.bound(
            api,
            overrides,
            |layer| !layer.is_connection_only() && self.is_hidden(layer, view),
            &format!("{view} records every attempt"),
        )
    }

    /// Like [`Self::hidden_per_visible_attempt`], for an attempt that is seen to have ended in `failure`.
    ///
    /// `max` is the same, since earlier hidden attempts may have failed in another way. `min` rises where the
    /// hidden layers retry such a failure and cannot stop before their retries are used up.
    pub fn hidden_under(
        &self,
        failure: Failure,
        view: &str,
        api: Option<&str>,
        overrides: &Settings,
    ) -> Bound {
        let mut bound = self.hidden_per_visible_attempt(view, api, overrides);
        let variants = self.variants(api);
        let runs_dry = self
            .layers
            .iter()
            .filter(|layer| variants.iter().any(|variant| self.applies(layer, variant)))
            .filter(|layer| !layer.is_connection_only() && self.is_hidden(layer, view))
            .all(|layer| {
                layer.always_runs_dry
                    && layer.acts_on(failure) == Acts::Yes
                    && !InForce::of(layer, self, overrides).is_ambiguous
            });
        if let (true, [_], Some(max)) = (runs_dry, variants.as_slice(), bound.max) {
            bound.min = max;
        }
        bound
    }

    /// Returns whether one of the layers that a view records makes so many attempts at most under these settings, also where
    /// that is not known of one, or none is recorded. Where a log tells another number, further settings are in force.
    pub fn agrees_with(&self, told: u64, view: &str, api: Option<&str>, overrides: &Settings) -> bool {
        let variants = self.variants(api);
        let recorded = self.layers.iter().filter(|layer| {
            layer.only_on.is_empty()
                && layer.visible_in.iter().any(|id| id == view)
                && variants.iter().any(|variant| self.applies(layer, variant))
        });
        let mut attempts = recorded.map(|layer| InForce::of(layer, self, overrides).retries).peekable();
        attempts.peek().is_none()
            || attempts.any(|retries| retries.is_none_or(|retries| retries.saturating_add(1) == told))
    }

    fn is_hidden(&self, layer: &LayerPolicy, view: &str) -> bool {
        let records = |layer: &LayerPolicy| layer.visible_in.iter().any(|id| id == view);
        if layer.nesting == Nesting::Adds {
            return !records(layer);
        }
        let position = self.layers.iter().position(|other| std::ptr::eq(other, layer));
        let innermost = self.layers.iter().rposition(|other| {
            other.nesting == Nesting::Multiplies && other.only_on.is_empty() && records(other)
        });
        position > innermost && !records(layer)
    }

    /// The provider interfaces a question is about: one, or all when it is not named.
    fn variants<'a>(&'a self, api: Option<&'a str>) -> Vec<&'a str> {
        if let Some(api) = api {
            return vec![api];
        }
        let mut variants: Vec<&str> = self.apis.iter().map(|api| api.id.as_str()).collect();
        if variants.is_empty() || self.layers.iter().any(|layer| layer.when.iter().any(|when| when == OTHER))
        {
            variants.push(OTHER);
        }
        variants
    }

    fn applies(&self, layer: &LayerPolicy, api: &str) -> bool {
        let is_listed = self.apis.iter().any(|listed| listed.id == api);
        layer.when.iter().any(|when| when == "any" || when == api || (when == OTHER && !is_listed))
    }

    fn bound(
        &self,
        api: Option<&str>,
        overrides: &Settings,
        counts: impl Fn(&LayerPolicy) -> bool,
        nothing: &str,
    ) -> Bound {
        let mut max = Some(0);
        let mut basis = Basis::default();
        for variant in self.variants(api) {
            let mut product = Some(1_u64);
            let mut sum = Some(0_u64);
            for layer in self.layers.iter().filter(|layer| self.applies(layer, variant) && counts(layer)) {
                let in_force = InForce::of(layer, self, overrides);
                let retries = in_force.retries;
                match layer.nesting {
                    Nesting::Multiplies => {
                        product = product.zip(retries).and_then(|(a, b)| a.checked_mul(b.saturating_add(1)));
                    }
                    Nesting::Adds => sum = sum.zip(retries).and_then(|(a, b)| a.checked_add(b)),
                }
                basis.add(layer, in_force);
            }
            let total = product.zip(sum).and_then(|(product, sum)| product.checked_add(sum));
            max = max.zip(total).map(|(max, total): (u64, u64)| max.max(total));
        }
        Bound { min: 1, max, basis: basis.text(&self.title, nothing) }
    }
}

/// The selector for provider interfaces that a policy does not list.
const OTHER: &str = "other";

/// The number of retries of a layer under given settings, and where it comes from.
struct InForce {
    /// `None` when there is no known bound.
    retries: Option<u64>,
    /// The setting and the file it was read in; `None` when the default is used.
    read: Option<(String, String)>,
    /// Whether several values were read and it is not known which applies. `retries` is then the largest.
    is_ambiguous: bool,
}

impl InForce {
    fn of(layer: &LayerPolicy, policy: &Policy, overrides: &Settings) -> Self {
        if let Some(switch) = &layer.switch {
            let (is_on, read, is_ambiguous) = match overrides.look_up(&switch.setting) {
                Lookup::Absent => (switch.default, None, false),
                Lookup::One(found) => {
                    (found.value.is_on().unwrap_or(switch.default), Some(&found.file), false)
                }
                Lookup::Several(found) => {
                    let may_be_on = found.iter().any(|entry| entry.value.is_on() == Some(true));
                    (switch.default || may_be_on, None, true)
                }
            };
            if !is_on {
                let read = read.map(|file| (format!("{} off", switch.setting), file.clone()));
                return Self { retries: Some(0), read, is_ambiguous };
            }
        }
        if let Some(raise) = &layer.raised_by
            && let Lookup::One(found) = overrides.look_up(&raise.setting)
            && found.value.is_on() == Some(true)
        {
            let read = Some((format!("{} on", raise.setting), found.file.clone()));
            return Self { retries: raise.retries.count(), read, is_ambiguous: false };
        }
        let default = Self { retries: layer.retries.count(), read: None, is_ambiguous: false };
        let Some(setting) = &layer.setting else { return default };
        let limit = |value: u64| layer.setting_max.map_or(value, |max| value.min(max));
        let count = |value: &SettingValue| value.as_count().map(limit);
        match overrides.look_up(setting) {
            Lookup::Absent => default,
            Lookup::One(found) => {
                let Some(retries) = count(&found.value) else {
                    // What the agent makes of it is not known.
                    let read = Some((
                        format!("{setting} {}, which is not understood", found.value),
                        found.file.clone(),
                    ));
                    return Self { retries: None, read, is_ambiguous: true };
                };
                let is_doubtful = found.scope.as_ref().is_some_and(|scope| {
                    policy.settings.iter().any(|known| {
                        known.name == *setting && known.not_applied_in.iter().any(|other| other == scope)
                    })
                });
                let (retries, doubt) = if is_doubtful {
                    // Either value may be in force, so the larger one bounds both.
                    (default.retries.map(|default| default.max(retries)), " or its default")
                } else {
                    (Some(retries), "")
                };
                let read = Some((format!("{setting} {}{doubt}", found.value), found.file.clone()));
                Self { retries, read, is_ambiguous: is_doubtful }
            }
            Lookup::Several(found) => {
                let largest = found.iter().filter_map(|entry| count(&entry.value)).max();
                let retries = default.retries.map(|default| default.max(largest.unwrap_or(0)));
                let file = found.first().map(|entry| entry.file.clone()).unwrap_or_default();
                let read = Some((format!("{setting} differs by provider, largest taken"), file));
                Self { retries, read, is_ambiguous: true }
            }
        }
    }
}

/// Collects what a bound rests on, each thing once.
#[derive(Default)]
struct Basis {
    defaults: Vec<String>,
    read: Vec<String>,
}

impl Basis {
    fn add(&mut self, layer: &LayerPolicy, in_force: InForce) {
        let (list, text) = if let Some((text, file)) = in_force.read {
            (&mut self.read, if file.is_empty() { text } else { format!("{file}: {text}") })
        } else {
            let name = layer.setting.as_ref().unwrap_or(&layer.name);
            let text = match in_force.retries {
                Some(0) if layer.switch.as_ref().is_some_and(|switch| !switch.default) => {
                    format!("{} off", layer.name)
                }
                Some(count) => format!("{name} {count}"),
                None => format!("{name} without a known limit"),
            };
            (&mut self.defaults, text)
        };
        if !list.contains(&text) {
            list.push(text);
        }
    }

    fn text(self, title: &str, nothing: &str) -> String {
        let mut parts = self.read;
        if !self.defaults.is_empty() {
            parts.push(format!("{title} defaults: {}", self.defaults.join(", ")));
        }
        if parts.is_empty() {
            return if nothing.is_empty() {
                format!("{title}: no retries")
            } else {
                format!("{title}: {nothing}")
            };
        }
        if !parts.iter().any(|part| part.starts_with(title)) {
            parts.push(title.to_owned());
        }
        parts.join("; ")
    }
}
