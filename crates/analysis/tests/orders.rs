//! Events in orders that are legal and not the usual one: several writers, late records, repeats, hedges.

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::{AsOf, Bound, Engine, RequestOutcome, Run, RunOutcome};
use retryscope_events::AttemptOutcome;
use retryscope_events::read::parse_line;
use retryscope_record::{Item, Origin, Place, SourceId, View};

const START: &str = "2026-11-29T10:00:";

/// Reads records of one run: each is the second it was written in, and its members beside type and run.
fn run_of(records: &[(u32, &str, &str)]) -> Run {
    let mut engine = Engine::new();
    for (n, (second, kind, members)) in records.iter().enumerate() {
        let line =
            format!(r#"{{"type":"{kind}","ts":"{START}{second:02}Z","run_id":"r","agent":"demo"{members}}}"#);
        for event in parse_line(line.as_bytes()).expect("a line of this schema") {
            let origin = Origin { source: SourceId(1), place: Place::Line(n as u64 + 1) };
            engine.apply(View::EVENTS, origin, Item::Event(&event, None));
        }
    }
    let now: DateTime<Utc> =
        format!("{START}59Z").parse::<DateTime<Utc>>().expect("a time") + TimeDelta::hours(1);
    let sources = std::collections::BTreeMap::default();
    engine.runs(&AsOf { now, sources: &sources }).remove(0)
}

/// Logical and upstream requests, retries and failed attempts.
fn counts(run: &Run) -> [Bound; 4] {
    let counts = &run.counts;
    [&counts.logical_requests, &counts.upstream_requests, &counts.retries, &counts.failed_attempts]
        .map(|count| count.bound)
}

fn exactly(numbers: [u64; 4]) -> [Bound; 4] {
    numbers.map(Bound::exact)
}

const REQUEST: (u32, &str, &str) = (1, "model.request", r#","request_id":"q""#);
const ANSWER: (u32, &str, &str) = (9, "model.response", r#","request_id":"q""#);
const ANSWER_OF_3: (u32, &str, &str) = (9, "model.response", r#","request_id":"q","attempts":3"#);
const FINISHED: (u32, &str, &str) = (10, "run.finished", r#","outcome":"succeeded""#);
const ATTEMPTS: [(u32, &str, &str); 3] = [
    (
        2,
        "model.attempt",
        r#","request_id":"q","attempt_id":"a1","attempt":1,"kind":"original","outcome":"failed","status":503"#,
    ),
    (
        5,
        "model.attempt",
        r#","request_id":"q","attempt_id":"a2","attempt":2,"kind":"retry","outcome":"failed","status":503"#,
    ),
    (9, "model.attempt", r#","request_id":"q","attempt_id":"a3","attempt":3,"kind":"retry","outcome":"ok""#),
];

#[test]
fn attempts_told_after_the_answer_or_the_end_are_those_that_it_told_of() {
    let [first, second, third] = ATTEMPTS;
    for records in [
        vec![REQUEST, first, second, third, ANSWER_OF_3, FINISHED],
        vec![REQUEST, ANSWER_OF_3, first, second, third, FINISHED],
        vec![REQUEST, ANSWER_OF_3, FINISHED, first, second, third],
        vec![REQUEST, ANSWER, FINISHED, first, second, third],
        vec![REQUEST, first, ANSWER, FINISHED, second, third],
        vec![first, second, third, REQUEST, ANSWER_OF_3, FINISHED],
    ] {
        let run = run_of(&records);
        assert_eq!(counts(&run), exactly([1, 3, 2, 2]), "{records:?}");
        assert_eq!((run.outcome, run.turns.len()), (RunOutcome::Succeeded, 1), "{records:?}");
        let outcomes: Vec<_> =
            run.turns[0].requests[0].attempts.iter().map(|a| a.outcome.unwrap().as_str()).collect();
        assert_eq!(outcomes, ["failed", "failed", "ok"], "{records:?}");
    }
}

#[test]
fn retries_told_after_the_answer_stand_before_it() {
    let retry = |second, number| {
        let members: &'static str = match number {
            1 => r#","request_id":"q","attempt":1,"status":500,"delay_ms":100"#,
            _ => r#","request_id":"q","attempt":2,"status":503,"delay_ms":100"#,
        };
        (second, "model.retry", members)
    };
    for records in [
        vec![REQUEST, retry(2, 1), retry(5, 2), ANSWER_OF_3, FINISHED],
        vec![REQUEST, ANSWER_OF_3, retry(2, 1), retry(5, 2), FINISHED],
        vec![REQUEST, ANSWER_OF_3, FINISHED, retry(2, 1), retry(5, 2)],
        vec![REQUEST, retry(2, 1), ANSWER_OF_3, FINISHED, retry(5, 2)],
    ] {
        let run = run_of(&records);
        assert_eq!(counts(&run), exactly([1, 3, 2, 2]), "{records:?}");
        let attempts = &run.turns[0].requests[0].attempts;
        let statuses: Vec<_> = attempts.iter().map(|a| a.failure.as_ref().and_then(|f| f.status)).collect();
        assert_eq!(statuses, [Some(500), Some(503), None], "{records:?}");
    }
}

#[test]
fn a_new_request_after_the_end_is_a_new_prompt() {
    let run = run_of(&[REQUEST, ANSWER, FINISHED, (20, "model.request", r#","request_id":"q2""#)]);
    assert_eq!(run.turns.len(), 2);
    let run = run_of(&[REQUEST, ANSWER, FINISHED, (20, "model.retry", r#","request_id":"q2","status":503"#)]);
    assert_eq!(run.turns.len(), 2);
}

#[test]
fn an_end_that_is_said_twice_is_one() {
    let retry = (2, "model.retry", r#","request_id":"q","attempt":1,"status":503,"delay_ms":600000"#);
    let cancelled = (12, "run.cancelled", r#","by":"user""#);
    let run = run_of(&[REQUEST, retry, cancelled, (12, "run.finished", r#","outcome":"cancelled""#)]);
    assert_eq!((run.outcome, run.turns.len()), (RunOutcome::Cancelled, 1));
    assert_eq!(counts(&run)[..3], exactly([1, 1, 0, 1])[..3]);
    assert_eq!(run.time.waiting_ms, Some(10_000));
}

#[test]
fn a_prompt_that_failed_before_the_next_one_failed() {
    let failed = (
        3,
        "model.failed",
        r#","request_id":"q","turn":"1","attempts":1,"status":401,"decision":"fail_fast""#,
    );
    let run = run_of(&[
        (1, "model.request", r#","request_id":"q","turn":"1""#),
        failed,
        (5, "model.request", r#","request_id":"p","turn":"2""#),
        (6, "model.response", r#","request_id":"p","turn":"2""#),
        FINISHED,
    ]);
    let outcomes: Vec<_> = run.turns.iter().map(|turn| turn.outcome).collect();
    assert_eq!(outcomes, [RunOutcome::Failed, RunOutcome::Succeeded]);
    assert_eq!(run.failed_turns(), 1);
    // Answered, and no word of how the prompt ended: neither it failed nor did its process die.
    let run = run_of(&[
        (1, "model.request", r#","request_id":"q","turn":"1""#),
        (2, "model.response", r#","request_id":"q","turn":"1""#),
        (5, "model.request", r#","request_id":"p","turn":"2""#),
        (6, "model.response", r#","request_id":"p","turn":"2""#),
        FINISHED,
    ]);
    assert_eq!(run.turns[0].outcome, RunOutcome::Unknown);
}

#[test]
fn a_hedge_is_neither_a_retry_nor_a_failure_unless_it_failed() {
    let original = |outcome: &str| {
        format!(r#","request_id":"q","attempt_id":"a1","kind":"original","outcome":"{outcome}""#)
    };
    let hedge = |outcome: &str| {
        format!(r#","request_id":"q","attempt_id":"a2","kind":"hedge","outcome":"{outcome}""#)
    };
    for (first, second, failed, outcome) in [
        ("ok", "superseded", 0, RequestOutcome::OkFirstTry),
        ("superseded", "ok", 0, RequestOutcome::OkFirstTry),
        ("failed", "ok", 1, RequestOutcome::OkAfterRetry),
        ("ok", "failed", 1, RequestOutcome::OkAfterRetry),
    ] {
        let (first, second) = (original(first), hedge(second));
        let run =
            run_of(&[REQUEST, (4, "model.attempt", &first), (4, "model.attempt", &second), ANSWER, FINISHED]);
        assert_eq!(counts(&run), exactly([1, 2, 0, failed]), "{first} {second}");
        assert_eq!(run.turns[0].requests[0].outcome, outcome, "{first} {second}");
    }
}

#[test]
fn a_number_above_what_the_log_holds_leaves_open_what_came_before() {
    let third = (2, "model.retry", r#","request_id":"q","attempt":3,"status":503,"delay_ms":100"#);
    let run = run_of(&[third, ANSWER, FINISHED]);
    assert_eq!(counts(&run)[1], Bound::range(2, Some(4)));
    // A total decides.
    let run = run_of(&[third, (9, "model.response", r#","request_id":"q","attempts":4"#), FINISHED]);
    assert_eq!(counts(&run)[1], Bound::exact(4));
}

#[test]
fn a_wait_told_in_pieces_is_one_wait() {
    let piece = |second, ms| {
        (second, "model.retry", format!(r#","request_id":"q","attempt":1,"status":429,"delay_ms":{ms}"#))
    };
    let (a, b) = (piece(2, 6_000), piece(5, 3_000));
    let run = run_of(&[REQUEST, (a.0, a.1, &a.2), (b.0, b.1, &b.2), ANSWER, FINISHED]);
    assert_eq!(counts(&run), exactly([1, 2, 1, 1]));
    assert_eq!(run.time.waiting_ms, Some(6_000));
    // The same number after the wait was over: another attempt of a writer that does not count.
    let b = piece(8, 500);
    let run = run_of(&[REQUEST, (a.0, a.1, &a.2), (b.0, b.1, &b.2), ANSWER, FINISHED]);
    assert_eq!(counts(&run), exactly([1, 3, 2, 2]));
}

#[test]
fn what_was_in_flight_at_the_end_is_not_said_to_be_cancelled() {
    let retry = (2, "model.retry", r#","request_id":"q","attempt":1,"status":503,"delay_ms":1000"#);
    for (outcome, told) in [("failed", None), ("succeeded", Some("ok")), ("cancelled", Some("cancelled"))] {
        let end = format!(r#","outcome":"{outcome}""#);
        let run = run_of(&[REQUEST, retry, (10, "run.finished", &end)]);
        let last = run.turns[0].requests[0].attempts.last().unwrap();
        assert_eq!(last.outcome.map(AttemptOutcome::as_str), told, "{outcome}");
        assert_eq!(counts(&run)[1], Bound::exact(2), "{outcome}");
    }
}

#[test]
fn numbers_of_any_size_are_taken() {
    let most = u64::MAX;
    let retry =
        format!(r#","request_id":"q","attempt":{most},"max_attempts":{most},"status":503,"delay_ms":{most}"#);
    let answer = format!(r#","request_id":"q","attempts":{most}"#);
    for records in [
        vec![(2, "model.retry", retry.as_str()), (5, "model.retry", &retry), (9, "model.response", "")],
        vec![(2, "model.retry", &retry), REQUEST, (9, "model.response", &answer), FINISHED],
        vec![(2, "model.retry", &retry), (9, "model.failed", &answer), (10, "model.retry", &retry)],
        vec![REQUEST, (2, "model.fallback", &answer), (9, "model.response", &answer), FINISHED],
    ] {
        let run = run_of(&records);
        let told = retryscope_analysis::explain(&run, &run.turns[0], &[], run.ended_at.unwrap_or_default());
        assert!(!told.summary.is_empty() && counts(&run)[1].min <= 3, "{records:?}");
    }
}
