//! Logs that tell late, or do not tell where turns begin: nothing counts twice, and what came first stands first.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::{AsOf, Engine, Run};
use retryscope_events::{Body, Event, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, ModelRetry};
use retryscope_record::{Anchor, Item, Mark, Origin, Place, RunKey, Shown, SourceId, TurnOutcome, View};

const AGENT: &str = "some-agent";

fn at(ms: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::milliseconds(1_800_000_000_000 + ms)
}

fn origin(id: u32) -> Origin {
    Origin { source: SourceId(id), place: Place::Whole }
}

fn event(engine: &mut Engine, (kind, id): (View, u32), ms: i64, turn: &str, body: impl Into<Body>) {
    let mut event = Event::new("r", at(ms), body).agent(AGENT);
    event.turn = Some(turn.to_owned());
    engine.apply(kind, origin(id), Item::Event(&event, None));
}

fn mark(engine: &mut Engine, (kind, id): (View, u32), ms: i64, mark: &Mark) {
    let run = RunKey::new(AGENT, "r");
    engine.apply(kind, origin(id), Item::Mark { run: &run, at: Some(at(ms)), mark });
}

fn run(engine: &mut Engine) -> Run {
    let sources = BTreeMap::new();
    engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0)
}

const SESSION: (View, u32) = (View::SESSION, 0);
const DEBUG: (View, u32) = (View::DEBUG_LOG, 1);

/// Two turns of a session, the first of which shares an id with a log that does not tell where turns begin and ends then.
fn two_turns_and_a_wide_log(last: i64) -> (usize, u64) {
    let mut engine = Engine::new();
    for (turn, ms) in [("u1", 0), ("u2", 5_000)] {
        event(&mut engine, SESSION, ms, turn, ModelRequest::new().request_id(format!("#{turn}")));
        event(&mut engine, SESSION, ms + 900, turn, ModelResponse::new().request_id(format!("#{turn}")));
        if turn == "u1" {
            mark(&mut engine, SESSION, ms + 900, &Mark::Anchor(Anchor::of("req_1")));
        }
        let (turn, outcome) = (Some(turn.to_owned()), TurnOutcome::Succeeded);
        mark(&mut engine, SESSION, ms + 900, &Mark::TurnEnded { turn, outcome, reason: None, message: None });
    }
    for (request, ms) in [("#1", 10), ("#2", last)] {
        event(&mut engine, DEBUG, ms, "#1", ModelRequest::new().request_id(request));
        let attempt = ModelAttempt::new().request_id(request).attempt_id(format!("{request}.1"));
        event(&mut engine, DEBUG, ms, "#1", attempt);
        mark(&mut engine, DEBUG, ms, &Mark::HoldsTurns);
    }
    mark(&mut engine, DEBUG, 20, &Mark::Anchor(Anchor::of("req_1")));
    let run = run(&mut engine);
    (run.turns.len(), run.counts.logical_requests.bound.min)
}

#[test]
fn a_log_without_turns_adds_nothing_to_several_turns() {
    assert_eq!(two_turns_and_a_wide_log(5_010), (2, 2));
    // Near miss: it ended before the second turn, so all of it is of the first one.
    assert_eq!(two_turns_and_a_wide_log(800), (2, 3));
}

#[test]
fn an_error_told_after_the_end_stands_before_it() {
    let mut engine = Engine::new();
    let retry = |status: u16, delay: u64| {
        let mut retry = ModelRetry::new().request_id("m");
        retry.status = Some(status);
        retry.delay_ms = Some(delay);
        retry
    };
    let shows = Mark::Shows {
        source: retryscope_events::Source::Foreground,
        requests: Shown::All,
        attempts: Shown::All,
        because: "a test says so",
    };
    mark(&mut engine, SESSION, 0, &shows);
    event(&mut engine, SESSION, 0, "u1", ModelRequest::new().request_id("m"));
    let mut failed = ModelFailed::new().request_id("m");
    failed.status = Some(503);
    event(&mut engine, SESSION, 3_000, "u1", failed);
    let (turn, outcome) = (Some("u1".to_owned()), TurnOutcome::Failed);
    mark(&mut engine, SESSION, 3_000, &Mark::TurnEnded { turn, outcome, reason: None, message: None });
    event(&mut engine, SESSION, 500, "u1", retry(529, 600));
    event(&mut engine, SESSION, 1_200, "u1", retry(500, 1_200));
    let run = run(&mut engine);
    let request = &run.turns[0].requests[0];
    let statuses: Vec<_> =
        request.attempts.iter().map(|a| a.failure.as_ref().and_then(|failure| failure.status)).collect();
    assert_eq!(statuses, [Some(529), Some(500), Some(503)]);
    assert_eq!(run.counts.upstream_requests.bound.max, Some(3));
}
