//! What the writer writes, the reader reads back; and the spellings of other programs mean the same.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptOutcome, Body, Candidate, DelaySource, Event, EventWriter, FallbackKind, Layer, ModelAttempt,
    ModelFailed, ModelFallback, ModelRetry, Sent, check, json_schema, read,
};
use serde_json::json;

fn at() -> DateTime<Utc> {
    "2026-11-01T10:00:00.125Z".parse().unwrap()
}

fn written(event: &Event) -> String {
    let mut writer = EventWriter::new(Vec::new()).writer("w");
    writer.write(event).unwrap();
    String::from_utf8(writer.into_inner()).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let bodies: Vec<Body> = vec![
        ModelRetry::new()
            .request_id("a")
            .attempt(2u64)
            .delay_ms(500u64)
            .status(503u16)
            .layer(Layer::Agent)
            .delay_source(DelaySource::Server)
            .candidate(Candidate::new("openai", "gpt"))
            .into(),
        ModelAttempt::new().request_id("a").sent(Sent::Unknown).started_at(at()).output_started(true).into(),
        ModelFallback::new()
            .kind(FallbackKind::Model)
            .from(Candidate::new("a", "b"))
            .to(Candidate::new("c", "d"))
            .failures(vec![Some(json!(503)), None])
            .into(),
        ModelFailed::new().message("x").reset_at(at()).into(),
    ];
    for body in bodies {
        let event = Event::new("r", at(), body).turn("1").step(3u64).agent("demo").event_id("e");
        let line = written(&event);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(check::line(line.trim_end().as_bytes()), [], "{line}");
        let back = read::parse_line(line.as_bytes()).unwrap().remove(0);
        assert_eq!(back.body, event.body);
        assert_eq!(
            (back.ts, back.turn.as_deref(), back.step, back.seq),
            (Some(at()), Some("1"), Some(3), Some(0))
        );
    }
}

#[test]
fn a_writer_refuses_what_a_reader_could_not_use() {
    let event = Event::new("", at(), ModelRetry::new());
    assert!(EventWriter::new(Vec::new()).write(&event).unwrap_err().to_string().contains("run_id"));
    let long = Event::new("r", at(), ModelFailed::new().message("ä".repeat(3000)));
    let back = read::parse_line(written(&long).as_bytes()).unwrap().remove(0);
    let Body::ModelFailed(body) = back.body else { panic!("{back:?}") };
    assert!(body.message.unwrap().len() <= 2048);
}

#[test]
fn other_spellings_mean_the_same() {
    let same = |line: &str| {
        let event = read::parse_line(line.as_bytes()).unwrap().remove(0);
        let Body::ModelRetry(body) = &event.body else { panic!("{line}: {event:?}") };
        (event.run_id.clone(), event.ts, body.attempt, body.delay_ms, body.status, body.max_attempts)
    };
    let expected = ("r".to_owned(), Some(at()), Some(2), Some(1500), Some(503), Some(4));
    for line in [
        r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:00.125Z","run_id":"r","attempt":2,"delay_ms":1500,"status":503,"max_attempts":4}"#,
        r#"{"event_type":"model.retry","created_at":"2026-11-01T10:00:00.125Z","run_id":"r","data":{"attempt":2,"delay_seconds":1.5,"status_code":503,"max_retries":3}}"#,
        r#"{"event":"model.retry","timestamp":1793527200.125,"runId":"r","payload":{"attempt":2,"delayMs":1500,"statusCode":"503","maxRetries":3}}"#,
        r#"{"kind":"model.retry","time":1793527200125,"session_id":"r","retry":2,"backoff_ms":1500.4,"http_status":503,"maxRetries":3}"#,
        r#"{"name":"model_retry","time":"2026-11-01T11:00:00.125+01:00","run_id":"r","attempt":2,"wait_sec":1.5,"status":503,"maxAttempts":4}"#,
    ] {
        assert_eq!(same(line), expected, "{line}");
    }
}

#[test]
fn the_unit_of_an_unknown_wait_is_not_guessed() {
    let event =
        read::parse_line(br#"{"type":"model.retry","run_id":"r","wait":5,"delay":"5s"}"#).unwrap().remove(0);
    let Body::ModelRetry(body) = &event.body else { panic!() };
    assert_eq!(body.delay_ms, None);
    assert!(event.extra.contains_key("wait") && event.extra.contains_key("delay"));
}

#[test]
fn a_nested_ledger_entry_gives_an_event_an_attempt() {
    let line = br#"{"type":"tool.attempt","run_id":"r","call_id":"c","tool":"sh","attempts":[{"status":"failed","error_code":"TIMEOUT"},{"status":"succeeded"}]}"#;
    let events = read::parse_line(line).unwrap();
    assert_eq!(events.len(), 2);
    let Body::ToolAttempt(second) = &events[1].body else { panic!() };
    assert_eq!((second.attempt, second.call_id.as_deref()), (Some(2), Some("c")));
}

#[test]
fn the_end_of_a_request_may_list_its_attempts() {
    let line = br#"{"type":"model.response","ts":"2026-11-30T09:00:05Z","run_id":"r","seq":7,"request_id":"q","provider":"openai","attempts":[{"status":503,"error_code":"SERVER_ERROR","delay_before_next_ms":500},{"status":200}]}"#;
    let events = read::parse_line(line).unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.body.kind()).collect();
    assert_eq!(kinds, ["model.attempt", "model.retry", "model.attempt", "model.response"]);
    let [first, wait, second, end] = events.as_slice() else { panic!() };
    let (Body::ModelAttempt(first), Body::ModelRetry(wait)) = (&first.body, &wait.body) else { panic!() };
    assert_eq!(
        (first.attempt, first.status, first.outcome),
        (Some(1), Some(503), Some(AttemptOutcome::Failed))
    );
    assert_eq!(wait.delay_ms, Some(500));
    let (Body::ModelAttempt(second), Body::ModelResponse(end)) = (&second.body, &end.body) else { panic!() };
    assert_eq!((second.attempt, second.outcome), (Some(2), Some(AttemptOutcome::Ok)));
    assert_eq!(second.candidate.as_ref().and_then(|c| c.provider.as_deref()), Some("openai"));
    assert_eq!(end.attempts, Some(2));
    // A repeat of the entry is known by the ids of its parts.
    let ids: std::collections::BTreeSet<_> =
        events.iter().map(|event| (event.event_id.clone(), event.seq)).collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn the_end_of_a_run_has_its_error() {
    for line in [
        r#"{"type":"run.finished","run_id":"r","outcome":"failed","error":"the limit of 40 steps was reached"}"#,
        r#"{"type":"run.finished","runId":"r","outcome":"failed","error":{"message":"the limit of 40 steps was reached"}}"#,
        r#"{"type":"run.finished","runId":"r","outcome":"failed","errorMessage":"the limit of 40 steps was reached"}"#,
    ] {
        let event = read::parse_line(line.as_bytes()).unwrap().remove(0);
        let Body::RunFinished(body) = &event.body else { panic!() };
        assert_eq!(body.error.as_deref(), Some("the limit of 40 steps was reached"));
    }
}

#[test]
fn a_newer_major_is_refused_with_both_versions() {
    let error = read::parse_line(br#"{"v":7,"type":"model.retry","run_id":"r"}"#).unwrap_err().to_string();
    assert!(error.contains('7') && error.contains('1'), "{error}");
}

#[test]
fn the_schema_names_every_type_and_field() {
    let schema = json_schema().to_string();
    for kind in Body::TYPES {
        assert!(schema.contains(kind));
        for field in Body::fields_of(kind).unwrap() {
            assert!(schema.contains(&format!("\"{}\"", field.name)), "{kind}.{}", field.name);
            assert!(!field.doc.trim().is_empty());
        }
    }
}
