//! RS702: the logs at hand do not hold the retries.

use retryscope_taxonomy::Class;

use crate::explain::{better_view, describe};
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;

pub(super) const RULE: Rule = Rule {
    code: "RS702",
    name: "retries not recorded",
    what: "A turn failed with an error that this agent retries, and the logs at hand do not show how often it did.",
    why: "The failure looks like one bad answer; what it cost, and who retried, stays unknown.",
    example: "Codex CLI's session file of a run that sent 30 requests holds none of them.",
    instead: "Switch on the log that records attempts, where the agent has one.",
    source: "https://opentelemetry.io/docs/specs/semconv/gen-ai/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let Some(policy) = subject.policy else { return Vec::new() };
    let unseen =
        subject.run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed).find_map(|turn| {
            let passing = |class| matches!(class, Class::Transient | Class::Throttled);
            let cause = turn
                .cause
                .as_ref()
                .filter(|cause| cause.failure.retryable && passing(cause.failure.class))?;
            (!turn.counts.retries.bound.is_exact()).then_some((turn, cause))
        });
    let Some((_, cause)) = unseen else {
        let silent = subject.run.turns.iter().find(|turn| {
            let open = !turn.counts.retries.bound.is_exact();
            turn.outcome == RunOutcome::Failed && turn.cause.is_none() && open
        });
        let message =
            "a turn failed, and neither what ended it nor how often it was retried is in the logs at hand";
        let found = silent.map(|turn| Found::unknown(message, turn.end_origin.into_iter().collect()));
        return found.into_iter().collect();
    };
    let better = better_view(subject.run, policy);
    let fix =
        better.and_then(|view| Some(format!("to record them: {}", view.enable.as_deref()?.replace('`', ""))));
    let message = format!(
        "{} was final; how often it was retried is not in the logs at hand",
        describe(&cause.failure)
    );
    vec![Found::violation(message, cause.evidence.clone()).fix(fix)]
}
