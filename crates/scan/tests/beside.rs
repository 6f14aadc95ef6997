//! Settings of an agent that lie beside its logs are read whatever the root is: without them a count may be said to be
//! exact that is not.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs;
use std::path::{Path, PathBuf};

use retryscope_analysis::Bound;
use retryscope_scan::Scan;
use retryscope_testkit::copy;
use tempfile::TempDir;

/// What the logs of a fixture's home say, in a home of another form: files by their new place, of their old one.
fn home(fixture: &str, files: &[(&str, &str)]) -> TempDir {
    let from = retryscope_testkit::fixtures().join(fixture).join("logs/home");
    let to = tempfile::tempdir().unwrap();
    for (old, new) in files {
        copy(&from.join(old), &to.path().join(new));
    }
    to
}

/// The requests sent, of the only run below a root.
fn sent(root: PathBuf) -> Bound {
    let runs = Scan::of_roots(&[root]).runs("2026-12-24T00:00:00Z".parse().unwrap());
    assert_eq!(runs.len(), 1, "{runs:#?}");
    runs[0].counts.upstream_requests.bound
}

/// The first file below a folder.
fn file_below(folder: &Path) -> PathBuf {
    let entry = fs::read_dir(folder).unwrap().map(Result::unwrap).next().unwrap().path();
    if entry.is_dir() { file_below(&entry) } else { entry }
}

/// A run of pi whose provider repeated within what the log shows as one request; its settings allow two repeats.
const HIDDEN: &str = "pi/provider-retries-hidden";
const SESSIONS: (&str, &str) = (".pi/agent/sessions", ".pi/agent/sessions");
const SETTINGS: (&str, &str) = (".pi/agent/settings.json", ".pi/agent/settings.json");

#[test]
fn settings_above_the_root_are_in_force() {
    let in_force = Bound::range(1, Some(3));
    let home = home(HIDDEN, &[SESSIONS, SETTINGS]);
    let sessions = home.path().join(SESSIONS.0);
    assert_eq!(sent(home.path().to_path_buf()), in_force);
    assert_eq!(sent(sessions.clone()), in_force);
    assert_eq!(sent(fs::read_dir(&sessions).unwrap().map(Result::unwrap).next().unwrap().path()), in_force);
    assert_eq!(sent(file_below(&sessions)), in_force);
}

#[test]
fn settings_beside_logs_in_a_folder_of_any_name_are_in_force() {
    let home = home(HIDDEN, &[(SESSIONS.0, "agents/one/sessions"), (SETTINGS.0, "agents/one/settings.json")]);
    assert_eq!(sent(home.path().to_path_buf()), Bound::range(1, Some(3)));
    assert_eq!(sent(home.path().join("agents/one/sessions")), Bound::range(1, Some(3)));
}

#[test]
#[cfg(unix)]
fn settings_are_in_force_over_links_to_and_from_the_logs() {
    let home = home(HIDDEN, &[(SESSIONS.0, "data/logs"), (SETTINGS.0, "agent/settings.json")]);
    std::os::unix::fs::symlink(home.path().join("data/logs"), home.path().join("agent/sessions")).unwrap();
    assert_eq!(sent(home.path().join("agent/sessions")), Bound::range(1, Some(3)));
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("link");
    copy(&home.path().join("data/logs"), &home.path().join("two/sessions"));
    copy(&home.path().join("agent/settings.json"), &home.path().join("two/settings.json"));
    std::os::unix::fs::symlink(home.path().join("two/sessions"), &link).unwrap();
    assert_eq!(sent(link), Bound::range(1, Some(3)));
}

#[test]
fn settings_of_another_home_or_agent_are_not() {
    for elsewhere in ["two/settings.json", "settings.json", "one/sessions/settings.json", "one/config.yml"] {
        let home = home(HIDDEN, &[(SESSIONS.0, "one/sessions"), (SETTINGS.0, elsewhere)]);
        assert_eq!(sent(home.path().to_path_buf()), Bound::exact(1), "{elsewhere}");
    }
}
