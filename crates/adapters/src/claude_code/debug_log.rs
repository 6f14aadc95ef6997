//! The debug log (`--debug`): `<time> [LEVEL] text`, one `[API REQUEST]` line a request.
//!
//! Shows every request of the process, subagents', compaction and side calls included, without saying which subagent. Only
//! the main loop's requests are counted for the run here; a failure line between two requests makes the second a repeat. A
//! failure line does not say whose it is: while subagents or side calls are at work beside the main loop, its number may
//! tell.

use std::borrow::Cow;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{
    AttemptOutcome, Body, Candidate, Event, Layer, ModelAttempt, ModelFailed, ModelRequest, ModelRetry,
    Source,
};
use retryscope_record::{Anchor, Item, Mark, Place, RunKey, Shown, Sink, TurnOutcome};

use super::{AGENT, is_main, model_of, provider_of_model};
use crate::LineDecoder;
use crate::json::holds;

/// Line beginnings that say the request before them failed and the same step goes on.
const FAILURES: &[&str] = &[
    "API error (attempt ",
    "Stream connection error",
    "Mid-stream ",
    "Error streaming, falling back",
    "Streaming endpoint returned ",
    "Non-streaming fallback also failed",
];

/// The line after a failure without an answer, for some of them: what was wrong.
const DETAILS: &str = "Connection error details: ";

/// A log that shows everything.
const EACH: &str = "the debug log has a line for each request";
const NO_BEGINNING: &str = "the debug log begins after the first requests of the turn";
const NO_NAMES: &str = "the debug log does not say which of several agents or side calls an error was of";
const NO_REPEATS: &str = "the debug log does not say which side calls are repeats";

/// For how long a side call may be at work: nothing says when it ended, and after this time the client gives a request up
/// unless told otherwise (<https://github.com/anthropics/anthropic-sdk-typescript#timeouts>).
const SIDE_CALL: TimeDelta = TimeDelta::minutes(10);

/// Written when the process ends in order, after everything that it asked.
const ENDED: &str = "LSP server manager shut down";

pub(super) fn recognize(head: &[u8]) -> bool {
    let texts = ["[API REQUEST]", "[API:timing]", "[engine] turn ", "CA certs"];
    texts.iter().any(|text| holds(head, text))
        && String::from_utf8_lossy(head).lines().take(20).any(|line| parse(line).is_some())
}

/// Splits `<time> [LEVEL] text`. A text of several lines is written as one JSON string.
fn parse(line: &str) -> Option<(DateTime<Utc>, Cow<'_, str>)> {
    let (time, rest) = line.split_once(' ')?;
    let time = DateTime::parse_from_rfc3339(time).ok()?.with_timezone(&Utc);
    let (_, text) = rest.strip_prefix('[')?.split_once("] ")?;
    let text = text.trim_end();
    let unquoted =
        Some(text).filter(|text| text.starts_with('"')).and_then(|text| serde_json::from_str(text).ok());
    Some((time, unquoted.map_or(Cow::Borrowed(text), Cow::Owned)))
}

pub(super) struct DebugLog {
    run: Option<RunKey>,
    introduced: bool,
    turns: u64,
    /// Processes that ended; the next one that writes here goes on with the session.
    ended: u64,
    /// Attempts of those processes.
    attempts_before: u64,
    requests: u64,
    attempts: u64,
    /// Attempts of the open logical request.
    of_open: u64,
    /// The open logical request of the main loop.
    open: Option<String>,
    /// The request before failed and nothing has been sent since.
    failed: bool,
    /// The last failure line was the open request's, and does not say what was wrong.
    unexplained: bool,
    model: Option<String>,
    /// The model that the last request of the main loop was sent to.
    asked: Option<String>,
    /// When the first line was written.
    began_at: Option<DateTime<Utc>>,
    told: Told,
    /// Requests of subagents that may be at work.
    of_subagents: u64,
    /// Subagents that were started and have not ended yet.
    subagents: u64,
    sides: Sides,
}

/// Requests of side calls, such as a title, which are sent beside the main loop.
#[derive(Default)]
struct Sides {
    sent: u64,
    /// Until when one of them may be at work.
    until: Option<DateTime<Utc>>,
}

impl Sides {
    fn sent(&mut self, at: DateTime<Utc>) {
        self.sent = self.at_work(at) + 1;
        self.until = at.checked_add_signed(SIDE_CALL);
    }

    fn at_work(&self, at: DateTime<Utc>) -> u64 {
        if self.until.is_some_and(|until| at < until) { self.sent } else { 0 }
    }
}

/// What lines told of the open request.
#[derive(Default)]
struct Told {
    /// The open request was answered: the answer asked for a tool.
    answered: bool,
    /// The program's number of the last failure of the open request.
    number: u64,
    /// The loop of the open request has no attempt left.
    exhausted: bool,
    /// The open request may have failed: a failure line was its own or another's.
    in_doubt: bool,
    /// The number of the last such line.
    doubted: u64,
}

/// Whose failure a line tells.
#[derive(PartialEq)]
enum Whose {
    Main,
    Another,
    Unknown,
}

impl DebugLog {
    /// Returns a decoder; without a session id the log is an orphan and gives nothing.
    pub(super) fn new(session: Option<String>) -> Self {
        Self {
            run: session.map(|id| RunKey::new(AGENT, id)),
            introduced: false,
            turns: 0,
            ended: 0,
            attempts_before: 0,
            requests: 0,
            attempts: 0,
            of_open: 0,
            open: None,
            failed: false,
            unexplained: false,
            model: None,
            asked: None,
            began_at: None,
            told: Told::default(),
            of_subagents: 0,
            subagents: 0,
            sides: Sides::default(),
        }
    }

    /// Says how much of the turn's requests can be told from the log.
    fn show(
        &self,
        run: &RunKey,
        place: Place,
        at: DateTime<Utc>,
        because: &'static str,
        sink: &mut dyn Sink,
    ) {
        let requests = if because == EACH { Shown::All } else { Shown::Some };
        for source in [Source::Foreground, Source::Background] {
            let mark = Mark::Shows { source, requests, attempts: requests, because };
            self.mark(run, place, at, &mark, sink);
        }
    }

    #[expect(clippy::unused_self, reason = "reads like `event` beside it")]
    fn mark(&self, run: &RunKey, place: Place, at: DateTime<Utc>, mark: &Mark, sink: &mut dyn Sink) {
        sink.item(place, Item::Mark { run, at: Some(at), mark });
    }

    /// Returns the name of the turn: the one that lines tell, else all of a process.
    fn turn(&self) -> String {
        let of_this_process = if self.turns == 0 { 1 } else { self.turns };
        format!("#{}", self.ended + of_this_process)
    }

    fn event(
        &self,
        run: &RunKey,
        place: Place,
        at: DateTime<Utc>,
        body: impl Into<Body>,
        sink: &mut dyn Sink,
    ) {
        let mut event = Event::new(&*run.id, at, body).agent(AGENT);
        event.turn = Some(self.turn());
        sink.item(place, Item::Event(&event, None));
    }
}

impl LineDecoder for DebugLog {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        let Some(run) = self.run.clone() else { return };
        let text = String::from_utf8_lossy(line);
        let Some((at, text)) = parse(&text) else { return };
        let text = &*text;
        let began_at = *self.began_at.get_or_insert(at);
        // A process that goes on with a session leaves a log under another id, in which nothing is asked.
        let is_asking = ["[engine] turn ", "[API REQUEST]", "[API:timing]"]
            .iter()
            .any(|beginning| text.starts_with(beginning));
        if !self.introduced && is_asking {
            self.introduced = true;
            self.show(&run, place, began_at, EACH, sink);
        }
        if let Some(rest) = text.strip_prefix("[engine] turn ") {
            if rest.ends_with(" start") {
                self.turns += 1;
                self.close();
                let turn = Some(self.turn());
                self.mark(&run, place, at, &Mark::TurnStarted { turn }, sink);
                self.show(&run, place, at, EACH, sink);
            } else if rest.contains(" end ") {
                if self.turns == 0 {
                    self.show(&run, place, at, NO_BEGINNING, sink);
                }
                self.end_turn(&run, place, at, rest, sink);
            }
        } else if let Some(rest) = text.strip_prefix("[API:timing] dispatching to ") {
            self.model = rest.split_once("model=").map(|(_, model)| model_of(model.trim().to_owned()));
        } else if let Some(rest) = text.strip_prefix("[API REQUEST] ") {
            self.sent(&run, place, at, rest, sink);
        } else if let Some(rest) = text.strip_prefix("[Stall] ") {
            self.worked(rest);
        } else if text.starts_with(ENDED) {
            self.ended(&run, place, at, sink);
        } else if let Some(open) = self.open.clone() {
            if let Some(rest) = text.strip_prefix(DETAILS) {
                self.explain(&run, place, at, rest, &open, sink);
            } else {
                self.failure(&run, place, at, text, &open, sink);
            }
        }
    }
}

impl DebugLog {
    fn sent(&mut self, run: &RunKey, place: Place, at: DateTime<Utc>, rest: &str, sink: &mut dyn Sink) {
        let query = rest.split_once("source=").map_or("", |(_, q)| q.trim());
        // Which subagent asked is not said; those requests are known from the subagent's own transcript.
        if query.starts_with("agent:") {
            self.of_subagents += 1;
            return;
        }
        let background = query == "compact";
        if !background && !query.is_empty() && !is_main(query) {
            self.sides.sent(at);
            let (source, no) = (Source::Background, Shown::None);
            let mark = Mark::Shows { source, requests: no, attempts: no, because: NO_REPEATS };
            self.mark(run, place, at, &mark, sink);
            return;
        }
        self.unexplained = false;
        let in_doubt = std::mem::take(&mut self.told.in_doubt) && !self.failed;
        let answered = std::mem::take(&mut self.told.answered);
        if in_doubt
            && !answered
            && let Some(request_id) = self.open.clone()
        {
            // It repeats the open request or is another one: neither is said.
            self.show(run, place, at, NO_NAMES, sink);
            let basis = NO_NAMES.to_owned();
            let more = Mark::Sends { request_id, attempt_id: None, min: 0, max: None, basis };
            self.mark(run, place, at, &more, sink);
            return;
        }
        let candidate = Candidate {
            provider: self.model.as_deref().and_then(provider_of_model).map(str::to_owned),
            model: self.model.clone(),
            ..Candidate::default()
        };
        // Versions that do not tell where a prompt begins: what is asked of the same model after the last attempt is new.
        let exhausted =
            std::mem::take(&mut self.told.exhausted) && self.turns == 0 && self.model == self.asked;
        self.asked.clone_from(&self.model);
        let repeats = self.failed && self.open.is_some() && !background && !exhausted;
        let id = if let Some(id) = self.open.clone().filter(|_| repeats) {
            id
        } else {
            if let Some(before) = self.open.take().filter(|_| self.failed) {
                self.event(run, place, at, ModelFailed::new().request_id(before), sink);
            }
            self.requests += 1;
            self.of_open = 0;
            self.told.number = 0;
            self.told.doubted = 0;
            let id = format!("#{}", self.requests);
            let source = if background { Source::Background } else { Source::Foreground };
            let request = ModelRequest::new().request_id(id.clone()).source(source).purpose(query);
            self.event(run, place, at, request.candidate(candidate.clone()), sink);
            id
        };
        if self.turns == 0 {
            self.mark(run, place, at, &Mark::HoldsTurns, sink);
        }
        self.attempts += 1;
        self.of_open += 1;
        let mut attempt =
            ModelAttempt::new().request_id(id.clone()).attempt_id(format!("#{}", self.attempts));
        attempt.candidate = Some(candidate);
        attempt.started_at = Some(at);
        self.event(run, place, at, attempt, sink);
        self.failed = false;
        self.open = Some(id);
    }

    fn failure(
        &mut self,
        run: &RunKey,
        place: Place,
        at: DateTime<Utc>,
        text: &str,
        open: &str,
        sink: &mut dyn Sink,
    ) {
        if !FAILURES.iter().any(|beginning| text.starts_with(beginning)) {
            return;
        }
        self.unexplained = false;
        let whose = self.whose(text, at);
        if whose == Whose::Unknown {
            self.told.in_doubt = true;
            self.told.doubted = number_in(text).unwrap_or(self.told.doubted);
        }
        if whose != Whose::Main {
            return;
        }
        self.told.number = number_in(text).unwrap_or(self.told.number);
        let first = !self.failed;
        self.failed = true;
        if !first {
            return;
        }
        let mut retry = ModelRetry::new().request_id(open).layer(Layer::Agent);
        let message = if let Some(rest) = text.strip_prefix("API error (attempt ") {
            let (numbers, message) = rest.split_once("): ").unwrap_or((rest, ""));
            let (number, most) = numbers.split_once('/').unwrap_or((numbers, ""));
            // The number is that of the loop; repeats that it does not know of only make it smaller.
            if number.parse().is_ok_and(|number: u64| number > self.of_open) {
                self.show(run, place, at, NO_BEGINNING, sink);
                let (request_id, basis) = (open.to_owned(), "the log counts attempts that are not in it");
                let basis = basis.to_owned();
                let more = Mark::Sends { request_id, attempt_id: None, min: 0, max: None, basis };
                self.mark(run, place, at, &more, sink);
            }
            retry.max_attempts = most.parse().ok();
            self.told.exhausted = retry.max_attempts.is_some_and(|most| self.told.number >= most);
            // `503 503 {json}`: the status stands twice; `undefined` where there was no answer.
            let (status, message) = message.split_once(' ').unwrap_or((message, ""));
            retry.status = status.parse().ok().filter(|s| (100..600).contains(s));
            message.to_owned()
        } else if let Some(rest) = text.strip_prefix("Mid-stream ") {
            retry.status = rest.split(' ').next().and_then(|s| s.parse().ok());
            // A status is what the stream said; its line is no word of a stream that broke.
            if retry.status.is_some() { rest.to_owned() } else { text.to_owned() }
        } else {
            text.to_owned()
        };
        retry.upstream_request_id = message
            .split_once("\"request_id\":\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(id, _)| id.to_owned());
        if let Some(id) = &retry.upstream_request_id {
            self.mark(run, place, at, &Mark::Anchor(Anchor::of(id)), sink);
        }
        self.unexplained = retry.status.is_none();
        retry.message = Some(message);
        self.event(run, place, at, retry, sink);
        let attempt = ModelAttempt::new().request_id(open).attempt_id(format!("#{}", self.attempts));
        self.event(run, place, at, attempt.outcome(AttemptOutcome::Failed), sink);
    }

    /// Takes what was wrong in a failure that the line before told: `code=CODE, message=TEXT`.
    fn explain(
        &mut self,
        run: &RunKey,
        place: Place,
        at: DateTime<Utc>,
        rest: &str,
        open: &str,
        sink: &mut dyn Sink,
    ) {
        if !std::mem::take(&mut self.unexplained) {
            return;
        }
        let (code, message) = rest.split_once(", message=").unwrap_or((rest, ""));
        let mut attempt = ModelAttempt::new().request_id(open).attempt_id(format!("#{}", self.attempts));
        attempt.outcome = Some(AttemptOutcome::Failed);
        attempt.code = code.strip_prefix("code=").map(str::to_owned);
        attempt.message = Some(message.to_owned()).filter(|message| !message.is_empty());
        self.event(run, place, at, attempt, sink);
    }

    /// Nothing is open any more.
    fn close(&mut self) {
        self.open = None;
        self.failed = false;
        self.told.answered = false;
        self.told.in_doubt = false;
    }

    /// Takes what is said of tools and subagents at work.
    fn worked(&mut self, rest: &str) {
        if let Some(rest) = rest.strip_prefix("tool_dispatch_start ") {
            // While no subagent is at work, only the main loop's answer asks for a tool.
            self.told.answered |= self.subagents == 0 && self.of_subagents == 0;
            let is_subagent = ["tool=Agent ", "tool=Task "].iter().any(|tool| rest.starts_with(tool));
            self.subagents += u64::from(is_subagent);
        } else if rest.starts_with("agent_completion ") {
            self.subagents = self.subagents.saturating_sub(1);
            if self.subagents == 0 {
                self.of_subagents = 0;
            }
        }
    }

    /// Tells whose failure a line is: each loop counts its own.
    fn whose(&self, text: &str, at: DateTime<Utc>) -> Whose {
        let beside = self.of_subagents + self.sides.at_work(at);
        if beside == 0 {
            return Whose::Main;
        }
        if self.told.answered {
            return Whose::Another;
        }
        match number_in(text) {
            Some(number) if number == self.told.number + 1 && number > beside => Whose::Main,
            // A loop begins anew with another model, and goes on with what was in doubt.
            Some(number)
                if number != self.told.number + 1 && number > self.told.doubted + 1 && number != 1 =>
            {
                Whose::Another
            }
            _ => Whose::Unknown,
        }
    }

    /// Nothing more is asked in this process. Versions that say where turns end have said it.
    fn ended(&mut self, run: &RunKey, place: Place, at: DateTime<Utc>, sink: &mut dyn Sink) {
        if self.turns > 0 || self.attempts == self.attempts_before {
            return;
        }
        if self.failed
            && self.told.exhausted
            && let Some(open) = self.open.take()
        {
            self.event(run, place, at, ModelFailed::new().request_id(open), sink);
        }
        self.close();
        let (turn, outcome) = (Some(self.turn()), TurnOutcome::Unknown);
        self.mark(run, place, at, &Mark::TurnEnded { turn, outcome, reason: None, message: None }, sink);
        self.ended += 1;
        self.attempts_before = self.attempts;
    }

    fn end_turn(&mut self, run: &RunKey, place: Place, at: DateTime<Utc>, rest: &str, sink: &mut dyn Sink) {
        let stop =
            rest.split_once(" stop=").and_then(|(_, rest)| rest.split([' ', ')']).next()).unwrap_or("null");
        if self.failed
            && let Some(open) = self.open.take()
        {
            self.event(run, place, at, ModelFailed::new().request_id(open), sink);
        }
        // `stop_sequence` is also what a synthetic error answer carries.
        let outcome = match stop {
            "end_turn" => TurnOutcome::Succeeded,
            "stop_sequence" if self.failed => TurnOutcome::Failed,
            _ => TurnOutcome::Unknown,
        };
        self.close();
        let turn = Some(self.turn());
        self.mark(run, place, at, &Mark::TurnEnded { turn, outcome, reason: None, message: None }, sink);
    }
}

/// Returns which attempt of its loop a failure line speaks of.
fn number_in(text: &str) -> Option<u64> {
    let (number, _) = text.strip_prefix("API error (attempt ")?.split_once('/')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests;
