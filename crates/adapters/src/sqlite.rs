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

/// Opens the database at `path` for reading.
pub fn open(path: &Path) -> rusqlite::Result<Opened> {
    match try_open(path, "mode=ro") {
        Ok(connection) => return Ok(Opened { connection, copy: None }),
        // Without a log nothing can be missed.
        Err(_) if !has_log(path) => {
            if let Ok(connection) = try_open(path, "immutable=1") {
                return Ok(Opened { connection, copy: None });
            }
        }
        Err(_) => {}
    }
    let (copy, at) = copy_to_scratch(path).map_err(|error| {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        rusqlite::Error::SqliteFailure(code, Some(format!("cannot copy to a scratch place: {error}")))
    })?;
    Ok(Opened { connection: try_open(&at, "mode=rw")?, copy: Some(copy) })
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

fn has_log(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).is_ok_and(|m| m.len() > 0)
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
