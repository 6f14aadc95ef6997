//! Opens an agent's live SQLite database without disturbing its writer.
//!
//! Read-only, never a lock that a writer would wait for, never `immutable` while a write-ahead log exists (its rows would
//! be missed without an error). Where the database cannot be opened in place, it is copied with its log to a bounded
//! scratch place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// Largest database that is copied when it cannot be opened in place, log included.
const COPY_LIMIT: u64 = 512 << 20;

/// An open database, and the scratch copy behind it if one was needed.
#[derive(Debug)]
pub struct Opened {
    connection: Connection,
    /// Kept so that the copy lives as long as the connection.
    copy: Option<TempDir>,
}

impl Opened {
    /// Returns the connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns whether a scratch copy is read instead of the file itself.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }
}

/// Opens the database at `path` for reading. Leaves no file beside it: `SQLite` would create the log and its index where
/// they are missing, and a reader cannot take them away again.
pub fn open(path: &Path) -> rusqlite::Result<Opened> {
    let there = |ending| beside(path, ending).exists();
    let in_place = match (keeps_log(path), there("-wal"), there("-shm")) {
        // Whoever has it open for writing keeps both files: nobody has, and nothing can be missed.
        (true, false, false) => try_open(path, "immutable=1"),
        (false, ..) | (true, true, true) => try_open(path, "mode=ro"),
        (true, ..) => Err(rusqlite::Error::InvalidQuery),
    };
    if let Ok(connection) = in_place {
        return Ok(Opened { connection, copy: None });
    }
    let (copy, at) = copy_to_scratch(path).map_err(|error| {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        rusqlite::Error::SqliteFailure(code, Some(format!("cannot copy to a scratch place: {error}")))
    })?;
    Ok(Opened { connection: try_open(&at, "mode=rw")?, copy: Some(copy) })
}

/// Whether the database says that it writes ahead: <https://www.sqlite.org/fileformat.html#file_format_version_numbers>.
fn keeps_log(path: &Path) -> bool {
    let mut head = [0; 20];
    let read = fs::File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut head));
    read.is_ok() && head[18] == 2
}

fn try_open(path: &Path, mode: &str) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push('?');
    uri.push_str(mode);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let flags = if mode == "mode=rw" {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX
    } else {
        flags
    };
    let connection = Connection::open_with_flags(&uri, flags)?;
    connection.busy_timeout(Duration::from_millis(100))?;
    // Opening is lazy: only a query shows whether it works.
    connection.query_row("select count(*) from sqlite_master", [], |_| Ok(()))?;
    Ok(connection)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn copy_to_scratch(path: &Path) -> io::Result<(TempDir, PathBuf)> {
    let size = |path: &Path| fs::metadata(path).map_or(0, |m| m.len());
    let log = beside(path, "-wal");
    if size(path) + size(&log) > COPY_LIMIT {
        return Err(io::Error::other("larger than the limit for copies"));
    }
    let folder = TempDir::with_prefix("retryscope-")?;
    let at = folder.path().join("copy.db");
    fs::copy(path, &at)?;
    if log.exists() {
        fs::copy(&log, beside(&at, "-wal"))?;
    }
    Ok((folder, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with one row, which a crash left in the log if `crashed`; without the index of the log then.
    fn database(folder: &Path, crashed: bool) -> PathBuf {
        let path = folder.join("live.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("pragma journal_mode=wal; create table t(x); insert into t values (7)").unwrap();
        let kept = folder.join("kept");
        if crashed {
            fs::copy(beside(&path, "-wal"), &kept).unwrap();
            let main = fs::read(&path).unwrap();
            drop(writer);
            fs::write(&path, main).unwrap();
            fs::rename(kept, beside(&path, "-wal")).unwrap();
        }
        path
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn rows_are_found_and_nothing_is_left_behind() {
        for crashed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = database(folder.path(), crashed);
            let before = names(folder.path());
            let opened = open(&path).unwrap();
            let x: i64 = opened.connection().query_row("select x from t", [], |row| row.get(0)).unwrap();
            assert_eq!(x, 7);
            assert_eq!(opened.is_copy(), crashed);
            drop(opened);
            assert_eq!(names(folder.path()), before, "crashed: {crashed}");
        }
    }

    #[test]
    fn a_writer_at_work_is_read_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("live.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("pragma journal_mode=wal; create table t(x); insert into t values (7)").unwrap();
        let opened = open(&path).unwrap();
        assert!(!opened.is_copy());
        let x: i64 = opened.connection().query_row("select x from t", [], |row| row.get(0)).unwrap();
        assert_eq!(x, 7);
    }
}
