//! The JSON forms of the contract: `retryscope.replay/1`, `retryscope.runs/1`.

use std::collections::HashSet;
use std::path::Path;

use chrono::{DateTime, SecondsFormat, Utc};
use retryscope_analysis::{
    Attempt, Cause, Count, Counts, Exhausted, Explanation, Failure, Group, LogicalRequest, Remedy, Run, Sums,
    Time, Turn, summarize,
};
use retryscope_record::{Origin, Place, SourceId};
use serde_json::{Map, Value, json};

/// Tells the path of a source.
pub type PathOf<'a> = &'a dyn Fn(SourceId) -> &'a Path;

/// Returns the `run` object.
pub fn run(run: &Run, path_of: PathOf<'_>) -> Value {
    let files: Vec<String> = run.sources.iter().map(|id| path_of(*id).display().to_string()).collect();
    json!({
        "run_id": &*run.key.id,
        "parent_run_id": run.facts.parent_run_id,
        "agent": &*run.key.agent,
        "agent_version": run.facts.agent_version,
        "started_at": time(run.started_at),
        "ended_at": time(run.ended_at),
        "outcome": run.outcome.as_str(),
        "failed_turns": run.failed_turns(),
        "terminal_reason": run.told_turn().and_then(|t| t.terminal_reason.clone()),
        "files": files,
    })
}

/// Returns the replay object, which explains one turn; of a run that holds nothing about requests, it says so.
pub fn replay(
    of: &Run,
    explained: Option<(&Turn, &Explanation)>,
    children: &[&Run],
    now: DateTime<Utc>,
    path_of: PathOf<'_>,
) -> Value {
    let (explained, told) = explained.unzip();
    let requests: Vec<Value> = of
        .turns
        .iter()
        .flat_map(|turn| turn.requests.iter().map(move |request| (turn.number, request)))
        .map(|(turn, of)| request(of, turn, path_of))
        .collect();
    let tree = children.iter().fold(of.counts.clone(), |sum, child| sum.plus(&child.counts));
    json!({
        "schema": "retryscope.replay/1",
        "run": run(of, path_of),
        "explained_turn": explained.map(|turn| turn.number),
        "cause": explained.and_then(|turn| turn.cause.as_ref()).map(|c| cause(c, path_of)),
        "summary": told.map_or_else(|| summarize(of, children, now), |told| told.summary.clone()),
        "counts": counts(&of.counts),
        "tree_counts": counts(&tree),
        "background_counts": counts(&of.background_counts),
        "amplification": ratio(of.counts.amplification()),
        "retry_ratio": ratio(of.counts.retry_ratio()),
        "time": time_spent(of.time),
        "turns": of.turns.iter().map(|t| turn(t, path_of)).collect::<Vec<_>>(),
        "requests": requests,
        "tools": told.map_or(&[][..], |told| &told.tools),
        "findings": told
            .iter()
            .flat_map(|told| &told.findings)
            .map(|f| crate::audit::finding(f, path_of))
            .collect::<Vec<_>>(),
        "blind_spots": of.blind_spots,
        "remedies": told
            .iter()
            .flat_map(|told| &told.remedies)
            .map(Remedy::told)
            .collect::<Vec<_>>(),
        "children": children.iter().map(|child| run(child, path_of)).collect::<Vec<_>>(),
    })
}

/// Returns one entry of `runs --format json`.
pub fn runs_entry(of: &Run, summary: &str, path_of: PathOf<'_>) -> Value {
    json!({
        "run": run(of, path_of),
        "cause": of.last_failed_turn().and_then(|t| t.cause.as_ref()).map(|c| cause(c, path_of)),
        "summary": summary,
        "counts": counts(&of.counts),
        "background_counts": counts(&of.background_counts),
        "amplification": ratio(of.counts.amplification()),
        "retry_ratio": ratio(of.counts.retry_ratio()),
        "time": time_spent(of.time),
    })
}

/// Returns one group of `report --format json`.
pub fn group(of: &Group, by: &[&str]) -> Value {
    let keys: Map<String, Value> =
        by.iter().zip(&of.keys).map(|(by, key)| ((*by).to_owned(), json!(key))).collect();
    let mut object = sums(&of.sums);
    object.insert("name".into(), json!(of.keys.join(" ")));
    object.insert("keys".into(), Value::Object(keys));
    Value::Object(object)
}

/// Returns the fields that tell the sum of some runs.
pub fn sums(of: &Sums) -> Map<String, Value> {
    let at = |share| of.waits.at(share);
    let fields = [
        ("runs", json!(of.runs)),
        ("failed_runs", json!(of.failed)),
        ("not_countable_runs", json!(of.not_countable)),
        ("counts", counts(&of.counts)),
        ("background_counts", counts(&of.background_counts)),
        ("amplification", ratio(of.countable.amplification())),
        ("retry_ratio", ratio(of.countable.retry_ratio())),
        ("waiting_ms", json!(of.waiting_ms)),
        ("waiting_is_least", json!(of.waiting_is_least)),
        ("lost_ms", json!(of.lost_ms)),
        ("lost_is_least", json!(of.lost_is_least)),
        (
            "waits",
            json!({"n": of.waits.count(), "p50_ms": at(0.5), "p90_ms": at(0.9), "p95_ms": at(0.95), "p99_ms": at(0.99), "max_ms": at(1.0)}),
        ),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns an account that is out of quota.
pub fn exhausted(of: &Exhausted) -> Value {
    let mut object = json!({"provider": of.provider, "reason": of.reason, "reset_at": time(of.reset_at), "seen_at": time(of.seen_at)});
    if let Some(clock) = of.reset_clock {
        object["reset_clock"] = json!(clock);
    }
    object
}

/// Returns the cause of a failure.
pub fn cause(cause: &Cause, path_of: PathOf<'_>) -> Value {
    let mut object = failure(&cause.failure);
    object.insert("provider".into(), json!(cause.candidate.provider));
    object.insert("model".into(), json!(cause.candidate.model));
    object.insert("evidence".into(), places(&cause.evidence).map(|o| origin(o, path_of)).collect());
    Value::Object(object)
}

/// Returns each place of the evidence once: one record may be that of several attempts.
pub(crate) fn places(evidence: &[Origin]) -> impl Iterator<Item = Origin> {
    let mut seen = HashSet::new();
    evidence.iter().copied().filter(move |place| seen.insert(*place))
}

fn failure(failure: &Failure) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("class".into(), json!(failure.class));
    object.insert("reason".into(), json!(failure.reason));
    object.insert("status".into(), json!(failure.status));
    object.insert("code".into(), json!(failure.code));
    object.insert("message".into(), json!(failure.message));
    object.insert("retryable".into(), json!(failure.retryable));
    object.insert("retry_after_ms".into(), json!(failure.retry_after_ms));
    object.insert("reset_at".into(), time(failure.reset_at));
    if let Some(clock) = failure.reset_clock {
        object.insert("reset_clock".into(), json!(clock));
    }
    object.insert("upstream_request_id".into(), json!(failure.upstream_request_id));
    object
}

/// Returns the counts object.
pub fn counts(counts: &Counts) -> Value {
    json!({
        "logical_requests": count(&counts.logical_requests),
        "upstream_requests": count(&counts.upstream_requests),
        "retries": count(&counts.retries),
        "fallbacks": count(&counts.fallbacks),
        "failed_attempts": count(&counts.failed_attempts),
    })
}

/// Returns one count: `{value}`, `{min,max}`, or the evidence alone where nothing is visible.
pub fn count(count: &Count) -> Value {
    let mut object = Map::new();
    if count.is_visible() {
        if count.bound.is_exact() {
            object.insert("value".into(), json!(count.bound.min));
        } else {
            object.insert("min".into(), json!(count.bound.min));
            object.insert("max".into(), json!(count.bound.max));
        }
    }
    object.insert("evidence".into(), json!(count.evidence));
    if let Some(basis) = &count.basis {
        object.insert("basis".into(), json!(basis));
    }
    Value::Object(object)
}

/// Returns a ratio as `{min,max}`, rounded to two decimals; null where nothing is visible.
pub fn ratio(ratio: Option<(f64, Option<f64>)>) -> Value {
    let round = |value: f64| (value * 100.0).round() / 100.0;
    match ratio {
        Some((min, max)) => json!({"min": round(min), "max": max.map(round)}),
        None => Value::Null,
    }
}

fn time_spent(time: Time) -> Value {
    json!({"wall_ms": time.wall_ms, "waiting_ms": time.waiting_ms, "lost_ms": time.lost_ms})
}

/// Returns one turn.
pub fn turn(turn: &Turn, path_of: PathOf<'_>) -> Value {
    json!({
        "turn": turn.number,
        "turn_id": turn.key,
        "started_at": time(turn.started_at),
        "ended_at": time(turn.ended_at),
        "outcome": turn.outcome.as_str(),
        "terminal_reason": turn.terminal_reason,
        "error": turn.error,
        "cause": turn.cause.as_ref().map(|c| cause(c, path_of)),
        "counts": counts(&turn.counts),
        "background_counts": counts(&turn.background_counts),
        "time": time_spent(turn.time),
    })
}

/// Returns one logical request with its attempts.
pub fn request(request: &LogicalRequest, turn: usize, path_of: PathOf<'_>) -> Value {
    let attempts: Vec<Value> =
        request.attempts.iter().enumerate().map(|(n, a)| attempt(a, n + 1, path_of)).collect();
    json!({
        "request_id": request.id,
        "turn": turn,
        "step": request.step,
        "source": request.source,
        "purpose": request.purpose,
        "outcome": request.outcome.as_str(),
        "requested_model": request.requested_model,
        "upstream_requests": count(&request.upstream),
        "retries": count(&request.retries),
        "usage": request.usage,
        "attempts": attempts,
    })
}

fn attempt(attempt: &Attempt, n: usize, path_of: PathOf<'_>) -> Value {
    let mut object = attempt.failure.as_ref().map(failure).unwrap_or_default();
    object.insert("n".into(), json!(n));
    object.insert("kind".into(), json!(attempt.kind));
    object.insert("outcome".into(), json!(attempt.outcome));
    object.insert("provider".into(), json!(attempt.candidate.provider));
    object.insert("model".into(), json!(attempt.candidate.model));
    object.insert("transport".into(), json!(attempt.candidate.transport));
    object.insert("layer".into(), json!(attempt.layer));
    object.insert("started_at".into(), time(attempt.started_at));
    object.insert("ended_at".into(), time(attempt.ended_at));
    object.insert("delay_ms".into(), json!(attempt.delay_ms));
    object.insert("waited_ms".into(), json!(attempt.waited_ms));
    object.insert("delay_source".into(), json!(attempt.delay_source));
    object.insert("max_attempts".into(), json!(attempt.max_attempts));
    object.insert("changed".into(), json!(attempt.changed));
    object
        .insert("reached".into(), json!(attempt.reached.map_or("unknown", |r| if r { "yes" } else { "no" })));
    object.insert("upstream_requests".into(), json!({"min": attempt.sends.min, "max": attempt.sends.max}));
    object.insert("evidence".into(), origin(attempt.origin, path_of));
    Value::Object(object)
}

/// Returns a place as `{file, line}`, `{file, row}` or `{file}`.
pub fn origin(origin: Origin, path_of: PathOf<'_>) -> Value {
    let file = path_of(origin.source).display().to_string();
    match origin.place {
        Place::Whole => json!({"file": file}),
        Place::Line(line) => json!({"file": file, "line": line}),
        Place::Row(row) => json!({"file": file, "row": row}),
    }
}

/// Returns a time in UTC with milliseconds; null where unknown.
pub fn time(time: Option<DateTime<Utc>>) -> Value {
    time.map_or(Value::Null, |t| t.to_rfc3339_opts(SecondsFormat::Millis, true).into())
}
