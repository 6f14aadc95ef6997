//! The requests of a transcript, and their repeats: by the lines that each request has in newer versions, by its errors in
//! older ones.
//!
//! Not for: how a request ended (see `answers`).

use chrono::{DateTime, Utc};
use retryscope_events::{Candidate, Layer, ModelAttempt, ModelFailed, ModelRequest, ModelRetry, Source};
use retryscope_record::{Anchor, GapKind, Mark, RawFailure, Shown};

use super::{Say, Transcript};
use crate::claude_code::{is_main, model_of, provider_of_model};
use crate::json::Object;

/// Requests whose chain is remembered; a base is nearly always the request just before.
const CHAIN_LIMIT: usize = 1024;

/// Ended requests that are remembered; their errors are written down with the next prompt.
const ENDED_LIMIT: usize = 256;

/// A request that is over.
pub(super) struct Ended {
    at: DateTime<Utc>,
    id: String,
    turn: Option<String>,
}

pub(super) struct Chain {
    pub(super) root: String,
    pub(super) turn: Option<String>,
    pub(super) messages: u64,
    pub(super) max_tokens: Option<u64>,
    pub(super) shape: Option<Anchor>,
    pub(super) digest: Option<Anchor>,
}

pub(super) struct OpenRequest {
    pub(super) id: String,
    /// The turn in which it was asked.
    pub(super) turn: Option<String>,
    /// Nothing more follows: it was answered or failed, or its turn is over.
    pub(super) is_over: bool,
    /// It has an answer that nothing was wrong with: nobody asks for it again.
    pub(super) is_answered: bool,
    pub(super) model: Option<String>,
    /// The program's number of the last error that was told of it, since its last attempt was.
    pub(super) error: Option<u64>,
    /// What the provider called the request that failed last, and the program's number of that failure.
    pub(super) refused: Option<(Anchor, u64)>,
    /// The conversation was shortened since: what is asked next is asked anew.
    pub(super) is_rewritten: bool,
}

impl OpenRequest {
    pub(super) fn new(id: String, turn: Option<String>, model: Option<String>) -> Self {
        Self {
            id,
            turn,
            is_over: false,
            is_answered: false,
            model,
            error: None,
            refused: None,
            is_rewritten: false,
        }
    }
}

impl Transcript {
    /// Whatever is asked next is another request than the one that is open.
    pub(super) fn close_request(&mut self) {
        if let Some(request) = &mut self.request {
            request.is_over = true;
        }
    }

    pub(super) fn api_request(&mut self, record: &Object<'_>, params: &Object<'_>, say: &mut Say<'_>) {
        let Some(id) = record.string("id") else {
            say.sink.gap(say.place, GapKind::IncompleteRecord);
            return;
        };
        let key = Anchor::of(&id);
        if self.chains.contains_key(&key) {
            // The same line again.
            return;
        }
        let query = record.string("querySource").unwrap_or_default();
        if is_side(&query) {
            self.side_request(record, params, id, say);
            return;
        }
        let lost_a_line = std::mem::take(&mut self.unread);
        let names_base = record.raw("base").is_some();
        if !self.has_request_lines {
            self.has_request_lines = true;
            if !names_base && self.request.take().is_some_and(|r| !r.is_over) {
                // The first request of a process: what was said before is history copied from another session.
                say.mark(&Mark::Copied);
            }
        }
        self.show(Shown::All, "each request has a line of its own", say);
        let messages = messages(record);
        let base = record.str("base").and_then(|base| self.chains.get(&Anchor::of(&base)));
        // Another prompt is another request, even where what was cancelled left the conversation as it was before. What the
        // program writes beside the conversation is none where the very same request goes out again.
        let digest = record.str("requestDigest").map(|digest| Anchor::of(&digest));
        let is_same =
            base.is_some_and(|base| base.messages == messages && digest.is_some() && base.digest == digest);
        self.maybe_prompt.take_if(|prompt| prompt.is_beside && is_same);
        let prompted = self.maybe_prompt.is_some();
        // An answer with nothing in it leaves the conversation as it was, too.
        let answered = self.request.as_ref().filter(|r| r.is_answered).map(|r| r.id.as_str());
        let repeats = base.filter(|base| {
            base.messages == messages
                && base.turn == self.turn
                && !prompted
                && answered != Some(base.root.as_str())
        });
        // While nothing answered and nothing was said, whatever is sent repeats what is open: the program may leave out
        // what a model does not know, or write its tools out. So it is too where the line of the base could not be read;
        // otherwise the answer may have stood in a lost line.
        let is_open = !prompted && (!lost_a_line || names_base && base.is_none());
        let open = self
            .request
            .as_ref()
            .filter(|r| is_open && repeats.is_none() && !r.is_over && !r.is_rewritten)
            .map(|r| r.id.clone());
        let root =
            repeats.map(|base| base.root.clone()).or_else(|| open.clone()).unwrap_or_else(|| id.clone());
        let is_new = repeats.is_none() && open.is_none();
        let layer = Some(Layer::Agent).filter(|_| !is_new);
        let mut chain = Chain {
            root: root.clone(),
            turn: None,
            messages,
            max_tokens: params.u64("max_tokens"),
            shape: record.str("shapeHash").map(|hash| Anchor::of(&hash)),
            digest,
        };
        let changed = base.filter(|_| !is_new).map(|base| changes(base, &chain));
        let model = params.string("model").map(model_of);
        let candidate = Candidate {
            provider: model.as_deref().and_then(provider_of_model).map(str::to_owned),
            model: model.clone(),
            ..Candidate::default()
        };
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
        let mut attempt = ModelAttempt::new().request_id(root.clone()).attempt_id(id).candidate(candidate);
        attempt.started_at = say.at;
        attempt.layer = layer;
        say.event(self.turn.as_ref(), None, attempt, None);
        chain.turn.clone_from(&self.turn);
        self.request = Some(OpenRequest::new(root, self.turn.clone(), model));
        self.remember(key, chain);
    }

    /// A request beside the conversation: it repeats none of it, and is repeated by none.
    fn side_request(&mut self, record: &Object<'_>, params: &Object<'_>, id: String, say: &mut Say<'_>) {
        let messages = messages(record);
        let base = record.str("base").and_then(|base| self.chains.get(&Anchor::of(&base)));
        let repeats = base.filter(|base| base.messages == messages).map(|base| base.root.clone());
        let model = params.string("model").map(model_of);
        let provider = model.as_deref().and_then(provider_of_model).map(str::to_owned);
        let candidate = Candidate { provider, model, ..Candidate::default() };
        let root = repeats.clone().unwrap_or_else(|| id.clone());
        if repeats.is_none() {
            let request = ModelRequest::new()
                .request_id(root.clone())
                .candidate(candidate.clone())
                .source(Source::Background);
            let query = record.string("querySource").unwrap_or_default();
            say.event(self.turn.as_ref(), None, request.purpose(query), None);
        }
        let key = Anchor::of(&id);
        let mut attempt = ModelAttempt::new().request_id(root.clone()).attempt_id(id).candidate(candidate);
        attempt.started_at = say.at;
        attempt.layer = repeats.map(|_| Layer::Agent);
        say.event(self.turn.as_ref(), None, attempt, None);
        let turn = self.turn.clone();
        self.remember(key, Chain { root, turn, messages, max_tokens: None, shape: None, digest: None });
    }

    fn remember(&mut self, key: Anchor, chain: Chain) {
        self.chain_order.push_back(key);
        self.chains.insert(key, chain);
        if self.chain_order.len() > CHAIN_LIMIT
            && let Some(old) = self.chain_order.pop_front()
        {
            self.chains.remove(&old);
        }
    }

    pub(super) fn api_error(&mut self, record: &Object<'_>, say: &mut Say<'_>) {
        // In a file with request lines an error before the first of them is history copied from another session.
        if self.has_request_lines && self.request.is_none() {
            return;
        }
        if !self.has_request_lines {
            self.show(Shown::Some, "this version's transcript shows retries after an HTTP or connection error, but no silent repeats", say);
        }
        let late = self.late(say.at).map(|ended| (ended.id.clone(), ended.turn.clone()));
        if late.is_none() {
            self.ensure_request(None, say);
        }
        self.attempt_of_error(record.u64("retryAttempt"), say);
        let error = record.object("error").unwrap_or_default();
        let mut retry = ModelRetry::new().layer(Layer::Agent);
        let own = || self.request.as_ref().map(|r| (r.id.clone(), r.turn.clone()));
        let (request_id, turn) = late.clone().or_else(own).unzip();
        retry.request_id = request_id;
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
            say.mark(&Mark::Anchor(Anchor::of(id)));
        }
        if let Some(request) = self.request.as_mut().filter(|_| late.is_none()) {
            request.refused = retry.upstream_request_id.as_deref().map(Anchor::of).zip(retry.attempt);
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
        let turn = turn.unwrap_or_else(|| self.turn.clone());
        say.event(turn.as_ref(), record.string("uuid"), retry, raw.as_ref());
    }

    /// The request has its answer or its final error. Versions without request lines may write errors of it down later.
    pub(super) fn end_request(&mut self, at: Option<DateTime<Utc>>) {
        let Some(request) = &mut self.request else { return };
        request.is_over = true;
        if let Some(at) = at.filter(|_| !self.has_request_lines) {
            if self.ended.len() == ENDED_LIMIT {
                self.ended.pop_front();
            }
            self.ended.push_back(Ended { at, id: request.id.clone(), turn: request.turn.clone() });
        }
    }

    /// Returns the request of an error that was written down only after its end, with the prompt that follows: what came
    /// before an end is of no later request.
    fn late(&self, at: Option<DateTime<Utc>>) -> Option<&Ended> {
        let at = at.filter(|_| !self.has_request_lines)?;
        self.ended.iter().find(|ended| at < ended.at)
    }

    /// Each request has one error at most: a further one, after a line that could not be read, is of a request in that line.
    pub(super) fn attempt_of_error(&mut self, number: Option<u64>, say: &mut Say<'_>) {
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

    /// Returns whether nothing can be said of a request that has not been: none is open, and no line was lost.
    pub(super) fn is_all_told(&self) -> bool {
        self.request.as_ref().is_none_or(|r| r.is_over && !self.unread)
    }

    /// Without a line of its own, a request begins with whatever first speaks of it.
    pub(super) fn ensure_request(&mut self, model: Option<&str>, say: &mut Say<'_>) {
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
        self.request = Some(OpenRequest::new(id, self.turn.clone(), model.map(str::to_owned)));
    }
}

/// Returns the number of messages in a request.
fn messages(record: &Object<'_>) -> u64 {
    record.u64("keep").unwrap_or(0) + record.length("tail").unwrap_or(0)
}

/// Returns whether a request is of none of the conversations: not of the main one, of a subagent's, or of a summary of one.
fn is_side(query: &str) -> bool {
    !query.is_empty() && query != "compact" && !is_main(query) && !query.starts_with("agent:")
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
