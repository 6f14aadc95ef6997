//! Where a statement stands and whom it is about, so that the decoders only say what.

use chrono::{DateTime, Utc};
use retryscope_events::{Body, Candidate, Event};
use retryscope_record::{Anchor, Item, Mark, Place, RawFailure, RunKey, Sink};

use super::AGENT;

/// One record of a source, ready to be spoken about.
pub(super) struct Say<'a> {
    pub(super) place: Place,
    pub(super) run: RunKey,
    pub(super) at: Option<DateTime<Utc>>,
    pub(super) turn: Option<String>,
    pub(super) sink: &'a mut dyn Sink,
}

impl<'a> Say<'a> {
    /// Returns a speaker for a thread.
    pub(super) fn new(place: Place, thread: &str, at: Option<DateTime<Utc>>, sink: &'a mut dyn Sink) -> Self {
        Self { place, run: RunKey::new(AGENT, thread), at, turn: None, sink }
    }

    pub(super) fn mark(&mut self, mark: &Mark) {
        self.sink.item(self.place, Item::Mark { run: &self.run, at: self.at, mark });
    }

    pub(super) fn event(&mut self, body: impl Into<Body>) {
        self.event_with(body, None);
    }

    pub(super) fn event_with(&mut self, body: impl Into<Body>, raw: Option<&RawFailure>) {
        let mut event = Event::new(&*self.run.id, DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = self.at;
        event.turn.clone_from(&self.turn);
        self.sink.item(self.place, Item::Event(&event, raw));
    }

    /// Returns the number of the row or line.
    pub(super) fn place_number(&self) -> i64 {
        match self.place {
            Place::Whole => 0,
            Place::Line(line) => line.try_into().unwrap_or(i64::MAX),
            Place::Row(row) => row,
        }
    }

    /// Names an id that another log may hold too.
    pub(super) fn anchor(&mut self, id: Option<impl AsRef<str>>) {
        if let Some(id) = id {
            self.mark(&Mark::Anchor(Anchor::of(id.as_ref())));
        }
    }
}

/// Returns a candidate reached over one transport.
pub(super) fn over(transport: &str, provider: Option<String>, model: Option<String>) -> Candidate {
    Candidate { provider, model, transport: Some(transport.to_owned()), ..Candidate::default() }
}

/// Over HTTPS, or plain HTTP in a test: not a WebSocket.
pub(super) const HTTPS: &str = "https";
pub(super) const WEBSOCKET: &str = "websocket";
