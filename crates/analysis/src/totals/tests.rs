use std::collections::BTreeMap;

use retryscope_events::{Candidate, Event, ModelRequest, ModelResponse, ModelRetry};
use retryscope_record::{Item, Origin, Place, SourceId, View};

use super::*;
use crate::engine::{AsOf, Engine};

fn at(second: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(second)
}

/// A run of one request that is sent again after each of these waits.
fn said(engine: &mut Engine, request: &str, from: i64, waits: &[u64]) {
    let mut events = vec![Event::new("r", at(from), ModelRequest::new().request_id(request))];
    for (index, wait) in waits.iter().enumerate() {
        let body = ModelRetry::new().request_id(request).status(503_u16).delay_ms(*wait).waited_ms(*wait);
        events.push(Event::new("r", at(from + 1 + i64::try_from(index).unwrap_or(0)), body));
    }
    events.push(Event::new("r", at(from + 9), ModelResponse::new().request_id(request)));
    for event in events {
        say(engine, event);
    }
}

fn count(engine: &Engine, totals: &mut Totals) {
    let sources = BTreeMap::new();
    for run in engine.runs(&AsOf { now: at(60), sources: &sources }) {
        totals.add(&run, at(60));
    }
}

fn sum(totals: &Totals, metric: Metric) -> u64 {
    totals.counters_of(metric).map(|(_, n)| n).sum()
}

fn say(engine: &mut Engine, event: Event) {
    let origin = Origin { source: SourceId(0), place: Place::Line(1) };
    engine.apply(View::EVENTS, origin, &Item::Event(Box::new(event.agent("demo")), None));
}

#[test]
fn a_request_counts_for_its_provider_before_anything_answers() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let asked = ModelRequest::new().request_id("q").candidate(Candidate::new("acme", "m"));
    say(&mut engine, Event::new("r", at(0), asked));
    count(&engine, &mut totals);
    let answered =
        ModelResponse::new().request_id("q").candidate(Candidate::new("acme", "m")).attempts(3_u64);
    say(&mut engine, Event::new("r", at(5), answered));
    count(&engine, &mut totals);
    let by_provider = |metric, provider| {
        let of = |labels: &&Labels| labels.get("provider") == Some(provider);
        totals.counters_of(metric).filter(|(labels, _)| of(labels)).map(|(_, n)| n).sum::<u64>()
    };
    for (metric, n) in [(Metric::LogicalRequests, 1), (Metric::UpstreamRequests, 3), (Metric::Retries, 2)] {
        assert_eq!(by_provider(metric, "acme"), n, "{metric:?}");
        assert_eq!(by_provider(metric, "unknown"), 0, "{metric:?}");
    }
    assert_eq!(totals.revisions(), 0);
    let outcomes = totals.counters_of(Metric::RequestOutcomes).find(|(_, n)| *n > 0);
    assert_eq!(outcomes.and_then(|(labels, _)| labels.get("outcome")), Some("ok_after_retry"));
}

#[test]
fn a_wait_of_nothing_hides_no_other() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    said(&mut engine, "q", 0, &[100, 50, 0]);
    count(&engine, &mut totals);
    assert_eq!(sum(&totals, Metric::Waiting), 150);
    assert_eq!(
        totals.histograms().find(|(s, _)| s.metric == Metric::RetryDelay).map(|(_, h)| h.count),
        Some(3)
    );
}

#[test]
fn a_run_that_grows_is_counted_once_also_after_a_restart() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    said(&mut engine, "q", 0, &[100]);
    count(&engine, &mut totals);
    count(&engine, &mut totals);
    let text = serde_json::to_string(&totals).unwrap_or_default();
    let mut restored: Totals = serde_json::from_str(&text).unwrap_or_default();
    said(&mut engine, "q2", 20, &[10, 20]);
    for totals in [&mut totals, &mut restored] {
        count(&engine, totals);
        assert_eq!(sum(totals, Metric::LogicalRequests), 2);
        assert_eq!(sum(totals, Metric::UpstreamRequests), 5);
        assert_eq!(sum(totals, Metric::Retries), 3);
        assert_eq!(sum(totals, Metric::Waiting), 130);
    }
}
