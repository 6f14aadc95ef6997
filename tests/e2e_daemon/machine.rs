//! Faults of the machine around the daemon: events that are lost, permissions, a root that cannot be written, the unit.
//!
//! Some need the rights of root, or a kernel that grants name spaces: where it does not, the daemon is tried without.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::support::{Daemon, Place, many, until};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns the command before the daemon's own that takes the rights of root away; empty where there are none to take.
fn without_rights(place: &Place) -> Vec<String> {
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    if !succeeds(Command::new("setpriv").args(&nobody[1..]).arg("true")) {
        return Vec::new();
    }
    fs::create_dir_all(place.state()).unwrap();
    mode(place.folder.path(), 0o755);
    for path in [place.folder.path().to_owned(), place.state()] {
        assert!(succeeds(Command::new("chown").arg("65534").arg(path)));
    }
    nobody.map(str::to_owned).to_vec()
}

/// More happens than the system can tell: the kernel's queue overflows while the daemon does not listen.
#[test]
fn notifications_that_are_lost() {
    let place = Place::new();
    place.append("events-0.jsonl", &many("r", 0..1));
    let daemon = place.start_with(&["--rescan-ms", "3600000"]);
    let queue: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    daemon.signal("STOP");
    let files = 50;
    let rounds = (queue / files).min(2_000) + 20;
    for round in 0..rounds {
        for file in 0..files {
            // Two of a kind in a row are told once: hence file by file.
            place.append(&format!("events-{file}.jsonl"), if round == 0 { "" } else { " " });
        }
    }
    for file in 0..files {
        place.append(&format!("events-{file}.jsonl"), &("\n".to_owned() + &many(&format!("r{file}"), 0..4)));
    }
    daemon.signal("CONT");
    daemon.counts_and_stays(1 + files * 4);
}

#[test]
fn files_and_folders_that_cannot_be_read_for_a_while() {
    let place = Place::new();
    fs::create_dir(place.log("inner")).unwrap();
    place.append("events.jsonl", &many("a", 0..3));
    place.append("inner/events.jsonl", &many("b", 0..4));
    place.append("secret.jsonl", &many("c", 0..5));
    mode(&place.log("secret.jsonl"), 0);
    let before = without_rights(&place);
    let daemon = Daemon::start_through(&before, &place.folder.path().join("logs"), &place.state(), &[]);
    daemon.counts_and_stays(7);
    // A file that opens up.
    mode(&place.log("secret.jsonl"), 0o644);
    daemon.counts_and_stays(12);
    // One that closes while it grows.
    mode(&place.log("events.jsonl"), 0);
    place.append("events.jsonl", &many("a", 3..6));
    mode(&place.log("events.jsonl"), 0o644);
    daemon.counts_and_stays(15);
    // A folder that closes: what lies in it is not gone, and is not read again from its start.
    mode(&place.log("inner"), 0);
    place.append("inner/events.jsonl", &many("b", 4..6));
    place.append("events.jsonl", &many("a", 6..7));
    daemon.counts_and_stays(if before.is_empty() { 18 } else { 16 });
    mode(&place.log("inner"), 0o755);
    daemon.counts_and_stays(18);
}

/// A log of our own schema that is read again only where it was left, whatever happened at the start.
#[test]
fn a_log_that_cannot_be_read_at_the_start_goes_on_later() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..5));
    let before = without_rights(&place);
    let start = || Daemon::start_through(&before, &place.folder.path().join("logs"), &place.state(), &[]);
    let daemon = start();
    daemon.counts(5);
    daemon.stop();
    mode(&place.log("events.jsonl"), 0);
    let daemon = start();
    daemon.counts(5);
    mode(&place.log("events.jsonl"), 0o644);
    place.append("events.jsonl", &many("a", 5..6));
    daemon.counts_and_stays(6);
}

/// Where no file may be larger than the first checkpoint or so, as on a disk that is full.
#[test]
fn a_state_folder_without_room_is_not_filled_with_names() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let limit = ["sh", "-c", "trap '' XFSZ; ulimit -f 128; exec \"$@\"", "sh"].map(str::to_owned);
    let daemon = Daemon::start_through(&limit, &place.log(""), &place.state(), &[]);
    place.append("events.jsonl", &many("a", 3..600));
    daemon.counts(600);
    // Each time that it could not be saved, it could not be kept either.
    until("not saved", || match daemon.sum_of("retryscope_checkpoint_failures_total", "") {
        times if times > 2.5 => Ok(()),
        times => Err(times),
    });
    let names = fs::read_dir(place.state()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.starts_with("checkpoint")).collect();
    assert!(names.contains(&"checkpoint.json".to_owned()) && names.len() <= 3, "{names:?}");
}

/// Only the state directory can be written.
#[test]
fn a_root_file_system_that_is_read_only() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    fs::create_dir_all(place.state()).unwrap();
    let state = place.state();
    let script = format!(
        "mount --make-rprivate / && mount --bind '{0}' '{0}' && mount -o remount,bind,ro / && exec \"$@\"",
        state.display()
    );
    let apart = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    let before: Vec<String> = apart.map(str::to_owned).to_vec();
    let is_allowed = succeeds(Command::new(&before[0]).args(&before[1..]).arg("true"));
    let before = if is_allowed { before } else { Vec::new() };
    let daemon = Daemon::start_through(&before, &place.folder.path().join("logs"), &state, &[]);
    daemon.counts(3);
    assert_eq!(daemon.post("/v1/events", "", many("pushed", 0..2).as_bytes()).status, 200);
    daemon.counts(5);
    until("saved", || {
        let failures = daemon.sum_of("retryscope_checkpoint_failures_total", "");
        if state.join("checkpoint.json").exists() && failures < 0.5 { Ok(()) } else { Err(failures) }
    });
    daemon.crash();
    place.append("events.jsonl", &many("a", 3..4));
    let daemon = Daemon::start_through(&before, &place.folder.path().join("logs"), &state, &[]);
    daemon.counts_and_stays(6);
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/retryscoped.service");
    let text = fs::read_to_string(unit).unwrap();
    for wanted in [
        "Type=notify",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "StateDirectory=retryscope",
        "WatchdogSec=",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    if !succeeds(Command::new("systemd-analyze").arg("--version")) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("retryscoped.service");
    let here = text.replace("%h/.cargo/bin/retryscoped", env!("CARGO_BIN_EXE_retryscoped"));
    fs::write(&copy, here).unwrap();
    let output =
        Command::new("systemd-analyze").args(["verify", "--user", "--man=no"]).arg(&copy).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // What is said of other units of this machine is none of ours.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("retryscoped.service")).collect();
    assert_eq!(ours, [""; 0], "{said}");
}
