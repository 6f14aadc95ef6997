//! OTLP log records of Claude Code: each request has one, when it is over.
//!
//! An answer has no number of attempts, a failure for good has one; repeats within an attempt have neither. So each record
//! proves what was sent at least. A failure after which the same prompt goes on was not for good: another model, or
//! another try. Where spans of the same session stand in the same source, these tell the requests.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use retryscope_events::{
    Body, Candidate, Event, FallbackKind, ModelAttempt, ModelFailed, ModelFallback, ModelRequest,
    ModelResponse, Sent, Source, Usage,
};
use retryscope_record::{Anchor, Item, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use super::otlp::{facts, provider};
use super::{AGENT, is_main, model_of};
use crate::otlp::{Attributes, LogRecord};
use crate::timeline::{Due, Timeline};

/// Most sessions whose requests are told.
const SESSION_LIMIT: usize = 16_384;

/// What of a record is read.
const SAID: &[&str] = &[
    "event.name",
    "prompt.id",
    "message.uuid",
    "request_id",
    "query_source",
    "anthropic.provider",
    "model",
    "error",
    "status_code",
    "attempt",
    "total_attempts",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "ttft_ms",
];

/// The log records of all sessions of a source.
#[derive(Default)]
pub(super) struct Logs {
    timeline: Timeline<Kept>,
    sessions: BTreeMap<String, Session>,
}

/// A record in its place in time.
struct Kept {
    place: Place,
    resource: Attributes,
    attributes: Attributes,
}

/// One session.
#[derive(Default)]
struct Session {
    has_spans: bool,
    is_introduced: bool,
    /// A prompt of it has a record here.
    has_prompt: bool,
    requests: u64,
    /// The last request of the conversation, if it failed.
    failed: Option<Failed>,
}

struct Failed {
    prompt: Option<String>,
    request_id: String,
    model: Option<String>,
    /// Records of it.
    records: u64,
}

/// Returns whether a record is one that is read.
pub(super) fn matters(attributes: &Attributes) -> bool {
    matches!(
        attributes.get("event.name"),
        Some("user_prompt" | "api_request" | "api_error" | "api_retries_exhausted")
    )
}

impl Logs {
    /// Takes one record.
    pub(super) fn record(&mut self, place: Place, record: &LogRecord<'_>, sink: &mut dyn Sink) {
        let Some(id) = record.attributes.get("session.id") else { return };
        if !matters(&record.attributes) {
            return;
        }
        let kept = Kept {
            place,
            resource: record.resource.only(&["service.version"]),
            attributes: record.attributes.only(SAID),
        };
        let at = record.attributes.time("event.timestamp").or(record.at);
        // What is not remembered may have had spans.
        let is_known = self.sessions.len() < SESSION_LIMIT || self.sessions.contains_key(id);
        let mut unknown = Session { has_spans: true, ..Session::default() };
        let session = if is_known { self.sessions.entry(id.to_owned()).or_default() } else { &mut unknown };
        if session.has_spans {
            session.tell(id, at, &kept, sink);
        } else {
            let number = record.attributes.u64("event.sequence").unwrap_or(0);
            self.timeline.put(id, (at, None, number), kept);
        }
    }

    /// Takes note that spans tell the requests of a session.
    pub(super) fn note_spans(&mut self, place: Place, id: &str, sink: &mut dyn Sink) {
        if self.sessions.len() >= SESSION_LIMIT && !self.sessions.contains_key(id) {
            return;
        }
        let session = self.sessions.entry(id.to_owned()).or_default();
        if !std::mem::replace(&mut session.has_spans, true) {
            self.timeline.put_anew(id);
            self.hand_on(place, id, sink);
        }
    }

    /// One export was read to its end.
    pub(super) fn end_of_body(&mut self, place: Place, sink: &mut dyn Sink) {
        for id in self.timeline.take_changed() {
            self.hand_on(place, &id, sink);
        }
    }

    fn hand_on(&mut self, place: Place, id: &str, sink: &mut dyn Sink) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let run = RunKey::new(AGENT, id);
        let mut mark = |mark| sink.item(place, Item::Mark { run: &run, at: None, mark: &mark });
        let due = match self.timeline.due(id) {
            Due::Next(due) => due,
            Due::Anew(all) => {
                mark(Mark::ToldAnew);
                *session = Session { has_spans: session.has_spans, ..Session::default() };
                all
            }
            Due::Void => {
                mark(Mark::Unordered);
                &[]
            }
        };
        for ((at, ..), kept) in due {
            session.tell(id, *at, kept, sink);
        }
    }
}

impl Session {
    fn tell(&mut self, id: &str, at: Option<DateTime<Utc>>, kept: &Kept, sink: &mut dyn Sink) {
        let attributes = &kept.attributes;
        let mut say = Say { run: RunKey::new(AGENT, id), place: kept.place, at, attributes, sink };
        let is_main = attributes.get("query_source").is_some_and(is_main);
        let is_compaction = attributes.get("query_source") == Some("compact");
        let is_told = !self.has_spans && (is_main || is_compaction);
        match attributes.get("event.name") {
            Some("user_prompt") => {
                say.mark(&facts(&kept.resource, attributes));
                self.introduce(&mut say);
                self.has_prompt = true;
                say.mark(&Mark::TurnStarted { turn: attributes.string("prompt.id") });
                if let Some(uuid) = attributes.get("message.uuid") {
                    say.mark(&Mark::Anchor(Anchor::of(uuid)));
                }
            }
            Some(name @ ("api_error" | "api_request")) => {
                if is_told {
                    self.introduce(&mut say);
                    if name == "api_error" {
                        self.failed(is_main, &mut say);
                    } else {
                        self.answered(is_main, &mut say);
                    }
                }
                if let Some(id) = attributes.get("request_id") {
                    say.mark(&Mark::Anchor(Anchor::of(id)));
                }
            }
            // The prompt has no answer without this one: nobody asks again for it.
            Some(reason @ "api_retries_exhausted") if is_main => {
                if is_told {
                    self.introduce(&mut say);
                    if self.going_on(attributes).is_none() {
                        self.failed(is_main, &mut say);
                    }
                    if let Some(failed) = self.going_on(attributes) {
                        say.sent(&failed.request_id, attributes.u64("total_attempts"));
                    }
                }
                // Where the beginning is missing, what stands here is of the prompt that ends, though it does not name it.
                let turn = attributes.string("prompt.id").filter(|_| self.has_prompt || !self.has_spans);
                say.mark(&Mark::TurnEnded {
                    turn,
                    outcome: TurnOutcome::Failed,
                    reason: Some(reason.to_owned()),
                    message: attributes.string("error"),
                });
            }
            _ => {}
        }
    }

    /// Says how much the log shows.
    fn introduce(&mut self, say: &mut Say<'_>) {
        if std::mem::replace(&mut self.is_introduced, true) {
            return;
        }
        say.mark(&Mark::EndsUntold);
        let (shown, because) = if self.has_spans {
            (Shown::None, "log records of Claude Code name an attempt only where a request failed for good")
        } else {
            (Shown::Some, "log records of Claude Code tell how a request ended, not what was sent before")
        };
        for source in [Source::Foreground, Source::Background] {
            say.mark(&Mark::Shows { source, requests: shown, attempts: shown, because });
        }
    }

    /// Returns the request that failed and was not given up, if this record is of the same prompt.
    fn going_on(&self, attributes: &Attributes) -> Option<&Failed> {
        self.failed.as_ref().filter(|failed| failed.prompt.as_deref() == attributes.get("prompt.id"))
    }

    fn failed(&mut self, is_main: bool, say: &mut Say<'_>) {
        let attributes = say.attributes;
        let request_id = self.request(is_main, say);
        let mut failed = ModelFailed::new().request_id(request_id.clone());
        failed.status = attributes.status("status_code");
        failed.message = attributes.string("error");
        failed.upstream_request_id = attributes.string("request_id");
        say.event(failed);
        say.sent(&request_id, attributes.u64("attempt"));
        if is_main {
            let records = 1 + self.going_on(attributes).map_or(0, |failed| failed.records);
            let (prompt, model) = (attributes.string("prompt.id"), say.candidate().model);
            self.failed = Some(Failed { prompt, request_id, model, records });
        }
    }

    fn answered(&mut self, is_main: bool, say: &mut Say<'_>) {
        let attributes = say.attributes;
        let mut response = ModelResponse::new().request_id(self.request(is_main, say));
        response.usage = Some(Usage {
            input_tokens: attributes.u64("input_tokens"),
            output_tokens: attributes.u64("output_tokens"),
            cached_input_tokens: attributes.u64("cache_read_tokens"),
            ..Usage::default()
        });
        response.first_token_ms = attributes.u64("ttft_ms");
        say.event(response);
        if is_main {
            self.failed = None;
        }
    }

    /// Opens the request that a record speaks of, or goes on with the one that failed before; returns its id.
    fn request(&mut self, is_main: bool, say: &mut Say<'_>) -> String {
        let candidate = say.candidate();
        if let Some(failed) = self.going_on(say.attributes).filter(|_| is_main) {
            let request_id = failed.request_id.clone();
            if failed.model.is_some() && candidate.model.is_some() && failed.model != candidate.model {
                let mut fallback = ModelFallback::new().request_id(request_id.clone());
                fallback.kind = Some(FallbackKind::Model);
                fallback.to = Some(candidate);
                say.event(fallback);
            } else {
                // Whether it is the same request once more or another one is not told.
                let attempt = ModelAttempt::new().request_id(request_id.clone()).sent(Sent::Unknown);
                say.event(attempt.attempt(failed.records + 1));
            }
            return request_id;
        }
        self.requests += 1;
        let id = format!("#log.{}", self.requests);
        let request = ModelRequest::new().request_id(id.clone()).candidate(candidate);
        say.event(if is_main {
            request.source(Source::Foreground)
        } else {
            request.source(Source::Background).purpose("compaction")
        });
        id
    }
}

/// One record, ready to be spoken about.
struct Say<'a> {
    run: RunKey,
    place: Place,
    at: Option<DateTime<Utc>>,
    attributes: &'a Attributes,
    sink: &'a mut dyn Sink,
}

impl Say<'_> {
    fn mark(&mut self, mark: &Mark) {
        self.sink.item(self.place, Item::Mark { run: &self.run, at: self.at, mark });
    }

    fn event(&mut self, body: impl Into<Body>) {
        let mut event = Event::new(&*self.run.id, DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = self.at;
        event.turn = self.attributes.string("prompt.id");
        self.sink.item(self.place, Item::Event(&event, None));
    }

    /// Says that so many attempts were made at least, one of which has a record.
    fn sent(&mut self, request_id: &str, attempts: Option<u64>) {
        if let Some(before) = attempts.and_then(|attempts| attempts.checked_sub(1)).filter(|n| *n > 0) {
            self.mark(&Mark::Sends {
                request_id: request_id.to_owned(),
                attempt_id: None,
                min: before,
                max: None,
                basis: "the last failure names the number of attempts, without repeats inside them"
                    .to_owned(),
            });
        }
    }

    fn candidate(&self) -> Candidate {
        Candidate {
            provider: self.attributes.string("anthropic.provider").map(provider),
            model: self.attributes.string("model").map(model_of),
            ..Candidate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    /// Returns the turns that end.
    fn ended(event: &str, query: &str) -> Vec<Option<String>> {
        let pairs = [("session.id", "s"), ("prompt.id", "p"), ("event.name", event), ("query_source", query)];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let resource = Attributes::default();
        let attributes = Attributes::from_pairs(pairs);
        let said = LogRecord {
            resource: &resource,
            attributes,
            at: None,
            observed_at: None,
            body: None,
            further: None,
            severity: None,
            trace: None,
        };
        let mut sink = Collected::default();
        let mut logs = Logs::default();
        logs.record(Place::Whole, &said, &mut sink);
        logs.end_of_body(Place::Whole, &mut sink);
        let turn = |(_, item): (_, Statement)| match item {
            Statement::Mark { mark: Mark::TurnEnded { turn, outcome: TurnOutcome::Failed, .. }, .. } => {
                Some(turn)
            }
            _ => None,
        };
        sink.items.into_iter().filter_map(turn).collect()
    }

    #[test]
    fn only_the_conversation_ends_with_its_last_attempt() {
        let turn = Some("p".to_owned());
        for query in ["sdk", "repl_main_thread"] {
            assert_eq!(ended("api_retries_exhausted", query), std::slice::from_ref(&turn));
        }
        assert!(ended("api_retries_exhausted", "agent:builtin:x").is_empty());
        assert!(ended("api_retries_exhausted", "compact").is_empty());
        assert!(ended("api_error", "sdk").is_empty());
    }
}
