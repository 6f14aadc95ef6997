//! Kept standard output: `--output-format stream-json` (one object a line) or `json` (one object).
//!
//! Shows retries after HTTP and connection errors as `api_retry` since 2.1.77, and the end as `result`. Silent repeats and
//! anything below a subagent's `subagent_retry` are not in it. Its `result` text is model output and never copied, unless it is an
//! error.

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

use super::transcript::{is_interrupt, status_in, usage_of};
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
                let content = record.object("message").and_then(|message| message.raw("content"));
                self.now().is_interrupted |= content.is_some_and(is_interrupt);
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
        let session = self.now();
        // A process goes on with the session after another one that did not come to its end.
        if session.is_announced {
            session.end_turn();
        }
        session.ensure_turn(say);
        session.is_announced = true;
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
        say.event(retry);
    }

    /// Another model is asked: because of errors that stand on the lines before, or of those named here.
    fn fallback(&mut self, record: &Object<'_>, failures: &[&str], say: &mut Say<'_>) {
        let asked = self.conversation(None, None, say);
        let candidate = |name| Candidate { model: record.string(name).map(model_of), ..Candidate::default() };
        let mut fallback = ModelFallback::new().request_id(asked.ensure(say)).kind(FallbackKind::Model);
        fallback.from = Some(candidate("original_model"));
        fallback.to = Some(candidate("fallback_model"));
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
            let request_id = asked.ensure(say);
            asked.open = false;
            asked.failed = true;
            let from_text = status_in(&text);
            let mut failed = ModelFailed::new().request_id(request_id).message(text);
            failed.code = record.string("error");
            failed.status =
                record.status("api_error_status").or_else(|| record.status("apiErrorStatus")).or(from_text);
            failed.upstream_request_id = record.string("request_id").or_else(|| record.string("requestId"));
            let is_limit = failed.status == Some(429) || failed.code.as_deref() == Some("rate_limit");
            failed.reset_at = reset_at.filter(|_| is_limit);
            if is_main {
                self.held = Some(Held { place: say.place, run: say.run.clone(), at: say.at, failed });
            } else {
                say.event(failed);
            }
            return;
        }
        let id = message.string("id");
        if id.is_some() && id == asked.last_message {
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

    fn result(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let session = self.now();
        session.ensure_turn(say);
        if session.asked_nothing(record) {
            if !session.is_announced {
                session.show(Shown::All, Shown::None, ONLY_RESULT, say);
            }
        } else if session.main.requests == 0
            || !session.is_announced && session.main.requests == session.asked_before
        {
            // `--output-format json` has no other line; it does not show how many steps the answer took.
            session.show(Shown::Some, Shown::None, ONLY_RESULT, say);
            session.main.ensure(say);
        }
        let is_error = record.bool("is_error") == Some(true);
        let subtype = record.string("subtype");
        let reason = record.string("terminal_reason").or_else(|| subtype.clone());
        let failed = is_error || subtype.as_deref().is_some_and(|s| s.starts_with("error"));
        let errors = errors_of(record);
        // Versions that give no reason say it in the person's name, or as an error.
        let was_aborted =
            session.is_interrupted || errors.iter().any(|error| error.contains("Request was aborted"));
        let outcome = match reason.as_deref() {
            Some(reason) if reason.starts_with("aborted") => TurnOutcome::Cancelled,
            _ if failed && was_aborted => TurnOutcome::Cancelled,
            _ if failed => TurnOutcome::Failed,
            _ => TurnOutcome::Succeeded,
        };
        let text = if is_error { record.string("result") } else { None };
        let message = text.or_else(|| Some(errors.join("; ")).filter(|text| failed && !text.is_empty()));
        if outcome == TurnOutcome::Failed && self.held.is_none() {
            self.last_failed(record, message.as_deref(), say);
        }
        let named = reason.clone().filter(|reason| names_failure(reason));
        self.release(message.clone(), named, say.sink);
        if let Some(uuid) = record.str("uuid") {
            say.mark(&Mark::Anchor(Anchor::of(&uuid)));
        }
        if let Some(provider) = provider_of_result(record) {
            say.mark(&Mark::Facts(Facts { provider: Some(provider), ..Facts::default() }));
        }
        say.mark(&Mark::TurnEnded { turn: None, outcome, reason, message });
        self.now().end_turn();
    }

    /// Says that the open request failed, where only the result says it.
    fn last_failed(&mut self, record: &Object<'_>, message: Option<&str>, say: &mut Say<'_>) {
        let session = self.now();
        let status = record.status("api_error_status");
        let Some(message) = message.filter(|text| status.is_some() || text.starts_with("API Error")) else {
            return;
        };
        if session.main.failed {
            return;
        }
        // What was answered did not fail: another request did.
        let mut failed = ModelFailed::new().request_id(session.main.ensure(say)).message(message);
        session.main.open = false;
        failed.status = status.or_else(|| status_in(message));
        failed.reset_at = session.reset_at.filter(|_| failed.status == Some(429));
        say.event(failed);
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

    /// Returns whether a process ended before it asked for anything.
    fn asked_nothing(&self, result: &Object<'_>) -> bool {
        self.main.requests == self.asked_before
            && result.u64("num_turns") == Some(0)
            && result.u64("duration_api_ms").unwrap_or(0) == 0
    }

    fn ensure_turn(&mut self, say: &mut Say<'_>) {
        if !self.is_in_turn {
            self.is_in_turn = true;
            say.mark(&Mark::TurnStarted { turn: None });
        }
    }

    fn end_turn(&mut self) {
        self.main.open = false;
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
            self.requests += 1;
            let request =
                ModelRequest::new().request_id(format!("#{}", self.requests)).source(Source::Foreground);
            say.event(request);
        }
        format!("#{}", self.requests)
    }
}

/// Returns the errors that a result names; what it says for whoever mends the program is not one.
fn errors_of(result: &Object<'_>) -> Vec<String> {
    let errors = result.strings("errors").unwrap_or_default();
    errors.into_iter().filter(|text| !text.starts_with("[ede_diagnostic]")).map(Into::into).collect()
}

/// Whether the word for the end of a turn says what was wrong with its last request, and not only that something was.
fn names_failure(reason: &str) -> bool {
    reason == "prompt_too_long"
}

/// `modelUsage.<model>.provider`: `firstParty`, `vertex`, and so on.
fn provider_of_result(record: &Object<'_>) -> Option<String> {
    let usage = record.object("modelUsage")?;
    let provider = usage.members().find_map(|(_, raw)| Object::parse(raw.as_bytes())?.string("provider"))?;
    Some(match provider.as_str() {
        "firstParty" => "anthropic".to_owned(),
        _ => provider,
    })
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    /// Returns text and body of each failure that is said.
    fn failures(lines: &[&str]) -> Vec<(Option<String>, Option<String>)> {
        let mut sink = Collected::default();
        let mut stdout = Stdout::default();
        for (n, line) in lines.iter().enumerate() {
            stdout.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        stdout.end(&mut sink);
        let failure = |(_, item): (_, Statement)| match item {
            Statement::Event(event, raw) => match event.body {
                Body::ModelFailed(failed) => Some((failed.message, raw.and_then(|raw| raw.body))),
                _ => None,
            },
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(failure).collect()
    }

    const ERROR: &str = r#"{"type":"assistant","session_id":"s","uuid":"u","error":"invalid_request","message":{"id":"m","model":"<synthetic>","content":[{"type":"text","text":"It failed"}]}}"#;
    const RESULT: &str = r#"{"type":"result","session_id":"s","subtype":"success","is_error":true,"terminal_reason":"prompt_too_long","result":"Too many tokens"}"#;

    #[test]
    fn the_result_says_more_of_the_final_error() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(failures(&[ERROR, RESULT]), [(text("Too many tokens"), text("prompt_too_long"))]);
        // A general word is the name of one kind of failure at the provider, which is not meant here.
        let general = RESULT.replace("prompt_too_long", "api_error");
        assert_eq!(failures(&[ERROR, &general]), [(text("Too many tokens"), None)]);
        assert_eq!(failures(&[ERROR]), [(text("It failed"), None)]);
        let later = RESULT.replace(r#""session_id":"s""#, r#""session_id":"t""#);
        assert_eq!(failures(&[ERROR, &later]), [(text("It failed"), None)]);
        assert!(failures(&[RESULT]).is_empty());
    }

    /// Returns what lines make: the kinds of events, and how turns end.
    fn kinds(lines: &[&str]) -> Vec<String> {
        let name = |item: &Statement| match item {
            Statement::Event(event, _) => Some(event.body.kind().to_owned()),
            Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
            Statement::Mark { .. } => None,
        };
        read(lines).items.iter().filter_map(|(_, item)| name(item)).collect()
    }

    fn read(lines: &[&str]) -> Collected {
        let mut sink = Collected::default();
        let mut stdout = Stdout::default();
        for (n, line) in lines.iter().enumerate() {
            stdout.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        stdout.end(&mut sink);
        sink
    }

    #[test]
    fn retries_are_shown_by_versions_that_have_lines_for_them() {
        let shown = |lines: &[&str]| {
            let said = read(lines);
            let attempts = |item: &Statement| match item {
                Statement::Mark {
                    mark: Mark::Shows { source: Source::Foreground, requests, attempts, .. },
                    ..
                } => Some((*requests, *attempts)),
                _ => None,
            };
            said.items.iter().filter_map(|(_, item)| attempts(item)).last()
        };
        let of = |version: &str| BEGIN.replace('}', &format!(r#","claude_code_version":"{version}"}}"#));
        assert_eq!(shown(&[&of("2.1.76")]), Some((Shown::All, Shown::None)));
        assert_eq!(shown(&[&of("2.1.77")]), Some((Shown::All, Shown::Some)));
        assert_eq!(shown(&[BEGIN]), Some((Shown::All, Shown::None)));
        assert_eq!(shown(&[BEGIN, RETRY]), Some((Shown::All, Shown::Some)));
        assert_eq!(shown(&[RESULT]), Some((Shown::Some, Shown::None)));
        assert_eq!(shown(&[RESULT, &of("2.2.0")]), Some((Shown::All, Shown::Some)));
    }

    #[test]
    fn a_result_that_names_its_error_is_the_end_of_its_request() {
        let result = |members: &str| {
            format!(r#"{{"type":"result","session_id":"s","is_error":true,"subtype":"success",{members}}}"#)
        };
        let failed = ["model.request", "model.failed", "Failed"];
        assert_eq!(kinds(&[&result(r#""result":"API Error: 500 {}""#)]), failed);
        assert_eq!(kinds(&[&result(r#""result":"Overloaded","api_error_status":529"#)]), failed);
        // Near miss: it may be about anything.
        assert_eq!(kinds(&[&result(r#""result":"It did not work""#)]), ["model.request", "Failed"]);
        let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"x","content":[]}}"#;
        let next = ["model.request", "model.response", "model.request", "model.failed", "Failed"];
        assert_eq!(kinds(&[BEGIN, answer, &result(r#""result":"API Error: 500 {}""#)]), next);
        // Near miss: a line before had said it already, and something stands between.
        let between = r#"{"type":"user","session_id":"s","message":{"role":"user","content":"x"}}"#;
        assert_eq!(kinds(&[BEGIN, ERROR, between, &result(r#""result":"API Error: 500 {}""#)]), failed);
    }

    #[test]
    fn a_process_that_asked_for_nothing_made_no_request() {
        let result = |members: &str| {
            format!(
                r#"{{"type":"result","session_id":"s","is_error":true,"subtype":"error_during_execution",{members},"errors":["No such thing"]}}"#
            )
        };
        assert_eq!(kinds(&[&result(r#""num_turns":0"#)]), ["Failed"]);
        let said = read(&[&result(r#""num_turns":0"#)]);
        let text = said.items.iter().find_map(|(_, item)| match item {
            Statement::Mark { mark: Mark::TurnEnded { message, .. }, .. } => message.clone(),
            _ => None,
        });
        assert_eq!(text.as_deref(), Some("No such thing"));
        assert_eq!(kinds(&[&result(r#""num_turns":1"#)]), ["model.request", "Failed"]);
        assert_eq!(kinds(&[&result(r#""num_turns":0,"duration_api_ms":70"#)]), ["model.request", "Failed"]);
    }

    #[test]
    fn what_a_person_interrupted_was_cancelled() {
        let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"x","content":[]}}"#;
        let by_user = r#"{"type":"user","session_id":"s","message":{"role":"user","content":[{"type":"text","text":"[Request interrupted by user]"}]}}"#;
        let result = |errors: &str| {
            format!(
                r#"{{"type":"result","session_id":"s","subtype":"error_during_execution","is_error":true,"num_turns":1,"errors":[{errors}]}}"#
            )
        };
        let ended = |lines: &[&str]| kinds(lines).pop();
        assert_eq!(ended(&[BEGIN, answer, by_user, &result("")]).as_deref(), Some("Cancelled"));
        assert_eq!(
            ended(&[BEGIN, answer, &result(r#""Error: Request was aborted.""#)]).as_deref(),
            Some("Cancelled")
        );
        // Near misses: another error, the words in another turn, and a turn that ended well all the same.
        assert_eq!(ended(&[BEGIN, answer, &result(r#""Error: no disk""#)]).as_deref(), Some("Failed"));
        let good = r#"{"type":"result","session_id":"s","subtype":"success","is_error":false,"num_turns":1}"#;
        assert_eq!(ended(&[BEGIN, answer, by_user, good]).as_deref(), Some("Succeeded"));
        assert_eq!(
            ended(&[BEGIN, answer, by_user, good, BEGIN, &answer.replace("\"m\"", "\"n\""), &result("")])
                .as_deref(),
            Some("Failed")
        );
    }

    #[test]
    fn another_model_is_a_fallback_of_the_same_request() {
        let fallback = |kind: &str| {
            format!(
                r#"{{"type":"system","subtype":"{kind}","trigger":"t","original_model":"a","fallback_model":"b","session_id":"s"}}"#
            )
        };
        let answer = r#"{"type":"assistant","session_id":"s","message":{"id":"m","model":"b","content":[]}}"#;
        let told = ["model.request", "model.retry", "model.fallback", "model.response"];
        assert_eq!(kinds(&[BEGIN, RETRY, &fallback("model_fallback"), answer]), told);
        let refused = ["model.request", "model.fallback", "model.response"];
        assert_eq!(kinds(&[BEGIN, &fallback("model_refusal_fallback"), answer]), refused);
        // Which answer was refused is not told.
        let answered = ["model.request", "model.response"];
        assert_eq!(kinds(&[BEGIN, answer, &fallback("model_refusal_fallback")]), answered);
    }

    #[test]
    fn a_limit_that_is_used_up_tells_when_it_resets() {
        let limit = |status: &str| {
            format!(
                r#"{{"type":"rate_limit_event","session_id":"s","rate_limit_info":{{"status":"{status}","resetsAt":1790000000}}}}"#
            )
        };
        let refused = ERROR.replace("invalid_request", "rate_limit");
        let reset = |lines: &[&str]| {
            read(lines).items.iter().find_map(|(_, item)| match item {
                Statement::Event(event, _) => match &event.body {
                    Body::ModelFailed(failed) => failed.reset_at.map(|at| at.timestamp()),
                    _ => None,
                },
                Statement::Mark { .. } => None,
            })
        };
        assert_eq!(reset(&[BEGIN, &limit("rejected"), &refused]), Some(1_790_000_000));
        assert_eq!(reset(&[BEGIN, &limit("allowed_warning"), &refused]), None);
        assert_eq!(reset(&[BEGIN, &limit("rejected"), ERROR]), None);
    }

    const BEGIN: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    const RETRY: &str = r#"{"type":"system","subtype":"api_retry","session_id":"s","attempt":1}"#;

    /// Returns the turns of session `s` that begin, and its requests.
    fn told(lines: &[&str]) -> Vec<String> {
        let mut sink = Collected::default();
        let mut stdout = Stdout::default();
        for (n, line) in lines.iter().enumerate() {
            stdout.line(Place::Line(n as u64 + 1), line.as_bytes(), &mut sink);
        }
        let name = |(_, item): (_, Statement)| match item {
            Statement::Event(event, _) if &*event.run_id == "s" => match event.body {
                Body::ModelRequest(body) => body.request_id,
                _ => None,
            },
            Statement::Mark { run, mark: Mark::TurnStarted { turn }, .. } if &*run.id == "s" => {
                Some(turn.unwrap_or_else(|| "turn".to_owned()))
            }
            _ => None,
        };
        sink.items.into_iter().filter_map(name).collect()
    }

    #[test]
    fn a_session_that_goes_on_later_has_further_turns_and_requests() {
        let other = |line: &str| line.replace(r#""session_id":"s""#, r#""session_id":"t""#);
        let (begin, retry, result) = (other(BEGIN), other(RETRY), other(RESULT));
        let twice = ["turn", "#1", "turn", "#2"];
        assert_eq!(told(&[BEGIN, RETRY, RESULT, BEGIN, RETRY, RESULT]), twice);
        assert_eq!(told(&[BEGIN, RETRY, RESULT, &begin, &retry, &result, BEGIN, RETRY, RESULT]), twice);
        // A process that died has no result.
        assert_eq!(told(&[BEGIN, RETRY, BEGIN, RETRY]), twice);
        // One object a process.
        assert_eq!(told(&[RESULT, RESULT]), twice);
        // Near miss: two sessions that write into one file in turn.
        assert_eq!(told(&[BEGIN, &begin, RETRY, &retry, RETRY, &result, RESULT]), ["turn", "#1"]);
    }
}
