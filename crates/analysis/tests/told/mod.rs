//! Runs made of records of the event schema.

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_analysis::{AsOf, Engine, Run};
use retryscope_events::read::parse_line;
use retryscope_record::{Item, Origin, Place, SourceId, View};

const START: &str = "2026-11-29T10:00:";

/// Reads records of runs: each is the second it was written in, its type, and its members beside these.
pub(crate) fn runs_of(records: &[(u32, &str, &str)]) -> Vec<Run> {
    let mut engine = Engine::new();
    for (n, (second, kind, members)) in records.iter().enumerate() {
        let who = if members.contains("\"run_id\"") { "" } else { r#","run_id":"r","agent":"demo""# };
        let line = format!(r#"{{"type":"{kind}","ts":"{START}{second:02}Z"{who}{members}}}"#);
        for event in parse_line(line.as_bytes()).expect("a line of this schema") {
            let origin = Origin { source: SourceId(1), place: Place::Line(n as u64 + 1) };
            engine.apply(View::EVENTS, origin, Item::Event(&event, None));
        }
    }
    let now: DateTime<Utc> =
        format!("{START}59Z").parse::<DateTime<Utc>>().expect("a time") + TimeDelta::hours(1);
    let sources = std::collections::BTreeMap::default();
    engine.runs(&AsOf { now, sources: &sources })
}
