//! What a check is given, and what it says.

use retryscope_events::{AttemptKind, AttemptOutcome, Candidate, Source};
use retryscope_policy::own::{OwnPolicy, Resolved};
use retryscope_policy::{Acts, LayerPolicy, Policy, by_agent, find};
use retryscope_record::{Origin, RunKey};

use super::{Asked, Finding, Rule, Verdict};
use crate::explain::{can_help, is_off, layers_at_work};
use crate::judge::Failure;
use crate::run::{Attempt, LogicalRequest, Run, Turn};
use crate::words;

/// What a check says; the rule's code and the run are added to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(super) verdict: Verdict,
    pub(super) message: String,
    pub(super) fix: Option<String>,
    pub(super) evidence: Vec<Origin>,
}

impl Found {
    pub(crate) fn violation(message: impl Into<String>, evidence: Vec<Origin>) -> Self {
        Self { verdict: Verdict::Violation, message: message.into(), fix: None, evidence }
    }

    pub(crate) fn unknown(message: impl Into<String>, evidence: Vec<Origin>) -> Self {
        Self { verdict: Verdict::Unknown, message: message.into(), fix: None, evidence }
    }

    pub(crate) fn pass(message: impl Into<String>) -> Self {
        Self { verdict: Verdict::Pass, message: message.into(), fix: None, evidence: Vec::new() }
    }

    /// Returns it as a finding of a rule.
    pub(super) fn finding(self, rule: &Rule, run: RunKey) -> Finding {
        Finding {
            rule: rule.code,
            verdict: self.verdict,
            run,
            message: self.message,
            fix: self.fix,
            evidence: self.evidence,
        }
    }

    pub(crate) fn fix(mut self, fix: Option<String>) -> Self {
        self.fix = fix;
        self
    }
}

/// One run under audit, with what is known around it.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) run: &'a Run,
    /// Runs that name this one as their parent.
    pub(crate) children: Vec<&'a Run>,
    /// The agent's known policy.
    pub(crate) policy: Option<&'static Policy>,
    /// The policy that it is held to: the one given, else the one it recorded.
    pub(crate) own: Option<&'a OwnPolicy>,
    /// Class of the data that it sends out, as it says, else as given.
    pub(crate) data_class: Option<&'a str>,
}

/// Many runs under audit.
#[derive(Debug)]
pub(crate) struct Fleet<'a> {
    pub(crate) runs: &'a [Run],
}

impl<'a> Fleet<'a> {
    /// Returns the foreground requests with their run.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&'a Run, &'a Turn, &'a LogicalRequest)> {
        self.runs.iter().flat_map(|run| {
            run.turns.iter().flat_map(move |turn| {
                let foreground = turn.requests.iter().filter(|r| r.source == Source::Foreground);
                foreground.map(move |request| (run, turn, request))
            })
        })
    }

    /// Returns each failed attempt that was sent again to the same candidate, with the attempt that repeats it.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = (&'a Run, &'a Attempt, &'a Attempt)> {
        self.requests()
            .flat_map(|(run, _, request)| repeats_of(request).map(move |(failed, next)| (run, failed, next)))
    }
}

/// Returns each failed attempt of a request that was sent again to the same candidate, with the one that repeats it.
pub(crate) fn repeats_of(request: &LogicalRequest) -> impl Iterator<Item = (&Attempt, &Attempt)> {
    let pairs = request.attempts.windows(2);
    pairs
        .filter(|pair| pair[1].kind == AttemptKind::Retry && pair[0].failure.is_some())
        .map(|pair| (&pair[0], &pair[1]))
}

/// Returns whether a later attempt on the same candidate was answered: whatever the error said, a retry could pass it.
pub(crate) fn was_passed(request: &LogicalRequest, failed: &Attempt) -> bool {
    let later = request.attempts.iter().skip_while(|attempt| !std::ptr::eq(*attempt, failed)).skip(1);
    let on_this_one = later.take_while(|attempt| attempt.kind != AttemptKind::Fallback);
    request.outcome.is_ok() && on_this_one.last().is_some_and(|last| last.outcome == Some(AttemptOutcome::Ok))
}

/// What is said where a rule needs the policy that a run recorded, and that cannot be read.
pub(crate) const POLICY_UNREAD: &str = "the policy that this run recorded cannot be read";

/// What is said where a rule is broken under one policy of the agent and kept under another.
pub(crate) const UNKNOWN_VERSION: &str =
    "whether it was broken depends on the agent's version, which no log at hand names";

impl<'a> Subject<'a> {
    /// Returns whether it is held to a policy that nobody can read.
    pub(crate) fn policy_is_unread(&self) -> bool {
        self.own.is_none() && self.run.declared.policy_unread
    }

    /// Returns a run with what is known around it, once for each policy that may have been in force, newest last: without
    /// a version, what holds for one of them alone is not known.
    pub(crate) fn under_each_policy(run: &'a Run, children: &[&'a Run], asked: &'a Asked<'_>) -> Vec<Self> {
        let newest = Self::new(run, children.to_vec(), asked);
        if run.facts.policy_version.is_some() || run.facts.agent_version.is_some() {
            return vec![newest];
        }
        let older = by_agent(&run.key.agent).split_last().map_or(&[][..], |(_, older)| older);
        let mut subjects: Vec<Self> = older
            .iter()
            .map(|policy| Self { policy: Some(policy), ..Self::new(run, children.to_vec(), asked) })
            .collect();
        subjects.push(newest);
        subjects
    }

    /// Returns a run with what is known around it.
    pub(crate) fn new(run: &'a Run, children: Vec<&'a Run>, asked: &'a Asked<'_>) -> Self {
        let version = run.facts.policy_version.as_deref().or(run.facts.agent_version.as_deref());
        Self {
            run,
            children,
            policy: find(&run.key.agent, version),
            own: asked.policy.or(run.declared.policy.as_ref()),
            data_class: run.declared.data_class.as_deref().or(asked.data_class),
        }
    }

    /// Returns the limits that the run is held to after a failure; `None` without a policy of one's own.
    pub(crate) fn limits(&self, candidate: &Candidate, failure: &Failure) -> Option<Resolved> {
        let provider = candidate.provider.as_deref().unwrap_or_default();
        Some(self.own?.resolve(provider, failure.class.as_str(), failure.reason.as_str()))
    }

    /// Returns the foreground requests with their turn.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&Turn, &LogicalRequest)> {
        self.run.turns.iter().flat_map(|turn| {
            turn.requests
                .iter()
                .filter(|r| r.source == Source::Foreground)
                .map(move |request| (turn, request))
        })
    }

    /// Whether it is certain that a request was sent once: the log shows one send, and nothing of its turn is missing.
    pub(crate) fn sent_once(turn: &Turn, request: &LogicalRequest) -> bool {
        request.upstream.bound.max == Some(1) && turn.counts.upstream_requests.bound.is_exact()
    }

    /// Returns each failed attempt that was sent again to the same candidate, with the attempt that repeats it.
    pub(crate) fn repeats(&self) -> impl Iterator<Item = (&LogicalRequest, &Attempt, &Attempt)> {
        self.requests()
            .flat_map(|(_, request)| repeats_of(request).map(move |(failed, next)| (request, failed, next)))
    }

    /// Returns an error that ended a request, where the log does not show whether the same request had been sent before.
    pub(crate) fn unseen(&self, wanted: impl Fn(&Failure) -> bool) -> Option<(&'a Failure, Origin)> {
        let turns = self.run.turns.iter();
        let requests = turns.flat_map(|turn| turn.requests.iter().map(move |request| (turn, request)));
        requests.filter(|(_, request)| request.source == Source::Foreground).find_map(|(turn, request)| {
            let attempt = request.attempts.last()?;
            let failure = attempt.failure.as_ref().filter(|failure| wanted(failure))?;
            let told = request.upstream.bound.is_exact() && turn.counts.upstream_requests.bound.is_exact();
            (!request.outcome.is_ok() && !told).then_some((failure, attempt.origin))
        })
    }

    /// Returns the retries of a layer: as configured where its setting was read, else by default. `None` without a number.
    pub(crate) fn retries_of(&self, layer: &LayerPolicy) -> Option<u64> {
        if layer.switch.as_ref().is_some_and(|switch| self.setting(&switch.setting) == Some("false")) {
            return Some(0);
        }
        let configured = layer.setting.as_deref().and_then(|name| self.setting(name)?.parse().ok());
        configured.or_else(|| layer.retries.count())
    }

    /// Returns the value of one of the agent's settings, as it was read.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.run.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns how to retry less where the agent has no setting that stops at the error of an attempt; `None` without a
    /// setting that bounds how often such an error is sent.
    pub(crate) fn retry_less(&self, failed: &Attempt) -> Option<String> {
        let settings: Vec<String> = layers_at_work(self.policy?, failed)
            .filter(|(layer, acts)| {
                layer.only_on.is_empty()
                    && *acts == Acts::Yes
                    && !is_off(self.run, layer)
                    && self.retries_of(layer) != Some(0)
            })
            .filter_map(|(layer, _)| layer.setting.clone())
            .collect();
        (!settings.is_empty()).then(|| {
            format!(
                "no setting stops at this error; a lower {} makes fewer requests of it",
                words::list(&settings)
            )
        })
    }

    /// Returns whether the agent has a layer whose purpose is to send what failed like this again.
    pub(crate) fn resends_on_purpose(&self, failed: &Attempt) -> bool {
        let mut layers = self.policy.into_iter().flat_map(|policy| layers_at_work(policy, failed));
        layers.any(|(layer, acts)| !layer.only_on.is_empty() && acts == Acts::Yes)
    }

    /// Returns the advice of the first setting that helps in a situation, and in this run.
    pub(crate) fn setting_for(&self, situation: &str) -> Option<String> {
        let policy = self.policy?;
        let attempts = || self.requests().flat_map(|(_, request)| &request.attempts);
        let mut settings = policy.settings.iter().filter(|s| s.helps.iter().any(|h| h == situation));
        let setting = settings.find(|setting| can_help(setting, policy, self.run, attempts()))?;
        Some(setting.remedy.replace('`', ""))
    }
}
