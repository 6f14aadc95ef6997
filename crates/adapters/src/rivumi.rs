//! rivumi (earlier names: looplane, python-coding-agent): `<run root>/<run id>/events.jsonl`, `result.json`.
//!
//! Its `model.retry` names no model, the last failed attempt of a candidate writes none, an OpenAI-compatible provider
//! hides an SDK layer below the loop, and each step starts at the primary again.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use retryscope_events::{
    Body, Candidate, DelaySource, Event, Layer, ModelFailed, ModelFallback, ModelRequest, ModelResponse,
    ModelRetry, Source, Usage,
};
use retryscope_record::{Facts, GapKind, Item, Mark, Place, RunKey, Shown, Sink, TurnOutcome, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::{Object, holds};
use crate::{Adapter, DefaultPlace, DocumentDecoder, HEAD_LENGTH, LineDecoder, Reading, Recognized};

const AGENT: &str = "rivumi";

pub(crate) const ADAPTER: Adapter = Adapter {
    agent: AGENT,
    places: &[
        DefaultPlace { env: Some("RIVUMI_RUN_ROOT"), below: "", home: ".local/state/rivumi/runs" },
        DefaultPlace { env: Some("LOOPLANE_RUN_ROOT"), below: "", home: ".local/state/looplane/runs" },
        DefaultPlace { env: None, below: "", home: ".local/state/python-coding-agent/runs" },
    ],
    recognize,
};

fn recognize(path: &Path, head: &[u8]) -> Option<Recognized> {
    let name = path.file_name()?.to_str()?;
    if name == "result.json" && holds(head, "\"terminal_reason\"") && holds(head, "\"run_id\"") {
        let reading = Reading::Document(Box::new(ResultFile));
        return Some(Recognized { agent: Some(AGENT), view: View::RESULT, reading });
    }
    first_record(head)?;
    let reading = Reading::Lines(Box::new(Log { parent: parent_of(path), ..Log::default() }));
    Some(Recognized { agent: Some(AGENT), view: View::EVENTS, reading })
}

/// Returns the first record, if it is one of these logs.
fn first_record(head: &[u8]) -> Option<Object<'_>> {
    let first = head.split(|b| *b == b'\n').find_map(Object::parse)?;
    let is_ours = ["event_type", "sequence"].iter().all(|name| first.raw(name).is_some())
        && first.members().any(|(name, _)| name == "task_id");
    is_ours.then_some(first)
}

/// Folders around a run's own that are looked at for its parent's.
const PARENT_DISTANCE: usize = 3;

/// Returns the run in whose folder that of this log lies: a child's is somewhere below its parent's. A run's folder is named
/// for the run.
fn parent_of(log: &Path) -> Option<String> {
    let around = log.ancestors().skip(2).take(PARENT_DISTANCE);
    around.into_iter().find_map(|folder| {
        let mut head = Vec::new();
        File::open(folder.join("events.jsonl")).ok()?.take(HEAD_LENGTH as u64).read_to_end(&mut head).ok()?;
        let run = first_record(&head)?.string("run_id")?;
        (folder.file_name()?.to_str()? == run).then_some(run)
    })
}

/// State of one log.
#[derive(Default, Serialize, Deserialize)]
struct Log {
    run: Option<RunKey>,
    /// The run that started this one.
    parent: Option<String>,
    primary: Candidate,
    /// The candidate of the loop that is active.
    current: Candidate,
    /// The candidate of the open request: that of the loop, or the reviewer's own.
    asked: Candidate,
    turns: u64,
    step: Option<u64>,
    last_sequence: Option<u64>,
    open_request: bool,
    requests: u64,
    cancelled_in_wait: Option<(chrono::DateTime<chrono::Utc>, u64)>,
}

impl LineDecoder for Log {
    fn save(&self) -> Option<Value> {
        serde_json::to_value(self).ok()
    }

    fn restore(&mut self, saved: &Value) -> bool {
        serde_json::from_value(saved.clone()).map(|state| *self = state).is_ok()
    }

    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let Some(record) = Object::parse(line) else {
            if !line.iter().all(u8::is_ascii_whitespace) {
                sink.gap(place, GapKind::InvalidJson);
            }
            return;
        };
        let (Some(kind), Some(run_id)) = (record.str("event_type"), record.str("run_id")) else {
            sink.gap(place, GapKind::IncompleteRecord);
            return;
        };
        let run = RunKey::new(AGENT, &*run_id);
        self.sequence(place, &record, sink);
        self.run = Some(run.clone());
        let data = record.object("data").unwrap_or_default();
        self.record(&Said { place, kind: &kind, record: &record, data: &data, run: &run }, sink);
    }
}

/// One record, as the parts below want it.
struct Said<'a> {
    place: Place,
    kind: &'a str,
    record: &'a Object<'a>,
    data: &'a Object<'a>,
    run: &'a RunKey,
}

impl Log {
    fn sequence(&mut self, place: Place, record: &Object<'_>, sink: &mut dyn Sink) {
        let Some(sequence) = record.u64("sequence") else { return };
        if let Some(last) = self.last_sequence
            && sequence > last + 1
        {
            sink.gap(place, GapKind::MissingSequence { count: sequence - last - 1 });
        }
        self.last_sequence = Some(sequence);
    }

    fn record(&mut self, said: &Said<'_>, sink: &mut dyn Sink) {
        let data = said.data;
        match said.kind {
            "run.created" | "session.resumed" | "session.continued" => self.begin(said, sink),
            "model.requested" => {
                self.current = self.primary.clone();
                self.step = data.u64("step");
                self.request(said, Source::Foreground, "main", self.current.clone(), sink);
            }
            "model.retry" => {
                let error = data.string("error");
                let delay_ms = data.f64("delay_seconds").map(ms);
                let mut retry = ModelRetry::new().request_id(self.request_id()).layer(Layer::Agent);
                retry.attempt = data.u64("attempt");
                retry.delay_ms = delay_ms;
                retry.delay_source = delay_source(data.u64("attempt"), delay_ms);
                retry.status = error.as_deref().and_then(status_in);
                retry.message = error;
                self.generation(said, data.u64("attempt"), delay_ms, sink);
                retry.candidate = Some(self.named(data));
                self.cancelled_in_wait = said.record.time("created_at").zip(delay_ms);
                self.emit(said, retry, sink);
            }
            "model.fallback" => {
                let from = Candidate {
                    provider: data.string("from_provider"),
                    model: data.string("from_model"),
                    ..Candidate::default()
                };
                let to = Candidate {
                    provider: data.string("to_provider"),
                    model: data.string("to_model"),
                    ..Candidate::default()
                };
                let codes: Vec<Option<Value>> = data
                    .raw("failure_codes")
                    .and_then(|raw| serde_json::from_str(raw).ok())
                    .unwrap_or_default();
                self.current = to.clone();
                self.asked = to.clone();
                self.cancelled_in_wait = None;
                // The candidate that comes decides about hidden layers from here on.
                self.emit(
                    said,
                    ModelFallback::new()
                        .request_id(self.request_id())
                        .from(from)
                        .to(to.clone())
                        .failures(codes),
                    sink,
                );
                self.api(said, &to, sink);
            }
            "model.completed" | "role_lane.completed" | "loop.wind_down_completed" => {
                let mut response =
                    ModelResponse::new().request_id(self.request_id()).candidate(self.asked.clone());
                response.stop_reason = data.string("finish_reason");
                response.usage = data.object("usage").map(|usage| usage_of(&usage));
                self.close(said, response, sink);
            }
            "model.failed" | "role_lane.failed" | "loop.wind_down_failed" => {
                let error = data.string("error");
                let mut failed = ModelFailed::new().request_id(self.request_id()).candidate(self.named(data));
                failed.status = error.as_deref().and_then(status_in);
                failed.code = data.string("kind");
                failed.message = error;
                self.close(said, failed, sink);
            }
            "role_lane.requested" => {
                let candidate = Candidate {
                    provider: data.string("provider"),
                    model: data.string("model"),
                    ..Candidate::default()
                };
                self.request(said, Source::Background, "review", candidate, sink);
            }
            "loop.wind_down_started" => {
                self.request(said, Source::Foreground, "wind_down", self.current.clone(), sink);
            }
            // An exception that the provider adapters do not catch; it ends the run without `model.failed`.
            "run.error" if self.open_request => {
                let mut failed =
                    ModelFailed::new().request_id(self.request_id()).candidate(self.asked.clone());
                failed.code = data.string("error_type");
                failed.message = data.string("error");
                self.close(said, failed, sink);
            }
            "run.completed" | "run.failed" | "run.cancelled" => self.finish(said, sink),
            _ => {}
        }
    }

    fn begin(&mut self, said: &Said<'_>, sink: &mut dyn Sink) {
        // The process that asked is gone; what goes on asks anew.
        if std::mem::take(&mut self.open_request) {
            self.mark(said, &Mark::LeftOpen { request_id: self.request_id() }, sink);
        }
        self.primary = Candidate {
            provider: said.data.string("provider"),
            model: said.data.string("model"),
            ..Candidate::default()
        };
        self.current = self.primary.clone();
        // A resumed session goes on with its turn; a continued one is a new prompt.
        if said.kind != "session.resumed" {
            self.turns += 1;
        }
        let facts = Facts {
            provider: self.primary.provider.clone(),
            model: self.primary.model.clone(),
            parent_run_id: self.parent.clone(),
            ..Facts::default()
        };
        self.mark(said, &Mark::Facts(facts), sink);
        self.mark(said, &Mark::TurnStarted { turn: Some(self.turns.max(1).to_string()) }, sink);
        self.mark(
            said,
            &Mark::Shows {
                source: Source::Foreground,
                requests: Shown::All,
                attempts: Shown::All,
                because: "rivumi logs each attempt of its own loop",
            },
            sink,
        );
    }

    fn request(
        &mut self,
        said: &Said<'_>,
        source: Source,
        purpose: &str,
        candidate: Candidate,
        sink: &mut dyn Sink,
    ) {
        self.open_request = true;
        self.asked = candidate.clone();
        self.requests += 1;
        self.cancelled_in_wait = None;
        self.api(said, &candidate, sink);
        self.emit(
            said,
            ModelRequest::new()
                .request_id(self.request_id())
                .source(source)
                .purpose(purpose)
                .candidate(candidate),
            sink,
        );
    }

    fn close(&mut self, said: &Said<'_>, body: impl Into<Body>, sink: &mut dyn Sink) {
        self.open_request = false;
        self.cancelled_in_wait = None;
        self.emit(said, body, sink);
    }

    fn finish(&mut self, said: &Said<'_>, sink: &mut dyn Sink) {
        let outcome = match said.kind {
            "run.completed" => TurnOutcome::Succeeded,
            "run.cancelled" => TurnOutcome::Cancelled,
            _ => TurnOutcome::Failed,
        };
        let reason = said.data.string("terminal_reason");
        let at = said.record.time("created_at");
        let in_wait = self.cancelled_in_wait.zip(at).is_some_and(|((from, delay), at)| {
            let waits = chrono::TimeDelta::try_milliseconds(delay.cast_signed());
            waits.and_then(|waits| from.checked_add_signed(waits)).is_none_or(|until| at < until)
        });
        if outcome == TurnOutcome::Cancelled && self.open_request && in_wait {
            // The loop starts the next attempt and cancels it at once; on a warm connection it reaches the server.
            let mark = Mark::Sends {
                request_id: self.request_id(),
                attempt_id: None,
                min: 0,
                max: Some(1),
                basis: "after a cancel in back-off rivumi starts the next attempt before it stops".into(),
            };
            self.mark(said, &mark, sink);
        }
        // What an answer used is known when it is there: the request was answered, and writes no record of that.
        if self.open_request && reason.as_deref() == Some("token_budget_exceeded") && !in_wait {
            let response = ModelResponse::new().request_id(self.request_id()).candidate(self.asked.clone());
            self.close(said, response, sink);
        }
        self.open_request = false;
        let turn = Some(self.turns.max(1).to_string());
        self.mark(said, &Mark::TurnEnded { turn, outcome, reason, message: None }, sink);
    }

    /// The older generation waits exactly 1 and 2 s; the newer one has jitter, and more than two retries.
    fn generation(&self, said: &Said<'_>, attempt: Option<u64>, delay_ms: Option<u64>, sink: &mut dyn Sink) {
        let exact = matches!((attempt, delay_ms), (Some(1), Some(1_000)) | (Some(2), Some(2_000)));
        let policy_version = Some(if exact { "1" } else { "2" }.to_owned());
        self.mark(said, &Mark::Facts(Facts { policy_version, ..Facts::default() }), sink);
    }

    fn request_id(&self) -> String {
        format!("#{}", self.requests)
    }

    /// Native provider adapters send once an attempt; the OpenAI-compatible one leaves the SDK's own retries on.
    fn api(&self, said: &Said<'_>, candidate: &Candidate, sink: &mut dyn Sink) {
        let Some(provider) = candidate.provider.as_deref() else { return };
        let native = ["anthropic", "gemini", "google", "workers-ai", "workers_ai", "cloudflare"];
        let api = if native.contains(&provider) { "native" } else { "openai-compatible" };
        self.mark(said, &Mark::Facts(Facts { api: Some(api.into()), ..Facts::default() }), sink);
    }

    fn named(&self, data: &Object<'_>) -> Candidate {
        Candidate {
            provider: data.string("provider").or_else(|| self.asked.provider.clone()),
            ..self.asked.clone()
        }
    }

    fn emit(&self, said: &Said<'_>, body: impl Into<Body>, sink: &mut dyn Sink) {
        let mut event = Event::new(&*said.run.id, chrono::DateTime::UNIX_EPOCH, body).agent(AGENT);
        event.ts = said.record.time("created_at");
        event.turn = Some(self.turns.max(1).to_string());
        event.step = self.step;
        event.event_id = said.record.string("event_id");
        sink.item(said.place, Item::Event(&event, None));
    }

    #[expect(clippy::unused_self, reason = "reads like `emit` beside it")]
    fn mark(&self, said: &Said<'_>, mark: &Mark, sink: &mut dyn Sink) {
        sink.item(said.place, Item::Mark { run: said.run, at: said.record.time("created_at"), mark });
    }
}

/// `result.json`: the human sentence and the tokens of the last turn.
struct ResultFile;

impl DocumentDecoder for ResultFile {
    fn document(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        let Some(record) = Object::parse(bytes) else {
            sink.gap(Place::Whole, GapKind::InvalidJson);
            return;
        };
        let Some(run_id) = record.str("run_id") else { return };
        // The outcome is left to the log: this file may be stale while a continuation runs.
        let Some(message) = record.string("error") else { return };
        let run = RunKey::new(AGENT, &*run_id);
        let mark = Mark::Explained { reason: record.string("terminal_reason"), message };
        sink.item(Place::Whole, Item::Mark { run: &run, at: None, mark: &mark });
    }
}

fn ms(seconds: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    {
        (seconds * 1e3).clamp(0.0, 9e15).round() as u64
    }
}

/// The loop's own wait is 1, 2, 4, 8 s with 15 % jitter (or exactly 1, 2 s in the older generation); anything else is the
/// provider's stated wait.
fn delay_source(attempt: Option<u64>, delay_ms: Option<u64>) -> Option<DelaySource> {
    let (attempt, delay) = (attempt?, delay_ms?);
    let base = 1_000u64 << attempt.saturating_sub(1).min(5);
    let own = (base * 85 / 100 - 1..=base * 115 / 100 + 1).contains(&delay);
    Some(if own { DelaySource::Backoff } else { DelaySource::Server })
}

/// The only place of the status in an error text: `request failed (503)` or `Error code: 503`.
fn status_in(error: &str) -> Option<u16> {
    let after = |marker: &str| error.split_once(marker).map(|(_, rest)| rest);
    let rest = after("request failed (").or_else(|| after("Error code: "))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|n| (100..600).contains(n))
}

fn usage_of(usage: &Object<'_>) -> Usage {
    Usage {
        input_tokens: usage.u64("input_tokens"),
        output_tokens: usage.u64("output_tokens"),
        cached_input_tokens: usage.u64("cached_input_tokens"),
        reasoning_tokens: usage.u64("reasoning_tokens"),
        cost_usd: None,
    }
}
