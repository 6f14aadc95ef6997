//! The rollout trace (`CODEX_ROLLOUT_TRACE_ROOT`): each stream-level attempt with its start and end.
//!
//! Requests inside a stream are not in it. The payload files beside it hold prompts and are never opened.

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptOutcome, Candidate, Layer, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, Source,
};
use retryscope_record::{Facts, GapKind, Mark, Place, Shown, Sink, TurnOutcome};

use super::error::Told;
use super::say::Say;
use crate::LineDecoder;
use crate::json::Object;

/// Most threads whose state is kept.
const THREAD_LIMIT: usize = 1_024;

pub(super) fn recognize(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').take(5).filter_map(Object::parse).any(|record| {
        record.raw("schema_version").is_some()
            && record.raw("rollout_id").is_some()
            && record.object("payload").is_some_and(|payload| payload.raw("type").is_some())
    })
}

#[derive(Default)]
pub(super) struct Trace {
    threads: Vec<(String, Thread)>,
    requests: u64,
    last_seq: Option<u64>,
}

#[derive(Default)]
struct Thread {
    open: Option<String>,
    /// The last attempt of the open request.
    attempt: Option<String>,
    failed: Option<Told>,
    candidate: Candidate,
}

impl LineDecoder for Trace {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let Some(record) = Object::parse(line) else {
            sink.gap(place, GapKind::InvalidJson);
            return;
        };
        if let Some(seq) = record.u64("seq") {
            if let Some(last) = self.last_seq.filter(|last| seq > last + 1) {
                sink.gap(place, GapKind::MissingSequence { count: seq - last - 1 });
            }
            self.last_seq = Some(seq);
        }
        let Some(payload) = record.object("payload") else { return };
        let thread = payload.string("thread_id").or_else(|| record.string("thread_id"));
        let (Some(kind), Some(thread)) = (payload.str("type"), thread) else { return };
        let at = record
            .u64("wall_time_unix_ms")
            .and_then(|ms| DateTime::from_timestamp_millis(i64::try_from(ms).ok()?));
        let mut say = Say::new(place, &thread, at, sink);
        say.turn = payload.string("codex_turn_id").or_else(|| record.string("codex_turn_id"));
        self.record(&kind, &payload, &thread, at, &mut say);
    }
}

impl Trace {
    fn record(
        &mut self,
        kind: &str,
        payload: &Object<'_>,
        thread: &str,
        at: Option<DateTime<Utc>>,
        say: &mut Say<'_>,
    ) {
        match kind {
            "thread_started" => {
                let because = "the trace has each stream, not the requests inside it";
                say.mark(&Mark::Shows {
                    source: Source::Foreground,
                    requests: Shown::All,
                    attempts: Shown::All,
                    because,
                });
                say.mark(&Mark::Shows {
                    source: Source::Background,
                    requests: Shown::None,
                    attempts: Shown::None,
                    because,
                });
            }
            "codex_turn_started" => say.mark(&Mark::TurnStarted { turn: say.turn.clone() }),
            "codex_turn_ended" => self.end(payload, thread, say),
            "inference_started" => self.started(payload, thread, at, say),
            "inference_completed" => {
                say.anchor(payload.str("response_id"));
                let state = self.thread(thread);
                if let Some(id) = state.open.take() {
                    say.event(ModelResponse::new().request_id(id));
                }
                state.failed = None;
            }
            "inference_failed" => {
                let state = self.thread(thread);
                let Some(id) = state.open.clone() else { return };
                let told = Told::of(&payload.string("error").unwrap_or_default());
                let mut attempt = ModelAttempt::new().request_id(id).outcome(AttemptOutcome::Failed);
                attempt.attempt_id = payload.string("inference_call_id").or_else(|| state.attempt.clone());
                attempt.ended_at = at;
                attempt.status = told.status;
                attempt.code.clone_from(&told.code);
                attempt.message = Some(told.message.clone()).filter(|m| !m.is_empty());
                attempt.upstream_request_id =
                    payload.string("upstream_request_id").or_else(|| told.request_id.clone());
                state.failed = Some(told);
                say.event(attempt);
            }
            _ => {}
        }
    }

    fn started(&mut self, payload: &Object<'_>, thread: &str, at: Option<DateTime<Utc>>, say: &mut Say<'_>) {
        let candidate = Candidate {
            provider: payload.string("provider_name"),
            model: payload.string("model"),
            ..Candidate::default()
        };
        let next = self.requests + 1;
        let state = self.thread(thread);
        state.candidate = candidate.clone();
        let opened = state.open.is_none();
        let id = state.open.get_or_insert_with(|| format!("#{next}")).clone();
        if opened {
            state.attempt = None;
            state.failed = None;
            say.mark(&Mark::Facts(Facts { provider: candidate.provider.clone(), ..Facts::default() }));
            let request =
                ModelRequest::new().request_id(id.clone()).source(Source::Foreground).purpose("main");
            say.event(request.candidate(candidate.clone()));
        }
        let call =
            payload.string("inference_call_id").unwrap_or_else(|| format!("line {}", say.place_number()));
        if let Some(before) = state.attempt.replace(call.clone()) {
            let repeated = ModelAttempt::new().request_id(id.clone()).attempt_id(before).layer(Layer::Stream);
            say.event(repeated.outcome(AttemptOutcome::Failed));
        }
        let mut attempt = ModelAttempt::new().request_id(id).attempt_id(call).candidate(candidate);
        attempt.started_at = at;
        say.event(attempt);
        if opened {
            self.requests = next;
        }
    }

    fn end(&mut self, payload: &Object<'_>, thread: &str, say: &mut Say<'_>) {
        let state = self.thread(thread);
        let open = state.open.take();
        let failed = state.failed.take();
        let outcome = match payload.str("status").as_deref() {
            Some("completed") if failed.is_none() => TurnOutcome::Succeeded,
            Some("completed" | "failed") => TurnOutcome::Failed,
            Some("interrupted" | "aborted" | "cancelled") => TurnOutcome::Cancelled,
            _ => TurnOutcome::Unknown,
        };
        if let (Some(id), Some(told), TurnOutcome::Failed) = (open, &failed, outcome) {
            let mut body = ModelFailed::new().request_id(id);
            told.fill_failed(&mut body);
            say.event(body);
        }
        let message = failed.map(|told| told.message).filter(|_| outcome == TurnOutcome::Failed);
        let turn = say.turn.clone();
        say.mark(&Mark::TurnEnded { turn, outcome, reason: None, message });
    }

    fn thread(&mut self, id: &str) -> &mut Thread {
        let index = self.threads.iter().position(|(known, _)| known == id).unwrap_or_else(|| {
            if self.threads.len() >= THREAD_LIMIT {
                self.threads.clear();
            }
            self.threads.push((id.to_owned(), Thread::default()));
            self.threads.len() - 1
        });
        &mut self.threads[index].1
    }
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(payloads: &[&str]) -> Collected {
        let mut sink = Collected::default();
        let mut decoder = Trace::default();
        for payload in payloads {
            let line = format!(
                "{{\"schema_version\":3,\"rollout_id\":\"T\",\"thread_id\":\"T\",\"codex_turn_id\":\"u\",\"payload\":{payload}}}"
            );
            assert!(recognize(line.as_bytes()));
            decoder.line(Place::Whole, line.as_bytes(), &mut sink);
        }
        sink
    }

    #[test]
    fn a_failed_stream_is_repeated_in_the_same_request() {
        let read = read(&[
            r#"{"type":"inference_started","inference_call_id":"1"}"#,
            r#"{"type":"inference_failed","inference_call_id":"1","error":"x"}"#,
            r#"{"type":"inference_started","inference_call_id":"2"}"#,
            r#"{"type":"inference_completed","inference_call_id":"2"}"#,
            r#"{"type":"inference_started","inference_call_id":"3"}"#,
        ]);
        let count = |pick: fn(&Body) -> bool| {
            read.items
                .iter()
                .filter(|(_, item)| matches!(item, Statement::Event(event, _) if pick(&event.body)))
                .count()
        };
        assert_eq!(count(|b| matches!(b, Body::ModelRequest(_))), 2);
        assert_eq!(count(|b| matches!(b, Body::ModelAttempt(_))), 5);
    }

    #[test]
    fn other_files_are_not_traces() {
        assert!(!recognize(br#"{"schema_version":3,"payload":{"type":"x"}}"#));
        assert!(!recognize(b"\xff"));
        let mut sink = Collected::default();
        for line in [&b"{}"[..], b"{\"payload\":{\"type\":\"inference_failed\",\"thread_id\":\"T\"}}", b"x"] {
            Trace::default().line(Place::Whole, line, &mut sink);
        }
        assert_eq!(sink.gaps.len(), 1);
    }
}
