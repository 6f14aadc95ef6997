//! Text logs: standard error with `RUST_LOG`, and `log/codex-tui.log` of older versions.
//!
//! `<time> LEVEL [span{…}:span{…}: ]target: message`. With the telemetry target switched on it shows each request and each
//! wait; else it shows warnings of the stream loop. The thread is known from the telemetry or from the spans; lines that
//! come before it are of no thread.

use chrono::{DateTime, Utc};
use retryscope_record::{Place, Sink};

use super::fields::{RetryLine, named};
use super::say::Say;
use super::signals::{Channel, Signal, Signals};
use crate::LineDecoder;
use crate::otlp::Attributes;

/// Target of the telemetry that is free of prompts.
const TELEMETRY: &str = "codex_otel.trace_safe: ";

pub(super) fn recognize(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    text.lines().take(200).any(|line| Line::of(line).is_some_and(|line| line.is_ours()))
}

struct Line<'a> {
    at: DateTime<Utc>,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (time, rest) = line.split_once(' ')?;
        let at = DateTime::parse_from_rfc3339(time).ok()?.with_timezone(&Utc);
        let rest = rest.trim_start();
        let (level, rest) = rest.split_once(' ')?;
        matches!(level, "TRACE" | "DEBUG" | "INFO" | "WARN" | "ERROR").then_some(Self { at, rest })
    }

    /// Returns whether a target of the program stands before the message.
    fn is_ours(&self) -> bool {
        let targets = [
            "codex_core",
            "codex_otel",
            "codex_api",
            "codex_exec",
            "codex_tui",
            "codex_client",
            "codex_http_client",
        ];
        let begins =
            |target: &str| self.rest.starts_with(target) || self.rest.contains(&format!(": {target}"));
        targets.into_iter().any(begins)
    }
}

#[derive(Default)]
pub(super) struct TextLog {
    signals: Signals,
    thread: Option<String>,
}

impl LineDecoder for TextLog {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let text = String::from_utf8_lossy(line);
        let plain = without_colours(&text);
        let Some(line) = Line::of(&plain).filter(Line::is_ours) else { return };
        if let Some((_, message)) = line.rest.split_once(TELEMETRY) {
            let attributes = attributes_of(message);
            if let Some(thread) = attributes.string("conversation.id") {
                self.thread = Some(thread);
            }
            let Some(thread) = self.thread.as_deref() else { return };
            let (at, attributes) = (Some(line.at), &attributes);
            let signal = Signal { channel: Channel::Text, place, thread, turn: None, at, attributes };
            self.signals.take(&signal, sink);
            return;
        }
        if let Some(thread) =
            ["thread_id", "conversation.id", "conversation_id"].iter().find_map(|key| named(line.rest, key))
        {
            self.thread = Some(thread.to_owned());
        }
        let Some(thread) = self.thread.as_deref() else { return };
        if let Some(retry) = RetryLine::of(line.rest) {
            Say::new(place, thread, None, sink).anchor(retry.turn);
            self.signals.retry(place, thread, Some(line.at), retry.retry(), sink);
        }
    }
}

/// Takes away what colours a terminal.
fn without_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    out
}

/// `key=value key="value"`; a bare value may hold spaces and ends where the next key begins.
fn attributes_of(message: &str) -> Attributes {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut rest = message.trim();
    while let Some((key, value)) = rest.split_once('=') {
        if !is_key(key) {
            break;
        }
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => value.split_at(end_of_bare(value)),
        };
        pairs.push((key.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    Attributes::from_pairs(pairs)
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
}

fn end_of_bare(value: &str) -> usize {
    value
        .match_indices(' ')
        .map(|(at, _)| at)
        .find(|at| {
            value.get(at + 1..).and_then(|rest| rest.split_once('=')).is_some_and(|(key, _)| is_key(key))
        })
        .unwrap_or(value.len())
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(text: &str) -> Vec<Body> {
        let mut sink = Collected::default();
        let mut decoder = TextLog::default();
        for line in text.lines() {
            decoder.line(Place::Whole, line.as_bytes(), &mut sink);
        }
        sink.items
            .into_iter()
            .filter_map(|(_, item)| if let Statement::Event(e, _) = item { Some(e.body) } else { None })
            .collect()
    }

    #[test]
    fn bare_values_may_hold_spaces() {
        let attributes =
            attributes_of(r#"event.name="codex.x" error.message=cut too early: why a=1 b="2 3""#);
        assert_eq!(attributes.get("error.message"), Some("cut too early: why"));
        assert_eq!(attributes.get("b"), Some("2 3"));
    }

    #[test]
    fn warnings_alone_show_streams() {
        let line = "2026-01-01T00:00:00Z  WARN session_loop{thread_id=T}: codex_core::client: stream disconnected - retrying turn (1/5 in 200ms)...";
        assert!(recognize(line.as_bytes()));
        let bodies = read(line);
        assert!(matches!(bodies.last(), Some(Body::ModelRetry(retry)) if retry.delay_ms == Some(200)));
    }

    #[test]
    fn without_a_thread_nothing_is_said() {
        assert!(read("2026-01-01T00:00:00Z  WARN codex_core::x: stream disconnected - retrying turn (1/5 in 200ms)...").is_empty());
        assert!(!recognize(
            b"2026-01-01T00:00:00Z WARN other: stream disconnected - retrying turn (1/5 in 200ms)..."
        ));
        assert!(read("\u{1b}[2m\n2026-01-01T00:00:00Z TRACE codex_otel.trace_safe: =\n\u{0}").is_empty());
    }
}
