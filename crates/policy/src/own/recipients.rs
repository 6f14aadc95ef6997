//! Who may receive data of a class when a request moves to another candidate.

use super::document::{Recipients, RecipientsTo};

/// A candidate as it is written in a fallback chain: `provider/model`, or `provider/model@region`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The provider, as the agent names it.
    pub provider: &'a str,
    /// The model; may hold further slashes.
    pub model: &'a str,
    /// The region. `None` when it is not stated.
    pub region: Option<&'a str>,
}

impl<'a> Candidate<'a> {
    /// Takes a candidate apart. `None` when provider or model is missing, or the region is empty.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (provider, rest) = text.split_once('/')?;
        let (model, region) = match rest.rsplit_once('@') {
            Some((model, region)) => (model, Some(region)),
            None => (rest, None),
        };
        let is_complete = !provider.is_empty() && !model.is_empty() && region != Some("");
        is_complete.then_some(Self { provider, model, region })
    }
}

impl std::fmt::Display for Candidate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)?;
        self.region.map_or(Ok(()), |region| write!(f, "@{region}"))
    }
}

/// Why a candidate may not receive data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The rule is `off`.
    #[error("fallback is off")]
    Off,
    /// The rule does not name its provider.
    #[error("its provider is not allowed")]
    Provider,
    /// Its region is not in the list, or not stated.
    #[error("its region is not allowed")]
    Region,
}

impl Recipients {
    /// Returns why a request may not move from `first` to `target`. `None` when it may.
    pub fn refusal(&self, first: Candidate<'_>, target: Candidate<'_>) -> Option<Refusal> {
        let is_same_provider = target.provider == first.provider;
        let is_provider_allowed = match self.to {
            RecipientsTo::Off => return Some(Refusal::Off),
            RecipientsTo::SameProvider => is_same_provider,
            RecipientsTo::AllowList => {
                is_same_provider || self.providers.iter().any(|allowed| allowed == target.provider)
            }
            RecipientsTo::Any => true,
        };
        if !is_provider_allowed {
            return Some(Refusal::Provider);
        }
        let is_region_allowed = self.regions.is_empty()
            || target.region.is_some_and(|region| self.regions.iter().any(|allowed| allowed == region));
        (!is_region_allowed).then_some(Refusal::Region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_taken_apart() {
        let parse = |text| Candidate::parse(text).map(|c| (c.provider, c.model, c.region));
        assert_eq!(parse("a/b"), Some(("a", "b", None)));
        assert_eq!(parse("openrouter/meta/llama@eu"), Some(("openrouter", "meta/llama", Some("eu"))));
        for text in ["a", "/b", "a/", "a/b@", "a/@eu", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_rule_and_the_region_both_count() {
        let rule = |to, providers: &[&str], regions: &[&str]| Recipients {
            to,
            providers: providers.iter().map(|&provider| provider.to_owned()).collect(),
            regions: regions.iter().map(|&region| region.to_owned()).collect(),
        };
        let refusal = |rule: &Recipients, target| {
            rule.refusal(Candidate::parse("a/x@eu").unwrap(), Candidate::parse(target).unwrap())
        };
        assert_eq!(refusal(&rule(RecipientsTo::Off, &[], &[]), "a/y"), Some(Refusal::Off));
        assert_eq!(refusal(&rule(RecipientsTo::SameProvider, &[], &[]), "a/y"), None);
        assert_eq!(refusal(&rule(RecipientsTo::SameProvider, &[], &[]), "b/y"), Some(Refusal::Provider));
        let listed = rule(RecipientsTo::AllowList, &["b"], &["eu"]);
        assert_eq!(refusal(&listed, "b/y@eu"), None);
        assert_eq!(refusal(&listed, "b/y"), Some(Refusal::Region), "a region not stated is not allowed");
        assert_eq!(refusal(&listed, "c/y@eu"), Some(Refusal::Provider));
        assert_eq!(refusal(&rule(RecipientsTo::Any, &[], &[]), "c/y"), None);
    }
}
