//! The audit: each rule on a case that breaks it, one that nearly does, and one that cannot tell; all rules on all
//! recordings; the forms for other programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::support::{all_fixtures, fixtures, ran, repository};

/// Rules that look below an agent's log need a recording of a known agent: one that breaks the rule, one that nearly does,
/// and one that cannot tell.
const ON_RECORDINGS: [(&str, [&str; 3]); 3] = [
    ("RS301", ["codex/resume-after-failure/logs", "codex/ok/logs", "codex/http-401/logs"]),
    (
        "RS302",
        ["codex/http-503-giveup-defaults/logs", "codex/http-500-500-ok/logs", "rules/RS302/unknown.jsonl"],
    ),
    (
        "RS702",
        [
            "claude-code/v10-503-persistent/logs",
            "claude-code/503-persistent/logs",
            "rules/RS702/unknown.jsonl",
        ],
    ),
];

/// Verdicts of one rule on one path.
fn verdicts(rule: &str, path: &str) -> BTreeSet<String> {
    let answer = ran(&["audit", path, "--select", rule, "--all", "--format", "json"]).json();
    let findings = answer["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["verdict"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn advice_names_only_what_can_change_something() {
    // Switched off already; the next one rules the same loop.
    let off = ran(&["replay", "omp/retry-disabled-anthropic-529/logs"]).stdout;
    assert!(
        off.contains("RS304") && !off.contains("set retry.enabled") && !off.contains("lower retry."),
        "{off}"
    );
    let on = ran(&["replay", "omp/persistent-503-defaults/logs"]).stdout;
    assert!(on.contains("set retry.enabled: false") && on.contains("lower retry.maxRetries"), "{on}");
    // A loop that this setting does not bound, and the one that it does.
    let advice = |path: &str| {
        let answer = ran(&["audit", path, "--select", "RS102", "--format", "json"]).json();
        answer["findings"][0]["fix"].as_str().map(str::to_owned)
    };
    assert_eq!(advice("./claude-code/422/logs"), None);
    assert!(advice("./claude-code/401/logs").unwrap().contains("CLAUDE_CODE_MAX_RETRIES"));
}

fn codes() -> Vec<String> {
    let text = ran(&["audit", "--rules"]).stdout;
    text.lines().filter_map(|line| Some(line.strip_prefix("## ")?.split_once(' ')?.0.to_owned())).collect()
}

#[test]
fn each_rule_fires_and_does_not_fire() {
    let codes = codes();
    assert!(codes.len() > 45, "{codes:?}");
    for code in codes {
        let recorded = ON_RECORDINGS.iter().find(|(rule, _)| *rule == code).map(|(_, paths)| *paths);
        let own = ["fires", "near", "unknown"].map(|case| format!("rules/{code}/{case}.jsonl"));
        let [fires, near, unknown] = match recorded {
            Some(paths) => paths.map(|path| verdicts(&code, &format!("./{path}"))),
            None => own.map(|path| verdicts(&code, &format!("./{path}"))),
        };
        assert!(fires.contains("violation"), "{code} does not fire: {fires:?}");
        assert!(!near.contains("violation"), "{code} on the near miss: {near:?}");
        // A recording of a whole run may leave other things open.
        assert!(recorded.is_some() || !near.contains("unknown"), "{code} on the near miss: {near:?}");
        assert!(unknown.contains("unknown"), "{code} without evidence: {unknown:?}");
        assert!(!unknown.contains("violation"), "{code} without evidence: {unknown:?}");
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

/// The same runs, held to a policy of one's own: limits, and who may receive what.
#[test]
fn a_policy_of_ones_own() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("policy.toml");
    let policy = |text: &str| std::fs::write(&file, text).unwrap();
    let of = |rule: &str, path: &str, more: &[&str]| {
        let file = file.to_str().unwrap();
        let args = [&["audit", path, "--select", rule, "--policy", file, "--all", "--format", "json"], more]
            .concat();
        let answer = ran(&args).json();
        let findings = answer["findings"].as_array().unwrap();
        findings
            .iter()
            .map(|finding| finding["verdict"].as_str().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    policy("[recipients.default]\nto = \"same-provider\"\n[recipients.open]\nto = \"any\"\n");
    let moved = "./rules/RS402/near.jsonl";
    assert!(of("RS401", moved, &[]).contains("violation"), "the rule for `default`");
    assert!(!of("RS401", moved, &["--data-class", "open"]).contains("violation"));
    assert!(of("RS401", moved, &["--data-class", "secret"]).contains("unknown"), "no rule for that class");
    policy("[recipients.default]\nto = \"any\"\nregions = [\"eu-west-1\"]\n");
    assert!(of("RS401", moved, &[]).contains("unknown"), "the log names no region");
    policy("[[rows]]\nclass = \"transient\"\nattempts = 2\n");
    assert!(of("RS304", "./rules/RS203/fires.jsonl", &[]).contains("violation"), "4 attempts, 2 allowed");
    policy("[budget]\nlimit = 0.5\nfloor = 1\n");
    assert!(of("RS303", "./rules/RS203/fires.jsonl", &[]).contains("violation"), "3 of 4 requests");
    policy("[[rows]]\nclass = \"throttled\"\nretry_after_cap_ms = 10000\n");
    assert!(of("RS202", "./rules/RS202/near.jsonl", &[]).is_empty(), "another class");
    policy("[[rows]]\nclass = \"transient\"\nretry_after_cap_ms = 10000\n");
    assert!(of("RS202", "./rules/RS202/near.jsonl", &[]).contains("violation"), "20 s, 10 s allowed");
    policy("atempts = 2\n");
    let wrong = ran(&["audit", moved, "--policy", file.to_str().unwrap()]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains(":1:1:") && wrong.stderr.contains("atempts"), "{}", wrong.stderr);
}

#[test]
fn who_received_content() {
    insta::assert_snapshot!(ran(&["replay", "--recipients", "./rules/RS401/fires.jsonl"]).whole());
    let json = ran(&["replay", "--recipients", "./rules/RS401/fires.jsonl", "--format", "json"]).json();
    let received = json["recipients"].as_array().unwrap();
    let providers: Vec<&str> =
        received.iter().map(|recipient| recipient["candidate"]["provider"].as_str().unwrap()).collect();
    assert_eq!(providers, ["openai", "anthropic"]);
    let refused = ran(&["replay", "--recipients", "./codex/conn-refused/logs"]);
    assert!(refused.stdout.contains("no request that could have carried content"), "{}", refused.stdout);
}

/// What needs several runs is not said of one of them alone.
#[test]
fn rules_over_several_runs() {
    for code in ["RS108", "RS204", "RS209", "RS308"] {
        let path = fixtures().join(format!("rules/{code}/fires.jsonl"));
        let text = std::fs::read_to_string(path).unwrap();
        let first = serde_json::from_str::<Value>(text.lines().next().unwrap()).unwrap()["run_id"].clone();
        let scratch = tempfile::tempdir().unwrap();
        let alone = scratch.path().join("one.jsonl");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(first.as_str().unwrap())).collect();
        std::fs::write(&alone, lines.join("\n") + "\n").unwrap();
        assert_eq!(verdicts(code, alone.to_str().unwrap()), BTreeSet::new(), "{code}");
    }
}

#[test]
fn a_dead_subagent_of_a_successful_run() {
    assert!(verdicts("RS703", "./rules/RS703/subagent.jsonl").contains("violation"));
    assert!(verdicts("RS603", "./rules/RS603/overflow.jsonl").contains("violation"));
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
