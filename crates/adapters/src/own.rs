//! Our own schema, and what other programs write in its spirit.
//!
//! Recognized by content: a line whose type is one of the schema's. Not for: rivumi, whose records look alike but mean
//! less (its own adapter knows what they leave out).

use std::collections::HashMap;
use std::path::Path;

use retryscope_events::read::{ReadError, parse_line};
use retryscope_record::{GapKind, Item, Place, Sink, View};

use serde::{Deserialize, Serialize};

use crate::json::{Object, holds};
use crate::{Adapter, HEAD_LENGTH, LineDecoder, Reading, Recognized};

pub(crate) const ADAPTER: Adapter = Adapter { agent: "events", places: &[], recognize };

fn recognize(_: &Path, head: &[u8]) -> Option<Recognized> {
    let looks = head.split(|b| *b == b'\n').take(50).filter_map(Object::parse).any(|record| is_ours(&record));
    // A first line longer than the head cannot be parsed yet.
    let begins = head.len() >= HEAD_LENGTH && !head.contains(&b'\n') && head.first() == Some(&b'{');
    let kind = |name: &&str| holds(head, &format!("\"type\":\"{name}\""));
    let looks =
        looks || begins && holds(head, "\"run_id\"") && retryscope_events::Body::TYPES.iter().any(kind);
    looks.then(|| Recognized {
        agent: None,
        view: View::EVENTS,
        reading: Reading::Lines(Box::new(Events::default())),
    })
}

fn is_ours(record: &Object<'_>) -> bool {
    let kind = ["type", "event_type", "event", "kind", "name"].iter().find_map(|key| record.str(key));
    let Some(kind) = kind else { return false };
    let known = retryscope_events::Body::TYPES.contains(&kind.as_ref())
        || kind == "model.retry"
        || kind == "model.fallback";
    let names_run =
        ["run_id", "runId", "session_id", "sessionId"].iter().any(|key| record.raw(key).is_some());
    known && (names_run || record.raw("data").is_some() || record.raw("payload").is_some())
}

#[derive(Default, Serialize, Deserialize)]
struct Events {
    last_seq: Vec<(String, u64)>,
    /// Agents by run: many writers name the agent once, when the run starts.
    agents: HashMap<String, String>,
}

/// Runs whose agent is remembered.
const RUN_LIMIT: usize = 10_000;

impl LineDecoder for Events {
    fn save(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }

    fn restore(&mut self, saved: &serde_json::Value) -> bool {
        serde_json::from_value(saved.clone()).map(|state| *self = state).is_ok()
    }

    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match parse_line(line) {
            Ok(events) => {
                for mut event in events {
                    self.name_agent(&mut event);
                    self.note_sequence(place, &event, sink);
                    sink.item(place, Item::Event(Box::new(event), None));
                }
            }
            Err(ReadError::NewerMajor { found, supported }) => {
                sink.gap(place, GapKind::NewerVersion { found, supported });
            }
            Err(ReadError::Json(_) | ReadError::NotAnObject) => sink.gap(place, GapKind::InvalidJson),
            // A record of another kind between ours.
            Err(ReadError::NoType) => {}
            Err(_) if holds(line, "model.") || holds(line, "tool.") || holds(line, "run.") => {
                sink.gap(place, GapKind::IncompleteRecord);
            }
            Err(_) => {}
        }
    }
}

impl Events {
    fn name_agent(&mut self, event: &mut retryscope_events::Event) {
        match &event.agent {
            Some(agent) if self.agents.len() < RUN_LIMIT => {
                self.agents.entry(event.run_id.clone()).or_insert_with(|| agent.clone());
            }
            Some(_) => {}
            None => event.agent = self.agents.get(&event.run_id).cloned(),
        }
    }

    /// Numbers are given per writer, +1 each: a jump is loss.
    fn note_sequence(&mut self, place: Place, event: &retryscope_events::Event, sink: &mut dyn Sink) {
        let Some(seq) = event.seq else { return };
        let writer = event.writer.clone().unwrap_or_else(|| event.run_id.clone());
        match self.last_seq.iter_mut().find(|(name, _)| *name == writer) {
            Some((_, last)) => {
                if seq > *last + 1 {
                    sink.gap(place, GapKind::MissingSequence { count: seq - *last - 1 });
                }
                *last = (*last).max(seq);
            }
            None => self.last_seq.push((writer, seq)),
        }
    }
}
