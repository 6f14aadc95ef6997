//! Session files: `sessions/<folder>/<time>_<session id>.jsonl`, and omp's sub-agent files beside them.
//!
//! A tree of entries in the order of writing; for counting, every assistant entry matters, also on dead branches. What was
//! on its way when the next prompt came is written after that, and hangs on the turn that it belongs to. A fork begins with copies of its parent's entries, which belong to the parent. omp writes its files anew; the caller then
//! starts over.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use chrono::{DateTime, SecondsFormat, Utc};
use memchr::memmem::Finder;
use retryscope_events::{AttemptOutcome, ModelAttempt, ModelRequest, Source};
use retryscope_record::{Facts, GapKind, Mark, Place, RunKey, Sink};

use super::Profile;
use super::answer::{Answer, stands_in};
use super::conversation::Conversation;
use crate::LineDecoder;
use crate::json::Object;
use crate::say::Say;

pub(super) struct Session {
    profile: Profile,
    /// Session id of the file beside whose folder this one lies.
    parent: Option<String>,
    /// The sub-agent that the file is named for.
    child: Option<String>,
    run: Option<RunKey>,
    /// Entries before this time are copies.
    copied_before: Option<DateTime<Utc>>,
    copied: u64,
    side_calls: u64,
    conversation: Conversation,
    branches: Branches,
}

/// Entries whose turn is remembered; what hangs on an older one counts to the open turn.
const ENTRY_LIMIT: usize = 4096;

/// To which turn each entry belongs: that of its own prompt, else that of the entry it hangs on.
#[derive(Default)]
struct Branches {
    turns: HashMap<String, Arc<str>>,
    order: VecDeque<String>,
}

impl Branches {
    /// Notes an entry, and returns its turn where the entries above it are known.
    fn note(&mut self, record: &Object<'_>, is_prompt: bool) -> Option<Arc<str>> {
        let id = record.string("id")?;
        let turn =
            if is_prompt { Arc::from(&*id) } else { self.turns.get(&*record.str("parentId")?)?.clone() };
        if self.turns.insert(id.clone(), turn.clone()).is_none() {
            self.order.push_back(id);
            if self.order.len() > ENTRY_LIMIT
                && let Some(oldest) = self.order.pop_front()
            {
                self.turns.remove(&oldest);
            }
        }
        Some(turn)
    }
}

impl Session {
    pub(super) fn new(profile: Profile, path: &Path) -> Self {
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let parent = folder.and_then(session_in_name);
        let child = parent.is_some().then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten();
        Self {
            profile,
            parent,
            child,
            run: None,
            copied_before: None,
            copied: 0,
            side_calls: 0,
            conversation: Conversation::new(profile),
            branches: Branches::default(),
        }
    }

    fn header(&mut self, place: Place, record: &Object<'_>, sink: &mut dyn Sink) {
        let Some(id) = record.string("id") else {
            sink.gap(place, GapKind::IncompleteRecord);
            return;
        };
        let id = match (&self.parent, &self.child) {
            (Some(parent), Some(child)) if *parent == id => format!("{parent}:{child}"),
            _ => id,
        };
        let run = RunKey::new(self.profile.agent(), &*id);
        if self.run.as_ref() != Some(&run) {
            self.conversation = Conversation::new(self.profile);
            self.branches = Branches::default();
        }
        self.run = Some(run.clone());
        let forked = record.string("parentSession").or_else(|| record.string("branchedFrom"));
        self.copied_before = forked.as_ref().and_then(|_| record.time("timestamp"));
        let facts = Facts {
            parent_run_id: self.parent.clone(),
            forked_from: forked
                .as_deref()
                .map(|file| session_in_name(file).unwrap_or_else(|| "unknown".to_owned())),
            directory: record.string("cwd"),
            ..Facts::default()
        };
        let mut say = Say { run, place, at: record.time("timestamp"), turn: None, step: None, sink };
        say.mark(&Mark::Facts(facts));
    }

    /// The context was made shorter: what failed before is asked again as another request.
    fn compaction(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let turn = self.branches.note(record, false);
        let at = say.at;
        self.at_turn(turn.as_deref(), say, |conversation, say| conversation.advance(at, say));
    }

    fn message(&mut self, record: &Object<'_>, message: Option<&Object<'_>>, say: &mut Say<'_>) {
        let role = message.and_then(|message| message.str("role"));
        let is_synthetic = || message.is_some_and(|message| message.bool("synthetic") == Some(true));
        let is_prompt = role.as_deref() == Some("user") && !is_synthetic();
        let turn = self.branches.note(record, is_prompt);
        let Some(message) = message else { return };
        let appended = say.at;
        match role.as_deref() {
            Some("system") => self.conversation.system(say),
            Some("user") if is_prompt => {
                self.conversation.user(record.string("id"), message.u64("timestamp"), say);
            }
            Some("user") => {
                let at = message.time("timestamp");
                self.at_turn(turn.as_deref(), say, |conversation, say| conversation.advance(at, say));
            }
            Some("toolResult") if stands_in(message) => {}
            Some("toolResult") => {
                let at = message.time("timestamp").or(appended);
                self.at_turn(turn.as_deref(), say, |conversation, say| conversation.advance(at, say));
            }
            Some("assistant") => {
                if let Some(answer) = Answer::parse(message) {
                    self.at_turn(turn.as_deref(), say, |conversation, say| {
                        conversation.answer(&answer, appended, say);
                    });
                }
            }
            _ => {}
        }
    }

    /// Does something in the turn that an entry belongs to.
    fn at_turn(
        &mut self,
        turn: Option<&str>,
        say: &mut Say<'_>,
        act: impl Fn(&mut Conversation, &mut Say<'_>),
    ) {
        let earlier = turn.filter(|turn| !self.conversation.is_open(turn));
        if !earlier.is_some_and(|turn| self.conversation.in_past(turn, say, &act)) {
            act(&mut self.conversation, say);
        }
    }

    /// A request beside the conversation.
    fn side_call(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        self.side_calls += 1;
        let id = format!("#side{}", self.side_calls);
        let purpose = record.string("purpose").or_else(|| record.string("kind")).unwrap_or_default();
        say.event(ModelRequest::new().request_id(id.clone()).source(Source::Background).purpose(purpose));
        let error = record.string("errorMessage");
        let mut attempt = ModelAttempt::new().request_id(id).attempt_id("1");
        attempt.outcome = Some(if error.is_some() { AttemptOutcome::Failed } else { AttemptOutcome::Ok });
        attempt.status = error.as_deref().and_then(super::answer::status_in);
        attempt.message = error;
        say.event(attempt);
    }
}

/// Entries that say nothing about requests, known by their beginning so that they are not parsed.
fn is_other(line: &[u8]) -> bool {
    const OTHERS: &[&[u8]] =
        &[b"label\"", b"session_info\"", b"title_change\"", b"thinking_level_change\"", b"mode_change\""];
    static TYPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"type\":\""));
    let head = &line[..line.len().min(64)];
    TYPE.find_iter(head).any(|at| {
        let name = &head[at + TYPE.needle().len()..];
        OTHERS.iter().any(|kind| name.starts_with(kind))
    })
}

impl LineDecoder for Session {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if is_other(line) {
            return;
        }
        let Some((record, message)) = Object::parse_with(line, "message") else {
            if !line.iter().all(u8::is_ascii_whitespace) {
                sink.gap(place, GapKind::InvalidJson);
            }
            return;
        };
        let Some(kind) = record.str("type") else { return };
        if kind == "session" {
            self.header(place, &record, sink);
            return;
        }
        let Some(run) = self.run.clone() else { return };
        let at = record.time("timestamp");
        let mut say = Say { run, place, at, turn: None, step: None, sink };
        if at.zip(self.copied_before).is_some_and(|(at, fork)| at < fork) {
            if let (0, Some(fork)) = (self.copied, self.copied_before) {
                let fork = fork.to_rfc3339_opts(SecondsFormat::Secs, true);
                say.mark(&Mark::BlindSpot(format!(
                    "the entries before {fork} are copies from the session it was forked from, and count there"
                )));
            }
            self.copied += 1;
            if kind == "message" && message.is_some_and(|message| message.is("role", "system")) {
                self.conversation.system(&mut say);
            }
            return;
        }
        let turn = if matches!(&*kind, "message" | "compaction") {
            None
        } else {
            self.branches.note(&record, false)
        };
        match &*kind {
            "message" => self.message(&record, message.as_ref(), &mut say),
            "compaction" => self.compaction(&record, &mut say),
            "context_edit" => self.conversation.dropped(&mut say),
            "usage" | "model_usage" => self.side_call(&record, &mut say),
            "custom" if record.is("customType", "openclaw:prompt-error") => {
                let error = record.object("data").and_then(|data| data.string("error"));
                self.at_turn(turn.as_deref(), &mut say, |conversation, say| {
                    conversation.prompt_failed(error.clone(), say);
                });
            }
            "custom" if record.is("customType", "session_exit") => {
                let data = record.object("data").unwrap_or_default();
                if data.is("kind", "signal") {
                    self.conversation.cancel(data.string("reason"), &mut say);
                } else {
                    self.conversation.process_over(&mut say);
                }
            }
            _ => {}
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
        }
    }
}

/// `<time>_<session id>`, with or without an ending.
fn session_in_name(name: &str) -> Option<String> {
    let name = name.rsplit(['/', '\\']).next()?;
    let stem = name.strip_suffix(".jsonl").unwrap_or(name);
    let (_, id) = stem.split_once('_')?;
    let is_id = id.len() >= 32 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_id.then(|| id.to_owned())
}

#[cfg(test)]
mod tests;
