//! Parts of the sentences: who was asked, what was answered, how often, for how long.
//!
//! Not for: which sentence a run deserves (see `story`).

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptKind, Candidate, Decision};
use retryscope_taxonomy::{Class, Reason};

use crate::count::Bound;
use crate::judge::Failure;
use crate::run::{Attempt, LogicalRequest};
use crate::words;

/// Attempts up to this number are told one by one.
const TOLD_ONE_BY_ONE: usize = 6;

/// Attempts in a row on one candidate.
pub(super) fn by_candidate(attempts: &[Attempt]) -> Vec<(&Candidate, Vec<&Attempt>)> {
    let mut groups: Vec<(&Candidate, Vec<&Attempt>)> = Vec::new();
    for attempt in attempts {
        match groups.last_mut() {
            Some((_, group)) if attempt.kind != AttemptKind::Fallback => group.push(attempt),
            _ => groups.push((&attempt.candidate, vec![attempt])),
        }
    }
    groups
}

/// The request's own bound where it is wider than what its visible attempts add up to.
pub(super) fn visible_bound(request: &LogicalRequest, sends: Bound) -> Bound {
    if request.upstream.is_visible() { request.upstream.bound } else { Bound::at_least(sends.min) }
}

/// "answered 503 (unavailable) to all 4 requests", "answered 500, 503 and 500 to ...", "could not be reached for ...". Beside
/// the attempts, so many were sent that no record describes.
pub(super) fn answers(attempts: &[&Attempt], undescribed: u64, requests: &str) -> String {
    let failures: Vec<&Failure> = attempts.iter().filter_map(|a| a.failure.as_ref()).collect();
    let Some(first) = failures.first() else {
        return format!("failed {requests}, for a reason this log does not give");
    };
    let is_silent = |a: &&&Attempt| a.failure.as_ref().is_none_or(|f| f.is_empty());
    let (others, known): (Vec<&Attempt>, Vec<&Attempt>) = attempts.iter().partition(is_silent);
    if let (false, Some(last)) = (others.is_empty() && undescribed == 0, known.last()) {
        let of = requests.strip_prefix("all ").unwrap_or(requests);
        let is_last = undescribed == 0 && attempts.last().is_some_and(|a| std::ptr::eq(*a, *last));
        let which = match known.len() {
            1 if is_last => format!("the last of {of}"),
            1 => format!("one of {of}"),
            n => format!("{n} of {of}"),
        };
        return format!("{} ({})", answers(&known, 0, &which), told_of_others(&others, undescribed));
    }
    // One log may hold the status where another lost it.
    let status = failures.iter().find_map(|f| f.status);
    let all_alike =
        failures.iter().all(|f| f.reason == first.reason && (f.status.is_none() || f.status == status));
    if all_alike {
        let reason = spaced(first.reason.as_str());
        return match (status, first.reason) {
            (Some(status), _) => format!("answered {status} ({reason}) to {requests}"),
            (None, _) if first.is_output_limit() => {
                format!("reached the output limit that was set for {requests}")
            }
            (None, Reason::Refused | Reason::Dns | Reason::Connect) => {
                format!("could not be reached ({reason}) for {requests}")
            }
            (None, Reason::Timeout) => format!("did not answer {requests} in time"),
            (None, Reason::StreamCut | Reason::Reset | Reason::IdleTimeout) => {
                format!("broke off ({reason}) {requests}")
            }
            (None, Reason::NoDetail) if first.class != Class::Unknown => {
                format!("failed {requests} ({})", spaced(first.class.as_str()))
            }
            (None, Reason::NoDetail) if first.message.is_some() || first.code.is_some() => {
                format!("failed {requests}, with an error of no known kind")
            }
            (None, Reason::NoDetail) => format!("failed {requests}, for a reason this log does not give"),
            (None, _) => format!("failed {requests} ({reason})"),
        };
    }
    let words: Vec<String> = failures
        .iter()
        .map(|f| match f.status {
            Some(status) => status.to_string(),
            None => describe(f),
        })
        .collect();
    let told = match words.as_slice() {
        [first, rest @ ..] if rest.iter().all(|word| word == first) => vec![first.clone()],
        _ if words.len() <= TOLD_ONE_BY_ONE => fold_neighbours(&words),
        _ => fold(&words),
    };
    format!("answered {} to {requests}", words::list(&told))
}

/// "what the 2 other attempts got is not in this log, 1 other was called off".
fn told_of_others(others: &[&Attempt], undescribed: u64) -> String {
    let called_off = others.iter().filter(|a| a.was_called_off()).count() as u64;
    let silent = others.len() as u64 - called_off + undescribed;
    let mut told = Vec::new();
    if silent > 0 {
        let attempts = words::counted(Bound::exact(silent), "other attempt", "other attempts");
        told.push(format!("what the {attempts} got is not in this log"));
    }
    match called_off {
        0 => {}
        1 => told.push("1 other was called off".to_owned()),
        n => told.push(format!("{n} others were called off")),
    }
    told.join(", ")
}

/// Counts equal words: `503 (9 times)`, `500`.
pub(super) fn fold(words: &[String]) -> Vec<String> {
    let mut counted: Vec<(&String, usize)> = Vec::new();
    for word in words {
        match counted.iter_mut().find(|(known, _)| *known == word) {
            Some((_, n)) => *n += 1,
            None => counted.push((word, 1)),
        }
    }
    counted.into_iter().map(|(word, n)| counted_word(word, n)).collect()
}

/// The same for words in a row: `503 (2 times)`, `500`, `503`.
fn fold_neighbours(words: &[String]) -> Vec<String> {
    words.chunk_by(|a, b| a == b).map(|row| counted_word(&row[0], row.len())).collect()
}

fn counted_word(word: &str, n: usize) -> String {
    if n == 1 { word.to_owned() } else { format!("{word} ({n} times)") }
}

pub(super) fn repeated(retries: Bound) -> String {
    match retries.max {
        Some(max) if max == retries.min => words::times(max),
        Some(1) => "at most once".to_owned(),
        Some(max) if retries.min == 0 => format!("up to {max} times"),
        None => format!("at least {}", words::times(retries.min)),
        Some(_) => format!("{} times", words::bound(retries)),
    }
}

/// ", since its retry budget was spent"; empty where the log names no limit of the agent's own.
pub(super) fn given_up_for(request: &LogicalRequest) -> &'static str {
    match request.decision {
        Some(Decision::Budget) => ", since its retry budget was spent",
        Some(Decision::Deadline) => ", since its time was up",
        _ => "",
    }
}

/// Waits that an attempt followed, in ms.
pub(super) fn waited_between(request: &LogicalRequest) -> u64 {
    let followed = request.attempts.len().saturating_sub(1);
    request.attempts.iter().take(followed).filter_map(|a| a.waited_ms.or(a.delay_ms)).sum()
}

/// Returns how many retries followed a failure of this kind.
pub(super) fn retries_after(request: &LogicalRequest, failure: &Failure) -> u64 {
    let is_alike = |attempt: &Attempt| attempt.failure.as_ref().is_some_and(|f| f.class == failure.class);
    let pairs = request.attempts.windows(2);
    pairs.filter(|pair| pair[1].kind == AttemptKind::Retry && is_alike(&pair[0])).count() as u64
}

/// Whether each request sent got an answer that asked for the same wait.
pub(super) fn asks_alike(request: &LogicalRequest, failure: &Failure) -> bool {
    let is_alike = |attempt: &Attempt| {
        attempt.failure.as_ref().is_some_and(|f| f.retry_after_ms == failure.retry_after_ms)
    };
    request.upstream.bound.max == Some(request.attempts.len() as u64) && request.attempts.iter().all(is_alike)
}

/// From the first attempt to the last sign of the request.
pub(super) fn span_of(request: &LogicalRequest) -> Option<u64> {
    let first = request.attempts.iter().filter_map(|a| a.started_at.or(a.ended_at)).min()?;
    let last = request.attempts.iter().filter_map(|a| a.ended_at.or(a.started_at)).max()?;
    u64::try_from((last - first).num_milliseconds()).ok().filter(|ms| *ms > 0)
}

/// "503 unavailable", "connection refused", "rate limit".
pub(crate) fn describe(failure: &Failure) -> String {
    let reason = spaced(failure.reason.as_str());
    match failure.status {
        Some(status) => format!("{status} {reason}"),
        None if failure.is_output_limit() => "an answer cut at its output limit".to_owned(),
        None if failure.reason == Reason::NoDetail && failure.class != Class::Unknown => {
            format!("{} error", spaced(failure.class.as_str()))
        }
        None if failure.is_empty() => "an error without detail".to_owned(),
        None if failure.reason == Reason::NoDetail => "an error of no known kind".to_owned(),
        None => reason,
    }
}

pub(super) fn limit_word(reason: &str) -> &'static str {
    match reason {
        "credit" => "credit",
        "spend_cap" => "spending limit",
        "usage_limit" => "usage limit",
        "daily_quota" => "daily quota",
        "free_tier" | "zero_quota" => "free quota",
        _ => "quota",
    }
}

pub(super) fn name(candidate: &Candidate, with_model: bool) -> String {
    match (&candidate.provider, &candidate.model, with_model) {
        (Some(provider), Some(model), true) => format!("{model} at {provider}"),
        (None, Some(model), true) => model.clone(),
        (Some(provider), ..) => provider.clone(),
        (None, Some(model), false) => format!("the provider of {model}"),
        _ => "the provider".to_owned(),
    }
}

/// Names two candidates so that they are not called the same, as far as the log tells them apart.
pub(super) fn told_apart(a: &Candidate, b: &Candidate) -> (String, String) {
    let (name_a, name_b) = (name(a, true), name(b, true));
    if name_a != name_b {
        return (name_a, name_b);
    }
    let parts = [
        ("over", &a.transport, &b.transport),
        ("with account", &a.account, &b.account),
        ("in", &a.region, &b.region),
        ("through", &a.endpoint, &b.endpoint),
    ];
    let differing = parts.iter().find(|(_, a, b)| a != b);
    match differing.and_then(|(word, a, b)| Some((word, a.as_deref()?, b.as_deref()?))) {
        Some((word, of_a, of_b)) => (format!("{name_a} {word} {of_a}"), format!("{word} {of_b}")),
        None => (name_a, "another candidate of that name".to_owned()),
    }
}

pub(super) fn spaced(word: &str) -> String {
    word.replace('_', " ")
}

pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect::<String>().trim_end_matches('.').to_owned()
}

pub(crate) fn short_id(id: &str) -> String {
    let short: String = id.chars().take(16).collect();
    if short.len() < id.len() { format!("{short}…") } else { short }
}

/// The moment in UTC, to the minute.
pub(super) fn clock(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}
