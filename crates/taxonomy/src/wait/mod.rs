//! Every place where a provider states a wait or a reset time.
//!
//! Headers, fields of the body, and sentences. A stated wait is reported as stated; whether to sleep on it is not
//! decided here. Rate-limit buckets ("full again at ...") give a reset time, an upper bound, and never a wait.
//! Rounding is up, to whole milliseconds; where two places state the same wait, the finer one counts.

mod date;
mod duration;
mod text;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

use self::duration::Wait;
use self::text::Reset;
use crate::unwrap::{Layer, wait_unit};
use crate::{Class, Reason};

/// What was stated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) reset_at: Option<DateTime<Utc>>,
    pub(crate) reset_clock: Option<NaiveDateTime>,
    pub(crate) should_retry: Option<bool>,
}

/// What the class says about which places count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// Sentences; off where "try again after" belongs to a repair the person has to make.
    pub(crate) sentences: bool,
    /// A plan's window, which is sent with good answers too.
    pub(crate) plan_windows: bool,
    /// From which length on a stated wait is taken to end with a new limit, though it does not speak of one.
    pub(crate) reset_from_ms: u64,
}

/// A throttle that asks for more than this is none that a run can sit out.
pub(crate) const LONGEST_THROTTLE_MS: u64 = 3_600_000;

/// Returns from which length on a stated wait is taken to end with a new limit, though it does not speak of one.
///
/// The wait beside a used-up quota may be the short one that every refusal of that provider carries, and no wait for the
/// quota's own day or month; beside a plan's window it is the rest of the window.
pub fn reset_from_ms(class: Class, reason: Reason) -> u64 {
    if class == Class::Exhausted && reason != Reason::UsageLimit { LONGEST_THROTTLE_MS } else { 0 }
}

/// Reads all places of one failure.
pub(crate) fn read(
    headers: &[(&str, &str)],
    layers: &[Layer],
    places: Places,
    now: Option<DateTime<Utc>>,
) -> Stated {
    let named = Named { headers, layers };
    let base = named.get("date").and_then(http_date).or(now);

    let header = named
        .get("retry-after-ms")
        .or_else(|| named.get("x-ms-retry-after-ms"))
        .and_then(|value| duration::parse_whole(value, 1))
        .or_else(|| named.get("retry-after").and_then(header_seconds))
        .or_else(|| named.get("x-retry-after").and_then(header_seconds))
        .or_else(|| named.get("x-ratelimit-retry-after").and_then(header_seconds))
        .or_else(|| until_date(&named, base));
    let field = field_wait(layers);
    let sentence =
        places.sentences.then(|| layers.iter().find_map(|layer| text::wait_in(&layer.text))).flatten();
    let window = places.plan_windows.then(|| codex_window(&named)).flatten();

    let wait = finest([header, field, sentence, window]);
    let until_reset = || {
        let sentence = || {
            layers.iter().find_map(|layer| text::wait_for_reset_in(&layer.text)).filter(|_| places.sentences)
        };
        let long = wait.filter(|wait| wait.ms >= places.reset_from_ms);
        named
            .get("resets_in_seconds")
            .and_then(|value| duration::parse_whole(value, 1_000))
            .or(window)
            .or_else(sentence)
            .or(long)
    };
    let dated = layers.iter().find_map(|layer| text::reset_in(&layer.text));
    let dated = match dated {
        Some(Reset::Next(clock)) => base.and_then(|base| clock.next_after(base)).map(Reset::At),
        other => other,
    };
    let reset_at = stated_reset(&named, layers, dated)
        .or_else(|| after(base?, until_reset()?))
        .or_else(|| bucket_reset(&named, base));
    let reset_clock = match dated {
        Some(Reset::Clock(clock)) if reset_at.is_none() => Some(clock),
        _ => None,
    };
    Stated {
        retry_after_ms: wait.map(|wait| wait.ms),
        reset_at,
        reset_clock,
        should_retry: named.get("x-should-retry").and_then(|value| value.trim().parse().ok()),
    }
}

/// Headers of the response, then those that a body or a print kept.
struct Named<'a> {
    headers: &'a [(&'a str, &'a str)],
    layers: &'a [Layer],
}

impl<'a> Named<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.all().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn all(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let kept = self.layers.iter().flat_map(|layer| &layer.fields);
        self.headers.iter().copied().chain(kept.map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

/// Seconds, or a duration with units. Of a header sent twice the first counts: "30, 30".
fn header_seconds(value: &str) -> Option<Wait> {
    let first = || value.split_once(", ").map(|(first, _)| first);
    duration::parse_whole(value, 1_000).or_else(|| duration::parse_whole(first()?, 1_000))
}

/// The first stated wait, unless a later place states the same one more finely.
fn finest(candidates: [Option<Wait>; 4]) -> Option<Wait> {
    let mut stated = candidates.into_iter().flatten();
    let first = stated.next()?;
    if first.fine {
        return Some(first);
    }
    Some(stated.find(|wait| wait.fine && wait.ms.abs_diff(first.ms) < 1_000).unwrap_or(first))
}

/// The wait until the HTTP date that the header states, from when the answer was sent, as it says itself, or was seen. A
/// date that had passed by then states no wait.
fn until_date(named: &Named<'_>, base: Option<DateTime<Utc>>) -> Option<Wait> {
    let wait = named.get("retry-after").and_then(http_date)?.signed_duration_since(base?);
    Wait::from_nanos(u128::try_from(wait.num_milliseconds()).ok()?.checked_mul(1_000_000)?)
}

/// Returns the time at which a wait ends; `None` where the calendar ends before.
fn after(base: DateTime<Utc>, wait: Wait) -> Option<DateTime<Utc>> {
    base.checked_add_signed(TimeDelta::try_milliseconds(i64::try_from(wait.ms).ok()?)?)
}

fn http_date(value: &str) -> Option<DateTime<Utc>> {
    let value = value.trim();
    DateTime::parse_from_rfc2822(value)
        .or_else(|_| DateTime::parse_from_rfc3339(value))
        .or_else(|_| DateTime::parse_from_str(value, "%Y-%m-%dT%H:%M:%S%.f%z"))
        .ok()
        .map(|time| time.with_timezone(&Utc))
}

/// Fields of the body that state a wait, innermost first.
fn field_wait(layers: &[Layer]) -> Option<Wait> {
    layers.iter().flat_map(|layer| &layer.fields).find_map(|(name, value)| {
        let unit = wait_unit(name).filter(|_| !name.contains('-'))?;
        duration::parse_whole(value, unit)
    })
}

/// The used-up window of a plan; with both used up, the one that lasts longer.
fn codex_window(named: &Named<'_>) -> Option<Wait> {
    let wait = |window: &str, only_used_up: bool| {
        let used =
            named.get(&format!("x-codex-{window}-used-percent")).and_then(|v| v.trim().parse::<f64>().ok());
        let counts = !only_used_up || used.is_some_and(|percent| percent >= 100.0);
        let seconds = named.get(&format!("x-codex-{window}-reset-after-seconds"));
        if counts { duration::parse_whole(seconds?, 1_000) } else { None }
    };
    let used_up = ["primary", "secondary"].into_iter().filter_map(|window| wait(window, true));
    used_up.max_by_key(|wait| wait.ms).or_else(|| wait("primary", false))
}

/// A reset time stated as such.
fn stated_reset(named: &Named<'_>, layers: &[Layer], dated: Option<Reset>) -> Option<DateTime<Utc>> {
    let fields = layers.iter().flat_map(|layer| &layer.fields);
    let mut stated =
        fields.filter(|(name, _)| matches!(name.as_str(), "resets_at" | "reset_at" | "quotaresettimestamp"));
    stated
        .find_map(|(_, value)| moment(value))
        .or(match dated {
            Some(Reset::At(at)) => Some(at),
            _ => None,
        })
        .or_else(|| named.get("retry-after").and_then(http_date))
        .or_else(|| named.get("anthropic-ratelimit-unified-reset").and_then(moment))
}

/// When the emptiest, or else the slowest, bucket is full again.
fn bucket_reset(named: &Named<'_>, base: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    let buckets: Vec<_> = named
        .all()
        .filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let remaining = if let Some(bucket) = name.strip_prefix("x-ratelimit-reset") {
                format!("x-ratelimit-remaining{bucket}")
            } else if name == "ratelimit-reset" {
                "ratelimit-remaining".to_owned()
            } else if name.starts_with("anthropic-ratelimit-") && name.ends_with("-reset") {
                format!("{}-remaining", name.strip_suffix("-reset")?)
            } else if name.starts_with("x-codex-") && name.ends_with("-reset-at") {
                name.clone()
            } else {
                return None;
            };
            let at = moment(value).or_else(|| {
                let wait = duration::parse_whole(value, 1_000)?;
                after(base?, wait)
            })?;
            Some((named.get(&remaining).map(str::trim) == Some("0"), at))
        })
        .collect();
    buckets.into_iter().max().map(|(_, at)| at)
}

fn moment(value: &str) -> Option<DateTime<Utc>> {
    epoch(value.trim()).or_else(|| http_date(value))
}

/// Epoch seconds, or milliseconds where the number is too large for seconds; small numbers are durations.
fn epoch(digits: &str) -> Option<DateTime<Utc>> {
    let number: i64 = digits.parse().ok()?;
    match number {
        1_000_000_000..100_000_000_000 => DateTime::from_timestamp(number, 0),
        1_000_000_000_000..100_000_000_000_000 => DateTime::from_timestamp_millis(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Places = Places { sentences: true, plan_windows: true, reset_from_ms: 0 };

    fn check(headers: &[(&str, &str)], body: Option<&str>, expected_ms: Option<u64>, reset: Option<i64>) {
        let layers = crate::unwrap::layers(body, None);
        let stated = read(headers, &layers, ALL, None);
        assert_eq!(stated.retry_after_ms, expected_ms, "{headers:?} {body:?}");
        assert_eq!(stated.reset_at.map(|at| at.timestamp()), reset, "{headers:?} {body:?}");
    }

    #[test]
    fn headers_in_their_order() {
        check(&[("Retry-After", "2"), ("retry-after-ms", "1200.5")], None, Some(1_201), None);
        check(&[("retry-after", "1.5")], None, Some(1_500), None);
        check(&[("retry-after", "soon")], None, None, None);
        check(
            &[("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"), ("date", "Wed, 21 Oct 2015 07:28:00 GMT")],
            None,
            Some(30_000),
            Some(1_445_412_510),
        );
        let past =
            [("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"), ("date", "Wed, 21 Oct 2015 07:28:31 GMT")];
        check(&past, None, None, Some(1_445_412_510));
        check(past.get(..1).unwrap_or_default(), None, None, Some(1_445_412_510));
        let seen = DateTime::from_timestamp(1_445_412_500, 0);
        let stated = read(&past[..1], &[], ALL, seen);
        assert_eq!(
            (stated.retry_after_ms, stated.reset_at),
            (Some(10_000), DateTime::from_timestamp(1_445_412_510, 0))
        );
    }

    #[test]
    fn the_finer_statement_counts() {
        let body = r#"{"error":{"message":"Please try again in 1.34s."}}"#;
        check(&[("retry-after", "2")], Some(body), Some(1_340), None);
        check(&[("retry-after", "9")], Some(body), Some(9_000), None);
    }

    #[test]
    fn fields_of_the_body() {
        check(&[], Some(r#"{"error":{"details":[{"retryDelay":"34.074824224s"}]}}"#), Some(34_075), None);
        check(&[], Some(r#"{"error":{"message":"slower","retryAfter":40}}"#), Some(40_000), None);
        let body = r#"{"error":{"resets_at":"2026-08-06T20:06:00+0800"}}"#;
        check(&[], Some(body), None, Some(1_786_017_960));
        let body = r#"{"error":{"resets_in_seconds":60,"resets_at":1777936568}}"#;
        check(&[], Some(body), Some(60_000), Some(1_777_936_568));
    }

    #[test]
    fn buckets_are_no_waits() {
        check(
            &[("anthropic-ratelimit-tokens-reset", "2026-01-01T00:00:10Z")],
            None,
            None,
            Some(1_767_225_610),
        );
        check(
            &[("x-ratelimit-reset-tokens", "1m0.052s"), ("date", "Thu, 01 Jan 2026 00:00:00 GMT")],
            None,
            None,
            Some(1_767_225_660),
        );
        check(
            &[("RateLimit-Reset", "50"), ("date", "Thu, 01 Jan 2026 00:00:00 GMT")],
            None,
            None,
            Some(1_767_225_650),
        );
    }

    #[test]
    fn plan_windows() {
        check(
            &[
                ("x-codex-primary-used-percent", "100"),
                ("x-codex-primary-reset-after-seconds", "600"),
                ("x-codex-secondary-used-percent", "80"),
                ("x-codex-secondary-reset-after-seconds", "90000"),
            ],
            None,
            Some(600_000),
            None,
        );
    }
}
