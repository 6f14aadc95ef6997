//! The direction of dependencies between the crates.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// What each crate may know of ours.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("json", &[]),
    ("events", &["json"]),
    ("taxonomy", &[]),
    ("policy", &[]),
    ("record", &["events"]),
    ("tail", &[]),
    ("adapters", &["events", "json", "record"]),
    ("analysis", &["events", "policy", "record", "taxonomy"]),
    ("scan", &["adapters", "analysis", "policy", "record", "tail"]),
    ("report", &["analysis", "events", "record"]),
    ("daemon", &["adapters", "analysis", "events", "policy", "record", "report", "scan", "tail"]),
    // The program packs every face, the daemon's manual page included.
    ("retryscope", &["analysis", "daemon", "events", "policy", "record", "report", "scan", "taxonomy"]),
    ("testkit", &[]),
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

/// Names of packages, short, in order.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    all.map(short).collect()
}

#[test]
fn crates_know_what_they_may() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let listed: BTreeSet<&str> = MAY_KNOW.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(packages.iter().filter_map(|package| package["name"].as_str())), listed);
    for package in packages {
        let name = short(package["name"].as_str().unwrap());
        let normal = package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null());
        let normal: Vec<&str> = normal.map(|dependency| dependency["name"].as_str().unwrap()).collect();
        let ours = names(normal.iter().copied().filter(|of| of.starts_with("retryscope-")));
        let (_, may) = MAY_KNOW.iter().find(|(listed, _)| *listed == name).unwrap();
        // What nobody uses is no longer allowed.
        assert_eq!(ours, may.iter().copied().collect(), "{name}");
        for of in normal {
            if let Some((_, only)) = ONLY_IN.iter().find(|(crate_name, _)| *crate_name == of) {
                assert!(only.contains(&name), "{name} must not use {of}");
            }
        }
    }
}
