use retryscope_record::{Collected, Statement};

use super::*;

fn read(lines: &[&str]) -> Vec<(Box<Event>, Option<RawFailure>)> {
    let mut sink = Collected::default();
    let mut transcript = Transcript::default();
    for (n, line) in lines.iter().enumerate() {
        transcript.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    let event = |(_, item): (_, Statement)| match item {
        Statement::Event(event, raw) => Some((event, raw)),
        Statement::Mark { .. } => None,
    };
    sink.items.into_iter().filter_map(event).collect()
}

const PROMPT: &str = r#"{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"x"}}"#;

/// Returns code and text of the retry that an error is told as.
fn retry(error: &str) -> (Option<String>, Option<String>) {
    let line = format!(
        r#"{{"type":"system","subtype":"api_error","sessionId":"s","uuid":"e","retryAttempt":1,"error":{error}}}"#
    );
    let mut retries = read(&[PROMPT, &line]).into_iter().filter_map(|(event, _)| match event.body {
        Body::ModelRetry(retry) => Some((retry.code, retry.message)),
        _ => None,
    });
    retries.next_back().unwrap()
}

#[test]
fn the_code_and_the_text_of_what_broke_below_are_kept() {
    let texts = |code: &str, message: &str| (Some(code.to_owned()), Some(message.to_owned()));
    assert_eq!(
        retry(r#"{"message":"It broke","connection":{"code":"Cut","message":"No end came"}}"#),
        texts("Cut", "It broke: Cut: No end came")
    );
    // A text that begins with the code says it once.
    assert_eq!(
        retry(r#"{"message":"It broke","connection":{"code":"EX","message":"EX: gone"}}"#),
        texts("EX", "It broke: EX: gone")
    );
    assert_eq!(retry(r#"{"message":"It broke","connection":{"code":"EX"}}"#), texts("EX", "It broke: EX"));
    assert_eq!(retry(r#"{"message":"It broke","cause":{"code":"EX"}}"#), texts("EX", "It broke: EX"));
    assert_eq!(retry(r#"{"message":"It broke"}"#), (None, Some("It broke".to_owned())));
}

#[test]
fn what_the_provider_sent_stands_beside_the_final_text() {
    let line = |details: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s","uuid":"a","isApiErrorMessage":true,{details}"message":{{"model":"<synthetic>","content":[{{"type":"text","text":"Refused"}}]}}}}"#
        )
    };
    let body = |details: &str| {
        let said = read(&[PROMPT, &line(details)]);
        let failed = said.into_iter().find(|(event, _)| matches!(event.body, Body::ModelFailed(_)));
        failed.unwrap().1.and_then(|raw| raw.body)
    };
    assert_eq!(
        body(r#""errorDetails":"400 {\"type\":\"error\"}","#).as_deref(),
        Some(r#"400 {"type":"error"}"#)
    );
    assert_eq!(body(""), None);
}

fn request(id: &str, base: &str) -> String {
    format!(r#"{{"type":"api-request","sessionId":"s","id":"{id}",{base}"keep":0,"tail":["x"]}}"#)
}

fn error(number: u64) -> String {
    format!(
        r#"{{"type":"system","subtype":"api_error","sessionId":"s","uuid":"e{number}","timestamp":"2026-01-02T03:04:05.000Z","retryAttempt":{number},"error":{{"status":529}}}}"#
    )
}

/// Returns kind and attempt of what is said.
fn kinds(lines: &[&str]) -> Vec<String> {
    let name = |(event, _): (Box<Event>, Option<RawFailure>)| match &event.body {
        Body::ModelAttempt(attempt) => attempt.attempt_id.clone().unwrap_or_default(),
        body => body.kind().to_owned(),
    };
    read(lines).into_iter().map(name).collect()
}

#[test]
fn a_request_line_that_stands_twice_is_one_request() {
    let first = request("a", "");
    let again = request("b", r#""base":"a","#);
    let lines = [PROMPT, &first, &first, &again, &again];
    assert_eq!(kinds(&lines), ["model.request", "a", "b"]);
}

#[test]
fn an_error_after_a_damaged_line_is_of_the_request_in_it() {
    let (first, third) = (request("a", ""), request("c", r#""base":"b","#));
    let (one, two) = (error(1), error(2));
    let damaged = [PROMPT, &first, &one, r#"{"type":"api-req"#, &two, &third];
    assert_eq!(kinds(&damaged), ["model.request", "a", "model.retry", "#lost1", "model.retry", "c"]);
    // The same error again, or one without a line that could have held a request, is no other request.
    let repeated = [PROMPT, &first, &one, r#"{"type":"api-req"#, &one];
    assert!(!kinds(&repeated).contains(&"#lost1".to_owned()));
    assert!(!kinds(&[PROMPT, &first, &one, &two]).contains(&"#lost1".to_owned()));
}
