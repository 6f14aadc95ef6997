//! The command line as a person meets it: help, mistakes, exit codes, forms.

use super::support::{ran, retryscope, run};

#[test]
fn help_reads_well() {
    insta::assert_snapshot!("help", ran(&["--help"]).stdout);
    insta::assert_snapshot!("help_replay", ran(&["replay", "--help"]).stdout);
    insta::assert_snapshot!("help_classify", ran(&["classify", "--help"]).stdout);
}

#[test]
fn mistakes_get_an_answer_that_helps() {
    let mistakes: &[&[&str]] = &[
        &["replay", "run-12", "--root", "rivumi"],
        &["replay", "run-999", "--root", "rivumi"],
        &["replay", "run-1234", "--root", "rivumi/nim-outage-both-models"],
        &["replay", "run-123", "--root", "rivumi", "--turn", "7"],
        &["replay", "run-123", "--root", "rivumi", "--turn", "x"],
        &["runs", "--root", "no/such/folder"],
        &["runs", "--root", "rivumi", "--since", "yesterday"],
        &["replay"],
        &["classify"],
        &["policy", "show", "codx"],
    ];
    let answers: Vec<String> = mistakes
        .iter()
        .map(|args| format!("$ retryscope {}\n{}", args.join(" "), ran(args).whole()))
        .collect();
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn exit_codes_keep_the_contract() {
    let code = |args: &[&str]| ran(args).code;
    let clean = "claude-code/500x2-ok";
    assert_eq!(code(&["replay", clean]), 0);
    assert_eq!(code(&["replay", clean, "--exit-code"]), 0);
    assert_eq!(code(&["replay", "rivumi/auth-401"]), 0);
    assert_eq!(code(&["replay", "rivumi/auth-401", "--exit-code"]), 1);
    assert_eq!(code(&["replay", "nothing-of-that-name", "--root", clean]), 2);
    assert_eq!(code(&["replay", "rivumi/torn-last-line"]), 3);
}

#[test]
fn the_overview_fits_one_screen() {
    let page = ran(&["--root", "rivumi"]);
    assert!(page.stdout.lines().count() <= 50, "{}", page.stdout);
    insta::assert_snapshot!(page.stdout);
}

#[test]
fn lists_and_sources_read_well() {
    insta::assert_snapshot!("runs", ran(&["runs", "--root", "rivumi"]).stdout);
    insta::assert_snapshot!(
        "runs_failed",
        ran(&["runs", "--root", "rivumi", "--failed", "--provider", "nvidia-nim"]).stdout
    );
    insta::assert_snapshot!("sources", ran(&["sources", "--root", "claude-code/otel-503"]).stdout);
}

#[test]
fn none_failed_says_so() {
    let answer = ran(&["replay", "--root", "claude-code/500x2-ok"]);
    insta::assert_snapshot!(answer.whole());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = retryscope(&["runs", "--root", ".", "--format", "json"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("error"), "{stderr}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn standard_input_is_read() {
    let log = super::support::fixtures()
        .join("rivumi/auth-401/logs/home/.local/state/looplane/runs/run-129/events.jsonl");
    let mut command = retryscope(&["replay", "-", "--format", "json"]);
    command.stdin(std::fs::File::open(log).unwrap());
    let answer = run(command).json();
    assert_eq!(answer["run"]["run_id"], "run-129");
    assert_eq!(answer["cause"]["class"], "auth");
    assert_eq!(answer["cause"]["evidence"][0]["file"], "stdin");
}

#[test]
fn a_batch_of_errors_keeps_its_order() {
    let mut command = retryscope(&["classify", "--input", "-", "--format", "json"]);
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("errors.jsonl");
    std::fs::write(
        &input,
        concat!(
            r#"{"provider":"openai","status":429,"body":"{\"error\":{\"code\":\"insufficient_quota\"}}"}"#, "\n",
            "not json\n",
            r#"{"provider":"anthropic","status":529,"body":"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}"}"#, "\n",
        ),
    )
    .unwrap();
    command.stdin(std::fs::File::open(&input).unwrap());
    let answer = run(command);
    assert_eq!(answer.code, 3);
    let classes: Vec<String> = answer
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["class"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(classes, ["exhausted", "unknown", "transient"]);
}

#[test]
fn the_readme_shows_what_is_printed() {
    let readme = std::fs::read_to_string(super::support::repository().join("README.md")).unwrap();
    let mut command = retryscope(&["replay", "run-123", "--root", "rivumi"]);
    command.env("COLUMNS", "96");
    let printed = super::support::run(command).stdout;
    assert!(readme.contains(printed.trim_end()), "write the page of the README again:\n{printed}");
}

/// Only the last of several failures has a reason in this log: the sentence and the audit say no more than that.
#[test]
fn reasons_that_are_not_in_the_log_are_not_told() {
    let mut log = String::from(
        "{\"type\":\"thread.started\",\"thread_id\":\"0199aaaa-0000-7000-8000-000000000401\"}\n{\"type\":\"turn.started\"}\n",
    );
    for n in 1..=5 {
        log.push_str(&format!("{{\"type\":\"error\",\"message\":\"Reconnecting... {n}/5\"}}\n"));
    }
    let last = "exceeded retry limit, last status: 401 Unauthorized, request id: r-1";
    log.push_str(&format!("{{\"type\":\"turn.failed\",\"error\":{{\"message\":\"{last}\"}}}}\n"));
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("stdout.jsonl");
    std::fs::write(&file, log).unwrap();
    let file = file.to_str().unwrap();
    let told = ran(&["replay", file, "--format", "json"]).json();
    let summary = told["summary"].as_str().unwrap();
    assert!(summary.contains("401 (invalid key) to the last of 6 to 30 requests"), "{summary}");
    assert!(summary.contains("what the 5 other attempts got is not in this log"), "{summary}");
    let audit = ran(&["audit", file, "--select", "RS102", "--all", "--format", "json"]).json();
    assert_eq!(audit["findings"][0]["verdict"], "unknown");
    let report = ran(&["report", "--root", file, "--format", "json"]).json();
    assert!(report["groups"][0]["waiting_ms"].is_null(), "no wait is in this log");
}

#[test]
fn a_fork_that_asked_nothing_yet_says_whose_its_entries_are() {
    let log = concat!(
        r#"{"type":"session","version":3,"id":"0199aaaa-0000-7000-8000-000000000402","timestamp":"2026-01-03T00:00:00.000Z","parentSession":"/s/x.jsonl"}"#,
        "\n",
        r#"{"type":"message","id":"u","timestamp":"2026-01-02T00:00:01.000Z","message":{"role":"user","timestamp":1767312001000}}"#,
        "\n",
    );
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("session.jsonl");
    std::fs::write(&file, log).unwrap();
    let told = ran(&["replay", file.to_str().unwrap()]).stdout;
    assert!(
        told.contains("before 2026-01-03T00:00:00Z are copies from the session it was forked from"),
        "{told}"
    );
}

#[test]
fn doctor_says_what_is_there_and_what_is_not() {
    let page = ran(&["doctor", "--root", "codex"]).stdout;
    assert!(page.contains("codex 0.171"), "the newest version decides: {page}");
    assert!(page.contains("exporter = { otlp-http"), "lines to copy: {page}");
    let json = ran(&["doctor", "--root", "rivumi", "--format", "json"]).json();
    assert_eq!(json["agents"][0]["agent"], "rivumi");
    assert_eq!(json["agents"][0]["runs"], 14);
    assert!(!json["unreadable"].as_array().unwrap().is_empty(), "a torn line is named");
    let nothing = ran(&["doctor"]);
    assert_eq!(nothing.code, 0);
    assert!(nothing.stdout.contains("none of the usual places"), "{}", nothing.stdout);
}

/// What a package installs: each command has a page, each shell its completions.
#[test]
fn pages_and_completions() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("man1");
    assert_eq!(ran(&["man", "--dir", folder.to_str().unwrap()]).code, 0);
    let help = ran(&["--help"]).stdout;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let page = std::fs::read_to_string(folder.join(format!("retryscope-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(folder.join("retryscoped.1").exists());
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = ran(&["completions", shell]).stdout;
        assert!(script.contains("replay") && script.contains("share"), "{shell}");
    }
}
