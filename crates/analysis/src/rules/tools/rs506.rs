//! RS506: repeated on condition, without looking.

use super::repeats;
use crate::rules::{Check, Found, Rule, Subject};
use crate::tools::calls;

pub(super) const RULE: Rule = Rule {
    code: "RS506",
    name: "conditional replay without its check",
    what: "A tool that may be repeated only after a check was repeated without one, or after one that failed.",
    why: "The condition is what makes the repeat safe.",
    example: "`create_branch` is repeated without looking whether the branch exists.",
    instead: "Run the check, record its result, and repeat only if it says so.",
    source: "https://www.rfc-editor.org/rfc/rfc9110#section-13",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for call in calls(&subject.run.ledger) {
        for (entry, attempt) in repeats(&call) {
            if attempt.idempotency.as_deref() != Some("conditional") {
                continue;
            }
            let ok = attempt
                .replay_check
                .as_ref()
                .map(|check| check.get("ok").and_then(serde_json::Value::as_bool));
            out.push(match ok {
                Some(Some(true)) => Found::pass(format!("{} was repeated after its check", call.tool)),
                Some(Some(false)) => Found::violation(
                    format!("{} was repeated although its check failed", call.tool),
                    vec![entry.origin],
                ),
                Some(None) => Found::unknown(
                    format!("{} was repeated; the result of its check cannot be read", call.tool),
                    vec![entry.origin],
                ),
                None => Found::violation(
                    format!("{} was repeated without its check", call.tool),
                    vec![entry.origin],
                ),
            });
        }
    }
    out
}
