//! Sentences say what the counts say.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::{AsOf, Engine, summarize};
use retryscope_events::{Body, Event, ModelFailed, ModelRequest, ModelResponse, ModelRetry};
use retryscope_record::{Item, Mark, Origin, Place, RunKey, Shown, SourceId, TurnOutcome, View};

const AGENT: &str = "some-agent";

fn at(ms: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::milliseconds(1_800_000_000_000 + ms)
}

/// One log, statement by statement.
#[derive(Default)]
struct Log {
    engine: Engine,
    now: i64,
}

impl Log {
    fn origin() -> Origin {
        Origin { source: SourceId(0), place: Place::Whole }
    }

    fn event(&mut self, body: impl Into<Body>) -> &mut Self {
        self.now += 1_000;
        let event = Event::new("r", at(self.now), body).agent(AGENT);
        self.engine.apply(View::SESSION, Self::origin(), Item::Event(&event, None));
        self
    }

    fn mark(&mut self, mark: &Mark) -> &mut Self {
        let run = RunKey::new(AGENT, "r");
        self.engine.apply(
            View::SESSION,
            Self::origin(),
            Item::Mark { run: &run, at: Some(at(self.now)), mark },
        );
        self
    }

    fn ended(&mut self, outcome: TurnOutcome) -> &mut Self {
        let reason = Some("steps".to_owned());
        self.mark(&Mark::TurnEnded { turn: None, outcome, reason, message: None })
    }

    /// A request that is refused with these, and answered then.
    fn answered_after(&mut self, statuses: &[u16]) -> &mut Self {
        self.event(ModelRequest::new());
        for status in statuses {
            self.event(ModelRetry::new().status(*status));
        }
        self.event(ModelResponse::new())
    }

    fn summary(&self) -> String {
        let sources = BTreeMap::new();
        let now = at(86_400_000);
        summarize(&self.engine.runs(&AsOf { now, sources: &sources }).remove(0), &[], now)
    }
}

#[test]
fn attempts_that_failed_on_the_way_are_not_denied() {
    let failed =
        |statuses: &[u16]| Log::default().answered_after(statuses).ended(TurnOutcome::Failed).summary();
    assert!(
        failed(&[503, 503])
            .ends_with("the one it made was answered, after 2 failed attempts: 503 unavailable (2 times)."),
        "{}",
        failed(&[503, 503])
    );
    assert!(failed(&[]).ends_with("No model request failed: the one it made was answered."));
    let open = |statuses: &[u16]| Log::default().mark(&Mark::EndsUntold).answered_after(statuses).summary();
    assert!(
        open(&[503]).ends_with("answered, after at least 1 failed attempt: 503 unavailable."),
        "{}",
        open(&[503])
    );
    // What is not over may have had more.
    assert!(open(&[]).ends_with("No failure is recorded."));
    let over = Log::default().answered_after(&[]).ended(TurnOutcome::Unknown).summary();
    assert!(over.ends_with("No request had failed."), "{over}");
}

#[test]
fn retries_of_another_turn_are_told_beside_one_without() {
    let turns = |first: &[u16]| {
        let mut log = Log::default();
        log.answered_after(first).ended(TurnOutcome::Cancelled);
        log.answered_after(&[]).ended(TurnOutcome::Succeeded).summary()
    };
    assert_eq!(turns(&[529]), "It succeeded; nothing was sent twice. Other turns of the run had 1 retry.");
    assert_eq!(turns(&[]), "It succeeded; nothing was sent twice.");
}

#[test]
fn equal_answers_in_a_row_are_told_once() {
    let answers = |said: &[(u16, &str)]| {
        let mut log = Log::default();
        log.event(ModelRequest::new());
        for (status, message) in said {
            log.event(ModelRetry::new().status(*status).message(*message));
        }
        log.event(ModelFailed::new().status(503_u16)).ended(TurnOutcome::Failed).summary()
    };
    let all_alike = answers(&[(503, "x"), (503, "The model is overloaded")]);
    assert!(all_alike.contains("answered 503 to all 3 requests"), "{all_alike}");
    let told = answers(&[(500, "x"), (500, "x"), (503, "x")]);
    assert!(told.contains("answered 500 (2 times) and 503 (2 times) to all 4 requests"), "{told}");
    let order = answers(&[(500, "x"), (503, "x"), (500, "x")]);
    assert!(order.contains("answered 500, 503, 500 and 503 to all 4 requests"), "{order}");
}

#[test]
fn a_turn_whose_requests_are_not_shown_is_not_said_to_have_had_none() {
    let ended = |requests: Shown| {
        let source = retryscope_events::Source::Foreground;
        let shows = Mark::Shows { source, requests, attempts: requests, because: "a test says so" };
        let started = Mark::TurnStarted { turn: None };
        Log::default().mark(&shows).mark(&started).ended(TurnOutcome::Failed).summary()
    };
    assert!(ended(Shown::None).ends_with("Whether a model request failed is not in this log."));
    assert!(ended(Shown::All).contains("before a model request failed"));
}

#[test]
fn a_failed_subagent_is_named_by_its_own_part_of_the_id() {
    let run = |id: &str, outcome: TurnOutcome| {
        let mut engine = Engine::new();
        let origin = Log::origin();
        let event = Event::new(id, at(0), ModelRequest::new().request_id("m1")).agent(AGENT);
        engine.apply(View::EVENTS, origin, Item::Event(&event, None));
        let key = RunKey::new(AGENT, id);
        let mark = Mark::TurnEnded { turn: None, outcome, reason: None, message: None };
        engine.apply(View::EVENTS, origin, Item::Mark { run: &key, at: Some(at(900)), mark: &mark });
        let sources = BTreeMap::new();
        engine.runs(&AsOf { now: at(0), sources: &sources }).remove(0)
    };
    let parent = run("0123456789abcdef0123", TurnOutcome::Succeeded);
    let told = |child: &str| {
        let child = run(child, TurnOutcome::Failed);
        let turn = &parent.turns[0];
        retryscope_analysis::Explainer::new(&parent, &[&child], at(0)).explain(turn).summary
    };
    let text = told("0123456789abcdef0123:helper7");
    assert!(text.contains("helper7") && !text.contains("0123456789abcdef"), "{text}");
    // Near miss: an id of its own.
    let text = told("other-run");
    assert!(text.contains("other-run"), "{text}");
}
