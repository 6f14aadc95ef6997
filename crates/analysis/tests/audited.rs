//! Audit rules on cases beside those of `tests/fixtures/rules`: what looks like a fault and is none, and what hides one.

mod told;

use retryscope_analysis::rules::{Asked, Verdict, audit};

use told::runs_of;

/// What a rule says of the records; `None` for nothing.
fn says(rule: &str, records: &[(u32, &str, &str)]) -> Option<Verdict> {
    let findings = audit(&runs_of(records), &Asked::all(None));
    findings.into_iter().find(|finding| finding.rule == rule).map(|finding| finding.verdict)
}

const VIOLATION: Option<Verdict> = Some(Verdict::Violation);

const REQUEST: (u32, &str, &str) = (1, "model.request", r#","request_id":"q""#);
const FAILED: (u32, &str, &str) = (50, "run.finished", r#","outcome":"failed""#);
const SUCCEEDED: (u32, &str, &str) = (50, "run.finished", r#","outcome":"succeeded""#);
const CANCELLED: (u32, &str, &str) = (3, "run.cancelled", r#","by":"person""#);

fn attempt(second: u32, members: &str) -> (u32, &str, &str) {
    (second, "model.attempt", members)
}

#[test]
fn what_was_in_flight_at_a_cancel_may_end_after_it() {
    let ends = attempt(
        4,
        r#","request_id":"q","attempt_id":"a","started_at":"2026-11-29T10:00:02Z","outcome":"cancelled""#,
    );
    assert_eq!(says("RS504", &[REQUEST, CANCELLED, ends]), Some(Verdict::Pass));
    let sent_again = attempt(
        8,
        r#","request_id":"q","attempt_id":"b","started_at":"2026-11-29T10:00:06Z","outcome":"failed""#,
    );
    assert_eq!(says("RS504", &[REQUEST, CANCELLED, ends, sent_again]), VIOLATION);
}

#[test]
fn another_prompt_after_a_cancel_is_no_activity_after_it() {
    let asked = (9, "model.request", r#","request_id":"q2""#);
    let answered = (11, "model.response", r#","request_id":"q2""#);
    let ended = (4, "run.finished", r#","outcome":"cancelled""#);
    assert_eq!(says("RS504", &[REQUEST, CANCELLED, ended, asked, answered, SUCCEEDED]), Some(Verdict::Pass));
    // Nothing tells whether this is another prompt.
    assert_eq!(says("RS504", &[REQUEST, CANCELLED, asked, answered, SUCCEEDED]), Some(Verdict::Unknown));
    let of_turn = |second, kind, members| (second, kind, members);
    let named = [
        of_turn(1, "model.request", r#","turn":"1","request_id":"q""#),
        of_turn(3, "run.cancelled", r#","turn":"1""#),
        of_turn(9, "model.request", r#","turn":"2","request_id":"q2""#),
        of_turn(10, "model.response", r#","turn":"2","request_id":"q2""#),
    ];
    assert_eq!(says("RS504", &named), Some(Verdict::Pass));
    let same = [named[0], named[1], of_turn(9, "model.request", r#","turn":"1","request_id":"q2""#)];
    assert_eq!(says("RS504", &same), VIOLATION);
}

#[test]
fn what_was_denied_was_not_executed() {
    let denied = (
        2,
        "tool.attempt",
        r#","call_id":"c","tool":"mail","attempt":1,"status":"denied","idempotency":"non_idempotent","replay_policy":"ask","approved":false"#,
    );
    let executed = (
        3,
        "tool.attempt",
        r#","call_id":"c","tool":"mail","attempt":2,"status":"succeeded","idempotency":"non_idempotent","replay_policy":"ask","approved":true"#,
    );
    let again = (
        4,
        "tool.attempt",
        r#","call_id":"c","tool":"mail","attempt":3,"status":"succeeded","idempotency":"non_idempotent","replay_policy":"ask","approved":false"#,
    );
    for rule in ["RS501", "RS507"] {
        assert_ne!(says(rule, &[denied, executed, SUCCEEDED]), VIOLATION, "{rule}");
        assert_eq!(says(rule, &[denied, executed, again, SUCCEEDED]), VIOLATION, "{rule}");
    }
    let conditional = |second, members| (second, "tool.attempt", members);
    let first = conditional(
        2,
        r#","call_id":"c","tool":"t","attempt":1,"status":"failed","idempotency":"conditional""#,
    );
    let refused = conditional(
        3,
        r#","call_id":"c","tool":"t","attempt":2,"status":"denied","idempotency":"conditional""#,
    );
    assert_ne!(says("RS506", &[first, refused, FAILED]), VIOLATION);
}

#[test]
fn a_time_out_is_one_whatever_it_is_called() {
    let timed_out = (
        2,
        "tool.attempt",
        r#","call_id":"c","tool":"deploy","attempt":1,"status":"timed_out","effect":"write""#,
    );
    let again = (
        3,
        "tool.attempt",
        r#","call_id":"c","tool":"deploy","attempt":2,"status":"succeeded","effect":"write""#,
    );
    let checked = (
        3,
        "tool.attempt",
        r#","call_id":"c","tool":"deploy","attempt":2,"status":"succeeded","effect":"write","replay_check":{"ok":true}"#,
    );
    assert_eq!(says("RS502", &[timed_out, again, SUCCEEDED]), VIOLATION);
    assert_ne!(says("RS502", &[timed_out, checked, SUCCEEDED]), VIOLATION);
}

#[test]
fn a_budget_of_model_requests_is_not_one_of_tools() {
    let first = (2, "tool.attempt", r#","call_id":"c","tool":"t","attempt":1,"status":"failed""#);
    let again = (4, "tool.attempt", r#","call_id":"c","tool":"t","attempt":2,"status":"succeeded""#);
    let denied = |members| (3, "budget.denied", members);
    assert_eq!(says("RS505", &[first, denied(r#","kind":"model_retry""#), again, SUCCEEDED]), None);
    assert_eq!(says("RS505", &[first, denied(r#","kind":"tool_retry""#), again, SUCCEEDED]), VIOLATION);
}

fn wait(second: u32, members: &str) -> (u32, &str, &str) {
    (second, "model.retry", members)
}

#[test]
fn a_wait_counts_as_far_as_it_was_slept_through() {
    let stated =
        wait(2, r#","request_id":"q","attempt":1,"status":503,"delay_ms":600000,"retry_after_ms":600000"#);
    let given_up =
        (4, "model.failed", r#","request_id":"q","attempts":1,"status":503,"decision":"deadline""#);
    assert_ne!(says("RS202", &[REQUEST, stated, given_up, FAILED]), VIOLATION);
    assert_ne!(says("RS202", &[REQUEST, stated, CANCELLED]), VIOLATION);
    let slept = wait(
        2,
        r#","request_id":"q","attempt":1,"status":503,"delay_ms":300000,"waited_ms":300000,"retry_after_ms":300000"#,
    );
    let then = (40, "model.response", r#","request_id":"q""#);
    assert_eq!(says("RS202", &[REQUEST, slept, then, SUCCEEDED]), VIOLATION);
    // Held up by a person, and far longer than the provider asked for.
    let by_a_person = wait(
        2,
        r#","request_id":"q","attempt":1,"status":503,"delay_ms":300000,"waited_ms":300000,"delay_source":"user","retry_after_ms":5000"#,
    );
    let answered = (40, "model.response", r#","request_id":"q""#);
    for rule in ["RS202", "RS206"] {
        assert_ne!(says(rule, &[REQUEST, by_a_person, answered, SUCCEEDED]), VIOLATION, "{rule}");
    }
}

#[test]
fn waits_for_a_person_show_no_formula() {
    let of = |source: &str| {
        [1, 2, 3].map(|n| format!(r#","request_id":"q","attempt":{n},"status":503,"delay_ms":2000{source}"#))
    };
    let records = |waits: &[String; 3]| {
        let [a, b, c] = waits.each_ref().map(String::as_str);
        says(
            "RS203",
            &[
                REQUEST,
                wait(2, a),
                wait(6, b),
                wait(10, c),
                (20, "model.response", r#","request_id":"q""#),
                SUCCEEDED,
            ],
        )
    };
    assert_eq!(records(&of("")), VIOLATION);
    assert_ne!(records(&of(r#","delay_source":"user""#)), VIOLATION);
}

#[test]
fn another_credential_is_another_account() {
    let limited = wait(
        2,
        r#","request_id":"q","attempt":1,"status":429,"message":"insufficient_quota","delay_ms":10,"retry_after_ms":60000,"changed":["credential"]"#,
    );
    let same = wait(
        2,
        r#","request_id":"q","attempt":1,"status":429,"message":"insufficient_quota","delay_ms":10,"retry_after_ms":60000"#,
    );
    let answered = (3, "model.response", r#","request_id":"q""#);
    for rule in ["RS102", "RS104", "RS201"] {
        assert_eq!(says(rule, &[REQUEST, same, answered, SUCCEEDED]), VIOLATION, "{rule}");
        assert_ne!(says(rule, &[REQUEST, limited, answered, SUCCEEDED]), VIOLATION, "{rule}");
    }
}

#[test]
fn a_person_may_send_again_what_failed_for_good() {
    let refused = |layer| {
        format!(r#","request_id":"q","attempt":1,"status":401,"message":"invalid api key","layer":"{layer}""#)
    };
    let answered = (9, "model.response", r#","request_id":"q""#);
    assert_eq!(says("RS102", &[REQUEST, wait(2, &refused("agent")), answered, SUCCEEDED]), VIOLATION);
    assert_ne!(says("RS102", &[REQUEST, wait(2, &refused("user")), answered, SUCCEEDED]), VIOLATION);
}

#[test]
fn more_was_sent_than_announced_although_only_retries_announce_it() {
    let announced =
        |n: u32| format!(r#","request_id":"q","attempt":{n},"status":503,"delay_ms":900,"max_attempts":2"#);
    let given_up = (30, "model.failed", r#","request_id":"q","attempts":4,"status":503"#);
    let waits = [1, 2, 3].map(announced);
    let [a, b, c] = waits.each_ref().map(String::as_str);
    assert_eq!(says("RS304", &[REQUEST, wait(2, a), wait(6, b), wait(12, c), given_up, FAILED]), VIOLATION);
    // Agents count with or without the first one.
    let fewer = (30, "model.failed", r#","request_id":"q","attempts":3,"status":503"#);
    assert_ne!(says("RS304", &[REQUEST, wait(2, a), wait(6, b), fewer, FAILED]), VIOLATION);
}

#[test]
fn who_sends_has_not_announced_no_attempts() {
    let none = wait(2, r#","request_id":"q","attempt":1,"status":503,"delay_ms":900,"max_attempts":0"#);
    let answered = (9, "model.response", r#","request_id":"q""#);
    assert_eq!(says("RS304", &[REQUEST, none, answered, SUCCEEDED]), None);
}

#[test]
fn a_class_is_a_reason() {
    let given_up = (3, "model.failed", r#","request_id":"q","attempts":1,"class":"auth""#);
    assert_ne!(says("RS701", &[REQUEST, given_up, FAILED]), VIOLATION);
}

#[test]
fn a_fallback_that_was_answered_could_help() {
    let refused = attempt(
        2,
        r#","request_id":"q","attempt_id":"a","outcome":"failed","status":400,"message":"Unsupported parameter: 'temperature'","provider":"p","model":"a""#,
    );
    let next = |outcome: &str| {
        format!(
            r#","request_id":"q","attempt_id":"b","kind":"fallback","outcome":"{outcome}","status":400,"provider":"p","model":"b""#
        )
    };
    assert_eq!(says("RS402", &[REQUEST, refused, attempt(3, &next("failed")), FAILED]), VIOLATION);
    let answered =
        r#","request_id":"q","attempt_id":"b","kind":"fallback","outcome":"ok","provider":"p","model":"b""#;
    assert_ne!(says("RS402", &[REQUEST, refused, attempt(3, answered), SUCCEEDED]), VIOLATION);
}

#[test]
fn a_run_waits_for_its_compaction() {
    let of = |purpose: &str| {
        let asked = format!(r#","request_id":"s","source":"background","purpose":"{purpose}""#);
        let busy = wait(2, r#","request_id":"s","attempt":1,"status":529,"delay_ms":500"#);
        says(
            "RS305",
            &[(1, "model.request", &asked), busy, (5, "model.response", r#","request_id":"s""#), SUCCEEDED],
        )
    };
    assert_eq!(of("title"), VIOLATION);
    assert_ne!(of("compaction"), VIOLATION);
}

#[test]
fn agents_that_met_two_errors_did_not_disagree() {
    let met = |agent: &str, message: &str, is_retried: bool| {
        let who = format!(r#","run_id":"{agent}","agent":"{agent}","request_id":"q","provider":"p""#);
        let failure = format!(r#"{who},"attempt":1,"status":429,"message":"{message}""#);
        let asked = (1, "model.request".to_owned(), who.clone());
        let end = (9, "run.finished".to_owned(), who.clone() + r#","outcome":"failed""#);
        if is_retried {
            let again = (8, "model.failed".to_owned(), failure.clone() + r#","attempts":2"#);
            vec![asked, (2, "model.retry".to_owned(), failure), again, end]
        } else {
            vec![asked, (2, "model.failed".to_owned(), failure + r#","attempts":1"#), end]
        }
    };
    let verdict = |a: Vec<(u32, String, String)>, b: Vec<(u32, String, String)>| {
        let records: Vec<_> =
            a.iter().chain(&b).map(|(s, kind, m)| (*s, kind.as_str(), m.as_str())).collect();
        says("RS108", &records)
    };
    let limit = "Rate limit reached, please slow down";
    let quota = "You exceeded your current quota, please check your plan and billing details";
    assert_eq!(verdict(met("x", limit, true), met("y", limit, false)), VIOLATION);
    assert_ne!(verdict(met("x", limit, true), met("y", quota, false)), VIOLATION);
}

#[test]
fn a_provider_that_answers_so_itself_is_no_gateway() {
    let failed = |provider: &str| {
        format!(
            r#","request_id":"q","attempts":1,"status":500,"message":"insufficient balance (1008)","provider":"{provider}""#
        )
    };
    assert_ne!(says("RS105", &[REQUEST, (2, "model.failed", &failed("minimax")), FAILED]), VIOLATION);
    assert_eq!(says("RS105", &[REQUEST, (2, "model.failed", &failed("openrouter")), FAILED]), VIOLATION);
}

#[test]
fn the_error_of_the_end_is_the_reason() {
    let end = (9, "run.finished", r#","outcome":"failed","error":"the limit of 40 steps was reached""#);
    let answered = (3, "model.response", r#","request_id":"q""#);
    assert_ne!(says("RS701", &[REQUEST, answered, end]), VIOLATION);
    assert_eq!(says("RS701", &[REQUEST, answered, FAILED]), VIOLATION);
}

#[test]
fn a_recorded_policy_that_cannot_be_read_is_no_pass() {
    let began = |policy: &'static str| (0, "run.started", policy);
    let sent = attempt(
        2,
        r#","request_id":"q","attempt_id":"a","outcome":"ok","candidate":{"provider":"openai","model":"m"}"#,
    );
    let known = r#","data_class":"code","candidates":[{"provider":"bedrock","model":"m"}],"policy":{"recipients":{"code":{"to":"allow-list","providers":["bedrock"],"regions":[]}}}"#;
    assert_eq!(says("RS401", &[began(known), REQUEST, sent, SUCCEEDED]), VIOLATION);
    let misspelt = r#","data_class":"code","candidates":[{"provider":"bedrock","model":"m"}],"policy":{"recipient":{"code":{"to":"allow-list","providers":["bedrock"],"regions":[]}}}"#;
    let records = [began(misspelt), REQUEST, sent, SUCCEEDED];
    assert_eq!(says("RS401", &records), Some(Verdict::Unknown));
    let spots = &runs_of(&records)[0].blind_spots;
    assert!(spots.iter().any(|spot| spot.contains("policy") && spot.contains("recipient")), "{spots:?}");
}

#[test]
fn an_error_that_a_retry_passed_is_not_said_to_be_final() {
    let refused = wait(2, r#","request_id":"q","attempt":1,"status":401,"message":"invalid api key""#);
    let message = |end: (u32, &str, &str), finished| {
        let findings = audit(&runs_of(&[REQUEST, refused, end, finished]), &Asked::all(None));
        findings.into_iter().find(|f| f.rule == "RS102").map(|f| f.message).unwrap_or_default()
    };
    let passed = message((9, "model.response", r#","request_id":"q""#), SUCCEEDED);
    assert!(passed.ends_with("was sent again once, and an answer came: the error was not final"), "{passed}");
    let failed =
        message((9, "model.failed", r#","request_id":"q","status":401,"message":"invalid api key""#), FAILED);
    assert!(failed.ends_with("although no retry can pass it"), "{failed}");
}

#[test]
fn what_is_sent_again_on_purpose_was_not_read_as_a_number() {
    let verdict = |agent: &str| {
        let of_agent = |members: &str| format!(r#","run_id":"r","agent":"{agent}"{members}"#);
        let asked = of_agent(r#","request_id":"q""#);
        let refused = of_agent(
            r#","request_id":"q","attempt":1,"status":400,"message":"max_tokens must be at most 1500","delay_ms":1"#,
        );
        let ended = of_agent(r#","outcome":"succeeded""#);
        let records = [
            (1, "model.request", asked.as_str()),
            (2, "model.retry", refused.as_str()),
            (3, "model.response", asked.as_str()),
            (50, "run.finished", ended.as_str()),
        ];
        says("RS104", &records)
    };
    // Claude Code sends a refused request again with less in it; opencode looks for numbers.
    assert_ne!(verdict("claude-code"), VIOLATION);
    assert_eq!(verdict("opencode"), VIOLATION);
}
