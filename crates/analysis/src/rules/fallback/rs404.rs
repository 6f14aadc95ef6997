//! RS404: fallbacks that lead back.

use retryscope_events::{AttemptKind, Candidate};

use crate::rules::{Check, Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS404",
    name: "fallback loop",
    what: "Within one request a candidate was asked again after the request had moved on from it.",
    why: "Two candidates that fall back to each other never end, and each round starts with fresh retries.",
    example: "Model A falls back to B, B falls back to A.",
    instead: "Try each candidate of the chain once, then fail.",
    source: "https://docs.litellm.ai/docs/proxy/reliability",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (_, request) in subject.requests() {
        let mut left: Vec<&Candidate> = Vec::new();
        let mut unnamed = None;
        let mut moves = 0;
        for pair in request.attempts.windows(2).filter(|pair| pair[1].kind == AttemptKind::Fallback) {
            moves += 1;
            left.push(&pair[0].candidate);
            let to: &Candidate = &pair[1].candidate;
            if *to == *pair[0].candidate {
                unnamed = Some(pair[1].origin);
            } else if left.contains(&to) {
                let name = to.model.as_deref().or(to.account.as_deref()).or(to.provider.as_deref());
                let message = format!(
                    "{} was asked again after the request had moved on from it ({})",
                    name.unwrap_or("a candidate"),
                    words::times(moves),
                );
                return vec![Found::violation(message, vec![pair[1].origin])];
            }
        }
        match unnamed {
            Some(origin) if moves > 1 => out.push(Found::unknown(
                "the request moved on more than once; the log does not say to whom",
                vec![origin],
            )),
            None if moves > 1 => out.push(Found::pass("each candidate was asked once")),
            _ => {}
        }
    }
    out
}
