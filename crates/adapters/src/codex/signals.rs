//! What the program says of itself as telemetry (`codex.api_request` and so on), wherever it is written: OTLP logs, OTLP
//! spans, the text log.
//!
//! One `api_request` is one HTTP request; its `attempt` counts the request loop and starts at 0 for each stream. A
//! WebSocket is opened once before the first prompt (prewarm), which is no model request. No record tells the end of a turn.

mod threads;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{
    AttemptOutcome, Candidate, Layer, ModelAttempt, ModelRequest, ModelResponse, ModelRetry, Source, Usage,
};
use retryscope_record::{Facts, Mark, Place, Shown, Sink};

use self::threads::Threads;
use super::at_least;
use super::course::Course;
use super::error::Told;
use super::fields::whole_ms;
use super::say::{HTTPS, Say, WEBSOCKET, over};
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

#[derive(Default)]
struct Thread {
    channel: Option<Channel>,
    course: Course,
    /// How much of requests and of their attempts was said to be shown.
    shown: Option<(Shown, Shown)>,
    /// The beginning of the open turn was seen.
    begun: bool,
    version: Option<String>,
    provider: Option<String>,
    requests: u64,
    attempts: u64,
    open: Option<Open>,
    compaction: Option<String>,
    warm: Warm,
}

/// The request that is open.
struct Open {
    id: String,
    /// The last attempt of it.
    attempt: Option<String>,
    retries: u64,
    /// It was for a summary, and that is over: what is sent next is sent for another one.
    is_over: bool,
}

/// How far the start-up connection has come.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Warm {
    /// The start was not seen, or it is over.
    #[default]
    Over,
    /// The process started: the first connection is the start-up's.
    Connect,
    /// That connection stands: the first request over it is the start-up's.
    Request,
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

impl Thread {
    fn take(&mut self, name: &str, signal: &Signal<'_>, say: &mut Say<'_>) {
        let attributes = signal.attributes;
        match name {
            "codex.conversation_starts" => {
                self.warm = Warm::Connect;
                self.course = Course::default();
                self.begun = true;
                self.open = None;
                self.version = attributes.string("app.version").or(self.version.take());
                self.provider = attributes.string("provider_name").or(self.provider.take());
                let facts = Facts {
                    agent_version: self.version.clone(),
                    provider: self.provider.clone(),
                    model: attributes.string("model"),
                    ..Facts::default()
                };
                say.mark(&Mark::Facts(facts));
            }
            "codex.user_prompt" => {
                self.begun = true;
                self.open = None;
                self.course = signal.turn.clone().map_or(Course::Unknown, Course::Named);
                say.mark(&Mark::TurnStarted { turn: signal.turn.clone() });
            }
            "codex.api_request" => self.request(attributes, say),
            "codex.websocket_connect" => self.connect(attributes, say),
            "codex.websocket_request" => {
                if self.warm == Warm::Request {
                    self.warm = Warm::Over;
                } else {
                    self.warm = Warm::Over;
                    self.attempt(WEBSOCKET, attributes, say);
                }
            }
            "codex.sse_event" | "codex.websocket_event" => self.stream(attributes, say),
            "codex.retry" => self.retry(attributes, say),
            "codex.tool_result" | "codex.tool_decision" => say.anchor(attributes.string("call_id")),
            SUMMARY_OVER => {
                if let Some(open) = &mut self.open {
                    open.is_over = true;
                }
            }
            "codex.turn_profile" => {
                say.anchor(attributes.string("turn_id"));
                say.mark(&Mark::TurnComplete);
            }
            _ => {}
        }
    }

    fn request(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let endpoint = attributes.get("endpoint").unwrap_or("/responses");
        if endpoint.ends_with("/compact") {
            self.compaction(attributes, say);
        } else if endpoint.ends_with("/responses") || endpoint.ends_with("/chat/completions") {
            self.attempt(HTTPS, attributes, say);
        }
    }

    fn connect(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let works = attributes.get("success") == Some("true");
        let warming = self.warm == Warm::Connect;
        if warming && at_least(self.version.as_deref(), 0, 171) {
            self.warm = if works { Warm::Request } else { Warm::Over };
            return;
        }
        self.warm = Warm::Over;
        // A connection that stands is counted by the request over it.
        if !works {
            let sent = self.attempt(WEBSOCKET, attributes, say);
            if warming {
                // Which versions open a connection at the start is known from 0.171 on only.
                let (request_id, attempt_id) = sent;
                let basis = "the first connection of a process may be its start-up's".to_owned();
                say.mark(&Mark::Sends {
                    request_id,
                    attempt_id: Some(attempt_id),
                    min: 0,
                    max: Some(1),
                    basis,
                });
            }
        }
    }

    /// One request over the wire. Returns the ids of request and attempt.
    fn attempt(&mut self, transport: &str, attributes: &Attributes, say: &mut Say<'_>) -> (String, String) {
        self.shows_each(say);
        let inner = attributes.u64("attempt").unwrap_or(0) > 0;
        if let Some(before) = self.open.take_if(|open| open.is_over) {
            say.event(ModelResponse::new().request_id(before.id));
        }
        let candidate = over(transport, self.provider.clone(), attributes.string("model"));
        let request = self.ensure(Some(candidate.clone()), say);
        self.attempts += 1;
        let id = format!("#{}", self.attempts);
        if let Some(before) = self.open.as_mut().and_then(|open| open.attempt.replace(id.clone())) {
            // Sent again: which loop gave the one before up stands in the number of this one.
            let layer = if inner { Layer::Transport } else { Layer::Stream };
            let repeated = ModelAttempt::new().request_id(request.clone()).attempt_id(before).layer(layer);
            say.event(repeated.outcome(AttemptOutcome::Failed));
        }
        let attempt = sent(attributes, say.at).request_id(request.clone()).attempt_id(id.clone());
        say.event(attempt.candidate(candidate));
        (request, id)
    }

    fn compaction(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        self.shows_each(say);
        let inner = attributes.u64("attempt").unwrap_or(0) > 0;
        let id = self.compaction.clone().filter(|_| inner).unwrap_or_else(|| {
            self.requests += 1;
            let id = format!("#{}", self.requests);
            say.event(
                ModelRequest::new().request_id(id.clone()).source(Source::Background).purpose("compaction"),
            );
            id
        });
        self.compaction = Some(id.clone());
        self.attempts += 1;
        say.event(sent(attributes, say.at).request_id(id).attempt_id(format!("#{}", self.attempts)));
    }

    fn stream(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let Some(open) = &self.open else { return };
        let request = open.id.clone();
        if attributes.get("input_token_count").is_some() {
            let mut response = ModelResponse::new().request_id(request);
            response.usage = Some(Usage {
                input_tokens: attributes.u64("input_token_count"),
                output_tokens: attributes.u64("output_token_count"),
                cached_input_tokens: attributes.u64("cached_token_count"),
                reasoning_tokens: attributes.u64("reasoning_token_count"),
                cost_usd: None,
            });
            response.first_token_ms = attributes.u64("ttft_ms");
            say.event(response);
            self.open = None;
        } else if let (Some(message), Some(attempt)) = (attributes.get("error.message"), open.attempt.clone())
        {
            let told = Told::of(message);
            let mut attempt =
                ModelAttempt::new().request_id(request).attempt_id(attempt).outcome(AttemptOutcome::Failed);
            attempt.status = told.status;
            attempt.code = told.code;
            attempt.message = Some(told.message).filter(|m| !m.is_empty());
            attempt.upstream_request_id = told.request_id;
            say.event(attempt);
        }
    }

    fn retry(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let ours = matches!(attributes.get("retry.operation"), None | Some("request" | "sampling"));
        let Some(open) = self.open.as_mut().filter(|_| ours) else { return };
        open.retries += 1;
        let mut retry = ModelRetry::new().request_id(open.id.clone());
        retry.delay_ms = attributes.get("retry.delay_ms").and_then(|ms| ms.parse().ok()).map(whole_ms);
        retry.layer = match attributes.get("retry.layer") {
            Some("http") => Some(Layer::Transport),
            Some("stream") => Some(Layer::Stream),
            _ => None,
        };
        say.event(retry);
    }

    /// Returns the id of the open request, opening one where needed.
    fn ensure(&mut self, candidate: Option<Candidate>, say: &mut Say<'_>) -> String {
        if let Some(open) = &self.open {
            return open.id.clone();
        }
        self.requests += 1;
        let id = format!("#{}", self.requests);
        let mut request =
            ModelRequest::new().request_id(id.clone()).source(Source::Foreground).purpose("main");
        request.candidate = candidate;
        say.event(request);
        self.open = Some(Open { id: id.clone(), attempt: None, retries: 0, is_over: false });
        id
    }

    /// Says how much is shown of a request that begins here: each HTTP request has a record, but where the log begins
    /// within a turn, what came before is missing.
    fn shows_each(&mut self, say: &mut Say<'_>) {
        const HEADLESS: &str = "its beginning is not in this file";
        if self.begun {
            self.shows(Shown::All, Shown::All, "each HTTP request of codex has a record here", say);
        } else if self.attempts == 0 {
            say.mark(&Mark::BeginsElsewhere);
            self.shows(Shown::Some, Shown::Some, HEADLESS, say);
        } else if self.open.is_none() {
            self.shows(Shown::Some, Shown::All, HEADLESS, say);
        }
    }

    /// Says how much is shown, before the first request that it is about.
    fn shows(&mut self, requests: Shown, attempts: Shown, because: &'static str, say: &mut Say<'_>) {
        let before = self.shown.replace((requests, attempts));
        if before == Some((requests, attempts)) {
            return;
        }
        if before.is_none() {
            say.mark(&Mark::EndsUntold);
        }
        say.mark(&Mark::Shows { source: Source::Foreground, requests, attempts, because });
        say.mark(&Mark::Shows {
            source: Source::Background,
            requests: Shown::Some,
            attempts: Shown::Some,
            because,
        });
    }
}

/// Returns the attempt that a record of a request tells.
fn sent(attributes: &Attributes, at: Option<DateTime<Utc>>) -> ModelAttempt {
    let mut attempt = ModelAttempt::new();
    let duration = attributes.u64("duration_ms").and_then(|ms| i64::try_from(ms).ok());
    attempt.started_at =
        at.zip(duration).and_then(|(at, ms)| at.checked_sub_signed(TimeDelta::try_milliseconds(ms)?));
    attempt.status = attributes.status("http.response.status_code");
    attempt.upstream_request_id = attributes.string("auth.request_id");
    let message = attributes.string("error.message");
    let failed = message.is_some()
        || attempt.status.is_some_and(|status| status >= 400)
        || attributes.get("success") == Some("false");
    if failed {
        attempt.outcome = Some(AttemptOutcome::Failed);
        attempt.ended_at = at;
        // `http 503` says the status once more.
        attempt.message =
            message.filter(|m| attempt.status.is_none_or(|status| *m != format!("http {status}")));
    }
    attempt
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
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
