//! What the logs of each agent can show, and which lines make them show more.

use std::collections::BTreeMap;

use retryscope_analysis::Run;
use retryscope_policy::{Attempts, Policy, find};
use retryscope_report::Page;

/// Returns the policy of each agent that runs were found of, for its newest version.
pub(crate) fn of(runs: &[Run]) -> Vec<&'static Policy> {
    let mut versions: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for run in runs {
        let version = run.facts.policy_version.as_deref().or(run.facts.agent_version.as_deref());
        let known = versions.entry(&run.key.agent).or_default();
        if version.map(parts) > known.map(parts) {
            *known = version;
        }
    }
    versions.into_iter().filter_map(|(agent, version)| find(agent, version)).collect()
}

/// Returns the numbers of a version, to compare it with another: 0.171 comes after 0.60.
pub(crate) fn parts(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Says for each agent what its logs show, and how to see more: lines to copy, as they are.
pub(crate) fn show(page: &mut Page, policies: &[&Policy]) {
    for policy in policies {
        page.space();
        page.line(&format!("{} shows", policy.title));
        for view in &policy.views {
            page.row(&view.id, &format!("{} ({})", shows(view.attempts), view.place));
        }
        for view in policy.views.iter().filter(|view| view.attempts == Attempts::All) {
            let Some(enable) = &view.enable else { continue };
            page.line(&format!("  to get {}:", view.id));
            for line in enable.trim().lines() {
                page.line(&format!("    {line}"));
            }
        }
    }
}

/// Says how many of the requests a log shows.
pub(crate) fn shows(attempts: Attempts) -> &'static str {
    match attempts {
        Attempts::All => "every request",
        Attempts::Some => "some of the requests",
        Attempts::None => "no retries",
    }
}
