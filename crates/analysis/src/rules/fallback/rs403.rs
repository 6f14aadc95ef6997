//! RS403: a second candidate is configured and did not help.

use std::collections::BTreeSet;

use retryscope_events::AttemptKind;
use retryscope_taxonomy::Class;

use crate::explain::describe;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{LogicalRequest, RequestOutcome};

pub(super) const RULE: Rule = Rule {
    code: "RS403",
    name: "fallback not used, or as broken as the primary",
    what: "A request failed although another candidate is configured and was never asked, or the fallback failed in the same way because it shares the provider.",
    why: "A fallback that is never taken, or that stands on the same ground, protects from nothing; and it is believed in until the outage.",
    example: "Two models of one provider are configured; the provider is down, and both fail.",
    instead: "Put a candidate of another provider into the chain, and try the chain before it is needed.",
    source: "https://docs.litellm.ai/docs/proxy/reliability",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (turn, request) in subject.requests() {
        let Some(last) = request.attempts.iter().rev().find(|a| a.failure.is_some()) else { continue };
        let Some(failure) = last.failure.as_ref().filter(|_| request.outcome.is_failed()) else {
            if request.outcome == RequestOutcome::OkAfterFallback {
                out.push(Found::pass("another candidate answered"));
            }
            continue;
        };
        if !matches!(failure.class, Class::Transient | Class::Throttled | Class::Exhausted) {
            continue;
        }
        let evidence = vec![last.origin];
        let configured = configured(subject);
        let asked: BTreeSet<_> =
            request.attempts.iter().map(|a| (&a.candidate.provider, &a.candidate.model)).collect();
        if request.fallbacks > 0 {
            out.extend(shared_fate(request));
        } else if configured > asked.len() {
            if turn.counts.fallbacks.bound.max == Some(0) {
                let message = format!(
                    "{} ended a request, and of {configured} configured candidates only {} was asked",
                    describe(failure),
                    asked.len()
                );
                out.push(Found::violation(message, evidence).fix(subject.setting_for("fallback")));
            } else {
                let message = format!(
                    "{} ended a request; whether another of the {configured} configured candidates was asked is not visible",
                    describe(failure)
                );
                out.push(Found::unknown(message, evidence));
            }
        } else if configured == 0 && has_setting(subject) {
            let message = format!(
                "{} ended a request; whether a fallback is configured is not in the log",
                describe(failure)
            );
            out.push(Found::unknown(message, evidence));
        }
    }
    out.truncate(1);
    out
}

/// Returns how many candidates are known to be configured; 0 where nothing says.
fn configured(subject: &Subject<'_>) -> usize {
    let chain = subject.own.map_or(0, |policy| policy.fallback.chain.len());
    chain.max(subject.run.declared.candidates.len())
}

/// Whether the agent has a setting for a fallback to another model whose value is not known.
fn has_setting(subject: &Subject<'_>) -> bool {
    let settings = subject.policy.into_iter().flat_map(|policy| &policy.fallbacks);
    settings
        .filter(|fallback| fallback.kind == "model")
        .filter_map(|fallback| fallback.setting.as_deref())
        .any(|name| subject.setting(name).is_none())
}

/// The last fallback failed as the one before it, at the same provider.
fn shared_fate(request: &LogicalRequest) -> Option<Found> {
    let at = request.attempts.iter().rposition(|a| a.kind == AttemptKind::Fallback)?;
    let (before, after) = (request.attempts.get(at.checked_sub(1)?)?, request.attempts.last()?);
    let (from, to) = (before.failure.as_ref()?, after.failure.as_ref()?);
    let provider = after.candidate.provider.as_ref()?;
    let moved_model = before.candidate.model != after.candidate.model;
    let same = from.class == to.class
        && from.class != Class::Exhausted
        && before.candidate.provider.as_ref() == Some(provider);
    (same && moved_model).then(|| {
        let message = format!(
            "the fallback failed as the first candidate had, with {}: both are at {provider}",
            describe(to)
        );
        Found::violation(message, vec![before.origin, after.origin])
            .fix(Some("put a candidate of another provider into the chain".to_owned()))
    })
}
