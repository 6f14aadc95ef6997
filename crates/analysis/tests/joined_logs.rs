//! Several logs of one run: what one lacks, another proves.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::{AsOf, Bound, Engine, Evidence, RequestOutcome, Run, RunOutcome, SourceState};
use retryscope_events::{
    AttemptOutcome, Body, Event, ModelAttempt, ModelFailed, ModelRequest, ModelResponse,
};
use retryscope_record::{Facts, Item, Mark, Origin, Place, RunKey, Shown, SourceId, TurnOutcome, View};

const AGENT: &str = "some-agent";

fn at(ms: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::milliseconds(1_800_000_000_000 + ms)
}

struct Source<'a> {
    engine: &'a mut Engine,
    kind: View,
    id: u32,
}

impl Source<'_> {
    fn origin(&self) -> Origin {
        Origin { source: SourceId(self.id), place: Place::Whole }
    }

    fn event(&mut self, ms: i64, turn: &str, body: impl Into<Body>) {
        let mut event = Event::new("r", at(ms), body).agent(AGENT);
        event.turn = Some(turn.to_owned());
        let origin = self.origin();
        self.engine.apply(self.kind, origin, Item::Event(&event, None));
    }

    fn mark(&mut self, ms: i64, mark: &Mark) {
        let run = RunKey::new(AGENT, "r");
        let origin = self.origin();
        self.engine.apply(self.kind, origin, Item::Mark { run: &run, at: Some(at(ms)), mark });
    }

    fn shows(&mut self, attempts: Shown) {
        let source = retryscope_events::Source::Foreground;
        self.mark(0, &Mark::Shows { source, requests: Shown::All, attempts, because: "a test says so" });
    }

    fn attempt(&mut self, ms: i64, turn: &str, request: &str, number: u32, outcome: Option<AttemptOutcome>) {
        let mut attempt = ModelAttempt::new().request_id(request).attempt_id(format!("{request}.{number}"));
        attempt.outcome = outcome;
        self.event(ms, turn, attempt);
    }
}

/// A database that shows the end of each request, and a log that shows attempts and lost its tail.
fn database_and_log(told_until: i64, log_requests: &[&str]) -> Run {
    let mut engine = Engine::new();
    let mut database = Source { engine: &mut engine, kind: View::DATABASE, id: 0 };
    database.shows(Shown::None);
    for (ms, request) in [(0, "m1"), (1_000, "m2")] {
        database.event(ms, "u1", ModelRequest::new().request_id(request));
        database.attempt(ms, "u1", request, 1, None);
        database.event(ms + 900, "u1", ModelResponse::new().request_id(request));
        database.mark(ms + 800, &Mark::SentBy { request_id: request.to_owned() });
    }
    let turn = Some("u1".to_owned());
    database
        .mark(1_900, &Mark::TurnEnded { turn, outcome: TurnOutcome::Succeeded, reason: None, message: None });
    let mut log = Source { engine: &mut engine, kind: View::LOG, id: 1 };
    log.shows(Shown::All);
    log.mark(0, &Mark::TailMayBeLost);
    for request in log_requests.iter().copied() {
        log.event(0, "#l", ModelRequest::new().request_id(request));
        log.attempt(10, "#l", request, 1, Some(AttemptOutcome::Failed));
        log.attempt(500, "#l", request, 2, None);
    }
    log.mark(told_until, &Mark::ToldUntil);
    let sources = BTreeMap::new();
    engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0)
}

fn upstream(run: &Run) -> (u64, Option<u64>) {
    let bound = run.counts.upstream_requests.bound;
    (bound.min, bound.max)
}

#[test]
fn a_log_that_reaches_the_last_send_is_complete() {
    assert_eq!(upstream(&database_and_log(1_850, &["m1", "m2"])), (4, Some(4)));
    // So soon before it that nothing else fits between.
    assert_eq!(upstream(&database_and_log(1_400, &["m1", "m2"])), (4, Some(4)));
}

#[test]
fn a_log_that_ends_before_it_gives_a_lower_bound() {
    assert_eq!(upstream(&database_and_log(1_200, &["m1", "m2"])), (4, None));
}

#[test]
fn a_request_that_the_log_lost_leaves_the_bound_open() {
    assert_eq!(upstream(&database_and_log(1_400, &["m1"])), (3, None));
}

#[test]
fn one_turn_of_a_log_that_another_log_calls_two_counts_once() {
    let mut engine = Engine::new();
    let mut database = Source { engine: &mut engine, kind: View::DATABASE, id: 0 };
    database.shows(Shown::None);
    for (turn, request) in [("u1", "m1"), ("u2", "m2")] {
        database.event(0, turn, ModelRequest::new().request_id(request));
        database.attempt(0, turn, request, 1, None);
        database.event(900, turn, ModelResponse::new().request_id(request));
        let turn = Some(turn.to_owned());
        database.mark(
            900,
            &Mark::TurnEnded { turn, outcome: TurnOutcome::Succeeded, reason: None, message: None },
        );
    }
    let mut log = Source { engine: &mut engine, kind: View::LOG, id: 1 };
    log.shows(Shown::All);
    for request in ["m1", "m2"] {
        log.event(0, "#l", ModelRequest::new().request_id(request));
        log.attempt(10, "#l", request, 1, None);
        log.event(900, "#l", ModelResponse::new().request_id(request));
    }
    log.mark(950, &Mark::TurnComplete);
    let sources = BTreeMap::new();
    let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
    assert_eq!(run.turns.len(), 1);
    assert_eq!(upstream(&run), (2, Some(2)));
    assert_eq!(run.counts.logical_requests.bound.max, Some(2));
}

#[test]
fn failures_of_one_log_and_the_answer_of_another_are_sends_of_their_own() {
    let mut engine = Engine::new();
    let mut database = Source { engine: &mut engine, kind: View::DATABASE, id: 0 };
    database.shows(Shown::None);
    database.event(0, "u1", ModelRequest::new().request_id("m1"));
    database.attempt(0, "u1", "m1", 1, None);
    database.event(9_000, "u1", ModelResponse::new().request_id("m1"));
    let mut log = Source { engine: &mut engine, kind: View::LOG, id: 1 };
    log.shows(Shown::All);
    log.mark(0, &Mark::TailMayBeLost);
    log.event(0, "#l", ModelRequest::new().request_id("m1"));
    for number in 1..=2 {
        log.attempt(10, "#l", "m1", number, Some(AttemptOutcome::Failed));
    }
    let sources = BTreeMap::new();
    let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
    assert_eq!(upstream(&run), (3, None));
    assert_eq!(run.counts.retries.bound.min, 2);
}

#[test]
fn a_request_whose_end_only_the_other_log_holds_has_ended() {
    let outcome = |sends: &[Option<AttemptOutcome>], twin_sends: &[Option<AttemptOutcome>]| {
        let mut engine = Engine::new();
        let mut log = Source { engine: &mut engine, kind: View::LOG, id: 0 };
        log.shows(Shown::All);
        log.event(0, "u1", ModelRequest::new().request_id("m1"));
        for (n, sent) in (1..).zip(sends) {
            log.attempt(i64::from(n), "u1", "m1", n, *sent);
        }
        let mut stdout = Source { engine: &mut engine, kind: View::STDOUT, id: 1 };
        stdout.shows(Shown::None);
        stdout.event(0, "u1", ModelRequest::new().request_id("s1"));
        for (n, sent) in (1..).zip(twin_sends) {
            stdout.attempt(i64::from(n), "u1", "s1", n, *sent);
        }
        stdout.event(900, "u1", ModelResponse::new().request_id("s1"));
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        run.turns[0].requests[0].outcome
    };
    let failed = Some(AttemptOutcome::Failed);
    assert_eq!(outcome(&[failed, None], &[failed, None]), RequestOutcome::OkAfterRetry);
    // Not the same attempts: not the same request.
    assert_eq!(outcome(&[failed, failed, None], &[failed, None]), RequestOutcome::Open);
}

#[test]
fn of_two_logs_that_contradict_each_other_the_one_that_goes_on_tells_the_end() {
    let outcome = |ends: [(i64, TurnOutcome); 2]| {
        let mut engine = Engine::new();
        for (id, kind, (ms, outcome)) in [(0, View::SESSION, ends[0]), (1, View::STDOUT, ends[1])] {
            let mut source = Source { engine: &mut engine, kind, id };
            source.event(0, "u1", ModelRequest::new().request_id("m1"));
            let turn = Some("u1".to_owned());
            source.mark(ms, &Mark::TurnEnded { turn, outcome, reason: None, message: None });
        }
        let sources = BTreeMap::new();
        engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0).outcome
    };
    let (failed, succeeded) = (TurnOutcome::Failed, TurnOutcome::Succeeded);
    assert_eq!(outcome([(100, failed), (900, succeeded)]), RunOutcome::Succeeded);
    assert_eq!(outcome([(900, failed), (100, succeeded)]), RunOutcome::Failed);
    assert_eq!(outcome([(100, failed), (900, TurnOutcome::Unknown)]), RunOutcome::Failed);
}

#[test]
fn a_turn_of_another_log_is_not_guessed_where_two_files_hold_one_each() {
    let left_out = |outputs: u32| {
        let mut engine = Engine::new();
        for id in 0..outputs {
            let mut output = Source { engine: &mut engine, kind: View::STDOUT, id };
            let (turn, request) = (format!("o{id}"), format!("x{id}"));
            output.event(0, &turn, ModelRequest::new().request_id(&*request));
            output.event(900, &turn, ModelResponse::new().request_id(&*request));
        }
        let mut log = Source { engine: &mut engine, kind: View::LOG, id: outputs };
        log.shows(Shown::All);
        log.event(0, "l", ModelRequest::new().request_id("#1"));
        log.attempt(10, "l", "#1", 1, Some(AttemptOutcome::Failed));
        log.attempt(500, "l", "#1", 2, None);
        log.mark(950, &Mark::TurnComplete);
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        (run.turns.len(), run.blind_spots.iter().any(|text| text.contains("no id with the others")))
    };
    assert_eq!(left_out(2), (2, true));
    // Near miss: one turn in each log is the same turn.
    assert_eq!(left_out(1), (1, false));
}

#[test]
fn a_success_that_no_record_named_gives_way_to_an_interruption() {
    let outcome = |reason: Option<&str>| {
        let mut engine = Engine::new();
        let mut log = Source { engine: &mut engine, kind: View::SESSION, id: 0 };
        log.event(0, "u1", ModelRequest::new().request_id("m1"));
        let ends =
            [(900, TurnOutcome::Succeeded, reason), (950, TurnOutcome::Cancelled, Some("interrupted"))];
        for (ms, outcome, reason) in ends {
            let (turn, reason) = (Some("u1".to_owned()), reason.map(str::to_owned));
            log.mark(ms, &Mark::TurnEnded { turn, outcome, reason, message: None });
        }
        let sources = BTreeMap::new();
        engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0).outcome
    };
    assert_eq!(outcome(None), RunOutcome::Cancelled);
    assert_eq!(outcome(Some("end_turn")), RunOutcome::Succeeded);
}

#[test]
fn a_failure_is_without_a_retry_only_where_the_log_would_show_one() {
    let outcome = |attempts: Shown| {
        let mut engine = Engine::new();
        let mut log = Source { engine: &mut engine, kind: View::LOG, id: 0 };
        log.shows(attempts);
        log.event(0, "u1", ModelRequest::new().request_id("m1"));
        log.attempt(10, "u1", "m1", 1, Some(AttemptOutcome::Failed));
        log.event(900, "u1", ModelFailed::new().request_id("m1"));
        let turn = Some("u1".to_owned());
        log.mark(950, &Mark::TurnEnded { turn, outcome: TurnOutcome::Failed, reason: None, message: None });
        log.mark(950, &Mark::TurnComplete);
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        run.turns[0].requests[0].outcome
    };
    assert_eq!(outcome(Shown::All), RequestOutcome::FailedNoRetry);
    assert_eq!(outcome(Shown::None), RequestOutcome::Failed);
}

#[test]
fn a_log_that_never_tells_ends_does_not_say_that_the_process_is_gone() {
    let outcome = |untold: bool, other: Option<View>| {
        let mut engine = Engine::new();
        let mut export = Source { engine: &mut engine, kind: View::OTLP_LOGS, id: 0 };
        if untold {
            export.mark(0, &Mark::EndsUntold);
        }
        export.event(0, "u1", ModelRequest::new().request_id("m1"));
        export.event(900, "u1", ModelResponse::new().request_id("m1"));
        if let Some(kind) = other {
            let mut other = Source { engine: &mut engine, kind, id: 1 };
            other.event(0, "u1", ModelRequest::new().request_id("m1"));
        }
        let sources = BTreeMap::new();
        engine.runs(&AsOf { now: at(86_400_000), sources: &sources }).remove(0).outcome
    };
    assert_eq!(outcome(true, None), RunOutcome::Unknown);
    // A log that would tell, and stops without an end.
    assert_eq!(outcome(false, None), RunOutcome::Interrupted);
    assert_eq!(outcome(true, Some(View::SESSION)), RunOutcome::Interrupted);
}

/// Two processes of one run, of which each kept its own output, and what a collector has of one of them.
#[test]
fn outputs_of_two_processes_are_two_turns() {
    let mut engine = Engine::new();
    for (id, kind) in [(0, View::OTLP_LOGS), (1, View::STDOUT), (2, View::STDOUT)] {
        let mut source = Source { engine: &mut engine, kind, id };
        source.shows(Shown::All);
        let turn = format!("#{id}");
        source.mark(0, &Mark::TurnStarted { turn: Some(turn.clone()) });
        source.event(0, &turn, ModelRequest::new().request_id("#1"));
        source.attempt(10, &turn, "#1", 1, None);
        if kind == View::STDOUT {
            source.event(20, &turn, ModelResponse::new().request_id("#1"));
            let (outcome, turn) = (TurnOutcome::Succeeded, Some(turn));
            source.mark(30, &Mark::TurnEnded { turn, outcome, reason: None, message: None });
        }
    }
    let sources = BTreeMap::new();
    let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
    assert_eq!(run.turns.len(), 2);
    // The collector's turn may be one of them, or a third one.
    assert_eq!(upstream(&run), (2, None));
    assert_eq!(run.counts.logical_requests.bound.min, 2);
}

/// A review is asked for by a thread of its own; the output of the program names the thread that waits for it.
#[test]
fn an_output_of_another_runs_requests_counts_none() {
    let counted = |is_lent: bool| {
        let mut engine = Engine::new();
        for (id, kind) in [(0, View::SESSION), (1, View::STDOUT)] {
            let mut source = Source { engine: &mut engine, kind, id };
            source.shows(Shown::All);
            source.mark(0, &Mark::TurnStarted { turn: None });
            if kind == View::STDOUT {
                source.attempt(10, "t", "#1", 1, None);
                source.event(20, "t", ModelResponse::new().request_id("#1"));
            } else if is_lent {
                source.mark(0, &Mark::AskedElsewhere);
            }
            let outcome = TurnOutcome::Succeeded;
            source.mark(30, &Mark::TurnEnded { turn: None, outcome, reason: None, message: None });
        }
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        assert_eq!((run.turns.len(), run.outcome), (1, RunOutcome::Succeeded));
        upstream(&run)
    };
    assert_eq!(counted(true), (0, Some(0)));
    // Where nothing says so they are its own.
    assert_eq!(counted(false).0, 1);
}

/// A log of many runs, which never says how one ends, and whose writer lives on.
#[test]
fn how_far_a_log_reaches_is_no_event_of_a_run() {
    let seen = |now: i64, alive: Option<bool>| {
        let mut engine = Engine::new();
        let mut source = Source { engine: &mut engine, kind: View::LOGS_DB, id: 0 };
        source.shows(Shown::All);
        source.mark(0, &Mark::EndsElsewhere);
        source.event(0, "t", ModelRequest::new().request_id("#1"));
        source.attempt(10, "t", "#1", 1, None);
        source.mark(now, &Mark::ToldUntil);
        let state = SourceState { writer_alive: alive, ..SourceState::default() };
        let sources = BTreeMap::from([(SourceId(0), state)]);
        let run = engine.runs(&AsOf { now: at(now), sources: &sources }).remove(0);
        assert_eq!(run.ended_at, Some(at(10)));
        run.outcome
    };
    assert_eq!(seen(60_000, Some(true)), RunOutcome::Running);
    assert_eq!(seen(86_400_000, Some(true)), RunOutcome::Unknown);
    assert_eq!(seen(86_400_000, None), RunOutcome::Unknown);
}

/// A reset may have come within an answer: it proves no loop of requests that ran to its end.
#[test]
fn a_reset_raises_no_lower_end() {
    let sent = |message: &str| {
        let mut engine = Engine::new();
        let run = RunKey::new("codex", "r");
        let origin = Origin { source: SourceId(0), place: Place::Whole };
        let mut say = |mark: &Mark| {
            engine.apply(View::STDOUT, origin, Item::Mark { run: &run, at: Some(at(0)), mark });
        };
        let agent_version = Some("0.171.0".to_owned());
        say(&Mark::Facts(Facts { agent_version, ..Facts::default() }));
        let (shown, source) = (Shown::All, retryscope_events::Source::Foreground);
        say(&Mark::Shows { source, requests: shown, attempts: shown, because: "a test says so" });
        let mut attempt =
            ModelAttempt::new().request_id("#1").attempt_id("a").outcome(AttemptOutcome::Failed);
        attempt.message = Some(message.to_owned());
        let bodies: [Body; 3] = [
            ModelRequest::new().request_id("#1").into(),
            attempt.into(),
            ModelFailed::new().request_id("#1").into(),
        ];
        for body in bodies {
            let event = Event::new("r", at(0), body).agent("codex");
            engine.apply(View::STDOUT, origin, Item::Event(&event, None));
        }
        let settings = Some(Arc::default());
        let sources = BTreeMap::from([(SourceId(0), SourceState { settings, ..SourceState::default() })]);
        upstream(&engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0)).0
    };
    assert_eq!(sent("connect ECONNREFUSED"), 5);
    assert_eq!(sent("connection reset by peer"), 1);
}

/// What a collector has of a turn whose last export was lost, and standard output, which has the last error.
#[test]
fn the_error_that_ended_a_turn_is_not_the_last_one_that_a_cut_log_holds() {
    let told = |lost: bool, last: (Option<u16>, &str)| {
        let mut engine = Engine::new();
        let failed = |status: Option<u16>, message: &str, number: u32| {
            let mut attempt = ModelAttempt::new().request_id("#1").attempt_id(format!("#1.{number}"));
            attempt.outcome = Some(AttemptOutcome::Failed);
            attempt.status = status;
            attempt.message = (!message.is_empty()).then(|| message.to_owned());
            attempt
        };
        let mut export = Source { engine: &mut engine, kind: View::OTLP_LOGS, id: 0 };
        export.shows(Shown::All);
        if lost {
            export.mark(0, &Mark::TailMayBeLost);
        }
        export.event(0, "u", ModelRequest::new().request_id("#1"));
        for (number, status) in [(1, 503), (2, 503), (3, 429)] {
            export.event(i64::from(number) * 100, "u", failed(Some(status), "", number));
        }
        let mut output = Source { engine: &mut engine, kind: View::STDOUT, id: 1 };
        output.shows(Shown::Some);
        output.event(0, "u", ModelRequest::new().request_id("#1"));
        output.event(0, "u", failed(Some(429), "slow down", 1));
        output.event(900, "u", failed(last.0, last.1, 2));
        output.event(900, "u", ModelFailed::new().request_id("#1"));
        let turn = Some("u".to_owned());
        output
            .mark(950, &Mark::TurnEnded { turn, outcome: TurnOutcome::Failed, reason: None, message: None });
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        let turn = &run.turns[0];
        let cause = turn.cause.as_ref().unwrap().failure.clone();
        let attempts = turn.requests[0].attempts.len();
        // What is shown is sent, in the request, in its turn and in the run.
        for counts in [&turn.counts, &run.counts] {
            assert_eq!(counts.upstream_requests.bound.min, attempts as u64);
            assert_eq!(counts.retries.bound.min, attempts as u64 - 1);
        }
        assert_eq!(turn.requests[0].upstream.bound.min, attempts as u64);
        (attempts, cause.reason.as_str(), cause.message.clone())
    };
    let cut = (None, "stream closed before the end");
    assert_eq!(told(true, cut), (4, "stream_cut", Some(cut.1.to_owned())));
    // Near miss: the same error is no further attempt, and the words for it are.
    let alike = (Some(429), "slow down, last");
    let (attempts, reason, message) = told(true, alike);
    assert_eq!((attempts, reason, message.as_deref()), (3, "rate_limit", Some(alike.1)));
    // Near miss: a log that lost nothing holds the last attempt.
    assert_eq!(told(false, cut).0, 3);
}

#[test]
fn what_a_cancel_cut_off_is_no_answer() {
    let outcome = |is_answered: bool| {
        let mut engine = Engine::new();
        let mut log = Source { engine: &mut engine, kind: View::SESSION, id: 0 };
        log.shows(Shown::All);
        log.event(0, "u", ModelRequest::new().request_id("m"));
        log.attempt(10, "u", "m", 1, Some(AttemptOutcome::Ok));
        if is_answered {
            log.event(500, "u", ModelResponse::new().request_id("m"));
        }
        let (turn, outcome) = (Some("u".to_owned()), TurnOutcome::Cancelled);
        log.mark(900, &Mark::TurnEnded { turn, outcome, reason: None, message: None });
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        run.turns[0].requests[0].attempts[0].outcome
    };
    assert_eq!(outcome(false), Some(AttemptOutcome::Cancelled));
    assert_eq!(outcome(true), Some(AttemptOutcome::Ok));
}

#[test]
fn a_log_that_holds_fewer_requests_than_there_were_does_not_bound_them() {
    let told = |session: &[&str]| {
        let mut engine = Engine::new();
        let mut log = Source { engine: &mut engine, kind: View::SESSION, id: 0 };
        log.shows(Shown::None);
        for request in session {
            log.event(0, "u", ModelRequest::new().request_id(*request));
        }
        let mut output = Source { engine: &mut engine, kind: View::STDOUT, id: 1 };
        output.shows(Shown::All);
        output.event(0, "u", ModelRequest::new().request_id("#1"));
        for number in 1..=2 {
            output.attempt(10, "u", "#1", number, Some(AttemptOutcome::Failed));
        }
        output.event(900, "u", ModelFailed::new().request_id("#1"));
        let turn = Some("u".to_owned());
        output
            .mark(950, &Mark::TurnEnded { turn, outcome: TurnOutcome::Failed, reason: None, message: None });
        let sources = BTreeMap::new();
        let run = engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0);
        (run.counts.logical_requests.bound.min, upstream(&run))
    };
    // The first of the two is not in the output: it was sent, too.
    let (logical, sent) = told(&["m1", "m2"]);
    assert_eq!((logical, sent.1), (2, None));
    // Near miss: both tell of the same request.
    assert_eq!(told(&["m1"]), (1, (2, Some(2))));
}

#[test]
fn a_turn_that_was_left_out_may_be_a_further_one() {
    let told = |ends_elsewhere: bool| {
        let mut engine = Engine::new();
        let mut base = Source { engine: &mut engine, kind: View::LOGS_DB, id: 0 };
        base.shows(Shown::All);
        if ends_elsewhere {
            base.mark(0, &Mark::EndsElsewhere);
        }
        for (ms, turn) in [(0, "a"), (1_000, "b")] {
            base.event(ms, turn, ModelRequest::new().request_id(turn));
            base.attempt(ms + 10, turn, turn, 1, None);
            base.event(ms + 900, turn, ModelResponse::new().request_id(turn));
            base.mark(ms + 950, &Mark::TurnComplete);
        }
        let mut export = Source { engine: &mut engine, kind: View::OTLP_LOGS, id: 1 };
        export.shows(Shown::All);
        export.event(2_000, "c", ModelRequest::new().request_id("x"));
        export.attempt(2_010, "c", "x", 1, None);
        let sources = BTreeMap::new();
        upstream(&engine.runs(&AsOf { now: at(9_000), sources: &sources }).remove(0))
    };
    // What it holds may stop before the run did.
    assert_eq!(told(true), (2, None));
    // Near miss: it holds the whole run.
    assert_eq!(told(false), (2, Some(2)));
}

/// A session file with one prompt, and a kept output with another log's worth of a prompt, which may be the same one.
fn session_and_output(output_at: i64, sends: u32) -> Run {
    let mut engine = Engine::new();
    for (id, kind, from, sends) in [(0, View::SESSION, 0, 1), (1, View::STDOUT, output_at, sends)] {
        let mut log = Source { engine: &mut engine, kind, id };
        log.shows(Shown::All);
        let turn = format!("turn of {id}");
        log.event(from, &turn, ModelRequest::new());
        for number in 1..=sends {
            let outcome = if number == sends { AttemptOutcome::Ok } else { AttemptOutcome::Failed };
            let mut attempt = ModelAttempt::new().attempt_id(format!("a{number} of {id}"));
            attempt.outcome = Some(outcome);
            log.event(from + 100 * i64::from(number), &turn, attempt);
        }
        log.event(from + 900, &turn, ModelResponse::new());
        let (outcome, turn) = (TurnOutcome::Succeeded, Some(turn));
        log.mark(from + 900, &Mark::TurnEnded { turn, outcome, reason: None, message: None });
    }
    let sources = BTreeMap::new();
    engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0)
}

#[test]
fn a_prompt_at_another_time_is_another_one() {
    let upstream = |run: &Run| run.counts.upstream_requests.bound;
    let same = session_and_output(5, 1);
    assert_eq!(upstream(&same), Bound::exact(1));
    for apart in [3_600_000, -3_600_000] {
        // Which of the logs holds all prompts is not told.
        assert_eq!(upstream(&session_and_output(apart, 3)), Bound::at_least(1), "{apart}");
    }
}

#[test]
fn logs_that_contradict_each_other_prove_what_was_seen_and_no_more() {
    let run = session_and_output(5, 3);
    assert_eq!(run.counts.upstream_requests.bound, Bound::at_least(3));
    assert!(run.counts.upstream_requests.evidence >= Evidence::Derived);
}
