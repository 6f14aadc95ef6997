//! Which turn a record belongs to.
//!
//! Records come late where several writers speak of one run: what names no turn is of the turn of its request, or of the open
//! one. Not for: what a record says (see `events`).

use retryscope_events::{Body, Event};
use retryscope_record::Shown;

use super::{LATE_REQUESTS, TurnView, ViewOfRun, events};

impl ViewOfRun {
    pub(super) fn turn_of_key(&mut self, key: &str) -> usize {
        if let Some(index) = self.turns.iter().rposition(|t| t.key.as_deref() == Some(key)) {
            return index;
        }
        let fresh = matches!(self.turns.last(), Some(t) if t.key.is_none() && t.requests.is_empty() && t.end.is_none());
        if !fresh {
            self.add_turn();
        }
        let index = self.turns.len() - 1;
        self.turns[index].key = Some(key.to_owned());
        index
    }

    /// Returns the turn of an event that names none: that of the request it speaks of, the one that just ended if it says so
    /// again, else the open one.
    pub(super) fn turn_of(&mut self, event: &Event) -> usize {
        let is_over = self.turns.last().is_some_and(|turn| turn.end.is_some());
        match &event.body {
            // A new request is asked in the open turn, whatever its number; one that was asked before the last turn ended is
            // a late record of that turn.
            Body::ModelRequest(_) => {
                let end = self.turns.last().and_then(|turn| turn.end.as_ref());
                if end.is_some_and(|end| events::is_before(event.ts, end.at)) {
                    self.turns.len() - 1
                } else {
                    self.open_turn()
                }
            }
            Body::RunFinished(_) | Body::RunCancelled(_) if is_over => self.turns.len() - 1,
            body => match request_id_of(body) {
                Some(id) => self.turn_of_request(id).unwrap_or_else(|| self.open_turn()),
                None => self.open_turn(),
            },
        }
    }

    /// Returns the last turn that holds a request of this id. Records come late where several writers speak of one run.
    pub(super) fn turn_of_request(&mut self, id: &str) -> Option<usize> {
        let last = self.turns.len().checked_sub(1)?;
        if self.request_ids.find(last, &self.turns[last].requests, id).is_some() {
            return Some(last);
        }
        let mut looked_at = 0;
        let before = self.turns[..last].iter().enumerate().rev();
        let near = before.take_while(|(_, turn)| {
            looked_at += turn.requests.len();
            looked_at <= LATE_REQUESTS
        });
        near.into_iter().find(|(_, turn)| turn.requests.iter().any(|r| r.id == id)).map(|(index, _)| index)
    }

    /// Returns the turn that is open, or opens one.
    pub(super) fn open_turn(&mut self) -> usize {
        if self.turns.last().is_none_or(|t| t.end.is_some()) {
            self.add_turn();
        }
        self.turns.len() - 1
    }

    pub(super) fn add_turn(&mut self) {
        // Most runs have one turn.
        if self.turns.is_empty() {
            self.turns.reserve_exact(1);
        }
        let has_gap = std::mem::take(&mut self.gap_pending) || self.gap_anywhere;
        // What is missing when it begins is not there because the source shows more later on.
        let requests = self.foreground.requests;
        let foreground_requests = (requests < Shown::All).then_some(requests);
        self.turns.push(TurnView { foreground_requests, has_gap, ..TurnView::default() });
    }

    pub(super) fn open_or_last_turn(&mut self) -> usize {
        if self.turns.is_empty() {
            self.add_turn();
        }
        self.turns.len() - 1
    }
}

/// Returns the request that a record speaks of beside its own.
fn request_id_of(body: &Body) -> Option<&str> {
    match body {
        Body::ModelAttempt(body) => body.request_id.as_deref(),
        Body::ModelRetry(body) => body.request_id.as_deref(),
        Body::ModelFallback(body) => body.request_id.as_deref(),
        Body::ModelResponse(body) => body.request_id.as_deref(),
        Body::ModelFailed(body) => body.request_id.as_deref(),
        _ => None,
    }
}
