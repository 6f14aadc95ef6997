//! What each mark of a source does to the view of its run.

use chrono::{DateTime, Utc};
use retryscope_events::Source;
use retryscope_record::{Mark, Origin};

use crate::count::{Bound, Evidence};
use crate::redact::{kept, redact};

use super::candidate::merge_facts;
use super::ids::RequestIds;
use super::request::leave_open;
use super::{End, ViewOfRun, Visibility};

impl ViewOfRun {
    /// Takes one mark.
    pub(crate) fn mark(&mut self, origin: Origin, at: Option<DateTime<Utc>>, mark: &Mark) {
        // How far a source reaches is no event of the run: it may go on with others.
        if !matches!(mark, Mark::ToldUntil) {
            self.touch(at);
        }
        if self.unordered && !matches!(mark, Mark::Facts(_)) {
            return;
        }
        match mark {
            Mark::Facts(facts) => merge_facts(&mut self.facts, facts),
            Mark::ToldAnew => self.tell_anew(),
            Mark::Unordered => self.lose_order(),
            Mark::TurnStarted { turn } => {
                let known =
                    turn.as_ref().and_then(|key| self.turns.iter().position(|t| t.key.as_ref() == Some(key)));
                let index = known.unwrap_or_else(|| {
                    // An open turn that holds nothing yet becomes this one.
                    match self.turns.last() {
                        Some(last)
                            if last.requests.is_empty() && last.end.is_none() && last.key.is_none() => {}
                        _ => self.add_turn(),
                    }
                    self.turns.len() - 1
                });
                self.turns[index].key.clone_from(turn);
                self.turns[index].touch(at);
            }
            Mark::TurnEnded { turn, outcome, reason, message } => {
                let index = match turn {
                    Some(key) => self.turn_of_key(key),
                    None => self.open_or_last_turn(),
                };
                self.turns[index].touch(at);
                let end = End::new(*outcome, reason.as_deref(), message.as_deref(), at, origin);
                self.end_turn(index, end);
            }
            Mark::Anchor(id) => {
                let index = self.open_or_last_turn();
                self.turns[index].note(*id);
            }
            Mark::Shows { source, requests, attempts, because } => {
                let shown = Visibility { requests: *requests, attempts: *attempts };
                match source {
                    Source::Foreground => {
                        self.foreground = shown;
                        (*because).clone_into(&mut self.because);
                        if let Some(open) = self.turns.last_mut().filter(|turn| turn.end.is_none()) {
                            open.foreground_requests = Some(*requests);
                        }
                    }
                    Source::Background => {
                        self.background = shown;
                        if let Some(open) = self.turns.last_mut().filter(|turn| turn.end.is_none()) {
                            open.background_requests = Some(*requests);
                        }
                    }
                }
            }
            Mark::Sends { request_id, attempt_id, min, max, basis } => {
                let found = self.turns.iter_mut().rev().flat_map(|t| t.requests.iter_mut().rev());
                if let Some(request) = found.into_iter().find(|r| r.id == *request_id) {
                    request.basis = Some(basis.clone());
                    let bound = Bound::range(*min, *max);
                    match attempt_id {
                        None => request.extra = Some(bound),
                        Some(id) => {
                            if let Some(a) =
                                request.attempts.iter_mut().rev().find(|a| a.id.as_ref() == Some(id))
                            {
                                a.sends = bound;
                                a.sends_told = true;
                                a.evidence = a.evidence.max(Evidence::Derived);
                            }
                        }
                    }
                }
            }
            Mark::SentOnceEach { request_id } => {
                let found = self.turns.iter_mut().rev().flat_map(|t| t.requests.iter_mut().rev());
                if let Some(request) = found.into_iter().find(|r| r.id == *request_id) {
                    request.sent_once_each = true;
                }
            }
            Mark::Explained { reason, message } => {
                self.explained = Some((kept(reason.as_deref()), redact(message)));
            }
            Mark::Copied => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.requests.retain(|r| r.end.is_some());
                    self.request_ids = RequestIds::default();
                }
            }
            Mark::TailMayBeLost => self.tail_may_be_lost = true,
            Mark::FallbacksHidden => self.fallbacks_hidden = true,
            Mark::ToldUntil => {
                let index = self.open_or_last_turn();
                self.turns[index].told_until = at.max(self.turns[index].told_until);
            }
            Mark::SentBy { request_id } => {
                let found = self.turns.iter_mut().rev().flat_map(|t| t.requests.iter_mut().rev());
                if let Some(request) = found.into_iter().find(|r| r.id == *request_id) {
                    request.sent_by = at.or(request.sent_by);
                }
            }
            Mark::EndsUntold => self.ends_untold = true,
            Mark::EndsElsewhere => {
                self.ends_untold = true;
                self.ends_elsewhere = true;
            }
            Mark::LeftOpen { request_id } => {
                let found = self.turns.iter_mut().rev().flat_map(|t| t.requests.iter_mut().rev());
                if let Some(request) =
                    found.into_iter().find(|r| r.id == *request_id).filter(|r| r.end.is_none())
                {
                    leave_open(request, origin, at);
                }
            }
            Mark::BeginsElsewhere => {
                let index = self.open_turn();
                self.turns[index].begins_elsewhere = true;
            }
            Mark::AskedElsewhere => {
                let index = self.open_turn();
                self.turns[index].asked_elsewhere = true;
            }
            Mark::HoldsTurns => {
                let index = self.open_turn();
                self.turns[index].holds_turns = true;
            }
            Mark::TurnComplete => {
                let index = self.open_or_last_turn();
                self.turns[index].complete = true;
            }
            Mark::BlindSpot(text) => {
                if !self.blind_spots.contains(text) {
                    self.blind_spots.insert(redact(text));
                }
            }
        }
    }
}
