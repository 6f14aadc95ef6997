//! What happens to logs in the real world: each fault, and the totals are exactly what was written.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{Daemon, Place, answered, many};

#[test]
fn a_renamed_file_whose_old_handle_is_still_written() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..10));
    let daemon = place.start();
    daemon.counts(10);
    let mut old = OpenOptions::new().append(true).open(place.log("events.jsonl")).unwrap();
    fs::rename(place.log("events.jsonl"), place.log("events.jsonl.1")).unwrap();
    old.write_all(many("a", 10..15).as_bytes()).unwrap();
    place.append("events.jsonl", &many("a", 15..20));
    old.write_all(many("a", 20..25).as_bytes()).unwrap();
    daemon.counts_and_stays(25);
}

#[test]
fn a_file_that_is_copied_and_cut() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..400));
    let daemon = place.start();
    for round in 1..4 {
        let from = round * 400;
        place.append("events.jsonl", &many("a", from..from + 395));
        fs::copy(place.log("events.jsonl"), place.log(&format!("events.jsonl.{round}"))).unwrap();
        File::create(place.log("events.jsonl")).unwrap();
        place.append("events.jsonl", &many("a", from + 395..from + 400));
        daemon.counts((round + 1) * 400);
    }
    daemon.counts_and_stays(1600);
    assert!(daemon.sum_of("retryscope_source_truncations_total", "") > 2.5);
    assert!(daemon.sum_of("retryscope_source_truncations_without_copy_total", "") < 0.5);
}

#[test]
fn folders_that_come_to_match_a_pattern() {
    let place = Place::new();
    let root = place.log("*").join("events");
    fs::create_dir_all(place.log("a/events")).unwrap();
    place.append("a/events/events.jsonl", &many("a", 0..10));
    let daemon = Daemon::start(&root, &place.state(), &["--rescan-ms", "50"]);
    daemon.counts(10);
    fs::create_dir_all(place.log("b/events")).unwrap();
    place.append("b/events/events.jsonl", &many("b", 0..5));
    place.append("c.jsonl", &many("c", 0..5));
    daemon.counts_and_stays(15);
    drop(daemon);
    // One is away when the next one starts, and comes back with more.
    fs::rename(place.log("b"), place.folder.path().join("away")).unwrap();
    let daemon = Daemon::start(&root, &place.state(), &["--rescan-ms", "50"]);
    daemon.counts(15);
    fs::rename(place.folder.path().join("away"), place.log("b")).unwrap();
    place.append("b/events/events.jsonl", &many("b", 5..8));
    daemon.counts_and_stays(18);
}

/// As logrotate names copies with `dateext`.
#[test]
fn a_file_that_is_copied_under_its_date_and_cut() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..100));
    let daemon = place.start();
    for round in 1..4 {
        let from = round * 100;
        place.append("events.jsonl", &many("a", from..from + 95));
        fs::copy(place.log("events.jsonl"), place.log(&format!("events.jsonl-2026113{round}"))).unwrap();
        File::create(place.log("events.jsonl")).unwrap();
        place.append("events.jsonl", &many("a", from + 95..from + 100));
        daemon.counts((round + 1) * 100);
    }
    daemon.counts_and_stays(400);
}

/// A writer dies before it has written the end of its line, or in the middle of it; the next one goes on behind.
#[test]
fn a_line_that_begins_behind_another_one_counts() {
    let place = Place::new();
    place.append("events.jsonl", &(answered("a", 0) + answered("a", 1).trim_end() + &answered("a", 2)));
    let daemon = place.start();
    daemon.counts(3);
    assert!(daemon.sum_of("retryscope_gaps_total", "") < 0.5);
    let cut = answered("a", 3);
    let (half, _) = cut.split_at(70);
    place.append("events.jsonl", &(half.to_owned() + &answered("a", 4)));
    daemon.counts_and_stays(4);
    assert!((daemon.sum_of("retryscope_gaps_total", "") - 1.0).abs() < 0.1);
}

/// Somebody who never stops writing is no backlog.
#[test]
fn a_log_that_is_always_written_to_is_read_and_left() {
    let place = Place::new();
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file =
                OpenOptions::new().append(true).create(true).open(place.log("events.jsonl")).unwrap();
            // Some seconds at most, so that a failure ends too.
            for number in 0..20_000 {
                if stops.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all(answered("a", number).as_bytes()).unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
            stops.store(true, Ordering::Relaxed);
        });
        let daemon = place.start_with(&["--drain"]);
        assert!(!stops.load(Ordering::Relaxed), "ready only when the writer had stopped");
        assert_eq!(daemon.stop(), Some(0));
        assert!(!stops.load(Ordering::Relaxed), "stopped only when the writer had stopped");
        stops.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_that_is_cut_and_written_larger() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..5));
    let daemon = place.start();
    daemon.counts(5);
    fs::write(place.log("events.jsonl"), many("b", 0..50)).unwrap();
    daemon.counts_and_stays(55);
    assert!(daemon.sum_of("retryscope_source_truncations_total", "") > 0.5);
    assert!(daemon.sum_of("retryscope_source_truncations_without_copy_total", "") > 0.5);
}

#[test]
fn a_file_that_is_deleted_and_made_again() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..5));
    let daemon = place.start();
    daemon.counts(5);
    let mut old = OpenOptions::new().append(true).open(place.log("events.jsonl")).unwrap();
    fs::remove_file(place.log("events.jsonl")).unwrap();
    old.write_all(many("a", 5..8).as_bytes()).unwrap();
    place.append("events.jsonl", &many("b", 0..3));
    daemon.counts(11);
    old.write_all(many("a", 8..9).as_bytes()).unwrap();
    daemon.counts_and_stays(12);
}

#[test]
fn a_link_that_is_switched() {
    let place = Place::new();
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("one.jsonl"), many("a", 0..4)).unwrap();
    fs::write(other.path().join("two.jsonl"), many("b", 0..5)).unwrap();
    symlink(other.path().join("one.jsonl"), place.log("current.jsonl")).unwrap();
    let daemon = place.start();
    daemon.counts(4);
    symlink(other.path().join("two.jsonl"), place.log("next")).unwrap();
    fs::rename(place.log("next"), place.log("current.jsonl")).unwrap();
    daemon.counts_and_stays(9);
}

#[test]
fn files_that_begin_alike() {
    let place = Place::new();
    let head: String = many("shared", 0..20);
    place.append("a.jsonl", &(head.clone() + &many("a", 0..3)));
    let daemon = place.start();
    place.append("b.jsonl", &(head + &many("b", 0..4)));
    daemon.counts_and_stays(27);
}

#[test]
fn half_lines_wait_for_their_rest() {
    let place = Place::new();
    let (first, second) = (answered("a", 1), answered("a", 2));
    let (begin, end) = second.split_at(40);
    place.append("events.jsonl", &(first + begin));
    let daemon = place.start();
    daemon.counts_and_stays(1);
    place.append("events.jsonl", end);
    daemon.counts_and_stays(2);
    assert!(daemon.sum_of("retryscope_gaps_total", "") < 0.5);
}

#[test]
fn a_last_line_without_an_end_counts_once() {
    let place = Place::new();
    place.append("events.jsonl", many("a", 0..3).trim_end());
    let daemon = place.start();
    daemon.counts(3);
    place.append("events.jsonl", &("\n".to_owned() + &many("a", 3..5)));
    daemon.counts_and_stays(5);
    assert!(daemon.sum_of("retryscope_gaps_total", "") < 0.5);
}

#[test]
fn a_giant_line_takes_little_memory_and_keeps_its_keys() {
    let place = Place::new();
    let line = answered("a", 1);
    let giant =
        line.replace("\"model\":\"m\"", &format!("\"model\":\"m\",\"text\":\"{}\"", "x".repeat(40 << 20)));
    place.append("events.jsonl", &(giant + &answered("a", 2)));
    let daemon = place.start();
    daemon.counts(2);
    let memory = daemon.sum_of("process_resident_memory_bytes", "");
    assert!(memory < f64::from(64 << 20), "{memory}");
}

#[test]
fn a_long_first_line_is_one_like_any_other() {
    let place = Place::new();
    let tools: Vec<String> = (0..800).map(|n| format!(r#"{{"name":"tool_{n}","effect":"read"}}"#)).collect();
    let first = format!(
        "{{\"v\":1,\"type\":\"run.started\",\"ts\":\"{}\",\"run_id\":\"a\",\"tools\":[{}]}}\n",
        "2026-11-29T10:00:00.000Z",
        tools.join(",")
    );
    // Half of it first: what it is cannot be told yet.
    let (begin, rest) = first.split_at(20_000);
    place.append("events.jsonl", begin);
    let daemon = place.start();
    daemon.counts(0);
    place.append("events.jsonl", rest);
    place.append("events.jsonl", &many("a", 0..3));
    daemon.counts_and_stays(3);
    drop(daemon);
    place.append("events.jsonl", &many("a", 3..5));
    place.start().counts_and_stays(5);
}

#[test]
fn a_root_that_comes_later() {
    let place = Place::new();
    let later = place.folder.path().join("later");
    let daemon = place.start_with(&["--root", later.to_str().unwrap()]);
    fs::create_dir_all(later.join("deep/er")).unwrap();
    fs::write(later.join("deep/er/events.jsonl"), many("a", 0..4)).unwrap();
    daemon.counts(4);
    fs::create_dir(later.join("deep/new")).unwrap();
    fs::write(later.join("deep/new/events.jsonl"), many("b", 0..4)).unwrap();
    daemon.counts_and_stays(8);
}

#[test]
fn a_session_file_written_anew_is_read_anew() {
    let place = Place::new();
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/claude-code/multistep/logs/home/.claude/projects");
    let session = walk(&fixture).into_iter().find(|p| p.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let text = fs::read_to_string(&session).unwrap();
    let name = session.file_name().unwrap().to_str().unwrap();
    fs::write(place.log(name), &text).unwrap();
    let daemon = place.start();
    let before = daemon.logical();
    assert!(before > 1.0);
    fs::write(place.log("new"), format!("{{\"type\":\"summary\",\"summary\":\"x\"}}\n{text}")).unwrap();
    fs::rename(place.log("new"), place.log(name)).unwrap();
    daemon.counts_and_stays(before as usize);
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn polling_alone_works() {
    let place = Place::new();
    place.append("events.jsonl", &many("a", 0..3));
    let daemon = place.start_with(&["--poll"]);
    daemon.counts(3);
    fs::rename(place.log("events.jsonl"), place.log("events.jsonl.1")).unwrap();
    place.append("events.jsonl", &many("a", 3..6));
    daemon.counts_and_stays(6);
    assert!(daemon.sum_of("retryscope_watch_mode", "poll") > 0.5);
}

/// Each rotated log has a successor at once: more new files than may be open.
#[test]
fn few_handles_are_enough_for_many_rotations() {
    let place = Place::new();
    for n in 0..200 {
        place.append(&format!("events-{n}.jsonl"), &many("a", n..n + 1));
    }
    let limit = ["prlimit", "--nofile=64:64"].map(str::to_owned);
    let daemon = Daemon::start_through(&limit, &place.log(""), &place.state(), &[]);
    daemon.counts(200);
    for n in 0..200 {
        let log = place.log(&format!("events-{n}.jsonl"));
        fs::rename(&log, log.with_extension("jsonl.1")).unwrap();
        place.append(&format!("events-{n}.jsonl"), &many("a", 200 + n..201 + n));
    }
    daemon.counts_and_stays(400);
    assert!(daemon.sum_of("retryscope_checkpoint_failures_total", "") < 0.5, "{}", daemon.logs());
}
