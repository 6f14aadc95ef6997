//! After a stop, a crash or a move the totals go on: nothing lost, nothing twice.

use std::fs;

use super::support::{Place, answered, many};

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
                // Somewhere between two looks, in the middle of a line.
                let line = answered("a", written);
                let (begin, end) = line.split_at(line.len() / 2);
                place.append("events.jsonl", begin);
                std::thread::sleep(std::time::Duration::from_millis(round * 7));
                place.append("events.jsonl", end);
                written += 1;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(round * 23));
        daemon.crash();
    }
    place.start().counts_and_stays(written);
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

#[test]
fn session_files_do_not_count_again() {
    let place = Place::new();
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude-code");
    let run = |daemon: &super::support::Daemon| {
        let names = [
            "retryscope_logical_requests_total",
            "retryscope_upstream_requests_total",
            "retryscope_revisions_total",
        ];
        names.map(|name| daemon.sum_of(name, ""))
    };
    let daemon = super::support::Daemon::start(&fixtures, &place.state(), &[]);
    let before = run(&daemon);
    assert!(before[0] > 30.0);
    daemon.stop();
    let daemon = super::support::Daemon::start(&fixtures, &place.state(), &[]);
    assert_eq!(run(&daemon), before);
    daemon.crash();
    let daemon = super::support::Daemon::start(&fixtures, &place.state(), &[]);
    assert_eq!(run(&daemon), before);
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
