//! After a stop, a crash or a move the totals go on: nothing lost, nothing twice.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::{Daemon, Place, answered, many, until};

#[test]
fn a_stop_in_order_saves_and_goes_on() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..10));
    let daemon = place.start();
    daemon.counts(10);
    place.append("events.jsonl", &many("a", 10..12));
    daemon.counts(12);
    assert_eq!(daemon.stop(), Some(0));
    place.append("events.jsonl", &many("a", 12..20));
    let daemon = place.start();
    assert!(!daemon.logs().contains("cannot save"), "{}", daemon.logs());
    daemon.counts_and_stays(20);
    assert!(daemon.sum_of("retryscope_checkpoint_failures_total", "") < 0.5);
}

#[test]
fn rotations_while_it_is_down_lose_nothing() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..10));
    let daemon = place.start();
    daemon.counts(10);
    daemon.stop();
    place.append("events.jsonl", &many("a", 10..15));
    fs::rename(place.log("events.jsonl"), place.log("events.jsonl.1")).unwrap();
    place.append("events.jsonl", &many("a", 15..25));
    let daemon = place.start();
    daemon.counts_and_stays(25);
}

#[test]
fn a_name_that_is_no_text_is_saved_as_well() {
    let place = Place::new();
    let name = place.log("").join(std::ffi::OsStr::from_bytes(b"events\xff.jsonl"));
    super::support::append(&name, &many("a", 0..3));
    place.append("events.jsonl", &many("a", 3..10));
    let daemon = place.start();
    daemon.counts(10);
    daemon.stop();
    fs::remove_file(place.log("events.jsonl")).unwrap();
    super::support::append(&name, &many("a", 10..12));
    let daemon = place.start();
    daemon.counts_and_stays(12);
    assert!(daemon.sum_of("retryscope_checkpoint_failures_total", "") < 0.5);
}

/// As logrotate leaves it with `create`: nothing tells yet what will stand in the new file.
#[test]
fn an_empty_file_in_the_place_of_a_rotated_one_changes_nothing() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..10));
    let daemon = place.start();
    daemon.counts(10);
    daemon.stop();
    fs::rename(place.log("events.jsonl"), place.log("events.jsonl.1")).unwrap();
    place.append("events.jsonl", "");
    let daemon = place.start();
    daemon.counts_and_stays(10);
    place.append("events.jsonl", &many("a", 10..13));
    daemon.counts_and_stays(13);
}

#[test]
fn a_state_folder_has_one_daemon() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let first = place.start();
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_retryscoped"))
        .args(["--listen", "127.0.0.1:0", "--root"])
        .arg(place.folder.path().join("logs"))
        .arg("--state-dir")
        .arg(place.state())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("another retryscoped uses"), "{said}");
    first.crash();
    place.start().counts(3);
}

#[test]
fn crashes_at_any_moment_under_load_with_rotation() {
    let place = Place::new();
    let mut written = 0;
    let mut rotations = 0;
    for round in 0..8_u64 {
        let daemon = place.start();
        for step in 0..12 {
            place.append("events.jsonl", &many("a", written..written + 37));
            written += 37;
            if (round + step) % 5 == 0 {
                rotations += 1;
                let to = place.log(&format!("events.jsonl.{rotations}"));
                fs::rename(place.log("events.jsonl"), to).unwrap();
            }
            if step == round {
                let line = answered("a", written);
                let (begin, end) = line.split_at(line.len() / 2);
                place.append("events.jsonl", begin);
                // Half a line is found there, or may be found in any look between.
                if round % 2 == 0 {
                    daemon.counts(written);
                }
                place.append("events.jsonl", end);
                written += 1;
            }
        }
        // Before it has seen what came last, when it has counted some or all of it, when it has saved that.
        match round % 4 {
            0 => {}
            1 => until("counting", || if daemon.logical() > 0.0 { Ok(()) } else { Err(daemon.metrics()) }),
            2 => daemon.counts(written),
            _ => {
                daemon.counts(written);
                kept(&place, "checkpoint", &format!("\"q{}\"", written - 1));
            }
        }
        daemon.crash();
    }
    place.start().counts_and_stays(written);
}

/// Waits until a file of the state folder whose name begins so holds a text; returns its path.
fn kept(place: &Place, beginning: &str, text: &str) -> PathBuf {
    let mut found = None;
    until("kept", || {
        let names = fs::read_dir(place.state()).unwrap().map(|entry| entry.unwrap());
        let mut names = names.filter(|entry| entry.file_name().to_str().unwrap().starts_with(beginning));
        // It may have been replaced meanwhile.
        found = names.find(|entry| fs::read_to_string(entry.path()).is_ok_and(|all| all.contains(text)));
        if found.is_some() { Ok(()) } else { Err(text.to_owned()) }
    });
    found.unwrap().path()
}

/// A log may be deleted as soon as its numbers are seen.
#[test]
fn what_was_counted_of_a_deleted_log_survives_a_kill() {
    let place = Place::new();
    let mut recent = 0;
    for round in 0..6 {
        // Written half when the one before was killed.
        let torn = place.state().join("checkpoint.recent-99999999");
        if round == 3 {
            fs::write(&torn, "{\"inode\":1,").unwrap();
        }
        let daemon = place.start();
        until("what is saved is no longer kept", || if torn.exists() { Err(()) } else { Ok(()) });
        let name = format!("events-{round}.jsonl");
        place.append(&name, &many("a", round * 5..round * 5 + 5));
        daemon.counts(round * 5 + 5);
        let path = kept(&place, "checkpoint", &format!("\"q{}\"", round * 5 + 4));
        recent += usize::from(path.to_str().unwrap().contains("recent"));
        fs::remove_file(place.log(&name)).unwrap();
        daemon.crash();
    }
    // In one round or another the machine may have been so slow that it was saved.
    assert!(recent >= 3, "{recent} of 6");
    place.start().counts_and_stays(30);
}

#[test]
fn what_was_kept_beside_another_checkpoint_says_nothing() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let daemon = place.start();
    place.append("events-2.jsonl", &many("a", 3..5));
    daemon.counts(5);
    kept(&place, "checkpoint", "\"q4\"");
    daemon.crash();
    fs::remove_file(place.log("events-2.jsonl")).unwrap();
    fs::remove_file(place.state().join("checkpoint.json")).unwrap();
    place.start().counts_and_stays(3);
}

#[test]
fn repeats_by_event_id_are_known_after_a_restart() {
    let place = Place::new();
    let with_id = |n: usize| answered("a", n).replacen('{', &format!("{{\"event_id\":\"e{n}\","), 1);
    place.append("events.jsonl", &(with_id(1) + &with_id(2)));
    let daemon = place.start();
    daemon.counts(2);
    daemon.stop();
    place.append("other.jsonl", &(with_id(2) + &with_id(3)));
    let daemon = place.start();
    daemon.counts_and_stays(3);
    assert!((daemon.sum_of("retryscope_duplicates_total", "") - 1.0).abs() < 0.1);
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// What is counted, and how often it was put right.
fn counted(daemon: &Daemon) -> [f64; 6] {
    let names = [
        "retryscope_logical_requests_total",
        "retryscope_upstream_requests_total",
        "retryscope_retries_total",
        "retryscope_attempt_failures_total",
        "retryscope_run_outcomes_total",
        "retryscope_revisions_total",
    ];
    names.map(|name| daemon.sum_of(name, ""))
}

#[test]
fn session_files_do_not_count_again() {
    for agent in ["claude-code", "codex", "opencode", "pi", "omp"] {
        let place = Place::new();
        let root = fixtures().join(agent);
        let daemon = Daemon::start(&root, &place.state(), &[]);
        let before = counted(&daemon);
        assert!(before[0] > 8.0, "{agent}: {before:?}");
        daemon.stop();
        let daemon = Daemon::start(&root, &place.state(), &[]);
        assert_eq!(counted(&daemon), before, "{agent}");
        daemon.crash();
        let daemon = Daemon::start(&root, &place.state(), &[]);
        assert_eq!(counted(&daemon), before, "{agent}");
    }
}

/// Streams of which only the first line stands there when they are found, and which go on after a restart: whose they are,
/// the first line does not tell.
#[test]
fn streams_that_are_found_early_and_go_on_after_a_restart() {
    for stream in [
        "pi/persistent-503/logs/captured/stdout.jsonl",
        "omp/persistent-503-defaults/logs/captured/stdout.jsonl",
    ] {
        let text = fs::read_to_string(fixtures().join(stream)).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let whole = Place::new();
        whole.append("stdout.jsonl", &text);
        let wanted = counted(&whole.start())[..4].to_vec();
        assert!(wanted[0] > 0.0, "{stream}");
        let place = Place::new();
        place.append("stdout.jsonl", lines[0]);
        let daemon = place.start();
        place.append("stdout.jsonl", &lines[1..lines.len() / 2].concat());
        until("going on", || if daemon.logical() > 0.0 { Ok(()) } else { Err(daemon.metrics()) });
        daemon.stop();
        let daemon = place.start();
        place.append("stdout.jsonl", &lines[lines.len() / 2..].concat());
        until(stream, || {
            let now = counted(&daemon)[..4].to_vec();
            if now == wanted { Ok(()) } else { Err((now, wanted.clone())) }
        });
    }
}

/// Logs of which only half of the first line stands there when the daemon is stopped.
#[test]
fn logs_that_are_found_in_their_first_line_go_on_after_a_restart() {
    for log in [
        "codex/http-500-500-ok/logs/home",
        "claude-code/multistep/logs/home",
        "pi/persistent-503/logs/home",
        "omp/persistent-503-defaults/logs/home",
        "rivumi/500-503-500-ok/logs",
    ] {
        let folder = fixtures().join(log);
        let files = retryscope_testkit::files(&folder);
        let file = files.iter().find(|path| path.extension().is_some_and(|end| end == "jsonl")).unwrap();
        let name = file.strip_prefix(&folder).unwrap().to_str().unwrap();
        let text = fs::read_to_string(file).unwrap();
        let whole = Place::new();
        fs::create_dir_all(whole.log(name).parent().unwrap()).unwrap();
        whole.append(name, &text);
        let wanted = counted(&whole.start())[..4].to_vec();
        assert!(wanted[0] > 0.0, "{log}");
        let (first, rest) = text.split_at(text.find('\n').unwrap() / 2);
        let place = Place::new();
        fs::create_dir_all(place.log(name).parent().unwrap()).unwrap();
        place.append(name, first);
        let daemon = place.start();
        assert_eq!(daemon.stop(), Some(0));
        let daemon = place.start();
        place.append(name, rest);
        until(log, || {
            let now = counted(&daemon)[..4].to_vec();
            if now == wanted { Ok(()) } else { Err((now, wanted.clone())) }
        });
    }
}

/// A log that is written to and deleted at once, as the last thing: only an open handle shows what was written.
#[test]
fn a_log_deleted_after_a_restart_is_read_to_its_end() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.append(&format!("{name}.jsonl"), &many(name, 0..3));
    }
    let daemon = place.start();
    daemon.counts(9);
    assert_eq!(daemon.stop(), Some(0));
    let daemon = place.start();
    daemon.counts(9);
    for name in ["a", "b", "c"] {
        place.append(&format!("{name}.jsonl"), &many(name, 3..5));
        fs::remove_file(place.log(&format!("{name}.jsonl"))).unwrap();
    }
    daemon.counts_and_stays(15);
}

/// A session that is archived while the daemon is down, and goes on there: it cannot be understood from its middle.
#[test]
fn a_session_that_moves_while_it_is_down_goes_on() {
    let files = [
        "pi/retry-500-500-ok/logs/captured/stdout.jsonl",
        "codex/multistep-fail-2nd-ok/logs/captured/stdout.jsonl",
    ];
    for file in files {
        let text = fs::read_to_string(fixtures().join(file)).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let whole = Place::new();
        whole.append("stdout.jsonl", &text);
        let wanted = counted(&whole.start())[..4].to_vec();
        assert!(wanted[0] > 0.0, "{file}");
        for part in [lines.len() / 3, lines.len() / 2, lines.len() * 2 / 3] {
            let place = Place::new();
            place.append("stdout.jsonl", &lines[..part].concat());
            place.start().stop();
            fs::create_dir(place.log("archived")).unwrap();
            fs::rename(place.log("stdout.jsonl"), place.log("archived/stdout.jsonl")).unwrap();
            let daemon = place.start();
            place.append("archived/stdout.jsonl", &lines[part..].concat());
            until(file, || {
                let now = counted(&daemon)[..4].to_vec();
                if now == wanted { Ok(()) } else { Err((part, now, wanted.clone())) }
            });
        }
    }
}

/// A long backlog of old events, in which a run goes on that began before all others.
#[test]
fn a_run_that_goes_on_in_a_backlog_is_not_forgotten() {
    let place = Place::new();
    let line = |run: &str, kind: &str, more: &str| {
        format!(
            "{{\"type\":\"{kind}\",\"ts\":\"2026-03-01T10:00:00Z\",\"run_id\":\"{run}\",\"agent\":\"demo\"{more}}}\n"
        )
    };
    let mut text = line("long", "model.retry", ",\"request_id\":\"q\",\"attempt\":1,\"status\":503");
    for n in 0..210_000 {
        text += &line(&format!("r{}", n / 100), "model.response", &format!(",\"request_id\":\"{n}\""));
    }
    text += &line("long", "model.response", ",\"request_id\":\"q\",\"attempts\":2");
    place.append("events.jsonl", &text);
    let daemon = Daemon::start_unready(&place.folder.path().join("logs"), &place.state(), &[]);
    for _ in 0..6 {
        // Longer than anything else here.
        if daemon.get("/-/ready").status == 200 {
            break;
        }
        let began = std::time::Instant::now();
        until("ready", || {
            let is_ready = daemon.get("/-/ready").status == 200 || began.elapsed().as_secs() > 7;
            if is_ready { Ok(()) } else { Err(()) }
        });
    }
    daemon.counts(210_001);
    assert!((daemon.sum_of("retryscope_retries_total", "") - 1.0).abs() < 0.1);
    assert!((daemon.sum_of("retryscope_upstream_requests_total", "") - 210_002.0).abs() < 0.1);
}

#[test]
fn another_kind_of_file_in_the_place_of_a_log_is_no_log() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let daemon = place.start();
    daemon.counts(3);
    daemon.stop();
    fs::remove_file(place.log("events.jsonl")).unwrap();
    assert!(Command::new("mkfifo").arg(place.log("events.jsonl")).status().unwrap().success());
    let daemon = place.start();
    place.append("other.jsonl", &many("b", 0..2));
    daemon.counts_and_stays(5);
    assert_eq!(daemon.stop(), Some(0));
}

/// Numbers about the daemon itself are saved too when nothing else changes.
#[test]
fn what_was_refused_is_known_after_a_crash() {
    let place = Place::new();
    let daemon = place.start();
    assert_eq!(daemon.post("/v1/events", "", b"no event\n").status, 400);
    until("saved", || {
        let saved = fs::read_to_string(place.state().join("checkpoint.json")).unwrap_or_default();
        if saved.contains("refused") { Ok(()) } else { Err(saved) }
    });
    daemon.crash();
    let daemon = place.start();
    assert!((daemon.sum_of("retryscope_pushed_requests_total", "refused") - 1.0).abs() < 0.1);
}

#[test]
fn a_spoilt_checkpoint_is_kept_aside_and_a_newer_one_refused() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..5));
    place.start().stop();
    let checkpoint = place.state().join("checkpoint.json");
    fs::write(&checkpoint, "{\"version\":1,\"tot").unwrap();
    let daemon = place.start();
    daemon.counts(5);
    daemon.stop();
    let aside = fs::read_dir(place.state()).unwrap().map(|e| e.unwrap().file_name());
    assert!(aside.into_iter().any(|name| name.to_string_lossy().contains("corrupt")));
    let newer = "{\"version\":99}";
    fs::write(&checkpoint, newer).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_retryscoped"))
        .args(["--listen", "127.0.0.1:0", "--root"])
        .arg(place.folder.path().join("logs"))
        .arg("--state-dir")
        .arg(place.state())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("newer version"));
    assert_eq!(fs::read_to_string(&checkpoint).unwrap(), newer);
}

/// A budget that is still used up after a restart did not become so again.
#[test]
fn a_restart_exhausts_no_budget_again() {
    let place = Place::new();
    let now = chrono::Utc::now().format("%Y-%m-%dT%H:%M:%SZ");
    for n in 0..30 {
        let line = format!(
            "{{\"v\":1,\"type\":\"model.response\",\"ts\":\"{now}\",\"run_id\":\"r{n}\",\"agent\":\"demo\",\
             \"request_id\":\"q\",\"provider\":\"acme\",\"model\":\"m\",\"attempts\":4}}\n"
        );
        place.append("events.jsonl", &line);
    }
    for _ in 0..3 {
        let daemon = place.start();
        daemon.counts(30);
        assert_eq!(
            daemon.sum_of(
                "retryscope_retry_budget_exhausted_total",
                "scope=\"global\",name=\"\",window=\"5m\""
            ),
            1.0
        );
        assert_eq!(daemon.stop(), Some(0));
    }
}

/// A session that was written anew while nobody looked says what it says now, and nothing of what it said before.
#[test]
fn a_session_rewritten_while_it_is_down_is_read_anew() {
    let folder = retryscope_testkit::fixtures().join("omp/429-retry-after-600/logs/home/.omp");
    let session = retryscope_testkit::files(&folder)
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .unwrap();
    let whole = fs::read_to_string(session).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let name = ".omp/agent/sessions/-demo/s.jsonl";
    let said = |daemon: &super::support::Daemon, place: &Place| {
        daemon.get("/api/v1/runs").body.replace(place.folder.path().to_str().unwrap(), "")
    };
    let outcomes = |place: &Place| {
        let daemon = place.start_with(&["--as-of", "2026-12-24T00:00:00Z"]);
        super::support::until("read", || {
            let runs = said(&daemon, place);
            if runs.contains("run_id") { Ok(()) } else { Err(runs) }
        });
        let runs = said(&daemon, place);
        assert_eq!(daemon.stop(), Some(0));
        runs
    };
    let fresh = Place::new();
    fs::create_dir_all(fresh.log(name).parent().unwrap()).unwrap();
    // What it says without its last lines: the whole one must not show through.
    let shorter = lines[..lines.len() - 3].concat();
    fs::write(fresh.log(name), &shorter).unwrap();
    let wanted = outcomes(&fresh);

    let place = Place::new();
    fs::create_dir_all(place.log(name).parent().unwrap()).unwrap();
    fs::write(place.log(name), &whole).unwrap();
    assert_ne!(outcomes(&place), wanted);
    for beside in ["", &shorter] {
        // Another file in its place: empty at first, then whole.
        fs::write(place.log("beside"), beside).unwrap();
        fs::rename(place.log("beside"), place.log(name)).unwrap();
        let daemon = place.start_with(&["--as-of", "2026-12-24T00:00:00Z"]);
        fs::write(place.log(name), &shorter).unwrap();
        super::support::until("what it says now", || {
            let runs = said(&daemon, &place);
            if runs == wanted { Ok(()) } else { Err(runs) }
        });
        assert_eq!(daemon.stop(), Some(0));
    }
}
