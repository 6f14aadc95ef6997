//! OTLP logs and traces of Claude Code.
//!
//! Logs name the attempt only on the last failure and never on a success, so they show no retry counts of their own.
//! Spans have one `gen_ai.request.attempt` event a request, except for a model that was given up for another one.

use retryscope_events::{
    AttemptOutcome, Candidate, Event, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, Source, Usage,
};
use retryscope_record::{Facts, Item, Mark, Place, RunKey, Shown, Sink, Statement, TurnOutcome};

use super::AGENT;
use crate::otlp::{Attributes, Consumer, LogRecord, Span};

/// Claude Code's part of the telemetry; needs no state.
pub(crate) struct Export;

impl Consumer for Export {
    fn claims(&self, resource: &Attributes, scope: &str) -> bool {
        scope.starts_with("com.anthropic.claude_code") || resource.get("service.name") == Some("claude-code")
    }

    fn record(&mut self, place: Place, said: &LogRecord<'_>, sink: &mut dyn Sink) {
        record(place, said, sink);
    }

    fn span(&mut self, place: Place, said: &Span<'_>, sink: &mut dyn Sink) {
        span(place, said, sink);
    }
}

/// Takes one log record.
fn record(place: Place, record: &LogRecord<'_>, sink: &mut dyn Sink) {
    let attributes = &record.attributes;
    let Some(session) = attributes.get("session.id") else { return };
    let run = RunKey::new(AGENT, session);
    let mut mark = |mark: Mark| sink.item(place, Item::Mark { run: &run, at: record.at, mark: &mark });
    match attributes.get("event.name") {
        Some("user_prompt") => {
            mark(facts(record.resource, attributes));
            mark(Mark::EndsUntold);
            let because = "log records of Claude Code name an attempt only where a request failed for good";
            for source in [Source::Foreground, Source::Background] {
                mark(Mark::Shows { source, requests: Shown::None, attempts: Shown::None, because });
            }
            mark(Mark::TurnStarted { turn: attributes.string("prompt.id") });
            if let Some(uuid) = attributes.string("message.uuid") {
                mark(Mark::Anchor(uuid));
            }
        }
        Some("api_error" | "api_request") => {
            if let Some(id) = attributes.string("request_id") {
                mark(Mark::Anchor(id));
            }
        }
        // The prompt has no answer without this one: nobody asks again for it.
        Some(reason @ "api_retries_exhausted") if attributes.get("query_source").is_some_and(is_main) => {
            mark(Mark::TurnEnded {
                turn: attributes.string("prompt.id"),
                outcome: TurnOutcome::Failed,
                reason: Some(reason.to_owned()),
                message: attributes.string("error"),
            });
        }
        _ => {}
    }
}

/// Returns whether a request is of the conversation itself: in print mode, or interactive.
fn is_main(query: &str) -> bool {
    query == "sdk" || query.starts_with("repl_main_thread")
}

/// Takes one span.
fn span(place: Place, span: &Span<'_>, sink: &mut dyn Sink) {
    let attributes = &span.attributes;
    let Some(session) = attributes.get("session.id") else { return };
    if span.name != "claude_code.llm_request" {
        return;
    }
    let query = attributes.get("query_source_safe").unwrap_or_default();
    if query.starts_with("agent") {
        return;
    }
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
        model: attributes.string("model"),
        ..Candidate::default()
    };
    let event = |at, body: retryscope_events::Body| {
        let mut event = Event::new(session, chrono::DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = at;
        event.turn = attributes.string("prompt.id");
        Statement::Event(Box::new(event), None)
    };
    let source = if query == "compact" { Source::Background } else { Source::Foreground };
    let request =
        ModelRequest::new().request_id(request_id.clone()).source(source).candidate(candidate.clone());
    say(event(span.started_at, request.into()));
    let attempts = span.events.iter().filter(|(name, ..)| name == "gen_ai.request.attempt");
    for (n, (_, at, _)) in attempts.enumerate() {
        let mut attempt =
            ModelAttempt::new().request_id(request_id.clone()).attempt_id(format!("{request_id}.{n}"));
        attempt.started_at = *at;
        attempt.candidate = Some(candidate.clone());
        say(event(*at, attempt.into()));
    }
    if let Some(id) = attributes.string("request_id") {
        say(mark(Mark::Anchor(id)));
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
    let _ = AttemptOutcome::Ok;
}

fn facts(resource: &Attributes, attributes: &Attributes) -> Mark {
    Mark::Facts(Facts {
        agent_version: resource.string("service.version"),
        provider: attributes.string("anthropic.provider").map(provider),
        ..Facts::default()
    })
}

fn provider(name: String) -> String {
    if name == "firstParty" { "anthropic".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use retryscope_record::Collected;

    use super::*;

    /// Returns the turns that end.
    fn ended(event: &str, query: &str) -> Vec<Option<String>> {
        let pairs = [("session.id", "s"), ("prompt.id", "p"), ("event.name", event), ("query_source", query)];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let resource = Attributes::default();
        let attributes = Attributes::from_pairs(pairs);
        let said = LogRecord { resource: &resource, attributes, at: None, body: None, severity: None };
        let mut sink = Collected::default();
        record(Place::Whole, &said, &mut sink);
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
