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
mod subject;
mod tools;

use std::collections::BTreeMap;

use retryscope_policy::own::OwnPolicy;
use retryscope_record::{Origin, RunKey};
use serde::{Deserialize, Serialize};

use crate::run::Run;
use subject::UNKNOWN_VERSION;
pub(crate) use subject::{Fleet, Found, POLICY_UNREAD, Subject};

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
    /// How it looks.
    pub(crate) check: Check,
}

impl Rule {
    /// Returns what to do instead as a clause that follows a message.
    fn instead_as_clause(&self) -> String {
        let mut letters = self.instead.trim_end_matches('.').chars();
        letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
    }
}

/// What a rule looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Check {
    /// One run.
    Run(fn(&Subject<'_>) -> Vec<Found>),
    /// Many runs together; what is found is said of one of them.
    Runs(fn(&Fleet<'_>) -> Vec<(RunKey, Found)>),
    /// Each run, and many together.
    Both(fn(&Subject<'_>) -> Vec<Found>, fn(&Fleet<'_>) -> Vec<(RunKey, Found)>),
}

impl Check {
    /// Returns what it finds in one run.
    pub(crate) fn of_run(self, subject: &Subject<'_>) -> Vec<Found> {
        match self {
            Check::Run(check) | Check::Both(check, _) => check(subject),
            Check::Runs(_) => Vec::new(),
        }
    }

    fn of_runs(self, fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
        match self {
            Check::Runs(check) | Check::Both(_, check) => check(fleet),
            Check::Run(_) => Vec::new(),
        }
    }
}

/// What is asked of an audit.
pub struct Asked<'a> {
    /// Which rules.
    pub wanted: &'a dyn Fn(&Rule) -> bool,
    /// The policy that runs are held to; `None` = the one that each run recorded, if any.
    pub policy: Option<&'a OwnPolicy>,
    /// Class of the data of runs that do not say theirs.
    pub data_class: Option<&'a str>,
}

/// A policy that runs are held to, whatever they recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldTo {
    /// The policy.
    pub policy: OwnPolicy,
    /// Class of the data of runs that do not say theirs.
    pub data_class: Option<String>,
}

impl<'a> Asked<'a> {
    /// All rules, with the policy that runs are held to, if any.
    pub fn all(held_to: Option<&'a HeldTo>) -> Self {
        let data_class = held_to.and_then(|held| held.data_class.as_deref());
        Asked { policy: held_to.map(|held| &held.policy), data_class, ..Asked::ALL }
    }
}

impl Asked<'_> {
    /// All rules, with what each run says of itself.
    pub const ALL: Asked<'static> = Asked { wanted: &|_| true, policy: None, data_class: None };
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked")
            .field("policy", &self.policy)
            .field("data_class", &self.data_class)
            .finish_non_exhaustive()
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

/// Looks at runs, each by itself and all together.
pub fn audit(runs: &[Run], asked: &Asked<'_>) -> Vec<Finding> {
    let mut children: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        if let Some(parent) = &run.facts.parent_run_id {
            children.entry((&run.key.agent, parent)).or_default().push(run);
        }
    }
    let mut findings = Vec::new();
    for run in runs {
        let of = children.get(&(&*run.key.agent, &*run.key.id)).map_or(&[][..], Vec::as_slice);
        findings.extend(audit_run(run, of, asked));
    }
    let fleet = Fleet { runs };
    for rule in rules().filter(|rule| (asked.wanted)(rule)) {
        let found = rule.check.of_runs(&fleet).into_iter();
        findings.extend(found.map(|(run, found)| found.finding(rule, run)));
    }
    findings.sort_by(|a, b| (&a.run, a.rule, a.verdict).cmp(&(&b.run, b.rule, b.verdict)));
    findings
}

/// Returns a violation as far as it holds under each of the other policies that may have been in force.
fn agreed(rule: &Rule, mut found: Found, others: &[Subject<'_>]) -> Found {
    let mut is_same = true;
    for other in others {
        let theirs = rule.check.of_run(other);
        let mut theirs = theirs.iter().filter(|theirs| theirs.verdict == Verdict::Violation).peekable();
        if theirs.peek().is_none() {
            return Found::unknown(UNKNOWN_VERSION, found.evidence);
        }
        is_same &= theirs.any(|theirs| theirs.message == found.message);
    }
    if !is_same {
        found.message.push_str(" (numbers of the newest version; no log at hand names the one that ran)");
    }
    found
}

/// Looks at one run by itself. `children` are the runs that name it as their parent.
pub fn audit_run(run: &Run, children: &[&Run], asked: &Asked<'_>) -> Vec<Finding> {
    let subjects = Subject::under_each_policy(run, children, asked);
    let Some((subject, others)) = subjects.split_last() else { return Vec::new() };
    let mut findings = Vec::new();
    for rule in rules().filter(|rule| (asked.wanted)(rule)) {
        for mut found in rule.check.of_run(subject) {
            if found.verdict == Verdict::Violation {
                found = agreed(rule, found, others);
            }
            // Whose agent is not known to us may be its author.
            if found.verdict == Verdict::Violation && found.fix.is_none() && subject.policy.is_none() {
                found.fix = Some(rule.instead_as_clause());
            }
            findings.push(found.finding(rule, run.key.clone()));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use retryscope_events::{Event, ModelRequest};
    use retryscope_policy::by_agent;
    use retryscope_record::{Item, Place, SourceId, View};

    use super::*;
    use crate::engine::{AsOf, Engine};

    fn violation(of: &str) -> Vec<Found> {
        vec![Found::violation(of, Vec::new())]
    }

    /// Broken under the newest policy alone.
    fn newest(subject: &Subject<'_>) -> Vec<Found> {
        let last = by_agent("omp").last().map(|policy| &policy.title);
        if subject.policy.map(|policy| &policy.title) == last { violation("it") } else { Vec::new() }
    }

    /// Broken under each, to another extent.
    fn numbers(subject: &Subject<'_>) -> Vec<Found> {
        violation(subject.policy.map_or("", |policy| &policy.title))
    }

    fn found(version: Option<&str>, check: fn(&Subject<'_>) -> Vec<Found>) -> Found {
        let mut engine = Engine::new();
        let mut event = Event::new("r", chrono::DateTime::UNIX_EPOCH, ModelRequest::new()).agent("omp");
        event.agent_version = version.map(str::to_owned);
        let origin = Origin { source: SourceId(0), place: Place::Whole };
        engine.apply(View::SESSION, origin, Item::Event(&event, None));
        let run =
            engine.runs(&AsOf { now: chrono::DateTime::UNIX_EPOCH, sources: &BTreeMap::new() }).remove(0);
        let subjects = Subject::under_each_policy(&run, &[], &Asked::ALL);
        let (subject, others) = subjects.split_last().unwrap();
        let rule = Rule { check: Check::Run(check), ..*rule("RS302").unwrap() };
        agreed(&rule, check(subject).remove(0), others)
    }

    #[test]
    fn without_a_version_a_rule_is_broken_only_under_each_policy() {
        let told = |version, check| {
            let found = found(version, check);
            (found.verdict, found.message.contains("numbers of the newest version"))
        };
        assert!(by_agent("omp").len() > 1);
        assert_eq!(told(None, newest), (Verdict::Unknown, false));
        assert_eq!(told(None, numbers), (Verdict::Violation, true));
        assert_eq!(told(None, |_| violation("it")), (Verdict::Violation, false));
        assert_eq!(told(Some("99.0.0"), newest), (Verdict::Violation, false));
    }
}
