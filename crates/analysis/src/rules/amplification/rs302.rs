//! RS302: every layer retries the bursts of the layer below.

use retryscope_policy::{Acts, LayerPolicy, Nesting, Policy};

use crate::explain::describe;
use crate::infer::kind_of;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{Attempt, LogicalRequest};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS302",
    name: "layers multiply",
    what: "An error was met that two or more layers of the agent retry, each starting the one below anew.",
    why: "The numbers multiply: 5 retries above 4 retries are 30 requests for one answer, in the middle of an outage.",
    example: "11 attempts of the session loop, 2 of the stream, 6 of the transport: 132 requests.",
    instead: "Let one layer own retries, and set the other to none.",
    source: "https://sre.google/sre-book/addressing-cascading-failures/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let Some(policy) = subject.policy else { return Vec::new() };
    for (_, request) in subject.requests() {
        for attempt in &request.attempts {
            let Some(met) = &attempt.failure else { continue };
            let Some(failure) = kind_of(met) else { continue };
            let layers: Vec<(&LayerPolicy, u64)> = policy
                .layers_for(attempt.api.as_deref())
                .into_iter()
                .filter(|layer| layer.only_on.is_empty() && layer.nesting == Nesting::Multiplies)
                .filter(|layer| layer.acts_on(failure) == Acts::Yes)
                .filter_map(|layer| {
                    let most = announced(request, layer).or_else(|| Some(subject.retries_of(layer)? + 1))?;
                    Some((layer, most))
                })
                .filter(|(_, sends)| *sends > 1)
                .collect();
            let most = layers.iter().map(|(_, sends)| *sends).max().unwrap_or(0);
            // What one layer alone explains shows no other at work.
            if layers.len() < 2 || request.upstream.bound.max.is_some_and(|max| max <= most) {
                continue;
            }
            let product = layers.iter().try_fold(1_u64, |all, (_, one)| all.checked_mul(*one));
            let Some(product) = product else { continue };
            let names: Vec<String> =
                layers.iter().map(|(layer, sends)| format!("{sends} of the {}", layer.name)).collect();
            let message = format!(
                "{} layers retry this error ({}) and multiply: {} make up to {product} requests for one answer",
                layers.len(),
                describe(met),
                words::list(&names),
            );
            let found = Found::violation(message, vec![attempt.origin]);
            return vec![found.fix(Some(owners(&layers)))];
        }
    }
    undecided(subject, policy).into_iter().collect()
}

/// Returns how many attempts the agent said that a layer would make.
fn announced(request: &LogicalRequest, layer: &LayerPolicy) -> Option<u64> {
    let of_it = |a: &&Attempt| a.layer.is_some_and(|own| own.to_string() == layer.layer.as_str());
    request.attempts.iter().filter(of_it).filter_map(|a| a.max_attempts).max()
}

/// An error that the log does not describe, met by an agent with several layers: whether they multiply depends on it.
fn undecided(subject: &Subject<'_>, policy: &Policy) -> Option<Found> {
    let nested = |api: Option<&str>| {
        let layers = policy.layers_for(api).into_iter();
        let general = layers.filter(|layer| layer.only_on.is_empty() && layer.nesting == Nesting::Multiplies);
        general.filter(|layer| subject.retries_of(layer).is_none_or(|retries| retries > 0)).count()
    };
    let (_, attempt) = subject
        .requests()
        .filter(|(_, request)| request.upstream.bound.max != Some(1))
        .flat_map(|(_, request)| request.attempts.iter().map(move |attempt| (request, attempt)))
        .find(|(_, attempt)| {
            let silent = attempt.failure.as_ref().is_some_and(|failure| kind_of(failure).is_none());
            silent && attempt.sends.max != Some(1) && nested(attempt.api.as_deref()) > 1
        })?;
    let message = "an error that the log does not describe was retried; whether several layers did depends on what it was";
    Some(Found::unknown(message, vec![attempt.origin]))
}

/// Says for each layer what would make it the only one that retries, as far as settings can.
fn owners(layers: &[(&LayerPolicy, u64)]) -> String {
    let switch_off = |layer: &LayerPolicy| match (&layer.setting, &layer.switch) {
        (Some(setting), _) => Some(format!("{setting} = 0")),
        (None, Some(switch)) => Some(format!("{} = false", switch.setting)),
        (None, None) => None,
    };
    let (mut ways, mut fixed) = (Vec::new(), Vec::new());
    for (owner, _) in layers {
        let others = layers.iter().map(|(layer, _)| *layer).filter(|layer| layer.name != owner.name);
        match others.map(|layer| switch_off(layer).ok_or(layer)).collect::<Result<Vec<String>, _>>() {
            Ok(settings) => ways.push(format!("the {} ({})", owner.name, words::list(&settings))),
            Err(layer) => fixed.push(layer.name.as_str()),
        }
    }
    fixed.sort_unstable();
    fixed.dedup();
    match ways.as_slice() {
        [] => {
            let set: Vec<String> = layers.iter().filter_map(|(layer, _)| layer.setting.clone()).collect();
            let cut = if set.is_empty() { String::new() } else { format!("lower {}; ", words::list(&set)) };
            format!(
                "{cut}no setting leaves one layer alone: the {} cannot be switched off",
                fixed.join(" and the ")
            )
        }
        ways => format!("let one layer alone retry: {}", ways.join(" or ")),
    }
}
