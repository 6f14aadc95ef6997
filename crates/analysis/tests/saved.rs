//! What an engine saves and goes on with.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use retryscope_analysis::{AsOf, Engine, Run};
use retryscope_events::{Event, ModelRequest};
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
