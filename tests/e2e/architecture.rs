//! The direction of dependencies between the crates.

use std::process::Command;

use serde_json::Value;

/// What each crate may know of ours.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("json", &[]),
    ("events", &["json"]),
    ("taxonomy", &[]),
    ("policy", &[]),
    ("record", &["events"]),
    ("tail", &["record"]),
    ("adapters", &["events", "json", "record"]),
    ("analysis", &["events", "policy", "record", "taxonomy"]),
    ("scan", &["adapters", "analysis", "policy", "record", "tail"]),
    ("report", &["analysis", "events", "policy", "record", "taxonomy"]),
];

/// What only some crates may pull in.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("tokio", &["daemon", "tail"]),
    ("axum", &["daemon"]),
    ("notify", &["daemon", "tail"]),
    ("clap", &["retryscope", "daemon"]),
    ("comfy-table", &["report"]),
    ("rusqlite", &["adapters"]),
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(super::support::repository())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn short(name: &str) -> &str {
    name.strip_prefix("retryscope-").unwrap_or(name)
}

#[test]
fn crates_know_only_what_they_may() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = short(package["name"].as_str().unwrap());
        let normal = package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null());
        for dependency in normal {
            let of = dependency["name"].as_str().unwrap();
            if let (true, Some((_, may))) =
                (of.starts_with("retryscope-"), MAY_KNOW.iter().find(|(n, _)| *n == name))
            {
                assert!(may.contains(&short(of)), "{name} must not know {of}");
            }
            if let Some((_, only)) = ONLY_IN.iter().find(|(crate_name, _)| *crate_name == of) {
                assert!(only.contains(&name), "{name} must not use {of}");
            }
        }
    }
}
