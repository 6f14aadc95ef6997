//! From the messages of a conversation to statements: turns, logical requests, attempts, ends.
//!
//! A logical request is the run of assistant messages between two advances of the context (a prompt, tool results or a
//! compaction), up to the first one that is no error. Not for: reading files or streams (they call this), or what lies below the session
//! loop.

mod ends;

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use retryscope_events::{
    AttemptKind, AttemptOutcome, Candidate, Layer, ModelAttempt, ModelRequest, ModelResponse, Sent, Source,
};
use retryscope_record::{Anchor, Facts, Mark, Shown, TurnOutcome};

use super::Profile;
use super::answer::{Answer, Stop};
use crate::say::Say;

/// Attempts that are remembered to drop repeats.
const SEEN_LIMIT: usize = 256;

/// Earlier turns that are remembered for what is still written of them.
const PAST_LIMIT: usize = 64;

/// Attempts of the session loop before 0.87 if its setting is the default one.
const USUAL_ATTEMPTS: u64 = 4;

/// The first version that repeats nothing below the session loop by default.
const NEWER: &str = "0.76";

/// The transport that another one stands in for.
const WEBSOCKET: &str = "websocket";

pub(super) struct Conversation {
    profile: Profile,
    /// The turn that is open.
    now: Course,
    /// The turns before it, oldest first.
    past: VecDeque<Course>,
    seen: VecDeque<(u64, Option<String>)>,
    /// The program writes down that it will repeat, so that silence means that it will not.
    announces: bool,
    /// The program is of the newer generation: something was seen that no older version writes.
    is_newer: bool,
    api: Option<String>,
    shown: bool,
}

/// How far a turn has come.
#[derive(Default)]
struct Course {
    /// Id of the turn, and the stamp that requests are named after: the same in all logs of the session.
    turn: Option<String>,
    stamp: u64,
    requests: u64,
    open: Option<Open>,
    /// The request whose answer was empty: omp asks for it again, and says nothing of it.
    empty: Option<Open>,
    /// End of what came before the next attempt.
    before: Option<DateTime<Utc>>,
}

/// The logical request that has no answer yet.
struct Open {
    id: String,
    attempts: u64,
    phase: Phase,
    /// The error heals by itself, or may: the loop would repeat it.
    may_heal: bool,
    /// Its end has been said; an attempt that comes all the same takes that back.
    said_over: bool,
    message: Option<String>,
}

/// Where the open request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// An attempt may be on its way, or somebody cancelled.
    Quiet,
    /// The last attempt failed, and nothing has been said about another one.
    Failed,
    /// It failed, and another one has been announced and not been seen.
    Planned,
}

impl Open {
    fn failed(&self) -> bool {
        self.phase != Phase::Quiet
    }
}

impl Conversation {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            profile,
            now: Course::default(),
            past: VecDeque::new(),
            seen: VecDeque::new(),
            announces: false,
            is_newer: false,
            api: None,
            shown: false,
        }
    }

    /// Says once what the log shows.
    fn show(&mut self, say: &mut Say<'_>) {
        if self.shown {
            return;
        }
        self.shown = true;
        let (attempts, because) = match self.profile {
            Profile::Pi | Profile::Omp => {
                (Shown::All, "the log shows each attempt of the session loop, and nothing of what lies below")
            }
            Profile::OpenClaw => (
                Shown::Some,
                "the log shows each attempt of the loop inside, and nothing of what lies around and below",
            ),
        };
        say.mark(&Mark::Shows { source: Source::Foreground, requests: Shown::All, attempts, because });
        let because = "the log has no full record of compaction and other side calls";
        say.mark(&Mark::Shows {
            source: Source::Background,
            requests: Shown::None,
            attempts: Shown::None,
            because,
        });
    }

    /// A system message: only the newer generation writes it, and that one announces its repeats.
    pub(super) fn system(&mut self, say: &mut Say<'_>) {
        self.announces = true;
        self.note_newer(say);
    }

    /// Notes what only versions write that hide nothing by default. That it is missing proves nothing: they write it since
    /// different versions, and an older program leaves out the same.
    pub(super) fn note_newer(&mut self, say: &mut Say<'_>) {
        if self.profile == Profile::Pi && !std::mem::replace(&mut self.is_newer, true) {
            let policy_version = Some(NEWER.to_owned());
            say.mark(&Mark::Facts(Facts { policy_version, ..Facts::default() }));
        }
    }

    /// A prompt. `id` is the entry's own id, where the log has one.
    pub(super) fn user(&mut self, id: Option<String>, stamp: Option<u64>, say: &mut Say<'_>) {
        self.show(say);
        self.give_up(say);
        let anchor = stamp.map(|stamp| format!("t{stamp}"));
        let turn = id.or_else(|| anchor.clone());
        let before = stamp.and_then(|ms| DateTime::from_timestamp_millis(i64::try_from(ms).ok()?));
        let stamp = stamp.unwrap_or(self.now.stamp + 1);
        let ended = std::mem::replace(&mut self.now, Course { turn, stamp, before, ..Course::default() });
        if self.past.len() == PAST_LIMIT {
            self.past.pop_front();
        }
        self.past.push_back(ended);
        say.turn.clone_from(&self.now.turn);
        say.mark(&Mark::TurnStarted { turn: self.now.turn.clone() });
        if let Some(anchor) = anchor {
            say.mark(&Mark::Anchor(Anchor::of(&anchor)));
        }
    }

    /// Tool results, words that the program itself put in, or a compaction: the next answer is another request.
    pub(super) fn advance(&mut self, at: Option<DateTime<Utc>>, say: &mut Say<'_>) {
        if self.now.open.as_ref().is_some_and(Open::failed) {
            self.close_failed(say);
        }
        self.now.empty = None;
        self.now.before = at.or(self.now.before);
    }

    /// An assistant message, written at `appended`.
    pub(super) fn answer(&mut self, answer: &Answer, appended: Option<DateTime<Utc>>, say: &mut Say<'_>) {
        let key = (answer.stamp, answer.candidate.provider.clone());
        if self.seen.contains(&key) {
            return;
        }
        if self.seen.len() == SEEN_LIMIT {
            self.seen.pop_front();
        }
        self.seen.push_back(key);
        self.show(say);
        if answer.has_duration_field {
            self.note_newer(say);
        }
        let cancelled_before_it_began = answer.stop == Stop::Aborted
            && answer.message.as_deref().is_some_and(|m| m.starts_with("Retry cancelled"));
        say.turn.clone_from(&self.now.turn);
        if self.now.open.is_none() && answer.never_left(self.profile, appended) {
            self.cancelled_between(answer.reason.clone(), say);
            return;
        }
        if !cancelled_before_it_began {
            self.attempt(answer, appended, say);
        }
        match answer.stop {
            Stop::Answered { goes_on } => self.answered(answer, goes_on, say),
            Stop::Failed => {
                if let Some(open) = &mut self.now.open {
                    open.phase = Phase::Failed;
                    open.may_heal = answer.may_heal(self.profile);
                    open.message.clone_from(&answer.message);
                }
                if answer.is_final {
                    self.fail_turn(say);
                }
            }
            Stop::Aborted => self.cancel(Some(answer.reason.clone()), say),
        }
    }

    fn attempt(&mut self, answer: &Answer, appended: Option<DateTime<Utc>>, say: &mut Say<'_>) {
        if answer.api.is_some() && answer.api != self.api {
            self.api.clone_from(&answer.api);
            say.mark(&Mark::Facts(Facts { api: answer.api.clone(), ..Facts::default() }));
        }
        if self.now.open.is_none() {
            self.now.open = self.now.empty.take();
        }
        if self.now.open.is_none() {
            self.now.requests += 1;
            let id = format!("{}.{}", self.now.stamp, self.now.requests);
            let request = ModelRequest::new()
                .request_id(id.clone())
                .source(Source::Foreground)
                .candidate(answer.candidate.clone());
            say.event(request);
            self.now.open = Some(Open {
                id,
                attempts: 0,
                phase: Phase::Quiet,
                may_heal: false,
                said_over: false,
                message: None,
            });
        }
        let Some(open) = &mut self.now.open else { return };
        if std::mem::take(&mut open.said_over) {
            say.event(ModelRequest::new().request_id(open.id.clone()).source(Source::Foreground));
        }
        open.attempts += 1;
        let attempt_id = answer.stamp.to_string();
        let mut attempt = ModelAttempt::new().request_id(open.id.clone()).attempt_id(attempt_id.clone());
        attempt.candidate = Some(answer.candidate.clone());
        attempt.started_at = answer.started_at;
        attempt.layer = (open.attempts > 1).then_some(Layer::Agent);
        for (number, fallback) in answer.fallbacks.iter().enumerate() {
            let mut before = attempt.clone().attempt_id(format!("{attempt_id}.{number}"));
            let over = |transport: &str| {
                let transport = Some(transport.to_owned());
                Some(Candidate { transport, ..answer.candidate.clone() })
            };
            before.candidate = over(WEBSOCKET);
            before.kind = before.kind.or(Some(match open.attempts {
                1 => AttemptKind::Original,
                _ => AttemptKind::Retry,
            }));
            before.outcome = Some(AttemptOutcome::Failed);
            before.ended_at = fallback.at;
            before.message.clone_from(&fallback.message);
            say.event(before);
            say.mark(&Mark::Sends {
                request_id: open.id.clone(),
                attempt_id: Some(format!("{attempt_id}.{number}")),
                min: 1,
                max: Some(1),
                basis: "a connection over a WebSocket is one request".into(),
            });
            attempt.candidate = over(&fallback.to);
            attempt.kind = Some(AttemptKind::Fallback);
            attempt.layer = Some(Layer::Transport);
            attempt.started_at = fallback.at;
        }
        attempt.ended_at = answer.ended_at;
        attempt.outcome = Some(match answer.stop {
            Stop::Answered { .. } => AttemptOutcome::Ok,
            Stop::Failed => AttemptOutcome::Failed,
            Stop::Aborted => AttemptOutcome::Cancelled,
        });
        if answer.stop == Stop::Failed {
            attempt.status = answer.status;
            attempt.code.clone_from(&answer.code);
            attempt.upstream_request_id.clone_from(&answer.request_id);
            attempt.message.clone_from(&answer.message);
            attempt.class = answer.class.map(str::to_owned);
            attempt.retry_after_ms = answer.retry_after_ms;
            attempt.output_started = Some(!answer.is_empty);
        }
        if answer.stop == Stop::Aborted && answer.is_empty && self.profile != Profile::Omp {
            // Cancelled before anything came back: it may not have left.
            attempt.sent = Some(Sent::Unknown);
        }
        let id = open.id.clone();
        say.failure(attempt, answer.raw().as_ref());
        let ms = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>| {
            from.zip(to).and_then(|(from, to)| u64::try_from((to - from).num_milliseconds()).ok())
        };
        let took = ms(answer.started_at, appended);
        if answer.stop != Stop::Aborted && answer.excludes_hidden(self.profile, took) {
            say.mark(&Mark::Sends {
                request_id: id,
                attempt_id: Some(attempt_id),
                min: 1,
                max: Some(1),
                basis: "the attempt took less time than the first wait of any layer below".into(),
            });
        }
        self.now.before = answer.ended_at.or(appended);
    }

    fn answered(&mut self, answer: &Answer, goes_on: bool, say: &mut Say<'_>) {
        let Some(open) = self.now.open.take() else { return };
        let id = open.id.clone();
        let may_ask_again = self.profile == Profile::Omp && answer.is_empty && !goes_on;
        self.now.empty = may_ask_again.then_some(Open { phase: Phase::Quiet, said_over: true, ..open });
        let mut response = ModelResponse::new().request_id(id).candidate(answer.candidate.clone());
        response.stop_reason = Some(answer.reason.clone());
        response.usage.clone_from(&answer.usage);
        say.event(response);
        if !goes_on {
            let reason = Some(answer.reason.clone());
            say.mark(&Mark::TurnEnded {
                turn: self.now.turn.clone(),
                outcome: TurnOutcome::Succeeded,
                reason,
                message: None,
            });
        }
    }
}
