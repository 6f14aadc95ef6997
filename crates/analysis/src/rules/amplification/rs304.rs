//! RS304: more was sent than was said.

use retryscope_events::{AttemptKind, Candidate};
use retryscope_policy::{Acts, LayerPolicy};
use retryscope_record::Origin;

use crate::count::Bound;
use crate::explain::describe;
use crate::infer::kind_of;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::LogicalRequest;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS304",
    name: "more attempts than declared or configured",
    what: "One answer cost more requests than the agent announced, than its setting allows, or than the policy it is held to allows.",
    why: "A limit that does not bound what is sent is no limit, and a setting that does nothing misleads whoever set it.",
    example: "Retries are switched off in the settings, and 12 requests are sent.",
    instead: "Count at the place that sends, over all layers.",
    source: "https://sre.google/sre-book/addressing-cascading-failures/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut hidden = None;
    for (turn, request) in subject.requests() {
        for (sent, declared, origin) in by_candidate(request) {
            // Agents count with or without the first one.
            if let Some(declared) = declared.filter(|declared| sent > declared + 1) {
                let message = format!(
                    "the agent announced at most {declared} attempts, and there were at least {sent}"
                );
                return vec![
                    Found::violation(message, vec![origin]).fix(subject.setting_for("hidden_layer")),
                ];
            }
        }
        let announced = request.attempts.iter().filter_map(|a| a.max_attempts.filter(|most| *most > 0)).max();
        let is_open = !turn.counts.upstream_requests.bound.is_exact();
        if let Some(most) = announced.filter(|_| is_open) {
            hidden.get_or_insert((most, request.origin));
        }
        if let Some(found) = over_policy(subject, request) {
            return vec![found];
        }
        if let Some(found) = unbounded_setting(subject, request) {
            return vec![found];
        }
    }
    let Some((most, origin)) = hidden else { return Vec::new() };
    let message =
        format!("the agent announced at most {most} attempts; whether more were sent is not visible");
    vec![Found::unknown(message, vec![origin])]
}

/// A setting was made, and layers below it that have none go on after the error that was met.
fn unbounded_setting(subject: &Subject<'_>, request: &LogicalRequest) -> Option<Found> {
    let policy = subject.policy?;
    let attempt = request.attempts.iter().find(|a| a.failure.is_some() && a.sends.max != Some(1))?;
    let failure = attempt.failure.as_ref().and_then(kind_of)?;
    let layers: Vec<&LayerPolicy> = policy
        .layers_for(attempt.api.as_deref())
        .into_iter()
        .filter(|layer| layer.only_on.is_empty() && layer.acts_on(failure) == Acts::Yes)
        .collect();
    let (name, value) = layers.iter().find_map(|layer| {
        let switch = layer.switch.as_ref().map(|switch| switch.setting.as_str());
        let named = [switch, layer.setting.as_deref()].into_iter().flatten();
        named.into_iter().find_map(|name| Some((name, subject.setting(name)?)))
    })?;
    let free: Vec<(&str, u64)> = layers
        .iter()
        .filter(|layer| layer.setting.is_none() && layer.switch.is_none())
        .filter_map(|layer| Some((layer.name.as_str(), layer.retries.count()?)))
        .filter(|(_, retries)| *retries > 0)
        .collect();
    if free.is_empty() {
        return None;
    }
    let sends: u64 = layers.iter().filter_map(|layer| subject.retries_of(layer)).map(|n| n + 1).product();
    let names: Vec<String> = free.iter().map(|(name, retries)| format!("{name} ({retries} more)")).collect();
    let message = format!(
        "{name} = {value} does not bound what is sent: {} {}, and this error is sent up to {sends} times",
        words::list(&names),
        if names.len() == 1 { "has no setting" } else { "have no setting" },
    );
    Some(Found::violation(message, vec![attempt.origin]).fix(subject.setting_for("hidden_layer")))
}

/// More attempts at one candidate than one's own policy allows after the error that was met first.
fn over_policy(subject: &Subject<'_>, request: &LogicalRequest) -> Option<Found> {
    let mut at = 0;
    while at < request.attempts.len() {
        let first = &request.attempts[at];
        let again = request.attempts[at + 1..].iter().take_while(|a| a.kind == AttemptKind::Retry);
        let attempts = &request.attempts[at..=at + again.count()];
        let sent: u64 = attempts.iter().map(|attempt| attempt.sends.min).sum();
        let failure = first.failure.as_ref();
        if let Some(limits) = failure.and_then(|failure| subject.limits(&first.candidate, failure))
            && sent > limits.attempts
        {
            let message = format!(
                "the policy allows {} after {}, and there were at least {sent}",
                words::counted(Bound::exact(limits.attempts), "attempt", "attempts"),
                failure.map(describe).unwrap_or_default()
            );
            return Some(
                Found::violation(message, vec![first.origin]).fix(subject.setting_for("hidden_layer")),
            );
        }
        at += attempts.len();
    }
    None
}

/// Returns per candidate: attempts that came with such an announcement, the most attempts it announced, where it was
/// asked first.
fn by_candidate(request: &LogicalRequest) -> Vec<(u64, Option<u64>, Origin)> {
    let mut candidates: Vec<&Candidate> = Vec::new();
    let mut told: Vec<(u64, Option<u64>, Origin)> = Vec::new();
    let mut others: Vec<u64> = Vec::new();
    for attempt in &request.attempts {
        let index = candidates.iter().position(|known| **known == *attempt.candidate).unwrap_or_else(|| {
            candidates.push(&attempt.candidate);
            told.push((0, None, attempt.origin));
            others.push(0);
            told.len() - 1
        });
        let (announcing, most, _) = &mut told[index];
        // Who sends has not announced none.
        let announced = attempt.max_attempts.filter(|most| *most > 0);
        *announcing += u64::from(announced.is_some());
        *most = (*most).max(announced);
        others[index] += u64::from(announced.is_none());
    }
    // Where each attempt but the last came with one, the last is the one that the announcement before it was about.
    let last = request.attempts.last();
    let last = last.filter(|last| last.max_attempts.is_none()).map(|last| &last.candidate);
    for (index, candidate) in candidates.iter().enumerate() {
        let (announcing, ..) = &mut told[index];
        if *announcing > 0 && others[index] == 1 && last.is_some_and(|last| **last == **candidate) {
            *announcing += 1;
        }
    }
    told
}
