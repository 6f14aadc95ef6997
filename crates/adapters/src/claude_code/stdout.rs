//! Kept standard output: `--output-format stream-json` (one object a line) or `json` (one object).
//!
//! Shows retries after HTTP and connection errors as `api_retry` since 2.1.77, and the end as `result`. Silent repeats and
//! anything below a subagent's `subagent_retry` are not in it. Its `result` text is model output and never copied, unless it is an
//! error.

mod result;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use retryscope_events::{
    Body, Candidate, Event, FallbackKind, Layer, ModelFailed, ModelFallback, ModelRequest, ModelResponse,
    ModelRetry, Source,
};
use serde_json::Value;

use retryscope_record::{
    Anchor, Facts, GapKind, Item, Mark, Place, RawFailure, RunKey, Shown, Sink, TurnOutcome,
};

use super::transcript::{is_interrupt, is_of_the_program, status_in, usage_of};
use super::{AGENT, is_at_least, model_of, subagent_key};
use crate::LineDecoder;
use crate::json::Object;

#[derive(Default)]
pub(super) struct Stdout {
    /// The session of the line before.
    session: Option<String>,
    /// Sessions by id: several may write in turn, or go on later.
    sessions: HashMap<String, Session>,
    held: Option<Held>,
    late: Option<result::Late>,
}

/// State of one session.
#[derive(Default)]
struct Session {
    main: Asked,
    /// Subagents by id.
    children: Vec<(String, Asked)>,
    /// A turn has begun and has no result yet.
    is_in_turn: bool,
    /// The turn began with the line of a process, and not with its result.
    is_announced: bool,
    /// Turns after which another one began before their result came.
    without_result: u64,
    /// Requests before this turn.
    asked_before: u64,
    /// What is shown of the requests, and of their attempts, by the version that writes now.
    shown: Option<(Shown, Shown)>,
    /// Somebody interrupted this turn.
    is_interrupted: bool,
    /// When a limit resets that was said to be used up in this turn.
    reset_at: Option<DateTime<Utc>>,
}

/// The first version whose standard output has lines for retries.
const FIRST_WITH_RETRIES: [u64; 3] = [2, 1, 77];

const RETRIES: &str = "standard output shows retries after HTTP and connection errors, but no silent repeats";

const REFUSED: &str =
    "standard output does not show a request that was refused for its length before compaction";

const UNSEEN: &str = "standard output does not show an answer that holds nothing to see";

const CANCELLED: &str =
    "standard output does not say whether anything was asked before the person interrupted";

const ONLY_RESULT: &str = "this output format shows only the result";

const NO_RETRIES: &str = "standard output of this version does not show retries";

/// State of one conversation.
#[derive(Default)]
struct Asked {
    requests: u64,
    open: bool,
    last_message: Option<String>,
    introduced: bool,
    /// The last request failed, as a line of its own says.
    failed: bool,
    /// Retries of the open request that were announced, and with which status the last of them.
    retries: u64,
    retried: Option<u16>,
    last: Last,
    /// The model that the rest of the turn is asked of, since another one was given up.
    fallback: Option<String>,
}

/// What the last line of a conversation was.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    /// The turn began, or a line in the person's name.
    Said,
    /// An answer that asks for no tool, so that nothing more is asked.
    Answer,
    /// An answer that asks for a tool.
    Call,
}

/// The final error of the main conversation, until its next line: a `result` may say more of it, and an error that is said twice is two.
struct Held {
    place: Place,
    run: RunKey,
    at: Option<DateTime<Utc>>,
    failed: ModelFailed,
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
        let Some(session) = record.string("session_id") else { return };
        let kind = record.str("type");
        let subtype = record.str("subtype");
        let is_of_answers = matches!(kind.as_deref(), Some("assistant" | "user"))
            || matches!(subtype.as_deref(), Some("init" | "api_retry"));
        if is_of_answers || self.session.as_ref() != Some(&session) {
            self.release(None, None, sink);
        }
        let mut say = Say { place, run: RunKey::new(AGENT, &*session), at: record.time("timestamp"), sink };
        if !self.sessions.contains_key(&session) {
            self.sessions.entry(session.clone()).or_default().show_retries(false, &mut say);
        }
        self.session = Some(session);
        match (kind.as_deref(), subtype.as_deref()) {
            (Some("system"), Some("init")) => self.init(&record, &mut say),
            (Some("system"), Some("api_retry")) => {
                self.now().show_retries(true, &mut say);
                self.retry(&record, &record, None, &mut say);
            }
            (Some("system"), Some("compact_boundary")) => {
                let compaction = record.object("compact_metadata").unwrap_or_default();
                if compaction.is("trigger", "auto") {
                    self.now().show(Shown::Some, Shown::Some, REFUSED, &mut say);
                }
            }
            (Some("system"), Some("model_fallback")) => self.fallback(&record, &[], &mut say),
            (Some("system"), Some("model_refusal_fallback")) => {
                let session = self.now();
                // After an answer it is not told whether that was the one that was refused.
                if session.main.open || session.main.requests == session.asked_before {
                    self.fallback(&record, &["refusal"], &mut say);
                }
            }
            (Some("rate_limit_event"), _) => {
                let info = record.object("rate_limit_info").unwrap_or_default();
                self.now().reset_at = info.time("resetsAt").filter(|_| info.is("status", "rejected"));
            }
            (Some("tool_progress"), _) => {
                if let Some(retry) = record.object("subagent_retry") {
                    let agent = retry.string("agent_id");
                    self.retry(&record, &retry, agent, &mut say);
                }
            }
            (Some("assistant"), _) => self.assistant(&record, &mut say),
            (Some("user"), _) => {
                self.now().is_interrupted |= record.object("message").as_ref().is_some_and(is_interrupt);
                if record.raw("parent_tool_use_id").is_none() {
                    let session = self.now();
                    let before = std::mem::replace(&mut session.main.last, Last::Said);
                    // What the program adds in the person's name follows an answer.
                    if before == Last::Said && record.bool("isSynthetic") == Some(true) {
                        session.show(Shown::Some, Shown::Some, UNSEEN, &mut say);
                    }
                }
                if let Some(uuid) = record.str("uuid").filter(|_| record.raw("parent_tool_use_id").is_none())
                {
                    say.mark(&Mark::Anchor(Anchor::of(&uuid)));
                }
            }
            (Some("result"), _) => self.result(&record, &mut say),
            _ => {}
        }
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        self.release(None, None, sink);
        self.release_late(sink);
    }
}

struct Say<'a> {
    place: Place,
    run: RunKey,
    at: Option<DateTime<Utc>>,
    sink: &'a mut dyn Sink,
}

impl Say<'_> {
    fn mark(&mut self, mark: &Mark) {
        self.sink.item(self.place, Item::Mark { run: &self.run, at: self.at, mark });
    }

    fn event(&mut self, body: impl Into<Body>) {
        self.failure(body, None);
    }

    fn failure(&mut self, body: impl Into<Body>, raw: Option<&RawFailure>) {
        let mut event = Event::new(&*self.run.id, DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = self.at;
        self.sink.item(self.place, Item::Event(&event, raw));
    }

    fn shows(&mut self, requests: Shown, attempts: Shown, because: &'static str) {
        self.mark(&Mark::Shows { source: Source::Foreground, requests, attempts, because });
        self.mark(&Mark::Shows {
            source: Source::Background,
            requests: Shown::None,
            attempts: Shown::None,
            because,
        });
    }
}

impl Stdout {
    /// Says the error that was held back, with the text and the reason that the result gives.
    fn release(&mut self, message: Option<String>, reason: Option<String>, sink: &mut dyn Sink) {
        let Some(Held { place, run, at, mut failed }) = self.held.take() else { return };
        failed.message = message.or(failed.message);
        let raw = reason.map(|body| RawFailure { headers: Vec::new(), body: Some(body) });
        Say { place, run, at, sink }.failure(failed, raw.as_ref());
    }

    /// Returns the session of the line.
    fn now(&mut self) -> &mut Session {
        self.sessions.entry(self.session.clone().unwrap_or_default()).or_default()
    }

    fn init(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        self.release_late(say.sink);
        let session = self.now();
        // The turn before did not come to its end, or its result is still to come.
        if session.is_announced {
            session.without_result += 1;
            session.end_turn();
        }
        session.ensure_turn(say);
        session.is_announced = true;
        session.main.last = Last::Said;
        let version = record.string("claude_code_version");
        let shows = version.as_deref().is_some_and(|version| is_at_least(version, FIRST_WITH_RETRIES));
        session.show_retries(shows, say);
        let facts = Facts {
            agent_version: version,
            model: record.string("model").map(model_of),
            directory: record.string("cwd"),
            ..Facts::default()
        };
        say.mark(&Mark::Facts(facts));
    }

    /// Returns the conversation of a line: the main one, or a subagent's with its own run.
    fn conversation<'s>(
        &'s mut self,
        agent: Option<String>,
        call: Option<String>,
        say: &mut Say<'_>,
    ) -> &'s mut Asked {
        let id = self.session.clone().unwrap_or_default();
        let session = self.now();
        let Some(agent) = agent else {
            session.ensure_turn(say);
            return &mut session.main;
        };
        say.run = subagent_key(&id, &agent);
        let index = session.children.iter().position(|(id, _)| *id == agent).unwrap_or_else(|| {
            session.children.push((agent, Asked::default()));
            session.children.len() - 1
        });
        let child = &mut session.children[index].1;
        if !child.introduced {
            child.introduced = true;
            let facts = Facts { parent_run_id: Some(id), parent_call_id: call, ..Facts::default() };
            say.mark(&Mark::Facts(facts));
            say.shows(Shown::None, Shown::Some, "standard output shows only a subagent's retries");
        }
        child
    }

    fn retry(&mut self, line: &Object<'_>, record: &Object<'_>, agent: Option<String>, say: &mut Say<'_>) {
        let asked = self.conversation(agent, line.string("parent_tool_use_id"), say);
        let request_id = asked.ensure(say);
        let mut retry = ModelRetry::new().request_id(request_id).layer(Layer::Agent);
        retry.attempt = record.u64("attempt");
        retry.max_attempts = record.u64("max_retries").map(|n| n + 1);
        retry.delay_ms = record.u64("retry_delay_ms");
        retry.status = record.status("error_status");
        retry.message = record.string("error").or_else(|| record.string("error_category"));
        asked.retries += 1;
        asked.retried = retry.status;
        say.event(retry);
    }

    /// Another model is asked: because of errors that stand on the lines before, or of those named here.
    fn fallback(&mut self, record: &Object<'_>, failures: &[&str], say: &mut Say<'_>) {
        let asked = self.conversation(None, None, say);
        let candidate = |name| Candidate { model: record.string(name).map(model_of), ..Candidate::default() };
        let mut fallback = ModelFallback::new().request_id(asked.ensure(say)).kind(FallbackKind::Model);
        fallback.from = Some(candidate("original_model"));
        let to = candidate("fallback_model");
        asked.fallback.clone_from(&to.model);
        fallback.to = Some(to);
        fallback.reason = record.string("trigger");
        let codes: Vec<_> = failures.iter().map(|code| Some(Value::from(*code))).collect();
        fallback.failures = Some(codes).filter(|codes| !codes.is_empty());
        say.event(fallback);
    }

    fn assistant(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let agent = record.string("agent_id");
        if record.raw("parent_tool_use_id").is_some() && agent.is_none() {
            return;
        }
        let is_main = agent.is_none();
        let call = record.string("parent_tool_use_id");
        let message = record.object("message").unwrap_or_default();
        let reset_at = self.now().reset_at.filter(|_| is_main);
        let asked = self.conversation(agent, call, say);
        for id in [record.str("uuid"), message.str("id"), record.str("request_id")].into_iter().flatten() {
            say.mark(&Mark::Anchor(Anchor::of(&id)));
        }
        if message.is("model", "<synthetic>") {
            // The final error; `result` repeats it, and may say more.
            let text =
                message.objects("content").and_then(|blocks| blocks.iter().find_map(|b| b.string("text")));
            let Some(text) = text else { return };
            // What a command gave ends like an answer; without a login nothing is asked.
            if message.is("stop_reason", "end_turn") || is_of_the_program(&text) {
                return;
            }
            // Nothing was asked since the answer: it is the answer that broke off.
            let is_of_answer = asked.last == Last::Answer && is_main && !asked.open;
            let request_id = if is_of_answer { asked.id() } else { asked.ensure(say) };
            asked.last = Last::Nothing;
            asked.open = false;
            asked.failed = true;
            let (retries, retried) = (asked.retries, asked.retried);
            let from_text = status_in(&text);
            let mut failed = ModelFailed::new().request_id(request_id).message(text);
            failed.code = record.string("error");
            failed.status =
                record.status("api_error_status").or_else(|| record.status("apiErrorStatus")).or(from_text);
            failed.upstream_request_id = record.string("request_id").or_else(|| record.string("requestId"));
            // With a login that is refused the program gives up within the wait; with a key it asks once more.
            if matches!(retried, Some(401 | 403))
                && failed.status.is_none_or(|status| Some(status) == retried)
            {
                failed.attempts = Some(retries);
            }
            let is_limit = failed.status == Some(429) || failed.code.as_deref() == Some("rate_limit");
            failed.reset_at = reset_at.filter(|_| is_limit);
            if is_main {
                self.held = Some(Held { place: say.place, run: say.run.clone(), at: say.at, failed });
            } else {
                // A subagent has no result of its own.
                let (reason, message) = (failed.code.clone(), failed.message.clone());
                say.event(failed);
                let outcome = TurnOutcome::Failed;
                say.mark(&Mark::TurnEnded { turn: None, outcome, reason, message });
            }
            return;
        }
        let id = message.string("id");
        let is_told = id.is_some() && id == asked.last_message;
        let calls_tool = message.raw("content").is_some_and(|content| content.contains("\"tool_use\""));
        let called = is_told && asked.last == Last::Call;
        asked.last = if calls_tool || called { Last::Call } else { Last::Answer };
        if is_told {
            return;
        }
        let request_id = asked.ensure(say);
        asked.open = false;
        asked.last_message = id;
        let candidate = Candidate { model: message.string("model").map(model_of), ..Candidate::default() };
        let mut response = ModelResponse::new().request_id(request_id).candidate(candidate);
        response.usage = message.object("usage").map(|usage| usage_of(&usage));
        say.event(response);
    }
}

impl Session {
    fn show(&mut self, requests: Shown, attempts: Shown, because: &'static str, say: &mut Say<'_>) {
        if self.shown.replace((requests, attempts)) != Some((requests, attempts)) {
            say.shows(requests, attempts, because);
        }
    }

    fn show_retries(&mut self, shows: bool, say: &mut Say<'_>) {
        let (attempts, because) = if shows { (Shown::Some, RETRIES) } else { (Shown::None, NO_RETRIES) };
        self.show(Shown::All, attempts, because, say);
    }

    fn ensure_turn(&mut self, say: &mut Say<'_>) {
        if !self.is_in_turn {
            self.is_in_turn = true;
            say.mark(&Mark::TurnStarted { turn: None });
        }
    }

    fn end_turn(&mut self) {
        self.main.open = false;
        self.main.fallback = None;
        self.main.last = Last::Nothing;
        self.asked_before = self.main.requests;
        self.is_in_turn = false;
        self.is_announced = false;
        self.is_interrupted = false;
        self.reset_at = None;
    }
}

impl Asked {
    /// Returns the id of the open request, opening one where needed.
    fn ensure(&mut self, say: &mut Say<'_>) -> String {
        if !self.open {
            self.open = true;
            self.failed = false;
            self.retries = 0;
            self.retried = None;
            self.requests += 1;
            let mut request =
                ModelRequest::new().request_id(format!("#{}", self.requests)).source(Source::Foreground);
            request.candidate =
                self.fallback.clone().map(|model| Candidate { model: Some(model), ..Candidate::default() });
            say.event(request);
        }
        self.id()
    }

    /// Returns the id of the request that is open, or was last.
    fn id(&self) -> String {
        format!("#{}", self.requests)
    }
}

#[cfg(test)]
mod tests;
