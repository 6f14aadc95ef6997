//! What an engine saves and goes on with.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use retryscope_analysis::{AsOf, Engine, Run};
use retryscope_events::{Body, Event, ModelRequest, ModelResponse, RunFinished};
use retryscope_record::{Item, Origin, Place, RunKey, SourceId, View};

fn at() -> DateTime<Utc> {
    "2026-11-29T10:00:00Z".parse().unwrap()
}

fn engine_of(view: View, sources: &[u32]) -> Engine {
    let mut engine = Engine::new();
    for source in sources {
        let body = ModelRequest::new().request_id(format!("q{source}"));
        let event = Event::new("r", at(), body).agent("demo");
        let origin = Origin { source: SourceId(*source), place: Place::Line(1) };
        engine.apply(view, origin, Item::Event(&event, None));
    }
    engine
}

fn runs(engine: &Engine) -> Vec<Run> {
    engine.runs(&AsOf { now: at(), sources: &BTreeMap::new() })
}

#[test]
fn runs_of_every_kind_of_log_are_restored() {
    for view in View::ALL {
        let engine = engine_of(*view, &[1, 2]);
        let mut restored = Engine::new();
        restored.restore(engine.save(&RunKey::new("demo", "r")));
        let (before, after) = (runs(&engine), runs(&restored));
        assert_eq!(before.len(), 1, "{view:?}");
        assert_eq!(before, after, "{view:?}");
    }
}

#[test]
fn a_log_that_continues_has_all_its_files_as_evidence() {
    let engine = engine_of(View::EVENTS, &[3, 7]);
    assert_eq!(runs(&engine)[0].sources, [SourceId(3), SourceId(7)]);
    assert!(engine.sources().contains(&SourceId(7)));
    // One file of its own kind after the other.
    let engine = engine_of(View::SESSION, &[3, 7]);
    assert_eq!(runs(&engine)[0].sources, [SourceId(3), SourceId(7)]);
}

/// Says one request of a run that is over.
fn say_run(engine: &mut Engine, view: View, source: u32, run: &str) {
    let bodies: [Body; 3] = [
        ModelRequest::new().request_id("q").into(),
        ModelResponse::new().request_id("q").into(),
        RunFinished::new().outcome("succeeded").into(),
    ];
    for (n, body) in bodies.into_iter().enumerate() {
        let event = Event::new(run, at(), body).agent("demo");
        let origin = Origin { source: SourceId(source), place: Place::Line(n as u64 + 1) };
        engine.apply(view, origin, Item::Event(&event, None));
    }
}

fn restarted(engine: &Engine) -> Engine {
    let mut restored = Engine::new();
    let saved = engine.keys().flat_map(|run| engine.save(run)).collect();
    restored.restore(serde_json::from_str(&serde_json::to_string::<Vec<_>>(&saved).unwrap()).unwrap());
    restored
        .restore_left_off(serde_json::from_str(&serde_json::to_string(&engine.left_off()).unwrap()).unwrap());
    restored
}

#[test]
fn what_cannot_be_read_is_of_the_same_run_after_a_restart() {
    let is_exact = |engine: &Engine| -> Vec<bool> {
        runs(engine).iter().map(|run| run.counts.upstream_requests.bound.is_exact()).collect()
    };
    for view in [View::EVENTS, View::SESSION] {
        for names in [&["r"][..], &["r", "s"]] {
            let mut whole = Engine::new();
            for name in names {
                say_run(&mut whole, view, 1, name);
            }
            let mut cut = restarted(&whole);
            assert!(is_exact(&cut).into_iter().all(|exact| exact));
            for engine in [&mut whole, &mut cut] {
                engine.gap(view, SourceId(1));
            }
            let hit: Vec<bool> = (1..=names.len()).map(|n| n < names.len()).collect();
            assert_eq!(is_exact(&whole), hit, "{view:?} {names:?}");
            assert_eq!(is_exact(&cut), hit, "{view:?} {names:?}");
            // A run that begins after what could not be read may have begun in it, also where that was before the restart.
            let mut later = restarted(&cut);
            for engine in [&mut whole, &mut later] {
                say_run(engine, view, 1, "t");
            }
            assert_eq!(is_exact(&later), is_exact(&whole), "{view:?} {names:?}");
            assert_eq!(is_exact(&later).last(), Some(&false));
        }
    }
}

#[test]
fn a_source_that_is_read_again_speaks_of_its_run_again() {
    let mut engine = Engine::new();
    say_run(&mut engine, View::SESSION, 1, "r");
    say_run(&mut engine, View::STDOUT, 2, "r");
    engine.reset_source(SourceId(1));
    say_run(&mut engine, View::SESSION, 1, "r");
    engine.gap(View::SESSION, SourceId(1));
    let mut once = Engine::new();
    say_run(&mut once, View::SESSION, 1, "r");
    engine.take_dirty();
    once.gap(View::SESSION, SourceId(1));
    say_run(&mut once, View::STDOUT, 2, "r");
    assert_eq!(runs(&engine)[0].counts, runs(&once)[0].counts);
}
