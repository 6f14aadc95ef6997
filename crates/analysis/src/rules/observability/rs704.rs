//! RS704: an error that cannot be looked into.

use retryscope_taxonomy::Reason;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::{Run, RunOutcome, Turn};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS704",
    name: "final error lacks what is needed to look into it",
    what: "A turn failed, and the records of its final error do not name the model, or the status of an answer that did come, or the provider's request id although the log holds ids of other requests.",
    why: "Support asks for the request id, an operator for the model, a script for the status: without them the failure can only be described.",
    example: "\"API error\" without a status, on a run with three models.",
    instead: "Write model, number of the attempt, status, code and request id into the final error.",
    source: "https://platform.openai.com/docs/api-reference/debugging-requests",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let ids = subject.run.turns.iter().flat_map(|turn| &turn.requests).flat_map(|request| &request.attempts);
    let has_ids = ids.filter_map(|a| a.failure.as_ref()).any(|failure| failure.upstream_request_id.is_some());
    let mut passed = false;
    let mut unknown = Vec::new();
    for turn in subject.run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Failed) {
        // What failed before anything was asked has neither model nor answer.
        if turn.requests.iter().all(|request| request.attempts.is_empty()) && turn.cause.is_some() {
            continue;
        }
        let Some(missing) = missing(subject.run, turn, has_ids) else {
            unknown.extend(turn.end_origin);
            continue;
        };
        if missing.is_empty() {
            passed = true;
            continue;
        }
        let evidence = turn.cause.iter().flat_map(|cause| cause.evidence.clone()).collect();
        let message =
            format!("the final error of turn {} does not name {}", turn.number, words::list(&missing));
        return vec![Found::violation(message, evidence)];
    }
    match (unknown.is_empty(), passed) {
        (false, _) => vec![Found::unknown("which error ended a turn is not in the log", unknown)],
        (true, true) => vec![Found::pass("the final error names what is needed to look into it")],
        (true, false) => Vec::new(),
    }
}

/// Returns what the final error lacks; `None` where it is not known what ended the turn (RS701 looks at that).
fn missing(run: &Run, turn: &Turn, has_ids: bool) -> Option<Vec<String>> {
    let cause = turn.cause.as_ref()?;
    let failure = &cause.failure;
    let answered = turn
        .requests
        .iter()
        .flat_map(|request| &request.attempts)
        .filter(|attempt| attempt.failure.as_ref() == Some(failure))
        .any(|attempt| attempt.reached == Some(true) && attempt.output_started != Some(true));
    // A stream that broke off had begun with a good status.
    let answered = answered && !matches!(failure.reason, Reason::StreamCut | Reason::IdleTimeout);
    let named =
        failure.upstream_request_id.is_some() || failure.message.as_deref().is_some_and(names_a_request);
    let lacks = [
        (cause.candidate.model.is_none() && run.facts.model.is_none(), "the model"),
        (failure.status.is_none() && answered, "the status"),
        (!named && has_ids, "the request id"),
    ];
    Some(lacks.into_iter().filter(|(lacks, _)| *lacks).map(|(_, what)| what.to_owned()).collect())
}

/// Labels of a request id, in lower case, and one beginning that needs no label.
const LABELS: [&str; 5] = ["request_id", "request-id", "request id", "requestid", "req_"];

/// Whether the text that the person saw holds a request id: what stands behind a label and looks like one.
fn names_a_request(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    LABELS.iter().flat_map(|label| text.match_indices(label).map(|(at, _)| at + label.len())).any(|behind| {
        let rest = text.get(behind..).unwrap_or_default();
        let value = rest.trim_start_matches([' ', ':', '=', '"', '\'', '\\', '(', '#', '[']);
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let len = value.bytes().take_while(is_part).count();
        // Ids are long and hold digits; "request id is missing" holds none.
        len >= 8 && value.bytes().take(len).any(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_in_the_text_is_named() {
        for text in [
            r#"API Error: 529 {"type":"error","request_id":"req_011A2b3C4d5E"}"#,
            "Bad gateway (Request ID: 0aa1-bb22-cc33)",
            "overloaded, see req_011A2b3C4d5E",
            r#"{\"x-request-id\": \"9d8c7b6a5\"}"#,
        ] {
            assert!(names_a_request(text), "{text}");
        }
        for text in [
            r#"{"request_id":null}"#,
            "the request id is missing",
            "request id: ",
            "no such request 12345678",
        ] {
            assert!(!names_a_request(text), "{text}");
        }
    }
}
