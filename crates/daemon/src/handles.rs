//! How many files may be open at once.
//!
//! Half of what the system allows is for logs; the rest for new ones that are opened before they are looked at, connections,
//! databases and the checkpoint.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// More are of no use.
const WANTED: u64 = 8_192;

/// Allows itself as many open files as it may, and returns how many logs may be open.
pub(crate) fn for_logs() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current =
        Some(limit.maximum.map_or(WANTED, |most| most.min(WANTED)).max(limit.current.unwrap_or(WANTED)));
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "the limit of open files stays as it is");
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(WANTED).min(WANTED);
    usize::try_from(now / 2).unwrap_or(256)
}

/// Returns how many new files may be open that no look has seen, where so many logs may be.
pub(crate) fn for_new_files(logs: usize) -> usize {
    logs / 8
}
