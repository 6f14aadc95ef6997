use retryscope_record::{Collected, Statement, TurnOutcome};

use super::*;

fn read(profile: Profile, lines: &[&str]) -> Collected {
    let mut sink = Collected::default();
    let mut session = Session::new(profile, Path::new("s.jsonl"));
    for (n, line) in lines.iter().enumerate() {
        session.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    session.end(&mut sink);
    sink
}

fn kinds(collected: &Collected) -> Vec<String> {
    let name = |item: &Statement| match item {
        Statement::Event(event, _) => Some(event.body.kind().to_owned()),
        Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
        Statement::Mark { .. } => None,
    };
    collected.items.iter().filter_map(|(_, item)| name(item)).collect()
}

const HEADER: &str = r#"{"type":"session","id":"s","timestamp":"2026-01-02T00:00:00.000Z"}"#;
const USER: &str = r#"{"type":"message","id":"u","timestamp":"2026-01-02T00:00:01.000Z","message":{"role":"user","timestamp":1767312001000}}"#;

fn assistant(ms: u64, rest: &str) -> String {
    format!(
        r#"{{"type":"message","id":"a{ms}","timestamp":"2026-01-02T00:00:02.000Z","message":{{"role":"assistant","provider":"p","model":"m","timestamp":{ms},{rest}}}}}"#
    )
}

#[test]
fn failed_entries_and_the_good_one_are_one_request() {
    let failed =
        assistant(1_767_312_001_100, r#""stopReason":"error","errorMessage":"503: {}","durationMs":5"#);
    let edit = r#"{"type":"context_edit","id":"c","timestamp":"2026-01-02T00:00:02.000Z"}"#;
    let good = assistant(1_767_312_003_100, r#""stopReason":"stop","durationMs":5"#);
    let said = read(Profile::Pi, &[HEADER, USER, &failed, edit, &good, &good]);
    assert_eq!(
        kinds(&said),
        ["model.request", "model.attempt", "model.attempt", "model.response", "Succeeded"]
    );
}

#[test]
fn a_result_that_stands_in_for_a_tool_that_did_not_run_is_no_step() {
    let broken = assistant(1_767_312_001_100, r#""stopReason":"error","errorMessage":"stream closed""#);
    let good = assistant(1_767_312_003_100, r#""stopReason":"stop""#);
    let requests = |details: &str| {
        let result = format!(
            r#"{{"type":"message","id":"t","timestamp":"2026-01-02T00:00:02.500Z","message":{{"role":"toolResult","toolCallId":"c","details":{details},"timestamp":1767312002500}}}}"#
        );
        let said = read(Profile::Omp, &[HEADER, USER, &broken, &result, &good]);
        kinds(&said).iter().filter(|kind| *kind == "model.request").count()
    };
    assert_eq!(requests(r#"{"__synthetic":true,"source":"assistant_stop_error","executed":false}"#), 1);
    assert_eq!(requests(r#"{"__synthetic":true,"source":"assistant_stop_length","executed":false}"#), 2);
    assert_eq!(requests("{}"), 2);
}

#[test]
fn a_prompt_hours_later_does_not_make_the_failure_longer() {
    let failed = assistant(1_767_312_001_100, r#""stopReason":"error","errorMessage":"503: {}""#);
    let later = r#"{"type":"message","id":"v","timestamp":"2026-01-02T04:00:00.000Z","message":{"role":"user","timestamp":1767326400000}}"#;
    let said = read(Profile::OpenClaw, &[HEADER, USER, &failed, later]);
    let ended: Vec<_> = said
        .items
        .iter()
        .filter_map(|(_, item)| match item {
            Statement::Mark { at, mark: Mark::TurnEnded { .. }, .. } => at.map(|at| at.to_rfc3339()),
            _ => None,
        })
        .collect();
    assert_eq!(ended, ["2026-01-02T00:00:02+00:00"]);
}

#[test]
fn what_is_asked_after_a_compaction_is_another_request() {
    let error = r#""stopReason":"error","errorMessage":"400: {}","durationMs":5"#;
    let failed = assistant(1_767_312_001_100, error);
    let edit = r#"{"type":"context_edit","id":"c","timestamp":"2026-01-02T00:00:02.000Z"}"#;
    let compaction = r#"{"type":"compaction","id":"d","timestamp":"2026-01-02T00:00:02.500Z"}"#;
    let good = assistant(1_767_312_003_100, r#""stopReason":"stop","durationMs":5"#);
    for profile in [Profile::Pi, Profile::Omp] {
        let said = kinds(&read(profile, &[HEADER, USER, &failed, edit, compaction, &good]));
        let again = ["model.request", "model.attempt", "model.response", "Succeeded"];
        assert_eq!(said, [&["model.request", "model.attempt", "model.failed"][..], &again].concat());
        // One before the request changes nothing, and one beside an answer ends nothing.
        let said = kinds(&read(profile, &[HEADER, USER, compaction, &good, compaction]));
        assert_eq!(said, again);
    }
}

#[test]
fn a_planned_retry_that_another_prompt_came_before_was_called_off() {
    let edit = r#"{"type":"context_edit","id":"c","timestamp":"2026-01-02T00:00:02.000Z"}"#;
    let later = r#"{"type":"message","id":"v","timestamp":"2026-01-02T00:09:00.000Z","message":{"role":"user","timestamp":1767312540000}}"#;
    let ended = |status: u16, lines: &[&str]| {
        let error = format!(r#""stopReason":"error","errorMessage":"{status}: {{}}","durationMs":5"#);
        let failed = assistant(1_767_312_001_100, &error);
        kinds(&read(Profile::Pi, &[&[HEADER, USER, &failed], lines].concat())).split_off(2)
    };
    assert_eq!(ended(503, &[edit, later]), ["Cancelled"]);
    // Nothing had been planned, or what failed does not heal by itself.
    assert_eq!(ended(503, &[later]), ["model.failed", "Failed"]);
    assert_eq!(ended(400, &[edit, later]), ["model.failed", "Failed"]);
}

#[test]
fn an_announced_repeat_that_never_came_leaves_the_turn_open() {
    let failed =
        assistant(1_767_312_001_100, r#""stopReason":"error","errorMessage":"503: {}","durationMs":5"#);
    let edit = r#"{"type":"context_edit","id":"c","timestamp":"2026-01-02T00:00:02.000Z"}"#;
    assert_eq!(kinds(&read(Profile::Pi, &[HEADER, USER, &failed, edit])), ["model.request", "model.attempt"]);
    let refused = assistant(1_767_312_001_100, r#""stopReason":"error","errorMessage":"401: {}""#);
    let said = read(Profile::Omp, &[HEADER, USER, &refused]);
    assert_eq!(kinds(&said), ["model.request", "model.attempt", "model.failed", "Failed"]);
}

#[test]
fn an_error_that_no_version_repeats_ends_the_turn() {
    let ended = |profile: Profile, text: &str, more: &[&str]| {
        let error = format!(r#""stopReason":"error","errorMessage":"{text}""#);
        let failed = assistant(1_767_312_001_100, &error);
        kinds(&read(profile, &[&[HEADER, USER, &failed], more].concat())).split_off(2)
    };
    assert_eq!(ended(Profile::Pi, "key has a wrong form", &[]), ["model.failed", "Failed"]);
    // Another attempt may follow.
    assert!(ended(Profile::Pi, "connection error", &[]).is_empty());
    // The program around says that the prompt failed, whatever the loop inside would do.
    let prompt_error = r#"{"type":"custom","customType":"openclaw:prompt-error","id":"e","parentId":"a1767312001100","timestamp":"2026-01-02T00:00:03.000Z","data":{"error":"connection error"}}"#;
    assert!(ended(Profile::OpenClaw, "connection error", &[]).is_empty());
    assert_eq!(ended(Profile::OpenClaw, "connection error", &[prompt_error]), ["model.failed", "Failed"]);
    let silent =
        kinds(&read(Profile::OpenClaw, &[HEADER, USER, &prompt_error.replace("a1767312001100", "u")]));
    assert_eq!(silent, ["Failed"]);
    // Near miss: the host aborted what had been sent since; the next line says so of that.
    let aborted = prompt_error.replace("connection error", "aborted");
    assert!(ended(Profile::OpenClaw, "connection error", &[&aborted]).is_empty());
    // A connection that was aborted is a failure.
    let broken = prompt_error.replace("connection error", "Connection aborted");
    assert_eq!(ended(Profile::OpenClaw, "connection error", &[&broken]), ["model.failed", "Failed"]);
    // Near miss: what was answered did not fail.
    let good = assistant(1_767_312_001_100, r#""stopReason":"stop""#);
    let said = kinds(&read(Profile::OpenClaw, &[HEADER, USER, &good, prompt_error]));
    assert_eq!(said.last().map(String::as_str), Some("Succeeded"), "{said:?}");
}

#[test]
fn only_what_a_version_writes_proves_it() {
    let versions = |lines: &[&str]| {
        let said = read(Profile::Pi, &[&[HEADER, USER], lines].concat());
        let told = |item: &Statement| match item {
            Statement::Mark { mark: Mark::Facts(facts), .. } => facts.policy_version.clone(),
            _ => None,
        };
        said.items.iter().filter_map(|(_, item)| told(item)).collect::<Vec<_>>()
    };
    let failed = assistant(1_767_312_001_100, r#""stopReason":"error","errorMessage":"503 busy""#);
    let timed = assistant(1_767_312_001_100, r#""stopReason":"stop","durationMs":5"#);
    let edit = r#"{"type":"context_edit","id":"c","timestamp":"2026-01-02T00:00:02.000Z"}"#;
    assert!(versions(&[&failed]).is_empty());
    assert_eq!(versions(&[&failed, edit]), ["0.76"]);
    assert_eq!(versions(&[&timed]), ["0.76"]);
}

#[test]
fn a_socket_that_did_not_open_is_an_attempt_of_its_own() {
    let note = r#""diagnostics":[{"type":"provider_transport_failure","timestamp":1767312001900,"error":{"message":"no answer to the upgrade"},"details":{"fallbackTransport":"sse","phase":"before_message_stream_start"}}]"#;
    let attempts = |lines: &[&str]| {
        let said = read(Profile::Pi, &[&[HEADER, USER], lines].concat());
        let attempt = |item: &Statement| match item {
            Statement::Event(event, _) => match &event.body {
                retryscope_events::Body::ModelAttempt(a) => Some((
                    a.candidate.clone()?.transport.unwrap_or_default(),
                    a.kind.map_or("", retryscope_events::AttemptKind::as_str),
                    a.outcome.map_or("", AttemptOutcome::as_str),
                )),
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        said.items.iter().filter_map(|(_, item)| attempt(item)).collect::<Vec<_>>()
    };
    let good = assistant(1_767_312_001_100, &format!(r#""stopReason":"stop",{note}"#));
    let told = |transport: &str, kind, outcome| (transport.to_owned(), kind, outcome);
    let both = [told("websocket", "original", "failed"), told("sse", "fallback", "ok")];
    assert_eq!(attempts(&[&good]), both);
    // The next attempt of the session loop is a retry, whatever it begins with.
    let failed = assistant(1_767_312_001_000, r#""stopReason":"error","errorMessage":"503 busy""#);
    let [_, answered] = both;
    let again = [told("", "", "failed"), told("websocket", "retry", "failed"), answered];
    assert_eq!(attempts(&[&failed, &good]), again);
    let plain = assistant(1_767_312_001_100, r#""stopReason":"stop""#);
    assert_eq!(attempts(&[&plain]), [told("", "", "ok")]);
}

#[test]
fn entries_older_than_a_fork_are_left_to_the_parent() {
    let header = r#"{"type":"session","id":"f","timestamp":"2026-01-03T00:00:00.000Z","parentSession":"/x/t_01a22912-4770-700c-a082-83d371585022.jsonl"}"#;
    let good = assistant(1_767_312_003_100, r#""stopReason":"stop""#);
    let said = read(Profile::Pi, &[header, USER, &good]);
    assert!(kinds(&said).is_empty());
    let forked = said.items.iter().find_map(|(_, item)| match item {
        Statement::Mark { mark: Mark::Facts(facts), .. } => facts.forked_from.clone(),
        _ => None,
    });
    assert_eq!(forked.as_deref(), Some("01a22912-4770-700c-a082-83d371585022"));
    let told = said.items.iter().filter_map(|(_, item)| match item {
        Statement::Mark { mark: Mark::BlindSpot(text), .. } => Some(text.as_str()),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    assert!(told.len() == 1 && told[0].contains("before 2026-01-03T00:00:00Z are copies"), "{told:?}");
}

#[test]
fn an_attempt_on_an_earlier_branch_belongs_to_its_turn() {
    let entry = |id: &str, parent: &str, ms: u64, rest: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":"{parent}","timestamp":"2026-01-02T00:00:02.000Z","message":{{"timestamp":{ms},{rest}}}}}"#
        )
    };
    let user = r#""role":"user""#;
    let failed =
        r#""role":"assistant","provider":"p","model":"m","stopReason":"error","errorMessage":"terminated""#;
    let good = r#""role":"assistant","provider":"p","model":"m","stopReason":"stop""#;
    let lines = [
        entry("u", "r", 1, user),
        entry("a", "u", 2, failed),
        entry("v", "a", 3, user),
        entry("b", "v", 4, failed),
        entry("c", "a", 5, failed),
        entry("d", "b", 6, good),
        // Above it stands what this file does not hold.
        entry("e", "x", 7, failed),
    ];
    let lines: Vec<&str> = std::iter::once(HEADER).chain(lines.iter().map(String::as_str)).collect();
    let said = read(Profile::OpenClaw, &lines);
    let attempts = said.items.iter().filter_map(|(_, item)| match item {
        Statement::Event(event, _) => match &event.body {
            retryscope_events::Body::ModelAttempt(attempt) => {
                Some((event.turn.as_deref()?, attempt.request_id.as_deref()?))
            }
            _ => None,
        },
        Statement::Mark { .. } => None,
    });
    let attempts: Vec<_> = attempts.collect();
    assert_eq!(attempts, [("u", "1.1"), ("v", "3.1"), ("u", "1.1"), ("v", "3.1"), ("v", "3.2")]);
    let of_first = said.items.iter().filter(|(_, item)| match item {
        Statement::Mark { mark: Mark::TurnEnded { turn, outcome, .. }, .. } => {
            turn.as_deref() == Some("u") && *outcome == TurnOutcome::Failed
        }
        _ => false,
    });
    assert_eq!(of_first.count(), 2, "given up, and once more after the late attempt");
}

#[test]
fn a_signal_ends_the_turn_as_cancelled() {
    let failed = assistant(1_767_312_001_100, r#""stopReason":"error","errorStatus":503"#);
    let exit = r#"{"type":"custom","customType":"session_exit","data":{"reason":"sigint","kind":"signal"}}"#;
    let said = read(Profile::Omp, &[HEADER, USER, &failed, exit]);
    let ends: Vec<_> =
        kinds(&said).into_iter().filter(|k| k == &format!("{:?}", TurnOutcome::Cancelled)).collect();
    assert_eq!(ends.len(), 1);
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let said = read(
        Profile::Pi,
        &[
            "\u{0}",
            "[]",
            "{\"type\":5}",
            "{\"type\":\"session\"}",
            HEADER,
            "{\"type\":\"message\",\"message\":[]}",
            "{",
        ],
    );
    assert_eq!(said.gaps.len(), 4, "{:?}", said.gaps);
}

#[test]
fn what_was_cancelled_before_it_could_leave_is_no_request() {
    let tool = assistant(1_767_312_001_100, r#""stopReason":"toolUse""#);
    let result = r#"{"type":"message","id":"t","timestamp":"2026-01-02T00:00:01.998Z","message":{"role":"toolResult","toolCallId":"c","isError":true,"timestamp":1767312001998}}"#;
    let requests = |profile: Profile, started: u64, content: &str| {
        let aborted = assistant(
            started,
            &format!(
                r#""stopReason":"aborted","content":{content},"errorMessage":"This operation was aborted""#
            ),
        );
        let said = kinds(&read(profile, &[HEADER, USER, &tool, result, &aborted]));
        assert_eq!(said.last().map(String::as_str), Some("Cancelled"));
        said.iter().filter(|kind| *kind == "model.request").count()
    };
    assert_eq!(requests(Profile::Pi, 1_767_312_001_999, "[]"), 1);
    // Near misses: it had the time to leave, or something came back, or another program wrote it.
    assert_eq!(requests(Profile::Pi, 1_767_312_001_900, "[]"), 2);
    assert_eq!(requests(Profile::Pi, 1_767_312_001_999, r#"[{"type":"text"}]"#), 2);
    assert_eq!(requests(Profile::Omp, 1_767_312_001_999, "[]"), 2);
}
