//! One thread: what its signals say of requests and of their attempts.
//!
//! Not for: which thread and which turn a signal is of (`super`).

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{
    AttemptOutcome, Candidate, Layer, ModelAttempt, ModelRequest, ModelResponse, ModelRetry, Source, Usage,
};
use retryscope_record::{Facts, Mark, Shown};

use super::{Channel, SUMMARY_OVER, Signal};
use crate::codex::at_least;
use crate::codex::course::Course;
use crate::codex::error::Told;
use crate::codex::fields::whole_ms;
use crate::codex::say::{HTTPS, Say, WEBSOCKET, over};
use crate::otlp::Attributes;

/// What is known of a thread.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) channel: Option<Channel>,
    pub(super) course: Course,
    /// How much of requests and of their attempts was said to be shown.
    pub(super) shown: Option<(Shown, Shown)>,
    /// The beginning of the open turn was seen.
    begun: bool,
    version: Option<String>,
    provider: Option<String>,
    pub(super) requests: u64,
    attempts: u64,
    pub(super) open: Option<Open>,
    compaction: Option<String>,
    warm: Warm,
}

/// The request that is open.
pub(super) struct Open {
    pub(super) id: String,
    /// The last attempt of it.
    pub(super) attempt: Option<String>,
    pub(super) retries: u64,
    /// It was for a summary, and that is over: what is sent next is sent for another one.
    pub(super) is_over: bool,
}

/// How far the start-up connection has come.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Warm {
    /// The start was not seen, or it is over.
    #[default]
    Over,
    /// The process started: the first connection is the start-up's.
    Connect,
    /// That connection stands: the first request over it is the start-up's.
    Request,
}

impl Thread {
    pub(super) fn take(&mut self, name: &str, signal: &Signal<'_>, say: &mut Say<'_>) {
        let attributes = signal.attributes;
        match name {
            "codex.conversation_starts" => {
                self.warm = Warm::Connect;
                self.course = Course::default();
                self.begun = true;
                self.open = None;
                self.version = attributes.string("app.version").or(self.version.take());
                self.provider = attributes.string("provider_name").or(self.provider.take());
                let facts = Facts {
                    agent_version: self.version.clone(),
                    provider: self.provider.clone(),
                    model: attributes.string("model"),
                    ..Facts::default()
                };
                say.mark(&Mark::Facts(facts));
            }
            "codex.user_prompt" => {
                self.begun = true;
                self.open = None;
                self.course = signal.turn.clone().map_or(Course::Unknown, Course::Named);
                say.mark(&Mark::TurnStarted { turn: signal.turn.clone() });
            }
            "codex.api_request" => self.request(attributes, say),
            "codex.websocket_connect" => self.connect(attributes, say),
            "codex.websocket_request" => {
                if self.warm == Warm::Request {
                    self.warm = Warm::Over;
                } else {
                    self.warm = Warm::Over;
                    self.attempt(WEBSOCKET, attributes, say);
                }
            }
            "codex.sse_event" | "codex.websocket_event" => self.stream(attributes, say),
            "codex.retry" => self.retry(attributes, say),
            "codex.tool_result" | "codex.tool_decision" => say.anchor(attributes.string("call_id")),
            SUMMARY_OVER => {
                if let Some(open) = &mut self.open {
                    open.is_over = true;
                }
            }
            "codex.turn_profile" => {
                say.anchor(attributes.string("turn_id"));
                say.mark(&Mark::TurnComplete);
            }
            _ => {}
        }
    }

    fn request(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let endpoint = attributes.get("endpoint").unwrap_or("/responses");
        if endpoint.ends_with("/compact") {
            self.compaction(attributes, say);
        } else if endpoint.ends_with("/responses") || endpoint.ends_with("/chat/completions") {
            self.attempt(HTTPS, attributes, say);
        }
    }

    fn connect(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let works = attributes.get("success") == Some("true");
        let warming = self.warm == Warm::Connect;
        if warming && at_least(self.version.as_deref(), 0, 171) {
            self.warm = if works { Warm::Request } else { Warm::Over };
            return;
        }
        self.warm = Warm::Over;
        // A connection that stands is counted by the request over it.
        if !works {
            let sent = self.attempt(WEBSOCKET, attributes, say);
            if warming {
                // Which versions open a connection at the start is known from 0.171 on only.
                let (request_id, attempt_id) = sent;
                let basis = "the first connection of a process may be its start-up's".to_owned();
                say.mark(&Mark::Sends {
                    request_id,
                    attempt_id: Some(attempt_id),
                    min: 0,
                    max: Some(1),
                    basis,
                });
            }
        }
    }

    /// One request over the wire. Returns the ids of request and attempt.
    fn attempt(&mut self, transport: &str, attributes: &Attributes, say: &mut Say<'_>) -> (String, String) {
        self.shows_each(say);
        let inner = attributes.u64("attempt").unwrap_or(0) > 0;
        if let Some(before) = self.open.take_if(|open| open.is_over) {
            say.event(ModelResponse::new().request_id(before.id));
        }
        let candidate = over(transport, self.provider.clone(), attributes.string("model"));
        let request = self.ensure(Some(candidate.clone()), say);
        self.attempts += 1;
        let id = format!("#{}", self.attempts);
        if let Some(before) = self.open.as_mut().and_then(|open| open.attempt.replace(id.clone())) {
            // Sent again: which loop gave the one before up stands in the number of this one.
            let layer = if inner { Layer::Transport } else { Layer::Stream };
            let repeated = ModelAttempt::new().request_id(request.clone()).attempt_id(before).layer(layer);
            say.event(repeated.outcome(AttemptOutcome::Failed));
        }
        let attempt = sent(attributes, say.at).request_id(request.clone()).attempt_id(id.clone());
        say.event(attempt.candidate(candidate));
        (request, id)
    }

    fn compaction(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        self.shows_each(say);
        let inner = attributes.u64("attempt").unwrap_or(0) > 0;
        let id = self.compaction.clone().filter(|_| inner).unwrap_or_else(|| {
            self.requests += 1;
            let id = format!("#{}", self.requests);
            say.event(
                ModelRequest::new().request_id(id.clone()).source(Source::Background).purpose("compaction"),
            );
            id
        });
        self.compaction = Some(id.clone());
        self.attempts += 1;
        say.event(sent(attributes, say.at).request_id(id).attempt_id(format!("#{}", self.attempts)));
    }

    fn stream(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let Some(open) = &self.open else { return };
        let request = open.id.clone();
        if attributes.get("input_token_count").is_some() {
            let mut response = ModelResponse::new().request_id(request);
            response.usage = Some(Usage {
                input_tokens: attributes.u64("input_token_count"),
                output_tokens: attributes.u64("output_token_count"),
                cached_input_tokens: attributes.u64("cached_token_count"),
                reasoning_tokens: attributes.u64("reasoning_token_count"),
                cost_usd: None,
            });
            response.first_token_ms = attributes.u64("ttft_ms");
            say.event(response);
            self.open = None;
        } else if let (Some(message), Some(attempt)) = (attributes.get("error.message"), open.attempt.clone())
        {
            let told = Told::of(message);
            let mut attempt =
                ModelAttempt::new().request_id(request).attempt_id(attempt).outcome(AttemptOutcome::Failed);
            attempt.status = told.status;
            attempt.code = told.code;
            attempt.message = Some(told.message).filter(|m| !m.is_empty());
            attempt.upstream_request_id = told.request_id;
            say.event(attempt);
        }
    }

    fn retry(&mut self, attributes: &Attributes, say: &mut Say<'_>) {
        let ours = matches!(attributes.get("retry.operation"), None | Some("request" | "sampling"));
        let Some(open) = self.open.as_mut().filter(|_| ours) else { return };
        open.retries += 1;
        let mut retry = ModelRetry::new().request_id(open.id.clone());
        retry.delay_ms = attributes.get("retry.delay_ms").and_then(|ms| ms.parse().ok()).map(whole_ms);
        retry.layer = match attributes.get("retry.layer") {
            Some("http") => Some(Layer::Transport),
            Some("stream") => Some(Layer::Stream),
            _ => None,
        };
        say.event(retry);
    }

    /// Returns the id of the open request, opening one where needed.
    pub(super) fn ensure(&mut self, candidate: Option<Candidate>, say: &mut Say<'_>) -> String {
        if let Some(open) = &self.open {
            return open.id.clone();
        }
        self.requests += 1;
        let id = format!("#{}", self.requests);
        let mut request =
            ModelRequest::new().request_id(id.clone()).source(Source::Foreground).purpose("main");
        request.candidate = candidate;
        say.event(request);
        self.open = Some(Open { id: id.clone(), attempt: None, retries: 0, is_over: false });
        id
    }

    /// Says how much is shown of a request that begins here: each HTTP request has a record, but where the log begins
    /// within a turn, what came before is missing.
    fn shows_each(&mut self, say: &mut Say<'_>) {
        const HEADLESS: &str = "its beginning is not in this file";
        if self.begun {
            self.shows(Shown::All, Shown::All, "each HTTP request of codex has a record here", say);
        } else if self.attempts == 0 {
            say.mark(&Mark::BeginsElsewhere);
            self.shows(Shown::Some, Shown::Some, HEADLESS, say);
        } else if self.open.is_none() {
            self.shows(Shown::Some, Shown::All, HEADLESS, say);
        }
    }

    /// Says how much is shown, before the first request that it is about.
    pub(super) fn shows(
        &mut self,
        requests: Shown,
        attempts: Shown,
        because: &'static str,
        say: &mut Say<'_>,
    ) {
        let before = self.shown.replace((requests, attempts));
        if before == Some((requests, attempts)) {
            return;
        }
        if before.is_none() {
            say.mark(&Mark::EndsUntold);
        }
        say.mark(&Mark::Shows { source: Source::Foreground, requests, attempts, because });
        say.mark(&Mark::Shows {
            source: Source::Background,
            requests: Shown::Some,
            attempts: Shown::Some,
            because,
        });
    }
}

/// Returns the attempt that a record of a request tells.
fn sent(attributes: &Attributes, at: Option<DateTime<Utc>>) -> ModelAttempt {
    let mut attempt = ModelAttempt::new();
    let duration = attributes.u64("duration_ms").and_then(|ms| i64::try_from(ms).ok());
    attempt.started_at =
        at.zip(duration).and_then(|(at, ms)| at.checked_sub_signed(TimeDelta::try_milliseconds(ms)?));
    attempt.status = attributes.status("http.response.status_code");
    attempt.upstream_request_id = attributes.string("auth.request_id");
    let message = attributes.string("error.message");
    let failed = message.is_some()
        || attempt.status.is_some_and(|status| status >= 400)
        || attributes.get("success") == Some("false");
    if failed {
        attempt.outcome = Some(AttemptOutcome::Failed);
        attempt.ended_at = at;
        // `http 503` says the status once more.
        attempt.message =
            message.filter(|m| attempt.status.is_none_or(|status| *m != format!("http {status}")));
    }
    attempt
}
