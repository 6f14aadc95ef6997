//! How far the reading of files has come, for whoever wants to say so while it goes on.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that readings of this process have had to read, and have read.
static ALL: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

/// Returns bytes read, and bytes to read, over all readings of this process so far. Both grow; the first may lag behind a
/// large file that is being read.
pub fn progress() -> (u64, u64) {
    (DONE.load(Ordering::Relaxed), ALL.load(Ordering::Relaxed))
}

pub(crate) fn expect(bytes: u64) {
    ALL.fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn done(bytes: u64) {
    DONE.fetch_add(bytes, Ordering::Relaxed);
}
