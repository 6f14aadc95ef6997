//! The last line of a process: how its turn ended, and what no other line said.
//!
//! Not for: requests and answers (see the module above).

use chrono::{DateTime, Utc};
use retryscope_events::ModelFailed;
use retryscope_record::{Anchor, Facts, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use super::{CANCELLED, ONLY_RESULT, Say, Session, Stdout};
use crate::claude_code::transcript::{is_of_the_program, status_in};
use crate::json::Object;

/// How a turn ended.
pub(super) struct EndOfTurn {
    outcome: TurnOutcome,
    reason: Option<String>,
    message: Option<String>,
}

/// A result that came when another turn than its own had begun, until the next line tells.
pub(super) struct Late {
    place: Place,
    run: RunKey,
    at: Option<DateTime<Utc>>,
    end: EndOfTurn,
}

impl Stdout {
    pub(super) fn result(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        let session = self.now();
        // While subagents work, results wait for them: the first one is of the turn that was left without.
        let is_of_earlier = session.without_result > 0 && record.raw("result_index").is_some();
        session.without_result = session.without_result.saturating_sub(1);
        session.ensure_turn(say);
        if is_of_earlier {
            self.late =
                Some(Late { place: say.place, run: say.run.clone(), at: say.at, end: end_of(record, false) });
            return;
        }
        self.late = None;
        let session = self.now();
        let EndOfTurn { outcome, reason, message } = end_of(record, session.is_interrupted);
        if session.asked_nothing(record) {
            if !session.is_announced {
                session.show(Shown::All, Shown::None, ONLY_RESULT, say);
            }
        } else if outcome == TurnOutcome::Cancelled && session.main.requests == session.asked_before {
            session.show(Shown::Some, Shown::None, CANCELLED, say);
        } else if session.main.requests == 0
            || !session.is_announced && session.main.requests == session.asked_before
        {
            // `--output-format json` has no other line; it does not show how many steps the answer took.
            session.show(Shown::Some, Shown::None, ONLY_RESULT, say);
            session.main.ensure(say);
        }
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

    /// Says the end that no other result followed: it was of the turn before it.
    pub(super) fn release_late(&mut self, sink: &mut dyn Sink) {
        let Some(Late { place, run, at, end }) = self.late.take() else { return };
        let EndOfTurn { outcome, reason, message } = end;
        Say { place, run, at, sink }.mark(&Mark::TurnEnded { turn: None, outcome, reason, message });
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
    /// Returns whether a turn ended before it asked for anything.
    fn asked_nothing(&self, result: &Object<'_>) -> bool {
        let no_turns = result.u64("num_turns") == Some(0) && result.u64("duration_api_ms").unwrap_or(0) == 0;
        let refused = || {
            result.bool("is_error") == Some(true)
                && result.str("result").is_some_and(|text| is_of_the_program(&text))
        };
        self.main.requests == self.asked_before && (no_turns || refused())
    }
}

/// Returns how a result says that its turn ended.
fn end_of(record: &Object<'_>, is_interrupted: bool) -> EndOfTurn {
    let is_error = record.bool("is_error") == Some(true);
    let subtype = record.string("subtype");
    let reason = record.string("terminal_reason").or_else(|| subtype.clone());
    let failed = is_error || subtype.as_deref().is_some_and(|s| s.starts_with("error"));
    let errors = errors_of(record);
    // Versions that give no reason say it in the person's name, or as an error.
    let was_aborted = is_interrupted || errors.iter().any(|error| error.contains("Request was aborted"));
    let outcome = match reason.as_deref() {
        Some(reason) if reason.starts_with("aborted") => TurnOutcome::Cancelled,
        _ if failed && was_aborted => TurnOutcome::Cancelled,
        _ if failed => TurnOutcome::Failed,
        _ => TurnOutcome::Succeeded,
    };
    let text = if is_error { record.string("result") } else { None };
    let message = text.or_else(|| Some(errors.join("; ")).filter(|text| failed && !text.is_empty()));
    EndOfTurn { outcome, reason, message }
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
