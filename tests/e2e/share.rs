//! `replay --share`: what may be shown to strangers holds nothing that says whose run it was.

use std::collections::BTreeSet;

use serde_json::Value;

use super::support::{all_fixtures, ran};

/// Collects the strings that name a run, a request, a file or a place.
fn names(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let names_somebody = [
                    "run_id",
                    "parent_run_id",
                    "request_id",
                    "attempt_id",
                    "upstream_request_id",
                    "file",
                    "endpoint",
                    "account",
                ]
                .contains(&key.as_str());
                match value {
                    Value::String(name) if names_somebody => {
                        into.extend(name.split(['/', ':']).map(str::to_owned));
                    }
                    other => names(other, into),
                }
            }
            if let Some(Value::Array(files)) = fields.get("files") {
                into.extend(
                    files.iter().filter_map(Value::as_str).flat_map(|f| f.split('/')).map(str::to_owned),
                );
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, into)),
        _ => {}
    }
}

#[test]
fn nothing_that_names_somebody_is_left() {
    let mut looked_at = 0;
    for (fixture, folder, _) in all_fixtures() {
        let logs = folder.join("logs");
        let logs = logs.to_str().unwrap();
        let mut private = BTreeSet::new();
        let open = ran(&["replay", logs, "--format", "json"]);
        for object in open.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            names(&object, &mut private);
        }
        // Words that stand in every answer.
        private.retain(|name| name.len() > 8 && name.chars().any(|c| c.is_ascii_digit()));
        looked_at += private.len();
        for form in ["text", "json"] {
            let shared = ran(&["replay", logs, "--share", "--evidence", "--turn", "all", "--format", form]);
            assert_eq!(shared.code, open.code, "{fixture}");
            for name in &private {
                assert!(!shared.stdout.contains(name), "{fixture}: {name} is left in the {form}");
                assert!(!shared.stderr.contains(name), "{fixture}: {name} is left on standard error");
            }
        }
    }
    assert!(looked_at > 200, "only {looked_at} names were looked for");
}

#[test]
fn the_numbers_stay() {
    let counts = |more: &[&str]| {
        let args = [&["replay", "run-123", "--root", "rivumi", "--format", "json"], more].concat();
        let json = ran(&args).json();
        (
            json["counts"].clone(),
            json["amplification"].clone(),
            json["time"].clone(),
            json["cause"]["status"].clone(),
        )
    };
    assert_eq!(counts(&["--share"]), counts(&[]));
    let hidden = ran(&["replay", "run-123", "--root", "rivumi", "--share"]).stdout;
    assert!(!hidden.contains("run-123"));
    assert!(hidden.contains("nvidia-nim") && hidden.contains("llama-3.3-70b"), "{hidden}");
}

/// A log that says private names wherever a writer may put one, in several spellings.
const PRIVATE: &str = r#"
{"type":"run.started","agent_version":"1.2","data_class":"Projekt Falke","candidates":[{"provider":"acmecloud","model":"gpt-5","endpoint":"https://llm.acmecloud.test/v1","region":"dc-falkensee","account":"Team Rot","transport":"falkenlink"},{"provider":"zweitcloud","model":"acmecloud/gpt-5-mini","region":"dc-zweitort","account":"reserve-konto"}]}
{"type":"model.request","request_id":"q1","purpose":"falken summary","provider":"acmecloud","model":"gpt-5","region":"dc-falkensee","account":"Team Rot","endpoint":"https://llm.acmecloud.test/v1"}
{"type":"model.attempt","request_id":"q1","attempt_id":"q1-a1","parent_attempt_id":"outer-a1","attempt":1,"outcome":"failed","provider":"acmecloud","model":"gpt-5","region":"dc-falkensee","account":"Team Rot","endpoint":"https://llm.acmecloud.test/v1","status":503,"terminal_event":"falkenlink.closed","message":"ACMECLOUD: zone DC-FALKENSEE of team rot is down, see acmecloud-status and ZweitCloudBackup; ACMECLOUD_KEY was sent for Projekt Falke"}
{"type":"model.fallback","request_id":"q1","from":{"provider":"acmecloud","model":"gpt-5"},"to":{"provider":"zweitcloud","model":"acmecloud/gpt-5-mini","account":"reserve-konto"},"changed":["falkenlink"]}
{"type":"model.failed","request_id":"q1","provider":"zweitcloud","model":"acmecloud/gpt-5-mini","status":503,"message":"reserve-konto: dc-zweitort is down"}
{"type":"tool.attempt","call_id":"call-falke","tool":"acmecloud_deploy","attempt":1,"status":"failed","effect":"falkeneffekt","replay_policy":"never","error_code":"ACMECLOUD_DOWN"}
{"type":"run.finished","outcome":"failed","terminal_reason":"gave up on acmecloud in dc-falkensee"}
"#;

#[test]
fn private_names_are_gone_wherever_a_writer_puts_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("events.jsonl");
    let lines = PRIVATE.trim().lines().enumerate().map(|(n, line)| {
        let envelope = format!(
            "{{\"v\":1,\"ts\":\"2026-11-29T20:00:0{n}.000Z\",\"run_id\":\"falken-run\",\"agent\":\"acmebot\","
        );
        line.replacen('{', &envelope, 1) + "\n"
    });
    std::fs::write(&log, lines.collect::<String>()).unwrap();
    let log = log.to_str().unwrap();
    let secrets = ["acme", "falke", "zweit", "reserve", "team rot", "konto"];
    let all: &[&str] = &["--evidence", "--turn", "all"];
    for (form, more) in [
        ("text", all),
        ("json", all),
        ("brief", all),
        ("text", &["--recipients"]),
        ("json", &["--recipients"]),
    ] {
        let args = [&["replay", log, "--share", "--format", form], more].concat();
        let shared = ran(&args);
        assert_eq!(shared.code, 0, "{}", shared.whole());
        for secret in secrets {
            assert!(
                !shared.whole().to_lowercase().contains(secret),
                "{secret} is left in {args:?}:\n{}",
                shared.whole()
            );
        }
    }
    let text = ran(&["replay", log, "--share", "--evidence"]).stdout;
    assert!(text.contains("gpt-5") && text.contains("503"), "{text}");
}
