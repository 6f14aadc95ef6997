//! Where it looks: roots by flag, by environment and by configuration file, with names and variables of any bytes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::Command;

use retryscope_testkit::copy;

use super::support::{Ran, fixtures, retryscope, run};

const ONE: &str = "codex/http-401";
const OTHER: &str = "pi/401";

/// Runs that a listing found, by agent.
fn agents(ran: &Ran) -> Vec<String> {
    let runs = ran.json()["runs"].as_array().unwrap_or_else(|| panic!("{}", ran.whole())).clone();
    let mut agents: Vec<_> =
        runs.iter().map(|run| run["run"]["agent"].as_str().unwrap().to_owned()).collect();
    agents.sort();
    agents
}

fn listing(set: impl Fn(&mut Command) -> &mut Command) -> Ran {
    let mut command = retryscope(&["runs", "--format", "json", "--no-cache"]);
    set(&mut command);
    run(command)
}

fn with_roots(value: &str) -> Ran {
    listing(|command| command.env("RETRYSCOPE_ROOTS", value))
}

#[test]
fn roots_may_come_from_the_environment() {
    assert_eq!(agents(&with_roots(ONE)), ["codex"]);
    assert_eq!(agents(&with_roots(&format!("{ONE}:{OTHER}"))), ["codex", "pi"]);
    assert_eq!(agents(&with_roots(&format!(":{ONE}:"))), ["codex"]);
    let flag = listing(|command| command.env("RETRYSCOPE_ROOTS", ONE).args(["--root", OTHER]));
    assert_eq!(agents(&flag), ["pi"]);
    // Nothing is named: the usual places.
    let nothing = listing(|command| command.env("RETRYSCOPE_ROOTS", "").env("HOME", home_of(ONE)));
    assert_eq!(agents(&nothing), ["codex"]);
}

fn home_of(fixture: &str) -> std::path::PathBuf {
    fixtures().join(fixture).join("logs/home")
}

#[test]
fn roots_may_come_from_the_configuration_file() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/retryscope");
    fs::create_dir_all(&folder).unwrap();
    let configured = |text: &str, set: &dyn Fn(&mut Command) -> &mut Command| {
        fs::write(folder.join("config.toml"), text).unwrap();
        listing(|command| set(command.env("HOME", home.path())))
    };
    let other = format!("roots = [\"{}\"]\nlisten = \"127.0.0.1:9\"\n", fixtures().join(OTHER).display());
    assert_eq!(agents(&configured(&other, &|command| command)), ["pi"]);
    assert_eq!(agents(&configured(&other, &|command| command.env("RETRYSCOPE_ROOTS", ONE))), ["codex"]);
    assert_eq!(agents(&configured(&other, &|command| command.args(["--root", ONE]))), ["codex"]);
    // A tilde is the home, and what is not there is told.
    let gone = configured("roots = [\"~/gone\"]\n", &|command| command);
    assert!(
        gone.code == 2 && gone.stderr.contains(&format!("{}/gone", home.path().display())),
        "{}",
        gone.whole()
    );
    let wrong = configured("# a comment\nroot = 7\n", &|command| command);
    assert!(wrong.code == 2 && wrong.stderr.contains("config.toml:2:1"), "{}", wrong.whole());
}

#[test]
fn variables_and_names_may_be_no_utf_8() {
    let odd = OsStr::from_bytes(b"caf\xe9");
    let variable = listing(|command| command.env("ODD", odd).env(odd, "x").args(["--root", ONE]));
    assert_eq!(agents(&variable), ["codex"]);
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join(odd);
    copy(&home_of(ONE), &folder);
    assert_eq!(agents(&listing(|command| command.arg("--root").arg(&folder))), ["codex"]);
    assert_eq!(agents(&listing(|command| command.env("RETRYSCOPE_ROOTS", &folder))), ["codex"]);
    let gone = OsString::from_vec([place.path().as_os_str().as_bytes(), b"/gone\xe9"].concat());
    let gone = listing(|command| command.arg("--root").arg(&gone));
    assert!(gone.code == 2 && gone.stderr.contains("does not exist"), "{}", gone.whole());
}

#[test]
fn a_colon_in_a_flag_is_a_part_of_the_name() {
    let place = tempfile::tempdir().unwrap();
    copy(&home_of(ONE), &place.path().join("a:b"));
    assert_eq!(agents(&listing(|command| command.arg("--root").arg(place.path().join("a:b")))), ["codex"]);
}
