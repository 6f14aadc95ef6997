//! Broken, hostile and odd logs: a counted gap, nothing after it lost, nothing private copied out.

use std::fs;

use super::support::{Ran, ran};
use crate::planted;

const HEAD: &str =
    r#"{"v":1,"type":"run.started","ts":"2026-11-01T10:00:00.000Z","run_id":"r1","agent":"demo"}"#;
const RETRY: &str = r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:01.000Z","run_id":"r1","agent":"demo","request_id":"a","attempt":1,"status":503,"delay_ms":500}"#;
const ANSWER: &str = r#"{"v":1,"type":"model.response","ts":"2026-11-01T10:00:03.000Z","run_id":"r1","agent":"demo","request_id":"a"}"#;
const END: &str = r#"{"v":1,"type":"run.finished","ts":"2026-11-01T10:00:04.000Z","run_id":"r1","agent":"demo","outcome":"succeeded"}"#;

fn read(bytes: &[u8]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("events.jsonl"), bytes).unwrap();
    let answer = ran(&["runs", "--root", folder.path().to_str().unwrap(), "--format", "json"]);
    Ran { stderr: answer.stderr.replace(folder.path().to_str().unwrap(), "DIR"), ..answer }
}

/// What is odd about a line.
#[derive(Clone, Copy, PartialEq)]
enum Odd {
    /// It is none of ours.
    Other,
    /// A field of it: the record counts.
    Field,
    /// It cannot be read.
    Line,
}

/// The file with something odd in the middle still tells its two attempts.
fn survives(odd: &[u8], what: Odd) -> Ran {
    let gap = what == Odd::Line;
    let mut bytes = Vec::new();
    for line in [HEAD.as_bytes(), RETRY.as_bytes(), odd, ANSWER.as_bytes(), END.as_bytes()] {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    let answer = read(&bytes);
    let run = &answer.json()["runs"][0];
    // What could not be read may have been a request: with a gap in its turn a count is a lower bound.
    let count = &run["counts"]["upstream_requests"];
    assert_eq!(count[if gap { "min" } else { "value" }], 2, "{run}");
    assert_eq!(count["max"].is_null() && gap, gap, "{run}");
    assert_eq!(run["run"]["outcome"], "succeeded");
    assert_eq!(answer.code, if what == Odd::Other { 0 } else { 3 }, "{}", answer.stderr);
    answer
}

#[test]
fn odd_lines_are_gaps_and_nothing_after_them_is_lost() {
    survives(b"", Odd::Other);
    survives(b"{\"type\":\"model.retry\",", Odd::Line);
    survives(b"\x00\x00\x00", Odd::Line);
    survives(b"\xff\xfe\xfd", Odd::Line);
    survives(b"[1,2,3]", Odd::Line);
    survives("{\"note\":\"line\u{2028}separator\"}".as_bytes(), Odd::Other);
    survives(&[b'[', b'['].repeat(200_000), Odd::Line);
    let fields =
        survives(br#"{"type":"tool.attempt","run_id":"r1","attempt":"x","ts":5}"#.as_slice(), Odd::Field);
    assert!(
        fields.stderr.contains("events.jsonl:3: the value of `attempt` cannot be used"),
        "{}",
        fields.stderr
    );
    let newer = survives(br#"{"v":2,"type":"model.retry","run_id":"r1"}"#.as_slice(), Odd::Line);
    assert!(newer.stderr.contains("schema version 2, this program reads up to 1"), "{}", newer.stderr);
    assert!(newer.stderr.contains("events.jsonl:3"), "{}", newer.stderr);
}

#[test]
fn line_ends_and_marks_do_not_matter() {
    let plain = [HEAD, RETRY, ANSWER, END].join("\n");
    let counts = |bytes: &[u8]| read(bytes).json()["runs"][0]["counts"].clone();
    let expected = counts(plain.as_bytes());
    assert_eq!(expected["upstream_requests"]["value"], 2);
    assert_eq!(counts(plain.replace('\n', "\r\n").as_bytes()), expected);
    assert_eq!(counts(format!("\u{feff}{plain}").as_bytes()), expected);
    assert_eq!(counts(format!("{plain}\n\n\n").as_bytes()), expected);
    // Repeats of numbered events are dropped.
    let numbered: Vec<String> = [HEAD, RETRY, ANSWER, END]
        .iter()
        .enumerate()
        .map(|(n, line)| line.replace(r#""v":1"#, &format!(r#""v":1,"seq":{n},"event_id":"e{n}""#)))
        .collect();
    let repeated = format!("{0}\n{0}\n", numbered.join("\n"));
    assert_eq!(counts(repeated.as_bytes()), expected);
}

#[test]
fn a_line_of_twenty_megabytes_still_gives_its_keys() {
    let huge = RETRY
        .replace(r#""delay_ms":500"#, &format!(r#""context":"{}","delay_ms":500"#, "x".repeat(20 << 20)));
    let answer = read([HEAD, &huge, ANSWER, END].join("\n").as_bytes());
    assert_eq!(answer.json()["runs"][0]["counts"]["upstream_requests"]["value"], 2, "{}", answer.stderr);
}

#[test]
fn a_prefix_claims_only_lower_bounds_until_the_turn_ends() {
    let answer = read([HEAD, RETRY].join("\n").as_bytes());
    let count = &answer.json()["runs"][0]["counts"]["upstream_requests"];
    assert_eq!(count["min"], 1);
    assert!(count["max"].is_null());
}

#[test]
fn escapes_and_secrets_in_errors_do_not_come_through() {
    let message = r"\u001b[31mred\u0007 Incorrect API key provided: sk-proj-abcdefghijklmnop1234567890";
    let line = RETRY.replace(r#""status":503"#, &format!(r#""status":401,"message":"{message}""#));
    let failed = ANSWER
        .replace("model.response", "model.failed")
        .replace(r#""request_id":"a""#, &format!(r#""request_id":"a","status":401,"message":"{message}""#));
    let end = END.replace("succeeded", "failed");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("events.jsonl"), [HEAD, &line, &failed, &end].join("\n")).unwrap();
    let root = folder.path().to_str().unwrap();
    for format in ["text", "json", "brief"] {
        let answer = ran(&["replay", root, "--format", format]);
        assert!(!answer.stdout.contains('\u{1b}') && !answer.stdout.contains('\u{7}'), "{}", answer.stdout);
        assert!(!answer.stdout.contains("sk-proj"), "{}", answer.stdout);
    }
}

/// Ids come from logs, and stand in answers and in errors.
#[test]
fn escapes_in_ids_reach_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let id = r"em\u001b[31mpty\u0007";
    let line = |kind: &str, agent: &str, more: &str| {
        format!(
            r#"{{"v":1,"type":"{kind}","ts":"2026-11-30T10:00:00.000Z","run_id":"{id}","agent":"{agent}"{more}}}"#
        )
    };
    let lines = [
        line("run.started", r"a\u001b[1m", ""),
        line("run.started", "b", ""),
        line("model.failed", "b", r#","request_id":"q","status":503"#),
        line("run.finished", "b", r#","outcome":"failed""#),
    ];
    fs::write(folder.path().join("e.jsonl"), lines.join("\n")).unwrap();
    let root = folder.path().to_str().unwrap();
    let ambiguous = "em\u{1b}[31mpty\u{7}";
    for args in [
        &["runs"][..],
        &["replay"],
        &["replay", "latest"],
        &["replay", ambiguous],
        &["replay", "em\u{1b}[31mptx"],
        &["replay", "a\u{1b}[1m:em\u{1b}[31mpty\u{7}"],
        &["report"],
        &["audit", "--all"],
        &["sources"],
        &["recipients"],
        &["export"],
        &["doctor"],
    ] {
        let answer = ran(&[args, &["--root", root]].concat());
        for text in [&answer.stdout, &answer.stderr] {
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{args:?}: {text:?}");
        }
        assert!(!answer.stdout.is_empty() || !answer.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn planted_credentials_come_out_in_no_form() {
    for secret in planted::SECRETS {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let logs = planted::logs(secret);
        for (name, text) in &logs {
            assert!(text.contains(secret));
            fs::write(folder.path().join(name), text).unwrap();
        }
        let listed = ran(&["runs", "--root", root, "--format", "json"]).json();
        assert_eq!(listed["runs"].as_array().unwrap().len(), logs.len(), "each log has its run: {listed}");
        for args in [
            &["replay", root, "--format", "text"][..],
            &["replay", root, "--format", "json"],
            &["replay", root, "--format", "brief"],
            &["replay", root, "--evidence"],
            &["runs", "--root", root],
            &["runs", "--root", root, "--format", "json"],
            &["report", "--root", root],
            &["report", "--root", root, "--format", "json"],
            &["report", "--root", root, "--format", "prom"],
            &["audit", "--root", root],
            &["audit", "--root", root, "--format", "json"],
            &["audit", "--root", root, "--format", "sarif"],
            &["export", "--root", root, "--format", "csv"],
            &["export", "--root", root, "--format", "openmetrics"],
        ] {
            let answer = ran(args);
            assert!(!answer.stdout.is_empty(), "{args:?}: {}", answer.stderr);
            for text in [answer.stdout, answer.stderr] {
                assert!(!text.contains(secret) && !text.contains(planted::TAIL), "{args:?}: {text}");
            }
        }
    }
}

#[test]
fn empty_and_foreign_folders_say_what_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let answer = ran(&["replay", "--root", folder.path().to_str().unwrap()]);
    assert_eq!(answer.code, 2);
    assert!(answer.stderr.contains("no run was found below"), "{}", answer.stderr);
    fs::write(folder.path().join("events.jsonl"), "").unwrap();
    fs::write(folder.path().join("notes.txt"), "model.retry is a word in a text\n").unwrap();
    let answer = ran(&["replay", "--root", folder.path().to_str().unwrap()]);
    assert_eq!(answer.code, 2);
}

#[test]
fn prompts_are_not_copied_out() {
    let secret = "PLANTED-PROMPT-TEXT";
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("home/.claude/projects/-home-dev-demo");
    fs::create_dir_all(&place).unwrap();
    let source = super::support::fixtures()
        .join("claude-code/503-persistent/logs/home/.claude/projects/-home-dev-demo");
    let file = fs::read_dir(source)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "jsonl"))
        .unwrap();
    let text = fs::read_to_string(&file).unwrap().replace("Say hello.", secret);
    assert!(text.contains(secret));
    fs::write(place.join(file.file_name().unwrap()), text).unwrap();
    let root = folder.path().to_str().unwrap();
    for args in [
        ["replay", root, "--format", "json"],
        ["runs", "--root", root, "--format"],
        ["replay", root, "--evidence", "--format"],
    ] {
        let mut args = args.to_vec();
        if args.last() == Some(&"--format") {
            args.push("text");
        }
        let answer = ran(&args);
        assert!(!answer.stdout.contains(secret), "{}", answer.stdout);
    }
}
