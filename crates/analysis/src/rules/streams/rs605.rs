//! RS605: cut off in the middle of a word.

use retryscope_taxonomy::Reason;

use crate::rules::{Check, Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS605",
    name: "total time-out cut a working stream",
    what: "An attempt ended in a time-out (not an idle one) although output had begun and its stream was not silent for long.",
    why: "A long answer is not a hung one: what had arrived is thrown away, and the retry takes as long and is cut again.",
    example: "A time-out of 10 min ends an answer that has been arriving for nine of them.",
    instead: "Bound the silence between chunks, not the whole answer, once output has begun.",
    source: "https://github.com/anthropics/anthropic-sdk-python#timeouts",
    check: Check::Run(check),
};

/// A stream that was silent for so many ms had stopped to produce.
const SILENT: u64 = 60_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut out = Vec::new();
    for attempt in subject.requests().flat_map(|(_, request)| &request.attempts) {
        if attempt
            .failure
            .as_ref()
            .is_none_or(|failure| failure.reason != Reason::Timeout || failure.status.is_some())
        {
            continue;
        }
        match (attempt.output_started, attempt.told.idle_ms) {
            (Some(true), Some(idle)) if idle < SILENT => {
                let message = format!(
                    "a time-out ended a stream that was producing: its longest silence was {}",
                    words::span(idle)
                );
                return vec![
                    Found::violation(message, vec![attempt.origin]).fix(subject.setting_for("timeout")),
                ];
            }
            (Some(true), Some(_)) | (Some(false), _) => {
                out = vec![Found::pass("a time-out ended a silent attempt")];
            }
            (Some(true), None) | (None, _) => {
                out = vec![Found::unknown(
                    "a time-out ended an attempt; whether it was still producing is not in the log",
                    vec![attempt.origin],
                )];
            }
        }
    }
    out
}
