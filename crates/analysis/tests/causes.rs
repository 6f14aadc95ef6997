//! What a failed turn is said to have failed of: the error of the request that ended it, and of no other.

mod told;

use retryscope_analysis::{Run, explain, summarize};
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
        let advice = explain(&run, &run.turns[0], &[], chrono::DateTime::UNIX_EPOCH).remedies;
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
