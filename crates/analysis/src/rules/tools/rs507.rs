//! RS507: repeated without asking.

use super::repeats;
use crate::rules::{Check, Found, Rule, Subject};
use crate::tools::calls;

pub(super) const RULE: Rule = Rule {
    code: "RS507",
    name: "repeated without approval",
    what: "A tool whose repeats need an approval, or are never allowed, was repeated without one.",
    why: "The person who was to be asked was not.",
    example: "`replay_policy` is `ask`, and attempt 2 has `approved: false`.",
    instead: "Stop and ask before the repeat.",
    source: "https://genai.owasp.org/llmrisk/llm062025-excessive-agency/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for call in calls(&subject.run.ledger) {
        for (entry, attempt) in repeats(&call) {
            let evidence = vec![entry.origin];
            match (attempt.replay_policy.as_deref(), attempt.approved) {
                (Some("never"), approved) if approved != Some(true) => {
                    out.push(Found::violation(
                        format!("{} must never be repeated, and was", call.tool),
                        evidence,
                    ));
                }
                (Some("ask"), Some(false)) => {
                    out.push(Found::violation(
                        format!("{} was repeated without the approval it needs", call.tool),
                        evidence,
                    ));
                }
                (Some("ask"), None) => out.push(Found::unknown(
                    format!("{} was repeated; whether somebody approved is not in the log", call.tool),
                    evidence,
                )),
                (Some("ask" | "never"), Some(true)) => {
                    out.push(Found::pass(format!("{} was repeated after an approval", call.tool)));
                }
                _ => {}
            }
        }
    }
    out
}
