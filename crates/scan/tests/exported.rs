//! Telemetry as exporters send it: again, late, in pieces, and some of it only. What it tells must not depend on that.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;
use std::slice::from_ref;

use retryscope_analysis::{Bound, Run, RunOutcome};
use retryscope_scan::Scan;
use serde_json::{Value, json};

fn run_of(files: &[&[Value]]) -> Run {
    let root = tempfile::tempdir().unwrap();
    for (n, exports) in files.iter().enumerate() {
        let lines: Vec<String> = exports.iter().map(Value::to_string).collect();
        fs::write(root.path().join(format!("{n}.jsonl")), lines.join("\n") + "\n").unwrap();
    }
    let mut runs = Scan::of_roots(&[root.path().to_path_buf()]).runs("2026-12-24T00:00:00Z".parse().unwrap());
    assert_eq!(runs.len(), 1, "{runs:#?}");
    runs.remove(0)
}

/// Logical and upstream requests, retries.
fn counts(run: &Run) -> [Bound; 3] {
    let counts = &run.counts;
    [&counts.logical_requests, &counts.upstream_requests, &counts.retries].map(|count| count.bound)
}

fn at_least(least: [u64; 3]) -> [Bound; 3] {
    least.map(Bound::at_least)
}

/// Nanoseconds since the epoch, so many ms after some time.
fn nanos(ms: u64) -> String {
    ((1_767_323_040_000 + ms) * 1_000_000).to_string()
}

fn attributes(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect()
}

fn record(ms: u64, body: &str, pairs: &[(&str, &str)]) -> Value {
    json!({"observedTimeUnixNano": nanos(ms), "body": {"stringValue": body}, "attributes": attributes(pairs)})
}

fn export(program: &str, records: &[Value]) -> Value {
    json!({"resourceLogs": [{
        "resource": {"attributes": attributes(&[("service.name", program), ("opencode.run", "00aa11bb")])},
        "scopeLogs": [{"scope": {"name": "x"}, "logRecords": records}],
    }]})
}

mod codex {
    use super::*;

    fn said(ms: u64, name: &str, more: &[(&str, &str)]) -> Value {
        let of = [("event.name", name), ("conversation.id", "01900000-0000-7000-8000-000000000001")];
        record(ms, "", &[&of, more].concat())
    }

    fn sent(ms: u64, status: &str, attempt: &str) -> Value {
        said(ms, "codex.api_request", &[("http.response.status_code", status), ("attempt", attempt)])
    }

    fn records() -> Vec<Value> {
        vec![
            said(0, "codex.conversation_starts", &[("app.version", "0.171.0")]),
            said(1, "codex.user_prompt", &[]),
            sent(100, "500", "0"),
            sent(400, "500", "1"),
            sent(900, "200", "2"),
            said(950, "codex.sse_event", &[("input_token_count", "7")]),
        ]
    }

    fn one_each(records: &[Value]) -> Vec<Value> {
        records.iter().map(|record| export("codex_exec", from_ref(record))).collect()
    }

    #[test]
    fn what_is_sent_again_counts_once() {
        let all = records();
        let whole = export("codex_exec", &all);
        let wanted = at_least([1, 3, 2]);
        assert_eq!(counts(&run_of(&[from_ref(&whole)])), wanted);
        assert_eq!(counts(&run_of(&[&[whole.clone(), whole.clone()]])), wanted);
        let tail = export("codex_exec", &all[4..]);
        assert_eq!(counts(&run_of(&[&[whole.clone(), tail.clone()]])), wanted);
        let each_twice: Vec<Value> = one_each(&all).into_iter().flat_map(|one| [one.clone(), one]).collect();
        assert_eq!(counts(&run_of(&[&each_twice])), wanted);
        // In another file, in other pieces.
        assert_eq!(counts(&run_of(&[from_ref(&whole), &one_each(&all)])), wanted);
        assert_eq!(counts(&run_of(&[&[whole], &[tail]])), wanted);
    }

    #[test]
    fn a_request_at_another_time_is_another_one() {
        let mut all = records();
        all.insert(4, sent(500, "500", "1"));
        assert_eq!(counts(&run_of(&[&[export("codex_exec", &all)]])), at_least([1, 4, 3]));
    }

    #[test]
    fn the_order_of_times_counts_not_that_of_arrival() {
        let wanted = counts(&run_of(&[&one_each(&records())]));
        let mut exports = one_each(&records());
        exports.reverse();
        assert_eq!(counts(&run_of(&[&exports])), wanted);
        exports.swap(1, 4);
        let run = run_of(&[&exports]);
        assert_eq!(counts(&run), wanted);
        assert_eq!(run.turns.len(), 1);
        let mut within = records();
        within.reverse();
        assert_eq!(counts(&run_of(&[&[export("codex_exec", &within)]])), wanted);
    }
}

mod opencode {
    use super::*;

    fn exports() -> Vec<Value> {
        let of = [("session.id", "ses_1"), ("providerID", "p"), ("modelID", "m"), ("small", "false")];
        let said = |ms, body, more: &[(&str, &str)]| record(ms, body, &[&of, more].concat());
        let records = [
            said(0, "created", &[("id", "ses_1")]),
            said(1, "loop", &[("step", "0")]),
            said(2, "process", &[("messageID", "msg_1")]),
            said(3, "stream", &[]),
            said(9, "stream error", &[("error.error.message", "Overloaded")]),
            said(2_100, "stream", &[]),
            said(2_200, "loop", &[("step", "1")]),
            said(2_201, "exiting loop", &[]),
        ];
        records.chunks(3).map(|some| export("opencode", some)).collect()
    }

    #[test]
    fn what_is_sent_again_counts_once() {
        let once = counts(&run_of(&[&exports()]));
        assert_eq!(once[1].min, 2);
        let twice: Vec<Value> = exports().into_iter().flat_map(|one| [one.clone(), one]).collect();
        assert_eq!(counts(&run_of(&[&twice])), once);
        assert_eq!(counts(&run_of(&[&exports(), &twice])), once);
    }

    #[test]
    fn records_in_a_wrong_order_tell_nothing() {
        let mut exports = exports();
        exports.swap(1, 2);
        let run = run_of(&[&exports]);
        assert_eq!(counts(&run), at_least([0, 0, 0]));
        assert!(run.blind_spots.iter().any(|text| text.contains("too late")), "{:?}", run.blind_spots);
    }
}

mod claude_code {
    use super::*;

    fn said(ms: u64, name: &str, more: &[(&str, &str)]) -> Value {
        let of = [("event.name", name), ("session.id", "s"), ("prompt.id", "p"), ("query_source", "sdk")];
        record(ms, "", &[&of, more].concat())
    }

    fn logged(records: &[Value]) -> Value {
        export("claude-code", records)
    }

    fn prompt() -> Value {
        said(0, "user_prompt", &[])
    }

    fn span(id: &str, ms: &[u64]) -> Value {
        let of = [("session.id", "s"), ("prompt.id", "p"), ("success", "true"), ("model", "m")];
        let sent: Vec<Value> = ms
            .iter()
            .map(|ms| json!({"name": "gen_ai.request.attempt", "timeUnixNano": nanos(*ms)}))
            .collect();
        json!({"resourceSpans": [{
            "resource": {"attributes": attributes(&[("service.name", "claude-code")])},
            "scopeSpans": [{"scope": {"name": "x"}, "spans": [{
                "traceId": "0a", "spanId": id, "name": "claude_code.llm_request",
                "startTimeUnixNano": nanos(1), "endTimeUnixNano": nanos(900),
                "attributes": attributes(&of), "events": sent,
            }]}],
        }]})
    }

    #[test]
    fn log_records_alone_tell_what_was_sent_at_least() {
        let answer = |ms, model| said(ms, "api_request", &[("model", model)]);
        let run = run_of(&[&[logged(&[prompt(), answer(500, "m"), answer(900, "m")])]]);
        assert_eq!(counts(&run), at_least([2, 2, 0]));
        let failure = [("model", "m"), ("status_code", "503"), ("attempt", "3"), ("error", "Overloaded")];
        let failed = said(900, "api_error", &failure);
        let over = said(901, "api_retries_exhausted", &[("total_attempts", "3"), ("model", "m")]);
        let run = run_of(&[&[logged(&[prompt(), failed.clone(), over.clone()])]]);
        assert_eq!(counts(&run), at_least([1, 3, 2]));
        assert_eq!(run.outcome, RunOutcome::Failed);
        assert_eq!(counts(&run_of(&[&[logged(&[prompt()]), logged(&[over])]])), at_least([1, 3, 2]));
        // What is asked after it is the same request: once more, or of another model.
        let again = run_of(&[&[logged(&[prompt(), failed.clone(), answer(950, "m")])]]);
        assert_eq!(counts(&again), at_least([1, 3, 2]));
        let fallback = run_of(&[&[logged(&[prompt(), failed, answer(950, "n")])]]);
        assert_eq!(counts(&fallback), at_least([1, 4, 2]));
        assert_eq!(fallback.counts.fallbacks.bound, Bound::at_least(1));
    }

    #[test]
    fn requests_of_others_are_not_those_of_the_prompt() {
        let of = |query| {
            let pairs = [("event.name", "api_request"), ("session.id", "s"), ("prompt.id", "p")];
            record(500, "", &[&pairs[..], &[("query_source", query)]].concat())
        };
        let run = run_of(&[&[logged(&[prompt(), of("agent:builtin:x"), of("no one knows"), of("compact")])]]);
        assert_eq!(counts(&run), at_least([0, 0, 0]));
        assert_eq!(run.background_counts.upstream_requests.bound, Bound::at_least(1));
    }

    #[test]
    fn records_and_spans_of_one_request_count_once() {
        let logs = logged(&[prompt(), said(901, "api_request", &[("model", "m")])]);
        let spans = span("01", &[1, 400, 800]);
        let wanted = at_least([1, 3, 2]);
        for files in [
            &[&[logs.clone(), spans.clone()][..]][..],
            &[&[spans.clone(), logs.clone()]],
            &[from_ref(&logs), from_ref(&spans)],
            &[&[logs.clone(), spans.clone(), spans.clone(), logs.clone()]],
        ] {
            assert_eq!(counts(&run_of(files)), wanted);
        }
    }
}
