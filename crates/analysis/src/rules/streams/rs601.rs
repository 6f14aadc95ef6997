//! RS601: output was shown, and shown again.

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS601",
    name: "replay after output began",
    what: "An attempt failed after output had begun, and the request was sent again without taking back what was shown.",
    why: "A reader sees the beginning twice, and a tool call in the first part may run twice.",
    example: "A stream breaks after two sentences; the repeated answer is appended to them.",
    instead: "Take back what was shown, or end the turn.",
    source: "https://docs.claude.com/en/docs/build-with-claude/streaming",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for (_, failed, next) in subject.repeats().filter(|(_, failed, _)| failed.output_started == Some(true)) {
        out.push(match failed.output_discarded {
            Some(true) => Found::pass("what was shown was taken back before the retry"),
            Some(false) => Found::violation(
                "output had begun, was kept, and the request was sent again",
                vec![failed.origin, next.origin],
            ),
            None => Found::unknown(
                "output had begun before the retry; whether it was taken back is not in the log",
                vec![failed.origin, next.origin],
            ),
        });
    }
    out
}
