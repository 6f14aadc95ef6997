//! RS501: done twice what must be done once.

use super::repeats;
use crate::rules::{Check, Found, Rule, Subject};
use crate::tools::calls;

pub(super) const RULE: Rule = Rule {
    code: "RS501",
    name: "non-idempotent tool replayed",
    what: "A tool call marked non-idempotent was executed more than once.",
    why: "The mail is sent twice, the order placed twice.",
    example: "`send_mail` times out and is called again.",
    instead: "Execute once, whatever number of attempts is configured; mark an unknown end as uncertain and ask.",
    source: "https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for call in calls(&subject.run.ledger) {
        let repeats: Vec<_> = repeats(&call).into_iter().map(|(entry, _)| entry.origin).collect();
        let marked = call.attempts.iter().find_map(|(_, a)| a.idempotency.as_deref());
        let writes =
            call.attempts.iter().any(|(_, a)| matches!(a.effect.as_deref(), Some("write" | "external")));
        match marked {
            Some("non_idempotent") if !repeats.is_empty() => {
                out.push(Found::violation(
                    format!("{} is not idempotent and was executed again", call.tool),
                    repeats,
                ));
            }
            Some("non_idempotent") => out.push(Found::pass(format!("{} was executed once", call.tool))),
            None if writes && !repeats.is_empty() => out.push(Found::unknown(
                format!("{} was executed again; whether it is idempotent is not in the log", call.tool),
                repeats,
            )),
            _ => {}
        }
    }
    out
}
