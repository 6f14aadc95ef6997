//! What the lines of a program log, of either generation, say about the sessions in it.
//!
//! Not for: reading lines. Invariant: a request is said to have ended only when a line proves it.

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptOutcome, Candidate, Layer, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, Source,
};
use retryscope_record::{Facts, Mark, Place, RawFailure, RunKey, Shown, Sink, TurnOutcome};

use super::AGENT;
use crate::say::Say;

/// Sessions and waiting attempts that are remembered.
const SESSION_LIMIT: usize = 1024;

/// Title requests without an end that are remembered of a session; one that was answered has no line that says so.
const TITLE_LIMIT: usize = 16;

/// Providers for which the program can be told to use a runtime of its own.
pub(super) const MAY_BE_NATIVE: &[&str] = &["openai", "anthropic", "opencode"];

const SHOWS_EACH: &str = "the log has a line for each attempt, but its writer may lose the last second";
const NATIVE: &str = "opencode's native runtime repeats a request up to 2 times below this log";
const NATIVE_UNKNOWN: &str =
    "if opencode's native runtime was on, it repeats a request up to 2 times below this log";
const NOT_NATIVE: &str = "the log names the runtime without retries of its own";
const TITLE: &str = "opencode lets its SDK repeat a title request up to 2 times below this log";
const TITLE_FAILED: &str = "the SDK says that all its 3 attempts failed";

/// One `stream` line.
pub(super) struct Sent<'a> {
    pub(super) candidate: Candidate,
    pub(super) agent: Option<&'a str>,
    pub(super) small: bool,
    /// Whether a line about the runtime follows, or may.
    pub(super) names_runtime: bool,
}

/// One error line.
#[derive(Debug, Default)]
pub(super) struct Failed {
    pub(super) message: Option<String>,
    pub(super) code: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) raw: Option<RawFailure>,
    /// Model that the failed request asked for, where the line holds it.
    pub(super) model: Option<String>,
    /// Where it was sent, where the line holds that.
    pub(super) endpoint: Option<String>,
}

#[derive(Default)]
pub(super) struct Track {
    sessions: BTreeMap<String, Session>,
    /// Sessions in the order in which they were first seen.
    order: VecDeque<String>,
    /// Attempts whose runtime is not known yet: process, session, request, attempt, candidate.
    waiting: VecDeque<Waiting>,
    /// Time of the last line of each process.
    heard: BTreeMap<String, DateTime<Utc>>,
}

struct Waiting {
    process: String,
    run: RunKey,
    request: String,
    attempt: String,
    candidate: Candidate,
}

#[derive(Default)]
struct Session {
    process: String,
    /// The open turn; only this log knows it by that name.
    turn: Option<String>,
    step: Option<u64>,
    introduced: bool,
    requests: u64,
    titles: u64,
    head: Head,
    /// Title requests without an end, oldest first.
    open_titles: Vec<(String, Candidate)>,
    open: Option<Open>,
    /// Where the main requests are sent, once an error has told it.
    endpoint: Option<String>,
}

/// Whether the log holds what came before the lines that have been read of a session.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// No line of its requests has been read.
    #[default]
    Unread,
    /// It began in this log.
    Here,
    /// Requests before may be missing.
    Missing,
    /// So may be lines of the request that is read first.
    MissingWithin,
}

struct Open {
    id: String,
    attempts: u64,
    in_flight: bool,
    candidate: Candidate,
}

impl Track {
    fn session(&mut self, id: &str, process: &str, say: &mut Say<'_>) -> &mut Session {
        if !self.sessions.contains_key(id) {
            if self.order.len() >= SESSION_LIMIT
                && let Some(oldest) = self.order.pop_front()
            {
                self.sessions.remove(&oldest);
            }
            self.order.push_back(id.to_owned());
        }
        let session = self.sessions.entry(id.to_owned()).or_default();
        if session.process != process {
            // Another process goes on with the session: what was open has ended, nobody knows how.
            let heard = self.heard.get(&session.process).copied();
            session.told_until(heard, say);
            process.clone_into(&mut session.process);
            session.open = None;
            session.open_titles.clear();
            session.turn = None;
        }
        say.turn.clone_from(&session.turn);
        say.step = session.step;
        if !session.introduced {
            session.introduced = true;
            session.shows(Shown::All, Shown::All, SHOWS_EACH, say);
            let because = "the log has one line for up to 3 title requests";
            say.mark(&Mark::Shows {
                source: Source::Background,
                requests: Shown::Some,
                attempts: Shown::All,
                because,
            });
            say.mark(&Mark::TailMayBeLost);
        }
        session
    }

    /// Notes any line of a process: what it wrote before is there.
    pub(super) fn hear(&mut self, process: &str, at: Option<DateTime<Utc>>) {
        let Some(at) = at else { return };
        if let Some(heard) = self.heard.get_mut(process) {
            *heard = at.max(*heard);
        } else {
            if self.heard.len() >= SESSION_LIMIT {
                self.heard.clear();
            }
            self.heard.insert(process.to_owned(), at);
        }
    }

    /// The source has no more lines for now.
    pub(super) fn end(&self, sink: &mut dyn Sink) {
        for (id, session) in &self.sessions {
            let run = RunKey::new(AGENT, id.as_str());
            let mut say = Say { run, place: Place::Whole, at: None, turn: None, step: None, sink };
            session.told_until(self.heard.get(&session.process).copied(), &mut say);
        }
    }

    pub(super) fn created(&mut self, id: &str, process: &str, facts: Facts, say: &mut Say<'_>) {
        self.session(id, process, say).read(Head::Here, say);
        say.mark(&Mark::Facts(facts));
    }

    /// The loop of the session goes round: the request before is over. Where it begins anew, the loop before was left without
    /// a word: how its last request ended is not told, unless it had failed.
    pub(super) fn step(&mut self, id: &str, process: &str, number: Option<u64>, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        if number == Some(0) {
            session.leave(say);
        } else {
            session.close(say);
        }
        session.step = number.map(|n| n.saturating_add(1));
        say.step = session.step;
        if number == Some(0) {
            session.turn = say.at.map(|at| format!("#{}", at.timestamp_millis()));
            say.turn.clone_from(&session.turn);
            say.mark(&Mark::TurnStarted { turn: session.turn.clone() });
        }
        session.read(if number == Some(0) { Head::Here } else { Head::Missing }, say);
    }

    /// The loop ended by itself.
    pub(super) fn exit(&mut self, id: &str, process: &str, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        session.close(say);
        session.read(Head::Missing, say);
        let turn = session.turn.clone();
        say.mark(&Mark::TurnEnded { turn, outcome: TurnOutcome::Succeeded, reason: None, message: None });
        say.mark(&Mark::TurnComplete);
    }

    /// The next request; `message` is its id, where the log has one.
    pub(super) fn begin(&mut self, id: &str, process: &str, message: Option<&str>, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        session.close(say);
        session.read(Head::Missing, say);
        session.requests += 1;
        let request = message.map_or_else(|| format!("#{}", session.requests), str::to_owned);
        say.event(ModelRequest::new().request_id(request.clone()).source(Source::Foreground));
        session.open =
            Some(Open { id: request, attempts: 0, in_flight: false, candidate: Candidate::default() });
    }

    /// A line from within a request: where it is the first one, what came before is missing.
    fn inside(&mut self, id: &str, process: &str, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        if session.open.is_none() {
            session.read(Head::MissingWithin, say);
            let head = std::mem::replace(&mut session.head, Head::Here);
            self.begin(id, process, None, say);
            self.session(id, process, say).head = head;
        }
    }

    pub(super) fn stream(&mut self, id: &str, process: &str, sent: &Sent<'_>, say: &mut Say<'_>) {
        if sent.small {
            self.title(id, process, sent, say);
            return;
        }
        self.inside(id, process, say);
        let session = self.session(id, process, say);
        let Some(open) = &mut session.open else { return };
        if open.attempts == 0 {
            let mut request = ModelRequest::new().request_id(open.id.clone()).source(Source::Foreground);
            request.candidate = Some(sent.candidate.clone());
            request.purpose = sent.agent.map(str::to_owned);
            say.event(request);
            // The title may have been asked of another model; the run's is that of its steps.
            let facts = Facts {
                provider: sent.candidate.provider.clone(),
                model: sent.candidate.model.clone(),
                ..Facts::default()
            };
            say.mark(&Mark::Facts(facts));
        }
        open.attempts += 1;
        open.in_flight = true;
        open.candidate.clone_from(&sent.candidate);
        let attempt_id = open.attempt_id();
        let mut attempt = ModelAttempt::new().request_id(open.id.clone()).attempt_id(attempt_id.clone());
        attempt.candidate = Some(sent.candidate.clone());
        attempt.layer = (open.attempts > 1).then_some(Layer::Agent);
        say.event(attempt);
        let request = open.id.clone();
        if !sent.names_runtime {
            return;
        }
        if sent.candidate.provider.as_deref().is_some_and(|provider| MAY_BE_NATIVE.contains(&provider)) {
            sends(&request, &attempt_id, 1, 3, NATIVE_UNKNOWN, say);
        }
        if self.waiting.len() >= SESSION_LIMIT {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting {
            process: process.to_owned(),
            run: say.run.clone(),
            request,
            attempt: attempt_id,
            candidate: sent.candidate.clone(),
        });
    }

    fn title(&mut self, id: &str, process: &str, sent: &Sent<'_>, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        session.titles += 1;
        let request_id = format!("#title{}", session.titles);
        if session.open_titles.len() >= TITLE_LIMIT {
            session.open_titles.remove(0);
        }
        session.open_titles.push((request_id.clone(), sent.candidate.clone()));
        let mut request =
            ModelRequest::new().request_id(request_id.clone()).source(Source::Background).purpose("title");
        request.candidate = Some(sent.candidate.clone());
        say.event(request);
        let attempt = ModelAttempt::new()
            .request_id(request_id.clone())
            .attempt_id("1")
            .candidate(sent.candidate.clone());
        say.event(attempt);
        sends(&request_id, "1", 1, 3, TITLE, say);
    }

    /// The line after `stream` names the runtime, but not the session: that of the same process, provider and model.
    pub(super) fn runtime(
        &mut self,
        process: &str,
        provider: &str,
        model: &str,
        native: bool,
        say: &mut Say<'_>,
    ) {
        let is_it = |w: &Waiting| {
            w.process == process
                && w.candidate.provider.as_deref() == Some(provider)
                && w.candidate.model.as_deref() == Some(model)
        };
        let Some(waiting) = self.waiting.iter().position(is_it).and_then(|index| self.waiting.remove(index))
        else {
            return;
        };
        say.run = waiting.run;
        if native {
            sends(&waiting.request, &waiting.attempt, 1, 3, NATIVE, say);
        } else if MAY_BE_NATIVE.contains(&provider) {
            sends(&waiting.request, &waiting.attempt, 1, 1, NOT_NATIVE, say);
        }
    }

    /// An attempt failed; `small` is what the tags of the line say.
    pub(super) fn error(&mut self, id: &str, process: &str, small: bool, failed: &Failed, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        // The tags of an older line may be those of a concurrent request; the model inside is not.
        let asked = failed.model.as_deref();
        let of = |candidate: &Candidate| asked.is_none_or(|model| candidate.model.as_deref() == Some(model));
        let in_flight = session.open.as_ref().filter(|open| open.in_flight && of(&open.candidate));
        // Without a model only the place tells whose it is, as far as that of the main requests is known.
        let is_of_main = match &failed.endpoint {
            Some(endpoint) if asked.is_none() => session.endpoint.as_ref().map(|of_main| of_main == endpoint),
            _ => None,
        };
        let main = in_flight.map(|open| &open.candidate);
        let has_other =
            main.is_some_and(|main| session.open_titles.iter().any(|(_, title)| title.model != main.model));
        if !small && is_of_main.is_none() && asked.is_none() && failed.endpoint.is_some() && has_other {
            return;
        }
        let is_main = in_flight.is_some() && is_of_main != Some(false);
        if is_main && asked.is_some() {
            session.endpoint = failed.endpoint.clone().or(session.endpoint.take());
        }
        let title = session.open_titles.iter().rposition(|(_, candidate)| of(candidate));
        if let Some(index) = title.filter(|_| (small || !is_main) && is_of_main != Some(true)) {
            let (request, _) = session.open_titles.remove(index);
            if failed.message.as_deref().is_some_and(|text| text.contains("Failed after 3 attempts")) {
                sends(&request, "1", 3, 3, TITLE_FAILED, say);
            }
            say.failure(failed.ended(&request, "1"), failed.raw.as_ref());
            say.event(ModelFailed::new().request_id(request));
            return;
        }
        // Only the model inside can show that a line with the tags of a title is not about one.
        let is_shown = asked.is_some() || is_of_main == Some(true);
        if small && !(is_main && is_shown) || is_of_main == Some(false) {
            return;
        }
        if session.open.as_ref().is_none_or(|open| !open.in_flight) {
            // At a higher log level the lines of attempts are missing, and those of errors are not.
            let is_begun = session.open.is_some();
            session.head = Head::MissingWithin;
            session.shows(Shown::Some, Shown::Some, "lines of attempts are missing in the log", say);
            self.inside(id, process, say);
            let session = self.session(id, process, say);
            if let (true, Some(open)) = (is_begun, &session.open) {
                say.mark(&Mark::Sends {
                    request_id: open.id.clone(),
                    attempt_id: None,
                    min: 0,
                    max: None,
                    basis: "the log has an error of an attempt that it does not show".into(),
                });
            }
        }
        let Some(open) = &mut self.session(id, process, say).open else { return };
        if !open.in_flight {
            open.attempts += 1;
        }
        open.in_flight = false;
        let (request, attempt) = (open.id.clone(), open.attempt_id());
        let raw = failed.raw.clone();
        say.failure(failed.ended(&request, &attempt), raw.as_ref());
    }

    /// The program gave the request up.
    pub(super) fn gave_up(&mut self, id: &str, process: &str, failed: &Failed, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        let Some(open) = session.open.take() else { return };
        let mut end = ModelFailed::new().request_id(open.id);
        if open.in_flight {
            end.message.clone_from(&failed.message);
        }
        say.event(end);
        let (turn, outcome) = (session.turn.clone(), TurnOutcome::Failed);
        say.mark(&Mark::TurnEnded { turn, outcome, reason: None, message: failed.message.clone() });
    }

    /// The process ended in an orderly way: all of its lines are there.
    pub(super) fn process_over(&mut self, process: &str, say: &mut Say<'_>) {
        for (id, session) in self.sessions.iter_mut().filter(|(_, session)| session.process == process) {
            say.run = RunKey::new(AGENT, id.as_str());
            say.mark(&Mark::TurnComplete);
            session.process.clear();
        }
    }

    /// The loop was left; in the older logs the only sign of the end of a failed prompt.
    pub(super) fn left(&mut self, id: &str, process: &str, say: &mut Say<'_>) {
        let session = self.session(id, process, say);
        if session.open.as_ref().is_some_and(|open| !open.in_flight && open.attempts > 0) {
            self.gave_up(id, process, &Failed::default(), say);
        }
        say.mark(&Mark::TurnComplete);
    }
}

impl Session {
    /// Takes note of a line, and of what it says is missing before it if it is the first.
    fn read(&mut self, head: Head, say: &mut Say<'_>) {
        let because = "its beginning is not in this file";
        if self.head == Head::Unread && head != Head::Here {
            say.mark(&Mark::BeginsElsewhere);
        }
        match (self.head, head) {
            // What begins from here on is all there.
            (Head::Unread | Head::MissingWithin, Head::Missing) => {
                self.shows(Shown::Some, Shown::All, because, say);
            }
            (Head::Unread, Head::MissingWithin) => self.shows(Shown::Some, Shown::Some, because, say),
            (Head::Missing | Head::MissingWithin, Head::Here) => {
                self.shows(Shown::All, Shown::All, SHOWS_EACH, say);
            }
            (Head::Unread, _) => {}
            _ => return,
        }
        self.head = head;
    }

    #[expect(clippy::unused_self, reason = "reads like the methods beside it")]
    fn shows(&self, requests: Shown, attempts: Shown, because: &'static str, say: &mut Say<'_>) {
        say.mark(&Mark::Shows { source: Source::Foreground, requests, attempts, because });
    }

    /// Nothing of the process up to its last line is missing.
    fn told_until(&self, heard: Option<DateTime<Utc>>, say: &mut Say<'_>) {
        if self.turn.is_some() && heard.is_some() {
            let now = std::mem::replace(&mut say.at, heard);
            say.mark(&Mark::ToldUntil);
            say.at = now;
        }
    }

    /// What was in flight may have been answered, or not.
    fn leave(&mut self, say: &mut Say<'_>) {
        if let Some(Open { id: request_id, .. }) = self.open.take_if(|open| open.in_flight) {
            say.mark(&Mark::LeftOpen { request_id });
        }
        self.close(say);
    }

    /// Something else began: the last attempt was answered, or its failure was final.
    fn close(&mut self, say: &mut Say<'_>) {
        match self.open.take() {
            Some(open) if open.in_flight => say.event(ModelResponse::new().request_id(open.id)),
            Some(open) if open.attempts > 0 => say.event(ModelFailed::new().request_id(open.id)),
            _ => {}
        }
    }
}

impl Open {
    fn attempt_id(&self) -> String {
        format!("{}.{}", self.id, self.attempts)
    }
}

impl Failed {
    fn ended(&self, request: &str, attempt: &str) -> ModelAttempt {
        let mut body =
            ModelAttempt::new().request_id(request).attempt_id(attempt).outcome(AttemptOutcome::Failed);
        body.message.clone_from(&self.message);
        body.code.clone_from(&self.code);
        body.status = self.status;
        body
    }
}

fn sends(request: &str, attempt: &str, min: u64, max: u64, basis: &str, say: &mut Say<'_>) {
    say.mark(&Mark::Sends {
        request_id: request.to_owned(),
        attempt_id: Some(attempt.to_owned()),
        min,
        max: Some(max),
        basis: basis.to_owned(),
    });
}
