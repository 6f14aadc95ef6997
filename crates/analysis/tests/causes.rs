//! What a failed turn is said to have failed of: the error of the request that ended it, and of no other.

mod told;

use retryscope_analysis::{Explainer, Run, summarize};
use retryscope_taxonomy::{Class, Reason};

use told::runs_of;

fn run_of(records: &[(u32, &str, &str)]) -> Run {
    runs_of(records).remove(0)
}

fn summary(run: &Run) -> String {
    summarize(run, &[], chrono::DateTime::UNIX_EPOCH)
}

const REQUEST: (u32, &str, &str) = (1, "model.request", r#","request_id":"q""#);
const OVERLOADED: (u32, &str, &str) =
    (2, "model.retry", r#","request_id":"q","attempt":1,"status":529,"message":"Overloaded","delay_ms":500"#);
const FAILED: (u32, &str, &str) = (9, "run.finished", r#","outcome":"failed""#);

#[test]
fn an_error_of_no_known_kind_is_not_blamed_on_one_before_it() {
    let ended = |members: &'static str| {
        let run = run_of(&[REQUEST, OVERLOADED, (5, "model.failed", members), FAILED]);
        let cause = run.turns[0].cause.clone().unwrap();
        assert_eq!(cause.request, Some(0));
        (cause.failure.class, cause.failure.reason, cause.failure.message.clone(), summary(&run))
    };
    let (class, _, message, summary) = ended(r#","request_id":"q","message":"the flux was out of phase""#);
    assert_eq!((class, message.as_deref()), (Class::Unknown, Some("the flux was out of phase")));
    assert!(summary.contains("answered 529 and an error of no known kind to both requests"), "{summary}");
    let (class, reason, message, _) = ended(r#","request_id":"q","code":"odd_one""#);
    assert_eq!((class, reason, message), (Class::Unknown, Reason::NoDetail, None));
    // Near miss: what says nothing of its own leaves the word to the one before.
    let (class, _, message, _) = ended(r#","request_id":"q""#);
    assert_eq!((class, message.as_deref()), (Class::Transient, Some("Overloaded")));
}

#[test]
fn an_answer_that_was_cut_at_the_agents_own_limit_is_told_as_that() {
    let cut = r#","request_id":"q","message":"The response exceeded the 9000 output token maximum","code":"max_output_tokens""#;
    let told = |records: &[(u32, &str, &str)]| {
        let run = run_of(records);
        let advice = Explainer::new(&run, &[], chrono::DateTime::UNIX_EPOCH).explain(&run.turns[0]).remedies;
        assert!(advice[0].text.contains("raise the output limit"), "{advice:?}");
        summary(&run)
    };
    let alone = told(&[REQUEST, (5, "model.failed", cut), FAILED]);
    assert!(alone.contains("reached the output limit that was set for the only request"), "{alone}");
    let after = told(&[REQUEST, OVERLOADED, (5, "model.failed", cut), FAILED]);
    assert!(after.contains("answered 529 and an answer cut at its output limit to both requests"), "{after}");
}

#[test]
fn the_cause_and_the_sentence_are_of_one_request() {
    let refused = (
        2,
        "model.attempt",
        r#","request_id":"q","attempt_id":"a","outcome":"failed","status":429,"code":"insufficient_quota","provider":"openai""#,
    );
    let given_up = (3, "model.failed", r#","request_id":"q""#);
    let silent = [
        (
            4,
            "model.attempt",
            r#","request_id":"p","attempt_id":"b","attempt":1,"outcome":"failed","provider":"mistral""#,
        ),
        (
            5,
            "model.attempt",
            r#","request_id":"p","attempt_id":"c","attempt":2,"outcome":"failed","provider":"mistral""#,
        ),
        (6, "model.failed", r#","request_id":"p""#),
    ];
    let run = run_of(&[&[REQUEST, refused, given_up][..], &silent, &[FAILED]].concat());
    assert_eq!(run.turns[0].cause, None);
    assert!(summary(&run).contains("for a reason this log does not give"), "{}", summary(&run));
    assert!(!summary(&run).contains("quota"), "{}", summary(&run));
    // What the end itself says is of the request that ended it.
    let said = (9, "run.finished", r#","outcome":"failed","error":"no route to host""#);
    let run = run_of(&[&[REQUEST, refused, given_up][..], &silent, &[said]].concat());
    let cause = run.turns[0].cause.clone().unwrap();
    assert_eq!((cause.request, cause.candidate.provider.as_deref()), (Some(1), Some("mistral")));
    // Near miss: the one that failed last does speak.
    let run = run_of(&[&silent[..], &[REQUEST, refused, given_up, FAILED]].concat());
    let cause = run.turns[0].cause.clone().unwrap();
    assert_eq!((cause.request, cause.failure.class), (Some(1), Class::Exhausted));
}

const CANCELLED: (u32, &str, &str) = (9, "run.finished", r#","outcome":"cancelled""#);

fn attempt(second: u32, members: &'static str) -> (u32, &'static str, &'static str) {
    (second, "model.attempt", members)
}

fn advice(run: &Run) -> Vec<String> {
    Explainer::new(run, &[], chrono::DateTime::UNIX_EPOCH)
        .explain(&run.turns[0])
        .remedies
        .iter()
        .map(retryscope_analysis::Remedy::told)
        .collect()
}

#[test]
fn what_was_sent_before_a_stop_is_not_only_planned() {
    let long = r#","request_id":"q","attempt":1,"status":529,"message":"Overloaded","delay_ms":30000"#;
    let waiting = run_of(&[REQUEST, retry(2, long), CANCELLED]);
    assert!(summary(&waiting).contains("the next was planned 30 s later"), "{}", summary(&waiting));
    let next = attempt(3, r#","request_id":"q","attempt_id":"b","attempt":2"#);
    let sent = run_of(&[REQUEST, OVERLOADED, next, CANCELLED]);
    assert!(summary(&sent).ends_with("last with 529 overloaded; the next was sent."), "{}", summary(&sent));
}

#[test]
fn a_stopped_run_is_told_what_would_not_have_passed() {
    let gone = r#","request_id":"q","attempt_id":"a","outcome":"failed","status":404,"message":"model: x","provider":"anthropic""#;
    let told = advice(&run_of(&[REQUEST, attempt(2, gone), CANCELLED]));
    assert!(told.iter().any(|text| text.contains("choose a model name")), "{told:?}");
    // Near miss: what passes by itself asks nothing of a person who stopped it.
    let busy = r#","request_id":"q","attempt_id":"a","outcome":"failed","status":529"#;
    assert_eq!(advice(&run_of(&[REQUEST, attempt(2, busy), CANCELLED])), Vec::<String>::new());
}

fn retry(second: u32, members: &'static str) -> (u32, &'static str, &'static str) {
    (second, "model.retry", members)
}

#[test]
fn a_wait_after_the_last_attempt_counts_in_the_sentence_as_in_the_sum() {
    let first = r#","request_id":"q","attempt":1,"status":401,"message":"token expired","delay_ms":1000"#;
    let last = r#","request_id":"q","attempt":2,"status":401,"message":"token expired","delay_ms":3000"#;
    let run = run_of(&[REQUEST, retry(2, first), retry(4, last), FAILED]);
    let told = Explainer::new(&run, &[], chrono::DateTime::UNIX_EPOCH).explain(&run.turns[0]);
    let time = told.time.unwrap_or_default();
    let sum = time.split(" of ").next().unwrap_or_default();
    assert!(told.summary.contains(&format!("({sum} of waiting)")), "{} {time}", told.summary);
}

#[test]
fn a_sum_of_waits_is_whole_only_where_each_is_told() {
    let first = r#","request_id":"q","attempt_id":"a","attempt":1,"outcome":"failed","status":503"#;
    let silent =
        r#","request_id":"q","attempt_id":"b","attempt":2,"kind":"retry","outcome":"failed","status":503"#;
    let second = r#","request_id":"q","attempt":2,"status":503,"delay_ms":700"#;
    let given_up = (8, "model.failed", r#","request_id":"q","status":503"#);
    let told = |records: &[(u32, &str, &str)]| {
        let run = run_of(records);
        Explainer::new(&run, &[], chrono::DateTime::UNIX_EPOCH)
            .explain(&run.turns[0])
            .time
            .unwrap_or_default()
    };
    let partly = told(&[REQUEST, attempt(2, first), attempt(3, silent), retry(4, second), given_up, FAILED]);
    assert!(partly.starts_with("at least 0.70 s"), "{partly}");
    let planned = r#","request_id":"q","attempt":1,"status":503,"delay_ms":500"#;
    let whole = told(&[REQUEST, retry(2, planned), retry(4, second), given_up, FAILED]);
    assert!(!whole.is_empty() && !whole.starts_with("at least"), "{whole}");
}

#[test]
fn the_sentence_names_what_refused() {
    let blocked = r#","request_id":"q","status":403,"message":"<title>Attention Required! | Cloudflare</title> Sorry, you have been blocked""#;
    let run = run_of(&[REQUEST, (5, "model.failed", blocked), FAILED]);
    assert!(summary(&run).contains("A firewall in between refused it"), "{}", summary(&run));
    let key = r#","request_id":"q","status":401,"message":"invalid x-api-key""#;
    let run = run_of(&[REQUEST, (5, "model.failed", key), FAILED]);
    assert!(summary(&run).contains("The login or key was refused"), "{}", summary(&run));
}

#[test]
fn a_conversation_that_could_not_be_made_smaller_is_told_as_that() {
    let long =
        r#","request_id":"q","status":400,"message":"prompt is too long: 210000 tokens > 200000 maximum""#;
    let asked = (4, "model.request", r#","request_id":"c","source":"background","purpose":"compaction""#);
    let failed = (5, "model.failed", r#","request_id":"c","status":529,"message":"Overloaded""#);
    let answered = (5, "model.response", r#","request_id":"c""#);
    let told = |end: (u32, &'static str, &'static str)| {
        let run = run_of(&[REQUEST, (3, "model.failed", long), asked, end, FAILED]);
        (summary(&run), advice(&run))
    };
    let (sentence, advised) = told(failed);
    assert!(sentence.contains("making it smaller failed as well (529 overloaded)"), "{sentence}");
    assert!(advised[0].contains("it failed with 529 overloaded"), "{advised:?}");
    let (sentence, advised) = told(answered);
    assert!(sentence.contains("it can pass only after it was made smaller"), "{sentence}");
    assert!(advised[0].starts_with("make the conversation smaller"), "{advised:?}");
}

#[test]
fn a_used_up_quota_with_a_stated_wait_is_not_called_hopeless() {
    let told = |members: &'static str| {
        let run = run_of(&[REQUEST, (5, "model.failed", members), FAILED]);
        (summary(&run), advice(&run))
    };
    let (sentence, advised) = told(
        r#","request_id":"q","status":429,"code":"insufficient_quota","message":"You exceeded your current quota","retry_after_ms":1500"#,
    );
    assert!(sentence.contains("the provider asked to wait 1.5 s"), "{sentence}");
    assert!(advised[0].starts_with("start again after the wait"), "{advised:?}");
    let (sentence, _) = told(
        r#","request_id":"q","status":429,"code":"insufficient_quota","message":"You exceeded your current quota""#,
    );
    assert!(sentence.contains("waiting a moment cannot help"), "{sentence}");
}

#[test]
fn a_wait_is_called_that_of_each_time_only_where_each_answer_stated_it() {
    let limited = r#","request_id":"q","attempt":1,"status":429,"message":"slow down","delay_ms":500"#;
    let told = |first: &str| {
        let last = r#","request_id":"q","status":429,"message":"slow down","retry_after_ms":350"#;
        summary(&run_of(&[REQUEST, (2, "model.retry", first), (5, "model.failed", last), FAILED]))
    };
    let alike = told(&format!(r#"{limited},"retry_after_ms":350"#));
    assert!(alike.contains("the provider asked to wait 0.35 s each time"), "{alike}");
    let silent = told(limited);
    assert!(silent.contains("the provider last asked to wait 0.35 s."), "{silent}");
}

#[test]
fn another_model_is_no_way_out_of_an_endpoint_that_cannot_be_reached() {
    let with = |agent: &str, message: &str| {
        let who = format!(r#","run_id":"r","agent":"{agent}""#);
        let request = format!(r#"{who},"request_id":"q""#);
        let retry = format!(r#"{who},"request_id":"q","attempt":1,"message":"{message}","delay_ms":500"#);
        let failed = format!(r#"{who},"request_id":"q","message":"{message}""#);
        let ended = format!(r#"{who},"outcome":"failed""#);
        let run = runs_of(&[
            (1, "model.request", &request),
            (2, "model.retry", &retry),
            (5, "model.failed", &failed),
            (9, "run.finished", &ended),
        ])
        .remove(0);
        advice(&run).join("; ")
    };
    assert!(!with("claude-code", "getaddrinfo ENOTFOUND api.example").contains("fallbackModel"));
    assert!(with("claude-code", "Overloaded").contains("fallbackModel"));
    // A chain may lead to another endpoint.
    assert!(with("omp", "getaddrinfo ENOTFOUND api.example").contains("add a chain"));
}

#[test]
fn of_many_candidates_the_first_and_the_last_are_told() {
    let failed = |n: u32| {
        let kind = if n == 1 { "" } else { r#","kind":"fallback""# };
        format!(
            r#","request_id":"q","attempt_id":"a{n}","attempt":{n}{kind},"outcome":"failed","status":404,"model":"m{n}""#
        )
    };
    let told = |n: u32| {
        let members: Vec<String> = (1..=n).map(failed).collect();
        let mut records = vec![REQUEST];
        records.extend(members.iter().zip(2..).map(|(text, at)| (at, "model.attempt", text.as_str())));
        records.extend([(8, "model.failed", r#","request_id":"q""#), FAILED]);
        summary(&run_of(&records))
    };
    let many = told(5);
    assert!(many.contains("then asked 4 others, the last of them m5, which answered 404"), "{many}");
    assert!(!many.contains("m3"), "{many}");
    let few = told(3);
    assert!(few.contains("then asked m2") && few.contains("then asked m3"), "{few}");
}
