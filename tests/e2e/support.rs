//! Runs the real binary and finds the fixtures.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// The time that counts as now in all tests.
pub(crate) const NOW: &str = "2026-12-24T00:00:00Z";

pub(crate) use retryscope_testkit::{files, fixtures, repository};

/// Every fixture: name, folder with `logs/`, and what the server saw.
pub(crate) fn all_fixtures() -> Vec<(String, PathBuf, Value)> {
    retryscope_testkit::cases().into_iter().map(|case| (case.name, case.folder, case.truth)).collect()
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
