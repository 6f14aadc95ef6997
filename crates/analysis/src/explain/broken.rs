//! The broken rules of a run, as they are told on the page of one of its turns.
//!
//! Not for: what a rule looks at, which is its own matter (`rules`).

use std::cell::OnceCell;
use std::collections::BTreeSet;

use crate::rules::{self, Asked, Finding, Verdict};
use crate::run::{Run, Turn};

/// What a run broke as a whole, and which of its turns show that by themselves.
#[derive(Debug)]
pub(super) struct Broken<'a> {
    run: &'a Run,
    children: &'a [&'a Run],
    of_run: Vec<Finding>,
    /// Rule and number of each turn that alone shows one of the run's violations.
    alone: OnceCell<BTreeSet<(&'static str, usize)>>,
}

impl<'a> Broken<'a> {
    pub(super) fn of(run: &'a Run, children: &'a [&'a Run]) -> Self {
        let of_run = violations(run, children, &Asked::ALL);
        Broken { run, children, of_run, alone: OnceCell::new() }
    }

    /// Returns the rules that the run broke, as the turn alone shows them where it does. What only its other turns show
    /// is said to be theirs: a page is about one turn, and "this error" is the one on the page.
    pub(super) fn as_told_of(&self, turn: &Turn) -> Vec<Finding> {
        if self.of_run.is_empty() || self.run.turns.len() < 2 {
            return self.of_run.clone();
        }
        let mut told = violations(&self.run.with_turns(vec![turn.clone()]), self.children, &Asked::ALL);
        let is_told = |rule: &str| told.iter().any(|finding| finding.rule == rule);
        let mut missing: Vec<Finding> =
            self.of_run.iter().filter(|finding| !is_told(finding.rule)).cloned().collect();
        for finding in &mut missing {
            if self.is_of_others(finding.rule, turn) {
                finding.message = format!("in another turn: {}", finding.message);
            }
        }
        told.append(&mut missing);
        told.sort_by_key(|finding| finding.rule);
        told
    }

    /// Returns whether the other turns show it without this one. What neither part shows by itself is of the whole.
    fn is_of_others(&self, rule: &'static str, turn: &Turn) -> bool {
        let alone = self.alone.get_or_init(|| self.shown_alone());
        if alone.iter().any(|(known, number)| *known == rule && *number != turn.number) {
            return true;
        }
        let others = self.run.turns.iter().filter(|other| other.number != turn.number).cloned().collect();
        let asked = Asked { wanted: &|wanted| wanted.code == rule, ..Asked::ALL };
        !violations(&self.run.with_turns(others), self.children, &asked).is_empty()
    }

    fn shown_alone(&self) -> BTreeSet<(&'static str, usize)> {
        let is_broken = |code: &str| self.of_run.iter().any(|finding| finding.rule == code);
        let asked = Asked { wanted: &|rule| is_broken(rule.code), ..Asked::ALL };
        let mut part = self.run.with_turns(Vec::new());
        let mut alone = BTreeSet::new();
        for turn in &self.run.turns {
            part.turns = vec![turn.clone()];
            let found = violations(&part, self.children, &asked);
            alone.extend(found.iter().map(|finding| (finding.rule, turn.number)));
        }
        alone
    }
}

fn violations(run: &Run, children: &[&Run], asked: &Asked<'_>) -> Vec<Finding> {
    let mut findings = rules::audit_run(run, children, asked);
    findings.retain(|finding| finding.verdict == Verdict::Violation);
    findings
}
