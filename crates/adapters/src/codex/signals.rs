//! What the program says of itself as telemetry (`codex.api_request` and so on), wherever it is written: OTLP logs, OTLP
//! spans, the text log.
//!
//! One `api_request` is one HTTP request; its `attempt` counts the request loop and starts at 0 for each stream. A
//! WebSocket is opened once before the first prompt (prewarm), which is no model request. No record tells the end of a turn.

mod thread;
mod threads;

use chrono::{DateTime, Utc};
use retryscope_events::ModelRetry;
use retryscope_record::{Place, Shown, Sink};

use self::threads::Threads;
use super::say::Say;
use crate::otlp::Attributes;

const STREAMS: &str = "this log shows streams that were opened again, not the requests inside them";

/// Our name for the end of the span in which a summary of the conversation is asked for. No event tells its answer.
pub(super) const SUMMARY_OVER: &str = "summary over";

/// What of a signal is read.
pub(super) const SAID: &[&str] = &[
    "event.name",
    "app.version",
    "provider_name",
    "model",
    "endpoint",
    "attempt",
    "success",
    "duration_ms",
    "http.response.status_code",
    "auth.request_id",
    "error.message",
    "input_token_count",
    "output_token_count",
    "cached_token_count",
    "reasoning_token_count",
    "ttft_ms",
    "call_id",
    "turn_id",
    "retry.operation",
    "retry.delay_ms",
    "retry.layer",
];

/// Returns whether a record tells something that is read. Of the events inside a stream only its end and its errors do.
pub(super) fn is_signal(attributes: &Attributes) -> bool {
    match attributes.get("event.name") {
        Some("codex.sse_event" | "codex.websocket_event") => {
            ["input_token_count", "error.message"].iter().any(|key| attributes.get(key).is_some())
        }
        Some(
            "codex.conversation_starts"
            | "codex.user_prompt"
            | "codex.api_request"
            | "codex.websocket_connect"
            | "codex.websocket_request"
            | "codex.retry"
            | "codex.tool_result"
            | "codex.tool_decision"
            | "codex.turn_profile"
            | SUMMARY_OVER,
        ) => true,
        _ => false,
    }
}

/// Where a signal was written. The same signal may stand in a log record and in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Log,
    Span,
    Text,
}

/// One signal.
pub(super) struct Signal<'a> {
    pub(super) channel: Channel,
    pub(super) place: Place,
    pub(super) thread: &'a str,
    pub(super) turn: Option<String>,
    pub(super) at: Option<DateTime<Utc>>,
    pub(super) attributes: &'a Attributes,
}

/// State of all threads of a source.
#[derive(Default)]
pub(super) struct Signals {
    threads: Threads,
}

impl Signals {
    /// Takes one signal.
    pub(super) fn take(&mut self, signal: &Signal<'_>, sink: &mut dyn Sink) {
        let Some(name) = signal.attributes.get("event.name") else { return };
        let thread = self.threads.get(signal.thread);
        // Spans have no events of streams, only log records do; told twice, these say the same of the same attempt.
        let anywhere = matches!(name, "codex.retry" | "codex.sse_event" | "codex.websocket_event");
        let is_elsewhere = match thread.channel {
            Some(channel) => channel != signal.channel,
            None if anywhere => false,
            None => {
                thread.channel = Some(signal.channel);
                false
            }
        };
        if is_elsewhere && !anywhere {
            return;
        }
        let mut say = Say::new(signal.place, signal.thread, signal.at, sink);
        // What another channel adds is of the request that is open, in whichever turn.
        if !is_elsewhere {
            let asks =
                matches!(name, "codex.api_request" | "codex.websocket_connect" | "codex.websocket_request");
            let (turn, learned) = thread.course.take(signal.turn.as_deref(), asks);
            say.turn = turn;
            say.anchor(learned);
        }
        thread.take(name, signal, &mut say);
    }

    /// Forgets a thread that is told anew.
    pub(super) fn forget(&mut self, thread: &str) {
        self.threads.forget(thread);
    }

    /// A stream is opened again, as the text log tells it.
    pub(super) fn retry(
        &mut self,
        place: Place,
        id: &str,
        at: Option<DateTime<Utc>>,
        retry: ModelRetry,
        sink: &mut dyn Sink,
    ) {
        let thread = self.threads.get(id);
        let mut say = Say::new(place, id, at, sink);
        if thread.shown.is_none() {
            thread.shows(Shown::Some, Shown::Some, STREAMS, &mut say);
        }
        let first = retry.attempt == Some(1);
        if first && thread.open.as_ref().is_some_and(|open| open.retries > 0 && open.attempt.is_none()) {
            thread.open = None;
        }
        let request = thread.ensure(None, &mut say);
        if let Some(open) = &mut thread.open {
            open.retries += 1;
        }
        say.event(retry.request_id(request));
    }
}

#[cfg(test)]
mod tests {
    use retryscope_events::{Body, Layer};
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(signals: &[&[(&str, &str)]]) -> Vec<Body> {
        let of_log: Vec<_> = signals.iter().map(|pairs| (Channel::Log, *pairs)).collect();
        read_from(&of_log)
    }

    fn read_from(signals: &[(Channel, &[(&str, &str)])]) -> Vec<Body> {
        let mut sink = Collected::default();
        let mut state = Signals::default();
        for (channel, pairs) in signals {
            let attributes =
                Attributes::from_pairs(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
            let signal = Signal {
                channel: *channel,
                place: Place::Whole,
                thread: "t",
                turn: None,
                at: None,
                attributes: &attributes,
            };
            state.take(&signal, &mut sink);
        }
        sink.items
            .into_iter()
            .filter_map(|(_, item)| if let Statement::Event(e, _) = item { Some(e.body) } else { None })
            .collect()
    }

    const START: &[(&str, &str)] = &[("event.name", "codex.conversation_starts"), ("app.version", "0.171.0")];
    const DONE: &[(&str, &str)] = &[("event.name", "codex.sse_event"), ("input_token_count", "1")];

    #[test]
    fn the_loops_are_told_apart() {
        let sent = |status: &'static str, attempt: &'static str| {
            [("event.name", "codex.api_request"), ("http.response.status_code", status), ("attempt", attempt)]
        };
        let bodies = read(&[START, &sent("500", "0"), &sent("200", "1"), &sent("200", "0"), DONE]);
        let layers: Vec<_> = bodies
            .iter()
            .filter_map(|b| if let Body::ModelAttempt(a) = b { a.layer } else { None })
            .collect();
        assert_eq!(layers, [Layer::Transport, Layer::Stream]);
        assert_eq!(bodies.iter().filter(|b| matches!(b, Body::ModelRequest(_))).count(), 1);
    }

    #[test]
    fn what_spans_leave_out_of_streams_is_taken_from_log_records() {
        let sent: &[(&str, &str)] = &[("event.name", "codex.api_request"), ("attempt", "0")];
        let cut: &[(&str, &str)] =
            &[("event.name", "codex.sse_event"), ("error.message", "stream closed before the end")];
        let (span, log) = (Channel::Span, Channel::Log);
        let bodies = read_from(&[
            (span, START),
            (log, START),
            (span, sent),
            (log, sent),
            (log, cut),
            (span, sent),
            (log, sent),
            (log, DONE),
        ]);
        let count = |pick: fn(&Body) -> bool| bodies.iter().filter(|body| pick(body)).count();
        assert_eq!(count(|b| matches!(b, Body::ModelAttempt(a) if a.message.is_some())), 1);
        assert_eq!(count(|b| matches!(b, Body::ModelAttempt(a) if a.candidate.is_some())), 2);
        assert_eq!(count(|b| matches!(b, Body::ModelResponse(_))), 1);
    }

    #[test]
    fn the_start_up_connection_is_no_request() {
        let connect = [("event.name", "codex.websocket_connect"), ("success", "true")];
        let request = [("event.name", "codex.websocket_request"), ("success", "true")];
        let bodies = read(&[START, &connect, &request, DONE, &request, DONE]);
        assert_eq!(bodies.iter().filter(|b| matches!(b, Body::ModelAttempt(_))).count(), 1);
    }

    #[test]
    fn other_requests_are_not_model_requests() {
        assert!(read(&[START, &[("event.name", "codex.api_request"), ("endpoint", "/models")]]).is_empty());
        assert!(
            read(&[&[("event.name", "codex.sse_event"), ("error.message", "x")], &[("a", "b")]]).is_empty()
        );
    }
}
