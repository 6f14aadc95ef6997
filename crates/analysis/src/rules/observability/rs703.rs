//! RS703: what is reported is not what happened.

use retryscope_events::Source;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;

pub(super) const RULE: Rule = Rule {
    code: "RS703",
    name: "report differs from what happened",
    what: "A run is reported as a success although a subagent of it died, or its error speaks of used-up retries although none was made.",
    why: "Scripts and people act on the report.",
    example: "A subagent dies of an outage, and the run ends with success and exit code 0.",
    instead: "Let the failure of a part show in the result of the whole; name the real number of attempts.",
    source: "https://github.com/anthropics/claude-code/issues",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for child in subject.children.iter().filter(|child| child.outcome == RunOutcome::Failed) {
        if subject.run.outcome == RunOutcome::Succeeded {
            let evidence = child.turns.iter().filter_map(|turn| turn.end_origin).collect();
            out.push(Found::violation(
                format!("the run is reported as a success, and its subagent {} failed", child.key.id),
                evidence,
            ));
        }
    }
    for turn in subject.run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed) {
        let Some(request) =
            turn.requests.iter().rfind(|r| r.source == Source::Foreground && r.outcome.is_failed_at_once())
        else {
            continue;
        };
        let said = turn
            .error
            .as_deref()
            .or_else(|| turn.cause.as_ref()?.failure.message.as_deref())
            .unwrap_or_default();
        let claims = ["exceeded retry limit", "retries exhausted", "max retries exceeded", "maximum retries"]
            .iter()
            .any(|words| said.to_lowercase().contains(words));
        let evidence: Vec<_> = turn.end_origin.into_iter().chain([request.origin]).collect();
        match (claims, Subject::sent_once(turn, request)) {
            (true, true) => {
                out.push(Found::violation(
                    "the error speaks of used-up retries, and none was made",
                    evidence,
                ));
            }
            (true, false) => {
                out.push(Found::unknown("the error speaks of used-up retries; none is in the log", evidence));
            }
            _ => {}
        }
    }
    out
}
