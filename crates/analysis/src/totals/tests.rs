use std::collections::BTreeMap;

use retryscope_events::{
    AttemptOutcome, Candidate, Event, ModelAttempt, ModelFailed, ModelRequest, ModelResponse, ModelRetry,
};
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
    engine.apply(View::EVENTS, origin, Item::Event(&event.agent("demo"), None));
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

/// Counts all runs as they are so many seconds after the start.
fn count_at(engine: &Engine, totals: &mut Totals, second: i64) {
    let sources = BTreeMap::new();
    for run in engine.runs(&AsOf { now: at(second), sources: &sources }) {
        totals.add(&run, at(second));
    }
}

fn by_arrival(totals: &Totals, metric: Metric, arrival: &str) -> u64 {
    let of = |labels: &&Labels| labels.get("arrival") == Some(arrival);
    totals.counters_of(metric).filter(|(labels, _)| of(labels)).map(|(_, n)| n).sum()
}

#[test]
fn what_is_told_now_is_live_however_long_it_took() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let ask = |second: i64, id: &str| Event::new("r", at(second), ModelRequest::new().request_id(id));
    say(&mut engine, ask(0, "q"));
    count_at(&engine, &mut totals, 1);
    // The turn goes on after a tool that took a quarter of an hour.
    say(&mut engine, ask(900, "q2"));
    count_at(&engine, &mut totals, 901);
    assert_eq!(by_arrival(&totals, Metric::LogicalRequests, "live"), 2);
    // Two attempts, each of which hung for longer than what makes an event late.
    for second in [1_600, 2_300] {
        let timeout = ModelRetry::new().request_id("q2").delay_ms(0_u64);
        say(&mut engine, Event::new("r", at(second), timeout));
        count_at(&engine, &mut totals, second + 1);
    }
    say(&mut engine, Event::new("r", at(3_000), ModelResponse::new().request_id("q2")));
    count_at(&engine, &mut totals, 3_001);
    for metric in [Metric::UpstreamRequests, Metric::Retries, Metric::AttemptFailures] {
        assert_eq!(by_arrival(&totals, metric, "late"), 0, "{metric:?}");
    }
    assert_eq!(by_arrival(&totals, Metric::Retries, "live"), 2);
}

#[test]
fn a_histogram_is_given_each_request_once_in_any_order() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let event = |second: i64, retry: bool, id: &str| {
        let retry = retry.then(|| ModelRetry::new().request_id(id).status(503_u16).delay_ms(1_000_u64));
        match retry {
            Some(retry) => Event::new("r", at(second), retry),
            None => Event::new("r", at(second), ModelResponse::new().request_id(id)),
        }
    };
    // One request is sent 40 times; another one, asked later, is answered before.
    for second in 0..39 {
        say(&mut engine, event(second, true, "a"));
    }
    say(&mut engine, event(50, false, "b"));
    count_at(&engine, &mut totals, 51);
    say(&mut engine, event(55, false, "a"));
    count_at(&engine, &mut totals, 56);
    let attempts = totals.histograms().find(|(s, _)| s.metric == Metric::AttemptsPerRequest).map(|(_, h)| h);
    assert_eq!(attempts.map(|h| (h.count, h.sum)), Some((2, 41)));
    let text = serde_json::to_string(&totals).unwrap_or_default();
    let mut restored: Totals = serde_json::from_str(&text).unwrap_or_default();
    count_at(&engine, &mut restored, 57);
    assert_eq!(restored.histograms().collect::<Vec<_>>(), totals.histograms().collect::<Vec<_>>());
}

#[test]
fn a_wait_that_was_cut_short_counts_as_long_as_it_can_have_been() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let told = ModelRetry::new().request_id("q").status(429_u16).delay_ms(600_000_u64);
    say(&mut engine, Event::new("r", at(0), told.clone().retry_after_ms(600_000_u64)));
    say(&mut engine, Event::new("r", at(1), ModelResponse::new().request_id("q")));
    // A writer that rounds is no early one.
    say(&mut engine, Event::new("r", at(2), told.request_id("q2").delay_ms(10_000_u64)));
    say(
        &mut engine,
        Event::new("r", at(12) - TimeDelta::milliseconds(150), ModelResponse::new().request_id("q2")),
    );
    count(&engine, &mut totals);
    assert_eq!(sum(&totals, Metric::Waiting), 1_000 + 10_000);
    let verdicts: Vec<_> = totals.counters_of(Metric::RetryAfter).filter(|(_, n)| *n > 0).collect();
    assert_eq!(verdicts.iter().map(|(labels, _)| labels.get("verdict")).collect::<Vec<_>>(), [Some("early")]);
}

#[test]
fn the_last_failure_is_counted_when_its_class_is_settled() {
    let failed = |totals: &Totals, class| -> u64 {
        let of = |labels: &&Labels| labels.get("class") == Some(class);
        totals.counters_of(Metric::AttemptFailures).filter(|(labels, _)| of(labels)).map(|(_, n)| n).sum()
    };
    let attempt = || ModelAttempt::new().request_id("q").attempt_id("1").outcome(AttemptOutcome::Failed);
    // One record says that it was refused, the next one why.
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    say(&mut engine, Event::new("r", at(0), attempt().status(429_u16)));
    count_at(&engine, &mut totals, 1);
    assert_eq!(failed(&totals, "throttled"), 0);
    say(&mut engine, Event::new("r", at(2), attempt().status(429_u16).code("insufficient_quota")));
    say(&mut engine, Event::new("r", at(2), ModelFailed::new().request_id("q")));
    count_at(&engine, &mut totals, 3);
    assert_eq!((failed(&totals, "throttled"), failed(&totals, "exhausted")), (0, 1));
    // A planned wait, and five minutes of silence, settle it too.
    for (delay, now) in [(Some(60_000_u64), 1), (None, 400)] {
        let (mut engine, mut totals) = (Engine::new(), Totals::default());
        say(&mut engine, Event::new("r", at(0), attempt().status(429_u16)));
        if let Some(delay) = delay {
            say(&mut engine, Event::new("r", at(0), ModelRetry::new().request_id("q").delay_ms(delay)));
        }
        count_at(&engine, &mut totals, now);
        assert_eq!(failed(&totals, "throttled"), 1, "{delay:?}");
    }
}

/// A run that asks and is refused, all by names and a status of its own.
fn refused(engine: &mut Engine, n: u16) {
    let candidate = |n: u16| Candidate::new(format!("p{}", n % 25), format!("m{}", n % 45));
    let say = |engine: &mut Engine, second: i64, body: retryscope_events::Body| {
        let origin = Origin { source: SourceId(0), place: Place::Line(1) };
        let event = Event::new(format!("r{n}"), at(second), body).agent(format!("a{}", n % 15));
        engine.apply(View::EVENTS, origin, Item::Event(&event, None));
    };
    let retry = ModelRetry::new().request_id("q").candidate(candidate(n)).delay_ms(1_000_u64);
    say(engine, 0, retry.status(400 + n % 200).into());
    let moved = retryscope_events::ModelFallback::new().request_id("q");
    say(engine, 2, moved.from(candidate(n)).to(candidate(n + 1)).into());
    say(engine, 3, ModelResponse::new().request_id("q").candidate(candidate(n + 1)).into());
}

#[test]
fn the_limit_of_series_holds_for_whatever_logs_name() {
    let mut engine = Engine::new();
    (0..600).for_each(|n| refused(&mut engine, n));
    let mut unlimited = Totals::default();
    unlimited.configure(100_000, Aliases::default());
    count(&engine, &mut unlimited);
    let sums = |totals: &Totals| {
        let of = |value: fn(&Histogram) -> u64| totals.histograms().map(|(_, h)| value(h)).sum::<u64>();
        (totals.counters().map(|(_, n)| n).sum::<u64>(), of(|h| h.count), of(|h| h.sum))
    };
    for limit in [0, 5, 100, 1_000] {
        let mut totals = Totals::default();
        totals.configure(limit, Aliases::default());
        count(&engine, &mut totals);
        assert_eq!(sums(&totals), sums(&unlimited), "{limit}: nothing is lost");
        let all: Vec<&Series> = totals
            .counters()
            .map(|(series, _)| series)
            .chain(totals.histograms().map(|(series, _)| series))
            .collect();
        assert_eq!(all.len(), totals.series());
        let named = all.iter().filter(|series| series.labels.name_anybody()).count();
        assert!(named <= limit, "{limit}: {named}");
        assert!(all.len() - named < 250, "{limit}: {} series of nobody", all.len() - named);
        assert!(totals.folded() > 0);
        // A first failure that is folded is an increase too.
        let of =
            |series: &&&Series| series.metric == Metric::AttemptFailures && !series.labels.name_anybody();
        assert!(limit == 1_000 || all.iter().filter(of).count() > 50, "{limit}");
    }
}

#[test]
fn what_is_folded_first_is_the_model() {
    let mut engine = Engine::new();
    for n in 0..40 {
        let asked = ModelRequest::new().request_id("q").candidate(Candidate::new("acme", format!("m{n}")));
        say(&mut engine, Event::new(format!("r{n}"), at(0), asked));
    }
    let mut totals = Totals::default();
    totals.configure(40, Aliases::default());
    count(&engine, &mut totals);
    let folded = totals.counters_of(Metric::LogicalRequests).find(|(l, _)| l.get("model") == Some("other"));
    let (labels, n) = folded.unwrap();
    assert_eq!((labels.get("agent"), labels.get("provider")), (Some("demo"), Some("acme")));
    assert!(n > 1);
}

#[test]
fn what_is_read_late_is_late_beside_newer_ones() {
    let minute = |totals: &Totals, second: i64| -> (u64, u64) {
        let states = totals.budget().states(at(second), crate::budget::BudgetPolicy::default());
        let of = |state: &&crate::budget::BudgetState| state.scope == Scope::global() && state.window == "5m";
        states.iter().find(of).map_or((0, 0), |state| (state.upstream, state.retries))
    };
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let hours = 4 * 3_600;
    for n in 0..20 {
        said(&mut engine, &format!("new {n}"), hours, &[5]);
    }
    count_at(&engine, &mut totals, hours + 10);
    let text = serde_json::to_string(&totals).unwrap_or_default();
    let restored: Totals = serde_json::from_str(&text).unwrap_or_default();
    for n in 0..20 {
        said(&mut engine, &format!("old {n}"), 0, &[5]);
    }
    let mut fresh = Totals::default();
    for totals in [&mut totals, &mut restored.clone(), &mut fresh] {
        count_at(&engine, totals, hours + 20);
        for metric in [Metric::LogicalRequests, Metric::Retries, Metric::AttemptFailures] {
            let counted = ["live", "late"].map(|arrival| by_arrival(totals, metric, arrival));
            assert_eq!(counted, [20, 20], "{metric:?}");
        }
        assert_eq!(minute(totals, hours + 20), (40, 20));
    }
}

#[test]
fn what_is_known_by_another_name_is_not_the_new_one() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let retry = |second: i64, id: &str| {
        let body = ModelRetry::new().request_id(id).status(503_u16).delay_ms(0_u64);
        Event::new("r", at(second), body)
    };
    let hours = 4 * 3_600;
    say(&mut engine, retry(hours, "q"));
    count_at(&engine, &mut totals, hours + 1);
    // Now it is known who was asked; and something old of the same provider is read.
    for (id, second) in [("q", hours + 2), ("old", 5)] {
        if id == "old" {
            say(&mut engine, retry(1, id));
        }
        let answer = ModelResponse::new().request_id(id).candidate(Candidate::new("acme", "m"));
        say(&mut engine, Event::new("r", at(second), answer));
    }
    count_at(&engine, &mut totals, hours + 3);
    for metric in [Metric::LogicalRequests, Metric::Retries] {
        let counted = ["live", "late"].map(|arrival| by_arrival(&totals, metric, arrival));
        assert_eq!(counted, [1, 1], "{metric:?}");
    }
}

#[test]
fn a_wait_that_is_told_better_later_is_no_new_one() {
    let (mut engine, mut totals) = (Engine::new(), Totals::default());
    let retry = |wait: u64| ModelRetry::new().request_id("q").status(503_u16).delay_ms(wait);
    say(&mut engine, Event::new("r", at(0), ModelRequest::new().request_id("q")));
    for (second, wait) in [(1, 19_000), (22, 40_000)] {
        say(&mut engine, Event::new("r", at(second), retry(wait)));
    }
    say(&mut engine, Event::new("r", at(70), ModelResponse::new().request_id("q")));
    let sources = BTreeMap::new();
    let runs = engine.runs(&AsOf { now: at(80), sources: &sources });
    let mut early = runs[0].clone();
    early.turns[0].requests[0].attempts.truncate(2);
    early.turns[0].requests[0].attempts[0].waited_ms = Some(19_000);
    let mut whole = runs[0].clone();
    whole.turns[0].requests[0].attempts[0].waited_ms = Some(19_030);
    totals.add(&early, at(80));
    totals.add(&whole, at(80));
    let delays = totals.histograms().find(|(s, _)| s.metric == Metric::RetryDelay).map(|(_, h)| h.clone());
    let at_once = Totals::of([&whole], at(80));
    let expected = at_once.histograms().find(|(s, _)| s.metric == Metric::RetryDelay).map(|(_, h)| h.clone());
    assert_eq!(delays.as_ref().map(|h| (h.sum, h.count)), expected.map(|h| (h.sum, h.count)));
    assert_eq!(delays.map(|h| h.sum), Some(sum(&totals, Metric::Waiting)));
}
