//! Runs of several turns: each page and each line of a list tells what is of its turn, and what is of another.

mod told;

use chrono::DateTime;
use retryscope_analysis::{Explainer, Run, in_short, summarize};

use told::runs_of;

type Record<'a> = (u32, &'a str, &'a str);

const IGNORED_WAIT: &[Record<'_>] = &[
    (1, "model.request", r#","turn":"1","request_id":"q""#),
    (
        2,
        "model.retry",
        r#","turn":"1","request_id":"q","attempt":1,"status":429,"delay_ms":1000,"retry_after_ms":9000"#,
    ),
    (3, "model.response", r#","turn":"1","request_id":"q""#),
    (4, "run.finished", r#","turn":"1","outcome":"succeeded""#),
];
const REFUSED: &[Record<'_>] = &[
    (11, "model.request", r#","turn":"2","request_id":"p""#),
    (12, "model.failed", r#","turn":"2","request_id":"p","status":401,"message":"invalid api key""#),
    (13, "run.finished", r#","turn":"2","outcome":"failed""#),
];
const ANSWERED: &[Record<'_>] = &[
    (21, "model.request", r#","turn":"3","request_id":"o""#),
    (22, "model.response", r#","turn":"3","request_id":"o""#),
    (23, "run.finished", r#","turn":"3","outcome":"succeeded""#),
];

fn run_of(turns: &[&[Record<'_>]]) -> Run {
    runs_of(&turns.concat()).remove(0)
}

fn found(run: &Run, turn: usize, rule: &str) -> Option<String> {
    let told = Explainer::new(run, &[], DateTime::UNIX_EPOCH).explain(&run.turns[turn]);
    told.findings.into_iter().find(|finding| finding.rule == rule).map(|finding| finding.message)
}

#[test]
fn a_finding_of_another_turn_is_said_to_be_of_another() {
    let run = run_of(&[IGNORED_WAIT, REFUSED]);
    assert_eq!(run.turns.len(), 2);
    let own = found(&run, 0, "RS201").unwrap();
    assert!(own.starts_with("the provider asked to wait"), "{own}");
    let other = found(&run, 1, "RS201").unwrap();
    assert_eq!(other, format!("in another turn: {own}"));
    // Near miss: what a turn shows as well is told as its own.
    let both = run_of(&[IGNORED_WAIT, REFUSED, REFUSED]);
    let named = found(&both, 1, "RS704").unwrap();
    assert!(!named.starts_with("in another turn"), "{named}");
}

#[test]
fn a_failed_turn_of_a_run_that_went_on_says_so() {
    let says = |turns: &[&[Record<'_>]]| summarize(&run_of(turns), &[], DateTime::UNIX_EPOCH);
    let on = says(&[REFUSED, ANSWERED]);
    assert!(on.ends_with("A later turn of the run succeeded."), "{on}");
    let end = says(&[IGNORED_WAIT, REFUSED]);
    assert!(!end.contains("later turn"), "{end}");
}

#[test]
fn a_list_names_the_retries_of_all_turns_of_a_run_that_ended_well() {
    let short = |turns: &[&[Record<'_>]]| in_short(&run_of(turns));
    assert_eq!(short(&[IGNORED_WAIT, ANSWERED]), "1 retry in other turns");
    assert_eq!(short(&[IGNORED_WAIT]), "recovered, after 1 retry");
    assert_eq!(short(&[ANSWERED]), "");
}

#[test]
fn what_was_lost_is_told_as_far_as_the_log_tells_it() {
    let request = |id: &str, second: u32, members: &str| {
        let of = |kind: &'static str, more: &str| (kind, format!(r#","turn":"1","request_id":"{id}"{more}"#));
        [
            (second, of("model.request", "")),
            (second + 1, of("model.retry", &format!(r#","attempt":1,"status":503{members}"#))),
            (second + 5, of("model.response", "")),
        ]
    };
    let says = |members: &str| {
        let told = [request("a", 1, members), request("b", 10, members)].concat();
        let mut records: Vec<Record<'_>> =
            told.iter().map(|(second, (kind, members))| (*second, *kind, members.as_str())).collect();
        records.push((20, "run.finished", r#","turn":"1","outcome":"succeeded""#));
        summarize(&run_of(&[&records]), &[], DateTime::UNIX_EPOCH)
    };
    let told = says(r#","delay_ms":4000"#);
    assert!(told.contains("needed 2 retries in all (10 s lost)"), "{told}");
    let untold = says("");
    assert!(!untold.contains("(0.00 s lost)"), "{untold}");
}
