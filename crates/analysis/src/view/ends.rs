//! How a request, a turn and a run end.
//!
//! Not for: what was sent before (see `events`). A second end of the same thing adds words and numbers, it takes none away.

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptKind, AttemptOutcome, Decision, Event, ModelFailed, ModelResponse, RunFinished,
};
use retryscope_record::{Anchor, Origin, RawFailure, TurnOutcome};

use crate::count::Evidence;
use crate::judge::Said;
use crate::redact::kept;

use super::candidate::differs;
use super::events::{number, reached, said, span, tokens};
use super::memo::Memo;
use super::request::{RequestEnd, RequestView, close, ends_before};
use super::{End, ViewOfRun};

impl ViewOfRun {
    pub(super) fn response(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelResponse,
        memo: &mut Memo,
    ) {
        let request = self.request_of(turn, origin, event, body.request_id.as_ref(), memo);
        if let Some(candidate) = &body.candidate {
            request.candidate = memo.merged(&request.candidate, candidate);
        }
        if request.end == Some(RequestEnd::Answered) {
            // Said again, with more: one message on several lines, the last of which has the whole usage.
            request.usage = tokens(body.usage.as_ref()).or(request.usage.take());
            request.stop_reason = kept(body.stop_reason.as_deref()).or(request.stop_reason.take());
            request.tell_attempts(number(body.attempts));
            return;
        }
        if request.explicit {
            request.pending = None;
            if let Some(last) = request.last().filter(|a| a.outcome.is_none()) {
                last.outcome = Some(AttemptOutcome::Ok);
                last.ended_at = last.ended_at.or(event.ts);
            }
        } else {
            let attempt = request.current(origin, event.ts);
            attempt.outcome = Some(AttemptOutcome::Ok);
            attempt.evidence = Evidence::Observed;
            attempt.ended_at = event.ts;
        }
        request.tell_attempts(number(body.attempts));
        request.usage = tokens(body.usage.as_ref()).or(request.usage.take());
        request.requested_model = kept(body.requested_model.as_deref()).or(request.requested_model.take());
        request.stop_reason = kept(body.stop_reason.as_deref()).or(request.stop_reason.take());
        request.end = Some(RequestEnd::Answered);
    }

    pub(super) fn failed(
        &mut self,
        turn: usize,
        origin: Origin,
        event: &Event,
        body: &ModelFailed,
        raw: Option<&RawFailure>,
        memo: &mut Memo,
    ) {
        if let Some(id) = &body.upstream_request_id {
            self.turns[turn].note(Anchor::of(id));
        }
        let request = self.request_of(turn, origin, event, body.request_id.as_ref(), memo);
        if let Some(candidate) = &body.candidate {
            request.candidate = memo.merged(&request.candidate, candidate);
        }
        let cut = matches!(body.decision, Some(Decision::Cancelled | Decision::Deadline | Decision::Budget))
            && request.pending.is_some_and(|p| ends_before(&p, event.ts, 0));
        let asked = request.candidate.clone();
        // By the number that it tells, each attempt is among those seen before.
        let seen = request.attempts.len() as u64;
        // A candidate that no attempt was made with yet proves one more, whatever the number counts.
        let is_other = request.next_kind == Some(AttemptKind::Fallback)
            || request.attempts.last().is_some_and(|last| differs(&last.candidate, &request.candidate));
        let are_all_seen = seen > 0 && !is_other && number(body.attempts).is_some_and(|told| told <= seen);
        // An error behind the answer says that this was not whole.
        let broke_off = request.end == Some(RequestEnd::Answered)
            && request.attempts.last().is_some_and(|last| last.outcome == Some(AttemptOutcome::Ok));
        if cut || are_all_seen || request.explicit {
            request.stop_waiting(event.ts);
        }
        if !cut {
            let attempt = if are_all_seen || broke_off || request.explicit && !request.attempts.is_empty() {
                request.pending = None;
                let last = request.last_that_may_have_failed();
                &mut request.attempts[last]
            } else {
                request.current(origin, event.ts)
            };
            let detailed = body.status.is_some()
                || body.message.is_some()
                || body.code.is_some()
                || body.class.is_some();
            let is_cancelled = body.decision == Some(Decision::Cancelled) && !detailed;
            let outcome = if is_cancelled { AttemptOutcome::Cancelled } else { AttemptOutcome::Failed };
            if attempt.outcome.is_none() || detailed && !attempt.was_called_off() {
                attempt.outcome = Some(outcome);
            }
            attempt.ended_at = attempt.ended_at.or(event.ts);
            let said = said!(body, asked.provider.as_deref(), event, raw, reset_at);
            let failure = memo.judge(&said);
            let better =
                attempt.failure.as_ref().is_none_or(|known| known.says_nothing() || !failure.says_nothing());
            if detailed && better {
                attempt.reached = reached(&failure);
                attempt.failure = Some(failure);
            }
        }
        request.tell_attempts(number(body.attempts));
        request.decision = body.decision.or(request.decision);
        request.end = Some(if body.decision == Some(Decision::Cancelled) {
            RequestEnd::Cancelled
        } else {
            RequestEnd::GivenUp
        });
        // The answer had ended the turn with success.
        if broke_off {
            self.turns[turn].end.take_if(|end| end.outcome == TurnOutcome::Succeeded);
        }
    }

    pub(super) fn finished(
        &mut self,
        turn: usize,
        origin: Origin,
        at: Option<DateTime<Utc>>,
        body: &RunFinished,
    ) {
        let outcome = match body.outcome.as_deref() {
            Some("succeeded" | "success" | "completed" | "ok") => TurnOutcome::Succeeded,
            Some("failed" | "error" | "failure") => TurnOutcome::Failed,
            Some("cancelled" | "canceled" | "aborted") => TurnOutcome::Cancelled,
            _ => TurnOutcome::Unknown,
        };
        let end = End::new(outcome, body.terminal_reason.as_deref(), body.error.as_deref(), at, origin);
        self.end_turn(turn, end);
    }

    pub(super) fn end_turn(&mut self, turn: usize, end: End) {
        let deadline = end.reason.as_deref().is_some_and(is_deadline);
        let open = |r: &&mut RequestView| r.end.is_none() && !r.is_left_open;
        for request in self.turns[turn].requests.iter_mut().filter(open) {
            close(request, end.origin, end.at, end.outcome, deadline);
        }
        // A second end of the same turn adds words, it does not take any away.
        match &mut self.turns[turn].end {
            Some(known) => {
                // Nobody interrupts a turn that is over: a success that no record gave a word for was none.
                let was_not_over = end.outcome == TurnOutcome::Cancelled
                    && known.outcome == TurnOutcome::Succeeded
                    && known.reason.is_none();
                if known.outcome == TurnOutcome::Unknown || was_not_over {
                    known.outcome = end.outcome;
                }
                known.reason = known.reason.take().or(end.reason);
                known.message = known.message.take().or(end.message);
            }
            none => *none = Some(end),
        }
    }
}

fn is_deadline(reason: &str) -> bool {
    ["wall_time", "deadline", "time_limit", "timeout"].iter().any(|word| reason.contains(word))
}
