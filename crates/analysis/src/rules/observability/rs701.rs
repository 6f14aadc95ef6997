//! RS701: it failed, and nothing says why.

use crate::rules::{Found, Rule, Subject};
use crate::run::RunOutcome;

pub(super) const RULE: Rule = Rule {
    code: "RS701",
    name: "failure without a reason",
    what: "A turn ended as failed, and neither its end nor any attempt holds a reason that a person can read.",
    why: "Whoever has to act cannot know on what.",
    example: "`run.finished` with outcome `failed` and nothing else.",
    instead: "Write the provider's error, with status and code, into the end of the run.",
    source: "https://opentelemetry.io/docs/specs/semconv/general/recording-errors/",
    check,
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let silent = subject.run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed).find(|turn| {
        let said = turn.error.is_some() || turn.terminal_reason.is_some();
        let known =
            turn.cause.as_ref().is_some_and(|c| c.failure.message.is_some() || c.failure.status.is_some());
        !said && !known
    });
    silent
        .map(|turn| {
            let evidence = turn.end_origin.into_iter().collect();
            Found::violation(format!("turn {} failed, and no record says why", turn.number), evidence)
        })
        .into_iter()
        .collect()
}
