//! RS303: too many of the requests were retries.

use crate::budget::BudgetPolicy;
use crate::rules::{Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS303",
    name: "retry ratio above the budget",
    what: "More than one in ten requests of the run was a retry, beyond ten that are free.",
    why: "Retries that are not bounded by the traffic that works keep an overloaded provider down.",
    example: "30 retries among 35 requests: 86 %.",
    instead: "Share one retry budget over all requests: at most 10 % of what is sent, with a small allowance.",
    source: "https://sre.google/sre-book/handling-overload/",
    check,
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let BudgetPolicy { limit, floor } = BudgetPolicy::default();
    let counts = &subject.run.counts;
    let Some((min, max)) = counts.retry_ratio() else { return Vec::new() };
    let retries = counts.retries.bound;
    let percent = words::percent((min, max));
    if retries.min > floor && min > limit {
        let evidence = subject.repeats().map(|(_, _, next)| next.origin).collect();
        let message = format!(
            "{} are {percent} of all requests; the budget is 10 %",
            words::counted(retries, "retry", "retries")
        );
        return vec![Found::violation(message, evidence)];
    }
    let may_be = retries.max.is_none_or(|n| n > floor) && max.is_none_or(|ratio| ratio > limit);
    if may_be && !retries.is_exact() {
        return vec![Found::unknown(
            format!("the retry ratio is {percent}, as far as the logs show"),
            Vec::new(),
        )];
    }
    if retries.min == 0 {
        return Vec::new();
    }
    let n = words::counted(retries, "retry", "retries");
    vec![Found::pass(if min > limit {
        format!("{n}, within the {floor} that are free")
    } else {
        format!("{n}, {percent} of all requests")
    })]
}
