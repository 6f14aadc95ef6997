//! Waits and resets through the front door, and whose they are.

use retryscope_taxonomy::{Class, Failure, Judgement, classify};

fn judge(message: &str) -> Judgement {
    let now = "2026-11-30T12:00:00Z".parse().ok();
    classify(&Failure { message: Some(message), now, ..Failure::default() })
}

fn check_reset(message: &str, expected: Option<&str>) {
    let got = judge(message);
    assert_eq!(got.reset_at, expected.and_then(|at| at.parse().ok()), "{message}");
}

#[test]
fn a_moment_in_the_text_is_a_reset_and_no_wait() {
    let got = judge("429 Rate limit exceeded, retry after 2026-11-30T12:00:45Z");
    assert_eq!(got.retry_after_ms, None);
    assert_eq!(got.reset_at, "2026-11-30T12:00:45Z".parse().ok());
    check_reset("You've hit your limit · resets 3pm (UTC)", Some("2026-11-30T15:00:00Z"));
    check_reset("You've hit your weekly limit · resets Dec 5, 9am (UTC)", Some("2026-12-05T09:00:00Z"));
    check_reset("You've hit your limit · resets 3pm (America/Los_Angeles)", None);
    check_reset("You've hit your limit · resets 3pm", None);
}

#[test]
fn a_time_without_a_zone_stays_a_clock() {
    let got = judge("You've hit your usage limit, try again at Feb 20th, 2027 9:04 AM.");
    assert_eq!((got.reset_at, got.reset_clock), (None, "2027-02-20T09:04:00".parse().ok()));
}

#[test]
fn a_duration_as_protobuf_prints_it() {
    let text = "429 Quota exceeded. [violations {\n  quota_id: \"RequestsPerMinute\"\n}\n, retry_delay {\n  seconds: 23\n}\n]";
    assert_eq!(judge(text).retry_after_ms, Some(23_000));
    let body = r#"{"error":{"code":429,"details":[{"retryDelay":{"seconds":12,"nanos":500000000}}]}}"#;
    assert_eq!(classify(&Failure { body: Some(body), ..Failure::default() }).retry_after_ms, Some(12_500));
    assert_eq!(judge("429 slow [totals { seconds: 23 }]").retry_after_ms, None);
}

#[test]
fn what_a_person_has_to_do_first_is_no_wait() {
    let got = judge(
        "Model use case details have not been submitted for this account. Fill out the form; if you have done so, try again in 15 minutes.",
    );
    assert_eq!((got.class, got.retryable, got.retry_after_ms), (Class::Auth, false, None));
}

#[test]
fn a_plan_that_is_over_or_was_never_paid_is_no_throttle() {
    for text in [
        "429 Your Coding Plan has expired, please renew",
        "You've hit your free requests limit. Upgrade to Pro for more",
        "403 The free tier of the model has been exhausted",
        "400 Access denied, please make sure your account is in good standing.",
    ] {
        let got = judge(text);
        assert_eq!((got.class, got.retryable), (Class::Exhausted, false), "{text}: {}", got.rule);
    }
    let flagged =
        judge("403 x requires moderation. Your input was flagged for \"violence\". No credits were charged.");
    assert_eq!(flagged.class, Class::Content);
    assert_eq!(
        judge("429 Rate limit of the free tier: 20 requests per minute. Upgrade for more").class,
        Class::Throttled
    );
}

#[test]
fn a_wait_by_any_spelling_of_its_name() {
    for (field, expected) in [
        (r#""retryAfterSeconds":30"#, Some(30_000)),
        (r#""retry_in_seconds":30"#, Some(30_000)),
        (r#""resetsInSeconds":30"#, Some(30_000)),
        (r#""retryAfterMs":1500"#, Some(1_500)),
        (r#""retry_after":"2m""#, Some(120_000)),
        (r#""waitSeconds":30"#, Some(30_000)),
        (r#""wait_time_ms":"1500""#, Some(1_500)),
        (r#""retry_wait_secs":2.5"#, Some(2_500)),
        (r#""wait":30"#, None),
        (r#""waits_in_queue":30"#, None),
        // How long something took, a bucket, and a router's own cool-down.
        (r#""retried_in":30"#, None),
        (r#""reset_after":30"#, None),
        (r#""cooldown_seconds":30"#, None),
    ] {
        let body = format!(r#"{{"error":{{"message":"Too many requests",{field}}}}}"#);
        let got = classify(&Failure { status: Some(429), body: Some(&body), ..Failure::default() });
        assert_eq!(got.retry_after_ms, expected, "{body}");
    }
    for (message, expected) in [
        ("429 Too many requests. Retry after: 5", Some(5_000)),
        ("429 Too many requests (retryAfterMs: 1500)", Some(1_500)),
        ("429 Slow down. Please retry your requests after 60 seconds", Some(60_000)),
        ("429 Rate limited, come back in 2 hours", Some(7_200_000)),
        ("429 Your limit will reset in 3 hours and 20 minutes", Some(12_000_000)),
        ("429 Слишком много запросов. Повторите попытку через 30 секунд", Some(30_000)),
        ("429 Повторная попытка через 30 секунд", None),
        ("429 Too many requests, will retry in 5 seconds", None),
    ] {
        assert_eq!(judge(message).retry_after_ms, expected, "{message}");
    }
    let wait =
        |headers| classify(&Failure { status: Some(429), headers, ..Failure::default() }).retry_after_ms;
    assert_eq!(wait(&[("Retry-After", "30, 30")]), Some(30_000));
    assert_eq!(wait(&[("x-ratelimit-retry-after", "7")]), Some(7_000));
    let body = r#"{"responseHeaders":{"Retry-After":["9"],"Content-Security-Policy":"blocked content"}}"#;
    let got = classify(&Failure { status: Some(429), body: Some(body), ..Failure::default() });
    assert_eq!((got.class, got.retry_after_ms), (Class::Throttled, Some(9_000)));
}

#[test]
fn who_is_only_told_to_wait_asked_too_often() {
    let got = judge("The bucket is dry. Please wait 2 minutes before trying this again.");
    assert_eq!((got.class, got.retryable, got.retry_after_ms), (Class::Throttled, true, Some(120_000)));
    let own_plan = judge("The bucket is dry. Retrying in 4s");
    assert_eq!(own_plan.class, Class::Unknown);
}

#[test]
fn a_header_that_a_sentence_names() {
    for text in ["429 slow down. Retry-After header: 12", "429 with a Retry-After header of 12"] {
        let got = classify(&Failure { message: Some(text), ..Failure::default() });
        assert_eq!(got.retry_after_ms, Some(12_000), "{text}");
    }
}
