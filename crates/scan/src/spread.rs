//! Spreads work over the cores.
//!
//! Each piece is done by one thread, by itself: its result does not depend on the others. The largest begin first, so that
//! no core is left with one large piece at the end. Results come in any order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::progress;

/// More threads than this do not read faster from one disk, and each has buffers.
const MOST_THREADS: usize = 8;

/// Bytes from which a thread is worth its start.
const WORTH_A_THREAD: u64 = 1 << 20;

/// Opening a file costs as much as reading this many bytes.
const OPENING: u64 = 64 << 10;

/// Does the work; hands each result over on this thread. `work` gets a buffer that is used again from piece to piece.
pub(crate) fn over_cores<T: Sync, R: Send>(
    pieces: &[T],
    bytes: impl Fn(&T) -> u64,
    work: impl Fn(&T, &mut Vec<u8>) -> R + Sync,
    mut take: impl FnMut(R),
) {
    let mut largest_first: Vec<(u64, &T)> =
        pieces.iter().map(|piece| (bytes(piece) + OPENING, piece)).collect();
    let all: u64 = largest_first.iter().map(|(bytes, _)| bytes).sum();
    progress::expect(all);
    let worth = usize::try_from(all / WORTH_A_THREAD).unwrap_or(usize::MAX);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(MOST_THREADS).min(worth).min(pieces.len());
    if threads <= 1 {
        let mut buffer = Vec::new();
        for (bytes, piece) in largest_first {
            take(work(piece, &mut buffer));
            progress::done(bytes);
        }
        return;
    }
    largest_first.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let next = AtomicUsize::new(0);
    let do_some = || {
        let mut buffer = Vec::new();
        let mut results = Vec::new();
        while let Some((bytes, piece)) = largest_first.get(next.fetch_add(1, Ordering::Relaxed)) {
            results.push(work(piece, &mut buffer));
            progress::done(*bytes);
        }
        results
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(do_some)).collect();
        do_some().into_iter().for_each(&mut take);
        for other in others {
            match other.join() {
                Ok(results) => results.into_iter().for_each(&mut take),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
}
