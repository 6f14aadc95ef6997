use retryscope_record::{Collected, Statement};

use super::*;

/// Returns text and body of each failure that is said.
fn failures(lines: &[&str]) -> Vec<(Option<String>, Option<String>)> {
    let failure = |(_, item): (_, Statement)| match item {
        Statement::Event(event, raw) => match event.body {
            Body::ModelFailed(failed) => Some((failed.message, raw.and_then(|raw| raw.body))),
            _ => None,
        },
        Statement::Mark { .. } => None,
    };
    read(lines).items.into_iter().filter_map(failure).collect()
}

const ERROR: &str = r#"{"type":"assistant","session_id":"s","uuid":"u","error":"invalid_request","message":{"id":"m","model":"<synthetic>","content":[{"type":"text","text":"It failed"}]}}"#;
const RESULT: &str = r#"{"type":"result","session_id":"s","subtype":"success","is_error":true,"terminal_reason":"prompt_too_long","result":"Too many tokens"}"#;

#[test]
fn the_result_says_more_of_the_final_error() {
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(failures(&[ERROR, RESULT]), [(text("Too many tokens"), text("prompt_too_long"))]);
    // A general word is the name of one kind of failure at the provider, which is not meant here.
    let general = RESULT.replace("prompt_too_long", "api_error");
    assert_eq!(failures(&[ERROR, &general]), [(text("Too many tokens"), None)]);
    assert_eq!(failures(&[ERROR]), [(text("It failed"), None)]);
    let later = RESULT.replace(r#""session_id":"s""#, r#""session_id":"t""#);
    assert_eq!(failures(&[ERROR, &later]), [(text("It failed"), None)]);
    assert!(failures(&[RESULT]).is_empty());
}

/// Returns what lines make: the kinds of events, and how turns end.
fn kinds(lines: &[&str]) -> Vec<String> {
    let name = |item: &Statement| match item {
        Statement::Event(event, _) => Some(event.body.kind().to_owned()),
        Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
        Statement::Mark { .. } => None,
    };
    read(lines).items.iter().filter_map(|(_, item)| name(item)).collect()
}

fn read(lines: &[&str]) -> Collected {
    let mut sink = Collected::default();
    let mut stdout = Stdout::default();
    for (n, line) in lines.iter().enumerate() {
        stdout.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    stdout.end(&mut sink);
    sink
}

#[test]
fn retries_are_shown_by_versions_that_have_lines_for_them() {
    let shown = |lines: &[&str]| {
        let said = read(lines);
        let attempts = |item: &Statement| match item {
            Statement::Mark {
                mark: Mark::Shows { source: Source::Foreground, requests, attempts, .. },
                ..
            } => Some((*requests, *attempts)),
            _ => None,
        };
        said.items.iter().rev().find_map(|(_, item)| attempts(item))
    };
    let of = |version: &str| BEGIN.replace('}', &format!(r#","claude_code_version":"{version}"}}"#));
    assert_eq!(shown(&[&of("2.1.76")]), Some((Shown::All, Shown::None)));
    assert_eq!(shown(&[&of("2.1.77")]), Some((Shown::All, Shown::Some)));
    assert_eq!(shown(&[BEGIN]), Some((Shown::All, Shown::None)));
    assert_eq!(shown(&[BEGIN, RETRY]), Some((Shown::All, Shown::Some)));
    assert_eq!(shown(&[RESULT]), Some((Shown::Some, Shown::None)));
    assert_eq!(shown(&[RESULT, &of("2.2.0")]), Some((Shown::All, Shown::Some)));
}

#[test]
fn a_result_that_names_its_error_is_the_end_of_its_request() {
    let result = |members: &str| {
        format!(r#"{{"type":"result","session_id":"s","is_error":true,"subtype":"success",{members}}}"#)
    };
    let failed = ["model.request", "model.failed", "Failed"];
    assert_eq!(kinds(&[&result(r#""result":"API Error: 500 {}""#)]), failed);
    assert_eq!(kinds(&[&result(r#""result":"Overloaded","api_error_status":529"#)]), failed);
    // Near miss: it may be about anything.
    assert_eq!(kinds(&[&result(r#""result":"It did not work""#)]), ["model.request", "Failed"]);
    let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"x","content":[]}}"#;
    let next = ["model.request", "model.response", "model.request", "model.failed", "Failed"];
    assert_eq!(kinds(&[BEGIN, answer, &result(r#""result":"API Error: 500 {}""#)]), next);
    // Near miss: a line before had said it already, and something stands between.
    let between = r#"{"type":"user","session_id":"s","message":{"role":"user","content":"x"}}"#;
    assert_eq!(kinds(&[BEGIN, ERROR, between, &result(r#""result":"API Error: 500 {}""#)]), failed);
}

#[test]
fn a_process_that_asked_for_nothing_made_no_request() {
    let result = |members: &str| {
        format!(
            r#"{{"type":"result","session_id":"s","is_error":true,"subtype":"error_during_execution",{members},"errors":["No such thing"]}}"#
        )
    };
    assert_eq!(kinds(&[&result(r#""num_turns":0"#)]), ["Failed"]);
    let said = read(&[&result(r#""num_turns":0"#)]);
    let text = said.items.iter().find_map(|(_, item)| match item {
        Statement::Mark { mark: Mark::TurnEnded { message, .. }, .. } => message.clone(),
        _ => None,
    });
    assert_eq!(text.as_deref(), Some("No such thing"));
    assert_eq!(kinds(&[&result(r#""num_turns":1"#)]), ["model.request", "Failed"]);
    assert_eq!(kinds(&[&result(r#""num_turns":0,"duration_api_ms":70"#)]), ["model.request", "Failed"]);
}

#[test]
fn what_a_person_interrupted_was_cancelled() {
    let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"x","content":[]}}"#;
    let by_user = r#"{"type":"user","session_id":"s","message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#;
    let result = |errors: &str| {
        format!(
            r#"{{"type":"result","session_id":"s","subtype":"error_during_execution","is_error":true,"num_turns":1,"errors":[{errors}]}}"#
        )
    };
    let ended = |lines: &[&str]| kinds(lines).pop();
    assert_eq!(ended(&[BEGIN, answer, by_user, &result("")]).as_deref(), Some("Cancelled"));
    assert_eq!(
        ended(&[BEGIN, answer, &result(r#""Error: Request was aborted.""#)]).as_deref(),
        Some("Cancelled")
    );
    // Near misses: another error, the words in another turn, and a turn that ended well all the same.
    assert_eq!(ended(&[BEGIN, answer, &result(r#""Error: no disk""#)]).as_deref(), Some("Failed"));
    let good = r#"{"type":"result","session_id":"s","subtype":"success","is_error":false,"num_turns":1}"#;
    assert_eq!(ended(&[BEGIN, answer, by_user, good]).as_deref(), Some("Succeeded"));
    assert_eq!(
        ended(&[BEGIN, answer, by_user, good, BEGIN, &answer.replace("\"m\"", "\"n\""), &result("")])
            .as_deref(),
        Some("Failed")
    );
}

#[test]
fn another_model_is_a_fallback_of_the_same_request() {
    let fallback = |kind: &str| {
        format!(
            r#"{{"type":"system","subtype":"{kind}","trigger":"t","original_model":"a","fallback_model":"b","session_id":"s"}}"#
        )
    };
    let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"b","content":[]}}"#;
    let told = ["model.request", "model.retry", "model.fallback", "model.response"];
    assert_eq!(kinds(&[BEGIN, RETRY, &fallback("model_fallback"), answer]), told);
    let refused = ["model.request", "model.fallback", "model.response"];
    assert_eq!(kinds(&[BEGIN, &fallback("model_refusal_fallback"), answer]), refused);
    // Which answer was refused is not told.
    let answered = ["model.request", "model.response"];
    assert_eq!(kinds(&[BEGIN, answer, &fallback("model_refusal_fallback")]), answered);
}

#[test]
fn a_limit_that_is_used_up_tells_when_it_resets() {
    let limit = |status: &str| {
        format!(
            r#"{{"type":"rate_limit_event","session_id":"s","rate_limit_info":{{"status":"{status}","resetsAt":1790000000}}}}"#
        )
    };
    let refused = ERROR.replace("invalid_request", "rate_limit");
    let reset = |lines: &[&str]| {
        read(lines).items.iter().find_map(|(_, item)| match item {
            Statement::Event(event, _) => match &event.body {
                Body::ModelFailed(failed) => failed.reset_at.map(|at| at.timestamp()),
                _ => None,
            },
            Statement::Mark { .. } => None,
        })
    };
    assert_eq!(reset(&[BEGIN, &limit("rejected"), &refused]), Some(1_790_000_000));
    assert_eq!(reset(&[BEGIN, &limit("allowed_warning"), &refused]), None);
    assert_eq!(reset(&[BEGIN, &limit("rejected"), ERROR]), None);
}

const BEGIN: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
const RETRY: &str = r#"{"type":"system","subtype":"api_retry","session_id":"s","attempt":1}"#;

/// Returns the turns of session `s` that begin, and its requests.
fn told(lines: &[&str]) -> Vec<String> {
    let mut sink = Collected::default();
    let mut stdout = Stdout::default();
    for (n, line) in lines.iter().enumerate() {
        stdout.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    let name = |(_, item): (_, Statement)| match item {
        Statement::Event(event, _) if &*event.run_id == "s" => match event.body {
            Body::ModelRequest(body) => body.request_id,
            _ => None,
        },
        Statement::Mark { run, mark: Mark::TurnStarted { turn }, .. } if &*run.id == "s" => {
            Some(turn.unwrap_or_else(|| "turn".to_owned()))
        }
        _ => None,
    };
    read(lines).items.into_iter().filter_map(name).collect()
}

#[test]
fn a_session_that_goes_on_later_has_further_turns_and_requests() {
    let other = |line: &str| line.replace(r#""session_id":"s""#, r#""session_id":"t""#);
    let (begin, retry, result) = (other(BEGIN), other(RETRY), other(RESULT));
    let twice = ["turn", "#1", "turn", "#2"];
    assert_eq!(told(&[BEGIN, RETRY, RESULT, BEGIN, RETRY, RESULT]), twice);
    assert_eq!(told(&[BEGIN, RETRY, RESULT, &begin, &retry, &result, BEGIN, RETRY, RESULT]), twice);
    // A process that died has no result.
    assert_eq!(told(&[BEGIN, RETRY, BEGIN, RETRY]), twice);
    // One object a process.
    assert_eq!(told(&[RESULT, RESULT]), twice);
    // Near miss: two sessions that write into one file in turn.
    assert_eq!(told(&[BEGIN, &begin, RETRY, &retry, RETRY, &result, RESULT]), ["turn", "#1"]);
}

#[test]
fn a_result_that_waited_for_subagents_is_no_request() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.332"}"#;
    let answer = |id: &str| {
        format!(
            r#"{{"type":"assistant","session_id":"s","message":{{"id":"{id}","model":"x","content":[]}}}}"#
        )
    };
    let result = |index: u64, is_error: bool| {
        format!(
            r#"{{"type":"result","session_id":"s","is_error":{is_error},"result_index":{index},"num_turns":1,"duration_api_ms":9}}"#
        )
    };
    let (one, two) = (answer("m1"), answer("m2"));
    let both = [init, &one, init, &two, &result(0, false), &result(1, true)];
    let asked = ["model.request", "model.response", "model.request", "model.response"];
    // The second turn ends as its own result says.
    assert_eq!(kinds(&both), [&asked[..], &["Failed"]].concat());
    // Near miss: a process that came to no end, and one that did.
    assert_eq!(kinds(&both[..5]), [&asked[..], &["Succeeded"]].concat());
    assert_eq!(kinds(&[init, &one, &result(0, false), init, &two, &result(1, true)])[2..3], ["Succeeded"]);
}

#[test]
fn a_login_that_is_refused_may_not_be_asked_with_again() {
    let attempts = |status: u16, text: &str| {
        let retry = format!(
            r#"{{"type":"system","subtype":"api_retry","session_id":"s","attempt":1,"max_retries":1,"retry_delay_ms":500,"error_status":{status}}}"#
        );
        let error = ERROR.replace("It failed", text);
        let failed = read(&[&retry, &error]).items.into_iter().find_map(|(_, item)| match item {
            Statement::Event(event, _) => match event.body {
                Body::ModelFailed(failed) => Some(failed.attempts),
                _ => None,
            },
            Statement::Mark { .. } => None,
        });
        failed.unwrap()
    };
    assert_eq!(attempts(401, "The login has expired"), Some(1));
    // Near miss: what was asked again, as the number of retries says.
    assert_eq!(attempts(503, "It failed"), None);
    assert_eq!(attempts(401, "API Error: 529 Overloaded"), None);
}

#[test]
fn what_the_program_itself_said_is_no_request() {
    let said = |members: &str, text: &str| {
        format!(
            r#"{{"type":"assistant","session_id":"s","uuid":"u","message":{{"id":"m","model":"<synthetic>",{members}"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let result =
        |members: &str| format!(r#"{{"type":"result","session_id":"s","subtype":"success",{members}}}"#);
    // What a command gave.
    let command = said(r#""stop_reason":"end_turn","#, "Total cost: 0");
    let none = result(r#""is_error":false,"num_turns":0,"duration_api_ms":0,"result":"Total cost: 0""#);
    assert_eq!(kinds(&[BEGIN, &command, &none]), ["Succeeded"]);
    // There is no login.
    let refused = said(r#""stop_reason":"stop_sequence","#, "Not logged in · Please run /login");
    let failed = result(r#""is_error":true,"num_turns":1,"result":"Not logged in · Please run /login""#);
    assert_eq!(kinds(&[BEGIN, &refused, &failed]), ["Failed"]);
    assert_eq!(kinds(&[&failed]), ["Failed"]);
    // Near miss: the login was refused.
    let asked = said(r#""stop_reason":"stop_sequence","#, "Please run /login · API Error: 401 {}");
    let failed = result(r#""is_error":true,"num_turns":1,"result":"Please run /login · API Error: 401 {}""#);
    assert_eq!(kinds(&[BEGIN, &asked, &failed]), ["model.request", "model.failed", "Failed"]);
}

/// Returns how much of the foreground is shown, each time that is said.
fn shown(lines: &[&str]) -> Vec<Shown> {
    let shown = |(_, item): (_, Statement)| match item {
        Statement::Mark { mark: Mark::Shows { source: Source::Foreground, requests, .. }, .. } => {
            Some(requests)
        }
        _ => None,
    };
    read(lines).items.into_iter().filter_map(shown).collect()
}

#[test]
fn a_turn_that_shows_nothing_before_an_interrupt_may_have_asked() {
    let aborted = r#"{"type":"result","session_id":"s","subtype":"error_during_execution","is_error":true,"num_turns":2,"terminal_reason":"aborted_streaming"}"#;
    assert_eq!(kinds(&[BEGIN, aborted]), ["Cancelled"]);
    assert_eq!(shown(&[BEGIN, aborted]).last(), Some(&Shown::Some));
    // Near miss: a retry shows that it asked.
    assert_eq!(kinds(&[BEGIN, RETRY, aborted]), ["model.request", "model.retry", "Cancelled"]);
    assert_eq!(shown(&[BEGIN, RETRY, aborted]).last(), Some(&Shown::All));
}

#[test]
fn a_request_may_have_been_refused_before_an_automatic_compaction() {
    let compacted = |trigger: &str| {
        format!(
            r#"{{"type":"system","subtype":"compact_boundary","session_id":"s","compact_metadata":{{"trigger":"{trigger}"}}}}"#
        )
    };
    assert_eq!(shown(&[BEGIN, &compacted("auto")]).last(), Some(&Shown::Some));
    assert_eq!(shown(&[BEGIN, &compacted("manual")]).last(), Some(&Shown::All));
}

#[test]
fn the_error_of_a_subagent_is_its_end() {
    let of_agent =
        ERROR.replace(r#""uuid":"u","#, r#""uuid":"u","parent_tool_use_id":"call","agent_id":"a","#);
    assert_eq!(kinds(&[BEGIN, &of_agent]), ["model.request", "model.failed", "Failed"]);
    // Near miss: the conversation itself ends with its result.
    assert_eq!(kinds(&[BEGIN, ERROR]), ["model.request", "model.failed"]);
}

#[test]
fn after_a_fallback_the_rest_of_the_turn_is_asked_of_the_other_model() {
    let fallback = r#"{"type":"system","subtype":"model_fallback","session_id":"s","trigger":"overloaded","original_model":"one","fallback_model":"two"}"#;
    let answer = |id: &str| {
        format!(
            r#"{{"type":"assistant","session_id":"s","message":{{"id":"{id}","model":"two","content":[]}}}}"#
        )
    };
    let asked = |lines: &[&str]| {
        let model = |(_, item): (_, Statement)| match item {
            Statement::Event(event, _) => match event.body {
                Body::ModelRequest(request) => Some(request.candidate.and_then(|candidate| candidate.model)),
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        read(lines).items.into_iter().filter_map(model).collect::<Vec<_>>()
    };
    let two = Some("two".to_owned());
    let lines = [BEGIN, fallback, &answer("1"), RETRY];
    assert_eq!(asked(&lines), [None, two]);
    // The main model is asked again in the next turn.
    assert_eq!(asked(&[&lines[..3], &[RESULT, BEGIN, RETRY]].concat()), [None, None]);
}

#[test]
fn an_error_behind_an_answer_is_of_the_same_request() {
    let answer = |content: &str| {
        format!(
            r#"{{"type":"assistant","session_id":"s","message":{{"id":"m","model":"x","content":[{content}]}}}}"#
        )
    };
    let (text, call) = (answer(r#"{"type":"text","text":"y"}"#), answer(r#"{"type":"tool_use","id":"t"}"#));
    assert_eq!(kinds(&[BEGIN, &text, ERROR])[..3], ["model.request", "model.response", "model.failed"]);
    // Near misses: a tool was called, or another turn began.
    assert_eq!(kinds(&[BEGIN, &text, &call, ERROR])[2..4], ["model.request", "model.failed"]);
    assert_eq!(
        kinds(&[BEGIN, &text, RESULT, BEGIN, ERROR]).iter().filter(|kind| *kind == "model.request").count(),
        2
    );
}

#[test]
fn an_answer_with_nothing_to_see_is_not_shown() {
    let user = |members: &str| {
        format!(r#"{{"type":"user","session_id":"s",{members}"message":{{"role":"user","content":[]}}}}"#)
    };
    let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"x","content":[]}}"#;
    let shown = |lines: &[&str]| {
        let is_some = |(_, item): &(_, Statement)| {
            matches!(item, Statement::Mark { mark: Mark::Shows { because: UNSEEN, .. }, .. })
        };
        !read(lines).items.iter().any(is_some)
    };
    let (result, added) = (user(""), user(r#""isSynthetic":true,"#));
    assert!(!shown(&[BEGIN, answer, &result, &added, answer]));
    assert!(!shown(&[BEGIN, &added, answer]));
    // Near misses: the answer is there, or the person wrote.
    assert!(shown(&[BEGIN, answer, &result, answer, &added]));
    assert!(shown(&[BEGIN, &result, &result, answer]));
}
