//! Audit: is the retry policy doing what it should? One file a rule.
//!
//! A rule looks at finished runs and gives a verdict with evidence: `violation`, `pass`, or `unknown` where the log cannot
//! tell. Where a rule does not apply it says nothing. Not for: deciding what happened (the engine does) or for wording of
//! a run as a whole (`explain`).

mod amplification;
mod classification;
mod delays;
mod fallback;
mod observability;
pub mod pack;
mod streams;
mod tools;

use retryscope_events::{AttemptKind, Source};
use retryscope_policy::{LayerPolicy, Policy, find};
use retryscope_record::{Origin, RunKey};
use serde::{Deserialize, Serialize};

use crate::run::{Attempt, LogicalRequest, Run, Turn};

/// What a rule found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The rule was broken.
    Violation,
    /// The log cannot tell.
    Unknown,
    /// The rule was kept.
    Pass,
}

impl Verdict {
    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Violation => "violation",
            Verdict::Unknown => "unknown",
            Verdict::Pass => "pass",
        }
    }
}

/// One result of one rule on one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Code of the rule, for example `RS201`.
    pub rule: &'static str,
    /// What was found.
    pub verdict: Verdict,
    /// The run.
    pub run: RunKey,
    /// What happened, as a sentence about this run.
    pub message: String,
    /// What to change, in terms of the agent's real setting where one is known.
    pub fix: Option<String>,
    /// The records it rests on.
    pub evidence: Vec<Origin>,
}

/// A rule: its text, and its check.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Code, for example `RS201`.
    pub code: &'static str,
    /// The pattern it flags, in a few words.
    pub name: &'static str,
    /// What it looks for.
    pub what: &'static str,
    /// Why that is bad.
    pub why: &'static str,
    /// A case.
    pub example: &'static str,
    /// What to do instead.
    pub instead: &'static str,
    /// Where the rule comes from.
    pub source: &'static str,
    /// Looks at one run.
    pub(crate) check: fn(&Subject<'_>) -> Vec<Found>,
}

/// What a check says; the rule's code and the run are added to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    verdict: Verdict,
    message: String,
    fix: Option<String>,
    evidence: Vec<Origin>,
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
}

impl Subject<'_> {
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
        self.requests().flat_map(|(_, request)| {
            request
                .attempts
                .windows(2)
                .filter(|pair| pair[1].kind == AttemptKind::Retry && pair[0].failure.is_some())
                .map(move |pair| (request, &pair[0], &pair[1]))
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

    /// Returns the advice of the first setting that helps in a situation.
    pub(crate) fn setting_for(&self, situation: &str) -> Option<String> {
        let policy = self.policy?;
        let setting = policy.settings.iter().find(|s| s.helps.iter().any(|h| h == situation))?;
        Some(setting.remedy.replace('`', ""))
    }
}

/// All rules, by code.
pub const RULES: &[&[Rule]] = &[
    classification::RULES,
    delays::RULES,
    amplification::RULES,
    fallback::RULES,
    tools::RULES,
    streams::RULES,
    observability::RULES,
];

/// Returns all rules, by code.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().flat_map(|family| family.iter())
}

/// Returns the rule with this code, in any case.
pub fn rule(code: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.code.eq_ignore_ascii_case(code))
}

/// Looks at runs with all rules that `wanted` takes.
pub fn audit(runs: &[Run], wanted: &dyn Fn(&Rule) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for run in runs {
        let of = |other: &&Run| {
            other.key.agent == run.key.agent && other.facts.parent_run_id.as_deref() == Some(&*run.key.id)
        };
        findings.extend(audit_run(run, runs.iter().filter(of).collect(), wanted));
    }
    findings.sort_by(|a, b| (&a.run, a.rule, a.verdict).cmp(&(&b.run, b.rule, b.verdict)));
    findings
}

/// Looks at one run.
pub fn audit_run(run: &Run, children: Vec<&Run>, wanted: &dyn Fn(&Rule) -> bool) -> Vec<Finding> {
    let version = run.facts.policy_version.as_deref().or(run.facts.agent_version.as_deref());
    let subject = Subject { run, children, policy: find(&run.key.agent, version) };
    let mut findings = Vec::new();
    for rule in rules().filter(|rule| wanted(rule)) {
        for found in (rule.check)(&subject) {
            findings.push(Finding {
                rule: rule.code,
                verdict: found.verdict,
                run: run.key.clone(),
                message: found.message,
                fix: found.fix,
                evidence: found.evidence,
            });
        }
    }
    findings
}
