//! RS604: the stream broke, and nobody said so.

use crate::explain::describe;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;

pub(super) const RULE: Rule = Rule {
    code: "RS604",
    name: "mid-stream error swallowed",
    what: "The last attempt of a request failed after output had begun, nothing was sent again, and the turn is reported as a success.",
    why: "What the person has is the first part of an answer, under a report that says it is all.",
    example: "An error event arrives after two sentences; the run ends with success and two sentences.",
    instead: "Report the error, or send the request again and take back what was shown.",
    source: "https://docs.claude.com/en/docs/build-with-claude/streaming",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for turn in &subject.run.turns {
        let foreground = |r: &&crate::run::LogicalRequest| r.source == retryscope_events::Source::Foreground;
        // What comes later in the turn may have made up for an earlier one.
        let Some(last) = turn.requests.iter().rev().find(foreground) else { continue };
        let Some(attempt) = last.attempts.last().filter(|a| a.output_started == Some(true)) else { continue };
        let evidence: Vec<_> = [attempt.origin].into_iter().chain(turn.end_origin).collect();
        match (&attempt.failure, turn.outcome) {
            (Some(failure), RunOutcome::Succeeded) => {
                let message = format!(
                    "output broke off with {}, was not asked for again, and turn {} is reported as a success",
                    describe(failure),
                    turn.number
                );
                return vec![Found::violation(message, evidence)];
            }
            (Some(_), RunOutcome::Failed) => out = vec![Found::pass("a stream that broke was reported")],
            (None, RunOutcome::Succeeded) if attempt.outcome.is_none() => {
                out = vec![Found::unknown(
                    "output had begun; how the stream ended is not in the log",
                    evidence,
                )];
            }
            _ => {}
        }
    }
    out
}
