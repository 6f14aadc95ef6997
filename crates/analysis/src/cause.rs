//! Why a turn failed: the first cause, not the last symptom.
//!
//! Not for: wording (the faces do that). Rule: the error of the last failed attempt of the request that ended the turn,
//! unless that error is empty, or the client's own "cancelled", and an earlier one of the same request says more. What was
//! said of another request is the cause of nothing here, and an error of no known kind is the cause all the same: what was
//! repeated before it may have been answered.

use retryscope_events::{AttemptOutcome, Source};

use retryscope_taxonomy::Class;

use crate::judge::{Failure, Said, judge};
use crate::run::{Attempt, Cause, LogicalRequest};
use crate::view::End;

/// Returns the place of the request that ended a failed turn: the last one of its own work that failed.
pub(crate) fn ended_by(requests: &[LogicalRequest]) -> Option<usize> {
    let failed = |a: &Attempt| a.outcome == Some(AttemptOutcome::Failed);
    requests
        .iter()
        .rposition(|r| r.source == Source::Foreground && !r.outcome.is_ok() && r.attempts.iter().any(failed))
}

/// Returns the cause of a failed turn; `None` where the log holds no error of what ended it.
pub(crate) fn cause_of(requests: &[LogicalRequest], end: Option<&End>) -> Option<Cause> {
    let place = ended_by(requests);
    let attempts = place.map_or(&[][..], |place| &requests[place].attempts);
    let told = || attempts.iter().rev().filter(|a| a.outcome == Some(AttemptOutcome::Failed));
    let speaks =
        |a: &&Attempt| a.failure.as_ref().is_some_and(|f| !f.is_empty() && f.class != Class::Cancelled);
    let found = told().find(speaks).or_else(|| told().find(|a| a.failure.is_some()));
    if let Some((attempt, failure)) = found.and_then(|a| Some((a, a.failure.clone()?))) {
        let evidence = vec![attempt.origin];
        return Some(Cause { failure, candidate: attempt.candidate.clone(), request: place, evidence });
    }
    let end = end?;
    let message = end.message.as_deref()?;
    let failure: Failure = judge(&Said { message: Some(message), at: end.at, ..Said::default() });
    // Every request was answered: what the agent says is why it stopped, and, of no known kind, no failure of a request.
    let mut own = requests.iter().filter(|r| r.source == Source::Foreground).peekable();
    if failure.class == Class::Unknown && own.peek().is_some() && own.all(|r| r.outcome.is_ok()) {
        return None;
    }
    let asked = place.map(|place| &requests[place]).or(requests.last());
    let candidate = asked.and_then(|r| r.attempts.last()).map(|a| a.candidate.clone()).unwrap_or_default();
    Some(Cause { failure, candidate, request: place, evidence: vec![end.origin] })
}
