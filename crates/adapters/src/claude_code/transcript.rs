//! Session transcripts: `projects/<slug>/<session id>.jsonl` and subagent files.
//!
//! Two generations. With `api-request` lines each request has a record of its own: one whose message count equals that of
//! its `base` repeats it, and so does one before which nothing was answered or said; any other is a new logical request.
//! Without them a request is known from its answer, its `api_error` lines or its final error, and further repeats may be
//! hidden.

mod answers;
mod early;
mod lines;
mod requests;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use chrono::{DateTime, Utc};
use retryscope_events::{Body, Event, Source};
use retryscope_record::{
    Anchor, Facts, GapKind, Item, Mark, Place, RawFailure, RunKey, Shown, Sink, TurnOutcome,
};

pub(super) use self::answers::{is_of_the_program, status_in, usage_of};
use self::early::Early;
use self::lines::{INTERRUPT, inner_member, matters, may_interrupt};
use self::requests::{Chain, Ended, OpenRequest};
use super::{AGENT, subagent_key};
use crate::LineDecoder;
use crate::json::Object;

#[derive(Default)]
pub(super) struct Transcript {
    run: Option<RunKey>,
    version: Option<String>,
    turn: Option<String>,
    prompts: u64,
    /// A line in the person's name that asks the model only if a request follows.
    maybe_prompt: Option<Prompt>,
    /// The session that the last prompt names.
    asked_in: Option<String>,
    begun: Begun,
    /// Prompts of this version carry an id.
    has_prompt_ids: bool,
    /// `api-request` id to its chain; only in the newer generation.
    chains: HashMap<Anchor, Chain>,
    chain_order: VecDeque<Anchor>,
    /// The version that writes now has such lines, as far as it has come.
    has_request_lines: bool,
    shown: Option<Shown>,
    /// The logical request that is open, or was last.
    request: Option<OpenRequest>,
    requests: u64,
    ended: VecDeque<Ended>,
    /// A line since the last request could not be read; it may have been the next one.
    unread: bool,
    /// Requests known only by their error.
    lost: u64,
    early: Early,
    last: LastAnswer,
    /// The event that was said last: the next one has the same run, and mostly the same turn.
    event: Option<Box<Event>>,
    /// What is known of further runs in this file, the one that was left last at the end.
    others: Vec<Transcript>,
}

/// Further runs of a file that may go on where they were left.
const MOST_OTHERS: usize = 8;

/// The answer that came last.
#[derive(Default)]
struct LastAnswer {
    message_id: Option<Anchor>,
    /// It asks for no tool, and nothing was said since: nothing more is asked.
    ends_plainly: bool,
}

/// How the file began.
#[derive(Default)]
struct Begun {
    /// When its process took its first prompt, where that stands first.
    at: Option<DateTime<Utc>>,
    /// A line of the conversation has come.
    is_over: bool,
}

/// A prompt whose turn has not begun yet.
struct Prompt {
    turn: String,
    uuid: Option<String>,
    at: Option<DateTime<Utc>>,
    /// The program wrote it in the person's name.
    is_beside: bool,
}

/// Returns whether a `user` line says what a tool gave, in the form that has a member for it.
fn is_tool_result(record: &Object<'_>) -> bool {
    record.raw("toolUseResult").is_some()
}

const NO_RETRIES: &str = "this version's transcript does not show retries";

/// Returns whether a message says that the person interrupted: as its whole text, or as one of its parts. What a tool gave
/// may hold the same words.
pub(super) fn is_interrupt(message: &Object<'_>) -> bool {
    let content = message.raw("content").unwrap_or_default();
    let is_text = |block: &Object<'_>| {
        block.is("type", "text") && block.str("text").is_some_and(|text| text.starts_with(INTERRUPT))
    };
    content.strip_prefix('"').is_some_and(|text| text.starts_with(INTERRUPT))
        || may_interrupt(content.as_bytes())
            && message.objects("content").is_some_and(|blocks| blocks.iter().any(is_text))
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
        // Any record names the run, and may be the first of its process.
        if self.run.is_none() || !self.begun.is_over || matters(line) {
            self.record(place, line, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        self.tell_early(sink);
    }
}

impl Transcript {
    fn record(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let member = inner_member(line);
        let Some((record, inner)) = Object::parse_with(line, member) else {
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
        if self.was_copied(&kind, &record) {
            return;
        }
        // Most of a file are results of tools; what matters in them is only whether the person interrupted.
        if kind == "user"
            && is_tool_result(&record)
            && !record.raw("message").is_some_and(|message| may_interrupt(message.as_bytes()))
        {
            return;
        }
        if self.is_early(&kind, &record) {
            self.early.hold(place, record.time("timestamp"), line);
            return;
        }
        if self.early.is_before(&kind, record.time("timestamp")) {
            self.tell_early(sink);
        }
        let Some(run) = self.run.clone() else { return };
        let event = &mut self.event.take();
        let mut say = Say { place, run, at: record.time("timestamp"), event, sink };
        let inner = inner.unwrap_or_default();
        match &*kind {
            "user" => self.user(&record, &inner, &mut say),
            "api-request" if member == "params" => self.api_request(&record, &inner, &mut say),
            "api-request" => {
                let params = record.object("params").unwrap_or_default();
                self.api_request(&record, &params, &mut say);
            }
            "assistant" => self.assistant(&record, &inner, &mut say),
            "system" => self.system(&record, &mut say),
            "cost-state" => {
                let started_at = record.time("startTime");
                say.mark(&Mark::Facts(Facts { started_at, ..Facts::default() }));
            }
            _ => {}
        }
        self.event = event.take();
        if self.turn.is_some() || self.maybe_prompt.is_some() {
            self.tell_early(sink);
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
    /// The event that was said last, to be used again.
    event: &'a mut Option<Box<Event>>,
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
        let mut event = match self.event.take().filter(|event| *event.run_id == *self.run.id) {
            Some(mut event) => {
                event.body = body.into();
                event
            }
            None => Box::new(Event::new(&*self.run.id, DateTime::UNIX_EPOCH, body).agent(AGENT)),
        };
        event.ts = self.at;
        if event.turn.as_ref() != turn {
            event.turn = turn.cloned();
        }
        event.event_id = id;
        self.sink.item(self.place, Item::Event(&event, raw));
        *self.event = Some(event);
    }
}

impl Transcript {
    /// Returns whether a line is older than the process that began the file with its prompt: a fork copies the conversation
    /// so far with its times, and before 2.1.300 nothing else tells.
    fn was_copied(&mut self, kind: &str, record: &Object<'_>) -> bool {
        match kind {
            "queue-operation" if !self.begun.is_over && self.begun.at.is_none() => {
                self.begun.at = record.time("timestamp");
                false
            }
            "user" | "assistant" | "system" => {
                self.begun.is_over = true;
                let names_session = record.raw("requestSessionId").is_some();
                !names_session && record.time("timestamp").is_some_and(|at| Some(at) < self.begun.at)
            }
            _ => false,
        }
    }

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
        let is_new = !is_same && !self.switch(&key, sink);
        let is_other_version = version.is_some() && self.version.is_some() && version != self.version;
        self.version = version.or(self.version.take());
        let facts = Facts {
            agent_version: self.version.clone(),
            parent_run_id: agent_id.is_some().then(|| session.to_owned()),
            directory: record.string("cwd"),
            ..Facts::default()
        };
        if is_new {
            self.run = Some(key.clone());
            let mut say = Say { place, run: key.clone(), at: None, event: &mut None, sink };
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
            let mut say = Say { place, run: key.clone(), at: None, event: &mut None, sink };
            self.show(Shown::None, NO_RETRIES, &mut say);
        }
        sink.item(place, Item::Mark { run: &key, at: None, mark: &Mark::Facts(facts) });
    }

    /// Goes on with what is known of another run, which is nothing for a new one; returns whether there was something.
    fn switch(&mut self, key: &RunKey, sink: &mut dyn Sink) -> bool {
        if self.run.is_none() {
            return false;
        }
        self.tell_early(sink);
        let mut others = std::mem::take(&mut self.others);
        let known = others.iter().position(|other| other.run.as_ref() == Some(key));
        let next = known.map(|place| others.remove(place));
        let is_known = next.is_some();
        let before = std::mem::replace(self, next.unwrap_or_default());
        if self.prompts == 0 {
            // A copied answer may name another session than its prompt.
            self.asked_in.clone_from(&before.asked_in);
        }
        others.push(before);
        if others.len() > MOST_OTHERS {
            others.remove(0);
        }
        self.others = others;
        is_known
    }

    fn show(&mut self, attempts: Shown, because: &'static str, say: &mut Say<'_>) {
        if self.shown != Some(attempts) {
            self.shown = Some(attempts);
            say.mark(&Mark::Shows { source: Source::Foreground, requests: Shown::All, attempts, because });
        }
    }

    fn user(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let content = message.raw("content").unwrap_or("");
        if is_interrupt(message) {
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
        if is_side {
            self.rewrite();
        }
        self.last.ends_plainly = false;
        if is_tool_result || is_side || record.raw("message").is_none() {
            return;
        }
        self.prompts += 1;
        self.asked_in = record.string("sessionId");
        let (prompt_id, uuid) = (record.string("promptId"), record.string("uuid"));
        let has_id = prompt_id.is_some();
        // Without a prompt id the prompt's own line names the turn.
        let turn = prompt_id.or_else(|| uuid.clone()).unwrap_or_else(|| format!("#{}", self.prompts));
        let is_beside = is_beside(content);
        self.maybe_prompt = Some(Prompt { turn, uuid, at: say.at, is_beside });
        if !is_beside && (has_id || !self.has_prompt_ids) {
            self.begin_turn(say);
        }
        self.has_prompt_ids |= has_id;
    }

    /// The conversation is not what it was when the open request was asked.
    fn rewrite(&mut self) {
        if let Some(request) = &mut self.request {
            request.is_rewritten = true;
        }
    }

    /// Begins the turn of a prompt that was written down.
    fn begin_turn(&mut self, say: &mut Say<'_>) {
        let Some(Prompt { turn, uuid, at, .. }) = self.maybe_prompt.take() else { return };
        let turn = Some(turn);
        if self.turn != turn {
            self.close_request();
        }
        self.turn.clone_from(&turn);
        let now = std::mem::replace(&mut say.at, at);
        say.mark(&Mark::TurnStarted { turn });
        if let Some(uuid) = uuid {
            say.mark(&Mark::Anchor(Anchor::of(&uuid)));
        }
        say.at = now;
    }

    fn system(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        match record.str("subtype").as_deref() {
            Some("api_error") => self.api_error(record, say),
            Some("compact_boundary") => self.rewrite(),
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
}

#[cfg(test)]
mod tests;
