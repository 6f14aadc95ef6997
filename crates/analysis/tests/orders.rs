//! Events in orders that are legal and not the usual one: several writers, late records, repeats, hedges.

mod told;

use retryscope_analysis::{Bound, RequestOutcome, Run, RunOutcome};
use retryscope_events::{AttemptKind, AttemptOutcome};
use retryscope_taxonomy::{Class, Reason};

use told::runs_of;

/// Returns the run that records make.
fn run_of(records: &[(u32, &str, &str)]) -> Run {
    runs_of(records).remove(0)
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
        let told = retryscope_analysis::Explainer::new(&run, &[], run.ended_at.unwrap_or_default())
            .explain(&run.turns[0]);
        assert!(!told.summary.is_empty() && counts(&run)[1].min <= 3, "{records:?}");
    }
}

#[test]
fn what_was_in_flight_at_a_cancel_is_not_sent_again_by_its_own_end() {
    let cancelled = (3, "run.cancelled", "");
    let wait = (2, "model.retry", r#","request_id":"q","attempt":1,"status":503,"delay_ms":700"#);
    let given_up = (4, "model.failed", r#","request_id":"q","attempts":1,"decision":"cancelled""#);
    let run = run_of(&[REQUEST, cancelled, given_up]);
    assert_eq!(counts(&run)[..3], exactly([1, 1, 0, 0])[..3]);
    assert_eq!(run.outcome, RunOutcome::Cancelled);
    assert_eq!(
        counts(&run_of(&[REQUEST, cancelled, (4, "model.response", r#","request_id":"q""#)])),
        exactly([1, 1, 0, 0])
    );
    assert_eq!(
        counts(&run_of(&[REQUEST, wait, cancelled, (4, "model.response", r#","request_id":"q""#)])),
        exactly([1, 2, 1, 1])
    );
}

#[test]
fn a_wait_ends_with_its_request() {
    let wait = (2, "model.retry", r#","request_id":"q","attempt":1,"status":503,"delay_ms":600000"#);
    let finished = (50, "run.finished", r#","outcome":"failed""#);
    for given_up in [
        r#","request_id":"q","attempts":1,"status":503,"decision":"deadline""#,
        r#","request_id":"q","attempts":1,"status":503"#,
    ] {
        let run = run_of(&[REQUEST, wait, (3, "model.failed", given_up), finished]);
        assert_eq!(run.time.waiting_ms, Some(1_000), "{given_up}");
        assert_eq!(counts(&run), exactly([1, 1, 0, 1]), "{given_up}");
    }
}

#[test]
fn a_candidate_that_was_moved_to_was_asked() {
    let request = (1, "model.request", r#","request_id":"q","provider":"openai","model":"a""#);
    let moved = (
        2,
        "model.fallback",
        r#","request_id":"q","from":{"provider":"openai","model":"a"},"to":{"provider":"anthropic","model":"b"},"failures":["503"],"attempts":1"#,
    );
    let given_up = (
        3,
        "model.failed",
        r#","request_id":"q","provider":"anthropic","model":"b","attempts":1,"status":529"#,
    );
    let run = run_of(&[request, moved, given_up]);
    assert_eq!(run.counts.upstream_requests.bound.min, 2);
    let last = run.turns[0].requests[0].attempts.last().unwrap();
    assert_eq!(last.candidate.provider.as_deref(), Some("anthropic"));
    assert_eq!(last.failure.as_ref().and_then(|f| f.status), Some(529));
}

#[test]
fn only_what_was_sent_of_nested_attempts_counts() {
    fn at(second: u32, members: &str) -> (u32, &str, &str) {
        (second, "model.attempt", members)
    }
    let outer = |id: &str, kind: &str, outcome: &str| {
        format!(
            r#","request_id":"q","attempt_id":"{id}","kind":"{kind}","layer":"agent","outcome":"{outcome}""#
        )
    };
    let part = |of: &str, n: u8, kind: &str, outcome: &str| {
        format!(
            r#","request_id":"q","attempt_id":"{of}.{n}","parent_attempt_id":"{of}","attempt":{n},"kind":"{kind}","layer":"transport","outcome":"{outcome}""#
        )
    };
    let (a, b) = (outer("a", "original", "failed"), outer("b", "retry", "ok"));
    let parts = [
        part("a", 1, "original", "failed"),
        part("a", 2, "retry", "failed"),
        part("b", 1, "original", "failed"),
        part("b", 2, "retry", "ok"),
    ];
    let [p1, p2, p3, p4] = parts.each_ref().map(String::as_str);
    let (a, b) = (a.as_str(), b.as_str());
    for records in [
        // As each layer ends, and as each begins.
        vec![REQUEST, at(2, p1), at(3, p2), at(3, a), at(4, p3), at(5, p4), at(5, b), ANSWER, FINISHED],
        vec![REQUEST, at(2, a), at(2, p1), at(3, p2), at(4, b), at(4, p3), at(5, p4), ANSWER, FINISHED],
        // The outer record when it begins and when it ends.
        vec![
            REQUEST,
            at(2, a),
            at(2, p1),
            at(3, p2),
            at(3, a),
            at(4, b),
            at(4, p3),
            at(5, p4),
            at(5, b),
            ANSWER,
            FINISHED,
        ],
    ] {
        let run = run_of(&records);
        assert_eq!(counts(&run), exactly([1, 4, 3, 3]), "{records:?}");
        let kinds: Vec<_> = run.turns[0].requests[0].attempts.iter().map(|a| a.kind).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == AttemptKind::Retry).count(), 3, "{records:?}");
    }
}

#[test]
fn the_end_of_an_attempt_without_an_id_is_not_another_attempt() {
    let began = (2, "model.attempt", r#","request_id":"q","attempt":1,"started_at":"2026-11-29T10:00:02Z""#);
    let failed = (
        4,
        "model.attempt",
        r#","request_id":"q","attempt":1,"started_at":"2026-11-29T10:00:02Z","outcome":"failed","status":503"#,
    );
    let second = (
        9,
        "model.attempt",
        r#","request_id":"q","attempt":2,"started_at":"2026-11-29T10:00:05Z","outcome":"ok""#,
    );
    assert_eq!(counts(&run_of(&[REQUEST, began, failed, second, ANSWER, FINISHED])), exactly([1, 2, 1, 1]));
    // Another start under the same number is another attempt, of a writer that counts otherwise.
    let other = (
        4,
        "model.attempt",
        r#","request_id":"q","attempt":1,"started_at":"2026-11-29T10:00:03Z","outcome":"failed","status":503"#,
    );
    assert_eq!(counts(&run_of(&[REQUEST, began, other, second, ANSWER, FINISHED])), exactly([1, 3, 2, 2]));
}

#[test]
fn what_was_never_sent_is_not_repeated() {
    for (sent, least) in [("false", exactly([1, 1, 0, 1])[1]), (r#""unknown""#, Bound::range(1, Some(2)))] {
        let first =
            format!(r#","request_id":"q","attempt_id":"a1","outcome":"failed","sent":{sent},"status":503"#);
        let second =
            (5, "model.attempt", r#","request_id":"q","attempt_id":"a2","outcome":"ok","sent":true"#);
        let run = run_of(&[REQUEST, (2, "model.attempt", first.as_str()), second, ANSWER, FINISHED]);
        assert_eq!(run.counts.upstream_requests.bound, least);
        let request = &run.turns[0].requests[0];
        assert_ne!(request.outcome, RequestOutcome::OkAfterRetry);
        assert_eq!(request.attempts[1].kind, AttemptKind::Original);
    }
}

#[test]
fn what_takes_the_place_of_another_attempt_was_sent_beside_it() {
    let beaten = (4, "model.attempt", r#","request_id":"q","attempt_id":"a1","outcome":"superseded""#);
    let won = (4, "model.attempt", r#","request_id":"q","attempt_id":"a2","outcome":"ok""#);
    let run = run_of(&[REQUEST, beaten, won, ANSWER, FINISHED]);
    assert_eq!(counts(&run), exactly([1, 2, 0, 0]));
}

#[test]
fn a_side_call_is_background_without_saying_so() {
    let summary = (1, "model.request", r#","request_id":"s","purpose":"compaction""#);
    let answer = (2, "model.response", r#","request_id":"s""#);
    let run = run_of(&[
        summary,
        answer,
        (3, "model.request", r#","request_id":"q","purpose":"main""#),
        ANSWER,
        FINISHED,
    ]);
    assert_eq!(run.counts.logical_requests.bound, Bound::exact(1));
    assert_eq!(run.background_counts.logical_requests.bound, Bound::exact(1));
}

#[test]
fn records_of_a_turn_that_come_after_its_end_are_of_that_turn() {
    let wait = |second, n| {
        (
            second,
            "model.retry",
            if n == 1 {
                r#","request_id":"q","attempt":1,"status":503,"delay_ms":500"#
            } else {
                r#","request_id":"q","attempt":2,"status":503,"delay_ms":800"#
            },
        )
    };
    let run = run_of(&[wait(2, 1), wait(3, 2), FINISHED, ANSWER_OF_3, REQUEST]);
    assert_eq!(counts(&run), exactly([1, 3, 2, 2]));
    assert_eq!((run.turns.len(), run.outcome), (1, RunOutcome::Succeeded));
}

#[test]
fn codes_that_a_fallback_names_say_what_failed() {
    let reason_of = |codes: &'static str| {
        let run = run_of(&[REQUEST, (2, "model.fallback", codes), ANSWER, FINISHED]);
        run.turns[0].requests[0].attempts[0].failure.as_ref().map(|f| (f.class, f.status))
    };
    assert_eq!(
        reason_of(r#","request_id":"q","failures":["insufficient_quota"]"#),
        Some((Class::Exhausted, None))
    );
    assert_eq!(reason_of(r#","request_id":"q","failures":["RATE_LIMIT"]"#), Some((Class::Throttled, None)));
    assert_eq!(reason_of(r#","request_id":"q","failures":["503"]"#), Some((Class::Transient, Some(503))));
    assert_eq!(reason_of(r#","request_id":"q","failures":["what is this"]"#), Some((Class::Unknown, None)));
}

#[test]
fn a_class_without_a_reason_gets_none() {
    let run = run_of(&[
        REQUEST,
        (2, "model.failed", r#","request_id":"q","attempts":1,"class":"transient""#),
        FINISHED,
    ]);
    let failure = run.turns[0].requests[0].attempts[0].failure.clone();
    assert_eq!(
        failure.map(|f| (f.class, f.reason, f.retryable)),
        Some((Class::Transient, Reason::NoDetail, true))
    );
}
