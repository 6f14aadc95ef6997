//! What many statements say again: candidates and plain failures, kept once for all runs.
//!
//! Nothing depends on what is in it; it only saves making the same thing again.

use std::sync::Arc;

use retryscope_events::Candidate;

use crate::judge::{Failure, Recent, Said};

use super::candidate::Known;

/// Things that were made lately.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    candidates: Known,
    failures: Recent,
    /// The failure that was restored last.
    restored: Option<Failure>,
}

impl Memo {
    /// Returns a candidate.
    pub(super) fn candidate(&mut self, said: &Candidate) -> Arc<Candidate> {
        self.candidates.shared(said)
    }

    /// Returns what two candidates say together, the second one before the first.
    pub(super) fn merged(&mut self, base: &Arc<Candidate>, said: &Candidate) -> Arc<Candidate> {
        self.candidates.merged(base, said)
    }

    /// Lets a failure that was restored share what the one before holds, if they are equal.
    pub(super) fn share(&mut self, failure: &mut Failure) {
        match &self.restored {
            Some(known) if known == failure => failure.clone_from(known),
            _ => self.restored = Some(failure.clone()),
        }
    }

    /// Classifies a failure.
    pub(super) fn judge(&mut self, said: &Said<'_>) -> Failure {
        self.failures.judge(said)
    }
}
