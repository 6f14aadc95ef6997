//! Our own schema, and what other programs write in its spirit.
//!
//! Recognized by content: a line whose type is one of the schema's. Not for: rivumi, whose records look alike but mean
//! less (its own adapter knows what they leave out).

mod sequence;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use retryscope_events::Event;
use retryscope_events::read::{ReadError, each_event};
use retryscope_record::{GapKind, Item, Place, Sink, View};
use serde::{Deserialize, Serialize};

use self::sequence::Sequences;
use crate::json::{Object, holds};
use crate::{Adapter, HEAD_LENGTH, LineDecoder, Reading, Recognized};

pub(crate) const ADAPTER: Adapter = Adapter { agent: "events", places: &[], recognize };

fn recognize(path: &Path, head: &[u8]) -> Option<Recognized> {
    let looks = head.split(|b| *b == b'\n').filter_map(Object::parse).any(|record| is_ours(&record));
    // A first line longer than the head cannot be parsed yet.
    let begins = head.len() >= HEAD_LENGTH && !head.contains(&b'\n') && head.first() == Some(&b'{');
    let kind = |name: &&str| holds(head, &format!("\"type\":\"{name}\""));
    let looks =
        looks || begins && holds(head, "\"run_id\"") && retryscope_events::Body::TYPES.iter().any(kind);
    (looks || is_pushed(path)).then(log)
}

fn log() -> Recognized {
    Recognized { agent: None, view: View::EVENTS, reading: Reading::Lines(Box::new(Events::default())) }
}

/// Returns whether a file is one into which the daemon puts events that are pushed to it: whatever stands first in it, ours
/// may follow.
fn is_pushed(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    path.parent().and_then(name).is_some_and(|folder| folder == "received")
        && name(path).is_some_and(|name| name.starts_with("events-"))
        && path.extension().is_some_and(|extension| extension == "jsonl")
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
    #[serde(default)]
    sequences: Sequences,
    /// Shared with the files that go on with this log.
    agents: Arc<Mutex<Agents>>,
}

/// Agents by run: many writers name the agent once, when the run starts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Agents {
    by_run: HashMap<String, Arc<str>>,
    /// Runs in the order in which they were named.
    order: VecDeque<String>,
    /// The run whose agent was said last.
    #[serde(skip)]
    last: String,
    /// Runs that were asked for since they were named, or since they might have been forgotten.
    #[serde(skip)]
    asked: HashSet<String>,
}

/// Runs whose agent is remembered; beyond, the one named first is forgotten, unless it was asked for.
const RUN_LIMIT: usize = 1_000;

impl Agents {
    /// Remembers the agent of an event; returns the agent of its run if the event names none.
    fn name(&mut self, event: &Event) -> Option<Arc<str>> {
        match &event.agent {
            Some(_) if self.last == event.run_id => None,
            Some(agent) => {
                self.last.clone_from(&event.run_id);
                if self.by_run.contains_key(&event.run_id) {
                    return None;
                }
                let known = self.order.back().and_then(|run| self.by_run.get(run));
                let agent = known.filter(|known| ***known == **agent).cloned();
                let agent = agent.unwrap_or_else(|| event.agent.as_deref().unwrap_or_default().into());
                self.by_run.insert(event.run_id.clone(), agent);
                self.order.push_back(event.run_id.clone());
                if self.order.len() > RUN_LIMIT {
                    self.forget_one();
                }
                None
            }
            None => {
                let agent = self.by_run.get(&event.run_id).cloned();
                if agent.is_some() && !self.asked.contains(&event.run_id) {
                    self.asked.insert(event.run_id.clone());
                }
                agent
            }
        }
    }
}

impl Agents {
    fn forget_one(&mut self) {
        // Each is passed over once at most.
        while let Some(oldest) = self.order.pop_front() {
            if self.asked.remove(&oldest) {
                self.order.push_back(oldest);
            } else {
                self.by_run.remove(&oldest);
                return;
            }
        }
    }
}

impl LineDecoder for Events {
    fn save(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }

    fn restore(&mut self, saved: &serde_json::Value) -> bool {
        Self::deserialize(saved).map(|state| *self = state).is_ok()
    }

    fn continued(&self) -> Option<Box<dyn LineDecoder>> {
        Some(Box::new(Self { sequences: self.sequences.clone(), agents: self.agents.clone() }))
    }

    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let result = each_event(line, |event| {
            let agent = self.agents.lock().unwrap_or_else(PoisonError::into_inner).name(event);
            match agent {
                Some(agent) => self.event(place, &event.clone().agent(&*agent), sink),
                None => self.event(place, event, sink),
            }
        });
        match result {
            Err(ReadError::NewerMajor { found, supported }) => {
                sink.gap(place, GapKind::NewerVersion { found, supported });
            }
            Err(ReadError::Json(_) | ReadError::NotAnObject) => sink.gap(place, GapKind::InvalidJson),
            // What is no error, or a record of another kind between ours.
            Ok(()) | Err(ReadError::NoType) => {}
            Err(_) if holds(line, "model.") || holds(line, "tool.") || holds(line, "run.") => {
                sink.gap(place, GapKind::IncompleteRecord);
            }
            Err(_) => {}
        }
    }
}

impl Events {
    fn event(&mut self, place: Place, event: &Event, sink: &mut dyn Sink) {
        let missing = self.sequences.missing_before(event);
        if missing > 0 {
            sink.gap(place, GapKind::MissingSequence { count: missing });
        }
        for name in event.unusable() {
            sink.gap(place, GapKind::UnusableField { name: name.to_owned() });
        }
        sink.item(place, Item::Event(event, None));
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    #[test]
    fn the_agent_of_a_run_that_goes_on_is_not_forgotten() {
        let line = |run: &str, agent: &str| {
            format!(
                r#"{{"v":1,"type":"model.request","ts":"2026-01-01T00:00:00.000Z","run_id":"{run}"{agent}}}"#
            )
        };
        let (mut sink, mut events) = (Collected::default(), Events::default());
        let mut read = |run: &str, agent: &str| {
            events.line(Place::Whole, line(run, agent).as_bytes(), &mut sink);
        };
        read("long", r#","agent":"a""#);
        for n in 0..3 * RUN_LIMIT {
            read(&format!("short{n}"), r#","agent":"a""#);
            if n.is_multiple_of(RUN_LIMIT / 2) {
                read("long", "");
            }
        }
        let of_long = sink.items.iter().filter_map(|(_, item)| match item {
            Statement::Event(event, _) if event.run_id == "long" => Some(event.agent.as_deref()),
            _ => None,
        });
        let of_long: Vec<_> = of_long.collect();
        assert!(of_long.len() > 5 && of_long.iter().all(|agent| *agent == Some("a")), "{of_long:?}");
        assert!(events.agents.lock().unwrap_or_else(PoisonError::into_inner).by_run.len() <= RUN_LIMIT);
    }
}
