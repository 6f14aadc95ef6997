//! Runs the real binary and finds the fixtures.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The time that counts as now in all tests.
pub(crate) const NOW: &str = "2026-12-24T00:00:00Z";

/// Root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folder of the fixtures.
pub(crate) fn fixtures() -> PathBuf {
    repository().join("tests/fixtures")
}

/// Every fixture: a folder with `logs/` and `truth.json`.
pub(crate) fn all_fixtures() -> Vec<(String, PathBuf, Value)> {
    let mut found = Vec::new();
    let folders = std::fs::read_dir(fixtures()).unwrap().map(|e| e.unwrap().path());
    // `rules` holds cases of the audit, which have no server that saw anything.
    for agent in folders.filter(|path| path.is_dir() && !path.ends_with("rules")) {
        for case in std::fs::read_dir(&agent).unwrap().map(|e| e.unwrap().path()) {
            let truth =
                std::fs::read(case.join("truth.json")).unwrap_or_else(|e| panic!("{}: {e}", case.display()));
            let name = format!("{}/{}", file_name(&agent), file_name(&case));
            found.push((name, case, serde_json::from_slice(&truth).unwrap()));
        }
    }
    assert!(found.len() > 30, "fixtures are missing");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// A command of the real binary in an empty home, with fixed time, zone and width.
pub(crate) fn retryscope(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retryscope"));
    command
        .args(args)
        .args(["--as-of", NOW])
        .env_clear()
        .env("TZ", "UTC")
        .env("COLUMNS", "100")
        .env("HOME", "/nonexistent")
        .current_dir(fixtures());
    command
}

/// What a command printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}\n{}", self.stdout, self.stderr))
    }

    /// Exit code and both streams, for snapshots.
    pub(crate) fn whole(&self) -> String {
        format!("exit {}\n--- stdout\n{}--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Ran {
        code: status.code().expect("ended by a signal"),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// Runs the binary with arguments.
pub(crate) fn ran(args: &[&str]) -> Ran {
    run(retryscope(args))
}
