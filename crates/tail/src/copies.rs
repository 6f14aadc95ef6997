//! Copies of followed files: the original may be cut next (copytruncate), and a backup adds nothing.
//!
//! A new file is compared with what lies on disk of the files that begin alike. Not for: deciding what to do about it (the
//! follower does).

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use crate::as_read::HEAD;
use crate::follow::FileState;
use crate::identity::{Checksum, Identity, read_span};
use crate::lines::{Line, LineReader};

/// Bytes that are compared at a time.
const BLOCK: usize = 64 << 10;

/// A file that holds nothing of its own so far.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// What it is a copy of.
    pub(crate) original: u32,
    /// Size and time of the last change when it was compared.
    pub(crate) seen: (u64, Option<SystemTime>),
}

/// Followed files by how they begin.
#[derive(Debug, Default)]
pub(crate) struct Heads(HashMap<(usize, u64), Vec<u32>>);

impl Heads {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, identity: &Identity, id: u32) {
        if identity.head_length > 0 {
            self.0.entry((identity.head_length, identity.head)).or_default().push(id);
        }
    }

    /// Returns the files that a file with this beginning may be a copy of, or the beginning of.
    pub(crate) fn alike(&self, file: &File) -> Vec<u32> {
        let Ok(bytes) = read_span(file, 0, HEAD) else { return Vec::new() };
        let mut found = Vec::new();
        let mut sum = Checksum::default();
        for (index, byte) in bytes.iter().enumerate() {
            sum.add(std::slice::from_ref(byte));
            if let Some(ids) = self.0.get(&(index + 1, sum.value())) {
                found.extend_from_slice(ids);
            }
        }
        found
    }
}

/// How a file relates to another one that begins alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// All of it stands at the beginning of the other one.
    IsBeginning,
    /// It holds something that the other one does not.
    HasMore,
}

/// Compares a file with another one, byte by byte.
pub(crate) fn compare(file: &File, length: u64, other: &File, other_length: u64) -> Relation {
    let mut at = 0;
    while at < length.min(other_length) {
        let (Ok(a), Ok(b)) = (read_span(file, at, BLOCK), read_span(other, at, BLOCK)) else {
            return Relation::HasMore;
        };
        let shared = a.len().min(b.len());
        if shared == 0 {
            break;
        }
        if a[..shared] != b[..shared] {
            return Relation::HasMore;
        }
        at += shared as u64;
    }
    if length <= other_length { Relation::IsBeginning } else { Relation::HasMore }
}

/// Returns whether a file begins with all that was read of a source.
pub(crate) fn holds_all_read(path: &Path, state: &FileState) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let Ok(metadata) = file.metadata() else { return false };
    let begins = metadata.len() >= state.offset && state.identity.still_begins(&file).unwrap_or(false);
    if state.identity.is_at(&metadata) || !begins || file.seek(SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut lines = LineReader::new(file);
    let mut checksum = Checksum::default();
    for number in 1..=state.lines {
        // The last line may have been taken before its end was written, and be copied without it.
        let may_lack_end = number == state.lines && metadata.len() == state.offset;
        let line = if may_lack_end { lines.next_line() } else { lines.next_complete_line() };
        match line {
            Ok(Some(line)) => add_line(&mut checksum, line),
            _ => return false,
        }
    }
    // The end of the last line may have come apart from it, and not be taken yet.
    let end = lines.position().0;
    checksum == state.checksum && (end == state.offset || end == state.offset + 1)
}

/// A shortened line stands for itself by its place alone: where it was cut depends on how it was read.
pub(crate) fn add_line(checksum: &mut Checksum, line: Line<'_>) {
    checksum.add_line(if line.shortened { b"" } else { line.bytes });
}
