//! Versions of agents, and half-open ranges of them.
//!
//! Not a full semantic-version implementation: agents print `0.171.0`, `2.1.332` or `v1.6.0-beta.2`, and a
//! policy only needs to know which side of a boundary that is.

use std::cmp::Ordering;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A version as dotted numbers. Missing parts are zero, a pre-release or build suffix is dropped.
///
/// For rivumi, whose logs carry no version, the number is the generation of its retry loop (0, 1, 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(Vec<u64>);

impl Version {
    /// Reads the first run of dotted numbers in `text` (`"codex-cli 0.171.0"`, `"v1.6"`).
    ///
    /// `None` when there is no number in it, or one beyond 64 bits.
    pub fn parse(text: &str) -> Option<Self> {
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let rest = text.get(start..)?;
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let mut parts = rest
            .get(..end)?
            .split('.')
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().ok())
            .collect::<Option<Vec<u64>>>()?;
        while parts.len() > 1 && parts.last() == Some(&0) {
            parts.pop();
        }
        Some(Self(parts))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.0.len().max(other.0.len());
        let part = |version: &Self, index: usize| version.0.get(index).copied().unwrap_or(0);
        (0..length)
            .map(|index| part(self, index).cmp(&part(other, index)))
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            write!(f, "{part}")?;
        }
        Ok(())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a version")))
    }
}

/// The versions a statement holds for: `from` (inclusive) up to `before` (exclusive).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionRange {
    /// First version; `None` means since the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    /// First version it no longer holds for; `None` means up to the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Version>,
}

impl VersionRange {
    /// Whether `version` lies in the range.
    pub fn contains(&self, version: &Version) -> bool {
        self.from.as_ref().is_none_or(|from| from <= version)
            && self.before.as_ref().is_none_or(|before| version < before)
    }

    /// Whether the two ranges share a version.
    pub fn overlaps(&self, other: &Self) -> bool {
        let starts_before_end = |start: &Self, end: &Self| match (&start.from, &end.before) {
            (Some(from), Some(before)) => from < before,
            _ => true,
        };
        starts_before_end(self, other) && starts_before_end(other, self)
    }

    /// Whether every version of `other` lies in this range.
    pub fn covers(&self, other: &Self) -> bool {
        let from = match (&self.from, &other.from) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => mine <= theirs,
        };
        let before = match (&self.before, &other.before) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => mine >= theirs,
        };
        from && before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn reads_what_agents_print() {
        for (text, expected) in
            [("0.171.0", "0.171"), ("codex-cli 0.60.1", "0.60.1"), ("v1.6.0-beta.2", "1.6"), ("2", "2")]
        {
            assert_eq!(version(text).to_string(), expected, "{text}");
        }
        assert_eq!(Version::parse("unknown"), None);
        assert_eq!(Version::parse("99999999999999999999999"), None);
    }

    #[test]
    fn compares_numbers_not_text() {
        assert!(version("0.60.1") < version("0.104.0"));
        assert!(version("2.1.99") < version("2.1.100"));
        assert_eq!(version("1.0"), version("1"));
    }

    #[test]
    fn a_range_is_half_open() {
        let range = VersionRange { from: Some(version("0.104")), before: Some(version("0.171")) };
        assert!(range.contains(&version("0.104.0")));
        assert!(range.contains(&version("0.170.9")));
        assert!(!range.contains(&version("0.171.0")));
        assert!(!range.overlaps(&VersionRange { from: Some(version("0.171")), before: None }));
        assert!(range.overlaps(&VersionRange { from: Some(version("0.170")), before: None }));
        assert!(VersionRange::default().covers(&range) && !range.covers(&VersionRange::default()));
    }
}
