//! Every fixture: what is claimed contains what the server saw, and what a person reads is as it was last looked at.

use serde_json::Value;

use super::support::{all_fixtures, files, fixtures, ran, retryscope, run};

/// Ends of a claimed count; `None` = not visible. The upper end `None` = no bound.
fn ends(count: &Value) -> Option<(u64, Option<u64>)> {
    if let Some(value) = count["value"].as_u64() {
        return Some((value, Some(value)));
    }
    count["min"].as_u64().map(|min| (min, count["max"].as_u64()))
}

/// Claims that each of the tests below looks at, at least: hardly any log says nothing.
const LEAST_CHECKED: usize = 100;

#[test]
fn no_claim_excludes_the_truth() {
    let mut checked = 0;
    for (name, case, truth) in all_fixtures() {
        let logs = case.join("logs");
        let answer = ran(&["runs", "--root", logs.to_str().unwrap(), "--format", "json"]).json();
        let runs = answer["runs"].as_array().unwrap();
        assert!(!runs.is_empty(), "{name}: no run found");
        for field in ["logical_requests", "upstream_requests", "retries"] {
            let Some(true_min) = truth[field].as_u64() else { continue };
            let true_max = truth[format!("{field}_max")].as_u64().unwrap_or(true_min);
            let claims: Option<Vec<_>> = runs.iter().map(|run| ends(&run["counts"][field])).collect();
            let Some(claims) = claims else { continue };
            checked += 1;
            let low: u64 = claims.iter().map(|(min, _)| min).sum();
            let high: Option<u64> = claims.iter().map(|(_, max)| *max).sum();
            assert!(
                true_max >= low && high.is_none_or(|high| true_min <= high),
                "{name}: {field} is {true_min} to {true_max}, claimed {low} to {high:?}"
            );
        }
        let newest = runs
            .iter()
            .filter(|run| run["run"]["parent_run_id"].is_null())
            .max_by_key(|run| run["run"]["ended_at"].as_str().unwrap_or_default().to_owned())
            .unwrap();
        let outcome = newest["run"]["outcome"].as_str().unwrap();
        let stopped = ["cancelled", "interrupted", "unknown", "running"];
        let expected = truth["outcome"].as_str().unwrap();
        let also = truth["outcome_also"].as_array().is_some_and(|a| a.iter().any(|o| o == outcome));
        let alike = stopped.contains(&outcome) && stopped.contains(&expected);
        assert!(outcome == expected || also || alike, "{name}: outcome is {expected}, claimed {outcome}");
    }
    assert!(checked > LEAST_CHECKED, "{checked}");
}

/// Each file alone holds less, and so may claim less, but nothing wrong. Runs that are spread over several files are left
/// out: one file is then only a part of the truth.
#[test]
fn a_single_log_claims_nothing_wrong() {
    let mut checked = 0;
    let spread = ["resume", "fork", "subagent", "compact", "two_turn"];
    for (name, case, truth) in all_fixtures() {
        if spread.iter().any(|word| name.contains(word)) {
            continue;
        }
        let logs = case.join("logs");
        for file in files(&logs) {
            let scratch = tempfile::tempdir().unwrap();
            let place = scratch.path().join(file.strip_prefix(&logs).unwrap());
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::copy(&file, &place).unwrap();
            let answer = ran(&["runs", "--root", scratch.path().to_str().unwrap(), "--format", "json"]);
            // A file that no adapter reads alone is no answer.
            let runs = answer.json()["runs"].as_array().cloned().unwrap_or_default();
            let claims: Option<Vec<_>> =
                runs.iter().map(|run| ends(&run["counts"]["upstream_requests"])).collect();
            let (Some(claims), Some(true_min)) = (claims, truth["upstream_requests"].as_u64()) else {
                continue;
            };
            let true_max = truth["upstream_requests_max"].as_u64().unwrap_or(true_min);
            checked += usize::from(!claims.is_empty());
            let low: u64 = claims.iter().map(|(min, _)| min).sum();
            let high: Option<u64> = claims.iter().map(|(_, max)| *max).sum();
            assert!(
                low <= true_max && (claims.is_empty() || high.is_none_or(|high| true_min <= high)),
                "{}: {low} to {high:?}, the server saw {true_min} to {true_max}",
                file.display()
            );
        }
    }
    assert!(checked > LEAST_CHECKED, "{checked}");
}

#[test]
fn all_fixtures_at_once_give_the_same_numbers_as_each_alone() {
    let together = ran(&["runs", "--root", ".", "--format", "json"]).json();
    let together = together["runs"].as_array().unwrap();
    for (name, case, _) in all_fixtures() {
        let logs = case.join("logs").strip_prefix(fixtures()).unwrap().to_owned();
        let alone = ran(&["runs", "--root", logs.to_str().unwrap(), "--format", "json"]).json();
        for run in alone["runs"].as_array().unwrap() {
            let same: Vec<&Value> = together
                .iter()
                .filter(|other| {
                    other["run"]["run_id"] == run["run"]["run_id"]
                        && other["run"]["agent"] == run["run"]["agent"]
                })
                .collect();
            assert_eq!(same.len(), 1, "{name}: {}", run["run"]["run_id"]);
            assert_eq!(same[0]["counts"], run["counts"], "{name}: {}", run["run"]["run_id"]);
            assert_eq!(same[0]["run"]["outcome"], run["run"]["outcome"], "{name}");
        }
    }
}

/// What a person reads of each fixture.
#[test]
fn pages_read_as_they_did() {
    for (name, case, _) in all_fixtures() {
        let logs = case.join("logs").strip_prefix(fixtures()).unwrap().to_owned();
        for width in ["80", "120"] {
            let mut command = retryscope(&["replay", logs.to_str().unwrap(), "--evidence"]);
            command.env("COLUMNS", width);
            let page = run(command);
            assert!(!page.stdout.contains('\u{1b}'), "{name}: an escape reached the terminal");
            let label = format!("{}_{width}", name.replace('/', "__"));
            insta::with_settings!({snapshot_path => "../snapshots/pages", prepend_module_to_snapshot => false}, {
                insta::assert_snapshot!(label, page.stdout);
            });
        }
    }
}

#[test]
fn the_founding_case_is_told_in_a_sentence() {
    let page = ran(&["replay", "run-123", "--root", "."]);
    insta::assert_snapshot!(page.stdout);
    let brief = ran(&["replay", "run-123", "--root", ".", "--format", "brief"]);
    insta::assert_snapshot!(brief.stdout);
    let full = ran(&["replay", "run-123", "--root", ".", "--format", "json"]).json();
    assert_eq!(full["schema"], "retryscope.replay/1");
    assert_eq!(full["cause"]["class"], "transient");
    assert_eq!(full["counts"]["logical_requests"]["value"], 2);
    assert_eq!(full["counts"]["upstream_requests"]["min"], 11);
    assert_eq!(full["counts"]["upstream_requests"]["max"], 33);
}
