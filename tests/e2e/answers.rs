//! Every form of an answer says the same, and what is said of nothing is true.

use std::fs;
use std::process::Stdio;

use super::support::{Ran, ran, retryscope, run};

/// A folder with a log of these events, and its path.
fn log(lines: &[&str]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("events.jsonl"), lines.join("\n") + "\n").unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, path)
}

const HEAD: &str =
    r#"{"v":1,"type":"run.started","ts":"2026-11-01T10:00:00.000Z","run_id":"r1","agent":"demo"}"#;
const RETRY: &str = r#"{"v":1,"type":"model.retry","ts":"2026-11-01T10:00:01.000Z","run_id":"r1","request_id":"a","attempt":1,"status":503,"delay_ms":500,"candidate":{"provider":"openai","model":"gpt-5"}}"#;
const ANSWER: &str =
    r#"{"v":1,"type":"model.response","ts":"2026-11-01T10:00:03.000Z","run_id":"r1","request_id":"a"}"#;
const END: &str =
    r#"{"v":1,"type":"run.finished","ts":"2026-11-01T10:00:04.000Z","run_id":"r1","outcome":"succeeded"}"#;

#[test]
fn one_odd_part_is_told_and_costs_nothing_else() {
    let odd = RETRY.replace(r#""model":"gpt-5""#, r#""model":"gpt-5","account":7"#);
    let (_folder, path) = log(&[HEAD, &odd, ANSWER, END]);
    let answer = ran(&["replay", "--root", &path, "r1", "--format", "json"]);
    let told = answer.json();
    assert_eq!(told["requests"][0]["attempts"][0]["model"], "gpt-5", "{told}");
    assert_eq!(told["requests"][0]["attempts"][0]["provider"], "openai", "{told}");
    // The record counts, so that nothing else may be missing for it.
    assert_eq!(told["counts"]["upstream_requests"]["value"], 2, "{told}");
    assert_eq!(answer.code, 3);
    assert!(
        answer.stderr.contains("events.jsonl:2: the value of `candidate` cannot be used"),
        "{}",
        answer.stderr
    );
    let (_folder, path) = log(&[HEAD, RETRY, ANSWER, END]);
    assert_eq!(ran(&["replay", "--root", &path, "r1"]).code, 0);
}

#[test]
fn the_turn_that_is_asked_for_is_explained_in_every_form() {
    let line = |turn: u32, kind: &str, more: &str| {
        format!(
            r#"{{"v":1,"type":"{kind}","ts":"2026-11-01T10:0{turn}:00.000Z","run_id":"t","turn":"{turn}","agent":"demo"{more}}}"#
        )
    };
    let lines = [
        line(1, "model.response", r#","request_id":"q1""#),
        line(1, "run.finished", r#","outcome":"succeeded""#),
        line(2, "model.failed", r#","request_id":"q2","status":503"#),
        line(2, "run.finished", r#","outcome":"failed""#),
    ];
    let (_folder, path) = log(&lines.each_ref().map(String::as_str));
    let asked =
        |turn: &str, form: &str| ran(&["replay", "--root", &path, "t", "--turn", turn, "--format", form]);
    let (first, second) = (asked("1", "json").json(), asked("2", "json").json());
    assert_eq!((&first["explained_turn"], &second["explained_turn"]), (&1.into(), &2.into()));
    assert!(first["cause"].is_null(), "{first}");
    assert_eq!(second["cause"]["status"], 503, "{second}");
    for (turn, told) in [("1", &first), ("2", &second)] {
        let text = asked(turn, "text").stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(told["summary"].as_str().unwrap()), "{text}\n{told}");
    }
    let all: Vec<serde_json::Value> =
        asked("all", "json").stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all, [first, second.clone()]);
    let unasked = ran(&["replay", "--root", &path, "t", "--format", "json"]).json();
    assert_eq!(unasked, second);
}

#[test]
fn nothing_readable_is_an_error_for_a_person_and_an_empty_list_for_a_program() {
    let empty = tempfile::tempdir().unwrap();
    let root = empty.path().to_str().unwrap();
    for (command, list) in [("runs", "runs"), ("sources", "sources")] {
        let text = ran(&[command, "--root", root]);
        let json = ran(&[command, "--root", root, "--format", "json"]);
        assert_eq!((text.code, json.code), (2, 0), "{command}");
        assert_eq!(json.json()[list], serde_json::json!([]), "{command}");
        assert!(text.stderr.contains("no run was found below"), "{}", text.stderr);
    }
    // Runs that are there, of which none is wanted, are something.
    let (_folder, path) = log(&[HEAD, RETRY, ANSWER, END]);
    for form in ["text", "json"] {
        assert_eq!(ran(&["runs", "--root", &path, "--failed", "--format", form]).code, 0);
    }
}

#[test]
fn every_filter_chooses_the_same_in_every_form() {
    let other = |text: &str| {
        text.replace("\"r1\"", "\"r2\"")
            .replace("openai", "acme")
            .replace(",\"candidate\":{\"provider\":\"acme\",\"model\":\"gpt-5\"}", "")
    };
    let lines = [HEAD, RETRY, ANSWER, END].map(str::to_owned);
    let all: Vec<String> = lines.iter().cloned().chain(lines.iter().map(|line| other(line))).collect();
    let (_folder, path) = log(&all.iter().map(String::as_str).collect::<Vec<_>>());
    for (filter, wanted) in [
        (vec![], vec!["r1", "r2"]),
        (vec!["--provider", "openai"], vec!["r1"]),
        // The label of a provider that nothing names.
        (vec!["--provider", "unknown"], vec!["r2"]),
        (vec!["--provider", "acme"], vec![]),
        (vec!["--agent", "demo"], vec!["r1", "r2"]),
        (vec!["--failed"], vec![]),
        (vec!["--since", "2026-11-02"], vec![]),
    ] {
        let arguments = |form| [vec!["runs", "--root", &path, "--format", form], filter.clone()].concat();
        let json = ran(&arguments("json")).json();
        let ids: Vec<&str> = json["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["run"]["run_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, wanted, "{filter:?}");
        let text = ran(&arguments("text")).stdout;
        for id in ["r1", "r2"] {
            assert_eq!(text.contains(id), wanted.contains(&id), "{filter:?}: {text}");
        }
    }
}

#[test]
fn what_was_looked_at_is_what_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state_5.sqlite");
    fs::write(&file, "SQLite format 3\0").unwrap();
    let file = file.to_str().unwrap();
    let named = ran(&["replay", file]);
    assert!(named.stderr.contains(&format!("no run was found in {file}")), "{}", named.stderr);
    assert!(!named.stderr.contains("name a folder or file"), "{}", named.stderr);
    assert!(named.stderr.contains(&format!("retryscope sources --root {file}")), "{}", named.stderr);
    let mut command = retryscope(&["replay", "-"]);
    command.stdin(Stdio::null());
    let Ran { stderr, code, .. } = run(command);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("no run was found in standard input") && !stderr.contains("usual place"),
        "{stderr}"
    );
    let usual = ran(&["runs"]);
    assert!(
        usual.stderr.contains("none of the known agents has logs in its usual place"),
        "{}",
        usual.stderr
    );
}

#[test]
fn small_words_fit_small_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.jsonl");
    let check = |lines: &str| {
        fs::write(&file, lines).unwrap();
        ran(&["schema", "check", file.to_str().unwrap()]).stdout.lines().last().unwrap().to_owned()
    };
    assert_eq!(check(&format!("{HEAD}\n")), "1 line keeps the schema");
    assert_eq!(check(&format!("{HEAD}\n{END}\n")), "2 lines keep the schema");
    assert_eq!(check(&format!("{}\n", HEAD.replace("demo\"", "demo\",\"x\":1"))), "1 deviation in 1 line");
    let (_folder, path) = log(&[HEAD, RETRY, ANSWER, END]);
    let none = ran(&["replay", "--root", &path]);
    assert!(none.stdout.starts_with("the one run that was found did not fail\n"), "{}", none.stdout);
}

#[test]
fn arguments_that_mean_nothing_are_told_or_mean_nothing_more() {
    assert_eq!(ran(&["classify", "--status", "999"]).code, 2);
    assert_eq!(ran(&["classify", "--status", "599"]).code, 0);
    let (_folder, path) = log(&[HEAD, RETRY, ANSWER, END]);
    let by = |by| ran(&["report", "--root", &path, "--by", by, "--format", "csv"]).stdout;
    assert_eq!(by("day,day"), by("day"));
    assert_ne!(by("day,agent"), by("day"));
    let missing = ran(&["audit", "--root", &path, "--baseline", "/nonexistent/known.json"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("--write-baseline"), "{}", missing.stderr);
}

/// A failed run with any id.
fn failed(run: &str) -> String {
    [
        r#"{"v":1,"type":"model.attempt","ts":"2026-11-29T20:00:00.000Z","run_id":"RUN","agent":"demo","request_id":"q","attempt":1,"outcome":"failed","status":503,"provider":"openai","model":"m","event_id":"a"}"#,
        r#"{"v":1,"type":"model.failed","ts":"2026-11-29T20:00:01.000Z","run_id":"RUN","agent":"demo","request_id":"q","status":503,"event_id":"b"}"#,
        r#"{"v":1,"type":"run.finished","ts":"2026-11-29T20:00:02.000Z","run_id":"RUN","agent":"demo","outcome":"failed","event_id":"c"}"#,
    ]
    .map(|line| line.replace("RUN", run) + "\n")
    .concat()
}

/// Runs in a folder that holds the logs of two runs and a folder called `latest`.
fn in_folder(args: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("latest")).unwrap();
    std::fs::create_dir_all(folder.path().join("team")).unwrap();
    std::fs::write(folder.path().join("team/events.jsonl"), failed("team/7")).unwrap();
    std::fs::write(folder.path().join("latest/events.jsonl"), failed("other").replace("20:00", "19:00"))
        .unwrap();
    let mut command = retryscope(args);
    command.current_dir(folder.path()).env("RETRYSCOPE_ROOTS", folder.path());
    run(command)
}

#[test]
fn an_id_may_look_like_a_path_and_a_folder_like_a_word() {
    let told = |args: &[&str]| in_folder(args).json()["run"]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(told(&["replay", "team/7", "--format", "json"]), "team/7");
    assert_eq!(told(&["replay", "latest", "--format", "json"]), "team/7");
    assert_eq!(told(&["replay", "./latest", "--format", "json"]), "other");
    assert_eq!(told(&["replay", "latest/events.jsonl", "--format", "json"]), "other");
    let audited = in_folder(&["audit", "team/7", "--format", "json", "--all"]).json();
    let runs: std::collections::BTreeSet<&str> =
        audited["findings"].as_array().unwrap().iter().map(|f| f["run_id"].as_str().unwrap()).collect();
    assert_eq!(runs.into_iter().collect::<Vec<_>>(), ["team/7"]);
    let both = in_folder(&["audit", "latest", "./team"]);
    assert!(both.code == 2 && both.stderr.contains("--root ./team audit latest"), "{}", both.whole());
}

#[test]
fn the_exit_code_is_asked_of_the_run_and_not_of_the_form() {
    for more in [&["--recipients"][..], &[], &["--format", "json"], &["--share"]] {
        let args = [&["replay", "team/7", "--exit-code"], more].concat();
        assert_eq!(in_folder(&args).code, 1, "{args:?}");
    }
}

#[test]
fn a_comparison_has_two_sides_in_order() {
    for form in ["prom", "csv"] {
        let ran = in_folder(&["report", "--compare", "7d..1d", "--format", form]);
        assert!(ran.code == 2 && ran.stderr.contains("text, json, markdown"), "{}", ran.whole());
    }
    let swapped = in_folder(&["report", "--compare", "1d..7d"]);
    assert!(swapped.code == 2 && swapped.stderr.contains("--compare 7d..1d"), "{}", swapped.whole());
}

#[test]
fn where_no_run_is_every_program_gets_its_object() {
    let empty = tempfile::tempdir().unwrap();
    let root = empty.path().to_str().unwrap();
    for args in [&["audit"][..], &["report"], &[]] {
        let text = ran(&[args, &["--root", root]].concat());
        assert!(text.code == 2 && text.stderr.contains("no run was found below"), "{}", text.whole());
        let json = ran(&[args, &["--root", root, "--format", "json"]].concat());
        assert!(json.code == 0 && json.json()["schema"].is_string(), "{}", json.whole());
    }
}

#[test]
fn json_steers_no_terminal_and_says_the_same() {
    let odd = "a\u{9b}31m\u{202e}b\u{7f}c\u{1f600}";
    let (_folder, path) = log(&[&failed(odd)]);
    let ran = ran(&["replay", &path, "--format", "json"]);
    assert!(ran.stdout.chars().all(|c| !c.is_control() || c == '\n'), "{:?}", ran.stdout);
    assert!(!ran.stdout.contains('\u{202e}') && ran.stdout.contains('\u{1f600}'), "{}", ran.stdout);
    assert_eq!(ran.json()["run"]["run_id"], odd);
}

#[test]
fn a_brief_answer_keeps_its_form_where_no_run_failed() {
    let (_folder, path) = log(&[HEAD, ANSWER, END]);
    let brief = ran(&["replay", "--root", &path, "--format", "brief"]).json();
    assert_eq!((&brief["schema"], &brief["ok"]), (&"retryscope.replay.brief/1".into(), &true.into()));
}

#[test]
fn a_baseline_of_what_was_read_in_part_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("events.jsonl");
    std::fs::write(&log, failed("r") + "{broken\n").unwrap();
    let baseline = folder.path().join("known.json");
    let args = [
        "--root",
        log.to_str().unwrap(),
        "audit",
        "--baseline",
        baseline.to_str().unwrap(),
        "--write-baseline",
    ];
    assert_eq!(ran(&args).code, 3);
}
