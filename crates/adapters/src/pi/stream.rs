//! JSON and RPC streams: standard output of `--mode json` and `--mode rpc`, kept by a person.
//!
//! The same messages as in the session file, and the announced retries with their waits; no times but those inside the
//! messages. A JSON stream names its session first. An RPC stream names it only when somebody asked for the state; until
//! then what it says is kept, within a limit. A stream that never names its session is left out.

use retryscope_events::{DelaySource, ModelRetry};
use retryscope_record::{Facts, GapKind, Item, Mark, Place, RunKey, Sink, Statement};

use super::Profile;
use super::answer::{Answer, stands_in};
use super::conversation::Conversation;
use crate::LineDecoder;
use crate::json::{Object, holds};
use crate::say::Say;

/// Statements that are kept until the session is named.
const KEPT_LIMIT: usize = 20_000;

/// Types that only streams have.
const STREAM_TYPES: &[&str] = &[
    "agent_start",
    "agent_end",
    "agent_settled",
    "turn_start",
    "turn_end",
    "message_start",
    "message_update",
    "message_end",
    "auto_retry_start",
    "auto_retry_end",
    "advisor_cost_changed",
    "extension_ui_request",
    "available_commands_update",
];

/// Returns whether a record is one of a stream.
pub(super) fn is_event(record: &Object<'_>) -> bool {
    record.str("type").is_some_and(|kind| STREAM_TYPES.contains(&kind.as_ref()))
}

/// Returns whether a record is of these programs and no other, where a stream begins without the session.
pub(super) fn is_surely_ours(record: &Object<'_>) -> bool {
    record.is("type", "response") && record.raw("command").is_some()
        || record.is("type", "ready") && record.raw("protocolVersion").is_some()
        || record.is("type", "auto_retry_start")
        || record.is("type", "message_end")
            && record.object("message").is_some_and(|m| m.raw("role").is_some())
}

pub(super) struct Stream {
    profile: Profile,
    run: Option<RunKey>,
    kept: Vec<(Place, Statement)>,
    conversation: Conversation,
}

impl Stream {
    pub(super) fn new(profile: Profile) -> Self {
        Self { profile, run: None, kept: Vec::new(), conversation: Conversation::new(profile) }
    }

    fn name(&mut self, id: &str, sink: &mut dyn Sink) {
        let run = RunKey::new(self.profile.agent(), id);
        for (place, mut statement) in self.kept.drain(..) {
            match &mut statement {
                Statement::Event(event, _) => id.clone_into(&mut event.run_id),
                Statement::Mark { run: of, .. } => of.clone_from(&run),
            }
            sink.item(place, statement.item());
        }
        self.run = Some(run);
    }

    fn record(&mut self, kind: &str, record: &Object<'_>, say: &mut Say<'_>) {
        match kind {
            "message_end" => {
                let Some(message) = record.object("message") else { return };
                match message.str("role").as_deref() {
                    Some("system") => self.conversation.system(say),
                    Some("user") if message.bool("synthetic") == Some(true) => {
                        self.conversation.advance(message.time("timestamp"), say);
                    }
                    Some("user") => {
                        say.at = message.time("timestamp");
                        self.conversation.user(None, message.u64("timestamp"), say);
                    }
                    Some("toolResult") if stands_in(&message) => {}
                    Some("toolResult") => self.conversation.advance(message.time("timestamp"), say),
                    Some("assistant") => {
                        if let Some(answer) = Answer::parse(&message) {
                            say.at = answer.ended_at.or(answer.started_at);
                            self.conversation.answer(&answer, None, say);
                        }
                    }
                    _ => {}
                }
            }
            "auto_retry_start" => {
                let mut retry = ModelRetry::new();
                retry.attempt = record.u64("attempt");
                // The programs count retries, not attempts.
                retry.max_attempts = record.u64("maxAttempts").map(|n| n.saturating_add(1));
                retry.delay_ms = record.u64("delayMs");
                retry.delay_source = retry.delay_ms.filter(|ms| *ms > 0).map(|_| DelaySource::Backoff);
                self.conversation.retry_planned(retry, say);
            }
            "auto_retry_end" if record.bool("success") == Some(false) => {
                self.conversation.retries_over(record.str("finalError").as_deref(), say);
            }
            "entry_appended" => {
                let entry = record.object("entry").unwrap_or_default();
                if entry.is("type", "context_edit") {
                    self.conversation.dropped(say);
                } else if entry.is("type", "compaction") {
                    self.conversation.advance(entry.time("timestamp"), say);
                }
            }
            "auto_compaction_end" | "compaction_end" if has_compacted(record) => {
                self.conversation.advance(None, say);
            }
            "agent_settled" => {
                self.conversation.note_newer(say);
                if record.bool("aborted") == Some(true) {
                    self.conversation.cancel(Some("aborted".into()), say);
                } else {
                    self.conversation.settled(say);
                }
            }
            "agent_end" if self.profile == Profile::Omp => self.conversation.settled(say),
            // pi writes one for each attempt; newer versions say whether another one follows.
            "agent_end" => match record.bool("willRetry") {
                Some(true) => self.conversation.will_repeat(),
                Some(false) => self.conversation.settled(say),
                None => self.conversation.loop_over(),
            },
            _ => {}
        }
    }
}

/// Returns whether a compaction made the context shorter: one that found nothing to leave out says so.
fn has_compacted(end: &Object<'_>) -> bool {
    let is_set = |name| end.bool(name) == Some(true);
    !is_set("aborted") && !is_set("skipped") && end.string("errorMessage").is_none()
}

impl LineDecoder for Stream {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        // Most lines are pieces of the answer.
        if holds(&line[..line.len().min(40)], "\"message_update\"") {
            return;
        }
        let Some(record) = Object::parse(line) else {
            // Other programs' output may stand in the same file.
            if line.first() == Some(&b'{') {
                sink.gap(place, GapKind::InvalidJson);
            }
            return;
        };
        let Some(kind) = record.str("type") else { return };
        if kind == "session" {
            let Some(id) = record.str("id") else { return };
            if self.run.as_ref().is_some_and(|run| *run.id != *id) {
                // Another process in the same file.
                self.end(sink);
                self.conversation = Conversation::new(self.profile);
            }
            self.name(&id, sink);
            let run = RunKey::new(self.profile.agent(), &*id);
            let facts = Facts { directory: record.string("cwd"), ..Facts::default() };
            let mark = Mark::Facts(facts);
            sink.item(place, Item::Mark { run: &run, at: record.time("timestamp"), mark: &mark });
            return;
        }
        if kind == "response" {
            if self.run.is_none()
                && let Some(id) = record.object("data").and_then(|data| data.string("sessionId"))
            {
                self.name(&id, sink);
            }
            return;
        }
        match self.run.clone() {
            Some(run) => {
                self.record(&kind, &record, &mut Say { run, place, at: None, turn: None, step: None, sink });
            }
            None if self.kept.len() < KEPT_LIMIT => {
                let mut kept = Kept(std::mem::take(&mut self.kept));
                let run = RunKey::new(self.profile.agent(), "");
                self.record(
                    &kind,
                    &record,
                    &mut Say { run, place, at: None, turn: None, step: None, sink: &mut kept },
                );
                self.kept = kept.0;
            }
            None => sink.gap(place, GapKind::IncompleteRecord),
        }
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        if let Some(run) = self.run.clone() {
            self.conversation.end(&mut Say {
                run,
                place: Place::Whole,
                at: None,
                turn: None,
                step: None,
                sink,
            });
        } else if !self.kept.is_empty() {
            sink.gap(Place::Whole, GapKind::IncompleteRecord);
        }
    }
}

/// Takes statements whose run has no name yet.
struct Kept(Vec<(Place, Statement)>);

impl Sink for Kept {
    fn item(&mut self, place: Place, item: Item<'_>) {
        self.0.push((place, item.into()));
    }
    fn gap(&mut self, _: Place, _: GapKind) {}
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::Collected;

    use super::*;

    fn read(lines: &[&str]) -> Collected {
        let mut sink = Collected::default();
        let mut stream = Stream::new(Profile::Pi);
        for (n, line) in lines.iter().enumerate() {
            stream.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        stream.end(&mut sink);
        sink
    }

    const USER: &str = r#"{"type":"message_end","message":{"role":"user","timestamp":1767312001000}}"#;
    const FAILED: &str = r#"{"type":"message_end","message":{"role":"assistant","provider":"p","model":"m","stopReason":"error","timestamp":1767312001100,"errorMessage":"503 busy"}}"#;

    #[test]
    fn a_stream_that_names_its_session_late_says_the_same() {
        let state = r#"{"type":"response","command":"get_state","data":{"sessionId":"s-9"}}"#;
        let cancelled = r#"{"type":"auto_retry_end","success":false,"finalError":"Retry cancelled"}"#;
        let start = r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000}"#;
        let said = read(&[USER, FAILED, start, cancelled, state]);
        let of = |item: &Statement| match item {
            Statement::Event(event, _) => event.run_id.clone(),
            Statement::Mark { run, .. } => run.id.to_string(),
        };
        assert!(said.items.len() > 4 && said.items.iter().all(|(_, item)| of(item) == "s-9"));
    }

    #[test]
    fn only_a_compaction_that_made_the_context_shorter_makes_another_request() {
        let session = r#"{"type":"session","id":"s","timestamp":"2026-01-02T00:00:00.000Z"}"#;
        let requests = |between: &str| {
            let good = FAILED.replace("error", "stop").replace("1100", "9100");
            let said = read(&[session, USER, FAILED, between, &good]);
            let is_request = |item: &Statement| matches!(item, Statement::Event(event, _) if event.body.kind() == "model.request");
            said.items.iter().filter(|(_, item)| is_request(item)).count()
        };
        assert_eq!(requests(r#"{"type":"auto_compaction_end","aborted":false,"willRetry":true}"#), 2);
        assert_eq!(requests(r#"{"type":"entry_appended","entry":{"type":"compaction","id":"c"}}"#), 2);
        assert_eq!(requests(r#"{"type":"auto_compaction_end","skipped":true}"#), 1);
        assert_eq!(requests(r#"{"type":"compaction_end","aborted":true}"#), 1);
    }

    #[test]
    fn the_end_of_a_loop_that_announces_nothing_is_the_end() {
        let session = r#"{"type":"session","id":"s","timestamp":"2026-01-02T00:00:00.000Z"}"#;
        let ended = |more: &[&str]| {
            let said = read(&[&[session, USER, FAILED], more].concat());
            let outcome = |item: &Statement| match item {
                Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(*outcome),
                _ => None,
            };
            said.items.iter().filter_map(|(_, item)| outcome(item)).collect::<Vec<_>>()
        };
        let failed = [retryscope_record::TurnOutcome::Failed];
        assert_eq!(ended(&[r#"{"type":"agent_end","messages":[]}"#]), failed);
        assert_eq!(ended(&[r#"{"type":"agent_end","messages":[],"willRetry":false}"#]), failed);
        // Near misses: the process is gone before that, or something was to follow.
        assert!(ended(&[]).is_empty());
        assert!(ended(&[r#"{"type":"agent_end","messages":[],"willRetry":true}"#]).is_empty());
        let planned = r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000}"#;
        assert!(ended(&[r#"{"type":"agent_end","messages":[]}"#, planned]).is_empty());
    }

    #[test]
    fn an_empty_answer_that_is_asked_for_again_is_no_other_request() {
        let session = r#"{"type":"session","id":"s","timestamp":"2026-01-02T00:00:00.000Z"}"#;
        let answer = |ms: u64, content: &str| {
            format!(
                r#"{{"type":"message_end","message":{{"role":"assistant","provider":"p","model":"m","stopReason":"stop","content":{content},"timestamp":{ms}}}}}"#
            )
        };
        let requests = |lines: &[&str]| {
            let mut sink = Collected::default();
            let mut stream = Stream::new(Profile::Omp);
            for line in [&[session, USER], lines].concat() {
                stream.line(Place::Whole, line.as_bytes(), &mut sink);
            }
            let id = |item: &Statement| match item {
                Statement::Event(event, _) => match &event.body {
                    Body::ModelAttempt(attempt) => attempt.request_id.clone(),
                    _ => None,
                },
                Statement::Mark { .. } => None,
            };
            sink.items
                .iter()
                .filter_map(|(_, item)| id(item))
                .collect::<std::collections::BTreeSet<_>>()
                .len()
        };
        let (empty, full) =
            (answer(1_767_312_001_100, "[]"), answer(1_767_312_002_100, r#"[{"type":"text"}]"#));
        assert_eq!(requests(&[&empty, &full]), 1);
        let result = r#"{"type":"message_end","message":{"role":"toolResult","timestamp":1767312001500}}"#;
        assert_eq!(requests(&[&empty, result, &full]), 2);
        assert_eq!(requests(&[&answer(1_767_312_001_100, r#"[{"type":"text"}]"#), &full]), 2);
    }

    #[test]
    fn a_stream_without_a_session_is_a_gap() {
        let said = read(&[USER, FAILED]);
        assert!(said.items.is_empty());
        assert_eq!(said.gaps.len(), 1);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let said = read(&[
            "{",
            "\u{0}",
            "{\"type\":null}",
            "{\"type\":\"session\",\"id\":7}",
            "{\"type\":\"message_end\",\"message\":3}",
        ]);
        assert_eq!(said.gaps.len(), 1);
    }
}
