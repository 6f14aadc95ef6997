//! OTLP logs and traces of Codex: signals in log records, and in the events of spans.
//!
//! A failing `codex exec` ends without sending its last batch. Spans of one export come in any order, so their events are
//! put into the order of their times first.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use retryscope_record::{Item, Mark, Place, RunKey, Sink};

use super::AGENT;
use super::signals::{Channel, Signal, Signals};
use crate::otlp::{Attributes, Consumer, LogRecord, Span};

/// Most traces whose thread is remembered.
const TRACE_LIMIT: usize = 4_096;

/// What one source exports.
#[derive(Default)]
pub(crate) struct Export {
    signals: Signals,
    /// Threads that were told that their tail may be lost.
    warned: BTreeSet<String>,
    /// Thread and turn of a trace.
    traces: BTreeMap<String, (String, Option<String>)>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    at: Option<DateTime<Utc>>,
    trace: Option<String>,
    thread: Option<String>,
    turn: Option<String>,
    attributes: Attributes,
}

impl Consumer for Export {
    fn claims(&self, resource: &Attributes, scope: &str) -> bool {
        scope.starts_with("codex")
            || resource.get("service.name").is_some_and(|name| name.starts_with("codex"))
    }

    fn record(&mut self, place: Place, record: &LogRecord<'_>, sink: &mut dyn Sink) {
        let attributes = &record.attributes;
        let Some(thread) = thread_of(attributes) else { return };
        self.warn(place, thread, sink);
        let at = attributes.time("event.timestamp").or(record.at);
        let turn = turn_of(attributes);
        self.signals.take(&Signal { channel: Channel::Log, place, thread, turn, at, attributes }, sink);
    }

    fn span(&mut self, _: Place, span: &Span<'_>, _: &mut dyn Sink) {
        let thread = thread_of(&span.attributes).map(str::to_owned);
        let turn = turn_of(&span.attributes);
        if let (Some(trace), Some(thread)) = (&span.trace, &thread)
            && (self.traces.len() < TRACE_LIMIT || self.traces.contains_key(trace))
        {
            let known = self.traces.entry(trace.clone()).or_insert_with(|| (thread.clone(), None));
            known.1 = turn.clone().or(known.1.take());
        }
        for (name, at, attributes) in &span.events {
            // The name may stand in the event itself only.
            let mut attributes = attributes.clone();
            if attributes.get("event.name").is_none() {
                attributes.push("event.name", name);
            }
            if !attributes.get("event.name").is_some_and(|name| name.starts_with("codex.")) {
                continue;
            }
            self.waiting.push(Waiting {
                at: attributes.time("event.timestamp").or(*at),
                trace: span.trace.clone(),
                thread: thread_of(&attributes).map(str::to_owned).or_else(|| thread.clone()),
                turn: turn_of(&attributes).or_else(|| turn.clone()),
                attributes,
            });
        }
    }

    fn end_of_body(&mut self, place: Place, sink: &mut dyn Sink) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|w| w.at);
        for w in waiting {
            let known = w.trace.as_ref().and_then(|trace| self.traces.get(trace)).cloned();
            let (thread, turn) = known.map_or((None, None), |(thread, turn)| (Some(thread), turn));
            let Some(thread) = w.thread.or(thread) else { continue };
            self.warn(place, &thread, sink);
            let turn = w.turn.or(turn);
            let attributes = &w.attributes;
            self.signals.take(
                &Signal { channel: Channel::Span, place, thread: &thread, turn, at: w.at, attributes },
                sink,
            );
        }
    }
}

impl Export {
    fn warn(&mut self, place: Place, thread: &str, sink: &mut dyn Sink) {
        if !self.warned.contains(thread) {
            if self.warned.len() >= TRACE_LIMIT {
                self.warned.clear();
            }
            self.warned.insert(thread.to_owned());
            sink.item(
                place,
                Item::Mark { run: RunKey::new(AGENT, thread), at: None, mark: Mark::TailMayBeLost },
            );
        }
    }
}

fn thread_of(attributes: &Attributes) -> Option<&str> {
    ["conversation.id", "thread.id", "thread_id", "conversation_id"]
        .iter()
        .find_map(|key| attributes.get(key))
}

fn turn_of(attributes: &Attributes) -> Option<String> {
    attributes.string("turn.id").or_else(|| attributes.string("turn_id")).filter(|id| !id.is_empty())
}
