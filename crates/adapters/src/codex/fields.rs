//! Members that several of Codex' records share.

use retryscope_events::Usage;

use crate::json::Object;

/// Returns whole milliseconds, at most three thousand years: beyond that a number means nothing.
pub(super) fn whole_ms(ms: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    {
        ms.clamp(0.0, 1e14).round() as u64
    }
}

/// Returns the turn of a record's payload.
pub(super) fn turn_id(payload: &Object<'_>) -> Option<String> {
    payload.string("turn_id").filter(|id| !id.is_empty())
}

/// Returns the tokens of one answer.
pub(super) fn usage(usage: &Object<'_>) -> Usage {
    Usage {
        input_tokens: usage.u64("input_tokens"),
        output_tokens: usage.u64("output_tokens"),
        cached_input_tokens: usage.u64("cached_input_tokens"),
        reasoning_tokens: usage.u64("reasoning_output_tokens"),
        cost_usd: None,
    }
}

/// Returns the value of `key=value` or `key="value"` in a log line; the first one if there are several.
pub(super) fn named<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find(key)?;
        let (before, after) = rest.split_at(at);
        let after = after.get(key.len()..)?;
        let begins =
            before.chars().next_back().is_none_or(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')));
        if begins && let Some(value) = after.strip_prefix('=') {
            return Some(match value.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next().unwrap_or_default(),
                None => value.split([' ', '}', ',']).next().unwrap_or_default(),
            });
        }
        rest = after;
    }
}

/// Returns the milliseconds of a duration as Rust prints it: `12.5ms`, `1.2s`, `60s`.
pub(super) fn duration_ms(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let ms = match unit {
        "ns" => number / 1e6,
        "µs" | "us" => number / 1e3,
        "ms" => number,
        "s" => number * 1e3,
        _ => return None,
    };
    Some(whole_ms(ms))
}

/// A line of the stream loop: `... (1/5 in 200ms)... turn_id=… sampling_error=…`, or a wait for a connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RetryLine<'a> {
    pub(super) number: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) delay_ms: Option<u64>,
    pub(super) turn: Option<&'a str>,
    pub(super) error: Option<&'a str>,
}

impl<'a> RetryLine<'a> {
    /// Reads the message of a log line; `None` if it is another one.
    pub(super) fn of(message: &'a str) -> Option<Self> {
        let error = ["sampling_error=", " error="].iter().find_map(|key| Some(message.split_once(key)?.1));
        let turn = named(message, "turn_id");
        if message.contains("stream connection failed; waiting to retry") {
            let error = error.map(|e| e.split(" retry_delay=").next().unwrap_or(e));
            return Some(Self {
                delay_ms: named(message, "retry_delay").and_then(duration_ms),
                turn,
                error,
                ..Self::default()
            });
        }
        let (_, rest) = message.split_once("stream disconnected - retrying")?;
        let (counter, _) = rest.split_once('(')?.1.split_once(')')?;
        let (numbers, delay) = counter.split_once(" in ")?;
        let (number, max) = numbers.split_once('/')?;
        let (number, max) = (number.parse().ok(), max.parse().ok());
        Some(Self { number, max, delay_ms: duration_ms(delay), turn, error })
    }

    /// Returns the retry it tells.
    pub(super) fn retry(&self) -> retryscope_events::ModelRetry {
        let mut retry = retryscope_events::ModelRetry::new().layer(retryscope_events::Layer::Stream);
        retry.attempt = self.number;
        retry.max_attempts = self.max.map(|max| max + 1);
        retry.delay_ms = self.delay_ms;
        if let Some(error) = self.error {
            super::error::Told::of(error).fill_retry(&mut retry);
        }
        retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_behind_their_whole_name() {
        let text = r#"a{turn.id="t-1" model=m}:b{my_model=x}: url=u"#;
        assert_eq!(named(text, "turn.id"), Some("t-1"));
        assert_eq!(named(text, "model"), Some("m"));
        assert_eq!(named(text, "id"), None);
        assert_eq!(named("model", "model"), None);
    }

    #[test]
    fn durations_need_a_known_unit() {
        assert_eq!(duration_ms("997.6ms"), Some(998));
        assert_eq!(duration_ms("1.5s"), Some(1500));
        assert_eq!(duration_ms("2h"), None);
        assert_eq!(duration_ms("7"), None);
    }

    #[test]
    fn the_stream_loop_tells_its_waits() {
        let line = RetryLine::of(
            "stream disconnected - retrying turn (2/9 in 1.2s)... turn_id=u sampling_error=a b=c",
        )
        .unwrap();
        assert_eq!((line.number, line.max, line.delay_ms), (Some(2), Some(9), Some(1200)));
        assert_eq!((line.turn, line.error), (Some("u"), Some("a b=c")));
        let wait =
            RetryLine::of("stream connection failed; waiting to retry turn_id=u error=x y retry_delay=5s")
                .unwrap();
        assert_eq!((wait.number, wait.delay_ms, wait.error), (None, Some(5_000), Some("x y")));
        assert!(RetryLine::of("stream disconnected").is_none());
    }
}
