//! RS701: it failed, and nothing says why.

use retryscope_events::AttemptOutcome;
use retryscope_taxonomy::Class;

use crate::judge::Failure;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;

pub(super) const RULE: Rule = Rule {
    code: "RS701",
    name: "failure without a reason",
    what: "A turn ended as failed, and neither its end nor any attempt holds a reason that a person can read.",
    why: "Whoever has to act cannot know on what.",
    example: "`run.finished` with outcome `failed` and nothing else.",
    instead: "Write the provider's error, with status and code, into the end of the run.",
    source: "https://opentelemetry.io/docs/specs/semconv/general/recording-errors/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let silent = subject.run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed).find(|turn| {
        let said = turn.error.is_some() || turn.terminal_reason.is_some();
        let tells = |f: &Failure| f.message.is_some() || f.status.is_some() || f.class != Class::Unknown;
        let known = turn.cause.as_ref().is_some_and(|cause| tells(&cause.failure));
        !said && !known
    });
    let found = silent.map(|turn| {
        let evidence = turn.end_origin.into_iter().collect();
        Found::violation(format!("turn {} failed, and no record says why", turn.number), evidence)
    });
    // Without its end it may have gone on, and the reason may still have come.
    let cut = || {
        let turn = subject.run.turns.last().filter(|turn| turn.outcome == RunOutcome::Interrupted)?;
        let attempt = turn.last_asked()?.attempts.last()?;
        let silent = attempt.failure.as_ref().is_none_or(|f| f.message.is_none() && f.status.is_none());
        (attempt.outcome == Some(AttemptOutcome::Failed) && silent).then(|| {
            Found::unknown(
                "an attempt failed without a reason, and the log ends before the turn does",
                vec![attempt.origin],
            )
        })
    };
    found.or_else(cut).into_iter().collect()
}
