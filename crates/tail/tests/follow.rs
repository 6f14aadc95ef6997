//! The follower against real files: each fault by itself, and random actions against a model.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use retryscope_tail::{Follower, Happening, Interest, Line, Listener};
use tempfile::TempDir;

/// What is done to a folder.
type Act = Box<dyn Fn(&Path)>;

/// Notes everything; files ending in `.session` count as rewritten when replaced, others go on.
#[derive(Default)]
struct Notes {
    lines: Vec<(u32, String)>,
    happened: Vec<Happening>,
    paths: Vec<(u32, PathBuf)>,
    /// What is done to the folder in the middle of a look, at this line.
    at_line: Option<(&'static str, Act)>,
}

impl Listener for Notes {
    fn opened(&mut self, id: u32, path: &Path, head: &[u8], _before: Option<u32>) -> Interest {
        // What begins so is told by what stands at the end of its first line.
        if head.starts_with(b"{\"text\":") && !head.windows(7).any(|part| part == b"\"mine\":") {
            return Interest::None;
        }
        self.paths.push((id, path.to_path_buf()));
        Interest::Lines
    }
    fn line(&mut self, id: u32, line: Line<'_>) {
        if let Some((text, act)) = &self.at_line
            && line.bytes == text.as_bytes()
            && let Some((_, path)) = self.paths.iter().find(|(known, _)| *known == id)
        {
            act(path.parent().unwrap());
        }
        self.lines.push((id, String::from_utf8_lossy(line.bytes).into_owned()));
    }
    fn whole(&mut self, _id: u32, _path: &Path) {}
    fn replaced(&mut self, id: u32) -> bool {
        self.paths
            .iter()
            .any(|(known, path)| *known == id && path.extension().is_some_and(|e| e == "session"))
    }
    fn is_whole_line(&self, bytes: &[u8]) -> bool {
        bytes.ends_with(b"!")
    }
    fn is_document(&self, id: u32) -> bool {
        let is_it = |(known, path): &(u32, PathBuf)| *known == id && path.ends_with("doc.session");
        self.paths.iter().any(is_it)
    }
    fn reset(&mut self, id: u32) {
        self.lines.retain(|(known, _)| *known != id);
    }
    fn happened(&mut self, _id: u32, happening: Happening) {
        self.happened.push(happening);
    }
}

impl Notes {
    fn texts(&self) -> Vec<&str> {
        self.lines.iter().map(|(_, text)| text.as_str()).collect()
    }
}

struct Place {
    folder: TempDir,
    follower: Follower,
    notes: Notes,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let follower = Follower::new(vec![folder.path().to_path_buf()], |_| true, |_| true);
        Self { folder, follower, notes: Notes::default() }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn append(&self, name: &str, text: &str) {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.path(name))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }
    fn scan(&mut self) {
        self.follower.scan(&mut self.notes);
    }
    /// A new follower goes on from what the old one would have saved.
    fn restart(&mut self) {
        let (states, next) = (self.follower.states().cloned().collect(), self.follower.next_id());
        self.follower = Follower::new(vec![self.folder.path().to_path_buf()], |_| true, |_| true);
        self.follower.restore(states, next);
    }
}

#[test]
fn lines_come_once_however_they_are_cut() {
    let mut place = Place::new();
    place.append("a", "one\ntw");
    place.scan();
    place.append("a", "o\nthr");
    place.scan();
    place.scan();
    place.restart();
    place.append("a", "ee\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["one", "two", "three"]);
}

/// Whoever looks less often after a look that found nothing must know that this one did.
#[test]
fn a_file_that_came_from_elsewhere_tells_what_was_new_in_it() {
    let mut place = Place::new();
    place.append("log", "1\n2\n");
    assert_eq!(place.follower.scan(&mut place.notes), 2);
    fs::create_dir(place.path("elsewhere")).unwrap();
    fs::copy(place.path("log"), place.path("elsewhere/log")).unwrap();
    fs::remove_file(place.path("log")).unwrap();
    place.append("elsewhere/log", "3\n");
    assert_eq!(place.follower.scan(&mut place.notes), 1);
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);
    assert_eq!(place.follower.gone(), 1);
    fs::write(place.path("elsewhere/log"), "4\n").unwrap();
    assert_eq!(place.follower.scan(&mut place.notes), 1);
    assert_eq!(place.follower.gone(), 2);
}

#[test]
fn a_renamed_file_is_read_on_and_its_successor_from_its_start() {
    let mut place = Place::new();
    place.append("log", "1\n");
    place.scan();
    let mut old = OpenOptions::new().append(true).open(place.path("log")).unwrap();
    fs::rename(place.path("log"), place.path("log.1")).unwrap();
    place.append("log", "3\n");
    old.write_all(b"2\n").unwrap();
    place.scan();
    old.write_all(b"2b\n").unwrap();
    place.scan();
    let mut texts = place.notes.texts();
    texts.sort_unstable();
    assert_eq!(texts, ["1", "2", "2b", "3"]);
    assert!(place.notes.happened.iter().any(|h| matches!(h, Happening::Renamed { .. })));
}

#[test]
fn a_deleted_file_is_read_to_its_end() {
    let mut place = Place::new();
    place.append("log", "1\n");
    place.scan();
    let mut old = OpenOptions::new().append(true).open(place.path("log")).unwrap();
    fs::remove_file(place.path("log")).unwrap();
    old.write_all(b"2\n").unwrap();
    place.scan();
    place.append("log", "3\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);
}

#[test]
fn a_file_that_no_look_has_seen_is_read_after_its_deletion() {
    let mut place = Place::new();
    let hold = |place: &mut Place, name: &str| {
        let path = place.path(name);
        let file = File::create(&path).unwrap();
        drop(file);
        place.follower.hold(path.clone(), File::open(&path).unwrap());
    };
    place.append("log", "1\n");
    place.scan();
    // Two generations come and go between two looks; the first is found under its name, too.
    for (name, text) in [("log.new", "2\n"), ("log.newer", "3\n")] {
        hold(&mut place, name);
        place.append(name, text);
        fs::rename(place.path(name), place.path("log")).unwrap();
    }
    place.scan();
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);

    // A copy that is gone again, and a session that was replaced, say nothing of their own.
    hold(&mut place, "copy");
    place.append("copy", "3\n");
    fs::remove_file(place.path("copy")).unwrap();
    hold(&mut place, "a.session");
    place.append("a.session", "begun\n");
    fs::remove_file(place.path("a.session")).unwrap();
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);
}

#[test]
fn a_file_with_a_long_first_line_is_told_by_its_end() {
    let line = |text: &str| format!("{{\"text\":\"{}\",\"mine\":1}}\n", text.repeat(50_000));
    let (first, second) = (line("x"), line("y"));
    let (begin, end) = first.split_at(30_000);
    let mut place = Place::new();
    place.append("log", begin);
    place.scan();
    assert!(place.notes.texts().is_empty());
    place.append("log", end);
    place.scan();
    assert!(place.notes.texts() == [first.trim_end()]);

    // And one that is gone before it is looked at.
    let path = place.path("other");
    drop(File::create(&path).unwrap());
    place.follower.hold(path.clone(), File::open(&path).unwrap());
    place.append("other", &second);
    fs::remove_file(&path).unwrap();
    place.scan();
    assert!(place.notes.texts() == [first.trim_end(), second.trim_end()]);
}

#[test]
fn a_file_that_moves_while_it_is_looked_at_is_neither_cut_nor_mixed_up() {
    let mut place = Place::new();
    let (log, moved) = (place.path("log"), place.path("log.1"));
    place.append("log", "1\n");
    place.scan();
    for n in 0..300 {
        place.append("log", &format!("a{n}\n"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                fs::rename(&log, &moved).unwrap();
                fs::write(&log, format!("b{n} is longer than what was there\n")).unwrap();
            });
            place.scan();
        });
    }
    place.scan();
    place.scan();
    assert!(!place.notes.happened.iter().any(|h| matches!(h, Happening::Truncated { .. })));
    let texts = place.notes.texts();
    let once: std::collections::BTreeSet<&str> = texts.iter().copied().collect();
    assert_eq!(texts.len(), once.len());
}

#[test]
fn files_of_a_root_that_was_away_are_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let follower = Follower::new(vec![root.clone()], |_| true, |_| true);
    let mut place = Place { folder, follower, notes: Notes::default() };
    place.follower.set_missing_time(Duration::ZERO);
    place.append("root/log", "1\n");
    place.append("root/other", "a\n");
    place.scan();
    fs::rename(&root, place.path("away")).unwrap();
    for _ in 0..3 {
        place.scan();
    }
    // Back, on another place on disk, and with more.
    fs::create_dir(&root).unwrap();
    fs::copy(place.path("away/log"), place.path("root/log")).unwrap();
    place.append("root/log", "2\n");
    for _ in 0..3 {
        place.scan();
    }
    assert_eq!(place.notes.texts(), ["1", "a", "2"]);
    // What did not come back with its root is gone.
    assert_eq!(place.notes.happened.iter().filter(|h| **h == Happening::Removed).count(), 1);
    assert_eq!(place.follower.len(), 1);
}

#[test]
fn a_cut_file_with_its_copy_in_view_loses_nothing() {
    let mut place = Place::new();
    place.append("log", "1\n2\n");
    place.scan();
    place.append("log", "3\n");
    fs::copy(place.path("log"), place.path("log.1")).unwrap();
    File::create(place.path("log")).unwrap();
    place.append("log", "4\n");
    place.scan();
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3", "4"]);
    assert!(
        place.notes.happened.contains(&Happening::Truncated { possible_loss: Some(0) }),
        "{:?}",
        place.notes.happened
    );
}

/// The folder has been listed by then: a copy that is not in the list, or that was compared with what stands no more.
#[test]
fn a_file_that_is_cut_in_the_middle_of_a_look_loses_nothing() {
    let cases = [
        (
            false,
            (|folder| {
                fs::copy(folder.join("log"), folder.join("log.1")).unwrap();
                fs::write(folder.join("log"), "4\n").unwrap();
            }) as fn(&Path),
        ),
        (true, |folder| fs::write(folder.join("log"), "4\n").unwrap()),
        (true, |folder| fs::write(folder.join("log"), "4\n5, and longer than what was there\n").unwrap()),
    ];
    for (is_copied, act) in cases {
        for everywhere in [true, false] {
            let mut place = Place::new();
            place.append("a", "0\n");
            place.append("log", "1\n2\n");
            place.scan();
            place.append("a", "go\n");
            place.append("log", "3\n");
            if is_copied {
                fs::copy(place.path("log"), place.path("log.1")).unwrap();
            }
            place.notes.at_line = Some(("go", Box::new(act)));
            if everywhere {
                place.scan();
            } else {
                let changed = [place.path("a"), place.path("log")];
                place.follower.check(&changed.into(), &mut place.notes);
            }
            place.scan();
            let texts = place.notes.texts();
            assert_eq!(texts[..6], ["0", "1", "2", "go", "3", "4"], "{is_copied} {everywhere}");
            let cuts = place.notes.happened.iter().filter(|h| matches!(h, Happening::Truncated { .. }));
            assert_eq!(cuts.collect::<Vec<_>>(), [&Happening::Truncated { possible_loss: Some(0) }]);
        }
    }
}

/// What the file held is known from what was read of it: it may hold something else before its lines are through.
#[test]
fn a_file_that_is_cut_while_its_lines_are_taken_loses_nothing() {
    for (first, more) in [("1\n", "go\n"), ("1\ngo\n", ""), ("", "1\ngo\n"), ("1\n", "2\ngo\n2")] {
        for rest in ["8\n", "8\n9\n", "8\n9\nand longer than what was there\n"] {
            let mut place = Place::new();
            let act = move |folder: &Path| {
                let log = folder.join("log");
                OpenOptions::new().append(true).open(&log).unwrap().write_all(b"3\n").unwrap();
                fs::copy(&log, folder.join("log.1")).unwrap();
                fs::write(log, rest).unwrap();
            };
            place.notes.at_line = Some(("go", Box::new(act)));
            for text in [first, more] {
                place.append("log", text);
                place.scan();
            }
            place.scan();
            let written = format!("{first}{more}3\n{rest}");
            assert_eq!(place.notes.texts(), written.lines().collect::<Vec<_>>(), "{first} {more} {rest}");
            let cuts = place.notes.happened.iter().filter(|h| matches!(h, Happening::Truncated { .. }));
            assert_eq!(cuts.collect::<Vec<_>>(), [&Happening::Truncated { possible_loss: Some(0) }]);
        }
    }
}

#[test]
fn a_copy_of_a_log_whose_last_line_has_no_end_yet_adds_nothing() {
    for end in ["", "\n"] {
        let mut place = Place::new();
        place.append("log", &format!("1\n2!{end}"));
        place.scan();
        assert_eq!(place.notes.texts(), ["1", "2!"]);
        fs::copy(place.path("log"), place.path("log.1")).unwrap();
        File::create(place.path("log")).unwrap();
        place.append("log", "3\n");
        place.scan();
        place.scan();
        assert_eq!(place.notes.texts(), ["1", "2!", "3"], "{end:?}");
        assert!(place.notes.happened.contains(&Happening::Truncated { possible_loss: Some(0) }));
        // The same for one that was moved as a copy.
        place.append("other", &format!("4\n5!{end}"));
        place.scan();
        fs::copy(place.path("other"), place.path("kept")).unwrap();
        fs::remove_file(place.path("other")).unwrap();
        fs::create_dir(place.path("elsewhere")).unwrap();
        fs::rename(place.path("kept"), place.path("elsewhere/other")).unwrap();
        place.scan();
        place.append("elsewhere/other", if end.is_empty() { "\n6\n" } else { "6\n" });
        place.scan();
        assert_eq!(place.notes.texts(), ["1", "2!", "3", "4", "5!", "6"], "{end:?}");
    }
}

#[test]
fn a_cut_file_without_a_copy_reports_the_possible_loss() {
    let mut place = Place::new();
    place.append("log", "1\n2\n");
    place.scan();
    File::create(place.path("log")).unwrap();
    place.append("log", "3\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);
    assert!(place.notes.happened.contains(&Happening::Truncated { possible_loss: None }));
}

#[test]
fn a_file_that_is_seen_while_it_is_empty_was_cut_once() {
    let mut place = Place::new();
    place.append("log", "1\n2\n");
    place.scan();
    for text in ["3\n", "4", "\n5\n"] {
        File::create(place.path("log")).unwrap();
        place.scan();
        place.notes.happened.clear();
        place.append("log", text);
        place.scan();
        place.append("log", "\n");
        place.scan();
        assert_eq!(place.notes.happened, [], "{text:?}");
    }
    assert_eq!(place.notes.texts(), ["1", "2", "3", "", "4", "", "5", ""]);
}

#[test]
fn a_cut_file_that_is_longer_again_is_noticed() {
    let mut place = Place::new();
    place.append("log", "1\n");
    place.scan();
    File::create(place.path("log")).unwrap();
    place.append("log", "other\nand more\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "other", "and more"]);
}

#[test]
fn a_half_line_that_is_taken_back_is_no_part_of_the_next_one() {
    let mut place = Place::new();
    place.append("log", "one\ntwo, of which the writer d");
    place.scan();
    OpenOptions::new().write(true).open(place.path("log")).unwrap().set_len(4).unwrap();
    place.append("log", "three, written by the next writer\n");
    place.scan();
    place.append("log", "fo");
    place.scan();
    OpenOptions::new().write(true).open(place.path("log")).unwrap().set_len(38).unwrap();
    place.scan();
    place.append("log", "five\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["one", "three, written by the next writer", "five"]);
    assert!(place.notes.happened.is_empty(), "{:?}", place.notes.happened);
}

#[test]
fn what_is_allocated_ahead_is_read_as_it_is_written() {
    for size in [100, 5_000, 6 << 20] {
        let mut place = Place::new();
        let file = File::create(place.path("log")).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"one\n", 0).unwrap();
        place.scan();
        file.write_all_at(b"two\nthr", 4).unwrap();
        place.scan();
        assert_eq!(place.notes.texts(), ["one", "two"], "{size}");
        file.write_all_at(b"ee\n", 11).unwrap();
        place.scan();
        file.set_len(14).unwrap();
        place.scan();
        place.append("log", "four\n");
        place.scan();
        assert_eq!(place.notes.texts(), ["one", "two", "three", "four"], "{size}");
        assert!(place.notes.happened.is_empty(), "{:?}", place.notes.happened);
    }
}

/// A writer that does not append goes on at its own place when the file is cut under it.
#[test]
fn a_hole_before_a_line_is_no_part_of_it() {
    let mut place = Place::new();
    let mut file = File::create(place.path("log")).unwrap();
    file.write_all("one\n".repeat(1_000).as_bytes()).unwrap();
    place.scan();
    fs::copy(place.path("log"), place.path("log.1")).unwrap();
    file.set_len(0).unwrap();
    file.write_all(b"two\n").unwrap();
    place.scan();
    assert_eq!(place.notes.texts()[1_000..], ["two"]);
}

#[test]
fn a_file_written_over_with_its_size_and_times_kept_is_noticed() {
    let mut place = Place::new();
    let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for text in ["one\n", "two\n"] {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(place.path("log")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_modified(then).unwrap();
        place.scan();
        // The clock of the file system ticks some hundred times a second.
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(place.notes.texts(), ["one", "two"]);
}

#[test]
fn a_begun_line_that_goes_on_is_something_new() {
    let mut place = Place::new();
    place.append("log", "one\n");
    place.scan();
    place.append("log", "tw");
    assert!(place.follower.scan(&mut place.notes) > 0);
    assert_eq!(place.follower.scan(&mut place.notes), 0);
}

#[test]
fn a_name_that_is_no_text_can_be_saved() {
    let mut place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"log\xff");
    fs::write(place.folder.path().join(name), "one\n").unwrap();
    place.append("log", "two\n");
    place.scan();
    for state in place.follower.states() {
        let saved = serde_json::to_string(state).unwrap();
        let read: retryscope_tail::FileState = serde_json::from_str(&saved).unwrap();
        assert_eq!(read.path, state.path);
    }
}

#[test]
fn files_with_begun_lines_keep_handles_bounded() {
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let mut place = Place::new();
    place.follower.set_handles(8);
    let before = open();
    for n in 0..100 {
        place.append(&format!("{n}"), &format!("one of {n}\ntw"));
    }
    place.scan();
    assert!(open() < before + 50, "{} of {before}", open());
    for n in 0..100 {
        place.append(&format!("{n}"), "o\n");
    }
    place.scan();
    assert_eq!(place.notes.texts().iter().filter(|text| **text == "two").count(), 100);
}

#[test]
fn a_rewritten_session_is_forgotten_and_read_again() {
    let mut place = Place::new();
    place.append("s.session", "title 1\nmessage\n");
    place.scan();
    fs::write(place.path("tmp"), "").unwrap();
    fs::write(place.path("s.new"), "title 2\nmessage\nmore\n").unwrap();
    fs::rename(place.path("s.new"), place.path("s.session")).unwrap();
    place.scan();
    assert_eq!(place.notes.texts(), ["title 2", "message", "more"]);
}

#[test]
fn a_session_that_was_cut_and_begins_again_is_read_anew() {
    let mut place = Place::new();
    let first = "x".repeat(1_100);
    place.append("s.session", &format!("{first}\n2\n3\n"));
    place.append("doc.session", "6\n7\n");
    place.scan();
    // Written over with the same beginning, and, where that tells nothing, emptied.
    fs::write(place.path("s.session"), format!("{first}\n2\n")).unwrap();
    fs::write(place.path("doc.session"), "").unwrap();
    place.scan();
    place.append("s.session", "4\n");
    place.append("doc.session", "5\n");
    place.scan();
    let mut texts = place.notes.texts();
    texts.sort_unstable();
    assert_eq!(texts, ["2", "4", "5", &first]);
}

/// `cp log log.1; : > log`, each time onto the same name, also when nobody looks in between.
#[test]
fn a_copy_over_an_older_copy_loses_nothing() {
    let mut place = Place::new();
    let mut written = Vec::new();
    for round in 0..6 {
        let mut write = |place: &mut Place, part: &str| {
            place.append("log", &format!("{round}{part}\n"));
            written.push(format!("{round}{part}"));
        };
        write(&mut place, "a");
        if round % 3 != 1 {
            place.scan();
        }
        write(&mut place, "b");
        if round % 2 == 1 {
            place.restart();
        }
        // In place: the copy stays the same file.
        fs::write(place.path("log.1"), fs::read(place.path("log")).unwrap()).unwrap();
        fs::write(place.path("log"), "").unwrap();
        place.scan();
        place.scan();
    }
    let mut texts = place.notes.texts();
    texts.sort_unstable();
    assert_eq!(texts, written);
}

#[test]
fn the_end_of_a_line_that_comes_apart_is_no_line() {
    let mut place = Place::new();
    place.append("log", "1!");
    place.scan();
    place.append("log", "\n2!");
    place.scan();
    place.restart();
    place.append("log", "\n");
    place.scan();
    place.append("log", "3\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1!", "2!", "3"]);
    assert_eq!(place.follower.states().next().unwrap().lines, 3);
    // So a copy is still known as one.
    fs::copy(place.path("log"), place.path("log.1")).unwrap();
    fs::write(place.path("log"), "").unwrap();
    place.scan();
    place.append("log", "4\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1!", "2!", "3", "4"]);
}

#[test]
fn a_root_that_is_not_asked_for_is_read_on_when_it_is_again() {
    let mut place = Place::new();
    place.append("log", "1\n");
    place.follower.set_missing_time(Duration::ZERO);
    place.scan();
    let root = place.folder.path().to_path_buf();
    place.follower.set_roots(Vec::new());
    place.append("log", "2\n");
    place.scan();
    place.scan();
    assert_eq!(place.notes.texts(), ["1"]);
    place.follower.set_roots(vec![root]);
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2"]);
}

#[test]
fn rotated_parts_of_a_log_are_read_by_age() {
    let mut place = Place::new();
    for (name, text) in [("log", "5\n"), ("log.1", "4\n"), ("log.2", "3\n"), ("log.10", "2\n")] {
        place.append(name, text);
    }
    place.append("a.jsonl", "1\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3", "4", "5"]);
}

#[test]
fn files_with_the_same_beginning_are_both_read() {
    let mut place = Place::new();
    place.append("a", "head\n");
    place.scan();
    place.append("b", "head\nonly b\n");
    for _ in 0..8 {
        place.scan();
    }
    place.append("a", "only a\n");
    place.scan();
    let mut texts = place.notes.texts();
    texts.sort_unstable();
    assert_eq!(texts, ["head", "head", "only a", "only b"]);
}

#[test]
fn a_plain_copy_adds_nothing() {
    let mut place = Place::new();
    place.append("a", "1\n2\n");
    place.scan();
    fs::copy(place.path("a"), place.path("backup")).unwrap();
    for _ in 0..8 {
        place.scan();
    }
    assert_eq!(place.notes.texts(), ["1", "2"]);
}

#[test]
fn a_copy_that_is_still_being_made_adds_nothing() {
    let mut place = Place::new();
    let text = (0..200).fold(String::new(), |all, n| all + &format!("line {n}\n"));
    let (begin, end) = text.split_at(1500);
    place.append("log", &text);
    place.scan();
    place.append("log.1", begin);
    place.scan();
    place.append("log.1", end);
    place.append("log", "more\n");
    place.append("log.1", "more\n");
    File::create(place.path("log")).unwrap();
    place.append("log", "after\n");
    place.scan();
    assert_eq!(place.notes.lines.len(), 202);
    assert_eq!(place.notes.texts()[200..], ["more", "after"]);
}

#[test]
fn a_copy_outlives_its_original() {
    let mut place = Place::new();
    place.append("log", "1\n2\n");
    place.scan();
    fs::copy(place.path("log"), place.path("moved")).unwrap();
    place.scan();
    fs::remove_file(place.path("log")).unwrap();
    place.append("moved", "3\n");
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);
}

#[test]
fn a_log_written_anew_with_more_goes_on() {
    let mut place = Place::new();
    place.append("log", "1\n2\n");
    place.scan();
    fs::write(place.path("log.new"), "1\n2\n3\n").unwrap();
    fs::rename(place.path("log.new"), place.path("log")).unwrap();
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2", "3"]);
}

#[test]
fn a_cut_file_that_begins_alike_and_is_longer_is_noticed() {
    let mut place = Place::new();
    let head = "x".repeat(2000);
    place.append("log", &format!("{head}\n1\n"));
    place.scan();
    File::create(place.path("log")).unwrap();
    place.append("log", &format!("{head}\n2\n3\n"));
    place.scan();
    assert_eq!(place.notes.texts(), [head.as_str(), "1", head.as_str(), "2", "3"]);
}

#[test]
fn what_was_notified_is_looked_at_alone() {
    let mut place = Place::new();
    fs::create_dir(place.path("a")).unwrap();
    place.append("a/log", "1\n");
    place.scan();
    fs::rename(place.path("a/log"), place.path("a/log.1")).unwrap();
    place.append("a/log", "2\n");
    let changed = [place.path("a/log")].into();
    place.follower.check(&changed, &mut place.notes);
    place.append("a/log.1", "1b\n");
    let changed = [place.path("a/log.1"), place.path("a/gone")].into();
    place.follower.check(&changed, &mut place.notes);
    assert_eq!(place.notes.texts(), ["1", "2", "1b"]);
}

#[test]
fn a_link_that_points_elsewhere_is_followed() {
    let mut place = Place::new();
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("one"), "1\n").unwrap();
    fs::write(other.path().join("two"), "2\n").unwrap();
    std::os::unix::fs::symlink(other.path().join("one"), place.path("current")).unwrap();
    place.scan();
    fs::remove_file(place.path("current")).unwrap();
    std::os::unix::fs::symlink(other.path().join("two"), place.path("current")).unwrap();
    place.scan();
    assert_eq!(place.notes.texts(), ["1", "2"]);
}

#[test]
fn many_files_keep_handles_bounded() {
    let mut place = Place::new();
    for n in 0..600 {
        place.append(&format!("f{n}"), &format!("{n}\n"));
    }
    place.scan();
    place.scan();
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 400, "{open} handles");
    for n in 0..600 {
        place.append(&format!("f{n}"), "x\n");
    }
    place.scan();
    assert_eq!(place.notes.lines.len(), 1200);
}

/// What may happen to a log.
#[derive(Debug, Clone)]
enum Action {
    Append(u8),
    Half,
    Scan,
    Rotate,
    CopyTruncate,
    Recreate,
    Restart,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => (1..20u8).prop_map(Action::Append),
        2 => Just(Action::Half),
        5 => Just(Action::Scan),
        1 => Just(Action::Rotate),
        1 => Just(Action::CopyTruncate),
        1 => Just(Action::Recreate),
        1 => Just(Action::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// Whatever happens, each complete line that was in view at a scan or lies in a file still in view comes exactly once.
    #[test]
    fn every_line_comes_once(actions in prop::collection::vec(action(), 1..60)) {
        let mut place = Place::new();
        let mut written = Vec::new();
        let mut number = 0;
        let mut half: Option<String> = None;
        let mut rotations = 0;
        for action in actions {
            match action {
                Action::Append(count) => {
                    for _ in 0..count {
                        let line = if let Some(begun) = half.take() {
                            place.append("log", "end\n");
                            format!("{begun}end")
                        } else {
                            number += 1;
                            let line = format!("line {number}");
                            place.append("log", &format!("{line}\n"));
                            line
                        };
                        written.push(line);
                    }
                }
                Action::Half if half.is_none() => {
                    number += 1;
                    let begun = format!("line {number} ");
                    place.append("log", &begun);
                    half = Some(begun);
                }
                Action::Scan => place.scan(),
                Action::Rotate if half.is_none() && place.path("log").exists() => {
                    rotations += 1;
                    fs::rename(place.path("log"), place.path(&format!("log.{rotations}"))).unwrap();
                }
                Action::CopyTruncate if half.is_none() && place.path("log").exists() => {
                    rotations += 1;
                    fs::copy(place.path("log"), place.path(&format!("log.{rotations}"))).unwrap();
                    File::create(place.path("log")).unwrap();
                }
                // What was not seen before a deletion is lost by nature; so it is seen first.
                Action::Recreate if half.is_none() && place.path("log").exists() => {
                    place.scan();
                    fs::remove_file(place.path("log")).unwrap();
                }
                Action::Half | Action::Rotate | Action::CopyTruncate | Action::Recreate => {}
                Action::Restart => place.restart(),
            }
        }
        for _ in 0..8 {
            place.scan();
        }
        let mut texts = place.notes.texts();
        texts.sort_unstable();
        written.sort_unstable();
        prop_assert_eq!(texts, written.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
