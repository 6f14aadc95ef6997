use retryscope_record::{Collected, Statement};

use super::*;

fn read(lines: &[&str]) -> Vec<(Box<Event>, Option<RawFailure>)> {
    let mut sink = Collected::default();
    let mut transcript = Transcript::default();
    for (n, line) in lines.iter().enumerate() {
        transcript.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    let event = |(_, item): (_, Statement)| match item {
        Statement::Event(event, raw) => Some((event, raw)),
        Statement::Mark { .. } => None,
    };
    sink.items.into_iter().filter_map(event).collect()
}

const PROMPT: &str = r#"{"type":"user","sessionId":"s","uuid":"u","message":{"role":"user","content":"x"}}"#;

/// Returns code and text of the retry that an error is told as.
fn retry(error: &str) -> (Option<String>, Option<String>) {
    let line = format!(
        r#"{{"type":"system","subtype":"api_error","sessionId":"s","uuid":"e","retryAttempt":1,"error":{error}}}"#
    );
    let mut retries = read(&[PROMPT, &line]).into_iter().filter_map(|(event, _)| match event.body {
        Body::ModelRetry(retry) => Some((retry.code, retry.message)),
        _ => None,
    });
    retries.next_back().unwrap()
}

#[test]
fn the_code_and_the_text_of_what_broke_below_are_kept() {
    let texts = |code: &str, message: &str| (Some(code.to_owned()), Some(message.to_owned()));
    assert_eq!(
        retry(r#"{"message":"It broke","connection":{"code":"Cut","message":"No end came"}}"#),
        texts("Cut", "It broke: Cut: No end came")
    );
    // A text that begins with the code says it once.
    assert_eq!(
        retry(r#"{"message":"It broke","connection":{"code":"EX","message":"EX: gone"}}"#),
        texts("EX", "It broke: EX: gone")
    );
    assert_eq!(retry(r#"{"message":"It broke","connection":{"code":"EX"}}"#), texts("EX", "It broke: EX"));
    assert_eq!(retry(r#"{"message":"It broke","cause":{"code":"EX"}}"#), texts("EX", "It broke: EX"));
    assert_eq!(retry(r#"{"message":"It broke"}"#), (None, Some("It broke".to_owned())));
}

#[test]
fn what_the_provider_sent_stands_beside_the_final_text() {
    let line = |details: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s","uuid":"a","isApiErrorMessage":true,{details}"message":{{"model":"<synthetic>","content":[{{"type":"text","text":"Refused"}}]}}}}"#
        )
    };
    let body = |details: &str| {
        let said = read(&[PROMPT, &line(details)]);
        let failed = said.into_iter().find(|(event, _)| matches!(event.body, Body::ModelFailed(_)));
        failed.unwrap().1.and_then(|raw| raw.body)
    };
    assert_eq!(
        body(r#""errorDetails":"400 {\"type\":\"error\"}","#).as_deref(),
        Some(r#"400 {"type":"error"}"#)
    );
    assert_eq!(body(""), None);
}

fn request(id: &str, base: &str) -> String {
    format!(r#"{{"type":"api-request","sessionId":"s","id":"{id}",{base}"keep":0,"tail":["x"]}}"#)
}

fn error(number: u64) -> String {
    format!(
        r#"{{"type":"system","subtype":"api_error","sessionId":"s","uuid":"e{number}","timestamp":"2026-01-02T03:04:05.000Z","retryAttempt":{number},"error":{{"status":529}}}}"#
    )
}

/// Returns kind and attempt of what is said.
fn kinds(lines: &[&str]) -> Vec<String> {
    let name = |(event, _): (Box<Event>, Option<RawFailure>)| match &event.body {
        Body::ModelAttempt(attempt) => attempt.attempt_id.clone().unwrap_or_default(),
        body => body.kind().to_owned(),
    };
    read(lines).into_iter().map(name).collect()
}

#[test]
fn a_request_line_that_stands_twice_is_one_request() {
    let first = request("a", "");
    let again = request("b", r#""base":"a","#);
    let lines = [PROMPT, &first, &first, &again, &again];
    assert_eq!(kinds(&lines), ["model.request", "a", "b"]);
}

#[test]
fn an_error_after_a_damaged_line_is_of_the_request_in_it() {
    let (first, third) = (request("a", ""), request("c", r#""base":"b","#));
    let (one, two) = (error(1), error(2));
    let damaged = [PROMPT, &first, &one, r#"{"type":"api-req"#, &two, &third];
    assert_eq!(kinds(&damaged), ["model.request", "a", "model.retry", "#lost1", "model.retry", "c"]);
    // The same error again, or one without a line that could have held a request, is no other request.
    let repeated = [PROMPT, &first, &one, r#"{"type":"api-req"#, &one];
    assert!(!kinds(&repeated).contains(&"#lost1".to_owned()));
    assert!(!kinds(&[PROMPT, &first, &one, &two]).contains(&"#lost1".to_owned()));
}

fn prompt(uuid: &str, members: &str, content: &str) -> String {
    format!(
        r#"{{"type":"user","sessionId":"s","uuid":"{uuid}",{members}"message":{{"role":"user","content":{content}}}}}"#
    )
}

fn answer(reference: &str) -> String {
    format!(
        r#"{{"type":"assistant","sessionId":"s","uuid":"a{reference}","requestRef":"{reference}","message":{{"id":"m{reference}","model":"x","stop_reason":"end_turn","content":[]}}}}"#
    )
}

/// Returns kind, turn and request of what is said, and the turns that begin.
fn told(lines: &[&str]) -> Vec<String> {
    let mut sink = Collected::default();
    let mut transcript = Transcript::default();
    for (n, line) in lines.iter().enumerate() {
        transcript.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    let name = |(_, item): (_, Statement)| match item {
        Statement::Event(event, _) => {
            let (kind, id) = match &event.body {
                Body::ModelRequest(body) => ("request", &body.request_id),
                Body::ModelAttempt(body) => ("attempt", &body.request_id),
                Body::ModelRetry(body) => ("retry", &body.request_id),
                Body::ModelResponse(body) => ("response", &body.request_id),
                Body::ModelFailed(body) => ("failed", &body.request_id),
                _ => return None,
            };
            Some(format!("{kind} {} {}", event.turn.unwrap_or_default(), id.clone().unwrap_or_default()))
        }
        Statement::Mark { mark: Mark::TurnStarted { turn }, .. } => {
            Some(format!("turn {}", turn.unwrap_or_default()))
        }
        Statement::Mark { .. } => None,
    };
    sink.items.into_iter().filter_map(name).collect()
}

const INTERRUPTED: &str = r#"[{"type":"text","text":"[Request interrupted by user]"}]"#;

#[test]
fn a_request_that_was_cancelled_or_died_is_none_of_the_next_prompt() {
    let (one, two) = (prompt("u1", "", r#""x""#), prompt("u2", "", r#""y""#));
    let cancel = prompt("c", "", INTERRUPTED);
    let expected = ["turn u1", "request u1 q", "attempt u1 q", "turn u2", "request u2 r", "attempt u2 r"];
    // With a base that did not grow, too: what was cancelled may be taken out of the conversation.
    let (next, fresh) = (request("r", r#""base":"q","#), request("r", ""));
    for next in [&next, &fresh] {
        assert_eq!(told(&[&one, &request("q", ""), &cancel, &two, next]), expected);
        assert_eq!(told(&[&one, &request("q", ""), &two, next]), expected);
    }
    // Near miss: in one turn, after the conversation was shortened, a request that is given up for another one has failed.
    let larger = request("r", r#""base":"q","#).replace(r#"["x"]"#, r#"["x","y"]"#);
    let shortened = r#"{"type":"system","subtype":"compact_boundary","sessionId":"s","uuid":"b"}"#;
    assert_eq!(
        told(&[&one, &request("q", ""), shortened, &larger])[2..],
        ["attempt u1 q", "failed u1 q", "request u1 r", "attempt u1 r"]
    );
}

#[test]
fn what_is_sent_while_nothing_answered_repeats_the_open_request() {
    let one = prompt("u1", "", r#""x""#);
    let (first, fresh) = (request("q", ""), request("r", ""));
    let larger = request("r", r#""base":"q","#).replace(r#"["x"]"#, r#"["x","y"]"#);
    // Tools written out, or a message left out for another model: no base then, or another number of messages.
    for next in [&larger, &fresh] {
        let said = told(&[&one, &first, next]);
        assert_eq!(said.last().unwrap(), "attempt u1 q");
        assert_eq!(said.iter().filter(|said| said.starts_with("request")).count(), 1);
    }
    // Near miss: after an answer, after what the program itself added, or where an answer may have been lost.
    let added = prompt("m", r#""isMeta":true,"#, r#""Go on""#);
    for between in [&answer("q"), &added, r#"{"type":"assist"#] {
        assert_eq!(told(&[&one, &first, between, &larger]).last().unwrap(), "attempt u1 r");
    }
}

#[test]
fn a_prompt_of_the_program_asks_anew_though_the_conversation_did_not_grow() {
    let one = prompt("u1", r#""promptId":"p1","#, r#""x""#);
    let failed = r#"{"type":"assistant","sessionId":"s","uuid":"e","isApiErrorMessage":true,"message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error: 529"}]}}"#;
    let notice = prompt("u2", r#""promptId":"p2","#, r#""<task-notification>x</task-notification>""#);
    let said = told(&[&one, &request("q", ""), failed, &notice, &request("r", r#""base":"q","#)]);
    assert_eq!(said[4..], ["turn p2", "request p2 r", "attempt p2 r"]);
}

#[test]
fn a_final_error_that_tells_the_one_before_once_more_is_no_attempt() {
    let refused = r#"{"type":"system","subtype":"api_error","sessionId":"s","uuid":"e","retryAttempt":2,"error":{"status":401,"requestId":"r2"}}"#;
    let last = |id: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s","uuid":"f","requestId":"{id}","isApiErrorMessage":true,"message":{{"model":"<synthetic>","content":[{{"type":"text","text":"Refused"}}]}}}}"#
        )
    };
    let attempts = |id: &str| {
        let said = read(&[PROMPT, refused, &last(id)]);
        said.into_iter().find_map(|(event, _)| match event.body {
            Body::ModelFailed(failed) => Some(failed.attempts),
            _ => None,
        })
    };
    assert_eq!(attempts("r2"), Some(Some(2)));
    assert_eq!(attempts("r3"), Some(None));
}

#[test]
fn an_answer_that_was_cut_off_by_the_person_is_none() {
    let one = prompt("u1", "", r#""x""#);
    let part = answer("q").replace(
        r#""stop_reason":"end_turn","content":[]"#,
        r#""stop_reason":null,"content":[{"type":"text","text":"A"}]"#,
    );
    let cancel = prompt("c", "", INTERRUPTED);
    let said = told(&[&one, &request("q", ""), &part, &cancel]);
    assert_eq!(said, ["turn u1", "request u1 q", "attempt u1 q"]);
}

#[test]
fn an_older_version_that_goes_on_with_a_session_has_no_request_lines() {
    let of = |line: String, version: &str| line.replacen('{', &format!(r#"{{"version":"{version}","#), 1);
    let newer = [of(prompt("u1", "", r#""x""#), "2"), of(request("q", ""), "2"), of(answer("q"), "2")];
    let older = [of(prompt("u2", "", r#""y""#), "1"), of(answer("none"), "1")];
    let lines: Vec<&str> = newer.iter().chain(&older).map(String::as_str).collect();
    assert_eq!(told(&lines)[4..], ["turn u2", "request u2 #1", "response u2 #1"]);
    // Near miss: the same version writes one for each request, so this answer has been told.
    let same = older.map(|line| line.replace(r#""version":"1""#, r#""version":"2""#));
    let lines: Vec<&str> = newer.iter().chain(&same).map(String::as_str).collect();
    assert!(!told(&lines).contains(&"request u2 #1".to_owned()));
}

#[test]
fn a_command_is_a_prompt_if_a_request_follows() {
    let one = prompt("u1", r#""promptId":"p1","#, r#""x""#);
    let command = prompt("u2", "", r#""<command-name>/one</command-name>""#);
    let output = prompt("u3", "", r#""<local-command-stdout>Done</local-command-stdout>""#);
    let bash = prompt("u4", "", r#"[{"type":"text","text":"<bash-input>ls</bash-input>"}]"#);
    let before = [&*one, &request("q", ""), &answer("q")];
    let after = |lines: &[&str]| told(&[&before, lines].concat())[4..].to_vec();
    assert!(after(&[&command, &output, &bash]).is_empty());
    assert_eq!(after(&[&command, &request("r", "")]), ["turn u2", "request u2 r", "attempt u2 r"]);
    // What has no id where prompts have one is none either.
    let unnamed = prompt("u5", "", r#""y""#);
    assert!(after(&[&unnamed]).is_empty());
    assert_eq!(after(&[&unnamed, &request("r", "")]), ["turn u5", "request u5 r", "attempt u5 r"]);
    // Near miss: a person's own words begin a turn at once.
    let own = prompt("u6", r#""promptId":"p2","#, r#""<b>y</b>""#);
    assert_eq!(after(&[&command, &output, &own]), ["turn p2"]);
}

fn read_with(lines: &[&[u8]], take: fn(&mut Transcript, Place, &[u8], &mut Collected)) -> Collected {
    let mut sink = Collected::default();
    let mut transcript = Transcript::default();
    for (n, line) in (1..).zip(lines) {
        take(&mut transcript, Place::Line(n), line, &mut sink);
    }
    sink
}

/// Every transcript of the fixtures.
fn transcripts() -> Vec<Vec<u8>> {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/claude-code"));
    let mut folders = vec![root.to_path_buf()];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "jsonl")
                && path.components().any(|part| part.as_os_str() == "projects")
            {
                texts.push(std::fs::read(path).unwrap());
            }
        }
    }
    assert!(texts.len() > 20, "{}", texts.len());
    texts
}

#[test]
fn what_is_left_out_says_nothing() {
    let mut left_out = 0;
    for text in transcripts() {
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        left_out += lines.iter().filter(|line| !lines::matters(line)).count();
        let all = read_with(&lines, |transcript, place, line, sink| transcript.record(place, line, sink));
        let chosen = read_with(&lines, |transcript, place, line, sink| transcript.line(place, line, sink));
        assert_eq!(chosen.items, all.items);
        assert_eq!(chosen.gaps, all.gaps);
    }
    assert!(left_out > 50, "{left_out}");
}

#[test]
fn a_result_of_a_tool_is_left_out_only_where_it_can_say_nothing_else() {
    let result = r#"{"parentUuid":"p","isSidechain":false,"type":"user","message":{"role":"user","content":[{"tool_use_id":"t","type":"tool_result","content":"a \"type\":\"user\" b"}]},"uuid":"u","sessionId":"s","toolUseResult":{"stdout":""}}"#;
    assert!(!lines::matters(result.as_bytes()));
    let first = result
        .replace(r#""tool_use_id":"t","type":"tool_result""#, r#""type":"tool_result","tool_use_id":"t""#);
    assert!(!lines::matters(first.as_bytes()));
    for (what, with) in [
        (r#""tool_use_id":"t","type":"tool_result","#, r#""type":"text","text":"#),
        ("a \\\"", "[Request interrupted by user for tool use]\\\""),
        // The end of one record, and another one.
        (r#"\"type"#, r#"{"parentUuid":"q","type":"assistant"#),
        (r#""toolUseResult":{"stdout":""}}"#, r#""toolUseResult":{"stdout":"#),
        // The type of something else.
        (r#""isSidechain":false,"#, r#""isSidechain":false,"data":{"#),
        (r#""isSidechain":false,"#, r#""isSidechain":false,"data":{"a":1},"#),
    ] {
        let other = result.replace(what, with);
        assert_ne!(other, result);
        assert!(lines::matters(other.as_bytes()), "{other}");
    }
}

#[test]
fn another_record_is_left_out_unless_it_is_broken() {
    for other in [
        r#"{"type":"progress","data":{"message":{"type":"assistant"}},"sessionId":"s"}"#,
        r#"{"type":"of-tomorrow","sessionId":"s"}"#,
        r#"{"parentUuid":"p","attachment":{"type":"user","content":"x"},"type":"attachment","sessionId":"s"}"#,
        r#"{"messageId":"m","type":"file-history-snapshot","snapshot":{},"isSnapshotUpdate":true}"#,
    ] {
        assert!(!lines::matters(other.as_bytes()), "{other}");
        assert!(lines::matters(&other.as_bytes()[..other.len() - 1]), "{other}");
        let with_next = format!(r#"{}{{"parentUuid":"q","type":"user"}}"#, other.trim_end_matches('}'));
        assert!(lines::matters(with_next.as_bytes()), "{with_next}");
    }
    for ours in [
        r#"{"type":"api-request","id":"r"}"#,
        r#"{"type":"cost-state"}"#,
        r#"{"parentUuid":"p","message":{"id":"m"},"type":"assistant"}"#,
        r#"{"parentUuid":"p","error":{"type":"progress"},"type":"system"}"#,
        r#"{"uuid":"u","sessionId":"s"}"#,
        "",
        "x",
    ] {
        assert!(lines::matters(ours.as_bytes()), "{ours}");
    }
}

/// Returns an error that came so many seconds after the minute and hangs below a record.
fn error_at(uuid: &str, parent: &str, second: u32) -> String {
    format!(
        r#"{{"type":"system","subtype":"api_error","sessionId":"s","uuid":"{uuid}","parentUuid":"{parent}","timestamp":"2026-01-02T03:04:{second:02}.000Z","retryAttempt":1,"error":{{"status":529}}}}"#
    )
}

fn at(line: &str, parent: &str, second: u32) -> String {
    let members = format!(r#"{{"parentUuid":"{parent}","timestamp":"2026-01-02T03:04:{second:02}.000Z","#);
    line.replacen('{', &members, 1)
}

#[test]
fn an_error_above_the_first_prompt_is_of_its_request() {
    let (one, two) = (at(&prompt("u1", "", r#""x""#), "", 1), at(&prompt("u2", "", r#""y""#), "a1", 8));
    let answers = [at(&answer("1"), "e1", 3), at(&answer("2"), "u2", 9)];
    let expected = ["turn u1", "request u1 #1", "retry u1 #1", "response u1 #1"];
    let early = error_at("e1", "u1", 2);
    assert_eq!(told(&[&early, &one, &answers[0], &two, &answers[1]])[..4], expected);
    // What the program adds in the person's name begins no turn.
    let aside = at(&prompt("m", r#""isMeta":true,"#, r#""<local-command-caveat>""#), "", 1);
    assert_eq!(told(&[&early, &aside, &one, &answers[0]]), expected);
    // Near misses: the prompt came later, or there is none.
    let before = error_at("e1", "u0", 0);
    assert_eq!(told(&[&before, &one])[..2], ["request  #1", "retry  #1"]);
    assert_eq!(told(&[&early, &answers[0]]), ["request  #1", "retry  #1", "response  #1"]);
}

#[test]
fn an_error_that_is_written_after_the_answer_is_of_the_same_request() {
    let one = at(&prompt("u1", "", r#""x""#), "", 1);
    let answered = at(&answer("1"), "u1", 5);
    let late = [error_at("e1", "u1", 2), error_at("e2", "e1", 3)];
    let said = told(&[&one, &answered, &late[0], &late[1]]);
    assert_eq!(said[1..], ["request u1 #1", "response u1 #1", "retry u1 #1", "retry u1 #1"]);
    let failed = r#"{"type":"assistant","sessionId":"s","uuid":"f","isApiErrorMessage":true,"message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error: 529"}]}}"#;
    let failed = at(failed, "u1", 5);
    let said = told(&[&one, &failed, &late[0], &late[1]]);
    assert_eq!(said[1..], ["request u1 #1", "failed u1 #1", "retry u1 #1", "retry u1 #1"]);
    // Of several requests it is the first that ended after it.
    let next = at(&answer("2"), "a1", 9);
    let said = told(&[&one, &answered, &next, &late[0], &error_at("e3", "e1", 7)]);
    assert_eq!(said[5..], ["retry u1 #1", "retry u1 #2"]);
    // Near miss: it came later than the end.
    let other = error_at("e1", "u1", 6);
    assert_eq!(told(&[&one, &answered, &other])[3..], ["request u1 #2", "retry u1 #2"]);
}

#[test]
fn without_a_login_nothing_is_asked() {
    let refused = |text: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s","uuid":"f","isApiErrorMessage":true,"message":{{"model":"<synthetic>","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let taken_back = |lines: &[&str]| {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let said = read_with(&lines, |transcript, place, line, sink| transcript.line(place, line, sink));
        said.items.iter().any(|(_, item)| matches!(item, Statement::Mark { mark: Mark::Copied, .. }))
    };
    let none = refused("Not logged in · Please run /login");
    assert!(!kinds(&[PROMPT, &none]).contains(&"model.request".to_owned()));
    // With request lines, the line of the request was written before.
    assert!(taken_back(&[PROMPT, &request("q", ""), &none]));
    assert!(!kinds(&[PROMPT, &request("q", ""), &none]).contains(&"model.failed".to_owned()));
    // Near miss: the login was refused.
    let asked = refused("Please run /login · API Error: 401 {}");
    assert!(!taken_back(&[PROMPT, &request("q", ""), &asked]));
    assert_eq!(kinds(&[PROMPT, &asked]), ["model.request", "model.failed"]);
}

#[test]
fn an_answer_to_a_prompt_of_another_session_was_copied() {
    let in_session = |line: &str, session: &str| {
        line.replace(r#""sessionId":"s""#, &format!(r#""sessionId":"{session}""#))
    };
    let prompt = |uuid: &str, session: &str| in_session(&prompt(uuid, "", r#""x""#), session);
    let answer = |id: &str, session: &str| in_session(&answer(id), session);
    // A fork of earlier versions: the copied prompt names the session that it is of, the copied answer does not.
    let lines = [prompt("u1", "old"), answer("1", "s"), prompt("u2", "s"), answer("2", "s")];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(kinds(&lines), ["model.request", "model.response"]);
    // Near miss: two sessions in one file, each with its own answers.
    let lines = [prompt("u1", "old"), answer("1", "old"), prompt("u2", "s"), answer("2", "s")];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(kinds(&lines).len(), 4);
}

#[test]
fn what_is_older_than_the_process_of_its_file_was_copied() {
    let begun = |second: u32| {
        let line = r#"{"type":"queue-operation","operation":"enqueue","sessionId":"s"}"#;
        at(line, "", second)
    };
    let (old, answered) = (at(&prompt("u1", "", r#""x""#), "", 1), at(&answer("1"), "u1", 2));
    let (new, again) = (at(&prompt("u2", "", r#""y""#), "a1", 6), at(&answer("2"), "u2", 7));
    assert_eq!(told(&[&begun(5), &old, &answered, &new, &again]), told(&[&new, &again]));
    // Near misses: a process that goes on with its own file, and another file behind this one.
    assert_eq!(told(&[&begun(0), &old, &answered, &begun(5), &new, &again]).len(), 6);
    let other = |line: &str| line.replace(r#""sessionId":"s""#, r#""sessionId":"t""#);
    assert_eq!(told(&[&begun(5), &new, &again, &other(&old), &other(&answered)]).len(), 6);
}

#[test]
fn an_error_behind_an_answer_is_of_the_same_request() {
    let answer = |content: &str| {
        format!(
            r#"{{"type":"assistant","sessionId":"s","uuid":"a","message":{{"id":"m","model":"x","stop_reason":"end_turn","content":[{content}]}}}}"#
        )
    };
    let (text, call) = (answer(r#"{"type":"text","text":"y"}"#), answer(r#"{"type":"tool_use","id":"t"}"#));
    let broken = r#"{"type":"assistant","sessionId":"s","uuid":"f","isApiErrorMessage":true,"message":{"model":"<synthetic>","content":[{"type":"text","text":"It broke off"}]}}"#;
    assert_eq!(kinds(&[PROMPT, &text, broken]), ["model.request", "model.response", "model.failed"]);
    // Near misses: a tool was called, or something was said, in between.
    assert_eq!(kinds(&[PROMPT, &call, broken]).len(), 4);
    let said = prompt("m", r#""isMeta":true,"#, r#""Go on""#);
    assert_eq!(kinds(&[PROMPT, &text, &said, broken]).len(), 4);
}

#[test]
fn what_is_asked_after_an_empty_answer_repeats_nothing() {
    let asked = |id: &str, base: &str| request(id, &format!(r#""base":"{base}","#));
    let said = prompt("m", r#""isMeta":true,"#, r#""Say something""#);
    let again = [&asked("q2", "q1"), &said];
    let lines = |answer: &str| kinds(&[PROMPT, &request("q1", ""), answer, again[1], again[0]]);
    let count = |kinds: Vec<String>| kinds.iter().filter(|kind| *kind == "model.request").count();
    assert_eq!(count(lines(&answer("q1"))), 2);
    // Near misses: the answer was cut off by its limit, or stopped for another model to give it.
    for stop in ["max_tokens", "refusal"] {
        assert_eq!(count(lines(&answer("q1").replace("end_turn", stop))), 1);
    }
}

#[test]
fn a_tool_may_give_the_words_of_an_interruption() {
    let cancels = |content: &str| {
        let line = format!(
            r#"{{"type":"user","sessionId":"s","uuid":"i","message":{{"role":"user","content":{content}}}}}"#
        );
        let mut sink = Collected::default();
        let mut transcript = Transcript::default();
        for line in [PROMPT, &line] {
            transcript.line(Place::Whole, line.as_bytes(), &mut sink);
        }
        let ends = |item: &Statement| {
            matches!(
                item,
                Statement::Mark { mark: Mark::TurnEnded { outcome: TurnOutcome::Cancelled, .. }, .. }
            )
        };
        sink.items.iter().any(|(_, item)| ends(item))
    };
    let words = "[Request interrupted by user for tool use] was what the log said";
    let text = format!(r#"{{"type":"text","text":"{words}"}}"#);
    assert!(cancels(&format!("\"{words}\"")));
    assert!(cancels(&format!("[{text}]")));
    assert!(cancels(&format!(r#"[{{"type":"tool_result","tool_use_id":"t","content":"x"}},{text}]"#)));
    assert!(!cancels(&format!(r#"[{{"type":"tool_result","tool_use_id":"t","content":[{text}]}}]"#)));
    assert!(!cancels(&format!(r#"[{{"type":"text","text":"see: {words}"}}]"#)));
}

#[test]
fn sessions_in_one_stream_are_told_as_they_are_in_files_of_their_own() {
    let of = |session: &str, with_lines: bool| -> Vec<String> {
        let line = |kind: &str, more: &str| format!(r#"{{"type":"{kind}","sessionId":"{session}",{more}}}"#);
        let request =
            line("api-request", r#""id":"q","querySource":"sdk","tail":["x"],"params":{"model":"m"}"#);
        let error =
            line("system", r#""subtype":"api_error","uuid":"e","retryAttempt":1,"error":{"status":500}"#);
        let answer = r#""uuid":"a","message":{"id":"i","model":"m","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}"#;
        let mut lines = vec![line("user", r#""uuid":"p","message":{"role":"user","content":"x"}"#)];
        lines.extend(with_lines.then_some(request));
        lines.extend([error, line("assistant", answer)]);
        lines.iter().map(|line| line.replace("\"uuid\":\"", &format!("\"uuid\":\"{session}"))).collect()
    };
    let told = |lines: &[String]| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut told: Vec<String> = read(&lines)
            .into_iter()
            .map(|(event, _)| format!("{} {:?} {}", event.run_id, event.turn, event.body.kind()))
            .collect();
        told.sort();
        told
    };
    for (first, second) in [(true, false), (false, true), (true, true)] {
        let (a, b) = (of("a", first), of("b", second));
        let mut apart = [told(&a), told(&b)].concat();
        apart.sort();
        assert_eq!(told(&[&a[..], &b].concat()), apart);
        let mixed: Vec<String> = (0..4).flat_map(|n| [a.get(n), b.get(n)]).flatten().cloned().collect();
        assert_eq!(told(&mixed), apart);
    }
}

#[test]
fn a_side_call_is_none_of_the_conversation() {
    let one = prompt("u1", "", r#""x""#);
    let side =
        |id: &str, more: &str| request(id, &format!(r#"{more}"querySource":"generate_session_title","#));
    let (first, again) = (request("q", ""), request("r", r#""base":"q","#));
    let expected = [
        "turn u1",
        "request u1 q",
        "attempt u1 q",
        "request u1 t",
        "attempt u1 t",
        "attempt u1 t",
        "attempt u1 q",
    ];
    assert_eq!(told(&[&one, &first, &side("t", ""), &side("v", r#""base":"t","#), &again]), expected);
}

#[test]
fn what_stands_beside_the_conversation_does_not_part_a_request_from_its_repeat() {
    let one = prompt("u1", "", r#""x""#);
    let command = prompt("c", "", r#""<command-name>/status</command-name>""#);
    let with_digest =
        |id: &str, more: &str, digest: &str| request(id, &format!(r#"{more}"requestDigest":"{digest}","#));
    let first = with_digest("q", "", "d");
    let after = |more: &str, digest: &str| told(&[&one, &first, &command, &with_digest("r", more, digest)]);
    let base = r#""base":"q","#;
    assert_eq!(after(base, "d"), ["turn u1", "request u1 q", "attempt u1 q", "attempt u1 q"]);
    // Near misses: another body, or one that repeats nothing that is known: the command may have asked for it.
    for other in [after(base, "e"), after("", "d")] {
        assert_eq!(other.last().map(String::as_str), Some("attempt c r"), "{other:?}");
    }
}
