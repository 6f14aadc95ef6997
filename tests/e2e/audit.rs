//! The audit: each rule on a case that breaks it, one that nearly does, and one that cannot tell; all rules on all
//! recordings; the forms for other programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::support::{all_fixtures, fixtures, ran, repository};

/// Rules that look below an agent's log, or at its subagents, need a recording of a known agent.
const ON_RECORDINGS: [(&str, &str, &str); 3] = [
    ("RS301", "codex/resume-after-failure", "codex/ok"),
    ("RS302", "codex/http-503-giveup-defaults", "codex/http-500-500-ok"),
    ("RS702", "claude-code/v10-503-persistent", "claude-code/503-persistent"),
];

/// Verdicts of one rule on one path.
fn verdicts(rule: &str, path: &str) -> BTreeSet<String> {
    let answer = ran(&["audit", path, "--select", rule, "--all", "--format", "json"]).json();
    let findings = answer["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["verdict"].as_str().unwrap().to_owned()).collect()
}

fn codes() -> Vec<String> {
    let text = ran(&["audit", "--rules"]).stdout;
    text.lines().filter_map(|line| Some(line.strip_prefix("## ")?.split_once(' ')?.0.to_owned())).collect()
}

#[test]
fn each_rule_fires_and_does_not_fire() {
    let codes = codes();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        if let Some((_, fires, near)) = ON_RECORDINGS.iter().find(|(rule, ..)| *rule == code) {
            assert!(verdicts(&code, &format!("./{fires}/logs")).contains("violation"), "{code} on {fires}");
            assert!(!verdicts(&code, &format!("./{near}/logs")).contains("violation"), "{code} on {near}");
            continue;
        }
        let on = |case: &str| verdicts(&code, &format!("./rules/{code}/{case}.jsonl"));
        assert!(on("fires").contains("violation"), "{code} does not fire");
        let near = on("near");
        assert!(
            !near.contains("violation") && !near.contains("unknown"),
            "{code} on the near miss: {near:?}"
        );
        let unknown = on("unknown");
        assert!(
            !unknown.contains("violation") && !unknown.contains("pass"),
            "{code} without evidence: {unknown:?}"
        );
    }
}

#[test]
fn all_recordings_as_last_looked_at() {
    let mut out = String::new();
    for (name, case, _) in all_fixtures() {
        let answer = ran(&["audit", case.join("logs").to_str().unwrap(), "--format", "json"]).json();
        let rules: BTreeSet<&str> =
            answer["findings"].as_array().unwrap().iter().map(|f| f["rule"].as_str().unwrap()).collect();
        if name.ends_with("/ok") {
            assert!(rules.is_empty(), "{name} is clean: {rules:?}");
        }
        writeln!(out, "{name}: {}", rules.into_iter().collect::<Vec<_>>().join(" ")).unwrap();
    }
    insta::with_settings!({snapshot_path => repository().join("tests/snapshots/pages"), prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("audit-of-recordings", out);
    });
}

#[test]
fn a_page_a_person_reads() {
    insta::assert_snapshot!(ran(&["audit", "./codex/http-429-no-retry-after/logs"]).whole());
    insta::assert_snapshot!(ran(&["audit", "--explain", "rs201"]).whole());
    insta::assert_snapshot!(ran(&["audit", "--explain", "RS999"]).whole());
}

#[test]
fn replay_and_audit_find_the_same() {
    let logs = "./codex/http-401/logs";
    let audit = ran(&["audit", logs, "--format", "json"]).json();
    let replay = ran(&["replay", logs, "--format", "json"]).json();
    assert_eq!(audit["findings"], replay["findings"]);
    assert!(!replay["findings"].as_array().unwrap().is_empty());
}

#[test]
fn a_dead_subagent_of_a_successful_run() {
    assert!(verdicts("RS703", "./rules/RS703/subagent.jsonl").contains("violation"));
}

/// The cases of the tool rules show all but two of the seven: what went wrong in one of them counts.
#[test]
fn the_pack_says_what_is_shown_and_what_went_wrong() {
    let page = |paths: &[&str]| ran(&[&["audit", "--pack", "tool-retry"], paths].concat());
    let good = page(&[
        "./rules/RS501/near.jsonl",
        "./rules/RS502/near.jsonl",
        "./rules/RS503/near.jsonl",
        "./rules/RS504/near.jsonl",
        "./events/tool-rate-limit-then-ok",
    ]);
    assert_eq!(good.code, 0);
    insta::assert_snapshot!("pack_good", good.stdout);
    let bad = page(&["./rules/RS501/fires.jsonl", "./rules/RS503/near.jsonl"]);
    assert_eq!(bad.code, 1);
    insta::assert_snapshot!("pack_bad", bad.stdout);
}

#[test]
fn a_baseline_hides_what_is_known() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("known.json");
    let file = file.to_str().unwrap();
    let logs = fixtures().join("codex/http-401/logs");
    let logs = logs.to_str().unwrap();
    assert_eq!(ran(&["audit", logs]).code, 1);
    assert_eq!(ran(&["audit", logs, "--baseline", file, "--write-baseline"]).code, 0);
    assert_eq!(ran(&["audit", logs, "--baseline", file]).code, 0);
}

#[test]
fn sarif_names_rule_file_and_line() {
    let sarif: Value = ran(&["audit", "./codex/http-401/logs", "--format", "sarif"]).json();
    assert_eq!(sarif["version"], "2.1.0");
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "RS102");
    let place = &result["locations"][0]["physicalLocation"];
    assert!(place["artifactLocation"]["uri"].as_str().unwrap().contains("http-401"));
    assert!(place["region"]["startLine"].as_u64().unwrap() > 0);
    let known: BTreeSet<&str> = sarif["runs"][0]["tool"]["driver"]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["id"].as_str().unwrap())
        .collect();
    assert!(known.contains("RS102"));
}

#[test]
fn junit_counts_failures() {
    let junit = ran(&["audit", "./codex/http-401/logs", "--format", "junit"]).stdout;
    assert!(junit.contains("failures=\"1\""), "{junit}");
    assert!(junit.contains("<failure message=\"401"), "{junit}");
}

#[test]
fn the_rules_are_documented_as_they_are() {
    let page = std::fs::read_to_string(repository().join("crates/analysis/RULES.md")).unwrap_or_default();
    assert_eq!(
        page,
        ran(&["audit", "--rules"]).stdout,
        "write it again: retryscope audit --rules > crates/analysis/RULES.md"
    );
}
