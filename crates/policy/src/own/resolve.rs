//! Which limits hold for a failure: the most specific row wins, field by field.

use std::sync::OnceLock;

use serde::Serialize;

use super::document::{Budget, JitterRange, Limits, OwnPolicy, Profile, Row};

const INTERACTIVE: &str = include_str!("../../data/profiles/interactive.toml");
const BATCH: &str = include_str!("../../data/profiles/batch.toml");

/// The limits in force for one kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Resolved {
    /// Requests for one answer on one candidate, the first included.
    pub attempts: u64,
    /// First wait in milliseconds.
    pub base_ms: u64,
    /// Longest wait in milliseconds, before jitter.
    pub cap_ms: u64,
    /// Random part of the waits.
    pub jitter: JitterRange,
    /// Time for one answer in milliseconds.
    pub total_ms: u64,
    /// Longest wait in milliseconds that a server may ask for.
    pub retry_after_cap_ms: u64,
}

impl Profile {
    /// The profile's name, as it stands in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }

    /// The profile's text, in the form of a `policy.toml`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Interactive => INTERACTIVE,
            Self::Batch => BATCH,
        }
    }

    fn policy(self) -> &'static OwnPolicy {
        static PROFILES: OnceLock<[OwnPolicy; 2]> = OnceLock::new();
        // The texts are part of the program and tested; an empty policy resolves to one attempt.
        let [interactive, batch] = PROFILES
            .get_or_init(|| [INTERACTIVE, BATCH].map(|text| toml::from_str(text).unwrap_or_default()));
        match self {
            Self::Interactive => interactive,
            Self::Batch => batch,
        }
    }
}

impl OwnPolicy {
    /// Returns the limits for a failure. `reason` may be empty when it is not known.
    ///
    /// A row is more specific the more of provider, class and reason it names; among equals reason counts more
    /// than class, and class more than provider. A row of the file wins over one of the profile that is equally
    /// specific, not over a more specific one: `[defaults]` do not switch retries of `auth` on.
    pub fn resolve(&self, provider: &str, class: &str, reason: &str) -> Resolved {
        let rows = |policy: &OwnPolicy, is_own: bool| {
            policy
                .rows
                .iter()
                .filter(|row| row.matches(provider, class, reason))
                .map(|row| ((row.specificity(), is_own), row.limits()))
                .collect::<Vec<_>>()
        };
        let profile = self.profile.policy();
        let mut limits = rows(self, true);
        limits.extend(rows(profile, false));
        limits.push(((0, true), self.defaults));
        limits.push(((0, false), profile.defaults));
        limits.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));

        Resolved {
            attempts: first(&limits, |limits| limits.attempts).unwrap_or(1),
            base_ms: first(&limits, |limits| limits.base_ms).unwrap_or(0),
            cap_ms: first(&limits, |limits| limits.cap_ms).unwrap_or(0),
            jitter: first(&limits, |limits| limits.jitter).unwrap_or(JitterRange { low: 1.0, high: 1.0 }),
            total_ms: first(&limits, |limits| limits.total_ms).unwrap_or(0),
            retry_after_cap_ms: first(&limits, |limits| limits.retry_after_cap_ms).unwrap_or(0),
        }
    }

    /// The retry budget in force: the file's, else the profile's.
    pub fn budget_in_force(&self) -> Option<Budget> {
        self.budget.or(self.profile.policy().budget)
    }
}

/// The value of a field in the first limits that set it.
fn first<T>(limits: &[((u8, bool), Limits)], field: impl Fn(&Limits) -> Option<T>) -> Option<T> {
    limits.iter().find_map(|(_, limits)| field(limits))
}

impl Row {
    fn matches(&self, provider: &str, class: &str, reason: &str) -> bool {
        let fits =
            |wanted: &Option<String>, given: &str| wanted.as_ref().is_none_or(|wanted| wanted == given);
        fits(&self.provider, provider) && fits(&self.class, class) && fits(&self.reason, reason)
    }

    /// Rank among rows that match: the number of keys named, then which ones.
    pub(super) fn specificity(&self) -> u8 {
        let named = |key: &Option<String>| u8::from(key.is_some());
        let (provider, class, reason) = (named(&self.provider), named(&self.class), named(&self.reason));
        (provider + class + reason) * 8 + reason * 4 + class * 2 + provider
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::{CLASSES, check, parse};

    #[test]
    fn shipped_profiles_are_complete_and_without_problems() {
        for profile in [Profile::Interactive, Profile::Batch] {
            let policy = parse(profile.text()).unwrap();
            assert!(policy.defaults.attempts.is_some() && policy.defaults.base_ms.is_some());
            assert!(policy.defaults.cap_ms.is_some() && policy.defaults.jitter.is_some());
            assert!(policy.defaults.total_ms.is_some() && policy.defaults.retry_after_cap_ms.is_some());
            assert_eq!(check(profile.text()), []);
        }
    }

    #[test]
    fn interactive_means_three_retries_and_ninety_seconds() {
        let policy = OwnPolicy::default();
        for class in CLASSES {
            let row = policy.resolve("any", class, "any");
            assert!(row.attempts <= 4 && row.total_ms <= 90_000, "{class}: {row:?}");
        }
        assert_eq!(policy.resolve("any", "transient", "").attempts, 4);
        assert_eq!(policy.resolve("any", "exhausted", "").attempts, 1);
        let batch = OwnPolicy { profile: Profile::Batch, ..OwnPolicy::default() };
        assert_eq!(batch.resolve("any", "transient", "").attempts, 10);
    }

    #[test]
    fn the_most_specific_row_wins_field_by_field() {
        let policy = parse(
            r#"
            [defaults]
            attempts = 9
            [[rows]]
            class = "throttled"
            attempts = 3
            cap_ms = 7000
            [[rows]]
            provider = "openai"
            base_ms = 111
            attempts = 5
            [[rows]]
            provider = "openai"
            class = "throttled"
            reason = "slow_down"
            attempts = 2
            "#,
        )
        .unwrap();
        let attempts = |provider, class, reason| policy.resolve(provider, class, reason).attempts;
        assert_eq!(attempts("groq", "transient", "unavailable"), 9);
        assert_eq!(attempts("groq", "throttled", "rate_limit"), 3);
        assert_eq!(attempts("openai", "throttled", "rate_limit"), 3, "class counts more than provider");
        assert_eq!(attempts("openai", "throttled", "slow_down"), 2);
        // The profile's row for the class is more specific than the file's defaults.
        assert_eq!(attempts("groq", "auth", "invalid_key"), 1);
        let row = policy.resolve("openai", "throttled", "slow_down");
        assert_eq!((row.base_ms, row.cap_ms, row.total_ms), (111, 7000, 90_000));
    }
}
