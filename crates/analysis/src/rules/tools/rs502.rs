//! RS502: the end was unknown, and it was done again.

use retryscope_events::{ToolAttempt, ToolStatus};

use crate::rules::{Check, Found, Rule, Subject};
use crate::tools::calls;

pub(super) const RULE: Rule = Rule {
    code: "RS502",
    name: "time-out with side effects retried",
    what: "A tool with side effects timed out, and was executed again instead of being marked uncertain.",
    why: "A time-out says nothing about whether the effect took place.",
    example: "`deploy` times out after 60 s and is started a second time.",
    instead: "Mark it `uncertain` and let a person or a check decide.",
    source: "https://docs.aws.amazon.com/wellarchitected/latest/framework/rel_prevent_interaction_failure_idempotent.html",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for call in calls(&subject.run.ledger) {
        for (index, (entry, attempt)) in call.attempts.iter().enumerate() {
            let code = attempt.error_code.as_deref().unwrap_or_default().to_ascii_lowercase();
            let timed_out = matches!(attempt.status, Some(ToolStatus::Uncertain | ToolStatus::TimedOut))
                || (attempt.status == Some(ToolStatus::Failed)
                    && (code.contains("timeout") || code.contains("timed_out")));
            if !timed_out
                || attempt.idempotency.as_deref() == Some("idempotent")
                || attempt.effect.as_deref() == Some("read")
            {
                continue;
            }
            let next = call.attempts[index + 1..].iter().find(|(_, n)| n.status != Some(ToolStatus::Denied));
            // A receiver that knows the key does it once; an approval is a person's decision, and a check looked first.
            let checked = |n: &ToolAttempt| {
                n.replay_check.as_ref().and_then(|check| check.get("ok")?.as_bool()) == Some(true)
            };
            let safe = next
                .is_some_and(|(_, n)| n.idempotency_key.is_some() || n.approved == Some(true) || checked(n));
            match (next, attempt.effect.is_some()) {
                (Some(_), _) if safe => {}
                (Some((again, _)), true) => out.push(Found::violation(
                    format!(
                        "{} may have had its effect when it timed out, and was executed again",
                        call.tool
                    ),
                    vec![entry.origin, again.origin],
                )),
                (Some((again, _)), false) => out.push(Found::unknown(
                    format!(
                        "{} timed out and was executed again; whether it has side effects is not in the log",
                        call.tool
                    ),
                    vec![entry.origin, again.origin],
                )),
                (None, _) if attempt.status == Some(ToolStatus::Uncertain) => {
                    out.push(Found::pass(format!(
                        "{} was marked uncertain and not executed again",
                        call.tool
                    )));
                }
                (None, _) => {}
            }
        }
    }
    out
}
