//! Why a turn failed: the first cause, not the last symptom.
//!
//! Not for: wording (the faces do that). Rule: the error of the last failed attempt of the request that ended the turn,
//! unless that error says nothing of its own (`unknown`, or the client's own "cancelled") and an earlier one does.

use retryscope_events::{AttemptOutcome, Source};

use retryscope_taxonomy::Class;

use crate::judge::{Failure, Said, judge};
use crate::run::{Attempt, Cause, LogicalRequest};
use crate::view::End;

/// Returns the cause of a failed turn; `None` where the log holds no error at all.
pub(crate) fn cause_of(requests: &[LogicalRequest], end: Option<&End>) -> Option<Cause> {
    let failed = |a: &&Attempt| a.outcome == Some(AttemptOutcome::Failed) && a.failure.is_some();
    let request = requests
        .iter()
        .rev()
        .filter(|r| r.source == Source::Foreground)
        .find(|r| !r.outcome.is_ok() && r.attempts.iter().any(|a| failed(&a)));
    if let Some(request) = request {
        let speaks = |a: &&Attempt| {
            a.failure.as_ref().is_some_and(|f| !matches!(f.class, Class::Unknown | Class::Cancelled))
        };
        let attempt = request
            .attempts
            .iter()
            .rev()
            .filter(failed)
            .find(speaks)
            .or_else(|| request.attempts.iter().rev().find(failed))?;
        return Some(Cause {
            failure: attempt.failure.clone()?,
            candidate: attempt.candidate.clone(),
            evidence: vec![attempt.origin],
        });
    }
    let end = end?;
    let message = end.message.as_deref()?;
    let failure: Failure = judge(&Said { message: Some(message), at: end.at, ..Said::default() });
    Some(Cause {
        failure,
        candidate: requests
            .last()
            .and_then(|r| r.attempts.last())
            .map(|a| a.candidate.clone())
            .unwrap_or_default(),
        evidence: vec![end.origin],
    })
}
