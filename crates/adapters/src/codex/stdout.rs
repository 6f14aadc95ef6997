//! Standard output of `codex exec --json`, several runs after each other and a wrapper's text around it included.
//!
//! Shows streams, not requests: one `Reconnecting... n/max` for each stream that is opened again, as prose and without a
//! time. A retry and the final error have the same type; the final one comes twice. A run over a WebSocket leaves the first
//! retry out. How many steps an answer took is not said.

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptOutcome, Candidate, FallbackKind, Layer, ModelAttempt, ModelFailed, ModelFallback, ModelRequest,
    ModelResponse, ModelRetry, Source,
};
use retryscope_record::{GapKind, Mark, Place, Shown, Sink, TurnOutcome};

use super::error::{Reconnecting, Told};
use super::say::{HTTPS, Say, WEBSOCKET};
use crate::LineDecoder;
use crate::json::Object;

const BECAUSE: &str = "standard output of codex shows streams that were opened again, not the requests inside them or how many steps an answer took";

pub(super) fn recognize(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').filter_map(embedded).any(|(_, record)| {
        record.is("type", "thread.started") && record.raw("thread_id").is_some()
            || record.is("type", "turn.failed")
                && record.object("error").is_some_and(|e| e.raw("message").is_some())
    })
}

/// Returns the object that a line ends with, and what a wrapper wrote before it.
fn embedded(line: &[u8]) -> Option<(&[u8], Object<'_>)> {
    let at = memchr::memmem::find(line, b"{\"type\":").or_else(|| memchr::memchr(b'{', line))?;
    let (before, rest) = line.split_at(at);
    Some((before, Object::parse(rest.trim_ascii_end())?))
}

/// A wrapper often writes `[time] [LEVEL] ` before each line.
fn time_in(prefix: &[u8]) -> Option<DateTime<Utc>> {
    let prefix = std::str::from_utf8(prefix).ok()?.trim_start().trim_start_matches('[');
    let word = prefix.split([']', ' ', '\t']).next()?;
    DateTime::parse_from_rfc3339(word).ok().map(|t| t.with_timezone(&Utc))
}

#[derive(Default)]
pub(super) struct Stdout {
    thread: Option<String>,
    requests: u64,
    turn: Option<Turn>,
}

/// The turn that is running.
#[derive(Default)]
struct Turn {
    /// Id of the open request.
    open: Option<String>,
    /// Retries of the open request that are known.
    retries: u64,
    /// Number in the last line about a retry.
    last_number: u64,
    /// The stream runs over a WebSocket, or did: then attempts are told one by one, since no requests hide in those.
    told: Option<u64>,
    /// A tool has run since the last thing the model said.
    after_tool: bool,
    /// Anything came from the model.
    answered: bool,
    /// The last error that was no retry; `turn.failed` repeats it.
    error: Option<String>,
}

impl LineDecoder for Stdout {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let Some((prefix, record)) = embedded(line) else {
            if line.starts_with(b"{\"type\":") {
                sink.gap(place, GapKind::InvalidJson);
            }
            return;
        };
        let Some(kind) = record.str("type") else { return };
        let at = record.time("timestamp").or_else(|| time_in(prefix));
        if kind == "thread.started" {
            // The same thread again is a resumed run: its turns go on.
            let thread = record.string("thread_id");
            if self.thread != thread {
                *self = Self { thread, ..Self::default() };
            }
            self.turn = None;
            return;
        }
        // Without the first line nothing says which thread this is.
        let Some(thread) = self.thread.clone() else { return };
        let mut say = Say::new(place, &thread, at, sink);
        match &*kind {
            "turn.started" => self.begin(&mut say),
            "error" => self.error(record.string("message").unwrap_or_default(), &mut say),
            "item.started" | "item.updated" | "item.completed" => {
                if let Some(item) = record.object("item") {
                    self.item(&item, &mut say);
                }
            }
            "turn.completed" => self.completed(&mut say),
            "turn.failed" => {
                let message = record.object("error").and_then(|error| error.string("message"));
                self.failed(message, &mut say);
            }
            _ => {}
        }
    }
}

impl Turn {
    /// Tells an attempt as a record of its own, where that has begun. One over a WebSocket is one request.
    fn tell(&mut self, request: &str, transport: &str, failed: bool, say: &mut Say<'_>) {
        let Some(told) = &mut self.told else { return };
        *told += 1;
        let id = format!("{request}.{told}");
        let candidate = Candidate { transport: Some(transport.to_owned()), ..Candidate::default() };
        let mut attempt = ModelAttempt::new().request_id(request).attempt_id(id.clone()).candidate(candidate);
        attempt.outcome = failed.then_some(AttemptOutcome::Failed);
        say.event(attempt);
        if transport == WEBSOCKET {
            let basis = "a connection over a WebSocket is one request".to_owned();
            let (request_id, attempt_id) = (request.to_owned(), Some(id));
            say.mark(&Mark::Sends { request_id, attempt_id, min: 1, max: Some(1), basis });
        }
    }
}

impl Stdout {
    fn begin(&mut self, say: &mut Say<'_>) {
        self.turn = Some(Turn::default());
        say.mark(&Mark::TurnStarted { turn: None });
        let shows = |source, requests, attempts| Mark::Shows { source, requests, attempts, because: BECAUSE };
        say.mark(&shows(Source::Foreground, Shown::Some, Shown::All));
        say.mark(&shows(Source::Background, Shown::None, Shown::None));
        self.ensure(say);
    }

    /// Returns the running turn and its open request, opening what is missing.
    fn ensure(&mut self, say: &mut Say<'_>) -> (&mut Turn, String) {
        let turn = self.turn.get_or_insert_with(Turn::default);
        let id = turn.open.clone().unwrap_or_else(|| {
            self.requests += 1;
            let id = format!("#{}", self.requests);
            say.event(ModelRequest::new().request_id(id.clone()).source(Source::Foreground).purpose("main"));
            turn.retries = 0;
            turn.last_number = 0;
            turn.told = None;
            id
        });
        turn.open = Some(id.clone());
        (turn, id)
    }

    fn error(&mut self, message: String, say: &mut Say<'_>) {
        let Some(reconnecting) = Reconnecting::of(&message) else {
            let (turn, _) = self.ensure(say);
            turn.error = Some(message);
            return;
        };
        let told = reconnecting.cause.map(Told::of);
        // A stream may also break after its tool call was complete; then the tool has run, and the request goes on.
        if told.as_ref().is_some_and(Told::is_before_stream) {
            self.after_tool(say);
        }
        let (turn, id) = self.ensure(say);
        turn.after_tool = false;
        // Numbers count up within a request; a smaller one counts again, after something that is not shown. Numbers left
        // out are retries that were made and not shown.
        let number = reconnecting.number.unwrap_or(0);
        let missing = if number > turn.last_number { number - turn.last_number - 1 } else { 0 };
        turn.last_number = number;
        let socket = told.as_ref().is_some_and(Told::is_over_socket);
        if socket && turn.retries == 0 {
            turn.told = Some(0);
        }
        let transport = if socket { WEBSOCKET } else { HTTPS };
        for _ in 0..missing.min(100) {
            turn.retries += 1;
            let mut retry = ModelRetry::new().request_id(id.clone()).layer(Layer::Stream);
            retry.attempt = Some(turn.retries);
            turn.tell(&id, transport, true, say);
            say.event(retry);
        }
        turn.retries += 1;
        turn.tell(&id, transport, true, say);
        let mut retry = ModelRetry::new().request_id(id).layer(Layer::Stream);
        retry.attempt = Some(turn.retries);
        retry.max_attempts = reconnecting.max.map(|max| max + 1);
        if let Some(told) = told {
            told.fill_retry(&mut retry);
            say.anchor(told.request_id);
        }
        say.event(retry);
    }

    fn item(&mut self, item: &Object<'_>, say: &mut Say<'_>) {
        match item.str("type").as_deref() {
            Some("error") => {
                let message = item.string("message").unwrap_or_default();
                if let Some((_, rest)) = message.split_once("Falling back from WebSockets to HTTPS transport")
                {
                    let (turn, id) = self.ensure(say);
                    turn.last_number = 0;
                    turn.tell(&id, WEBSOCKET, true, say);
                    let over = |transport: &str| Candidate {
                        transport: Some(transport.to_owned()),
                        ..Candidate::default()
                    };
                    let mut fallback = ModelFallback::new().request_id(id).kind(FallbackKind::Transport);
                    fallback.from = Some(over(WEBSOCKET));
                    fallback.to = Some(over(HTTPS));
                    fallback.reason =
                        Some(rest.trim_start_matches(['.', ' ']).to_owned()).filter(|r| !r.is_empty());
                    say.event(fallback);
                }
            }
            // What the model says itself; after a tool has run it is the answer to another request.
            Some("agent_message" | "reasoning") => {
                self.after_tool(say);
                let (turn, _) = self.ensure(say);
                turn.answered = true;
            }
            Some(_) => {
                let (turn, _) = self.ensure(say);
                turn.answered = true;
                turn.after_tool = true;
            }
            None => {}
        }
    }

    /// A tool's result is always sent to the model: what follows it belongs to another request.
    fn after_tool(&mut self, say: &mut Say<'_>) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.after_tool) {
            turn.after_tool = false;
            self.answer(say);
        }
    }

    /// Closes the open request.
    fn answer(&mut self, say: &mut Say<'_>) {
        let (turn, id) = self.ensure(say);
        turn.tell(&id, HTTPS, false, say);
        turn.open = None;
        say.event(ModelResponse::new().request_id(id));
    }

    fn completed(&mut self, say: &mut Say<'_>) {
        self.after_tool(say);
        // Its `usage` is the thread's total, not this answer's.
        self.answer(say);
        self.turn = None;
        say.mark(&Mark::TurnEnded {
            turn: None,
            outcome: TurnOutcome::Succeeded,
            reason: None,
            message: None,
        });
    }

    fn failed(&mut self, message: Option<String>, say: &mut Say<'_>) {
        let message = message.or_else(|| self.turn.as_mut()?.error.take());
        if message.as_deref().is_some_and(|message| Told::of(message).is_before_stream()) {
            self.after_tool(say);
        }
        let (turn, id) = self.ensure(say);
        let answered = turn.answered;
        if !answered {
            // Nothing came back before it failed: there was one request.
            let because = BECAUSE;
            say.mark(&Mark::Shows {
                source: Source::Foreground,
                requests: Shown::All,
                attempts: Shown::All,
                because,
            });
        }
        let told = Told::of(message.as_deref().unwrap_or_default());
        turn.tell(&id, HTTPS, true, say);
        let mut failed = ModelFailed::new().request_id(id);
        told.fill_failed(&mut failed);
        say.event(failed);
        self.turn = None;
        say.mark(&Mark::TurnEnded { turn: None, outcome: TurnOutcome::Failed, reason: told.code, message });
    }
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(text: &str) -> Collected {
        let mut sink = Collected::default();
        let mut decoder = Stdout::default();
        for (n, line) in text.lines().enumerate() {
            decoder.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        sink
    }

    fn count(read: &Collected, pick: fn(&Body) -> bool) -> usize {
        read.items
            .iter()
            .filter(|(_, item)| matches!(item, Statement::Event(event, _) if pick(&event.body)))
            .count()
    }

    const FAILED: &str = r#"{"type":"thread.started","thread_id":"t-1"}
{"type":"turn.started"}
note [x] {"type":"error","message":"Reconnecting... 2/3 (unexpected status 500 Oops, url: ws://h/v1)"}
{"type":"error","message":"unexpected status 500 Oops, request id: q-7"}
{"type":"turn.failed","error":{"message":"unexpected status 500 Oops, request id: q-7"}}"#;

    #[test]
    fn a_number_left_out_is_a_retry_too() {
        let read = read(FAILED);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRetry(_))), 2);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelFailed(_))), 1);
        assert!(read.gaps.is_empty());
    }

    #[test]
    fn a_tools_result_is_another_request() {
        let read = read(
            r#"{"type":"thread.started","thread_id":"t-1"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"command_execution"}}
{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"x"}}
{"type":"turn.completed","usage":{}}"#,
        );
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 2);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelResponse(_))), 2);
    }

    #[test]
    fn a_stream_may_break_after_the_tool_that_it_called() {
        let requests = |cause: &str| {
            let read = read(&format!(
                r#"{{"type":"thread.started","thread_id":"t-1"}}
{{"type":"turn.started"}}
{{"type":"item.completed","item":{{"id":"item_0","type":"command_execution"}}}}
{{"type":"error","message":"Reconnecting... 1/2 ({cause})"}}
{{"type":"item.completed","item":{{"id":"item_1","type":"agent_message","text":"x"}}}}
{{"type":"turn.completed","usage":{{}}}}"#
            ));
            assert_eq!(count(&read, |b| matches!(b, Body::ModelRetry(_))), 1);
            count(&read, |b| matches!(b, Body::ModelRequest(_)))
        };
        assert_eq!(requests("stream disconnected before completion: closed early"), 1);
        // What has no stream called nothing: the tool was another answer's.
        assert_eq!(requests("unexpected status 503 Service Unavailable: busy"), 2);
    }

    #[test]
    fn a_broken_websocket_is_told_by_its_name() {
        let read = read(
            r#"{"type":"thread.started","thread_id":"t-1"}
{"type":"turn.started"}
{"type":"error","message":"Reconnecting... 2/2 (stream disconnected before completion: WebSocket protocol error: reset)"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Falling back from WebSockets to HTTPS transport. x"}}
{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"x"}}
{"type":"turn.completed","usage":{}}"#,
        );
        let over = |b: &Body| matches!(b, Body::ModelAttempt(a) if a.candidate.as_ref().is_some_and(|c| c.transport.as_deref() == Some(WEBSOCKET)));
        assert_eq!(count(&read, over), 3);
    }

    #[test]
    fn without_a_thread_nothing_is_said() {
        assert!(read("{\"type\":\"turn.started\"}\n{\"type\":\"error\",\"message\":\"x\"}").items.is_empty());
        assert!(!recognize(b"{\"type\":\"error\",\"message\":\"x\"}"));
        assert!(recognize(FAILED.as_bytes()));
    }

    #[test]
    fn any_bytes_are_read() {
        for bytes in
            [&b"\xff{\"type\":"[..], b"{", b"", b"{\"type\":7}", b"{\"type\":\"item.completed\",\"item\":[]}"]
        {
            let mut sink = Collected::default();
            Stdout { thread: Some("t".into()), ..Stdout::default() }.line(Place::Whole, bytes, &mut sink);
        }
    }
}
