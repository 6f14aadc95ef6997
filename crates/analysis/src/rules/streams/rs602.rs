//! RS602: half an answer, taken for a whole one.

use retryscope_events::AttemptOutcome;

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS602",
    name: "stream without an end taken as success",
    what: "An attempt counts as answered although the last event of its stream is not one that ends a stream. Needs `terminal_event` in the attempt records of our own schema; no agent's own log holds it.",
    why: "The connection closed early: the text is cut, or a tool call is missing, and nobody knows.",
    example: "The last event is `content_block_delta`, the outcome `ok`.",
    instead: "Treat a stream that closes without its terminal event (`message_stop`, `response.completed`, `[DONE]`) as failed.",
    source: "https://docs.claude.com/en/docs/build-with-claude/streaming",
    check: Check::Run(check),
};

/// Events after which a stream is over, by the providers' documentation.
const TERMINAL: [&str; 13] = [
    "message_stop",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.done",
    "[done]",
    "done",
    "finish",
    "completed",
    "message-end",
    "messagestop",
    "stop",
    "end",
];

/// Parts of the names of events that come before the end.
const PARTS: [&str; 7] = ["delta", "start", "ping", "created", "in_progress", "chunk", "added"];

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut seen = 0;
    let mut unknown = Vec::new();
    for attempt in subject.requests().flat_map(|(_, request)| &request.attempts) {
        if attempt.outcome != Some(AttemptOutcome::Ok) {
            continue;
        }
        let Some(event) = attempt.told.terminal_event.as_deref() else {
            unknown.push(attempt.origin);
            continue;
        };
        let name = event.to_ascii_lowercase();
        if TERMINAL.contains(&name.as_str()) {
            seen += 1;
        } else if name.is_empty() || name == "none" || PARTS.iter().any(|part| name.contains(part)) {
            let message = if name.is_empty() {
                "a stream without a terminal event was taken as an answer".to_owned()
            } else {
                format!("the last event of a stream was {event}, and it was taken as an answer")
            };
            return vec![Found::violation(message, vec![attempt.origin])];
        } else {
            unknown.push(attempt.origin);
        }
    }
    match (seen, unknown.is_empty()) {
        (0, _) => Vec::new(),
        (_, true) => vec![Found::pass(format!("{seen} streams ended with their terminal event"))],
        // The writer knows terminal events and left some out.
        (_, false) => vec![Found::unknown("how some streams ended is not in the log", unknown)],
    }
}
