//! Whatever comes in: no panic, the same answer twice, and an answer that is consistent in itself.

use chrono::{TimeZone, Utc};
use proptest::prelude::*;
use retryscope_taxonomy::{Class, Failure, Judgement, classify};

/// Pieces that steer the unwrapping and the waits, to get deeper than random letters do.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        ":",
        ",",
        "\\",
        "\\u00",
        "\\x",
        "b'",
        "{\"error\":",
        "'message': '",
        "429 ",
        "Error code: 503 - ",
        "litellm.X: YException - ",
        "last error: ",
        "<html><title>",
        "</script",
        "<style>",
        "try again in ",
        "5 days ",
        "1.",
        "999999999999999999999",
        "ms",
        "s",
        "|",
        "usage limit reached|",
        "rate limit",
        "insufficient_quota",
        "(1302)",
        "余额不足",
        "后重试",
        "2026-08-06 20:06:00 重置",
        "\u{1}",
        "\n",
        "overloaded",
        "https://",
        "{\"retryDelay\":\"",
        "prompt is too long",
        "Retrying in 4s",
        "per day",
    ];
    prop_oneof![3 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat()))
}

fn is_consistent(judgement: &Judgement) -> Result<(), TestCaseError> {
    prop_assert!(judgement.class.reasons().contains(&judgement.reason));
    let never = [Class::Exhausted, Class::Auth, Class::Cancelled];
    prop_assert!(!(judgement.retryable && never.contains(&judgement.class)), "{judgement:?}");
    let long = judgement.retry_after_ms.is_some_and(|ms| ms > 3_600_000);
    prop_assert!(!(judgement.class == Class::Throttled && long && judgement.retryable));
    Ok(())
}

proptest! {
    #[test]
    fn never_panics_and_is_deterministic(
        provider in prop::option::of(prop_oneof![Just("anthropic".to_owned()), Just("dashscope".to_owned()), any::<String>()]),
        status in prop::option::of(any::<u16>()),
        body in text(),
        code in text(),
        message in text(),
        name in prop_oneof![Just("retry-after".to_owned()), Just("x-should-retry".to_owned()), any::<String>()],
        value in any::<String>(),
        seconds in prop::option::of(any::<u32>()),
    ) {
        let headers = [(name.as_str(), value.as_str())];
        let failure = Failure {
            provider: provider.as_deref(),
            status,
            headers: &headers,
            body: body.as_deref(),
            code: code.as_deref(),
            message: message.as_deref(),
            now: seconds.and_then(|s| Utc.timestamp_opt(i64::from(s), 0).single()),
        };
        let judgement = classify(&failure);
        is_consistent(&judgement)?;
        prop_assert_eq!(judgement, classify(&failure));
    }

    #[test]
    fn arbitrary_bytes_are_text(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let text = String::from_utf8_lossy(&bytes);
        is_consistent(&classify(&Failure { body: Some(&text), message: Some(&text), ..Failure::default() }))?;
    }

    #[test]
    fn any_number_of_retry_after_seconds_is_read(seconds in 0_u32..100_000_000) {
        let value = seconds.to_string();
        let headers = [("Retry-After", value.as_str())];
        let judgement = classify(&Failure { status: Some(429), headers: &headers, ..Failure::default() });
        prop_assert_eq!(judgement.retry_after_ms, Some(u64::from(seconds) * 1000));
        prop_assert_eq!(judgement.retryable, seconds <= 3600);
    }

    #[test]
    fn wrapping_in_json_changes_nothing(depth in 0_usize..5) {
        let mut body = r#"{"error":{"type":"insufficient_quota","message":"nothing left"}}"#.to_owned();
        for _ in 0..depth {
            body = serde_json::json!({"error": {"message": body, "code": 500}}).to_string();
        }
        let judgement = classify(&Failure { provider: Some("openai"), body: Some(&body), ..Failure::default() });
        prop_assert_eq!(judgement.rule, "openai/insufficient-quota");
    }
}

#[test]
fn deep_and_long_input_is_bounded() {
    for text in
        ["{\"a\":".repeat(100_000), "[".repeat(300_000), "'".repeat(200_000), "last error: ".repeat(50_000)]
    {
        classify(&Failure { body: Some(&text), message: Some(&text), ..Failure::default() });
    }
}
