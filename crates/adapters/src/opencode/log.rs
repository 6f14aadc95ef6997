//! The program log since 1.17, `log/opencode.log`: logfmt, one file for every process.
//!
//! One `stream` line for each attempt of the session loop. Which request it serves stands in the `process` line before it.
//! The writer loses its last second, so that a request is complete only when a later line proves it. Transport errors have
//! no line of their own.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use retryscope_record::{Facts, Place, RunKey, Sink};

use super::AGENT;
use super::message::candidate_of;
use super::track::{Failed, Sent, Track};
use crate::LineDecoder;
use crate::json::holds;
use crate::say::Say;

/// Longest line that is looked at.
const LINE_LIMIT: usize = 1 << 20;

pub(super) fn recognize(head: &[u8]) -> bool {
    let mut lines = head.split(|b| *b == b'\n').take(20);
    lines.any(|line| {
        line.starts_with(b"timestamp=")
            && holds(line, " level=")
            && holds(line, " run=")
            && holds(line, " message=")
    })
}

/// Fields of a line or record, in order.
pub(super) struct Fields<'a>(pub(super) Vec<(&'a str, Cow<'a, str>)>);

impl<'a> Fields<'a> {
    /// A value is bare unless it holds a space, a quote, `=` or a backslash; then it is a JSON string.
    pub(super) fn parse(line: &'a str) -> Self {
        let mut fields = Vec::with_capacity(12);
        let mut rest = line;
        while let Some((key, after)) = rest.trim_start().split_once('=') {
            let end = if after.starts_with('"') {
                end_of_string(after)
            } else {
                after.find(' ').unwrap_or(after.len())
            };
            let Some((raw, following)) = after.split_at_checked(end) else { break };
            let value = crate::json::text(raw).unwrap_or(Cow::Borrowed(raw));
            fields.push((key, value));
            rest = following;
        }
        Self(fields)
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| &**value)
            .filter(|value| *value != "undefined")
    }

    fn string(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }
}

/// Returns where a JSON string that starts the text ends.
pub(super) fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Messages that bear on requests.
const MATTERS: &[&str] = &[
    "message=stream ",
    "message=process ",
    "message=loop ",
    "message=created ",
    "message=\"stream error\"",
    "message=\"exiting loop\"",
    "message=\"llm runtime selected\"",
    "message=\"disposing instance\"",
];

/// Returns whether a message is one that bears on requests, as the body of an exported record has it. No other body of a
/// record is read.
pub fn is_message(body: &str) -> bool {
    let texts = MATTERS.iter().filter_map(|matters| matters.strip_prefix("message="));
    texts.map(|text| text.trim_matches(['"', ' '])).any(|text| text == body)
}

#[derive(Default)]
pub(super) struct Log {
    track: Track,
}

impl LineDecoder for Log {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let (process, at) = beginning(line);
        self.hear(process, at);
        if line.len() > LINE_LIMIT || !MATTERS.iter().any(|text| holds(line, text)) {
            return;
        }
        let Ok(line) = std::str::from_utf8(line) else { return };
        self.record(place, process, at, &Fields::parse(line), sink);
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        self.track.end(sink);
    }
}

impl Log {
    /// Takes note that a process was still writing at this time.
    pub(super) fn hear(&mut self, process: &str, at: Option<DateTime<Utc>>) {
        self.track.hear(process, at);
    }

    /// Takes the fields of one line, wherever they were written to.
    pub(super) fn record(
        &mut self,
        place: Place,
        process: &str,
        at: Option<DateTime<Utc>>,
        fields: &Fields<'_>,
        sink: &mut dyn Sink,
    ) {
        let session = fields.get("session.id").or_else(|| fields.get("id")).unwrap_or_default();
        let mut say = Say { run: RunKey::new(AGENT, session), place, at, turn: None, step: None, sink };
        let track = &mut self.track;
        let is_error = fields.get("level") == Some("ERROR");
        match fields.get("message") {
            Some("llm runtime selected") => {
                let native = fields.get("llm.runtime") == Some("native");
                let provider = fields.get("llm.provider").unwrap_or_default();
                let model = fields.get("llm.model").unwrap_or_default();
                track.runtime(process, provider, model, native, &mut say);
            }
            Some("disposing instance") => track.process_over(process, &mut say),
            _ if !session.starts_with("ses_") => {}
            Some("created") => {
                let facts = Facts {
                    agent_version: fields.string("version"),
                    parent_run_id: fields.string("parentID"),
                    directory: fields.string("directory"),
                    ..Facts::default()
                };
                track.created(session, process, facts, &mut say);
            }
            Some("loop") => track.step(session, process, number(fields.get("step")), &mut say),
            Some("exiting loop") => track.exit(session, process, &mut say),
            Some("process") if is_error => {
                let failed = Failed { message: fields.string("error"), ..Failed::default() };
                track.gave_up(session, process, &failed, &mut say);
            }
            Some("process") => {
                if let Some(id) = fields.get("messageID") {
                    track.begin(session, process, Some(id), &mut say);
                }
            }
            Some("stream") => {
                let sent = Sent {
                    candidate: candidate_of(fields.get("providerID"), fields.get("modelID")),
                    agent: fields.get("agent"),
                    small: fields.get("small") == Some("true"),
                    names_runtime: true,
                };
                track.stream(session, process, &sent, &mut say);
            }
            Some("stream error") => {
                let failed = Failed {
                    message: fields
                        .get("error.error.message")
                        .or_else(|| fields.get("error.error"))
                        .map(without_name),
                    code: fields
                        .string("error.error.code")
                        .or_else(|| fields.string("error.error.type"))
                        .filter(|code| code != "null"),
                    ..Failed::default()
                };
                let small = fields.get("small") == Some("true");
                track.error(session, process, small, &failed, &mut say);
            }
            _ => {}
        }
    }
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Returns process and time, which stand first in every line.
fn beginning(line: &[u8]) -> (&str, Option<DateTime<Utc>>) {
    let head = &line[..line.len().min(100)];
    let mut words = head.split(|b| *b == b' ').filter_map(|word| std::str::from_utf8(word).ok());
    let at =
        words.next().and_then(|word| DateTime::parse_from_rfc3339(word.strip_prefix("timestamp=")?).ok());
    let process = words.find_map(|word| word.strip_prefix("run=")).unwrap_or_default();
    (process, at.map(|at| at.with_timezone(&Utc)))
}

/// Takes the class name of the program's library away from an error text.
fn without_name(text: &str) -> String {
    match text.split_once(": ") {
        Some((name, rest)) if name.starts_with("AI_") => rest.to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use retryscope_record::{Collected, Mark, Statement};

    use super::*;

    pub(in crate::opencode) fn names(sink: &Collected) -> Vec<String> {
        let name = |item: &Statement| match item {
            Statement::Event(event, _) => Some(event.body.kind().to_owned()),
            Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
            Statement::Mark { .. } => None,
        };
        sink.items.iter().filter_map(|(_, item)| name(item)).collect()
    }

    pub(in crate::opencode) fn read(lines: &[&str]) -> Collected {
        let mut sink = Collected::default();
        let mut log = Log::default();
        for (n, line) in lines.iter().enumerate() {
            let line = format!("timestamp=2026-01-02T03:04:0{n}.000Z level=INFO run=00aa11bb {line}");
            log.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        sink
    }

    const PROCESS: &str = "message=process session.id=ses_1 messageID=msg_1";
    const STREAM: &str =
        "message=stream providerID=p modelID=m session.id=ses_1 small=false agent=build mode=primary";

    #[test]
    fn each_stream_line_is_an_attempt_and_the_next_step_proves_the_answer() {
        let said = read(&[
            "message=loop session.id=ses_1 step=0",
            PROCESS,
            STREAM,
            STREAM,
            "message=loop session.id=ses_1 step=1",
        ]);
        let names: Vec<_> = names(&said).into_iter().filter(|name| name != "model.request").collect();
        assert_eq!(names, ["model.attempt", "model.attempt", "model.response"]);
        let answered = |said: &Collected| super::tests::names(said).contains(&"model.response".to_owned());
        assert!(!answered(&read(&[PROCESS, STREAM])));
        // A loop that begins anew proves nothing of the one before: it may have been stopped within its answer.
        let anew = "message=loop session.id=ses_1 step=0";
        let left = read(&[anew, PROCESS, STREAM, anew]);
        let is_left = |item: &Statement| matches!(item, Statement::Mark { mark: Mark::LeftOpen { .. }, .. });
        assert!(!answered(&left) && left.items.iter().any(|(_, item)| is_left(item)));
    }

    #[test]
    fn values_may_be_json_strings() {
        let fields = Fields::parse(r#"a=1 b="x = \"y\" z" c= d="open"#);
        assert_eq!(
            (fields.get("a"), fields.get("b"), fields.get("c")),
            (Some("1"), Some("x = \"y\" z"), Some(""))
        );
        assert_eq!(without_name("AI_APICallError: it: broke"), "it: broke");
        assert_eq!(without_name("Error: it broke"), "Error: it broke");
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut sink = Collected::default();
        let mut log = Log::default();
        for line in [
            &b"message=stream \xff"[..],
            b"message=stream ",
            b"message=\"stream error\"",
            b"=",
            b"message=loop \xE9=\"\\",
        ] {
            log.line(Place::Line(1), line, &mut sink);
        }
        assert!(sink.items.is_empty());
    }
}
