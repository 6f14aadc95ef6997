//! RS505: the budget said no.

use super::after;
use crate::rules::{Check, Found, Rule, Subject};
use crate::tools::{Entry, What};

pub(super) const RULE: Rule = Rule {
    code: "RS505",
    name: "retry after the budget was spent",
    what: "A tool was executed again after its retry was refused because the budget was spent.",
    why: "A budget that can be passed does not bound anything.",
    example: "`budget.denied`, and two more attempts.",
    instead: "Ask the budget at the one place that retries.",
    source: "https://sre.google/sre-book/handling-overload/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    // A budget of model requests says nothing about tools.
    let of_tools = |kind: &str| !kind.contains("model");
    let is_spent =
        |e: &Entry| matches!(&e.what, What::BudgetSpent(b) if b.kind.as_deref().is_none_or(of_tools));
    let Some((denied, later)) = after(&subject.run.ledger, is_spent) else { return Vec::new() };
    let again: Vec<_> = later
        .iter()
        .filter(|entry| matches!(&entry.what, What::Attempt(a) if a.attempt.is_some_and(|n| n > 1)))
        .map(|entry| entry.origin)
        .collect();
    if !again.is_empty() {
        let evidence = [denied.origin].into_iter().chain(again).collect();
        return vec![Found::violation("a tool was executed again after the budget was spent", evidence)];
    }
    if later.iter().any(|entry| matches!(entry.what, What::Activity | What::Asked { .. })) {
        return vec![Found::unknown(
            "requests followed the spent budget; whether they are retries is not said",
            vec![denied.origin],
        )];
    }
    vec![Found::pass("nothing was repeated after the budget was spent")]
}
