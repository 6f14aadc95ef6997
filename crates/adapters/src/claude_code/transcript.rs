//! Session transcripts: `projects/<slug>/<session id>.jsonl` and subagent files.
//!
//! Two generations. With `api-request` lines each request has a record of its own: one whose message count equals that of
//! its `base` repeats it, any other is a new logical request. Without them a request is known from its answer, its
//! `api_error` lines or its final error, and further repeats may be hidden.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use memchr::memmem::Finder;
use retryscope_events::{
    Body, Candidate, Event, Layer, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, ModelRetry,
    Source, Usage,
};
use retryscope_record::{Facts, GapKind, Item, Mark, Place, RawFailure, RunKey, Shown, Sink, TurnOutcome};

use super::{AGENT, model_of, provider_of_model, subagent_key};
use crate::LineDecoder;
use crate::json::Object;

/// Requests whose chain is remembered; a base is nearly always the request just before.
const CHAIN_LIMIT: usize = 1024;

#[derive(Default)]
pub(super) struct Transcript {
    run: Option<RunKey>,
    version: Option<String>,
    turn: Option<String>,
    prompts: u64,
    /// A line in the person's name that asks the model only if a request follows.
    maybe_prompt: Option<Prompt>,
    /// Prompts of this version carry an id.
    has_prompt_ids: bool,
    /// `api-request` id to its chain; only in the newer generation.
    chains: HashMap<String, Chain>,
    chain_order: VecDeque<String>,
    /// The version that writes now has such lines, as far as it has come.
    has_request_lines: bool,
    shown: Option<Shown>,
    /// The logical request that is open, or was last.
    request: Option<OpenRequest>,
    requests: u64,
    /// A line since the last request could not be read; it may have been the next one.
    unread: bool,
    /// Requests known only by their error.
    lost: u64,
    last_message_id: Option<String>,
}

struct Chain {
    root: String,
    turn: Option<String>,
    messages: u64,
    max_tokens: Option<u64>,
    shape: Option<String>,
    digest: Option<String>,
}

struct OpenRequest {
    id: String,
    /// The turn in which it was asked.
    turn: Option<String>,
    /// Nothing more follows: it was answered or failed, or its turn is over.
    is_over: bool,
    model: Option<String>,
    /// The program's number of the last error that was told of it, since its last attempt was.
    error: Option<u64>,
}

/// A prompt whose turn has not begun yet.
struct Prompt {
    turn: String,
    uuid: Option<String>,
    at: Option<DateTime<Utc>>,
}

/// Line types that bear on requests; the others are most of a file.
fn matters(line: &[u8]) -> bool {
    const HEAD: usize = 4096;
    static TYPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"type\":\""));
    // Records name their type early, except conversation lines, whose type may follow a large message.
    let head = &line[..line.len().min(HEAD)];
    let mut other = false;
    for at in TYPE.find_iter(head) {
        let name = &head[at + TYPE.needle().len()..];
        // A prompt may quote such words; a conversation line always has one of these keys.
        if [&b"user\""[..], b"assistant\"", b"system\""].iter().any(|kind| name.starts_with(kind)) {
            return true;
        }
        let is = |kind: &&[u8]| name.starts_with(kind);
        other |= [
            &b"attachment\""[..],
            b"api-request-blob\"",
            b"api-request-shape\"",
            b"progress\"",
            b"file-history-snapshot\"",
        ]
        .iter()
        .any(is);
    }
    !other
}

/// Returns whether a `user` line says what a tool gave, in the form that has a member for it.
fn is_tool_result(record: &Object<'_>) -> bool {
    record.raw("toolUseResult").is_some()
}

const NO_RETRIES: &str = "this version's transcript does not show retries";

/// How a person's interruption begins.
const INTERRUPT: &str = "[Request interrupted by user";

/// Returns whether a message may say that the person interrupted the agent.
fn may_interrupt(message: &str) -> bool {
    static WORDS: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(INTERRUPT));
    WORDS.find(message.as_bytes()).is_some()
}

/// Returns whether the content of a message says it: as the whole text, or as one of its parts.
fn is_interrupt(content: &str) -> bool {
    content.strip_prefix('"').is_some_and(|text| text.starts_with(INTERRUPT))
        || may_interrupt(content) && content.contains(&format!("\"text\":\"{INTERRUPT}"))
}

/// Beginnings of lines that the program writes in the person's name: commands, what they gave, and what ended beside the
/// conversation. Some commands ask the model, most do not.
const BESIDE: &[&str] = &["command-", "local-command-", "bash-", "task-notification>", "user-memory-input>"];

/// Returns whether the content of a message is such a line, and not what a person wrote.
fn is_beside(content: &str) -> bool {
    let content = content.trim_start_matches('[').trim_start();
    let text = content.strip_prefix('"').or_else(|| Some(content.split_once("\"text\":\"")?.1));
    let name = text.and_then(|text| text.strip_prefix('<'));
    name.is_some_and(|name| BESIDE.iter().any(|known| name.starts_with(known)))
}

impl LineDecoder for Transcript {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if !matters(line) {
            return;
        }
        let Some((record, message)) = Object::parse_with(line, "message") else {
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.unread = true;
                sink.gap(place, GapKind::InvalidJson);
            }
            return;
        };
        let Some(kind) = record.str("type") else { return };
        if let Some(session) = record.str("sessionId") {
            self.enter_run(place, &session, &record, sink);
        }
        // Most of a file are results of tools; what matters in them is only whether the person interrupted.
        if kind == "user" && is_tool_result(&record) && !record.raw("message").is_some_and(may_interrupt) {
            return;
        }
        let Some(run) = self.run.clone() else { return };
        let mut say = Say { place, run, at: record.time("timestamp"), sink };
        let message = message.unwrap_or_default();
        match &*kind {
            "user" => self.user(&record, &message, &mut say),
            "api-request" => self.api_request(&record, &mut say),
            "assistant" => self.assistant(&record, &message, &mut say),
            "system" => self.system(&record, &mut say),
            "cost-state" => {
                let started_at = record.time("startTime");
                say.mark(&Mark::Facts(Facts { started_at, ..Facts::default() }));
            }
            _ => {}
        }
    }
}

/// Returns whether a run is that of a session, or of a subagent in it.
fn is_of(run: &RunKey, session: &str, agent_id: Option<&str>) -> bool {
    let rest = run.id.strip_prefix(session);
    match agent_id {
        Some(agent_id) => rest.and_then(|rest| rest.strip_prefix(':')) == Some(agent_id),
        None => rest == Some(""),
    }
}

/// Where statements of one line go.
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

    fn event(
        &mut self,
        turn: Option<&String>,
        id: Option<String>,
        body: impl Into<Body>,
        raw: Option<&RawFailure>,
    ) {
        let mut event = Event::new(&*self.run.id, DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = self.at;
        event.turn = turn.cloned();
        event.event_id = id;
        self.sink.item(self.place, Item::Event(&event, raw));
    }
}

impl Transcript {
    fn enter_run(&mut self, place: Place, session: &str, record: &Object<'_>, sink: &mut dyn Sink) {
        let agent_id = record.str("agentId");
        // Older subagent files name no agent in some lines; the run of the file stays.
        if agent_id.is_none() && record.bool("isSidechain") == Some(true) && self.run.is_some() {
            return;
        }
        let version = record.str("version");
        let is_same = self.run.as_ref().is_some_and(|run| is_of(run, session, agent_id.as_deref()));
        if is_same && (version.is_none() || version.as_deref() == self.version.as_deref()) {
            return;
        }
        let key = match &agent_id {
            Some(agent_id) => subagent_key(session, agent_id),
            None => RunKey::new(AGENT, session),
        };
        let version = version.map(Cow::into_owned);
        let is_other_version = version.is_some() && self.version.is_some() && version != self.version;
        self.version = version.or(self.version.take());
        let facts = Facts {
            agent_version: self.version.clone(),
            parent_run_id: agent_id.is_some().then(|| session.to_owned()),
            directory: record.string("cwd"),
            ..Facts::default()
        };
        if self.run.as_ref() != Some(&key) {
            self.run = Some(key.clone());
            self.shown = None;
            self.request = None;
            self.turn = None;
            self.maybe_prompt = None;
            let mut say = Say { place, run: key.clone(), at: None, sink };
            self.show(Shown::None, NO_RETRIES, &mut say);
            let mark = Mark::Shows {
                source: Source::Background,
                requests: Shown::None,
                attempts: Shown::None,
                because: "the transcript has no record of compaction and other side calls",
            };
            say.mark(&mark);
        } else if is_other_version {
            // Another process goes on with the session; what one version writes tells nothing of the next.
            self.has_request_lines = false;
            self.has_prompt_ids = false;
            let mut say = Say { place, run: key.clone(), at: None, sink };
            self.show(Shown::None, NO_RETRIES, &mut say);
        }
        sink.item(place, Item::Mark { run: &key, at: None, mark: &Mark::Facts(facts) });
    }

    fn show(&mut self, attempts: Shown, because: &'static str, say: &mut Say<'_>) {
        if self.shown != Some(attempts) {
            self.shown = Some(attempts);
            say.mark(&Mark::Shows { source: Source::Foreground, requests: Shown::All, attempts, because });
        }
    }

    fn user(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let content = message.raw("content").unwrap_or("");
        if is_interrupt(content) {
            self.close_request();
            let turn = self.turn.clone();
            let outcome = TurnOutcome::Cancelled;
            say.mark(&Mark::TurnEnded {
                turn,
                outcome,
                reason: Some("interrupted_by_user".into()),
                message: None,
            });
            return;
        }
        let is_tool_result = is_tool_result(record)
            || message
                .objects("content")
                .is_some_and(|blocks| blocks.iter().any(|b| b.is("type", "tool_result")));
        let is_side = record.bool("isMeta") == Some(true) || record.bool("isCompactSummary") == Some(true);
        if is_tool_result || is_side || record.raw("message").is_none() {
            return;
        }
        self.prompts += 1;
        let (prompt_id, uuid) = (record.string("promptId"), record.string("uuid"));
        let has_id = prompt_id.is_some();
        // Without a prompt id the prompt's own line names the turn.
        let turn = prompt_id.or_else(|| uuid.clone()).unwrap_or_else(|| format!("#{}", self.prompts));
        self.maybe_prompt = Some(Prompt { turn, uuid, at: say.at });
        if !is_beside(content) && (has_id || !self.has_prompt_ids) {
            self.begin_turn(say);
        }
        self.has_prompt_ids |= has_id;
    }

    /// Begins the turn of a prompt that was written down.
    fn begin_turn(&mut self, say: &mut Say<'_>) {
        let Some(Prompt { turn, uuid, at }) = self.maybe_prompt.take() else { return };
        let turn = Some(turn);
        if self.turn != turn {
            self.close_request();
        }
        self.turn.clone_from(&turn);
        let now = std::mem::replace(&mut say.at, at);
        say.mark(&Mark::TurnStarted { turn });
        if let Some(uuid) = uuid {
            say.mark(&Mark::Anchor(uuid));
        }
        say.at = now;
    }

    /// Whatever is asked next is another request than the one that is open.
    fn close_request(&mut self) {
        if let Some(request) = &mut self.request {
            request.is_over = true;
        }
    }

    fn api_request(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let Some(id) = record.string("id") else {
            say.sink.gap(say.place, GapKind::IncompleteRecord);
            return;
        };
        if self.chains.contains_key(&id) {
            // The same line again.
            return;
        }
        self.unread = false;
        let names_base = record.raw("base").is_some();
        if !self.has_request_lines {
            self.has_request_lines = true;
            if !names_base && self.request.take().is_some_and(|r| !r.is_over) {
                // The first request of a process: what was said before is history copied from another session.
                say.mark(&Mark::Copied);
            }
        }
        self.show(Shown::All, "each request has a line of its own", say);
        let params = record.object("params").unwrap_or_default();
        let messages = record.u64("keep").unwrap_or(0) + record.length("tail").unwrap_or(0);
        let base = record.str("base").and_then(|base| self.chains.get(&*base));
        // Another prompt is another request, even where what was cancelled left the conversation as it was before.
        let repeats = base.filter(|base| base.messages == messages && base.turn == self.turn);
        // A base whose line could not be read: a request that was not answered is being repeated, an answered one never is.
        let open = self
            .request
            .as_ref()
            .filter(|r| names_base && base.is_none() && !r.is_over)
            .map(|r| r.id.clone());
        let root =
            repeats.map(|base| base.root.clone()).or_else(|| open.clone()).unwrap_or_else(|| id.clone());
        let is_new = repeats.is_none() && open.is_none();
        let layer = repeats.map(|_| Layer::Agent);
        let mut chain = Chain {
            root: root.clone(),
            turn: None,
            messages,
            max_tokens: params.u64("max_tokens"),
            shape: record.string("shapeHash"),
            digest: record.string("requestDigest"),
        };
        let changed = repeats.map(|base| changes(base, &chain));
        let model = params.string("model").map(model_of);
        let candidate = Candidate {
            provider: model.as_deref().and_then(provider_of_model).map(str::to_owned),
            model: model.clone(),
            ..Candidate::default()
        };
        let query = record.string("querySource").unwrap_or_default();
        if is_new {
            self.begin_turn(say);
            // The program asks something else although nothing answered: the request before was given up.
            if let Some(before) = self.request.take().filter(|r| !r.is_over) {
                say.event(self.turn.as_ref(), None, ModelFailed::new().request_id(before.id), None);
            }
            let source = if query == "compact" { Source::Background } else { Source::Foreground };
            let request =
                ModelRequest::new().request_id(root.clone()).candidate(candidate.clone()).source(source);
            say.event(self.turn.as_ref(), None, request.purpose(query), None);
        } else if let Some(changed) = changed.filter(|changed| !changed.is_empty())
            && self.request.as_ref().is_some_and(|before| before.model == model)
        {
            // A repeat that has no error line of its own, but shows what the program changed.
            let retry = ModelRetry::new().request_id(root.clone()).layer(Layer::Agent).changed(changed);
            say.event(self.turn.as_ref(), None, retry, None);
        }
        let mut attempt =
            ModelAttempt::new().request_id(root.clone()).attempt_id(id.clone()).candidate(candidate);
        attempt.started_at = say.at;
        attempt.layer = layer;
        say.event(self.turn.as_ref(), None, attempt, None);
        chain.turn.clone_from(&self.turn);
        self.request =
            Some(OpenRequest { id: root, turn: self.turn.clone(), is_over: false, model, error: None });
        self.chain_order.push_back(id.clone());
        self.chains.insert(id, chain);
        if self.chain_order.len() > CHAIN_LIMIT
            && let Some(old) = self.chain_order.pop_front()
        {
            self.chains.remove(&old);
        }
    }

    fn system(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        match record.str("subtype").as_deref() {
            Some("api_error") => self.api_error(record, say),
            Some("turn_duration" | "stop_hook_summary") => {
                let turn = self.turn.clone();
                say.mark(&Mark::TurnEnded {
                    turn,
                    outcome: TurnOutcome::Succeeded,
                    reason: None,
                    message: None,
                });
            }
            _ => {}
        }
    }

    fn api_error(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        // In a file with request lines an error before the first of them is history copied from another session.
        if self.has_request_lines && self.request.is_none() {
            return;
        }
        if !self.has_request_lines {
            self.show(Shown::Some, "this version's transcript shows retries after an HTTP or connection error, but no silent repeats", say);
        }
        self.ensure_request(None, say);
        self.attempt_of_error(record.u64("retryAttempt"), say);
        let error = record.object("error").unwrap_or_default();
        let mut retry = ModelRetry::new().layer(Layer::Agent);
        retry.request_id = self.request.as_ref().map(|r| r.id.clone());
        retry.attempt = record.u64("retryAttempt");
        retry.max_attempts = record.u64("maxRetries").map(|n| n + 1);
        retry.delay_ms = record.u64("retryInMs");
        retry.status = error.status("status");
        let inner = error.raw("error").filter(|raw| raw.starts_with('{') && *raw != "{}").map(str::to_owned);
        retry.message = error.string("message").or_else(|| error.string("formatted")).or(inner);
        if let Some((code, detail)) = below(&error) {
            retry.message = Some(match retry.message {
                Some(text) => format!("{text}: {detail}"),
                None => detail,
            });
            retry.code = Some(code);
        }
        retry.upstream_request_id = error.string("requestId").or_else(|| error.string("requestID"));
        if let Some(id) = &retry.upstream_request_id {
            say.mark(&Mark::Anchor(id.clone()));
        }
        let headers = error.object("headers").map(|headers| {
            headers
                .members()
                .filter_map(|(name, value)| {
                    Some((name.to_ascii_lowercase(), crate::json::text(value)?.into_owned()))
                })
                .collect()
        });
        let raw = headers.map(|headers| RawFailure { headers, body: None });
        let turn = self.request.as_ref().map_or(&self.turn, |r| &r.turn);
        say.event(turn.as_ref(), record.string("uuid"), retry, raw.as_ref());
    }

    /// Each request has one error at most: a further one, after a line that could not be read, is of a request in that line.
    fn attempt_of_error(&mut self, number: Option<u64>, say: &mut Say<'_>) {
        let Some(request) = self.request.as_mut().filter(|_| self.has_request_lines) else { return };
        let is_next = request.error.is_some_and(|before| number.is_some_and(|number| number > before));
        if self.unread && is_next {
            self.unread = false;
            self.lost += 1;
            let id = format!("#lost{}", self.lost);
            let attempt =
                ModelAttempt::new().request_id(request.id.clone()).attempt_id(id).layer(Layer::Agent);
            // When it was sent is not known.
            let at = say.at.take();
            say.event(request.turn.as_ref(), None, attempt, None);
            say.at = at;
        }
        request.error = number.or(request.error);
    }

    fn assistant(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let session = say.run.id.split(':').next().unwrap_or_default();
        if let Some(other) = record.str("requestSessionId").filter(|id| id != session) {
            // Copied by a fork; so was what stands before it in this request.
            let forked_from = Some(other.into_owned());
            say.mark(&Mark::Facts(Facts { forked_from, ..Facts::default() }));
            say.mark(&Mark::Copied);
            self.request = None;
            return;
        }
        let is_error = record.bool("isApiErrorMessage") == Some(true);
        let is_answer = !is_error && !message.is("model", "<synthetic>");
        if is_error || is_answer && !self.has_request_lines && !self.is_told(message) {
            self.begin_turn(say);
        }
        for id in
            [record.string("uuid"), message.string("id"), record.string("requestId")].into_iter().flatten()
        {
            say.mark(&Mark::Anchor(id));
        }
        if is_error {
            self.final_error(record, message, say);
        } else if is_answer {
            self.answer(record, message, say);
        }
    }

    /// Returns whether a line goes on with the message of the line before.
    fn is_told(&self, message: &Object<'_>) -> bool {
        self.last_message_id.is_some() && message.string("id") == self.last_message_id
    }

    fn final_error(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let text = message
            .objects("content")
            .and_then(|blocks| blocks.iter().find_map(|b| b.string("text")))
            .or_else(|| message.string("content"));
        let turn = self.turn.clone();
        let reason = record.string("apiError").or_else(|| record.str("error").map(Cow::into_owned));
        // Without a request on the wire: the program refused before it asked.
        let local = text
            .as_deref()
            .is_some_and(|t| t.starts_with("Not logged in") || t.starts_with("Please run /login"));
        if self.has_request_lines && self.is_all_told() || local && !self.has_request_lines {
            let outcome = TurnOutcome::Failed;
            say.mark(&Mark::TurnEnded { turn, outcome, reason, message: text });
            return;
        }
        self.ensure_request(None, say);
        let mut failed = ModelFailed::new();
        failed.request_id = self.request.as_ref().map(|r| r.id.clone());
        failed.status = record.status("apiErrorStatus").or_else(|| text.as_deref().and_then(status_in));
        failed.code = record.string("apiErrorType").or_else(|| reason.clone());
        failed.message.clone_from(&text);
        failed.upstream_request_id = record.string("requestId");
        let limits = record.object("apiErrorParams").and_then(|p| p.object("rate_limit_info"));
        failed.reset_at = limits.and_then(|limits| limits.time("resetsAt"));
        // The text is written for a person; what the provider sent stands beside it.
        let details = record.string("errorDetails");
        let raw = details.map(|body| RawFailure { headers: Vec::new(), body: Some(body) });
        say.event(turn.as_ref(), record.string("uuid"), failed, raw.as_ref());
        if let Some(request) = &mut self.request {
            request.is_over = true;
        }
        say.mark(&Mark::TurnEnded { turn, outcome: TurnOutcome::Failed, reason, message: text });
    }

    fn answer(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let message_id = message.string("id");
        let same = self.is_told(message);
        let model = message.string("model").map(model_of);
        if let Some(chain) = record.str("requestRef").and_then(|r| self.chains.get(&*r)) {
            if self.request.as_ref().is_none_or(|r| r.id != chain.root) {
                let (id, turn, model) = (chain.root.clone(), chain.turn.clone(), model.clone());
                self.request = Some(OpenRequest { id, turn, is_over: false, model, error: None });
            }
        } else if !self.has_request_lines && !same {
            self.ensure_request(model.as_deref(), say);
        }
        self.last_message_id = message_id;
        let Some(request) = &mut self.request else { return };
        request.is_over = true;
        let turn = request.turn.clone();
        let candidate = Candidate {
            provider: model.as_deref().and_then(provider_of_model).map(str::to_owned),
            model,
            ..Candidate::default()
        };
        let mut response = ModelResponse::new().request_id(request.id.clone()).candidate(candidate);
        response.stop_reason = message.string("stop_reason");
        response.usage = message.object("usage").map(|usage| usage_of(&usage));
        response.requested_model = record.string("requestedModel");
        let stop = response.stop_reason.clone();
        say.event(turn.as_ref(), None, response, None);
        let calls_tool = message.raw("content").is_some_and(|content| content.contains("\"tool_use\""));
        let ended = match stop.as_deref() {
            Some(
                "end_turn" | "stop_sequence" | "max_tokens" | "refusal" | "model_context_window_exceeded",
            ) => true,
            Some(_) => false,
            // Older versions write no stop reason: text without a tool call ends a turn, unless more follows.
            None => !calls_tool && message.raw("content").is_some_and(|content| content.contains("\"text\"")),
        };
        if ended {
            say.mark(&Mark::TurnEnded { turn, outcome: TurnOutcome::Succeeded, reason: stop, message: None });
        }
    }

    /// Returns whether nothing can be said of a request that has not been: none is open, and no line was lost.
    fn is_all_told(&self) -> bool {
        self.request.as_ref().is_none_or(|r| r.is_over && !self.unread)
    }

    /// Without a line of its own, a request begins with whatever first speaks of it.
    fn ensure_request(&mut self, model: Option<&str>, say: &mut Say<'_>) {
        let is_open = self.request.as_ref().is_some_and(|r| !r.is_over);
        if is_open || self.has_request_lines && self.is_all_told() {
            return;
        }
        self.unread = false;
        self.begin_turn(say);
        self.requests += 1;
        let id = format!("#{}", self.requests);
        let request = ModelRequest::new().request_id(id.clone()).source(Source::Foreground);
        say.event(self.turn.as_ref(), None, request, None);
        let (turn, model) = (self.turn.clone(), model.map(str::to_owned));
        self.request = Some(OpenRequest { id, turn, is_over: false, model, error: None });
    }
}

/// Returns what broke below the request: the code of it, and the text in which both stand.
fn below(error: &Object<'_>) -> Option<(String, String)> {
    let connection = error.object("connection").unwrap_or_default();
    let text = connection.string("message");
    let code = connection.string("code").or_else(|| text.clone());
    let code = code.or_else(|| error.object("cause")?.string("code"))?;
    let detail = match text {
        Some(text) if text.starts_with(&code) => text,
        Some(text) => format!("{code}: {text}"),
        None => code.clone(),
    };
    Some((code, detail))
}

/// Names what differs between a request and its repeat.
fn changes(base: &Chain, now: &Chain) -> Vec<String> {
    let mut changed = Vec::new();
    if base.digest == now.digest {
        return changed;
    }
    if now.max_tokens < base.max_tokens {
        changed.push("max_tokens".to_owned());
    }
    if now.shape != base.shape {
        changed.push("features".to_owned());
    }
    changed
}

/// Older versions give the status in the text only: `API Error: 529 {...}`.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let (digits, _) = text.strip_prefix("API Error: ")?.split_at_checked(3)?;
    digits.parse().ok().filter(|n| (100..600).contains(n))
}

pub(super) fn usage_of(usage: &Object<'_>) -> Usage {
    Usage {
        input_tokens: usage.u64("input_tokens"),
        output_tokens: usage.u64("output_tokens"),
        cached_input_tokens: usage.u64("cache_read_input_tokens"),
        reasoning_tokens: usage.object("output_tokens_details").and_then(|d| d.u64("thinking_tokens")),
        cost_usd: None,
    }
}

#[cfg(test)]
mod tests;
