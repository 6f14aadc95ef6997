//! How a request of a transcript ended: its answer, or its last error.
//!
//! Not for: that it was asked, and asked again (see `requests`).

use std::borrow::Cow;

use retryscope_events::{Candidate, ModelFailed, ModelResponse, Usage};
use retryscope_record::{Anchor, Facts, Mark, RawFailure, TurnOutcome};

use super::requests::OpenRequest;
use super::{Say, Transcript};
use crate::claude_code::{model_of, provider_of_model};
use crate::json::Object;

impl Transcript {
    pub(super) fn assistant(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let session = say.run.id.split(':').next().unwrap_or_default();
        if let Some(other) = record.str("requestSessionId").filter(|id| id != session) {
            // Copied by a fork; so was what stands before it in this request.
            let forked_from = Some(other.into_owned());
            say.mark(&Mark::Facts(Facts { forked_from, ..Facts::default() }));
            say.mark(&Mark::Copied);
            self.request = None;
            return;
        }
        // Earlier versions put the new session into copied answers and leave the old one in their prompts.
        if let Some(other) = self.asked_in.clone().filter(|asked_in| asked_in != session) {
            say.mark(&Mark::Facts(Facts { forked_from: Some(other), ..Facts::default() }));
            self.request = None;
            return;
        }
        let is_error = record.bool("isApiErrorMessage") == Some(true);
        let is_answer = !is_error && !message.is("model", "<synthetic>");
        if is_error || is_answer && !self.has_request_lines && !self.is_told(message) {
            self.begin_turn(say);
        }
        for id in [record.str("uuid"), message.str("id"), record.str("requestId")].into_iter().flatten() {
            say.mark(&Mark::Anchor(Anchor::of(&id)));
        }
        if is_error {
            self.final_error(record, message, say);
        } else if is_answer {
            self.answer(record, message, say);
        }
    }

    /// Returns whether a line goes on with the message of the line before.
    pub(super) fn is_told(&self, message: &Object<'_>) -> bool {
        self.last.message_id.is_some_and(|last| message.str("id").is_some_and(|id| Anchor::of(&id) == last))
    }

    pub(super) fn final_error(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let text = message
            .objects("content")
            .and_then(|blocks| blocks.iter().find_map(|b| b.string("text")))
            .or_else(|| message.string("content"));
        let turn = self.turn.clone();
        let reason = record.string("apiError").or_else(|| record.str("error").map(Cow::into_owned));
        let local = text.as_deref().is_some_and(is_of_the_program);
        if local && self.has_request_lines && self.request.take().is_some_and(|request| !request.is_over) {
            // The line of a request is written before its login is looked for.
            say.mark(&Mark::Copied);
        }
        if self.has_request_lines && self.is_all_told() || local {
            let outcome = TurnOutcome::Failed;
            say.mark(&Mark::TurnEnded { turn, outcome, reason, message: text });
            return;
        }
        // Nothing was asked since the answer: it is the answer that broke off.
        let is_of_answer = std::mem::take(&mut self.last.ends_plainly) && !self.has_request_lines;
        if !is_of_answer {
            self.ensure_request(None, say);
        }
        let mut failed = ModelFailed::new();
        failed.request_id = self.request.as_ref().map(|r| r.id.clone());
        failed.status = record.status("apiErrorStatus").or_else(|| text.as_deref().and_then(status_in));
        failed.code = record.string("apiErrorType").or_else(|| reason.clone());
        failed.message.clone_from(&text);
        failed.upstream_request_id = record.string("requestId");
        // The program may give up within the wait: the error is then the one before, told once more.
        let refused = self.request.as_ref().and_then(|r| r.refused);
        let is_told =
            |(id, _): &(Anchor, u64)| failed.upstream_request_id.as_deref().map(Anchor::of) == Some(*id);
        failed.attempts = refused.filter(is_told).map(|(_, number)| number);
        let limits = record.object("apiErrorParams").and_then(|p| p.object("rate_limit_info"));
        failed.reset_at = limits.and_then(|limits| limits.time("resetsAt"));
        // The text is written for a person; what the provider sent stands beside it.
        let details = record.string("errorDetails");
        let raw = details.map(|body| RawFailure { headers: Vec::new(), body: Some(body) });
        say.event(turn.as_ref(), record.string("uuid"), failed, raw.as_ref());
        self.end_request(say.at);
        say.mark(&Mark::TurnEnded { turn, outcome: TurnOutcome::Failed, reason, message: text });
    }

    pub(super) fn answer(&mut self, record: &Object<'_>, message: &Object<'_>, say: &mut Say<'_>) {
        let message_id = message.str("id").map(|id| Anchor::of(&id));
        let same = self.is_told(message);
        let model = message.string("model").map(model_of);
        if let Some(chain) = record.str("requestRef").and_then(|r| self.chains.get(&Anchor::of(&r))) {
            if self.request.as_ref().is_none_or(|r| r.id != chain.root) {
                self.request = Some(OpenRequest::new(chain.root.clone(), chain.turn.clone(), model.clone()));
            }
        } else if !self.has_request_lines && !same {
            self.ensure_request(model.as_deref(), say);
        }
        self.last.message_id = message_id;
        let calls_tool = message.raw("content").is_some_and(|content| content.contains("\"tool_use\""));
        self.last.ends_plainly = !calls_tool && (!same || self.last.ends_plainly);
        // Versions with request lines name why an answer stopped: one that was cut off is none yet.
        if self.has_request_lines && message.str("stop_reason").is_none() {
            return;
        }
        self.end_request(say.at);
        let Some(request) = &mut self.request else { return };
        let is_whole = |stop: &str| matches!(stop, "end_turn" | "stop_sequence" | "tool_use");
        request.is_answered |= message.str("stop_reason").is_some_and(|stop| is_whole(&stop));
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
        say.event(turn.as_ref(), None, response, None);
        let stop = message.str("stop_reason");
        let ended = match stop.as_deref() {
            Some(
                "end_turn" | "stop_sequence" | "max_tokens" | "refusal" | "model_context_window_exceeded",
            ) => true,
            Some(_) => false,
            // Older versions write no stop reason: text without a tool call ends a turn, unless more follows.
            None => !calls_tool && message.raw("content").is_some_and(|content| content.contains("\"text\"")),
        };
        if ended {
            let (outcome, reason) = (TurnOutcome::Succeeded, stop.map(Cow::into_owned));
            say.mark(&Mark::TurnEnded { turn, outcome, reason, message: None });
        }
    }
}

/// Returns whether a final error is the program's own: without a login it refuses before it asks.
pub(in crate::claude_code) fn is_of_the_program(text: &str) -> bool {
    let begins = ["Not logged in", "Please run /login"].iter().any(|beginning| text.starts_with(beginning));
    begins && !text.contains("API Error")
}

/// Older versions give the status in the text only: `API Error: 529 {...}`.
pub(in crate::claude_code) fn status_in(text: &str) -> Option<u16> {
    let (digits, _) = text.strip_prefix("API Error: ")?.split_at_checked(3)?;
    digits.parse().ok().filter(|n| (100..600).contains(n))
}

pub(in crate::claude_code) fn usage_of(usage: &Object<'_>) -> Usage {
    Usage {
        input_tokens: usage.u64("input_tokens"),
        output_tokens: usage.u64("output_tokens"),
        cached_input_tokens: usage.u64("cache_read_input_tokens"),
        reasoning_tokens: usage.object("output_tokens_details").and_then(|d| d.u64("thinking_tokens")),
        cost_usd: None,
    }
}
