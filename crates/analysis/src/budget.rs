//! The retry budget: retries as a share of upstream requests, per scope and window, in event time.
//!
//! The share is the SRE book's (<https://sre.google/sre-book/handling-overload/>): retries / all requests. A budget is
//! exhausted when retries > max(floor, limit x upstream) within the window; the floor lets a quiet client retry at all.
//! Not for: deciding whether to retry (an agent may ask and is free to ignore the answer).

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// Windows in event time.
pub const WINDOWS: &[(&str, i64)] = &[("5m", 5), ("1h", 60), ("6h", 360)];

/// Limit and floor of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BudgetPolicy {
    /// Largest share of retries, 0 to 1.
    pub limit: f64,
    /// Retries that are allowed in each window whatever the share.
    pub floor: u64,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { limit: 0.10, floor: 10 }
    }
}

/// Over what a budget is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// `global`, `provider`, `agent` or `account`.
    pub kind: String,
    /// Name of the provider, agent or account; empty for `global`.
    pub name: String,
}

impl Scope {
    /// The budget over everything.
    pub fn global() -> Self {
        Self { kind: "global".into(), name: String::new() }
    }

    /// The budget of one provider or agent.
    pub fn of(kind: &str, name: &str) -> Self {
        Self { kind: kind.into(), name: name.into() }
    }
}

/// State of one budget in one window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetState {
    /// Over what.
    pub scope: Scope,
    /// `5m`, `1h` or `6h`.
    pub window: &'static str,
    /// Upstream requests in the window.
    pub upstream: u64,
    /// Retries in the window.
    pub retries: u64,
    /// retries / upstream; 0 where nothing was sent.
    pub ratio: f64,
    /// The limit.
    pub limit: f64,
    /// Whether retries are over max(floor, limit x upstream).
    pub exhausted: bool,
    /// Whether one more retry now would stay within it.
    pub allows_retry: bool,
}

/// Upstream requests and retries by minute since 1970.
type Minutes = BTreeMap<i64, (u64, u64)>;

/// Requests and retries by minute; minutes older than the longest window are dropped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    scopes: Vec<(Scope, Minutes)>,
}

impl Budget {
    /// Adds requests that were sent in a minute (see [`Budget::minute`]).
    pub fn add(&mut self, scope: &Scope, minute: i64, upstream: u64, retries: u64) {
        let index = self.scopes.iter().position(|(known, _)| known == scope).unwrap_or_else(|| {
            self.scopes.push((scope.clone(), BTreeMap::new()));
            self.scopes.len() - 1
        });
        let minutes = &mut self.scopes[index].1;
        let minute = minutes.entry(minute).or_default();
        minute.0 += upstream;
        minute.1 += retries;
    }

    /// Returns the minute that a moment counts in, in minutes since 1970.
    pub fn minute(at: DateTime<Utc>) -> i64 {
        at.timestamp().div_euclid(60)
    }

    /// Drops what no window can reach any more.
    pub fn forget_before(&mut self, now: DateTime<Utc>) {
        let oldest = (now - TimeDelta::minutes(WINDOWS.iter().map(|(_, m)| *m).max().unwrap_or(0) + 1))
            .timestamp()
            .div_euclid(60);
        for (_, minutes) in &mut self.scopes {
            *minutes = minutes.split_off(&oldest);
        }
    }

    /// Returns the state of every budget in every window that ends now.
    pub fn states(&self, now: DateTime<Utc>, policy: BudgetPolicy) -> Vec<BudgetState> {
        let mut states = Vec::new();
        let this = now.timestamp().div_euclid(60);
        for (scope, minutes) in &self.scopes {
            for (window, length) in WINDOWS {
                let sums = minutes
                    .range(this - length + 1..=this)
                    .fold((0, 0), |(u, r), (_, (du, dr))| (u + du, r + dr));
                states.push(state(scope.clone(), window, sums, policy));
            }
        }
        states.sort_by(|a, b| (&a.scope, a.window).cmp(&(&b.scope, b.window)));
        states
    }
}

fn state(
    scope: Scope,
    window: &'static str,
    (upstream, retries): (u64, u64),
    policy: BudgetPolicy,
) -> BudgetState {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let over = |retries: u64, upstream: u64| {
        retries as f64 > (policy.floor as f64).max(policy.limit * upstream as f64)
    };
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let ratio = if upstream == 0 { 0.0 } else { retries as f64 / upstream as f64 };
    BudgetState {
        scope,
        window,
        upstream,
        retries,
        ratio,
        limit: policy.limit,
        exhausted: over(retries, upstream),
        allows_retry: !over(retries + 1, upstream + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(1_000_000 + minute)
    }

    fn of(upstream: u64, retries: u64) -> BudgetState {
        let mut budget = Budget::default();
        budget.add(&Scope::global(), Budget::minute(at(0)), upstream, retries);
        budget.states(at(0), BudgetPolicy::default()).remove(0)
    }

    #[test]
    fn the_floor_lets_a_quiet_client_retry() {
        assert!(!of(11, 10).exhausted);
        assert!(!of(11, 10).allows_retry);
        assert!(of(11, 9).allows_retry);
        assert!(of(12, 11).exhausted);
    }

    #[test]
    fn above_the_floor_the_share_decides() {
        assert!(!of(1000, 100).exhausted);
        assert!(of(1000, 101).exhausted);
    }

    #[test]
    fn a_window_forgets() {
        let mut budget = Budget::default();
        budget.add(&Scope::global(), Budget::minute(at(0)), 100, 50);
        let ratio = |minute: i64, window: &str| {
            let states = budget.states(at(minute), BudgetPolicy::default());
            states.into_iter().find(|s| s.window == window).unwrap().upstream
        };
        assert_eq!((ratio(4, "5m"), ratio(5, "5m")), (100, 0));
        assert_eq!((ratio(59, "1h"), ratio(60, "1h")), (100, 0));
    }
}
