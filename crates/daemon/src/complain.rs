//! Warnings that one bad file could repeat without end: a few a minute of each kind, the rest counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::warn;

/// Warnings of one kind within [`WINDOW`].
const MOST: u32 = 5;

const WINDOW: Duration = Duration::from_mins(1);

/// Counts warnings by kind.
#[derive(Debug, Default)]
pub(crate) struct Complaints(BTreeMap<&'static str, (Option<Instant>, u32)>);

impl Complaints {
    /// Returns whether a warning of this kind may be written now; says at the start of a window how many were not.
    pub(crate) fn may(&mut self, kind: &'static str) -> bool {
        let (since, count) = self.0.entry(kind).or_default();
        if since.is_none_or(|since| since.elapsed() > WINDOW) {
            if *count > MOST {
                warn!(kind, suppressed = *count - MOST, "more of these were not written");
            }
            (*since, *count) = (Some(Instant::now()), 0);
        }
        *count += 1;
        *count <= MOST
    }
}
