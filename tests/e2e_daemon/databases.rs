//! Databases that are written while they are read, and logs that are compressed when they are over.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::support::{Place, until};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

/// What a daemon counts of a file that lies there as a whole.
fn counted_whole(file: &Path) -> usize {
    let place = Place::new();
    fs::copy(file, place.log(file.file_name().unwrap().to_str().unwrap())).unwrap();
    place.start().logical() as usize
}

/// Rows that stand in the write-ahead log alone are counted, each once, also when the log is written back.
#[test]
fn rows_in_a_write_ahead_log() {
    let whole = fixture("opencode/500_500_ok/logs/home/.local/share/opencode/opencode.db");
    let wanted = counted_whole(&whole);
    assert!(wanted > 0);
    let place = Place::new();
    let path = place.log("opencode.db");
    fs::copy(&whole, &path).unwrap();
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch("PRAGMA foreign_keys=OFF; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;")
        .unwrap();
    database.execute_batch("CREATE TABLE kept AS SELECT * FROM message; DELETE FROM message;").unwrap();
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    let daemon = place.start();
    daemon.counts_and_stays(0);
    let size = fs::metadata(&path).unwrap().len();
    database.execute_batch("INSERT INTO message SELECT * FROM kept;").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size, "the rows stand in the log only");
    daemon.counts_and_stays(wanted);
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    daemon.counts_and_stays(wanted);
    drop(database);
    daemon.counts_and_stays(wanted);
}

/// A session that is compressed when it is over is the same session.
#[test]
fn a_log_that_is_compressed_adds_nothing() {
    let sessions = fixture("codex/v0_60_1-mixed-ok/logs/home/.codex/sessions/2026/11/29");
    let session = fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let wanted = counted_whole(&session);
    assert!(wanted > 0);
    let place = Place::new();
    let name = session.file_name().unwrap().to_str().unwrap();
    let bytes = fs::read(&session).unwrap();
    fs::write(place.log(name), &bytes).unwrap();
    let daemon = place.start();
    daemon.counts(wanted);
    let zstd = zstd::encode_all(&bytes[..], 3).unwrap();
    fs::write(place.log(&format!("{name}.zst")), &zstd).unwrap();
    fs::remove_file(place.log(name)).unwrap();
    daemon.counts_and_stays(wanted);
    drop(daemon);
    place.start().counts_and_stays(wanted);
    // The same for a machine that has only the compressed one.
    let other = Place::new();
    fs::write(other.log(&format!("{name}.zst")), &zstd).unwrap();
    other.start().counts_and_stays(wanted);
}

/// Logs of our own schema are rotated and compressed while they grow.
#[test]
fn rotated_copies_in_either_form_are_not_read() {
    let place = Place::new();
    place.append("events.jsonl", &super::support::many("a", 0..30));
    let daemon = place.start();
    daemon.counts(30);
    for (round, ending) in ["gz", "zst"].into_iter().enumerate() {
        let old = place.log(&format!("events.jsonl.{round}"));
        fs::rename(place.log("events.jsonl"), &old).unwrap();
        let bytes = fs::read(&old).unwrap();
        let packed = if ending == "gz" {
            let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            zipped.write_all(&bytes).unwrap();
            zipped.finish().unwrap()
        } else {
            zstd::encode_all(&bytes[..], 3).unwrap()
        };
        fs::write(place.log(&format!("events.jsonl.{round}.{ending}")), packed).unwrap();
        fs::remove_file(old).unwrap();
        place.append("events.jsonl", &super::support::many("a", 30 + round * 10..40 + round * 10));
        daemon.counts_and_stays(40 + round * 10);
    }
}

/// A database that cannot be read for now takes nothing back from what was read of it.
#[test]
fn a_database_that_cannot_be_queried_for_now_opens_no_count() {
    let place = Place::new();
    let path = place.log("opencode.db");
    fs::copy(fixture("opencode/500_500_ok/logs/home/.local/share/opencode/opencode.db"), &path).unwrap();
    let database = Connection::open(&path).unwrap();
    let daemon = place.start();
    until("read", || if daemon.logical() > 0.0 { Ok(()) } else { Err(daemon.metrics()) });
    let logical = daemon.logical() as usize;
    let counts = || {
        let runs: serde_json::Value = serde_json::from_str(&daemon.get("/api/v1/runs").body).unwrap();
        runs["runs"].as_array().unwrap().iter().map(|run| run["counts"].clone()).collect::<Vec<_>>()
    };
    let before = counts();
    // As in the midst of a migration.
    let rename = |from: &str, to: &str| {
        let text = format!("PRAGMA foreign_keys=OFF; ALTER TABLE message RENAME COLUMN {from} TO {to};");
        database.execute_batch(&text).unwrap();
    };
    rename("data", "away");
    until("a gap", || match daemon.sum_of("retryscope_gaps_total", "kind=\"database\"") {
        n if n > 0.0 => Ok(()),
        _ => Err(daemon.metrics()),
    });
    assert_eq!(counts(), before);
    rename("away", "data");
    daemon.counts_and_stays(logical);
    assert_eq!(counts(), before);
}
