//! What an agent's known policy says about requests that a log does not show.
//!
//! A visible attempt of an outer layer may stand for several sends of the layers below it. How many is data
//! (`retryscope-policy`), with the agent's own retry settings where they were read. Not for: deciding what was seen. What
//! follows from here is evidence `inferred`, and carries the policy or setting it rests on.

use std::borrow::Cow;

use retryscope_events::Candidate;
use retryscope_policy::{self as policy, Policy, Settings};
use retryscope_record::{Shown, View};
use retryscope_taxonomy::Reason;

use crate::count::Bound;
use crate::judge::Failure;
use crate::view::{RequestEnd, ViewOfRun};

/// Policies that may have been in force, and the settings read.
pub(crate) struct Inference<'a> {
    agent: &'a str,
    policies: Vec<&'static Policy>,
    settings: Cow<'a, Settings>,
    /// A settings file was read, so that what does not stand in it has its default.
    settings_are_known: bool,
    /// The run's provider, for views that do not name one.
    provider: Option<&'a str>,
}

impl<'a> Inference<'a> {
    /// Returns what is known of an agent; without a version, any of its policies may have been in force.
    pub(crate) fn new(
        agent: &'a str,
        version: Option<&str>,
        settings: Option<&'a Settings>,
        provider: Option<&'a str>,
    ) -> Self {
        let policies = match version.and_then(|version| policy::find(agent, Some(version))) {
            Some(policy) => vec![policy],
            None => policy::by_agent(agent).iter().collect(),
        };
        Self {
            agent,
            policies,
            settings: settings.map_or_else(|| Cow::Owned(Settings::default()), Cow::Borrowed),
            settings_are_known: settings.is_some(),
            provider,
        }
    }

    /// Returns the view with the hidden sends of each attempt filled in; borrowed where nothing is hidden. `last_once` says
    /// that another view of the run's only turn excludes them for the request that failed in the end.
    pub(crate) fn fill<'v>(&self, kind: View, view: &'v ViewOfRun, last_once: bool) -> Cow<'v, ViewOfRun> {
        let Some(id) = policy_view(self.agent, kind) else { return Cow::Borrowed(view) };
        let known: Vec<&Policy> = self.policies.iter().copied().filter(|p| p.view(id).is_some()).collect();
        if known.is_empty() {
            return Cow::Borrowed(view);
        }
        let in_force = self.settings_are_known && self.agrees_with(&known, id, view);
        let mut filled = Cow::Borrowed(view);
        for (t, turn) in view.turns.iter().enumerate() {
            for (r, request) in turn.requests.iter().enumerate() {
                // Nothing was sent yet, as far as the log goes; what is sent next may hide more, the more so if it is not
                // known yet who is asked.
                if request.attempts.is_empty() && request.end.is_none() {
                    let next =
                        self.behind(&known, id, request.api.as_deref(), &request.candidate, None, in_force);
                    let is_named = request.candidate.provider.is_some() || self.provider.is_some();
                    if next.0 != Bound::exact(1) || !is_named {
                        let shown = &mut filled.to_mut().turns[t].requests[r].visibility.attempts;
                        *shown = (*shown).min(Shown::Some);
                    }
                }
                // What may have left before its process ended hides as much as what did.
                if let (true, Some(extra)) = (request.is_left_open, request.extra) {
                    let (bound, basis) =
                        self.behind(&known, id, request.api.as_deref(), &request.candidate, None, in_force);
                    let most = extra.max.zip(bound.max).map(|(extra, behind)| extra.saturating_mul(behind));
                    let request = &mut filled.to_mut().turns[t].requests[r];
                    request.extra = Some(Bound::range(extra.min, most));
                    request.basis.get_or_insert(basis);
                }
                let is_last = r + 1 == turn.requests.len() && request.end == Some(RequestEnd::GivenUp);
                if last_once && is_last {
                    continue;
                }
                for (a, attempt) in request.attempts.iter().enumerate() {
                    if attempt.sends != Bound::exact(1) || attempt.sends_told {
                        continue;
                    }
                    let (api, failure) = (attempt.api.as_deref(), attempt.failure.as_ref());
                    let (bound, basis) = self.behind(&known, id, api, &attempt.candidate, failure, in_force);
                    if bound != Bound::exact(1) {
                        let request = &mut filled.to_mut().turns[t].requests[r];
                        request.attempts[a].sends = bound;
                        request.basis.get_or_insert(basis);
                    }
                }
            }
        }
        filled
    }

    /// Returns whether the settings that were read may be those in force: the command line or a profile may have others, and
    /// then the log may tell another number of attempts.
    fn agrees_with(&self, policies: &[&Policy], view: &str, of: &ViewOfRun) -> bool {
        let attempts = of.turns.iter().flat_map(|turn| &turn.requests).flat_map(|request| &request.attempts);
        let mut told = attempts.filter_map(|attempt| Some((attempt.max_attempts?, attempt)));
        told.all(|(told, attempt)| {
            let (api, settings) = (attempt.api.as_deref(), self.settings_for(&attempt.candidate));
            policies.iter().any(|policy| policy.agrees_with(told, view, api, &settings))
        })
    }

    fn settings_for(&self, candidate: &Candidate) -> Cow<'_, Settings> {
        match candidate.provider.as_deref().or(self.provider) {
            Some(provider) => Cow::Owned(self.settings.as_ref().clone().for_provider(provider)),
            None => Cow::Borrowed(self.settings.as_ref()),
        }
    }

    /// Returns how many requests stand behind one visible attempt; `in_force` says that nothing speaks against the settings.
    fn behind(
        &self,
        policies: &[&Policy],
        view: &str,
        api: Option<&str>,
        candidate: &Candidate,
        failure: Option<&Failure>,
        in_force: bool,
    ) -> (Bound, String) {
        let settings = self.settings_for(candidate);
        // A reset may also come within an answer, which another loop sees: it tells of no loop that ran to its end.
        let failure = failure.filter(|failure| failure.reason != Reason::Reset).and_then(kind_of);
        let one = |policy: &Policy| match failure {
            // That a loop ran to its end raises the lower end only where its settings were looked at.
            Some(failure) if in_force => policy.hidden_under(failure, view, api, &settings),
            _ => policy.hidden_per_visible_attempt(view, api, &settings),
        };
        let mut all = policies.iter().map(|policy| one(policy));
        let Some(first) = all.next() else { return (Bound::exact(1), String::new()) };
        let bound = all.fold(first, |a, b| a.or(&b));
        (Bound::range(bound.min, bound.max), bound.basis)
    }
}

/// What a retry layer sees of a failure; `None` where the log does not say enough.
pub(crate) fn kind_of(failure: &Failure) -> Option<policy::Failure> {
    match (failure.class.as_str(), failure.reason.as_str(), failure.status) {
        ("exhausted", ..) => Some(policy::Failure::Quota),
        (_, _, Some(status)) => Some(policy::Failure::Status(status)),
        (_, "refused" | "dns" | "connect" | "reset", None) => Some(policy::Failure::Connection),
        (_, "timeout", None) => Some(policy::Failure::Timeout),
        (_, "stream_cut" | "idle_timeout", None) => Some(policy::Failure::StreamCut),
        _ => None,
    }
}

/// The name that the policy data has for a kind of log.
fn policy_view(agent: &str, kind: View) -> Option<&'static str> {
    Some(match (agent, kind) {
        ("rivumi", View::EVENTS) => "events",
        ("codex", View::STDOUT) => "exec-json",
        ("codex", View::TRACE) => "rollout-trace",
        ("opencode" | "omp", View::LOG) => "log",
        ("opencode", View::DATABASE | View::OBJECTS) => "database",
        ("opencode", View::STDOUT) => "json",
        ("opencode", View::TRACE) => "sse",
        ("pi" | "omp", View::SESSION) => "session",
        ("pi" | "omp", View::STDOUT) => "json-stream",
        _ => return None,
    })
}
