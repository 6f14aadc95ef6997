//! Files that add nothing: all of them stands at the beginning of another one that is read too, as in a folder that was
//! copied. What names its events is told from a repeat by these names; other events only by this.
//!
//! Not for: files that are followed; the follower compares these with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use retryscope_adapters::HEAD_LENGTH;
use retryscope_record::{SourceId, View};
use retryscope_tail::Found;

use crate::index::checksum;
use crate::read::recognize_at;

/// Bytes that are compared at a time. Files whose first lines are not the same are no copies of each other; of a longer line
/// its first part tells.
const BLOCK: usize = 64 << 10;

/// Returns those of the files that stand whole at the beginning of another one, of the kind that continue each other: any other
/// source is a view of its own, and views of the same requests are not added. Of files that are the same, the first is none.
pub(crate) fn among<'a>(files: impl Iterator<Item = (SourceId, &'a Found)>) -> BTreeSet<SourceId> {
    let mut alike: BTreeMap<u64, Vec<(SourceId, &Found)>> = BTreeMap::new();
    for (id, file) in files {
        // One that cannot be read is a problem where it is read.
        if let Ok(Some(line)) = first_line(file) {
            alike.entry(line).or_default().push((id, file));
        }
    }
    let mut copies = BTreeSet::new();
    for mut group in alike.into_values() {
        group.sort_by_key(|(id, file)| (std::cmp::Reverse(file.metadata.len()), *id));
        let mut kept: Vec<&Found> = Vec::new();
        for (id, file) in group {
            if kept.iter().any(|other| is_beginning(file, other).unwrap_or(false)) {
                copies.insert(id);
            } else {
                kept.push(file);
            }
        }
    }
    copies
}

/// Returns a checksum of how a file of events begins; `None` for any other.
fn first_line(file: &Found) -> io::Result<Option<u64>> {
    let mut head = Vec::new();
    File::open(&file.path)?.take(BLOCK as u64).read_to_end(&mut head)?;
    let recognized = recognize_at(&file.path, &head[..head.len().min(HEAD_LENGTH)]);
    // The last line of a file may lack its end.
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(recognized.is_some_and(|recognized| recognized.view == View::EVENTS).then(|| checksum(line)))
}

/// Returns whether all of a file stands at the beginning of one that is not shorter.
fn is_beginning(file: &Found, other: &Found) -> io::Result<bool> {
    let open = |found: &Found| Ok::<_, io::Error>(BufReader::with_capacity(BLOCK, File::open(&found.path)?));
    let (mut file, mut other) = (open(file)?, open(other)?);
    loop {
        let (a, b) = (file.fill_buf()?, other.fill_buf()?);
        let shared = a.len().min(b.len());
        if a.is_empty() {
            return Ok(true);
        }
        if shared == 0 || a[..shared] != b[..shared] {
            return Ok(false);
        }
        file.consume(shared);
        other.consume(shared);
    }
}
