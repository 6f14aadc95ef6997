//! OTLP logs and traces of Codex: signals in log records, and in the events of spans.
//!
//! A failing `codex exec` ends without sending its last batch. Spans of one export come in any order, and an export may come
//! after a later one, so the records of a thread are put into the order of their times first.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use retryscope_record::{Item, Mark, Place, RunKey, Sink};

use super::AGENT;
use super::signals::{self, Channel, SUMMARY_OVER, Signal, Signals, is_signal};
use crate::otlp::{Attributes, Consumer, LogRecord, Span};
use crate::timeline::{Due, Timeline};

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
    timeline: Timeline<Kept>,
}

/// A signal in its place in time.
struct Kept {
    channel: Channel,
    place: Place,
    turn: Option<String>,
    attributes: Attributes,
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

    fn matters(&self, record: &LogRecord<'_>) -> bool {
        is_signal(&record.attributes)
    }

    fn record(&mut self, place: Place, record: &LogRecord<'_>, sink: &mut dyn Sink) {
        let attributes = &record.attributes;
        let Some(thread) = thread_of(attributes) else { return };
        self.warn(place, thread, sink);
        if !is_signal(attributes) {
            return;
        }
        let at = attributes.time("event.timestamp").or(record.at);
        let kept = Kept {
            channel: Channel::Log,
            place,
            turn: turn_of(attributes),
            attributes: attributes.only(signals::SAID),
        };
        self.timeline.put(thread, (at, record.observed_at, 0), kept);
    }

    fn span(&mut self, _: Place, span: &Span<'_>, _: &mut dyn Sink) {
        let in_events = || span.events.iter().find_map(|(.., attributes)| thread_of(attributes));
        let named = thread_of(&span.attributes).or_else(in_events);
        let thread = thread_of(&span.attributes).map(str::to_owned);
        let turn = turn_of(&span.attributes);
        if let (Some(trace), Some(named)) = (&span.trace, named)
            && (self.traces.len() < TRACE_LIMIT || self.traces.contains_key(trace))
        {
            let known = self.traces.entry(trace.clone()).or_insert_with(|| (named.to_owned(), None));
            known.1 = turn.clone().or(known.1.take());
        }
        if let Some(attributes) = answer_of(span) {
            let (trace, thread, turn) = (span.trace.clone(), thread.clone(), turn.clone());
            self.waiting.push(Waiting { at: span.ended_at, trace, thread, turn, attributes });
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
            if is_signal(&w.attributes) {
                let attributes = w.attributes.only(signals::SAID);
                let kept = Kept { channel: Channel::Span, place, turn: w.turn.or(turn), attributes };
                self.timeline.put(&thread, (w.at, None, 0), kept);
            }
        }
        for thread in self.timeline.take_changed() {
            let run = RunKey::new(AGENT, thread.as_str());
            let mut mark = |mark| sink.item(place, Item::Mark { run: &run, at: None, mark: &mark });
            let due = match self.timeline.due(&thread) {
                Due::Next(due) => due,
                Due::Anew(all) => {
                    mark(Mark::ToldAnew);
                    mark(Mark::TailMayBeLost);
                    self.signals.forget(&thread);
                    all
                }
                Due::Void => {
                    mark(Mark::Unordered);
                    &[]
                }
            };
            for ((at, ..), Kept { channel, place, turn, attributes }) in due {
                let (channel, place, turn, at) = (*channel, *place, turn.clone(), *at);
                self.signals.take(&Signal { channel, place, thread: &thread, turn, at, attributes }, sink);
            }
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
            let run = RunKey::new(AGENT, thread);
            sink.item(place, Item::Mark { run: &run, at: None, mark: &Mark::TailMayBeLost });
        }
    }
}

/// Returns what a span that ends with an answer tells of it. Spans have no events for it.
fn answer_of(span: &Span<'_>) -> Option<Attributes> {
    const TOKENS: [(&str, &str); 4] = [
        ("gen_ai.usage.input_tokens", "input_token_count"),
        ("gen_ai.usage.output_tokens", "output_token_count"),
        ("gen_ai.usage.cache_read.input_tokens", "cached_token_count"),
        ("codex.usage.reasoning_output_tokens", "reasoning_token_count"),
    ];
    if matches!(&*span.name, "run_auto_compact" | "session_task.compact") {
        return Some(Attributes::from_pairs([("event.name".to_owned(), SUMMARY_OVER.to_owned())]));
    }
    if span.name != "handle_responses" {
        return None;
    }
    span.attributes.get(TOKENS[0].0)?;
    let tokens = TOKENS.iter().filter_map(|(from, to)| Some((*to, span.attributes.get(from)?)));
    let said = tokens.chain([("event.name", "codex.sse_event")]);
    Some(Attributes::from_pairs(said.map(|(key, value)| (key.to_owned(), value.to_owned()))))
}

/// Spans also carry the number of the operating system's thread, as `thread.id`, beside or instead of the conversation's.
fn thread_of(attributes: &Attributes) -> Option<&str> {
    let is_name = |value: &str| value.bytes().any(|b| !b.is_ascii_digit());
    ["conversation.id", "thread.id", "thread_id", "conversation_id"].iter().find_map(|key| {
        attributes.iter().find(|(name, value)| name == key && is_name(value)).map(|(_, value)| value)
    })
}

fn turn_of(attributes: &Attributes) -> Option<String> {
    attributes.string("turn.id").or_else(|| attributes.string("turn_id")).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn event(ms: i64, pairs: &[(&str, &str)]) -> (String, Option<DateTime<Utc>>, Attributes) {
        let attributes =
            Attributes::from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        ("event".to_owned(), DateTime::from_timestamp_millis(ms), attributes)
    }

    fn span<'a>(
        resource: &'a Attributes,
        trace: &str,
        events: Vec<(String, Option<DateTime<Utc>>, Attributes)>,
    ) -> Span<'a> {
        Span {
            resource,
            name: "run".into(),
            id: None,
            trace: Some(trace.to_owned()),
            attributes: Attributes::from_pairs([("turn.id".to_owned(), "u".to_owned())]),
            started_at: None,
            ended_at: None,
            events,
        }
    }

    #[test]
    fn events_of_spans_are_put_in_order_and_keep_their_thread() {
        let resource = Attributes::default();
        let sent = [("event.name", "codex.api_request"), ("conversation.id", "T"), ("attempt", "0")];
        let again = [("event.name", "codex.api_request"), ("conversation.id", "T"), ("attempt", "1")];
        let retry = [("event.name", "codex.retry"), ("retry.delay_ms", "200"), ("retry.layer", "http")];
        let mut thread = span(&resource, "x", vec![event(3, &again)]);
        thread.attributes.push("thread.id", "T");
        let mut sink = Collected::default();
        let mut export = Export::default();
        export.span(Place::Whole, &thread, &mut sink);
        export.span(Place::Whole, &span(&resource, "x", vec![event(2, &retry), event(1, &sent)]), &mut sink);
        export.end_of_body(Place::Whole, &mut sink);
        let bodies: Vec<&Body> = sink
            .items
            .iter()
            .filter_map(|(_, i)| if let Statement::Event(e, _) = i { Some(&e.body) } else { None })
            .collect();
        let retry = bodies.iter().position(|b| matches!(b, Body::ModelRetry(r) if r.delay_ms == Some(200)));
        assert!(matches!(bodies.first(), Some(Body::ModelRequest(_))));
        assert_eq!(retry, Some(2));
        assert_eq!(bodies.iter().filter(|b| matches!(b, Body::ModelRequest(_))).count(), 1);
    }

    #[test]
    fn a_retry_of_a_span_is_of_the_request_in_the_log() {
        let resource = Attributes::default();
        let record = |ms: i64, pairs: &[(&str, &str)]| {
            let (_, at, mut attributes) = event(ms, pairs);
            attributes.push("conversation.id", "T");
            LogRecord {
                resource: &resource,
                attributes,
                body: None,
                further: None,
                severity: None,
                trace: None,
                at,
                observed_at: None,
            }
        };
        let mut sink = Collected::default();
        let mut export = Export::default();
        let sent = [("event.name", "codex.api_request"), ("attempt", "0")];
        for (ms, pairs) in [(1, &[("event.name", "codex.user_prompt")][..]), (2, &sent), (5, &sent)] {
            export.record(Place::Whole, &record(ms, pairs), &mut sink);
        }
        export.end_of_body(Place::Whole, &mut sink);
        // Only the span names the turn.
        let retry = [("event.name", "codex.retry"), ("conversation.id", "T"), ("retry.delay_ms", "0")];
        export.span(Place::Whole, &span(&resource, "x", vec![event(3, &retry)]), &mut sink);
        export.end_of_body(Place::Whole, &mut sink);
        let last = sink.items.iter().rev().find_map(|(_, item)| match item {
            Statement::Event(event, _) if matches!(event.body, Body::ModelRetry(_)) => Some(event),
            _ => None,
        });
        assert_eq!(last.map(|event| event.turn.clone()), Some(None));
    }

    #[test]
    fn the_name_of_a_turn_that_comes_late_opens_no_other() {
        let resource = Attributes::default();
        let sent = [("event.name", "codex.api_request"), ("conversation.id", "T"), ("attempt", "0")];
        let prompt = [("event.name", "codex.user_prompt"), ("conversation.id", "T")];
        let retry = [("event.name", "codex.retry"), ("conversation.id", "T"), ("retry.delay_ms", "0")];
        let mut sink = Collected::default();
        let mut export = Export::default();
        // The span that names the turn ends last.
        let nameless = vec![event(1, &prompt), event(2, &sent)];
        let first = Span { attributes: Attributes::default(), ..span(&resource, "x", nameless) };
        export.span(Place::Whole, &first, &mut sink);
        export.end_of_body(Place::Whole, &mut sink);
        export.span(Place::Whole, &span(&resource, "x", vec![event(3, &retry), event(4, &sent)]), &mut sink);
        export.end_of_body(Place::Whole, &mut sink);
        let events = sink.items.iter().filter_map(|(_, item)| match item {
            Statement::Event(event, _) => Some(event),
            Statement::Mark { .. } => None,
        });
        let events: Vec<_> = events.collect();
        assert!(events.iter().all(|event| event.turn.is_none()));
        assert_eq!(events.iter().filter(|e| matches!(e.body, Body::ModelRequest(_))).count(), 1);
    }

    #[test]
    fn the_span_of_an_answer_ends_its_request() {
        let sent = [("event.name", "codex.api_request"), ("conversation.id", "T"), ("attempt", "0")];
        let resource = Attributes::default();
        let requests = |name: &'static str| {
            let mut answer = span(&resource, "x", Vec::new());
            answer.name = name.into();
            answer.ended_at = DateTime::from_timestamp_millis(2);
            answer.attributes.push("gen_ai.usage.input_tokens", "12");
            let mut sink = Collected::default();
            let mut export = Export::default();
            // The span that ends first is exported first, and does not name its thread.
            export.span(Place::Whole, &answer, &mut sink);
            export.span(
                Place::Whole,
                &span(&resource, "x", vec![event(1, &sent), event(3, &sent)]),
                &mut sink,
            );
            export.end_of_body(Place::Whole, &mut sink);
            let is_request = |item: &Statement| matches!(item, Statement::Event(event, _) if matches!(event.body, Body::ModelRequest(_)));
            sink.items.iter().filter(|(_, item)| is_request(item)).count()
        };
        assert_eq!(requests("handle_responses"), 2);
        assert_eq!(requests("run_auto_compact"), 2);
        assert_eq!(requests("session_task.turn"), 1);
    }

    #[test]
    fn the_number_of_a_thread_of_the_system_is_no_conversation() {
        let pairs = |pairs: &[(&str, &str)]| {
            Attributes::from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
        };
        let both = pairs(&[("thread.id", "4"), ("thread.name", "worker"), ("thread.id", "01a2-b")]);
        assert_eq!(thread_of(&both), Some("01a2-b"));
        assert_eq!(thread_of(&pairs(&[("thread.id", "4"), ("thread_id", "01a2-b")])), Some("01a2-b"));
        assert_eq!(thread_of(&pairs(&[("thread.id", "4")])), None);
    }

    #[test]
    fn other_programs_are_left_to_others() {
        let export = Export::default();
        assert!(export.claims(&Attributes::default(), "codex_otel.log_only"));
        assert!(
            export
                .claims(&Attributes::from_pairs([("service.name".to_owned(), "codex_exec".to_owned())]), "")
        );
        assert!(
            !export.claims(&Attributes::from_pairs([("service.name".to_owned(), "other".to_owned())]), "x")
        );
    }
}
