//! How requests and turns of a conversation end: what the program announces, gives up, cancels, or leaves at its end.
//!
//! Not for: what was asked and answered (see the module above).

use retryscope_events::{Layer, ModelFailed, ModelRetry};
use retryscope_record::{Mark, TurnOutcome};

use super::{Conversation, Open, Phase, USUAL_ATTEMPTS};
use crate::pi::Profile;
use crate::say::Say;

/// Returns whether an error says that the program itself stopped, and not that a connection was aborted.
fn is_abort(error: &str) -> bool {
    error == "aborted"
        || ["AbortError", "Request was aborted", "operation was aborted"]
            .iter()
            .any(|words| error.contains(words))
}

impl Conversation {
    /// The program says that it will try again, and after which wait.
    pub(in crate::pi) fn retry_planned(&mut self, retry: ModelRetry, say: &mut Say<'_>) {
        self.announces = true;
        let Some(open) = &mut self.now.open else { return };
        open.phase = Phase::Planned;
        say.turn.clone_from(&self.now.turn);
        say.event(retry.request_id(open.id.clone()).layer(Layer::Agent));
    }

    /// A failed message was dropped from the context: another attempt was planned, or a compaction.
    pub(in crate::pi) fn dropped(&mut self, say: &mut Say<'_>) {
        self.note_newer(say);
        self.will_repeat();
    }

    /// The program says that it will try again, and nothing else.
    pub(in crate::pi) fn will_repeat(&mut self) {
        self.announces = true;
        if let Some(open) = self.now.open.as_mut().filter(|open| open.failed()) {
            open.phase = Phase::Planned;
        }
    }

    /// The loop inside is over: if it begins again, that is announced at once.
    pub(in crate::pi) fn loop_over(&mut self) {
        self.announces = true;
    }

    /// The program around says that the prompt failed; it may still try again, in its own way.
    ///
    /// That it was aborted is told by the request that it cut, too, and is no failure of the one before.
    pub(in crate::pi) fn prompt_failed(&mut self, error: Option<String>, say: &mut Say<'_>) {
        if error.as_deref().is_some_and(is_abort) {
            return;
        }
        match &self.now.open {
            Some(open) if open.failed() && !open.said_over => self.say_over(say),
            None if self.now.turn.is_some() && self.now.requests == 0 => {
                let (outcome, reason) = (TurnOutcome::Failed, None);
                say.turn.clone_from(&self.now.turn);
                say.mark(&Mark::TurnEnded { turn: self.now.turn.clone(), outcome, reason, message: error });
            }
            _ => {}
        }
    }

    /// The program says that the prompt is over.
    pub(in crate::pi) fn settled(&mut self, say: &mut Say<'_>) {
        if self.now.open.as_ref().is_some_and(Open::failed) {
            self.fail_turn(say);
        }
    }

    /// The program gave up, in its own words, or was told to.
    pub(in crate::pi) fn retries_over(&mut self, error: Option<&str>, say: &mut Say<'_>) {
        if error.is_some_and(|error| error.starts_with("Retry cancelled")) {
            self.cancel(Some("retry_cancelled".into()), say);
        } else if self.now.open.as_ref().is_some_and(Open::failed) {
            self.fail_turn(say);
        }
    }

    /// The process ended in an orderly way: what came last was the end, but a retry may have been called off.
    pub(in crate::pi) fn process_over(&mut self, say: &mut Say<'_>) {
        match &self.now.open {
            Some(open) if open.failed() && (open.phase == Phase::Planned || open.may_heal) => {
                let outcome = TurnOutcome::Unknown;
                say.mark(&Mark::TurnEnded {
                    turn: self.now.turn.clone(),
                    outcome,
                    reason: None,
                    message: open.message.clone(),
                });
            }
            Some(open) if open.failed() => self.fail_turn(say),
            _ => {}
        }
    }

    /// Somebody cancelled; a late record of the same attempt may follow, so the request stays the open one.
    pub(in crate::pi) fn cancel(&mut self, reason: Option<String>, say: &mut Say<'_>) {
        if let Some(open) = &mut self.now.open {
            open.phase = Phase::Quiet;
            say.mark(&Mark::TurnEnded {
                turn: self.now.turn.clone(),
                outcome: TurnOutcome::Cancelled,
                reason,
                message: None,
            });
        }
    }

    /// Somebody cancelled while no request was on its way.
    pub(super) fn cancelled_between(&mut self, reason: String, say: &mut Say<'_>) {
        say.mark(&Mark::TurnEnded {
            turn: self.now.turn.clone(),
            outcome: TurnOutcome::Cancelled,
            reason: Some(reason),
            message: None,
        });
    }

    /// The source has no more lines for now. Where nothing says that another attempt was to follow, there was none.
    pub(in crate::pi) fn end(&mut self, say: &mut Say<'_>) {
        let Some(open) = self.now.open.as_mut().filter(|open| open.phase == Phase::Failed && !open.said_over)
        else {
            return;
        };
        let over = match self.profile {
            // omp says that it will go on only in streams, and its session files have an end of their own.
            Profile::Omp => !open.may_heal,
            Profile::Pi | Profile::OpenClaw => {
                self.announces || !open.may_heal || open.attempts >= USUAL_ATTEMPTS
            }
        };
        if over {
            self.say_over(say);
        }
    }

    /// Says that the open request failed and the turn with it, and keeps it: an attempt that comes all the same is its.
    pub(super) fn say_over(&mut self, say: &mut Say<'_>) {
        let Some(open) = &mut self.now.open else { return };
        open.said_over = true;
        say.turn.clone_from(&self.now.turn);
        say.event(ModelFailed::new().request_id(open.id.clone()));
        let message = open.message.clone();
        say.mark(&Mark::TurnEnded {
            turn: self.now.turn.clone(),
            outcome: TurnOutcome::Failed,
            reason: None,
            message,
        });
    }

    /// The open request was given up before something else began, hours ago perhaps: when its last attempt ended. A retry
    /// that was planned and never sent was called off; what does not heal by itself was dropped for another reason.
    ///
    /// It stays the last one of its turn: what was on its way may still be written.
    pub(super) fn give_up(&mut self, say: &mut Say<'_>) {
        let Some(open) = self.now.open.as_ref().filter(|open| open.failed()) else { return };
        let was_called_off = open.phase == Phase::Planned && open.may_heal;
        let now = say.at;
        say.at = self.now.before.or(now);
        if was_called_off {
            self.cancel(None, say);
        } else {
            self.say_over(say);
        }
        say.at = now;
    }

    /// Does what `act` does in an earlier turn, and gives it up: the session has gone on to another prompt.
    ///
    /// Returns whether the turn is known.
    pub(in crate::pi) fn in_past(
        &mut self,
        turn: &str,
        say: &mut Say<'_>,
        act: impl FnOnce(&mut Self, &mut Say<'_>),
    ) -> bool {
        let Some(index) = self.past.iter().position(|past| past.turn.as_deref() == Some(turn)) else {
            return false;
        };
        std::mem::swap(&mut self.now, &mut self.past[index]);
        act(self, say);
        if self.now.open.as_ref().is_some_and(|open| !open.said_over) {
            self.give_up(say);
        }
        std::mem::swap(&mut self.now, &mut self.past[index]);
        true
    }

    /// Returns whether a turn is the open one.
    pub(in crate::pi) fn is_open(&self, turn: &str) -> bool {
        self.now.turn.as_deref() == Some(turn)
    }

    pub(super) fn fail_turn(&mut self, say: &mut Say<'_>) {
        let message = self.now.open.as_ref().and_then(|open| open.message.clone());
        self.close_failed(say);
        say.mark(&Mark::TurnEnded {
            turn: self.now.turn.clone(),
            outcome: TurnOutcome::Failed,
            reason: None,
            message,
        });
    }

    pub(super) fn close_failed(&mut self, say: &mut Say<'_>) {
        if let Some(open) = self.now.open.take() {
            say.turn.clone_from(&self.now.turn);
            say.event(ModelFailed::new().request_id(open.id));
        }
    }
}
