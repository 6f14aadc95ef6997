//! RS303: too many of the requests were retries.

use std::collections::BTreeMap;

use retryscope_policy::own::OwnPolicy;
use retryscope_record::RunKey;

use crate::budget::BudgetPolicy;
use crate::rules::{Check, Fleet, Found, POLICY_UNREAD, Rule, Subject};
use crate::run::Run;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS303",
    name: "retry ratio above the budget",
    what: "More than one in ten requests of a run was a retry, beyond ten that are free; or of all runs to one provider together, beyond ten for each run.",
    why: "Retries that are not bounded by the traffic that works keep an overloaded provider down.",
    example: "30 retries among 35 requests: 86 %.",
    instead: "Share one retry budget over all requests: at most 10 % of what is sent, with a small allowance.",
    source: "https://sre.google/sre-book/handling-overload/",
    check: Check::Both(check, together),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let own = subject.own.and_then(OwnPolicy::budget_in_force);
    let BudgetPolicy { limit, floor } =
        own.map_or_else(BudgetPolicy::default, |own| BudgetPolicy { limit: own.limit, floor: own.floor });
    let counts = &subject.run.counts;
    let retries = counts.retries.bound;
    let Some((min, max)) = counts.retry_ratio() else {
        let may_be = retries.max.is_none_or(|n| n > floor) && counts.failed_attempts.bound.min > 0;
        let message = "how many of the requests were retries is not visible";
        return may_be.then(|| Found::unknown(message, Vec::new())).into_iter().collect();
    };
    let percent = words::percent((min, max));
    if retries.min > floor && min > limit {
        let evidence = subject.repeats().map(|(_, _, next)| next.origin).collect();
        if subject.policy_is_unread() {
            return vec![Found::unknown(POLICY_UNREAD, evidence)];
        }
        let message = format!(
            "{} are {percent} of all requests; the budget is {}",
            words::counted(retries, "retry", "retries"),
            words::percent((limit, Some(limit)))
        );
        return vec![Found::violation(message, evidence).fix(subject.setting_for("hidden_layer"))];
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

/// Runs of one provider together: the budget that a provider sees. Only runs whose requests are all known count.
fn together(fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
    let BudgetPolicy { limit, floor } = BudgetPolicy::default();
    let mut providers: BTreeMap<&str, Vec<(&Run, u64, u64)>> = BTreeMap::new();
    for run in fleet.runs {
        let (upstream, retries) = (run.counts.upstream_requests.bound, run.counts.retries.bound);
        let known = run.counts.upstream_requests.is_visible() && upstream.is_exact() && retries.is_exact();
        if let (true, Some(provider)) = (known, only_provider(run)) {
            providers.entry(provider).or_default().push((run, upstream.min, retries.min));
        }
    }
    let mut out = Vec::new();
    for (provider, runs) in providers.into_iter().filter(|(_, runs)| runs.len() > 1) {
        let sum = |of: fn(&(&Run, u64, u64)) -> u64| runs.iter().map(of).sum::<u64>();
        let (upstream, retries) = (sum(|run| run.1), sum(|run| run.2));
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let share = retries as f64 / upstream.max(1) as f64;
        if retries <= floor * runs.len() as u64 || share <= limit {
            continue;
        }
        let message = format!(
            "{retries} retries of {} runs are {} of all requests to {provider}; the budget is {}",
            runs.len(),
            words::percent((share, Some(share))),
            words::percent((limit, Some(limit)))
        );
        if let Some((most, ..)) = runs.iter().max_by_key(|(_, _, retries)| *retries) {
            let evidence =
                most.turns.iter().flat_map(|turn| &turn.requests).map(|request| request.origin).take(1);
            out.push((most.key.clone(), Found::violation(message, evidence.collect())));
        }
    }
    out
}

/// Returns the provider that all requests of a run went to; `None` where there were several, or none is named.
fn only_provider(run: &Run) -> Option<&str> {
    let mut providers = run
        .turns
        .iter()
        .flat_map(|turn| &turn.requests)
        .flat_map(|request| &request.attempts)
        .map(|attempt| attempt.candidate.provider.as_deref());
    let first = providers.next()??;
    providers.all(|provider| provider == Some(first)).then_some(first)
}
