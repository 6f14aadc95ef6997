//! Attempts that have records of their own: which attempt a record completes, and attempts that are made of others.
//!
//! A layer that retries may tell its attempt, and the layer below it each send of that attempt. Only what was sent counts:
//! an attempt with parts stands for them, and its kind and waits are those of its first and last part.

use retryscope_events::{AttemptKind, ModelAttempt};

use crate::run::Attempt;

use super::candidate::differs;
use super::request::{FallbacksSeen, RequestView};

impl RequestView {
    /// Returns the attempt that a record completes: by id, or the one of its number that began and has no end yet.
    pub(super) fn known(&self, body: &ModelAttempt) -> Option<usize> {
        if let Some(id) = &body.attempt_id {
            return self.attempts.iter().position(|a| a.id.as_ref() == Some(id));
        }
        body.outcome?;
        let index = usize::try_from(body.attempt?.checked_sub(1)?).ok()?;
        let attempt = self.attempts.get(index).filter(|_| index < self.own_records)?;
        let is_same = attempt.id.is_none()
            && attempt.outcome.is_none()
            && body.started_at.is_none_or(|at| attempt.started_at == Some(at))
            && body.layer.is_none_or(|layer| attempt.layer.is_none_or(|known| known == layer))
            && body.candidate.as_ref().is_none_or(|candidate| !differs(&attempt.candidate, candidate));
        is_same.then_some(index)
    }

    /// Takes the record of an attempt whose parts are known; returns whether it is one.
    pub(super) fn is_made_of_parts(&mut self, body: &ModelAttempt) -> bool {
        let Some(id) = &body.attempt_id else { return false };
        let is_part = |a: &Attempt| a.told.parent.as_deref() == Some(id);
        let Some(first) = self.attempts.iter().position(is_part) else { return false };
        let kind = body.kind.unwrap_or(if first == 0 { AttemptKind::Original } else { AttemptKind::Retry });
        self.fallbacks_seen = FallbacksSeen::default();
        let first = &mut self.attempts[first];
        if first.kind == AttemptKind::Original || !first.told.kind {
            first.kind = kind;
            first.layer =
                if kind == AttemptKind::Original { first.layer } else { body.layer.or(first.layer) };
            first.told.kind = true;
        }
        true
    }

    /// Takes out the attempt of this id, of which a part is now told.
    pub(super) fn take_outer(&mut self, id: &str) -> Option<Attempt> {
        let index = self.attempts.iter().position(|a| a.id.as_deref() == Some(id))?;
        if index < self.own_records {
            self.own_records -= 1;
        }
        self.fallbacks_seen = FallbacksSeen::default();
        Some(self.attempts.remove(index))
    }

    /// A send before which nothing certainly left repeats nothing; one before which certainly nothing left is the first one,
    /// whoever it went to.
    pub(super) fn name_first_send(&mut self, index: usize) {
        let (before, rest) = self.attempts.split_at_mut(index);
        let Some(attempt) = rest.first_mut().filter(|_| !before.is_empty()) else { return };
        let is_first = match attempt.kind {
            AttemptKind::Original => false,
            AttemptKind::Retry => before.iter().all(|a| a.sends.min == 0),
            AttemptKind::Fallback | AttemptKind::Hedge => before.iter().all(|a| a.sends.max == Some(0)),
        };
        if is_first {
            attempt.kind = AttemptKind::Original;
            self.fallbacks_seen = FallbacksSeen::default();
        }
    }
}

impl Attempt {
    /// Makes this the first part of another attempt.
    pub(super) fn begins(&mut self, outer: &Attempt) {
        if self.kind == AttemptKind::Original || !self.told.kind {
            self.kind = outer.kind;
            self.told.kind |= outer.told.kind;
            self.layer =
                if outer.kind == AttemptKind::Original { self.layer } else { outer.layer.or(self.layer) };
        }
    }
}
