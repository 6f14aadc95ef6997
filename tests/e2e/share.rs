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
