//! OTLP logs (see `otlp_logs`) and traces of Claude Code.
//!
//! Spans have one `gen_ai.request.attempt` event a request, except for a model that was given up for another one. They do
//! not name their prompt, and those of 2.1.123 to 2.1.252 do not say what a request was for: log records of the same trace
//! and request do, and may come later.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};
use retryscope_events::{
    Candidate, Event, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, Source, Usage,
};
use retryscope_record::{Anchor, Facts, Mark, Place, RunKey, Shown, Sink, Statement};

use super::otlp_logs::{self, Logs};
use super::{AGENT, is_main, model_of};
use crate::otlp::{Attributes, Consumer, LogRecord, Span};

/// Most requests whose query is remembered.
const ASKED_LIMIT: usize = 16_384;

/// Most spans that wait for their log record.
const HELD_LIMIT: usize = 256;

/// Claude Code's part of the telemetry.
#[derive(Default)]
pub(crate) struct Export {
    logs: Logs,
    /// What requests were for, by the provider's id, as log records say.
    asked: BTreeMap<String, String>,
    /// Log records are exported too.
    has_logs: bool,
    /// Spans of which log records have not told enough yet.
    held: VecDeque<Held>,
    /// The prompt that a trace is of, as log records say: a span does not name it, and comes late.
    prompts: BTreeMap<String, String>,
}

impl Consumer for Export {
    fn claims(&self, resource: &Attributes, scope: &str) -> bool {
        scope.starts_with("com.anthropic.claude_code") || resource.get("service.name") == Some("claude-code")
    }

    fn matters(&self, said: &LogRecord<'_>) -> bool {
        otlp_logs::matters(&said.attributes)
    }

    fn record(&mut self, place: Place, said: &LogRecord<'_>, sink: &mut dyn Sink) {
        self.has_logs = true;
        let (id, query) = (said.attributes.string("request_id"), said.attributes.string("query_source"));
        if let Some((id, query)) = id.zip(query) {
            if self.asked.len() >= ASKED_LIMIT {
                self.asked.clear();
            }
            self.asked.insert(id, query);
        }
        if let Some((trace, prompt)) = said.trace.zip(said.attributes.get("prompt.id"))
            && !self.prompts.contains_key(trace)
        {
            if self.prompts.len() >= ASKED_LIMIT {
                self.prompts.clear();
            }
            self.prompts.insert(trace.to_owned(), prompt.to_owned());
        }
        self.logs.record(place, said, sink);
    }

    fn span(&mut self, place: Place, said: &Span<'_>, sink: &mut dyn Sink) {
        if session_of(said, self.query(said).unwrap_or_default()).is_none() {
            return;
        }
        // A request that got no answer has no id by which a log record is known.
        let waits = self.query(said).is_none() && said.attributes.get("request_id").is_some();
        if !self.has_logs || !waits && self.turn(said).is_some() {
            self.tell(place, said, sink);
            return;
        }
        if let Some(session) = said.attributes.get("session.id") {
            self.logs.note_spans(place, session, sink);
        }
        self.held.push_back(Held::of(place, said));
        if self.held.len() > HELD_LIMIT
            && let Some(oldest) = self.held.pop_front()
        {
            self.tell(oldest.place, &oldest.span(), sink);
        }
    }

    fn end_of_body(&mut self, place: Place, sink: &mut dyn Sink) {
        self.logs.end_of_body(place, sink);
        for held in std::mem::take(&mut self.held) {
            let said = held.span();
            if self.query(&said).is_some() && self.turn(&said).is_some() {
                self.tell(held.place, &said, sink);
            } else {
                self.held.push_back(held);
            }
        }
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        for held in std::mem::take(&mut self.held) {
            self.tell(held.place, &held.span(), sink);
        }
    }
}

impl Export {
    /// Returns what the request of a span was for, as far as it is known.
    fn query<'a>(&'a self, said: &'a Span<'_>) -> Option<&'a str> {
        let own = said.attributes.get("query_source_safe");
        own.or_else(|| self.asked.get(said.attributes.get("request_id")?).map(String::as_str))
    }

    /// Returns the prompt that a span is of, as far as it is known.
    fn turn(&self, said: &Span<'_>) -> Option<String> {
        let of_trace = || self.prompts.get(said.trace.as_ref()?).cloned();
        said.attributes.string("prompt.id").or_else(of_trace)
    }

    fn tell(&mut self, place: Place, said: &Span<'_>, sink: &mut dyn Sink) {
        let query = self.query(said).unwrap_or_default().to_owned();
        let turn = self.turn(said);
        if let Some(session) = session_of(said, &query) {
            self.logs.note_spans(place, session, sink);
            span(place, session, &query, turn.as_ref(), said, sink);
        }
    }
}

/// A span that waits for its log record.
struct Held {
    place: Place,
    resource: Attributes,
    name: String,
    id: Option<String>,
    trace: Option<String>,
    attributes: Attributes,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    events: Vec<(String, Option<DateTime<Utc>>, Attributes)>,
}

impl Held {
    fn of(place: Place, span: &Span<'_>) -> Self {
        Self {
            place,
            resource: span.resource.clone(),
            name: span.name.clone().into_owned(),
            id: span.id.clone(),
            trace: span.trace.clone(),
            attributes: span.attributes.clone(),
            started_at: span.started_at,
            ended_at: span.ended_at,
            events: span.events.clone(),
        }
    }

    fn span(&self) -> Span<'_> {
        Span {
            resource: &self.resource,
            name: Cow::Borrowed(&self.name),
            id: self.id.clone(),
            trace: self.trace.clone(),
            attributes: self.attributes.clone(),
            started_at: self.started_at,
            ended_at: self.ended_at,
            events: self.events.clone(),
        }
    }
}

/// Returns the session whose request a span is. Those of subagents are runs of their own.
fn session_of<'a>(span: &'a Span<'_>, query: &str) -> Option<&'a str> {
    let is_request = span.name == "claude_code.llm_request" && !query.starts_with("agent");
    span.attributes.get("session.id").filter(|_| is_request)
}

/// Takes the span of one request.
fn span(
    place: Place,
    session: &str,
    query: &str,
    turn: Option<&String>,
    span: &Span<'_>,
    sink: &mut dyn Sink,
) {
    let attributes = &span.attributes;
    let run = RunKey::new(AGENT, session);
    let mut say = |statement: Statement| sink.item(place, statement.item());
    let mark = |mark: Mark| Statement::Mark { run: run.clone(), at: span.started_at, mark };
    say(mark(facts(span.resource, attributes)));
    say(mark(Mark::EndsUntold));
    let because = "spans have an event for each request, but the span of a model that was given up for another is missing";
    for source in [Source::Foreground, Source::Background] {
        say(mark(Mark::Shows { source, requests: Shown::Some, attempts: Shown::Some, because }));
    }
    let request_id = span.id.clone().map_or_else(|| "#span".to_owned(), |id| format!("#{id}"));
    let candidate = Candidate {
        provider: attributes.string("anthropic.provider").map(provider),
        model: attributes.string("model").map(model_of),
        ..Candidate::default()
    };
    let event = |at, body: retryscope_events::Body| {
        let mut event = Event::new(session, chrono::DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = at;
        event.turn = turn.cloned();
        Statement::Event(Box::new(event), None)
    };
    let upstream_id = attributes.string("request_id");
    // A mark is of the turn that is open; a span may be of another one.
    if let Some(id) = upstream_id.as_ref().filter(|_| turn.is_none()) {
        say(mark(Mark::Anchor(Anchor::of(id))));
    }
    let is_attempt = |(name, ..): &&(String, _, _)| name == "gen_ai.request.attempt";
    let attempts: Vec<_> = span.events.iter().filter(is_attempt).collect();
    if query.is_empty() && attempts.is_empty() {
        // The versions whose spans have no attempts ask a side call with nearly each prompt, and do not say which it is.
        return;
    }
    let source = if query.is_empty() || is_main(query) { Source::Foreground } else { Source::Background };
    let request =
        ModelRequest::new().request_id(request_id.clone()).source(source).candidate(candidate.clone());
    say(event(span.started_at, request.into()));
    for (n, (_, at, _)) in attempts.iter().enumerate() {
        let mut attempt =
            ModelAttempt::new().request_id(request_id.clone()).attempt_id(format!("{request_id}.{n}"));
        attempt.started_at = *at;
        attempt.candidate = Some(candidate.clone());
        attempt.upstream_request_id = upstream_id.clone().filter(|_| n + 1 == attempts.len());
        say(event(*at, attempt.into()));
    }
    if attributes.get("success") == Some("false") {
        let mut failed = ModelFailed::new().request_id(request_id).candidate(candidate);
        failed.status = attributes.status("status_code");
        failed.message = attributes.string("error");
        failed.upstream_request_id = attributes.string("request_id");
        say(event(span.ended_at, failed.into()));
    } else {
        let mut response = ModelResponse::new().request_id(request_id).candidate(candidate);
        response.usage = Some(Usage {
            input_tokens: attributes.u64("input_tokens"),
            output_tokens: attributes.u64("output_tokens"),
            ..Usage::default()
        });
        say(event(span.ended_at, response.into()));
    }
}

pub(super) fn facts(resource: &Attributes, attributes: &Attributes) -> Mark {
    Mark::Facts(Facts {
        agent_version: resource.string("service.version"),
        provider: attributes.string("anthropic.provider").map(provider),
        ..Facts::default()
    })
}

pub(super) fn provider(name: String) -> String {
    if name == "firstParty" { "anthropic".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::Collected;

    use super::*;
    use crate::Reading;
    use crate::otlp::recognize;

    fn is_foreground(query: Option<&str>, attempts: usize) -> Vec<bool> {
        is_foreground_beside(None, query, attempts)
    }

    /// Returns whether the requests that a span tells are of the conversation itself, where a log record of the same
    /// request names that query.
    fn is_foreground_beside(logged: Option<&str>, query: Option<&str>, attempts: usize) -> Vec<bool> {
        let resource = Attributes::default();
        let pairs = [("session.id", Some("s")), ("request_id", Some("r")), ("query_source_safe", query)];
        let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let attributes = Attributes::from_pairs(pairs);
        let attempt = || ("gen_ai.request.attempt".into(), None, Attributes::default());
        let said = Span {
            resource: &resource,
            name: "claude_code.llm_request".into(),
            id: Some("1".to_owned()),
            attributes,
            events: std::iter::repeat_with(attempt).take(attempts).collect(),
            trace: None,
            started_at: None,
            ended_at: None,
        };
        let mut sink = Collected::default();
        let mut export = Export::default();
        if let Some(query) = logged {
            let pairs = [("session.id", "s"), ("request_id", "r"), ("event.name", "api_request")];
            let pairs = pairs.into_iter().chain([("query_source", query)]);
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let record = LogRecord {
                resource: &resource,
                attributes: Attributes::from_pairs(pairs),
                at: None,
                observed_at: None,
                body: None,
                further: None,
                severity: None,
                trace: None,
            };
            export.record(Place::Whole, &record, &mut sink);
        }
        export.span(Place::Whole, &said, &mut sink);
        export.end_of_body(Place::Whole, &mut sink);
        export.end(&mut sink);
        let source = |(_, item): (_, Statement)| match item {
            Statement::Event(event, _) => match event.body {
                Body::ModelRequest(request) => Some(request.source == Some(Source::Foreground)),
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(source).collect()
    }

    /// Returns the turn and the source of each request that spans of an export tell.
    fn told(lines: &[&str]) -> Vec<(Option<String>, Option<Source>)> {
        let mut sink = Collected::default();
        let Reading::Lines(mut otlp) = recognize(lines[0].as_bytes()).unwrap().reading else { panic!() };
        for line in lines {
            otlp.line(Place::Whole, line.as_bytes(), &mut sink);
        }
        otlp.end(&mut sink);
        let request = |(_, item): (_, Statement)| match item {
            Statement::Event(event, _) => match event.body {
                Body::ModelRequest(request) => {
                    let is_logged = request.request_id.is_some_and(|id| id.starts_with("#log"));
                    (!is_logged).then_some((event.turn, request.source))
                }
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(request).collect()
    }

    #[test]
    fn a_span_is_of_the_prompt_of_its_trace_whenever_it_comes() {
        let pairs = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#));
            pairs.collect::<Vec<_>>().join(",")
        };
        let scope = r#""scope":{"name":"com.anthropic.claude_code"}"#;
        let log = |trace: &str, at: u64, attributes: &[(&str, &str)]| {
            let attributes = pairs(&[&[("session.id", "s")], attributes].concat());
            format!(
                r#"{{"resourceLogs":[{{"scopeLogs":[{{{scope},"logRecords":[{{"timeUnixNano":"17960941{at}000000000","traceId":"{trace}","attributes":[{attributes}]}}]}}]}}]}}"#
            )
        };
        let span = |trace: &str, request: &str| {
            let attributes = pairs(&[("session.id", "s"), ("request_id", request)]);
            format!(
                r#"{{"resourceSpans":[{{"scopeSpans":[{{{scope},"spans":[{{"name":"claude_code.llm_request","traceId":"{trace}","spanId":"{request}","attributes":[{attributes}],"events":[{{"name":"gen_ai.request.attempt"}}]}}]}}]}}]}}"#
            )
        };
        let prompt =
            |trace: &str, at: u64| log(trace, at, &[("event.name", "user_prompt"), ("prompt.id", trace)]);
        let asked = |trace: &str, at: u64, id: &str, query: &str| {
            log(
                trace,
                at,
                &[
                    ("event.name", "api_request"),
                    ("prompt.id", trace),
                    ("request_id", id),
                    ("query_source", query),
                ],
            )
        };
        // The next prompt was written down before the span of the first came.
        let (one, first) = (prompt("p1", 10), asked("p1", 11, "r1", "sdk"));
        let late = span("p1", "r1");
        let told_of = |prompt: &str, source: Source| (Some(prompt.to_owned()), Some(source));
        assert_eq!(told(&[&one, &first, &prompt("p2", 20), &late]), [told_of("p1", Source::Foreground)]);
        // Spans that come before their log records wait for them: they say what it was for.
        let title = asked("p1", 11, "r2", "generate_session_title");
        assert_eq!(
            told(&[&prompt("p0", 1), &late, &span("p1", "r2"), &one, &first, &title]),
            [told_of("p1", Source::Foreground), told_of("p1", Source::Background)]
        );
        // What no log record speaks of is told in the end.
        assert_eq!(told(&[&late]), [(None, Some(Source::Foreground))]);
    }

    #[test]
    fn the_log_record_of_a_request_says_what_its_span_does_not() {
        assert_eq!(is_foreground_beside(Some("sdk"), None, 2), [true]);
        assert_eq!(is_foreground_beside(Some("generate_session_title"), None, 2), [false]);
        assert!(is_foreground_beside(Some("agent:builtin:x"), None, 2).is_empty());
        // The span's own word counts first.
        assert_eq!(is_foreground_beside(Some("generate_session_title"), Some("sdk"), 2), [true]);
    }

    #[test]
    fn a_span_of_a_side_call_is_none_of_the_conversation() {
        assert_eq!(is_foreground(Some("sdk"), 2), [true]);
        assert_eq!(is_foreground(Some("compact"), 1), [false]);
        assert_eq!(is_foreground(Some("generate_session_title"), 1), [false]);
        // What does not say whose it is, in versions that name no attempts, tells nothing.
        assert_eq!(is_foreground(None, 2), [true]);
        assert!(is_foreground(None, 0).is_empty());
    }
}
