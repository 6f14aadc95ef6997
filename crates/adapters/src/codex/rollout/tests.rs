//! What rollouts of each shape say.

use retryscope_events::Body;
use retryscope_record::{Collected, Statement};

use super::*;

fn read(text: &str) -> Collected {
    let mut sink = Collected::default();
    let mut decoder = Rollout::new(None);
    for (n, line) in text.lines().enumerate() {
        decoder.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    sink
}

fn count(read: &Collected, pick: fn(&Body) -> bool) -> usize {
    read.items
        .iter()
        .filter(|(_, item)| matches!(item, Statement::Event(event, _) if pick(&event.body)))
        .count()
}

fn ends(read: &Collected) -> Vec<TurnOutcome> {
    let outcome = |item: &Statement| match item {
        Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(*outcome),
        _ => None,
    };
    read.items.iter().filter_map(|(_, item)| outcome(item)).collect()
}

const META: &str = r#"{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{"id":"T","cli_version":"0.171.0","model_provider":"p"}}"#;
const CONTEXT: &str =
    r#"{"timestamp":"2026-01-01T00:00:01.000Z","type":"turn_context","payload":{"turn_id":"u","model":"m"}}"#;
const DIED: &str = r#"{"timestamp":"2026-01-01T00:00:02.000Z","type":"event_msg","payload":{"type":"token_count","info":null}}"#;

#[test]
fn a_count_without_usage_is_a_stream_that_died() {
    let usage = r#"{"timestamp":"2026-01-01T00:00:03.000Z","type":"token_usage_record","payload":{"turn_id":"u","response_id":"r","usage":{"input_tokens":1,"output_tokens":1}}}"#;
    let said = r#"{"timestamp":"2026-01-01T00:00:03.000Z","type":"response_item","payload":{"type":"message","role":"assistant"}}"#;
    let end = r#"{"timestamp":"2026-01-01T00:00:04.000Z","type":"event_msg","payload":{"type":"task_complete","turn_id":"u","last_agent_message":"x"}}"#;
    let read = read(&[META, CONTEXT, DIED, said, usage, DIED, end].join("\n"));
    assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 1);
    assert_eq!(count(&read, |b| matches!(b, Body::ModelRetry(_))), 1);
    assert_eq!(count(&read, |b| matches!(b, Body::ModelResponse(_))), 1);
    assert_eq!(ends(&read), [TurnOutcome::Succeeded]);
}

/// Whether a request of a turn that was stopped so many milliseconds after its context counts, and whether all are shown.
fn stopped_after(ms: u32) -> (bool, bool) {
    let stopped = format!(
        r#"{{"timestamp":"2026-01-01T00:00:{:02}.{:03}Z","type":"event_msg","payload":{{"type":"turn_aborted","turn_id":"u","reason":"interrupted"}}}}"#,
        1 + ms / 1_000,
        ms % 1_000
    );
    let note = r#"{"timestamp":"2026-01-01T00:00:01.000Z","type":"response_item","payload":{"type":"message","role":"user"}}"#;
    let read = read(&[META, CONTEXT, note, &stopped].join("\n"));
    let has = |wanted: fn(&Mark) -> bool| {
        read.items.iter().any(|(_, item)| matches!(item, Statement::Mark { mark, .. } if wanted(mark)))
    };
    let is_taken_back = has(|mark| matches!(mark, Mark::Copied));
    (!is_taken_back, !has(|mark| matches!(mark, Mark::Shows { requests: Shown::Some, .. })))
}

#[test]
fn a_turn_that_is_stopped_at_once_may_have_asked_for_nothing() {
    assert_eq!(stopped_after(400), (false, false));
    assert_eq!(stopped_after(4_000), (true, true));
}

/// A summary of the conversation between a tool's result and the answer, after these streams of it.
fn summarized(streams: usize, named: &str) -> Collected {
    let at = |kind: &str, payload: &str| {
        format!(r#"{{"timestamp":"2026-01-01T00:00:03.000Z","type":"{kind}","payload":{payload}}}"#)
    };
    let usage = |id: &str| {
        at(
            "token_usage_record",
            &format!(r#"{{"turn_id":"u","response_id":"{id}","usage":{{"input_tokens":1}}}}"#),
        )
    };
    let item =
        |kind: &str| at("response_item", &format!(r#"{{"type":"{kind}","role":"assistant","call_id":"c"}}"#));
    let end = at("event_msg", r#"{"type":"task_complete","turn_id":"u","last_agent_message":"x"}"#);
    let mut lines = vec![META.to_owned(), CONTEXT.to_owned(), item("function_call"), usage("r1")];
    lines.extend([item("function_call_output"), DIED.to_owned()]);
    lines.extend(std::iter::repeat_n(DIED.to_owned(), streams));
    lines.extend([item("message"), usage("r2"), DIED.to_owned()]);
    lines.push(at("compacted", &format!(r#"{{"message":"","compaction_response_id":"{named}"}}"#)));
    lines.extend([CONTEXT.to_owned(), DIED.to_owned(), item("message"), usage("r3"), DIED.to_owned(), end]);
    read(&lines.join("\n"))
}

#[test]
fn the_counts_of_a_summary_are_no_streams_that_died() {
    for (streams, died) in [(1, 0), (3, 2)] {
        let read = summarized(streams, "r2");
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 3);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelResponse(_))), 3);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRetry(_))), died);
        assert_eq!(ends(&read), [TurnOutcome::Succeeded]);
    }
    // Another answer was the summary: the counts before this one tell what they always do.
    assert_eq!(count(&summarized(1, "r9"), |b| matches!(b, Body::ModelRetry(_))), 1);
}

#[test]
fn a_wait_of_no_time_may_hide_streams() {
    let failed = |message: &str| {
        let end = format!(
            r#"{{"timestamp":"2026-01-01T00:00:01.090Z","type":"event_msg","payload":{{"type":"task_complete","turn_id":"u","error":{{"message":"{message}"}}}}}}"#
        );
        let read = read(&[META, CONTEXT, &end].join("\n"));
        read.items.iter().any(|(_, item)| matches!(item, Statement::Mark { mark: Mark::Sends { .. }, .. }))
    };
    assert!(failed("unexpected status 401 Unauthorized: no"));
    assert!(!failed("exceeded retry limit, last status: 429 Too Many Requests"));
    assert!(!failed("Rate limit reached. Please try again in 1ms."));
}

#[test]
fn an_end_without_an_answer_is_a_failure_where_errors_are_not_logged() {
    let meta = META.replace("0.171.0", "0.104.0");
    let end = r#"{"timestamp":"2026-01-01T00:00:04.000Z","type":"event_msg","payload":{"type":"task_complete","turn_id":"u","last_agent_message":null}}"#;
    assert_eq!(ends(&read(&[&meta, CONTEXT, end].join("\n"))), [TurnOutcome::Failed]);
    assert_eq!(ends(&read(&[META, CONTEXT, end].join("\n"))), [TurnOutcome::Succeeded]);
}

#[test]
fn an_error_before_the_end_is_why_the_turn_failed() {
    let meta = META.replace("0.171.0", "0.140.0");
    let told = |info: &str| {
        format!(
            r#"{{"timestamp":"2026-01-01T00:00:02.000Z","type":"event_msg","payload":{{"type":"error","message":"no more today","codex_error_info":{info}}}}}"#
        )
    };
    let end = |said: &str| {
        format!(
            r#"{{"timestamp":"2026-01-01T00:00:04.000Z","type":"event_msg","payload":{{"type":"task_complete","turn_id":"u","last_agent_message":{said}}}}}"#
        )
    };
    let said = r#"{"timestamp":"2026-01-01T00:00:03.000Z","type":"response_item","payload":{"type":"message","role":"assistant"}}"#;
    let why = |read: &Collected| {
        read.items.iter().find_map(|(_, item)| match item {
            Statement::Mark { mark: Mark::TurnEnded { reason, message, .. }, .. } => {
                Some((reason.clone(), message.clone()))
            }
            _ => None,
        })
    };
    let fatal = told(r#""usage_limit_exceeded""#);
    let failed = read(&[&meta, CONTEXT, &fatal, &end("null")].join("\n"));
    assert_eq!(ends(&failed), [TurnOutcome::Failed]);
    assert_eq!(why(&failed), Some((Some("usage_limit_exceeded".into()), Some("no more today".into()))));
    let code = |body: &Body| matches!(body, Body::ModelFailed(body) if body.code.as_deref() == Some("usage_limit_exceeded"));
    assert_eq!(count(&failed, code), 1);
    // It went on, it was answered, or the error was about something else.
    for lines in [
        vec![&*fatal, said, &end(r#""done""#)],
        vec![&*fatal, &end(r#""done""#)],
        vec![&*told(r#"{"active_turn_not_steerable":{"turn_kind":"review"}}"#), said, &end("null")],
    ] {
        let read = read(&[&[&*meta, CONTEXT][..], &lines].concat().join("\n"));
        assert_eq!(ends(&read), [TurnOutcome::Succeeded], "{lines:?}");
    }
}

fn line(kind: &str, payload: &str) -> String {
    format!(r#"{{"timestamp":"2026-01-01T00:00:03.000Z","type":"{kind}","payload":{payload}}}"#)
}

fn told(payload: &str) -> String {
    line("event_msg", payload)
}

const STARTED: &str = r#"{"type":"task_started","turn_id":"u","root_turn_id":"u"}"#;
const DONE: &str = r#"{"type":"task_complete","turn_id":"u","last_agent_message":null}"#;

#[test]
fn a_turn_that_only_summarized_asked_once() {
    let said = line("response_item", r#"{"type":"message","role":"assistant"}"#);
    let usage = line("token_usage_record", r#"{"turn_id":"u","response_id":"r","usage":{"input_tokens":1}}"#);
    let grown =
        told(r#"{"type":"token_count","info":{"total_token_usage":{"input_tokens":9,"output_tokens":1}}}"#);
    let compacted = line("compacted", r#"{"message":"","compaction_response_id":"r"}"#);
    let left = told(r#"{"type":"token_count","info":null}"#);
    let item = told(r#"{"type":"item_completed","turn_id":"u","item":{"type":"ContextCompaction"}}"#);
    let started = told(STARTED);
    let new = [&*started, DIED, &said, &usage, DIED, &compacted, CONTEXT, &left, &item];
    let old = [&*started, DIED, &said, &grown, &compacted, &left];
    for (version, lines) in [("0.171.0", &new[..]), ("0.146.1", &old[..]), ("0.128.0", &old[..])] {
        let meta = META.replace("0.171.0", version);
        let read = read(&[&[&*meta][..], lines, &[&told(DONE)]].concat().join("\n"));
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 1, "{version}");
        assert_eq!(count(&read, |b| matches!(b, Body::ModelResponse(_))), 1, "{version}");
        assert_eq!(count(&read, |b| matches!(b, Body::ModelFailed(_))), 0, "{version}");
        assert_eq!(ends(&read), [TurnOutcome::Succeeded], "{version}");
    }
    // With a prompt behind it, the turn goes on, and fails where errors are not logged.
    let prompt = line("response_item", r#"{"type":"message","role":"user"}"#);
    let meta = META.replace("0.171.0", "0.140.0");
    let read = read(&[&*meta, &started, &said, &grown, &compacted, CONTEXT, &prompt, &told(DONE)].join("\n"));
    assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 2);
    assert_eq!(ends(&read), [TurnOutcome::Failed]);
}

#[test]
fn a_summary_that_failed_was_asked_for() {
    let failed = |message: &str| {
        told(&format!(r#"{{"type":"task_complete","turn_id":"u","error":{{"message":"{message}"}}}}"#))
    };
    let counts = |end: &str| {
        let read = read(&[META, &told(STARTED), end].join("\n"));
        let sure = |item: &Statement| matches!(item, Statement::Mark { mark: Mark::Sends { .. }, .. });
        assert!(!read.items.iter().any(|(_, item)| sure(item)), "how often is not known");
        assert_eq!(ends(&read), [TurnOutcome::Failed]);
        count(&read, |b| matches!(b, Body::ModelRequest(_)))
    };
    assert_eq!(counts(&failed("unexpected status 503 Service Unavailable: x")), 1);
    assert_eq!(counts(&failed("no such profile")), 0);
    // Where errors are not logged, the turn leaves nothing.
    let meta = META.replace("0.171.0", "0.140.0");
    let read = read(&[&*meta, &told(STARTED), &told(DONE)].join("\n"));
    let is_hidden = |item: &Statement| {
        matches!(item, Statement::Mark { mark: Mark::Shows { requests: Shown::Some, .. }, .. })
    };
    assert!(read.items.iter().any(|(_, item)| is_hidden(item)));
    assert_eq!(ends(&read), [TurnOutcome::Unknown]);
}

#[test]
fn a_review_asks_in_a_thread_of_its_own() {
    let said = line("response_item", r#"{"type":"message","role":"assistant"}"#);
    let entered =
        r#"{"type":"item_completed","thread_id":"T","turn_id":"u","item":{"type":"EnteredReviewMode"}}"#;
    let inner = r#"{"type":"task_started","turn_id":"v","root_turn_id":"u"}"#;
    let theirs = r#"{"type":"item_completed","thread_id":"V","turn_id":"v","item":{"type":"UserMessage"}}"#;
    let new = [told(entered), told(inner), told(theirs), said.clone(), told(DONE)];
    let old = [
        told(r#"{"type":"entered_review_mode"}"#),
        told(r#"{"type":"task_started","turn_id":"v"}"#),
        told(r#"{"type":"user_message","message":"x"}"#),
        told(r#"{"type":"exited_review_mode"}"#),
        said,
        told(DONE),
    ];
    for (version, lines) in [("0.171.0", &new[..]), ("0.140.0", &old[..])] {
        let meta = META.replace("0.171.0", version);
        let read = read(&[&[meta][..], lines].concat().join("\n"));
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 0, "{version}");
        assert_eq!(ends(&read), [TurnOutcome::Succeeded], "{version}");
        let begun = |item: &Statement| match item {
            Statement::Mark { mark: Mark::TurnStarted { turn }, .. } => turn.clone(),
            _ => None,
        };
        let turns: Vec<_> = read.items.iter().filter_map(|(_, item)| begun(item)).collect();
        assert_eq!(turns, ["u"], "{version}");
        let is_lent = |item: &Statement| matches!(item, Statement::Mark { mark: Mark::AskedElsewhere, .. });
        assert_eq!(read.items.iter().filter(|(_, item)| is_lent(item)).count(), 1, "{version}");
    }
}

#[test]
fn a_review_without_a_turn_of_its_own_is_lent_too() {
    let meta = META.replace("0.171.0", "0.98.0");
    let lines = [
        meta,
        told(r#"{"type":"entered_review_mode"}"#),
        told(r#"{"type":"user_message","message":"x"}"#),
        told(r#"{"type":"exited_review_mode"}"#),
        line("response_item", r#"{"type":"message","role":"assistant"}"#),
    ];
    let read = read(&lines.join("\n"));
    assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 0);
    let is_lent = |item: &Statement| matches!(item, Statement::Mark { mark: Mark::AskedElsewhere, .. });
    assert_eq!(read.items.iter().filter(|(_, item)| is_lent(item)).count(), 1);
}

#[test]
fn turns_without_ids_end_untold() {
    let is_untold = |lines: &[&str]| {
        let untold = |item: &Statement| matches!(item, Statement::Mark { mark: Mark::EndsUntold, .. });
        read(&lines.join("\n")).items.iter().any(|(_, item)| untold(item))
    };
    let meta = META.replace("0.171.0", "0.98.0");
    let context = line("turn_context", r#"{"model":"m"}"#);
    assert!(is_untold(&[&meta, &told(r#"{"type":"user_message","message":"x"}"#), &context]));
    assert!(!is_untold(&[META, &told(STARTED), CONTEXT]));
}

#[test]
fn a_subagent_names_its_parent() {
    let payload = br#"{"source":{"subagent":{"thread_spawn":{"parent_thread_id":"P","depth":1}}}}"#;
    assert_eq!(parent_of(&Object::parse(payload).unwrap()).as_deref(), Some("P"));
    assert_eq!(parent_of(&Object::parse(br#"{"source":"cli"}"#).unwrap()), None);
}

#[test]
fn any_bytes_are_read() {
    let broken = read("{\"type\":\"session_meta\"}\n{\"type\":\"event_msg\",\"payload\":7}\n{\n\u{0}\n[]");
    assert!(!broken.gaps.is_empty());
}

#[test]
fn a_provider_that_states_no_tokens_leaves_a_count_behind_each_answer() {
    let item = |kind: &str| {
        format!(
            r#"{{"timestamp":"2026-01-01T00:00:03.000Z","type":"response_item","payload":{{"type":"{kind}","role":"assistant","call_id":"c"}}}}"#
        )
    };
    let end = r#"{"timestamp":"2026-01-01T00:00:04.000Z","type":"event_msg","payload":{"type":"task_complete","turn_id":"u","last_agent_message":"x"}}"#;
    let (call, output, said) = (item("function_call"), item("function_call_output"), item("message"));
    let counts = |lines: &[&str]| {
        let read = read(&lines.join("\n"));
        (
            count(&read, |b| matches!(b, Body::ModelRequest(_))),
            count(&read, |b| matches!(b, Body::ModelRetry(_))),
            count(&read, |b| matches!(b, Body::ModelResponse(_))),
        )
    };
    assert_eq!(counts(&[META, CONTEXT, &call, &output, DIED, &said, DIED, end]), (2, 0, 2));
    // Near miss: a count before anything of an answer is a stream that died.
    assert_eq!(counts(&[META, CONTEXT, DIED, &call, &output, DIED, &said, DIED, end]), (2, 1, 2));
}
