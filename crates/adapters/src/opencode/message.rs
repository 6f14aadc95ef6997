//! A stored message: the same object in the database, the JSON tree and the event stream.
//!
//! An assistant message is one logical request; it holds how that ended and no attempt. Where a stream broke after output
//! had begun, its parts have one `step-start` too many.

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptOutcome, Candidate, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, Source, Usage,
};
use retryscope_record::{Mark, RawFailure, Shown, TurnOutcome};

use crate::json::Object;
use crate::say::Say;

/// Parts of an assistant message that bear on attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) started: u64,
    pub(super) finished: u64,
    /// When the output of the last attempt began.
    pub(super) last_started: Option<DateTime<Utc>>,
    /// It holds what a tool gave.
    pub(super) has_tool: bool,
}

pub(super) const NO_RETRIES: &str =
    "opencode stores no retry: a request that was repeated looks like one that was not";

const CANCELLED: &str =
    "opencode stores a message that was cancelled before anything came alike, sent or not";
const BEGUN: &str = "opencode stores a message before it sends anything for it";

/// Orphans that are told one by one; more than that is no message of a real run.
const ORPHAN_LIMIT: u64 = 1000;

/// What an assistant message says.
#[derive(Debug)]
pub(super) struct Assistant<'a> {
    pub(super) id: &'a str,
    pub(super) turn: Option<String>,
    pub(super) candidate: Candidate,
    pub(super) created: Option<DateTime<Utc>>,
    pub(super) completed: Option<DateTime<Utc>>,
    pub(super) finish: Option<String>,
    pub(super) purpose: Option<String>,
    pub(super) error: Option<Object<'a>>,
    pub(super) usage: Option<Usage>,
}

impl<'a> Assistant<'a> {
    pub(super) fn parse(id: &'a str, info: &Object<'a>) -> Self {
        let time = info.object("time").unwrap_or_default();
        Self {
            id,
            turn: info.string("parentID"),
            candidate: candidate(info),
            created: time.time("created"),
            completed: time.time("completed"),
            finish: info.string("finish"),
            purpose: info.string("agent").or_else(|| info.string("mode")),
            error: info.object("error"),
            usage: info.object("tokens").map(|tokens| usage_of(&tokens, info)),
        }
    }

    /// Says what the message says. The attempts told are a lower bound.
    pub(super) fn say(&self, steps: Steps, say: &mut Say<'_>) {
        say.turn.clone_from(&self.turn);
        if self.is_of_the_person(steps) {
            return;
        }
        if let Some(because) = self.may_be_unsent(steps) {
            say.at = self.completed.or(self.created);
            shows(Shown::Some, because, say);
            let end = self.end_of_turn();
            if let Some((outcome, reason, message)) = end {
                say.mark(&Mark::TurnEnded { turn: self.turn.clone(), outcome, reason, message });
            }
            shows(Shown::All, NO_RETRIES, say);
            return;
        }
        say.at = self.created;
        let mut request = ModelRequest::new()
            .request_id(self.id)
            .source(Source::Foreground)
            .candidate(self.candidate.clone());
        request.purpose.clone_from(&self.purpose);
        say.event(request);
        let attempt = |number: u64| {
            ModelAttempt::new()
                .request_id(self.id)
                .attempt_id(format!("{}.{number}", self.id))
                .candidate(self.candidate.clone())
        };
        let broken = steps.started.saturating_sub(steps.finished).min(ORPHAN_LIMIT);
        let answered = self.error.is_none() && self.finish.is_some();
        // The attempt whose step-start is the last orphan is the one that failed in the end, or is still at work.
        let before = if answered { broken } else { broken.saturating_sub(1) };
        for number in 1..=before {
            let mut orphan = attempt(number);
            orphan.outcome = Some(AttemptOutcome::Failed);
            orphan.output_started = Some(true);
            say.event(orphan);
        }
        let mut last = attempt(before + 1);
        last.output_started = (steps.started > 0).then_some(true);
        say.event(last);
        say.at = self.completed.or(self.created);
        if let Some(error) = &self.error {
            self.say_error(error, say);
        } else if answered {
            let mut response = ModelResponse::new().request_id(self.id);
            response.stop_reason.clone_from(&self.finish);
            response.usage.clone_from(&self.usage);
            say.event(response);
        } else if self.completed.is_some() {
            // Over without an answer and without an error of its own: a compaction takes its place.
            say.event(ModelFailed::new().request_id(self.id));
        }
        // An answer's last attempt had been sent before its output; a failed one before the end.
        let sent_by = if answered { steps.last_started.or(self.completed) } else { self.completed };
        if sent_by.is_some() {
            say.at = sent_by;
            say.mark(&Mark::SentBy { request_id: self.id.to_owned() });
            say.at = self.completed;
        }
        if let Some((outcome, reason, message)) = self.end_of_turn() {
            say.mark(&Mark::TurnEnded { turn: self.turn.clone(), outcome, reason, message });
        }
    }

    /// Returns whether it holds a command that the person ran: a model's call of a tool stands in a step.
    fn is_of_the_person(&self, steps: Steps) -> bool {
        steps.has_tool && steps.started == 0 && self.finish.is_none() && self.error.is_none()
    }

    /// Returns why nothing may have been sent for it: the person stopped it before anything came, or nothing stands in it
    /// yet.
    fn may_be_unsent(&self, steps: Steps) -> Option<&'static str> {
        let because = match &self.error {
            Some(error) => is_abort(error).then_some(CANCELLED),
            None => (self.finish.is_none() && self.completed.is_none()).then_some(BEGUN),
        };
        because.filter(|_| steps == Steps::default())
    }

    fn say_error(&self, error: &Object<'_>, say: &mut Say<'_>) {
        if is_abort(error) {
            return;
        }
        let (failed, raw) = failure(error);
        say.failure(failed.request_id(self.id), raw.as_ref());
    }

    /// An answer without tool calls ends the turn; so does an error. An end without a reason is asked again.
    fn end_of_turn(&self) -> Option<(TurnOutcome, Option<String>, Option<String>)> {
        if let Some(error) = &self.error {
            let name = error.string("name");
            if is_abort(error) {
                return Some((TurnOutcome::Cancelled, name, None));
            }
            let message = error.object("data").and_then(|data| data.string("message"));
            return Some((TurnOutcome::Failed, name, message));
        }
        let finish = self.finish.as_deref()?;
        let is_summary = self.purpose.as_deref() == Some("compaction");
        let over =
            self.completed.is_some() && !matches!(finish, "tool-calls" | "unknown" | "error") && !is_summary;
        over.then(|| (TurnOutcome::Succeeded, self.finish.clone(), None))
    }
}

/// Says how many of the requests stored messages show.
pub(super) fn shows(requests: Shown, because: &'static str, say: &mut Say<'_>) {
    say.mark(&Mark::Shows { source: Source::Foreground, requests, attempts: Shown::None, because });
}

fn is_abort(error: &Object<'_>) -> bool {
    error.is("name", "MessageAbortedError")
}

/// Returns the end that an error object states, and what only serves to classify it.
pub(super) fn failure(error: &Object<'_>) -> (ModelFailed, Option<RawFailure>) {
    let data = error.object("data").unwrap_or_default();
    let mut failed = ModelFailed::new();
    failed.message = data.string("message").or_else(|| error.string("message"));
    failed.status = data.status("statusCode").or_else(|| native_status(failed.message.as_deref()?));
    failed.code = error.string("name").filter(|name| name != "APIError" && name != "UnknownError");
    (failed, raw_of(&data))
}

/// The status of an answer as opencode's native runtime puts it into its text; it has no member of its own there.
fn native_status(text: &str) -> Option<u16> {
    let text = text.strip_prefix("RequestExecutor.execute: ").unwrap_or(text);
    let digits = text.strip_prefix("Provider request failed with HTTP ")?.get(..3)?;
    digits.parse().ok().filter(|status| (100..600).contains(status))
}

/// Headers and body of an answer, only to classify.
pub(super) fn raw_of(data: &Object<'_>) -> Option<RawFailure> {
    let headers = data.object("responseHeaders");
    let body = data.string("responseBody");
    if headers.is_none() && body.is_none() {
        return None;
    }
    let headers = headers.iter().flat_map(Object::members);
    let headers = headers.filter_map(|(name, value)| {
        Some((name.to_ascii_lowercase(), crate::json::text(value)?.into_owned()))
    });
    Some(RawFailure { headers: headers.collect(), body })
}

pub(super) fn candidate(info: &Object<'_>) -> Candidate {
    Candidate { provider: info.string("providerID"), model: info.string("modelID"), ..Candidate::default() }
}

pub(super) fn candidate_of(provider: Option<&str>, model: Option<&str>) -> Candidate {
    Candidate {
        provider: provider.map(str::to_owned),
        model: model.map(str::to_owned),
        ..Candidate::default()
    }
}

pub(super) fn usage_of(tokens: &Object<'_>, beside: &Object<'_>) -> Usage {
    Usage {
        input_tokens: tokens.u64("input"),
        output_tokens: tokens.u64("output"),
        cached_input_tokens: tokens.object("cache").and_then(|cache| cache.u64("read")),
        reasoning_tokens: tokens.u64("reasoning"),
        cost_usd: beside.f64("cost"),
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Place, RunKey, Statement};

    use super::*;

    fn say(info: &str, steps: Steps) -> Vec<String> {
        let mut sink = Collected::default();
        let info = Object::parse(info.as_bytes()).unwrap();
        let mut say = Say {
            run: RunKey::new("opencode", "ses_1"),
            place: Place::Whole,
            at: None,
            turn: None,
            step: None,
            sink: &mut sink,
        };
        Assistant::parse("msg_1", &info).say(steps, &mut say);
        let name = |item: Statement| match item {
            Statement::Event(event, _) => Some(event.body.kind().to_owned()),
            Statement::Mark { mark: Mark::TurnEnded { outcome, .. }, .. } => Some(format!("{outcome:?}")),
            Statement::Mark { .. } => None,
        };
        sink.items.into_iter().filter_map(|(_, item)| name(item)).collect()
    }

    const DONE: &str =
        r#"{"parentID":"msg_0","time":{"created":1795985483029,"completed":1795985587491},"finish":"stop"}"#;

    #[test]
    fn a_step_start_too_many_is_an_attempt_that_broke() {
        let broken = say(DONE, Steps { started: 2, finished: 1, ..Steps::default() });
        assert_eq!(
            broken,
            ["model.request", "model.attempt", "model.attempt", "model.response", "Succeeded"]
        );
        let clean = say(DONE, Steps { started: 1, finished: 1, ..Steps::default() });
        assert_eq!(clean.len(), 4);
    }

    #[test]
    fn an_orphan_of_a_failed_message_is_the_failure_itself() {
        let info = r#"{"time":{"completed":1795985587491},"error":{"name":"APIError","data":{"message":"m","statusCode":500}}}"#;
        let said = say(info, Steps { started: 1, finished: 0, ..Steps::default() });
        assert_eq!(said, ["model.request", "model.attempt", "model.failed", "Failed"]);
    }

    #[test]
    fn an_end_without_a_reason_does_not_end_the_turn() {
        let info = DONE.replace("stop", "unknown");
        assert_eq!(say(&info, Steps::default()), ["model.request", "model.attempt", "model.response"]);
    }

    #[test]
    fn only_the_error_is_taken_from_an_error() {
        let error = r#"{"name":"APIError","data":{"message":"busy","statusCode":503,"responseHeaders":{"Retry-After":"3"},"responseBody":"b"}}"#;
        let (failed, raw) = failure(&Object::parse(error.as_bytes()).unwrap());
        assert_eq!((failed.status, failed.message.as_deref(), failed.code), (Some(503), Some("busy"), None));
        assert_eq!(raw.unwrap().headers, [("retry-after".to_owned(), "3".to_owned())]);
    }

    #[test]
    fn what_the_person_ran_is_no_request() {
        let ran = r#"{"parentID":"msg_0","time":{"created":1795985483029,"completed":1795985587491}}"#;
        let has_tool = Steps { has_tool: true, ..Steps::default() };
        assert!(say(ran, has_tool).is_empty());
        // Near misses: a model's call stands in a step; what has no part of a tool was asked.
        let called = Steps { started: 1, ..has_tool };
        assert_eq!(say(ran, called), ["model.request", "model.attempt", "model.failed"]);
        assert_eq!(say(ran, Steps::default()), ["model.request", "model.attempt", "model.failed"]);
    }

    #[test]
    fn what_was_cancelled_before_anything_came_may_not_have_been_sent() {
        let info = r#"{"time":{"completed":1795985587491},"error":{"name":"MessageAbortedError","data":{}}}"#;
        assert_eq!(say(info, Steps::default()), ["Cancelled"]);
        // Near miss: output had begun.
        let begun = Steps { started: 1, ..Steps::default() };
        assert_eq!(say(info, begun), ["model.request", "model.attempt", "Cancelled"]);
    }

    #[test]
    fn what_holds_nothing_yet_may_not_have_been_sent() {
        let info = r#"{"parentID":"msg_0","time":{"created":1795985483029}}"#;
        assert!(say(info, Steps::default()).is_empty());
        // Near misses: output began, or it is over.
        let begun = Steps { started: 1, ..Steps::default() };
        assert_eq!(say(info, begun), ["model.request", "model.attempt"]);
        let over = r#"{"parentID":"msg_0","time":{"created":1795985483029,"completed":1795985587491}}"#;
        assert_eq!(say(over, Steps::default()), ["model.request", "model.attempt", "model.failed"]);
    }

    #[test]
    fn the_native_runtime_puts_the_status_into_the_text() {
        let status = |text: &str| {
            let error = format!(r#"{{"name":"UnknownError","data":{{"message":"{text}"}}}}"#);
            failure(&Object::parse(error.as_bytes()).unwrap()).0.status
        };
        assert_eq!(status("RequestExecutor.execute: Provider request failed with HTTP 503: {}"), Some(503));
        assert_eq!(status("Provider request failed with HTTP 999"), None);
        assert_eq!(status("The tool said: Provider request failed with HTTP 503"), None);
    }
}
