//! RS406: every turn finds out anew that a transport does not work.

use retryscope_events::{AttemptKind, Candidate};

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS406",
    name: "transport fallback on every turn",
    what: "In two or more turns the agent used up its attempts on one transport and then moved to another.",
    why: "What was learnt in the first turn is forgotten; each turn pays the whole price of the broken transport.",
    example: "Five WebSocket attempts fail before each prompt is sent over HTTPS.",
    instead: "Remember the transport that worked, for the session at least.",
    source: "https://github.com/openai/codex/issues",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut turns = Vec::new();
    let mut evidence = Vec::new();
    for (turn, request) in subject.requests() {
        for pair in request.attempts.windows(2).filter(|pair| pair[1].kind == AttemptKind::Fallback) {
            let (from, to) = (&pair[0].candidate, &pair[1].candidate);
            let moved = from.transport.is_some() && to.transport.is_some() && from.transport != to.transport;
            if moved && from.model == to.model {
                turns.push(turn.number);
                evidence.push(pair[1].origin);
            }
        }
    }
    turns.dedup();
    if turns.len() < 2 {
        return unnamed(subject);
    }
    let message = format!("{} turns each began on a transport that failed", turns.len());
    vec![Found::violation(message, evidence).fix(subject.setting_for("transport_fallback"))]
}

/// Turns that each moved to the same model by other means, where the log names no transport.
fn unnamed(subject: &Subject<'_>) -> Vec<Found> {
    let mut turns = Vec::new();
    for (turn, request) in subject.requests() {
        for pair in request.attempts.windows(2).filter(|pair| pair[1].kind == AttemptKind::Fallback) {
            let (from, to) = (&pair[0].candidate, &pair[1].candidate);
            let elsewhere = |c: &Candidate| Candidate { transport: None, ..c.clone() };
            let named = from.transport.is_some() && to.transport.is_some();
            if elsewhere(from) == elsewhere(to) && !named {
                turns.push((turn.number, pair[1].origin));
            }
        }
    }
    turns.dedup_by_key(|(turn, _)| *turn);
    if turns.len() < 2 {
        return Vec::new();
    }
    let message = "several turns moved on to the same model; whether to another transport is not in the log";
    vec![Found::unknown(message, turns.into_iter().map(|(_, origin)| origin).collect())]
}
