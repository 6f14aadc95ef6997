//! Reads many files on all cores.
//!
//! Each file is read by one thread, from its beginning to its end, by itself: what it says does not depend on the others.
//! The largest begin first, so that no core is left with one large file at the end. Outcomes come in any order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use retryscope_record::SourceId;
use retryscope_tail::Found;

use crate::read::{self, Outcome};

/// More threads than this do not read faster from one disk, and each has buffers.
const MOST_THREADS: usize = 8;

/// Bytes from which a thread is worth its start.
const WORTH_A_THREAD: u64 = 1 << 20;

/// Outcomes that may wait to be taken.
const WAITING: usize = 64;

/// Reads the files; hands each outcome over on this thread.
pub(crate) fn over_cores(files: &[(SourceId, Found)], mut take: impl FnMut(Outcome)) {
    let bytes: u64 = files.iter().map(|(_, file)| file.metadata.len().max(64 << 10)).sum();
    let worth = usize::try_from(bytes / WORTH_A_THREAD).unwrap_or(usize::MAX);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(worth);
    if threads <= 1 {
        let mut buffer = Vec::new();
        for (id, found) in files {
            take(read::file(found, *id, &mut buffer));
        }
        return;
    }
    let mut largest_first: Vec<&(SourceId, Found)> = files.iter().collect();
    largest_first.sort_by_key(|(id, found)| (std::cmp::Reverse(found.metadata.len()), *id));
    let next = AtomicUsize::new(0);
    let (send, outcomes) = sync_channel(WAITING);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next, files) = (send.clone(), &next, &largest_first);
            scope.spawn(move || {
                let mut buffer = Vec::new();
                while let Some((id, found)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if send.send(read::file(found, *id, &mut buffer)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        outcomes.iter().for_each(&mut take);
    });
}
