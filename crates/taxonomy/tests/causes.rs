//! The cause against what a client, a gateway or a reason phrase says around it.

use retryscope_taxonomy::{Class, Failure, Judgement, classify};

fn judge(provider: Option<&str>, status: Option<u16>, message: &str) -> Judgement {
    classify(&Failure { provider, status, message: Some(message), ..Failure::default() })
}

fn check(class: Class, texts: &[&str]) {
    for text in texts {
        let got = judge(None, None, text);
        assert_eq!(got.class, class, "{text}: {}", got.rule);
    }
}

#[test]
fn a_refusal_behind_a_cut_stream_is_no_passing_trouble() {
    check(
        Class::Auth,
        &[
            "stream error: gave up, last status: 401 Unauthorized",
            "■ stream error: unexpected status 403 Forbidden: no seat; retrying 3/5 in 812ms",
            "connection closed: 401 the key was revoked",
            "SSE stream error: invalid_api_key",
            "Stream disconnected: please log in again",
            "Verbindungsfehler. connection error: ungültiger API-Schlüssel",
            "Mid-stream error: token expired",
        ],
    );
    check(
        Class::Exhausted,
        &[
            "stream error: insufficient balance on this key",
            "⚠ Stream error: your credits have been used, add credits",
            "stream interrupted: 402 nothing left",
            "stream closed: 余额不足，请充值",
            "connection lost: weekly allowance of the plan, limit met",
            "Error mid-stream: insufficient_quota",
            "stream error: quota épuisé",
        ],
    );
    check(
        Class::InvalidRequest,
        &[
            "stream error: model not found: m",
            "stream error: 400 odd thing",
            "Connection closed: 404 nobody here",
        ],
    );
    check(Class::TooLarge, &["stream error: prompt is too long: 9 > 8"]);
    check(
        Class::Transient,
        &[
            "stream error",
            "stream error: unexpected end",
            "stream error: error sending request",
            "stream error: unexpected status 503 Service Unavailable: later; retrying 1/5 in 200ms",
            "connection closed: the peer went away",
            "Connection error: ECONNRESET",
        ],
    );
}

#[test]
fn a_refusing_status_is_not_outvoted_by_words_of_the_moment() {
    let words = [
        "connection closed",
        "server is busy",
        "Request timed out",
        "Service Unavailable",
        "stream error",
        "Overloaded",
        "request was aborted",
    ];
    for word in words {
        for provider in [None, Some("openai"), Some("codex"), Some("openai-compatible")] {
            for (status, class) in [
                (401, Class::Auth),
                (402, Class::Exhausted),
                (403, Class::Auth),
                (407, Class::Auth),
                (413, Class::TooLarge),
            ] {
                let got = judge(provider, Some(status), word);
                assert_eq!(got.class, class, "{provider:?} {status} {word}: {}", got.rule);
            }
        }
    }
    for status in [401, 402, 407] {
        assert!(!judge(None, Some(status), "Too many requests").retryable, "{status}");
    }
    assert_eq!(judge(None, Some(403), "Rate limit exceeded, slow down").class, Class::Throttled);
    let code = r#"{"error":{"type":"overloaded_error","message":"later"}}"#;
    assert_eq!(judge(None, Some(403), code).class, Class::Transient, "a code tells");
    let text = r#"API Error: 401 {"type":"error","error":{"type":"authentication_error","message":"socket hang up"}}"#;
    assert_eq!(judge(Some("anthropic"), None, text).class, Class::Auth);
    assert!(judge(None, Some(503), "connection closed").retryable);
}

#[test]
fn a_used_up_window_behind_a_reason_phrase_is_used_up() {
    for window in ["weekly", "hourly", "session", "5-hour", "monthly", "daily", "team", "plan"] {
        for text in [
            format!("429 Too Many Requests: you have hit your {window} usage limit, wait or upgrade"),
            format!("Rate limit exceeded: 429 Too Many Requests: the {window} usage limit was reached"),
            format!("RateLimitError: Too many requests - your {window} usage limit is exceeded"),
            format!("503 Service Unavailable: you've reached your {window} usage limit"),
            format!(
                "unexpected status 429 Too Many Requests: you exceeded the {window} usage limit, url: https://x.y/z"
            ),
            format!("Overloaded: account reached its {window} usage limit"),
            format!("Too Many Requests. You have exceeded your {window} usage limit."),
        ] {
            for provider in [None, Some("local"), Some("openai-compatible"), Some("codex")] {
                let got = judge(provider, None, &text);
                assert_eq!((got.class, got.retryable), (Class::Exhausted, false), "{text}: {}", got.rule);
            }
        }
    }
    check(
        Class::Content,
        &[
            "503 Service Unavailable: this content was flagged as unsafe",
            "Rate limit exceeded: prompt rejected",
        ],
    );
    check(
        Class::Auth,
        &["500 Internal Server Error: permission 'x.use' denied", "Too Many Requests: access denied"],
    );
    check(
        Class::Throttled,
        &[
            "Rate limit exceeded: 20 requests per minute",
            "429 Too Many Requests: slow down",
            "Rate limit exceeded: try again in 20s",
            "Rate limit exceeded: limit of the minute reached, upgrade your plan for more",
            "Too many requests - please ensure at least one second between calls",
            "hourly rate limit hit",
            "Rate limit exceeded: max retries exceeded for this call",
        ],
    );
    check(
        Class::Transient,
        &[
            "503 Service Unavailable: no healthy upstream",
            "503 Service Unavailable: please ensure the backend is up",
            "502 Bad Gateway: upstream gone",
            "Internal server error: something was not found",
            "500 Internal Server Error: panic in worker",
        ],
    );
}

#[test]
fn a_code_beside_a_lead_still_counts() {
    let body = r#"{"error":{"type":"insufficient_quota","message":"Rate limit exceeded: call again later"}}"#;
    let got = classify(&Failure { body: Some(body), status: Some(429), ..Failure::default() });
    assert_eq!(got.class, Class::Exhausted, "{}", got.rule);
    let body = r#"{"error":{"code":"context_length_exceeded","message":"Server error: invalid request"}}"#;
    assert_eq!(classify(&Failure { body: Some(body), ..Failure::default() }).class, Class::TooLarge);
    let body = r#"{"error":{"type":"invalid_request_error","message":"Service Unavailable: gone for now"}}"#;
    assert_eq!(classify(&Failure { body: Some(body), ..Failure::default() }).class, Class::Transient);
    let before = "Failed to connect to it: 429 Too Many Requests Sorry, go slower";
    assert_eq!(
        judge(None, None, before).class,
        Class::Throttled,
        "what stands in front of a lead is no cause"
    );
    let text = "Connection error: HTTP 503, gateway timeout behind it: unavailable";
    assert_eq!(judge(None, Some(503), text).class, Class::Transient);
}

#[test]
fn the_status_of_a_cause_holds_for_what_wraps_it() {
    let body = r#"{"error":{"message":"The server had a hiccup","cause":{"raw":"nope","code":401}}}"#;
    let got = classify(&Failure { body: Some(body), ..Failure::default() });
    assert!(!got.retryable, "{}", got.rule);
    assert_eq!(judge(None, None, "stream error: upstream error: 401 odd").class, Class::Auth);
}

#[test]
fn budgets_of_a_day_by_their_short_names() {
    for text in [
        "request reached project TPD rate limit, current: 90, limit: 80",
        "Rejected due to rate limiting. Details: RPD limit reached",
        "429 rate limit reached (RPD)",
        "Rate limit: 1000 requests/day",
        "今日使用量达到上限，请明日再来",
    ] {
        let got = judge(None, Some(429), text);
        assert_eq!((got.class, got.retryable), (Class::Exhausted, false), "{text}: {}", got.rule);
    }
    for text in ["httpd rate limit", "RPM limit reached", "TPM rate limit, current: 9"] {
        assert_eq!(judge(None, Some(429), text).class, Class::Throttled, "{text}");
    }
}

#[test]
fn overload_is_a_word() {
    check(Class::Transient, &["engine overload", "Server overload: later", "The server is overloaded"]);
    for text in [
        "Overloading a machine makes it freeze",
        "No overload matches this call",
        "error: overloaded function f",
    ] {
        assert_ne!(judge(None, None, text).class, Class::Transient, "{text}");
    }
}

#[test]
fn a_quota_that_holds_nothing_is_none_to_wait_for() {
    let body = |value: &str| {
        serde_json::json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded for requests per minute",
            "details": [{"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit_value": value}}]}})
        .to_string()
    };
    let class = |value| {
        let body = body(value);
        classify(&Failure { provider: Some("gemini"), body: Some(&body), ..Failure::default() }).class
    };
    assert_eq!(class("0"), Class::Exhausted);
    assert_eq!(class("60"), Class::Throttled);
}

#[test]
fn what_an_upstream_says_in_one_word_is_its_code() {
    let raw = |raw: &str| {
        let body = serde_json::json!({"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": raw}}});
        let body = body.to_string();
        classify(&Failure { provider: Some("openrouter"), body: Some(&body), ..Failure::default() }).class
    };
    assert_eq!(raw("Overloaded"), Class::Transient);
    assert_eq!(raw("field 'overloaded' is unknown"), Class::InvalidRequest);
    assert_eq!(judge(Some("vllm"), Some(400), "The server is overloaded").class, Class::Transient);
    assert_eq!(judge(Some("vllm"), Some(400), "unknown field: overloaded").class, Class::InvalidRequest);
}

#[test]
fn permanent_refusals_without_a_status() {
    for text in [
        "audio pre-consumed quota failed, user quota: 1, need quota: 2",
        "The account has reached the set inference limit for a model; the model service has been paused",
        "Inference usage has reached the max",
        "This content can’t be shown",
        "今日调用次数已用满",
        "您已达到本周使用限额",
        "会员已过期",
        "该账号已被禁用",
        "账户被封禁",
        "litellm.APIError: LLM Provider NOT provided. Pass it in",
        "Your subscription is inactive",
        "You need a paid plan",
    ] {
        assert!(!judge(None, None, text).retryable, "{text}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_no_wrong_request() {
    check(
        Class::Transient,
        &["Failed to parse stream", "failed to parse SSE chunk", "Error: Failed to parse response body"],
    );
    check(Class::InvalidRequest, &["Failed to parse response_format", "Failed to parse request"]);
    assert_eq!(judge(None, Some(400), "failed to parse stream option").class, Class::InvalidRequest);
}

#[test]
fn pages_by_what_they_are() {
    let cut = "<html><head><meta x><style global>body{content:x}.blocked{color:red}.rate{limit:1}";
    let texts = [
        (format!("unexpected status 403 Forbidden: {cut}"), Class::Auth),
        (format!("unexpected status 502 Bad Gateway: {cut}"), Class::Transient),
        (format!("503 {cut}"), Class::Transient),
        ("<html><title>Unicorn! &middot; GitHub</title><p>It takes long</p>".to_owned(), Class::Transient),
        ("<html><title>Our services aren't available right now</title></html>".to_owned(), Class::Transient),
        ("<html><title>ERROR</title><p>ERR_ACCESS_DENIED</p></html>".to_owned(), Class::Auth),
        (
            "<html><title>ERROR: The requested URL could not be retrieved</title><p>(111) refused</p>"
                .to_owned(),
            Class::Transient,
        ),
    ];
    for (text, class) in texts {
        let got = judge(None, None, &text);
        assert_eq!(got.class, class, "{text}: {}", got.rule);
    }
}

#[test]
fn short_and_long_limits_of_one_vendor() {
    let copilot = |text| judge(Some("copilot"), None, text);
    let short = copilot(
        "You've hit your global rate limit. Please upgrade or wait 9 seconds for your limit to reset.",
    );
    assert_eq!((short.class, short.retryable, short.retry_after_ms), (Class::Throttled, true, Some(9_000)));
    assert_eq!(copilot("You've hit your weekly rate limit").class, Class::Exhausted);
    assert_eq!(copilot("You've hit your session rate limit").class, Class::Exhausted);
}

#[test]
fn a_date_in_the_header_is_the_reset_and_the_wait_until_then() {
    let headers = [("Retry-After", "Tue, 01 Dec 2026 12:00:00 GMT")];
    let at = |now: &str| {
        let failure =
            Failure { status: Some(429), headers: &headers, now: now.parse().ok(), ..Failure::default() };
        let got = classify(&failure);
        (got.retry_after_ms, got.reset_at, got.retryable)
    };
    let reset = "2026-12-01T12:00:00Z".parse().ok();
    assert_eq!(at("2026-12-01T11:59:30.123Z"), (Some(29_877), reset, true));
    // Longer than a run can sit out.
    assert_eq!(at("2026-12-01T02:00:00Z"), (Some(36_000_000), reset, false));
    // It has passed, or nobody knows how long it was: no wait is stated.
    assert_eq!(at("2027-01-01T00:00:00Z"), (None, reset, true));
    assert_eq!(at(""), (None, reset, true));
}

#[test]
fn identifiers_are_words_where_nothing_else_is_known() {
    check(
        Class::Transient,
        &[
            "AI_RetryError: Failed after 3 attempts. Last error: gateway_unavailable",
            "UpstreamServerOverloadedError",
        ],
    );
    let code = r#"{"error":{"code":"QuotaDepletedError","message":"-"}}"#;
    let got = classify(&Failure { body: Some(code), ..Failure::default() });
    assert_eq!((got.class, got.retryable), (Class::Exhausted, false), "{}", got.rule);
    // What a person can read in the sentence goes before what its identifiers might mean.
    check(Class::InvalidRequest, &["The field `stream_timeout` is required"]);
    let status =
        classify(&Failure { status: Some(400), message: Some("see connection_reset"), ..Failure::default() });
    assert_eq!(status.class, Class::InvalidRequest);
}

#[test]
fn what_rust_prints_of_a_value() {
    let text = r#"Server error: Some(Object {"error": Object {"code": Number(401), "message": String("the \"key\" is off"), "param": Null}})"#;
    check(Class::Auth, &[text]);
    let template = r#"Server error: Some(Object {"error": Object {"code": Number(500), "message": String("Value is not callable at row 9, column 4:\n {%- x %}")}})"#;
    check(Class::InvalidRequest, &[template]);
}

#[test]
fn refusals_without_a_status_are_no_passing_trouble() {
    check(
        Class::Auth,
        &[
            "Your seat was deactivated, please write to support",
            "This endpoint is only available to enterprise customers",
            "First verify your phone number, then try again",
            "Blocked by policy of your organization, try again later",
            "Доступ запрещён",
        ],
    );
    check(
        Class::InvalidRequest,
        &[
            "The client is outdated, please update it and try again",
            "Expected a string, got a number",
            "Too many tools: 200 > 128",
            "Model x does not accept images",
            "Модель не найдена",
        ],
    );
    check(
        Class::Exhausted,
        &["You have used all of your requests, please try again later", "Créditos esgotados"],
    );
    // Near misses: the same words of an answer or of the way.
    check(
        Class::Transient,
        &["The response is empty, try again", "Too many connections were reset: ECONNRESET", "read: EOF"],
    );
}

#[test]
fn the_name_of_an_operation_is_no_verdict() {
    let judge = |message| classify(&Failure { message: Some(message), ..Failure::default() }).class;
    assert_eq!(judge("CreateModeration: request failed with status code 429"), Class::Throttled);
    for verdict in [
        "Moderation: refused, with status code 400",
        "Your input was flagged by the moderation endpoint",
        "Request rejected by moderations policy",
    ] {
        assert_eq!(judge(verdict), Class::Content, "{verdict}");
    }
}

#[test]
fn the_frames_of_a_trace_are_no_words() {
    check(
        Class::Throttled,
        &[
            "x.HttpException: HTTP 429 \n\tat x.CallObservable.subscribeActual(CallObservable.java:48)\n\tat x.Billing.of(Billing.java:1)",
        ],
    );
    check(
        Class::Unknown,
        &[
            "Error: Unknown error\n    at AbortSignal.abort (node:internal/abort_controller:447:10)",
            "Error: Unknown error\n    at async Client.quotaExceeded (file:///srv/rate_limit/cli.js:1:2)",
            "Traceback (most recent call last):\n  File \"/srv/overloaded/timeout.py\", line 12, in unauthorized\n",
        ],
    );
    // The word of one frame is a cause.
    check(Class::Transient, &["TypeError: x\n    at Fetch.onAborted (node:internal/deps/undici/undici:1:2)"]);
}
