use retryscope_record::{Collected, Statement};

use super::*;

fn read(lines: &[&str]) -> Vec<Statement> {
    let mut sink = Collected::default();
    let mut log = DebugLog::new(Some("s".to_owned()));
    for (n, text) in lines.iter().enumerate() {
        let line = format!("2026-01-02T03:04:{n:02}.000Z [DEBUG] {text}");
        log.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
    }
    sink.items.into_iter().map(|(_, statement)| statement).collect()
}

/// Returns how much of the requests is shown, each time that is said.
fn shown(lines: &[&str]) -> Vec<Shown> {
    let shown = |statement| match statement {
        Statement::Mark { mark: Mark::Shows { source: Source::Foreground, requests, .. }, .. } => {
            Some(requests)
        }
        _ => None,
    };
    read(lines).into_iter().filter_map(shown).collect()
}

/// Returns the logical request of each attempt, and the status of each failure.
fn told(lines: &[&str]) -> Vec<String> {
    let told = |statement| match statement {
        Statement::Event(event, _) => match event.body {
            Body::ModelAttempt(attempt) if attempt.outcome.is_none() => attempt.request_id,
            Body::ModelRetry(retry) => retry.status.map(|status| status.to_string()),
            _ => None,
        },
        Statement::Mark { .. } => None,
    };
    read(lines).into_iter().filter_map(told).collect()
}

const SENT: &str = "[API REQUEST] /v1/messages source=sdk";
const OF_SUBAGENT: &str = "[API REQUEST] /v1/messages source=agent:builtin:x";
const STARTED: &str = "[Stall] tool_dispatch_start tool=Agent toolUseId=t";

#[test]
fn a_log_without_its_beginning_does_not_show_all_requests() {
    let (first, second) = ("API error (attempt 1/11): 500 500 x", "API error (attempt 2/11): 500 500 x");
    let (start, end) = ("[engine] turn 1 start", "[engine] turn 1 end (turns=1 stop=end_turn)");
    assert_eq!(shown(&[SENT, second]), [Shown::All, Shown::Some]);
    assert_eq!(shown(&[SENT, end]), [Shown::All, Shown::Some]);
    // What follows is whole again.
    assert_eq!(shown(&[SENT, end, start, SENT, end]), [Shown::All, Shown::Some, Shown::All]);
    // Near miss: repeats that the loop does not count.
    let silent = "Error streaming, falling back";
    assert_eq!(shown(&[start, SENT, first, SENT, second, SENT, end]), [Shown::All; 2]);
    assert_eq!(shown(&[start, SENT, silent, SENT, first, SENT, end]), [Shown::All; 2]);
}

#[test]
fn a_failure_whose_text_has_several_lines_is_one() {
    let page = r#""API error (attempt 1/11): 502 502 <html>\r\n<b>Bad \"gateway\"</b>\n</html>""#;
    assert_eq!(told(&[SENT, page, SENT]), ["#1", "502", "#1"]);
    // Near miss: what only looks like such a string.
    assert_eq!(told(&[SENT, r#""API error (attempt 1/11): 502"#, SENT]), ["#1", "#2"]);
}

#[test]
fn what_is_asked_after_the_last_attempt_is_another_request() {
    let (first, last) = ("API error (attempt 1/2): 500 500 x", "API error (attempt 2/2): 500 500 x");
    let to = |model: &str| format!("[API:timing] dispatching to firstParty model={model}");
    let (one, two) = (to("one"), to("two"));
    assert_eq!(told(&[&one, SENT, first, &one, SENT, last, &one, SENT]).last().unwrap(), "#2");
    // Near miss: another model is asked the same; where prompts begin is told.
    assert_eq!(told(&[&one, SENT, first, &one, SENT, last, &two, SENT]).last().unwrap(), "#1");
    let start = "[engine] turn 1 start";
    assert_eq!(told(&[start, &one, SENT, first, &one, SENT, last, &one, SENT]).last().unwrap(), "#1");
}

#[test]
fn a_log_in_which_nothing_is_asked_is_of_no_run() {
    assert!(read(&["CA certs: none", "Loaded 3 skills"]).is_empty());
    assert_eq!(shown(&["CA certs: none", SENT]), [Shown::All]);
}

#[test]
fn a_failure_beside_subagents_is_the_main_loops_only_where_its_number_tells() {
    let (first, second) = ("API error (attempt 1/11): 500 500 x", "API error (attempt 2/11): 529 529 x");
    // One subagent cannot have failed twice with one request.
    let lines = [STARTED, SENT, first, SENT, OF_SUBAGENT, second, first, SENT];
    assert_eq!(told(&lines), ["#1", "500", "#1", "529", "#1"]);
    assert_eq!(shown(&lines), [Shown::All]);
    // The first failure may be of either, and so may the request after it be.
    let lines = [STARTED, SENT, OF_SUBAGENT, first, SENT];
    assert_eq!(told(&lines), ["#1"]);
    assert_eq!(shown(&lines), [Shown::All, Shown::Some]);
    // While the main loop waits for the subagent, it is none of the main loop.
    let lines = [SENT, STARTED, OF_SUBAGENT, first, SENT];
    assert_eq!((told(&lines), shown(&lines)), (vec!["#1".into(), "#2".into()], vec![Shown::All]));
    // Once the subagent has ended, neither.
    let ended = "[Stall] agent_completion agentId=a";
    let lines = [STARTED, SENT, OF_SUBAGENT, ended, first, SENT];
    assert_eq!(
        (told(&lines), shown(&lines)),
        (vec!["#1".into(), "500".into(), "#1".into()], vec![Shown::All])
    );
}

/// A side call of the program.
const OF_TITLE: &str = "[API REQUEST] /v1/messages source=generate_session_title";

#[test]
fn a_side_call_is_none_of_the_main_loops_requests() {
    let (first, second) = ("API error (attempt 1/11): 500 500 x", "API error (attempt 2/11): 529 529 x");
    assert_eq!(told(&[OF_TITLE, SENT, OF_TITLE, SENT]), ["#1", "#2"]);
    assert_eq!(shown(&[OF_TITLE, SENT]), [Shown::All]);
    // Before the main loop asks, a failure is the side call's.
    assert_eq!(told(&[OF_TITLE, first, SENT]), ["#1"]);
    // Beside it, the first failure may be of either, and so may the request after it be; the second is the main loop's.
    assert_eq!(told(&[OF_TITLE, SENT, first, SENT]), ["#1"]);
    assert_eq!(shown(&[OF_TITLE, SENT, first, SENT]), [Shown::All, Shown::Some]);
    assert_eq!(told(&[SENT, first, OF_TITLE, SENT, second, SENT]), ["#1", "500", "#1", "529", "#1"]);
    // What goes on with a doubt is in doubt: none of these is certainly another request.
    assert_eq!(told(&[OF_TITLE, SENT, first, SENT, second, SENT]), ["#1"]);
    let (title, lines) = (OF_TITLE, [first, first, OF_TITLE, second, SENT, second, SENT]);
    assert_eq!(told(&[&[title, title, SENT], &lines[..]].concat()), ["#1"]);
    // Near miss: compaction takes the place of the main loop.
    assert_eq!(told(&[SENT, "[API REQUEST] /v1/messages source=compact", first]), ["#1", "#2", "500"]);
}

/// Returns the turns that ended, and the requests that failed.
fn ends(lines: &[&str]) -> Vec<String> {
    let end = |statement| match statement {
        Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
        Statement::Event(event, _) => match event.body {
            Body::ModelFailed(failed) => failed.request_id,
            _ => None,
        },
        Statement::Mark { .. } => None,
    };
    read(lines).into_iter().filter_map(end).collect()
}

#[test]
fn a_process_that_ended_in_order_asked_nothing_more() {
    let down = "LSP server manager shut down successfully";
    assert_eq!(ends(&[SENT, down]), ["Unknown"]);
    let last = "API error (attempt 2/2): 500 500 x";
    assert_eq!(ends(&[SENT, last, down]), ["#1", "Unknown"]);
    // In a wait it was told to end.
    assert_eq!(ends(&[SENT, "API error (attempt 1/2): 500 500 x", down]), ["Unknown"]);
    // Near misses: nothing was asked, or the version says itself where turns end.
    assert!(ends(&["CA certs: none", down]).is_empty());
    let (start, end) = ("[engine] turn 1 start", "[engine] turn 1 end (turns=1 stop=end_turn)");
    assert_eq!(ends(&[start, SENT, end, down]), ["Succeeded"]);
}

#[test]
fn another_process_that_goes_on_with_the_log_has_a_turn_of_its_own() {
    let down = "LSP server manager shut down successfully";
    let turn = |statement| match statement {
        Statement::Mark { mark: Mark::TurnEnded { turn, .. }, .. } => turn,
        Statement::Mark { .. } | Statement::Event(..) => None,
    };
    let turns: Vec<_> = read(&[SENT, down, SENT, down, down]).into_iter().filter_map(turn).collect();
    assert_eq!(turns, ["#1", "#2"]);
}

#[test]
fn a_status_that_a_stream_told_is_no_stream_that_broke() {
    let message = |line: &str| {
        let retry = read(&[SENT, line, SENT]).into_iter().find_map(|statement| match statement {
            Statement::Event(event, _) => match event.body {
                Body::ModelRetry(retry) => Some((retry.status, retry.message.unwrap_or_default())),
                _ => None,
            },
            Statement::Mark { .. } => None,
        });
        retry.unwrap()
    };
    let (status, text) = message("Mid-stream 529 before content — retrying streaming (1/3)");
    assert_eq!((status, text.starts_with("529 ")), (Some(529), true), "{text}");
    // Near miss: without a status the line is all that is known.
    let (status, text) = message("Mid-stream failure before content — retrying streaming (1/3)");
    assert_eq!((status, text.starts_with("Mid-stream ")), (None, true), "{text}");
}

#[test]
fn the_line_after_a_failure_without_an_answer_says_what_was_wrong() {
    let explained = |lines: &[&str]| {
        let told = |statement| match statement {
            Statement::Event(event, _) => match event.body {
                Body::ModelAttempt(attempt) => {
                    attempt.code.map(|code| (attempt.attempt_id, code, attempt.message))
                }
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        read(lines).into_iter().filter_map(told).collect::<Vec<_>>()
    };
    let broken = "API error (attempt 1/4): undefined Connection error.";
    let details = "Connection error details: code=Cut, message=No end came";
    let said = (Some("#1".to_owned()), "Cut".to_owned(), Some("No end came".to_owned()));
    assert_eq!(explained(&[SENT, broken, details]), [said]);
    // Near misses: an answer says it itself, and what comes later is of something else.
    let answered = "API error (attempt 1/4): 503 503 busy";
    assert!(explained(&[SENT, answered, details]).is_empty());
    assert!(explained(&[SENT, broken, SENT, details]).is_empty());
    assert!(explained(&[SENT, details]).is_empty());
}
