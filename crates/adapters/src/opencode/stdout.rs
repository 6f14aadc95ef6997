//! Standard output of `opencode run --format json`, kept by a person.
//!
//! Shows the parts of the answers and the final error; no retry, and a request whose attempts all failed only as an error
//! that names no message.

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptOutcome, ModelAttempt, ModelRequest, ModelResponse, Source};
use retryscope_record::{GapKind, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use super::AGENT;
use super::message::{failure, usage_of};
use crate::LineDecoder;
use crate::json::Object;
use crate::say::Say;

pub(super) fn is_event(record: &Object<'_>) -> bool {
    let Some(session) = record.str("sessionID") else { return false };
    if !session.starts_with("ses_") {
        return false;
    }
    match record.str("type").as_deref() {
        Some("step_start" | "step_finish" | "text" | "tool_use" | "reasoning") => {
            record.raw("part").is_some()
        }
        Some("error") => record.raw("error").is_some(),
        _ => false,
    }
}

#[derive(Default)]
pub(super) struct Stdout {
    session: Option<String>,
    /// The message whose parts are coming, with the steps begun and whether one is open.
    open: Option<Open>,
    errors: u64,
    turns: u64,
    /// When the output begins: it tells the turns of one file from those of another.
    began_at: i64,
    over: Over,
}

/// What came last, if it may have ended the prompt.
#[derive(Default, PartialEq, Eq)]
enum Over {
    #[default]
    No,
    Answered,
    /// The provider stopped the answer of this message: an error that names no status tells it once more.
    Stopped(String),
    /// A compaction may follow, which belongs to the same prompt; an answer may belong to the next one.
    Failed,
}

struct Open {
    message: String,
    started: u64,
    in_flight: bool,
}

impl LineDecoder for Stdout {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let Some(record) = Object::parse(line) else {
            // Other programs' output may stand in the same file.
            if line.first() == Some(&b'{') {
                sink.gap(place, GapKind::InvalidJson);
            }
            return;
        };
        if !is_event(&record) {
            return;
        }
        let Some(session) = record.string("sessionID") else { return };
        let at: Option<DateTime<Utc>> = record.time("timestamp");
        let mut say = Say { run: RunKey::new(AGENT, &*session), place, at, turn: None, step: None, sink };
        if self.session.as_ref() != Some(&session) {
            let began_at = at.map_or(0, |at| at.timestamp_millis());
            *self = Self { session: Some(session), began_at, ..Self::default() };
            let because = "standard output shows no retry";
            say.mark(&Mark::Shows {
                source: Source::Foreground,
                requests: Shown::Some,
                attempts: Shown::None,
                because,
            });
            say.mark(&Mark::Shows {
                source: Source::Background,
                requests: Shown::None,
                attempts: Shown::None,
                because,
            });
            self.begin_turn(&mut say);
        }
        say.turn = Some(self.turn());
        match record.str("type").as_deref() {
            Some("step_start") => self.started(&record, &mut say),
            Some("step_finish") => self.finished(&record, &mut say),
            Some("error") => self.failed(&record, &mut say),
            _ => {}
        }
    }
}

impl Stdout {
    /// Only this output knows its turns by such names.
    fn turn(&self) -> String {
        format!("#out{}.{}", self.began_at, self.turns)
    }

    fn begin_turn(&mut self, say: &mut Say<'_>) {
        self.turns += 1;
        self.over = Over::No;
        say.turn = Some(self.turn());
        say.mark(&Mark::TurnStarted { turn: Some(self.turn()) });
    }

    fn started(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let Some(message) = record.object("part").and_then(|part| part.string("messageID")) else { return };
        if self.open.as_ref().is_none_or(|open| open.message != message) {
            if self.over != Over::No {
                self.begin_turn(say);
            }
            say.event(ModelRequest::new().request_id(message.clone()).source(Source::Foreground));
            self.open = Some(Open { message, started: 0, in_flight: false });
        }
        let Some(open) = &mut self.open else { return };
        // A second step of the same message: the one before broke.
        open.started += 1;
        open.in_flight = true;
        let attempt =
            ModelAttempt::new().request_id(open.message.clone()).attempt_id(open.id()).output_started(true);
        say.event(attempt);
    }

    fn finished(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let part = record.object("part").unwrap_or_default();
        let Some(open) = self.open.as_mut().filter(|open| part.is("messageID", &open.message)) else {
            return;
        };
        open.in_flight = false;
        let mut response = ModelResponse::new().request_id(open.message.clone());
        response.stop_reason = part.string("reason");
        response.usage = part.object("tokens").map(|tokens| usage_of(&tokens, &part));
        let reason = response.stop_reason.clone();
        say.event(response);
        if reason.as_deref() == Some("content-filter") {
            self.over = Over::Stopped(open.message.clone());
            return;
        }
        if reason.as_deref().is_some_and(|reason| !matches!(reason, "tool-calls" | "unknown")) {
            self.over = Over::Answered;
            say.mark(&Mark::TurnEnded {
                turn: Some(self.turn()),
                outcome: TurnOutcome::Succeeded,
                reason,
                message: None,
            });
        }
    }

    fn failed(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let Some(error) = record.object("error") else { return };
        let reason = error.string("name");
        if error.is("name", "MessageAbortedError") {
            let (turn, outcome) = (Some(self.turn()), TurnOutcome::Cancelled);
            say.mark(&Mark::TurnEnded { turn, outcome, reason, message: None });
            return;
        }
        let (failed, raw) = failure(&error);
        let message = failed.message.clone();
        let stopped = match &self.over {
            Over::Stopped(message) if failed.status.is_none() => Some(message.clone()),
            _ => None,
        };
        let request = if let Some(open) = self.open.as_ref().filter(|open| open.in_flight) {
            open.message.clone()
        } else if let Some(message) = stopped {
            message
        } else {
            if matches!(self.over, Over::Answered | Over::Stopped(_)) {
                self.begin_turn(say);
            }
            self.errors += 1;
            let id = format!("#{}", self.errors);
            say.event(ModelRequest::new().request_id(id.clone()).source(Source::Foreground));
            say.event(
                ModelAttempt::new()
                    .request_id(id.clone())
                    .attempt_id(format!("{id}.1"))
                    .outcome(AttemptOutcome::Failed),
            );
            id
        };
        self.open = None;
        say.failure(failed.request_id(request), raw.as_ref());
        say.mark(&Mark::TurnEnded { turn: Some(self.turn()), outcome: TurnOutcome::Failed, reason, message });
        self.over = Over::Failed;
    }
}

impl Open {
    fn id(&self) -> String {
        format!("{}.{}", self.message, self.started)
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(lines: &[&str]) -> Vec<String> {
        let mut sink = Collected::default();
        let mut stdout = Stdout::default();
        for (n, line) in lines.iter().enumerate() {
            stdout.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        let name = |item: Statement| match item {
            Statement::Event(event, _) => Some(event.body.kind().to_owned()),
            Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(|(_, item)| name(item)).collect()
    }

    const START: &str = r#"{"type":"step_start","timestamp":1795985007900,"sessionID":"ses_1","part":{"messageID":"msg_1","type":"step-start"}}"#;
    const FINISH: &str = r#"{"type":"step_finish","timestamp":1795985008103,"sessionID":"ses_1","part":{"messageID":"msg_1","reason":"stop"}}"#;
    const ERROR: &str = r#"{"type":"error","timestamp":1795985008103,"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"m","statusCode":503}}}"#;

    #[test]
    fn two_starts_of_one_message_are_two_attempts() {
        assert_eq!(
            read(&[START, START, FINISH]),
            ["model.request", "model.attempt", "model.attempt", "model.response", "Succeeded"]
        );
    }

    #[test]
    fn an_error_ends_the_open_message_or_stands_alone() {
        assert_eq!(read(&[START, ERROR]), ["model.request", "model.attempt", "model.failed", "Failed"]);
        assert_eq!(read(&[ERROR]), ["model.request", "model.attempt", "model.failed", "Failed"]);
    }

    #[test]
    fn an_answer_that_the_provider_stopped_is_no_success_and_its_error_no_other_request() {
        let stopped = FINISH.replace(r#""reason":"stop""#, r#""reason":"content-filter""#);
        let told = r#"{"type":"error","timestamp":1795985008104,"sessionID":"ses_1","error":{"name":"ContentFilterError","data":{"message":"m"}}}"#;
        assert_eq!(
            read(&[START, &stopped, told]),
            ["model.request", "model.attempt", "model.response", "model.failed", "Failed"]
        );
        // Near miss: what was refused with a status was asked for.
        let kinds = read(&[START, &stopped, ERROR]);
        assert_eq!(kinds.iter().filter(|kind| *kind == "model.request").count(), 2);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        assert!(
            read(&["", "{", "{\"type\":\"step_start\",\"sessionID\":\"ses_1\",\"part\":4}", "text"])
                .is_empty()
        );
    }
}
