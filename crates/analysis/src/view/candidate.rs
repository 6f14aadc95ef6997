//! Facts and candidates that are said piece by piece: later words win, absent ones erase nothing.

use std::sync::Arc;

use retryscope_events::{Candidate, RunStarted};
use retryscope_policy::own::OwnPolicy;
use retryscope_record::{CHECKSUM_START, Facts, checksum};

use crate::redact::{kept, redact, redact_within};
use crate::run::Declared;

pub(crate) fn merge_facts(into: &mut Facts, said: &Facts) {
    take_name(&mut into.agent_version, said.agent_version.as_ref());
    take(&mut into.parent_run_id, said.parent_run_id.as_ref());
    take(&mut into.parent_call_id, said.parent_call_id.as_ref());
    take(&mut into.forked_from, said.forked_from.as_ref());
    take_name(&mut into.provider, said.provider.as_ref());
    take_name(&mut into.model, said.model.as_ref());
    take_name(&mut into.api, said.api.as_ref());
    take(&mut into.policy_version, said.policy_version.as_ref());
    take(&mut into.started_at, said.started_at.as_ref());
    take(&mut into.directory, said.directory.as_ref());
}

/// Takes a later name; nearly always it is the same again.
pub(super) fn take_name(into: &mut Option<String>, said: Option<&String>) {
    if said.is_some() && into.as_ref() != said {
        *into = kept(said.map(String::as_str));
    }
}

/// Takes a later word; nearly always it is the same again.
pub(super) fn take<T: Clone + PartialEq>(into: &mut Option<T>, said: Option<&T>) {
    if said.is_some() && into.as_ref() != said {
        *into = said.cloned();
    }
}

impl Declared {
    /// Takes what the beginning of a run says. Returns why the policy cannot be read, where it is in another form than
    /// `policy.toml`.
    pub(super) fn take(&mut self, said: &RunStarted) -> Option<String> {
        let said = said.clone();
        if let Some(candidates) = said.candidates {
            self.candidates = candidates.iter().map(named).collect();
        }
        let policy = said.policy.map(|mut policy| {
            redact_within(&mut policy);
            serde_json::from_value::<OwnPolicy>(policy)
        });
        let unread = policy.as_ref().and_then(|policy| Some(policy.as_ref().err()?.to_string()));
        if let Some(policy) = policy {
            self.policy_unread = policy.is_err();
            self.policy = policy.ok();
        }
        self.workload = kept(said.workload.as_deref()).or(self.workload.take());
        self.data_class = kept(said.data_class.as_deref()).or(self.data_class.take());
        unread
    }
}

/// Candidates that were made last: an agent has few, and each attempt names one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known(Vec<Arc<Candidate>>);

/// Candidates that are looked through.
const KNOWN: usize = 8;

impl Known {
    /// Returns what two candidates say together, the second one before the first.
    pub(super) fn merged(&mut self, base: &Arc<Candidate>, said: &Candidate) -> Arc<Candidate> {
        if says(base, said, base) { base.clone() } else { self.of(base, said) }
    }

    /// Returns this candidate.
    pub(super) fn shared(&mut self, said: &Candidate) -> Arc<Candidate> {
        self.of(said, said)
    }

    fn of(&mut self, base: &Candidate, said: &Candidate) -> Arc<Candidate> {
        if let Some(known) = self.0.iter().find(|known| says(base, said, known)) {
            return known.clone();
        }
        let made = Arc::new(merged(base, &named(said)));
        self.0.truncate(KNOWN - 1);
        self.0.insert(0, made.clone());
        made
    }
}

/// Returns the names of a candidate as they are kept.
fn named(said: &Candidate) -> Candidate {
    let name = |said: &Option<String>| kept(said.as_deref());
    // Accounts are told apart, also where somebody took their keys for names.
    let account = said.account.as_deref().map(|account| match redact(account) {
        name if name == account => name,
        name => format!("{name} {:08x}", checksum(CHECKSUM_START, account) >> 32),
    });
    Candidate {
        provider: name(&said.provider),
        model: name(&said.model),
        alias: name(&said.alias),
        endpoint: name(&said.endpoint),
        region: name(&said.region),
        account,
        transport: name(&said.transport),
    }
}

/// Returns whether `base` and `said` together are `whole`.
fn says(base: &Candidate, said: &Candidate, whole: &Candidate) -> bool {
    let part = |said: &Option<String>, base: &Option<String>, whole: &Option<String>| {
        said.as_ref().or(base.as_ref()) == whole.as_ref()
    };
    part(&said.provider, &base.provider, &whole.provider)
        && part(&said.model, &base.model, &whole.model)
        && part(&said.alias, &base.alias, &whole.alias)
        && part(&said.endpoint, &base.endpoint, &whole.endpoint)
        && part(&said.region, &base.region, &whole.region)
        && part(&said.account, &base.account, &whole.account)
        && part(&said.transport, &base.transport, &whole.transport)
}

fn merged(base: &Candidate, said: &Candidate) -> Candidate {
    let pick = |said: &Option<String>, base: &Option<String>| said.clone().or_else(|| base.clone());
    Candidate {
        provider: pick(&said.provider, &base.provider),
        model: pick(&said.model, &base.model),
        alias: pick(&said.alias, &base.alias),
        endpoint: pick(&said.endpoint, &base.endpoint),
        region: pick(&said.region, &base.region),
        account: pick(&said.account, &base.account),
        transport: pick(&said.transport, &base.transport),
    }
}

/// Returns whether two candidates are known to be different: a part that only one of them names proves nothing.
pub(super) fn differs(a: &Candidate, b: &Candidate) -> bool {
    let part = |a: &Option<String>, b: &Option<String>| matches!((a, b), (Some(a), Some(b)) if a != b);
    part(&a.provider, &b.provider)
        || part(&a.model, &b.model)
        || part(&a.endpoint, &b.endpoint)
        || part(&a.region, &b.region)
        || part(&a.account, &b.account)
        || part(&a.transport, &b.transport)
}
