//! The session file ("rollout"): prompts, answers with their tokens, the end of a turn with its last error.
//!
//! It has no record of a retry. What follows from it by rule: a stream that was opened and died leaves a `token_count`
//! without a usage record (0.171), or a second `turn_context` (0.60 to 0.135). Prompts, instructions and tool output are
//! skipped unread.

mod ask;
mod lines;
mod origin;

use chrono::{DateTime, Utc};
use retryscope_events::Source;
use retryscope_record::{Facts, GapKind, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use self::ask::Asking;
use self::origin::Origin;
use super::error::{Told, may_end_turn};
use super::say::Say;
use super::{AGENT, at_least, fields};
use crate::LineDecoder;
use crate::json::Object;

/// Reads a rollout.
pub(super) struct Rollout {
    origin: Origin,
    /// The run of the record before: nearly always that of the next one too.
    run: Option<RunKey>,
    version: Option<String>,
    /// The running turn.
    turn: Option<String>,
    /// Turns without an id of their own.
    prompts: u64,
    /// The program gives its turns ids.
    has_turn_ids: bool,
    asking: Asking,
    /// An error that the program told in the running turn, and nothing of an answer after it.
    error: Option<Told>,
    review: Review,
    /// The turn left no record but its beginning.
    is_empty: bool,
}

/// A review, in a thread and a file of its own.
#[derive(Default)]
struct Review {
    /// It was entered and not left.
    runs: bool,
    /// The running turn let the other thread work.
    is_delegated: bool,
}

impl Review {
    /// Returns whether the other thread asks for the running turn.
    fn is_lent(&self) -> bool {
        self.runs || self.is_delegated
    }
}

impl Rollout {
    /// Returns a decoder; the file's name tells the thread.
    pub(super) fn new(named: Option<String>) -> Self {
        Self {
            origin: Origin::new(named),
            run: None,
            version: None,
            turn: None,
            prompts: 0,
            has_turn_ids: false,
            asking: Asking::default(),
            error: None,
            review: Review::default(),
            is_empty: false,
        }
    }
}

impl LineDecoder for Rollout {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if let Some((record, payload)) = lines::beginning(line) {
            self.parsed(place, &record, Some(payload), sink);
        } else if let Some((record, payload)) = Object::parse_with(line, "payload") {
            self.parsed(place, &record, payload, sink);
        } else {
            sink.gap(place, GapKind::InvalidJson);
        }
    }
}

impl Rollout {
    fn parsed(
        &mut self,
        place: Place,
        record: &Object<'_>,
        payload: Option<Object<'_>>,
        sink: &mut dyn Sink,
    ) {
        let Some(kind) = record.str("type") else { return };
        let at = record.time("timestamp");
        let Some(payload) = payload else {
            if kind == "session_meta" {
                sink.gap(place, GapKind::IncompleteRecord);
            }
            return;
        };
        if kind == "session_meta" {
            self.meta(place, at, &payload, sink);
            return;
        }
        let turn = fields::turn_id(&payload);
        // Taken over from another thread, or of no thread at all.
        let Some(thread) = self.origin.of_record(at, turn.as_deref()) else {
            self.asking.skip(&payload);
            return;
        };
        let run = match self.run.take().filter(|run| *run.id == *thread) {
            Some(same) => same,
            None => RunKey::new(AGENT, thread),
        };
        let was_lent = self.review.is_lent();
        let is_elsewhere = kind == "event_msg" && self.is_elsewhere(&run.id, turn.as_deref(), &payload);
        self.run = Some(run.clone());
        let mut say = Say { place, run, at, turn: None, sink };
        if self.review.is_lent() && !was_lent {
            if !self.has_turn_ids {
                // Versions whose turns have no ids write no end of this one.
                say.mark(&Mark::EndsUntold);
            }
            say.mark(&Mark::AskedElsewhere);
        }
        if is_elsewhere {
            return;
        }
        self.enter(turn, &kind, &mut say);
        self.record(&kind, &payload, &mut say);
    }

    fn meta(&mut self, place: Place, at: Option<DateTime<Utc>>, payload: &Object<'_>, sink: &mut dyn Sink) {
        let Some(id) = payload.string("id") else {
            sink.gap(place, GapKind::IncompleteRecord);
            return;
        };
        let foreign = !self.origin.meta(&id, at);
        let Some(thread) = self.origin.thread().map(str::to_owned) else { return };
        let mut say = Say::new(place, &thread, at, sink);
        if foreign {
            // The metadata of the thread whose history stands in this file.
            say.mark(&Mark::Facts(Facts { forked_from: Some(id), ..Facts::default() }));
            return;
        }
        if self.origin.changed() {
            self.turn = None;
            self.has_turn_ids = false;
            self.asking = Asking::default();
            self.error = None;
            self.review = Review::default();
        }
        self.version = payload.string("cli_version");
        let facts = Facts {
            agent_version: self.version.clone(),
            parent_run_id: parent_of(payload),
            forked_from: payload.string("forked_from_id"),
            provider: payload.string("model_provider"),
            started_at: payload.time("timestamp"),
            directory: payload.string("cwd"),
            ..Facts::default()
        };
        self.asking.version(self.version.as_deref());
        self.asking.provider(facts.provider.clone());
        say.mark(&Mark::Facts(facts));
        let because = "the session file of codex has no record of a retry, only the last error of a turn";
        for (source, requests) in [(Source::Foreground, Shown::All), (Source::Background, Shown::None)] {
            say.mark(&Mark::Shows { source, requests, attempts: Shown::None, because });
        }
    }

    /// Returns whether a record is about the turn of another thread that works for this one: a review.
    fn is_elsewhere(&mut self, thread: &str, turn: Option<&str>, payload: &Object<'_>) -> bool {
        match payload.str("type").as_deref() {
            // The words of versions that do not name the thread.
            Some("entered_review_mode") => self.review.runs = true,
            Some("exited_review_mode" | "task_complete" | "turn_aborted") => self.review.runs = false,
            Some("task_started") => {
                let root = payload.str("root_turn_id");
                let is_for_ours =
                    root.is_some() && root.as_deref() == self.turn.as_deref() && root.as_deref() != turn;
                let is_elsewhere = self.review.runs || is_for_ours;
                self.review.is_delegated |= is_elsewhere;
                return is_elsewhere;
            }
            // What the other thread is asked is told here too.
            Some("user_message") => return self.review.runs,
            Some("item_completed") => {
                return payload.str("thread_id").is_some_and(|named| named != thread);
            }
            _ => {}
        }
        false
    }

    /// Puts a record into its turn.
    fn enter(&mut self, turn: Option<String>, kind: &str, say: &mut Say<'_>) {
        if let Some(turn) = turn.filter(|turn| self.turn.as_ref() != Some(turn))
            && matches!(kind, "event_msg" | "turn_context" | "token_usage_record")
        {
            self.has_turn_ids = true;
            self.start(turn, say);
        }
        say.turn.clone_from(&self.turn);
    }

    fn start(&mut self, turn: String, say: &mut Say<'_>) {
        self.asking.leave(say);
        self.error = None;
        self.is_empty = true;
        self.turn = Some(turn);
        say.turn.clone_from(&self.turn);
        say.mark(&Mark::TurnStarted { turn: self.turn.clone() });
    }

    fn record(&mut self, kind: &str, payload: &Object<'_>, say: &mut Say<'_>) {
        let is_bound = ["task_started", "task_complete"].iter().any(|bound| payload.is("type", bound));
        self.is_empty &= is_bound;
        match kind {
            "turn_context" => {
                if self.turn.is_none() {
                    self.prompt(say);
                }
                self.asking.context(payload.string("model"), say);
            }
            "token_usage_record" => {
                self.error = None;
                self.asking.usage_record(payload, say);
            }
            "compacted" => {
                self.asking.compacted(payload.str("compaction_response_id").as_deref(), say);
            }
            "response_item" => self.item(payload, say),
            "event_msg" => self.message(payload, say),
            _ => {}
        }
    }

    fn item(&mut self, payload: &Object<'_>, say: &mut Say<'_>) {
        let Some(kind) = payload.str("type") else { return };
        if self.turn.is_none() {
            return;
        }
        // The turn went on.
        self.error = None;
        match &*kind {
            "message" if payload.is("role", "assistant") => self.asking.said(say),
            "message" if payload.is("role", "user") => self.asking.prompted(say),
            "message" => self.asking.quiet(say),
            "function_call" | "custom_tool_call" | "local_shell_call" => {
                say.anchor(payload.str("call_id"));
                self.asking.called(say);
            }
            "reasoning" | "web_search_call" => self.asking.said_in_part(say),
            kind if kind.ends_with("_output") => self.asking.result(say),
            _ => {}
        }
        if !self.has_turn_ids && self.asking.is_answered() {
            let outcome = TurnOutcome::Succeeded;
            say.mark(&Mark::TurnEnded { turn: self.turn.clone(), outcome, reason: None, message: None });
        }
    }

    fn message(&mut self, payload: &Object<'_>, say: &mut Say<'_>) {
        match payload.str("type").as_deref() {
            // Where turns have ids, a prompt may also join the turn that is running.
            Some("user_message") if !self.has_turn_ids => self.prompt(say),
            Some("token_count") => {
                self.asking.token_count(payload, say);
                if !self.has_turn_ids && self.turn.is_some() && self.asking.is_answered() {
                    let outcome = TurnOutcome::Succeeded;
                    say.mark(&Mark::TurnEnded {
                        turn: self.turn.clone(),
                        outcome,
                        reason: None,
                        message: None,
                    });
                }
            }
            Some("error") if self.turn.is_some() => {
                let info = payload.raw("codex_error_info");
                if may_end_turn(info) {
                    self.error =
                        Some(Told::of(&payload.string("message").unwrap_or_default()).with_info(info));
                }
            }
            Some("task_complete") => self.complete(payload, say),
            Some("turn_aborted") => {
                self.review.is_delegated = false;
                self.asking.aborted(say);
                let turn = self.turn.take();
                let (outcome, reason) = (TurnOutcome::Cancelled, payload.string("reason"));
                say.mark(&Mark::TurnEnded { turn, outcome, reason, message: None });
            }
            Some("thread_settings_applied") => {
                if let Some(settings) = payload.object("thread_settings") {
                    self.asking.settings(&settings);
                }
            }
            Some("item_completed" | "user_message" | "agent_message") => self.asking.quiet(say),
            _ => {}
        }
    }

    /// A prompt of a version whose turns have no ids.
    fn prompt(&mut self, say: &mut Say<'_>) {
        self.prompts += 1;
        // Answers and aborts show; of a turn that failed there is no record.
        say.mark(&Mark::EndsUntold);
        self.start(format!("#rollout:{}", self.prompts), say);
    }

    fn complete(&mut self, payload: &Object<'_>, say: &mut Say<'_>) {
        let turn = self.turn.take();
        let is_delegated = std::mem::take(&mut self.review.is_delegated);
        if let Some(error) = payload.object("error") {
            let message = error.string("message").unwrap_or_default();
            let told = Told::of(&message).with_info(error.raw("codex_error_info"));
            if is_delegated {
                // The other thread asked, and its file tells; the history database takes the error for this one's.
                Asking::hide("the session file does not say whose request failed", say);
                let (outcome, reason, message) = (TurnOutcome::Failed, told.code, Some(told.message));
                say.mark(&Mark::TurnEnded { turn, outcome, reason, message });
            } else {
                self.fail(turn, told, say);
            }
            return;
        }
        // Before 0.146 an end says nothing of an error; then a request without an answer is one.
        let tells = match self.version.as_deref() {
            Some(version) => at_least(Some(version), 0, 146),
            None => self.asking.has_usage_records(),
        };
        let silent = payload.raw("last_agent_message").is_none();
        if let Some(told) = self.error.take().filter(|_| !tells && silent) {
            self.fail(turn, told, say);
            return;
        }
        if !tells && silent && self.asking.is_open() {
            self.asking.failed(&Told::default(), say);
            let (outcome, reason) = (TurnOutcome::Failed, None);
            say.mark(&Mark::TurnEnded { turn, outcome, reason, message: None });
            return;
        }
        if !tells && silent && self.is_empty && !is_delegated {
            // A summary that a person asked for and did not get looks like this.
            Asking::hide("the session file has a turn without a record of what it did", say);
            let outcome = TurnOutcome::Unknown;
            say.mark(&Mark::TurnEnded { turn, outcome, reason: None, message: None });
            return;
        }
        self.asking.succeeded(!silent, say);
        let outcome = TurnOutcome::Succeeded;
        say.mark(&Mark::TurnEnded { turn, outcome, reason: None, message: None });
    }
}

impl Rollout {
    /// The turn ended with an error.
    fn fail(&mut self, turn: Option<String>, told: Told, say: &mut Say<'_>) {
        self.asking.failed(&told, say);
        let (outcome, message) = (TurnOutcome::Failed, Some(told.message).filter(|text| !text.is_empty()));
        say.mark(&Mark::TurnEnded { turn, outcome, reason: told.code, message });
    }
}

/// A subagent's metadata names the thread that started it, in one of several forms.
fn parent_of(payload: &Object<'_>) -> Option<String> {
    let direct = payload.string("parent_thread_id");
    direct.or_else(|| {
        let source = payload.object("source")?;
        let subagent = source.object("subagent").or_else(|| source.object("sub_agent"))?;
        subagent.object("thread_spawn")?.string("parent_thread_id")
    })
}

#[cfg(test)]
mod tests;
