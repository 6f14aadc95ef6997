//! What logs of agents tell of whole runs, and what they leave open: files below a folder, as an agent leaves them.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;

use retryscope_analysis::{Bound, RequestOutcome, Run, RunOutcome};
use retryscope_scan::Scan;

/// Reads files, each with its place below the root and its text.
fn runs_of(files: &[(&str, String)]) -> Vec<Run> {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Scan::of_roots(&[root.path().to_path_buf()]).runs("2026-12-24T00:00:00Z".parse().unwrap())
}

fn run_of(files: &[(&str, String)]) -> Run {
    let mut runs = runs_of(files);
    assert_eq!(runs.len(), 1, "{runs:#?}");
    runs.remove(0)
}

/// Logical and upstream requests, retries and failed attempts.
fn counts(run: &Run) -> [Bound; 4] {
    let counts = &run.counts;
    [&counts.logical_requests, &counts.upstream_requests, &counts.retries, &counts.failed_attempts]
        .map(|count| count.bound)
}

fn outcomes(run: &Run) -> Vec<RequestOutcome> {
    run.turns.iter().flat_map(|turn| &turn.requests).map(|request| request.outcome).collect()
}

mod rivumi {
    use super::*;

    const CREATED: &str = r#""run.created","data":{"provider":"anthropic","model":"claude-sonnet-4-5"}"#;
    const RESUMED: &str = r#""session.resumed","data":{"provider":"anthropic","model":"claude-sonnet-4-5"}"#;
    const REQUESTED: &str = r#""model.requested","data":{"step":1}"#;
    const RETRY: &str = r#""model.retry","data":{"attempt":1,"delay_seconds":1.03,"error":"anthropic request failed (503): {}","provider":"anthropic"}"#;
    const ANSWERED: &str = r#""model.completed","data":{"step":1,"finish_reason":"end_turn"}"#;
    const VERIFIED: &str = r#""run.completed","data":{"terminal_reason":"verified"}"#;
    const TOO_MANY_TOKENS: &str = r#""run.failed","data":{"terminal_reason":"token_budget_exceeded"}"#;

    /// One log; each record is the second it was written in, and its type and data.
    fn log(run: &str, records: &[(u32, &str)]) -> String {
        let line = |(n, (second, record)): (usize, &(u32, &str))| {
            format!(
                r#"{{"created_at":"2026-08-27T09:{:02}:{:02}Z","event_type":{record},"event_id":"{run}{n}","run_id":"{run}","sequence":{n},"task_id":"t"}}"#,
                second / 60,
                second % 60
            ) + "\n"
        };
        records.iter().enumerate().map(line).collect()
    }

    fn read(records: &[(u32, &str)]) -> Run {
        run_of(&[("runs/r/events.jsonl", log("r", records))])
    }

    #[test]
    fn a_request_whose_process_was_killed_is_not_answered_by_the_next_one() {
        let tail = [(901, RESUMED), (902, REQUESTED), (903, ANSWERED), (904, VERIFIED)];
        let killed = |head: &[(u32, &str)]| read(&[head, &tail].concat());
        let in_wait = killed(&[(0, CREATED), (1, REQUESTED), (2, RETRY)]);
        assert_eq!(in_wait.outcome, RunOutcome::Succeeded);
        assert_eq!(outcomes(&in_wait), [RequestOutcome::Open, RequestOutcome::OkFirstTry]);
        let [logical, upstream, retries, failed] = counts(&in_wait);
        assert_eq!((logical, upstream), (Bound::exact(2), Bound::range(2, Some(3))));
        assert_eq!((retries, failed), (Bound::range(0, Some(1)), Bound::range(1, Some(2))));
        // It was on its way: sent once, and nothing is known of what became of it.
        let in_flight = killed(&[(0, CREATED), (1, REQUESTED)]);
        assert_eq!(outcomes(&in_flight), [RequestOutcome::Open, RequestOutcome::OkFirstTry]);
        assert_eq!(counts(&in_flight)[..3], [Bound::exact(2), Bound::exact(2), Bound::exact(0)]);
        // Back within the wait: nothing more had left.
        let early = [(2, RESUMED), (3, REQUESTED), (4, ANSWERED), (5, VERIFIED)];
        let back = read(&[&[(0, CREATED), (1, REQUESTED), (2, RETRY)][..], &early].concat());
        assert_eq!(counts(&back)[..3], [Bound::exact(2), Bound::exact(2), Bound::exact(0)]);
    }

    #[test]
    fn a_turn_over_its_tokens_had_its_answer() {
        let head = [(0, CREATED), (1, REQUESTED), (3, ANSWERED), (4, REQUESTED)];
        let over = read(&[&head[..], &[(8, TOO_MANY_TOKENS)]].concat());
        assert_eq!(over.outcome, RunOutcome::Failed);
        assert_eq!(outcomes(&over), [RequestOutcome::OkFirstTry; 2]);
        assert_eq!(counts(&over), [2, 2, 0, 0].map(Bound::exact));
        // After a wait, the attempt that was answered is the second one.
        let retried = read(&[&head[..], &[(5, RETRY), (8, TOO_MANY_TOKENS)]].concat());
        assert_eq!(outcomes(&retried), [RequestOutcome::OkFirstTry, RequestOutcome::OkAfterRetry]);
        assert_eq!(counts(&retried), [2, 3, 1, 1].map(Bound::exact));
        // Another end says nothing of the kind.
        let failed = r#""run.failed","data":{"terminal_reason":"wall_time_exceeded"}"#;
        let failed = read(&[&head[..], &[(8, failed)]].concat());
        assert_eq!(outcomes(&failed)[1], RequestOutcome::FailedNoRetry);
    }

    #[test]
    fn the_reviewer_is_asked_and_not_the_model_of_the_loop() {
        let lane = |kind: &str, more: &str| {
            format!(
                r#""role_lane.{kind}","data":{{"role":"reviewer","provider":"openai","model":"gpt-5"{more}}}"#
            )
        };
        let requested = lane("requested", "");
        let error = r#","error":"openai request failed: Error code: 500 - x""#;
        for end in [lane("completed", ""), lane("failed", error)] {
            let run = read(&[
                (0, CREATED),
                (1, REQUESTED),
                (3, ANSWERED),
                (4, &requested),
                (7, &end),
                (8, r#""loop.wind_down_started","data":{"step":1}"#),
                (9, r#""loop.wind_down_completed","data":{}"#),
                (10, VERIFIED),
            ]);
            let asked: Vec<_> = run.turns[0]
                .requests
                .iter()
                .flat_map(|request| &request.attempts)
                .map(|a| (a.candidate.provider.as_deref().unwrap(), a.candidate.model.as_deref().unwrap()))
                .collect();
            let of_the_loop = ("anthropic", "claude-sonnet-4-5");
            assert_eq!(asked, [of_the_loop, ("openai", "gpt-5"), of_the_loop], "{end}");
        }
    }

    #[test]
    fn a_run_whose_folder_lies_below_that_of_another_is_its_child() {
        let ended = [(0, CREATED), (1, REQUESTED), (3, ANSWERED), (4, VERIFIED)];
        let runs = runs_of(&[
            ("runs/r/events.jsonl", log("r", &ended)),
            ("runs/r/children/c1/events.jsonl", log("c1", &ended)),
            ("runs/s/events.jsonl", log("s", &ended)),
            // No run folder lies around this one.
            ("runs/x/y/t/events.jsonl", log("t", &ended)),
        ]);
        let mut parents: Vec<_> =
            runs.iter().map(|run| (&*run.key.id, run.facts.parent_run_id.as_deref())).collect();
        parents.sort_unstable();
        assert_eq!(parents, [("c1", Some("r")), ("r", None), ("s", None), ("t", None)]);
    }
}

mod claude_code {
    use super::*;

    fn printed(asked: &str, answered: &str) -> Run {
        let lines = [
            format!(r#"{{"type":"system","subtype":"init","session_id":"s","model":"{asked}","claude_code_version":"2.1.197"}}"#),
            r#"{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":500,"error_status":500,"error":"server_error","session_id":"s"}"#.to_owned(),
            format!(r#"{{"type":"assistant","session_id":"s","uuid":"u","message":{{"id":"m","model":"{answered}","role":"assistant","content":[{{"type":"text","text":"x"}}]}}}}"#),
            r#"{"type":"result","subtype":"success","is_error":false,"session_id":"s"}"#.to_owned(),
        ];
        run_of(&[("run.jsonl", lines.join("\n") + "\n")])
    }

    fn models(run: &Run) -> Vec<&str> {
        let requests = run.turns.iter().flat_map(|turn| &turn.requests);
        let attempts = requests.flat_map(|request| &request.attempts);
        attempts.filter_map(|attempt| attempt.candidate.model.as_deref()).collect()
    }

    #[test]
    fn an_answer_that_broke_off_is_one_request_that_failed() {
        let line = |second: u32, rest: &str| {
            format!(
                r#"{{"type":"{rest},"sessionId":"s","version":"2.1.197","timestamp":"2026-12-01T03:11:{second:02}.000Z"}}"#
            ) + "\n"
        };
        let log = [
            line(1, r#"user","uuid":"u","promptId":"p","message":{"role":"user","content":"x"}"#),
            line(
                2,
                r#"assistant","uuid":"a","message":{"id":"m","model":"x","stop_reason":"end_turn","content":[{"type":"text","text":"y"}]}"#,
            ),
            line(
                3,
                r#"assistant","uuid":"f","isApiErrorMessage":true,"message":{"id":"n","model":"<synthetic>","content":[{"type":"text","text":"API Error: Connection closed mid-response."}]}"#,
            ),
        ];
        let run = run_of(&[(".claude/projects/w/s.jsonl", log.concat())]);
        assert_eq!(run.outcome, RunOutcome::Failed);
        assert_eq!((counts(&run)[0], run.turns[0].requests[0].attempts.len()), (Bound::exact(1), 1));
    }

    #[test]
    fn a_setting_in_the_name_of_a_model_makes_no_other_model() {
        assert_eq!(models(&printed("claude-x-4[1m]", "claude-x-4")), ["claude-x-4", "claude-x-4"]);
        assert_eq!(models(&printed("claude-x-4", "claude-y-4")), ["claude-x-4", "claude-y-4"]);
    }

    #[test]
    fn a_side_call_of_one_turn_is_not_taken_back_by_the_next() {
        let side = "[API REQUEST] /v1/messages source=generate_session_title";
        let turn = |more: &[&'static str]| {
            let all = [&["[engine] turn 1 start", "[API REQUEST] /v1/messages source=sdk"], more];
            [&all.concat()[..], &["[engine] turn 1 end (turns=1 stop=end_turn)"]].concat()
        };
        let shown = |turns: &[Vec<&str>]| {
            let line = |(n, text): (usize, &&str)| format!("2026-11-30T10:00:{n:02}.000Z [DEBUG] {text}\n");
            let text = turns.concat().iter().enumerate().map(line).collect();
            let id = "55555555-5555-4555-8555-555555555555";
            let run = run_of(&[(&format!(".claude/debug/{id}.txt"), text)]);
            assert_eq!(run.counts.logical_requests.bound, Bound::exact(turns.len() as u64));
            run.background_counts.logical_requests.is_visible()
        };
        assert!(shown(&[turn(&[]), turn(&[])]));
        for turns in [[turn(&[side]), turn(&[])], [turn(&[]), turn(&[side])]] {
            assert!(!shown(&turns));
        }
    }
}

mod opencode {
    use super::*;

    #[test]
    fn a_line_of_text_without_its_end_names_no_run() {
        let line = |session: &str| {
            format!(
                "timestamp=2026-12-01T03:01:31.259Z level=INFO run=caf70a85 message=stream providerID=a modelID=b session.id={session} small=false agent=build mode=primary"
            )
        };
        let log = |end: &str| vec![("opencode/log/opencode.log", format!("{}\n{end}", line("ses_one")))];
        // The log was cut within the name of the session.
        let torn = line("ses_one");
        let torn = torn.split_once("ses_o").unwrap().0;
        assert_eq!(runs_of(&log(&format!("{torn}ses_o"))).len(), 1);
        // Near miss: a whole line of another session.
        assert_eq!(runs_of(&log(&(line("ses_two") + "\n"))).len(), 2);
    }
}

mod own {
    use super::*;

    /// Logical and upstream requests of a log of these events; each is a second, a type and further members.
    fn counted(events: &[(u32, &str, &str)]) -> [Bound; 2] {
        let line = |(second, kind, more): &(u32, &str, &str)| {
            format!(
                r#"{{"v":1,"type":"{kind}","ts":"2026-11-30T10:{:02}:{:02}.000Z","run_id":"r","agent":"x"{more}}}"#,
                second / 60,
                second % 60
            ) + "\n"
        };
        let run = run_of(&[("events.jsonl", events.iter().map(line).collect())]);
        let [logical, upstream, ..] = counts(&run);
        [logical, upstream]
    }

    const RETRY: &str = r#","attempt":1,"status":503,"delay_ms":100"#;
    const FINISHED: (u32, &str, &str) = (99, "run.finished", r#","outcome":"succeeded""#);

    #[test]
    fn a_request_that_is_asked_for_again_is_another_one() {
        let (request, retry, response) = ("model.request", "model.retry", "model.response");
        // The first one has no end: whether it was sent again is not told.
        let without_ids =
            [(0, request, ""), (1, retry, RETRY), (5, request, ""), (8, response, ""), FINISHED];
        assert_eq!(counted(&without_ids), [Bound::exact(2), Bound::range(2, Some(3))]);
        let again = r#","request_id":"1","attempt":1,"status":503,"delay_ms":100"#;
        let id = r#","request_id":"1""#;
        let answered = [(0, request, id), (1, retry, again), (3, response, id)];
        let later = [(60, request, id), (61, retry, again), (63, response, id), FINISHED];
        assert_eq!(counted(&[&answered[..], &later].concat()), [Bound::exact(2), Bound::exact(4)]);
        // Near misses: the record of a request that is merely late, and one that is open.
        let late = [&answered[..], &[(0, request, id), FINISHED]].concat();
        assert_eq!(counted(&late), [Bound::exact(1), Bound::exact(2)]);
        let open = [(0, request, id), (1, retry, again), (2, request, id), (3, response, id), FINISHED];
        assert_eq!(counted(&open), [Bound::exact(1), Bound::exact(2)]);
    }
}
