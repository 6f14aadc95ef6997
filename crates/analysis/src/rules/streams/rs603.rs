//! RS603: a stop reason that was misread.

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{Run, RunOutcome};

pub(super) const RULE: Rule = Rule {
    code: "RS603",
    name: "stop reason misread",
    what: "A turn failed right after an answer that stopped with `pause_turn`, or succeeded with an answer that stopped because the context was full.",
    why: "`pause_turn` asks to be continued, it is no error; an answer that stopped at a full context is cut off, it is no success.",
    example: "stop_reason `model_context_window_exceeded`, and the run is reported as a success.",
    instead: "Send the answer back to continue after `pause_turn`; compact and ask again when the context is full.",
    source: "https://docs.claude.com/en/api/handling-stop-reasons",
    check: Check::Run(check),
};

/// What providers say when the context was full before the answer ended.
const FULL: [&str; 2] = ["model_context_window_exceeded", "context_window_exceeded"];

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let run: &Run = subject.run;
    let mut out = Vec::new();
    for turn in &run.turns {
        let foreground = |r: &&crate::run::LogicalRequest| r.source == retryscope_events::Source::Foreground;
        let Some(last) = turn.requests.iter().rev().find(foreground).filter(|r| r.outcome.is_ok()) else {
            continue;
        };
        let evidence: Vec<_> = [last.origin].into_iter().chain(turn.end_origin).collect();
        let stop = last.stop_reason.as_deref();
        match (turn.outcome, stop) {
            (RunOutcome::Failed, Some("pause_turn")) => {
                return vec![Found::violation(
                    "an answer stopped with pause_turn, which asks to be continued, and the turn was ended as failed",
                    evidence,
                )];
            }
            (RunOutcome::Succeeded, Some(stop)) if FULL.contains(&stop) => {
                return vec![Found::violation(
                    format!("an answer stopped with {stop}, and the turn was reported as a success"),
                    evidence,
                )];
            }
            (RunOutcome::Failed, None) if turn.cause.is_none() => {
                out = vec![Found::unknown(
                    "a turn failed after an answer; why that answer stopped is not in the log",
                    evidence,
                )];
            }
            _ => {}
        }
    }
    out
}
