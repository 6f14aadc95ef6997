//! Hands statements about one run to the sink: what every adapter's records have in common.
//!
//! Not for: deciding what is said.

use chrono::{DateTime, Utc};
use retryscope_events::{Body, Event};
use retryscope_record::{Item, Mark, Place, RawFailure, RunKey, Sink};

/// Where the statements of one record go.
pub(crate) struct Say<'a> {
    pub(crate) run: RunKey,
    pub(crate) place: Place,
    pub(crate) at: Option<DateTime<Utc>>,
    /// The turn of the events; `None` = the open one.
    pub(crate) turn: Option<String>,
    /// Model step, from 1, where the log counts them.
    pub(crate) step: Option<u64>,
    pub(crate) sink: &'a mut dyn Sink,
}

impl Say<'_> {
    pub(crate) fn mark(&mut self, mark: &Mark) {
        self.sink.item(self.place, Item::Mark { run: &self.run, at: self.at, mark });
    }

    pub(crate) fn event(&mut self, body: impl Into<Body>) {
        self.failure(body, None);
    }

    /// Says an event together with what of the provider's answer only serves to classify it.
    pub(crate) fn failure(&mut self, body: impl Into<Body>, raw: Option<&RawFailure>) {
        let mut event = Event::new(&*self.run.id, DateTime::UNIX_EPOCH, body).agent(&*self.run.agent);
        event.ts = self.at;
        event.turn.clone_from(&self.turn);
        event.step = self.step;
        self.sink.item(self.place, Item::Event(&event, raw));
    }
}
