//! OTLP logs (see `otlp_logs`) and traces of Claude Code.
//!
//! Spans have one `gen_ai.request.attempt` event a request, except for a model that was given up for another one. Those of
//! 2.1.123 to 2.1.252 do not say what a request was for; the log record of the same request does, where it came before.

use std::collections::BTreeMap;

use retryscope_events::{
    Candidate, Event, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, Source, Usage,
};
use retryscope_record::{Anchor, Facts, Mark, Place, RunKey, Shown, Sink, Statement};

use super::otlp_logs::{self, Logs};
use super::{AGENT, is_main, model_of};
use crate::otlp::{Attributes, Consumer, LogRecord, Span};

/// Most requests whose query is remembered.
const ASKED_LIMIT: usize = 16_384;

/// Claude Code's part of the telemetry.
#[derive(Default)]
pub(crate) struct Export {
    logs: Logs,
    /// What requests beside the conversation were for, by the provider's id, as log records say.
    beside: BTreeMap<String, String>,
}

impl Consumer for Export {
    fn claims(&self, resource: &Attributes, scope: &str) -> bool {
        scope.starts_with("com.anthropic.claude_code") || resource.get("service.name") == Some("claude-code")
    }

    fn matters(&self, said: &LogRecord<'_>) -> bool {
        otlp_logs::matters(&said.attributes)
    }

    fn record(&mut self, place: Place, said: &LogRecord<'_>, sink: &mut dyn Sink) {
        let (id, query) = (said.attributes.string("request_id"), said.attributes.string("query_source"));
        if let Some((id, query)) = id.zip(query.filter(|query| !is_main(query))) {
            if self.beside.len() >= ASKED_LIMIT {
                self.beside.clear();
            }
            self.beside.insert(id, query);
        }
        self.logs.record(place, said, sink);
    }

    fn span(&mut self, place: Place, said: &Span<'_>, sink: &mut dyn Sink) {
        let told = said.attributes.get("request_id").and_then(|id| self.beside.get(id));
        let query = said.attributes.get("query_source_safe").or(told.map(String::as_str)).unwrap_or_default();
        if let Some(session) = session_of(said, query) {
            self.logs.note_spans(place, session, sink);
            span(place, session, query, said, sink);
        }
    }

    fn end_of_body(&mut self, place: Place, sink: &mut dyn Sink) {
        self.logs.end_of_body(place, sink);
    }
}

/// Returns the session whose request a span is. Those of subagents are runs of their own.
fn session_of<'a>(span: &'a Span<'_>, query: &str) -> Option<&'a str> {
    let is_request = span.name == "claude_code.llm_request" && !query.starts_with("agent");
    span.attributes.get("session.id").filter(|_| is_request)
}

/// Takes the span of one request.
fn span(place: Place, session: &str, query: &str, span: &Span<'_>, sink: &mut dyn Sink) {
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
        event.turn = attributes.string("prompt.id");
        Statement::Event(Box::new(event), None)
    };
    if let Some(id) = attributes.get("request_id") {
        say(mark(Mark::Anchor(Anchor::of(id))));
    }
    let mut attempts = span.events.iter().filter(|(name, ..)| name == "gen_ai.request.attempt").peekable();
    if query.is_empty() && attempts.peek().is_none() {
        // The versions whose spans have no attempts ask a side call with nearly each prompt, and do not say which it is.
        return;
    }
    let source = if query.is_empty() || is_main(query) { Source::Foreground } else { Source::Background };
    let request =
        ModelRequest::new().request_id(request_id.clone()).source(source).candidate(candidate.clone());
    say(event(span.started_at, request.into()));
    for (n, (_, at, _)) in attempts.enumerate() {
        let mut attempt =
            ModelAttempt::new().request_id(request_id.clone()).attempt_id(format!("{request_id}.{n}"));
        attempt.started_at = *at;
        attempt.candidate = Some(candidate.clone());
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
            };
            export.record(Place::Whole, &record, &mut sink);
        }
        export.span(Place::Whole, &said, &mut sink);
        export.end_of_body(Place::Whole, &mut sink);
        let source = |(_, item): (_, Statement)| match item {
            Statement::Event(event, _) => match event.body {
                Body::ModelRequest(request) => Some(request.source == Some(Source::Foreground)),
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(source).collect()
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
