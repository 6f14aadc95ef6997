//! Old runs as `OpenMetrics` text with their own times, for `promtool tsdb create-blocks-from openmetrics`.
//!
//! Each request is added to fresh [`Totals`] attempt by attempt, as the daemon would have read it while it happened, and
//! what each step adds is written down at the time of that step. So there is no second way of counting; everything is
//! `arrival="live"`, since it is counted when it happened. Not for: states (budgets, waiting runs), which are not written.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use retryscope_analysis::{
    ATTEMPT_BUCKETS, Bound, Count, DELAY_BUCKETS, Histogram, LogicalRequest, Metric, RequestOutcome, Run,
    RunOutcome, Totals, Turn,
};

use crate::metrics::{Described, Kind, RUN_METRICS};

/// Seconds between two samples of a series.
const STEP: i64 = 60;

/// Samples after the last change of a series: as long as the longest window of an alert reaches back.
const LINGER: i64 = 10;

/// From when to when samples are written.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Nothing before it; `None` = from the first event on.
    pub since: Option<DateTime<Utc>>,
    /// Nothing after it.
    pub until: DateTime<Utc>,
}

/// What a series grows by, by grid point.
type Growth<V> = BTreeMap<i64, V>;

#[derive(Default)]
struct Past {
    counters: BTreeMap<(Metric, String), Growth<u64>>,
    histograms: BTreeMap<(Metric, String), Growth<Histogram>>,
}

/// Returns the counters and histograms of all runs as `OpenMetrics` text. Things without any time are left out.
pub fn text(runs: &[Run], span: Span) -> String {
    let mut past = Past::default();
    for run in runs {
        past.add(run);
    }
    let mut out = String::new();
    for (metric, row) in RUN_METRICS {
        let family = row.name.trim_end_matches("_total");
        let kind = if row.kind == Kind::Histogram { "histogram" } else { "counter" };
        // Writing to a string cannot fail.
        writeln!(out, "# HELP {family} {}\n# TYPE {family} {kind}", row.help).unwrap_or_default();
        for ((_, labels), growth) in past.counters.iter().filter(|((of, _), _)| of == metric) {
            counter(&mut out, row, labels, growth, span, *metric == Metric::Waiting);
        }
        for ((_, labels), growth) in past.histograms.iter().filter(|((of, _), _)| of == metric) {
            histogram(&mut out, row, labels, growth, span, *metric == Metric::RetryDelay);
        }
    }
    out.push_str("# EOF\n");
    out
}

impl Past {
    fn add(&mut self, run: &Run) {
        let shell = Run { turns: Vec::new(), ..run.clone() };
        for turn in &run.turns {
            for request in &turn.requests {
                self.add_request(&shell, turn, request);
            }
            self.add_end(&shell, turn);
        }
    }

    /// Adds a request, an attempt at a time.
    fn add_request(&mut self, shell: &Run, turn: &Turn, request: &LogicalRequest) {
        let mut totals = Totals::default();
        let mut known = Totals::default();
        let at_the_end = |sent: usize| {
            let last = sent.checked_sub(1).and_then(|last| request.attempts.get(last));
            last.and_then(|a| a.ended_at.or(a.started_at)).or(turn.ended_at).or(turn.started_at)
        };
        for sent in 1..=request.attempts.len().max(1) {
            let at = at_the_end(sent);
            // What is written at one point of the grid is added at once: each step looks at all attempts so far.
            if sent < request.attempts.len() && at.map(point) == at_the_end(sent + 1).map(point) {
                continue;
            }
            let attempts = &request.attempts[..sent.min(request.attempts.len())];
            let mut part = request.clone();
            part.shows_attempts &= !turn.is_over();
            if sent < request.attempts.len() {
                part.outcome = RequestOutcome::Open;
                part.attempts = attempts.to_vec();
                let sends = attempts.iter().map(|a| a.sends.min).sum();
                // Whether the log shows everything is known at the end and holds for all its attempts.
                let bound = if request.upstream.bound.is_exact() {
                    Bound::exact(sends)
                } else {
                    Bound::at_least(sends)
                };
                part.shows_attempts &= request.outcome == RequestOutcome::Open
                    && request.attempts.iter().all(|a| a.sends.is_exact());
                part.upstream = Count { bound, ..request.upstream.clone() };
            }
            let turn = Turn { outcome: RunOutcome::Running, requests: vec![part], ..bare(turn) };
            self.step(&Run { turns: vec![turn], ..shell.clone() }, at, &mut totals, &mut known);
        }
    }

    /// Adds the end of a turn; its last request, which names model and provider, is known before.
    fn add_end(&mut self, shell: &Run, turn: &Turn) {
        let requests: Vec<LogicalRequest> = turn.last_asked().cloned().into_iter().collect();
        let run = |outcome| Run {
            turns: vec![Turn { outcome, requests: requests.clone(), ..bare(turn) }],
            ..shell.clone()
        };
        let at = turn.ended_at.or(turn.started_at);
        let Some(now) = at else { return };
        let mut known = Totals::of([&run(RunOutcome::Running)], now);
        let mut totals = known.clone();
        self.step(&run(turn.outcome), at, &mut totals, &mut known);
    }

    /// Lets the totals read a run as it was at a time, and writes down what that adds.
    fn step(&mut self, run: &Run, at: Option<DateTime<Utc>>, totals: &mut Totals, known: &mut Totals) {
        let Some(at) = at else { return };
        totals.add(run, at);
        let point = point(at);
        let before: BTreeMap<_, _> = known.counters().collect();
        for (series, n) in totals.counters() {
            let more = n - before.get(series).copied().unwrap_or(0);
            if more > 0
                && let Some(row) = row(series.metric)
            {
                let labels = labels(row, |name| series.labels.get(name).map(ToString::to_string));
                *self.counters.entry((series.metric, labels)).or_default().entry(point).or_default() += more;
            }
        }
        let before: BTreeMap<_, _> = known.histograms().collect();
        for (series, now) in totals.histograms() {
            let more = difference(now, before.get(series).copied());
            if more.count > 0
                && let Some(row) = row(series.metric)
            {
                let labels = labels(row, |name| series.labels.get(name).map(ToString::to_string));
                let growth = self.histograms.entry((series.metric, labels)).or_default();
                plus(growth.entry(point).or_default(), &more);
            }
        }
        *known = totals.clone();
    }
}

/// Returns the point of the grid at which something that happened is written.
fn point(at: DateTime<Utc>) -> i64 {
    at.timestamp().div_euclid(STEP) + 1
}

/// A turn without its requests.
fn bare(turn: &Turn) -> Turn {
    Turn {
        number: turn.number,
        key: turn.key.clone(),
        started_at: turn.started_at,
        ended_at: turn.ended_at,
        outcome: turn.outcome,
        terminal_reason: turn.terminal_reason.clone(),
        error: turn.error.clone(),
        cause: turn.cause.clone(),
        counts: turn.counts.clone(),
        background_counts: turn.background_counts.clone(),
        time: turn.time,
        requests: Vec::new(),
        end_origin: turn.end_origin,
    }
}

fn row(metric: Metric) -> Option<&'static Described> {
    RUN_METRICS.iter().find(|(known, _)| *known == metric).map(|(_, row)| row)
}

/// Labels as they stand between the braces.
fn labels(row: &Described, value: impl Fn(&str) -> Option<String>) -> String {
    let pair = |name: &&str| {
        // An attempt longer than the limit of lateness was not late: nobody was there to read it late.
        let value = if *name == "arrival" { "live".to_owned() } else { value(name).unwrap_or_default() };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    row.labels.iter().map(pair).collect::<Vec<_>>().join(",")
}

fn difference(now: &Histogram, before: Option<&Histogram>) -> Histogram {
    let Some(before) = before else { return now.clone() };
    let buckets =
        now.buckets.iter().enumerate().map(|(i, n)| n - before.buckets.get(i).copied().unwrap_or(0));
    Histogram { buckets: buckets.collect(), sum: now.sum - before.sum, count: now.count - before.count }
}

fn plus(sum: &mut Histogram, more: &Histogram) {
    sum.buckets.resize(sum.buckets.len().max(more.buckets.len()), 0);
    for (total, n) in sum.buckets.iter_mut().zip(&more.buckets) {
        *total += n;
    }
    sum.sum += more.sum;
    sum.count += more.count;
}

/// Calls `write` with each grid point that gets a sample and the value there: one point before each change, so that its
/// increase shows, and some after it. Quiet times in between get none.
fn samples<V: Default>(
    growth: &Growth<V>,
    span: Span,
    add: impl Fn(&mut V, &V),
    mut write: impl FnMut(i64, &V),
) {
    let until = span.until.timestamp();
    let since = span.since.map_or(i64::MIN, |at| at.timestamp());
    let mut emit = |point: i64, value: &V| {
        let at = point * STEP;
        if at >= since && at <= until {
            write(at, value);
        }
    };
    let mut value = V::default();
    let mut free = i64::MIN;
    let mut points = growth.iter().peekable();
    while let Some((point, more)) = points.next() {
        for quiet in free.max(point - 1)..*point {
            emit(quiet, &value);
        }
        add(&mut value, more);
        let end = points.peek().map_or(i64::MAX, |(next, _)| **next - 1).min(point + LINGER);
        for later in *point..=end {
            emit(later, &value);
        }
        free = end + 1;
    }
}

fn counter(out: &mut String, row: &Described, labels: &str, growth: &Growth<u64>, span: Span, is_ms: bool) {
    samples(
        growth,
        span,
        |sum, n| *sum += n,
        |at, n| {
            writeln!(out, "{}{{{labels}}} {} {at}", row.name, number(*n, is_ms)).unwrap_or_default();
        },
    );
}

fn histogram(
    out: &mut String,
    row: &Described,
    labels: &str,
    growth: &Growth<Histogram>,
    span: Span,
    is_ms: bool,
) {
    let bounds = if is_ms { DELAY_BUCKETS } else { ATTEMPT_BUCKETS };
    let name = row.name;
    let mut bucket = |bound: Option<usize>| {
        let le = bound.map_or_else(|| "+Inf".to_owned(), |i| number(bounds[i], is_ms));
        samples(growth, span, plus, |at, histogram| {
            let n = bound.map_or(histogram.count, |i| histogram.buckets.iter().take(i + 1).sum());
            writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {n} {at}").unwrap_or_default();
        });
    };
    (0..bounds.len()).map(Some).chain([None]).for_each(&mut bucket);
    samples(growth, span, plus, |at, histogram| {
        writeln!(out, "{name}_sum{{{labels}}} {} {at}", number(histogram.sum, is_ms)).unwrap_or_default();
    });
    samples(growth, span, plus, |at, histogram| {
        writeln!(out, "{name}_count{{{labels}}} {} {at}", histogram.count).unwrap_or_default();
    });
}

/// Milliseconds as seconds, all else as it is.
#[expect(clippy::cast_precision_loss, reason = "counts and sums are far below 2^52")]
fn number(n: u64, is_ms: bool) -> String {
    if is_ms { format!("{}", n as f64 / 1e3) } else { n.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_time_has_no_samples_and_loses_no_increase() {
        let growth: Growth<u64> = [(100, 2), (103, 1), (500, 4)].into_iter().collect();
        let until = DateTime::from_timestamp(502 * STEP, 0).unwrap_or_default();
        let mut seen = Vec::new();
        samples(&growth, Span { since: None, until }, |sum, n| *sum += n, |at, n| seen.push((at / STEP, *n)));
        let expected = [(99, 0), (100, 2), (101, 2), (102, 2)].into_iter().chain((103..=113).map(|p| (p, 3)));
        let expected: Vec<_> = expected.chain([(499, 3), (500, 7), (501, 7), (502, 7)]).collect();
        assert_eq!(seen, expected);
    }
}
