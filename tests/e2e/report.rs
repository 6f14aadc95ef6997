//! `report`: one screen over many runs, in all its forms, and two sets of runs beside each other.

use serde_json::Value;

use super::support::ran;

fn report(args: &[&str]) -> String {
    let done = ran(&[&["report"], args].concat());
    assert!(matches!(done.code, 0 | 3), "{}", done.stderr);
    done.stdout
}

#[test]
fn one_screen() {
    insta::assert_snapshot!(report(&["--root", "rivumi"]));
    insta::assert_snapshot!(report(&["--root", "rivumi", "--by", "agent,day", "--format", "markdown"]));
}

#[test]
fn the_forms_tell_the_same_numbers() {
    let json: Value = serde_json::from_str(&report(&["--root", ".", "--format", "json"])).unwrap();
    let groups = json["groups"].as_array().unwrap();
    let csv = report(&["--root", ".", "--format", "csv"]);
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
    assert_eq!(lines.clone().count(), groups.len());
    for (line, group) in lines.zip(groups) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells[column("provider")], group["keys"]["provider"].as_str().unwrap());
        assert_eq!(cells[column("runs")], group["runs"].to_string());
        let retries = &group["counts"]["retries"];
        let least = retries["value"].as_u64().or(retries["min"].as_u64());
        assert_eq!(cells[column("retries_min")].parse::<u64>().ok(), least, "{line}");
    }
    let runs: u64 = groups.iter().map(|group| group["runs"].as_u64().unwrap()).sum();
    assert_eq!(Some(runs), json["runs"].as_u64(), "each run is in one group");
}

#[test]
fn versions_beside_each_other() {
    insta::assert_snapshot!(report(&["--root", "claude-code", "--compare", "2.1.197..2.1.332"]));
    let both: Value = serde_json::from_str(&report(&[
        "--root",
        "claude-code",
        "--compare",
        "2026-11-28..2026-11-29T21:00:00Z",
        "--format",
        "json",
    ]))
    .unwrap();
    let runs = |side: &str| both[side]["runs"].as_u64().unwrap();
    let all: Value = serde_json::from_str(&report(&["--root", "claude-code", "--format", "json"])).unwrap();
    assert!(runs("before") > 0);
    assert_eq!(Some(runs("before") + runs("after")), all["runs"].as_u64(), "a time splits the runs");
}

#[test]
fn mistakes_are_told() {
    let said = |args: &[&str]| {
        let done = ran(&[&["report", "--root", "rivumi"], args].concat());
        assert_eq!(done.code, 2);
        done.stderr
    };
    assert!(said(&["--compare", "anthropic"]).contains("names no two sides"));
    assert!(said(&["--compare", "anthropic..nobody"]).contains("`nobody`"));
    assert!(said(&["--compare", "anthropic..gemini", "--format", "csv"]).contains("no such form"));
    assert!(said(&["--by", "prvider"]).contains("provider"));
}

#[test]
fn escapes_in_names_reach_no_form() {
    let folder = tempfile::tempdir().unwrap();
    let event = r#"{"v":1,"type":"model.response","ts":"2026-11-30T10:00:00.000Z","run_id":"r","agent":"\u001b]0;pwned\u0007a","request_id":"q","provider":"\u001b[31mp","model":"m","attempts":2}"#;
    std::fs::write(folder.path().join("e.jsonl"), event.to_owned() + "\n").unwrap();
    let root = folder.path().to_str().unwrap();
    for form in ["text", "markdown", "csv", "prom"] {
        let text = report(&["--root", root, "--by", "agent,provider", "--format", form]);
        assert!(text.contains("pwned"), "{form}: {text}");
        assert!(!text.contains(|c: char| c != '\n' && c.is_control()), "{form}: {text:?}");
    }
}

/// The metrics have the findings that the other forms have, but for runs that go on.
#[test]
fn metrics_tell_the_findings() {
    let json: Value = serde_json::from_str(&report(&["--root", ".", "--format", "json"])).unwrap();
    let found = json["findings"].as_array().unwrap();
    let text = report(&["--root", ".", "--format", "prom"]);
    let mut told = 0;
    for finding in found {
        let rule = format!("rule={}", finding["rule"]);
        let lines =
            text.lines().filter(|l| l.starts_with("retryscope_audit_findings_total{") && l.contains(&rule));
        let runs: u64 = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert!(Some(runs) <= finding["runs"].as_u64(), "{rule}");
        told += u64::from(runs > 0);
    }
    assert!(told > 0);
}
