//! A kept event stream of `opencode serve` (`GET /event`): one JSON event a line, with or without `data: ` before it.
//!
//! The only place where opencode tells each retry with its number and the planned time of the next attempt. Events have
//! no times of their own but those in their ids.

use chrono::{DateTime, Utc};
use retryscope_events::{ModelRequest, ModelResponse, ModelRetry, Source};
use retryscope_record::{Facts, GapKind, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use super::AGENT;
use super::message::{Assistant, failure};
use super::track::MAY_BE_NATIVE;
use crate::LineDecoder;
use crate::json::{Object, holds};
use crate::say::Say;

/// Sessions that are followed at once.
const SESSION_LIMIT: usize = 256;

/// Returns the JSON of a line.
pub(super) fn payload(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"data:").map_or(line, |rest| rest.trim_ascii_start())
}

pub(super) fn is_event(record: &Object<'_>) -> bool {
    record.raw("properties").is_some()
        && record.str("type").is_some_and(|kind| {
            ["session.", "message.", "server.", "plugin.", "storage."]
                .iter()
                .any(|start| kind.starts_with(start))
        })
}

#[derive(Default)]
pub(super) struct Sse {
    /// Session id, its open message, and the turns known.
    sessions: Vec<(String, Followed)>,
}

#[derive(Default)]
struct Followed {
    message: Option<String>,
    turn: Option<String>,
    answered: bool,
    failed: bool,
    /// A retry of a message that is not known was told.
    begins_within: bool,
}

impl LineDecoder for Sse {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let line = payload(line);
        if holds(&line[..line.len().min(200)], "message.part.") || line.first() != Some(&b'{') {
            return;
        }
        let Some(record) = Object::parse(line) else {
            sink.gap(place, GapKind::InvalidJson);
            return;
        };
        // `/global/event` wraps each event.
        let wrapped = record.object("payload");
        let record = wrapped.as_ref().unwrap_or(&record);
        let Some(properties) = record.object("properties") else { return };
        let info = properties.object("info");
        let session = properties.string("sessionID").or_else(|| info.as_ref()?.string("sessionID"));
        let (Some(kind), Some(session)) = (record.str("type"), session) else { return };
        let mut say =
            Say { run: RunKey::new(AGENT, &*session), place, at: None, turn: None, step: None, sink };
        let followed = self.followed(&session, &mut say);
        match &*kind {
            "session.created" | "session.updated" => {
                let info = info.unwrap_or_default();
                say.mark(&Mark::Facts(Facts {
                    agent_version: info.string("version"),
                    parent_run_id: info.string("parentID"),
                    directory: info.string("directory"),
                    ..Facts::default()
                }));
            }
            "message.updated" => followed.message(&info.unwrap_or_default(), &mut say),
            "session.status" => {
                let status = properties.object("status").unwrap_or_default();
                followed.status(&status, record.str("id").as_deref(), &mut say);
            }
            "session.idle" => followed.idle(&mut say),
            "session.error" => {
                if let Some(error) = properties.object("error") {
                    followed.error(&error, &mut say);
                }
            }
            _ => {}
        }
    }
}

impl Sse {
    fn followed(&mut self, session: &str, say: &mut Say<'_>) -> &mut Followed {
        let index = self.sessions.iter().position(|(id, _)| id == session).unwrap_or_else(|| {
            if self.sessions.len() >= SESSION_LIMIT {
                self.sessions.remove(0);
            }
            let because = "the event stream has no event for the title request";
            say.mark(&Mark::Shows {
                source: Source::Background,
                requests: Shown::None,
                attempts: Shown::None,
                because,
            });
            self.sessions.push((session.to_owned(), Followed::default()));
            self.sessions.len() - 1
        });
        &mut self.sessions[index].1
    }
}

impl Followed {
    fn message(&mut self, info: &Object<'_>, say: &mut Say<'_>) {
        let Some(id) = info.string("id") else { return };
        match info.str("role").as_deref() {
            Some("user") if self.turn.as_ref() != Some(&id) && self.message.is_none() => {
                say.at = info.object("time").and_then(|time| time.time("created"));
                say.mark(&Mark::TurnStarted { turn: Some(id.clone()) });
                self.turn = Some(id);
            }
            Some("assistant") => self.assistant(&Assistant::parse(&id, info), say),
            _ => {}
        }
    }

    fn assistant(&mut self, message: &Assistant<'_>, say: &mut Say<'_>) {
        say.turn = self.turn.clone().or_else(|| message.turn.clone());
        if self.message.as_deref() != Some(message.id) {
            if message.finish.is_some() || message.error.is_some() {
                // An end that is told again, or whose beginning was missed.
                return;
            }
            self.answered = false;
            self.failed = false;
            self.message = Some(message.id.to_owned());
            say.at = message.created;
            let native = message
                .candidate
                .provider
                .as_deref()
                .is_some_and(|provider| MAY_BE_NATIVE.contains(&provider));
            let is_cut = std::mem::take(&mut self.begins_within);
            let requests = if is_cut { Shown::Some } else { Shown::All };
            let (attempts, because) = if is_cut {
                (Shown::Some, "the event stream begins within a request")
            } else if native {
                (
                    Shown::Some,
                    "the event stream shows each retry of the session loop; a native runtime would repeat below it",
                )
            } else {
                (Shown::All, "the event stream shows each retry of the session loop")
            };
            say.mark(&Mark::Shows { source: Source::Foreground, requests, attempts, because });
            let mut request = ModelRequest::new().request_id(message.id).source(Source::Foreground);
            request.candidate = Some(message.candidate.clone());
            request.purpose.clone_from(&message.purpose);
            say.event(request);
            return;
        }
        say.at = message.completed.or(message.created);
        if let Some(error) = &message.error {
            self.error(error, say);
        } else if message.finish.is_some() && !self.answered {
            self.answered = true;
            let mut response = ModelResponse::new().request_id(message.id);
            response.stop_reason.clone_from(&message.finish);
            response.usage.clone_from(&message.usage);
            say.event(response);
        }
    }

    fn status(&mut self, status: &Object<'_>, event: Option<&str>, say: &mut Say<'_>) {
        if !status.is("type", "retry") {
            return;
        }
        let Some(message) = self.message.clone() else {
            // The message comes with a later event; what was sent for it before is not told.
            self.begins_within = true;
            return;
        };
        say.turn.clone_from(&self.turn);
        let next = status.time("next");
        say.at = event.zip(next).and_then(|(id, next)| time_in_id(id, next));
        let mut retry = ModelRetry::new().request_id(message);
        retry.attempt = status.u64("attempt");
        retry.message = status.string("message");
        retry.delay_ms =
            say.at.zip(next).and_then(|(at, next)| u64::try_from((next - at).num_milliseconds()).ok());
        say.event(retry);
    }

    fn error(&mut self, error: &Object<'_>, say: &mut Say<'_>) {
        if self.failed {
            return;
        }
        say.turn.clone_from(&self.turn);
        self.failed = true;
        let reason = error.string("name");
        if error.is("name", "MessageAbortedError") {
            say.mark(&Mark::TurnEnded {
                turn: self.turn.clone(),
                outcome: TurnOutcome::Cancelled,
                reason,
                message: None,
            });
            return;
        }
        let (mut failed, raw) = failure(error);
        let message = failed.message.clone();
        failed.request_id.clone_from(&self.message);
        if self.message.is_some() {
            say.failure(failed, raw.as_ref());
        }
        say.mark(&Mark::TurnEnded { turn: self.turn.clone(), outcome: TurnOutcome::Failed, reason, message });
    }

    fn idle(&mut self, say: &mut Say<'_>) {
        if self.answered && !self.failed {
            let (turn, outcome) = (self.turn.clone(), TurnOutcome::Succeeded);
            say.mark(&Mark::TurnEnded { turn, outcome, reason: None, message: None });
        }
        self.message = None;
        self.turn = None;
        self.begins_within = false;
    }
}

/// Returns the time in an event's id: its first 9 hex digits are the lower 36 bits of the milliseconds, of which a time
/// nearby gives the rest.
fn time_in_id(id: &str, nearby: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let low = i64::from_str_radix(id.strip_prefix("evt_")?.get(..9)?, 16).ok()?;
    let nearby = nearby.timestamp_millis();
    let ms = (nearby >> 36 << 36) | low;
    // Further apart than any wait: not a time after all.
    ((nearby - ms).abs() < 1 << 32).then(|| DateTime::from_timestamp_millis(ms)).flatten()
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(lines: &[&str]) -> Vec<String> {
        let mut sink = Collected::default();
        let mut sse = Sse::default();
        for (n, line) in lines.iter().enumerate() {
            sse.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        let name = |item: Statement| match item {
            Statement::Event(event, _) => Some(event.body.kind().to_owned()),
            Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(|(_, item)| name(item)).collect()
    }

    const OPEN: &str = r#"{"type":"message.updated","properties":{"info":{"id":"msg_1","role":"assistant","sessionID":"ses_1","parentID":"msg_0"}}}"#;
    const RETRY: &str = r#"data: {"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"retry","attempt":1,"message":"busy","next":1795986043016}}}"#;
    const DONE: &str = r#"{"type":"message.updated","properties":{"info":{"id":"msg_1","role":"assistant","sessionID":"ses_1","finish":"stop"}}}"#;
    const IDLE: &str = r#"{"type":"session.idle","properties":{"sessionID":"ses_1"}}"#;

    #[test]
    fn a_retry_is_told_and_the_end_once() {
        assert_eq!(
            read(&[OPEN, RETRY, DONE, DONE, IDLE, DONE]),
            ["model.request", "model.retry", "model.response", "Succeeded"]
        );
    }

    #[test]
    fn an_events_id_holds_its_time() {
        let next = DateTime::from_timestamp_millis(1_800_000_002_345).unwrap();
        let at = time_in_id("evt_3185c5000001abcdefghijklmn", next).unwrap();
        assert_eq!((next - at).num_milliseconds(), 2345);
        assert_eq!(time_in_id("evt_000000000001", next), None);
        assert_eq!(time_in_id("evt_é", next), None);
    }

    #[test]
    fn a_stream_that_begins_late_says_nothing_of_what_it_missed() {
        assert!(read(&[RETRY, DONE]).is_empty());
    }

    #[test]
    fn a_stream_that_begins_within_a_request_does_not_show_all_of_it() {
        let shown = |lines: &[&str]| {
            let mut sink = Collected::default();
            let mut sse = Sse::default();
            for line in lines {
                sse.line(Place::Whole, line.as_bytes(), &mut sink);
            }
            let shown = |item: &Statement| match item {
                Statement::Mark {
                    mark: Mark::Shows { source: Source::Foreground, requests, attempts, .. },
                    ..
                } => Some((*requests, *attempts)),
                _ => None,
            };
            sink.items.iter().filter_map(|(_, item)| shown(item)).next_back()
        };
        assert_eq!(shown(&[RETRY, OPEN, DONE]), Some((Shown::Some, Shown::Some)));
        assert_eq!(shown(&[RETRY, IDLE, OPEN, DONE]), Some((Shown::All, Shown::All)));
        assert_eq!(shown(&[OPEN, RETRY, DONE]), Some((Shown::All, Shown::All)));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        assert!(
            read(&[
                "",
                "data:",
                "{",
                "{\"type\":1,\"properties\":{}}",
                "{\"type\":\"session.idle\",\"properties\":[]}"
            ])
            .is_empty()
        );
    }
}
