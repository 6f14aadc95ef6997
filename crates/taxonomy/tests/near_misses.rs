//! Texts that look like something they are not.

use retryscope_taxonomy::{Class, Failure, Judgement, Reason, classify};

fn judge(provider: &str, status: Option<u16>, message: &str) -> Judgement {
    classify(&Failure { provider: Some(provider), status, message: Some(message), ..Failure::default() })
}

fn check(provider: &str, status: Option<u16>, message: &str, class: Class, reason: Reason) -> Judgement {
    let got = judge(provider, status, message);
    assert_eq!((got.class, got.reason), (class, reason), "{message}: {}", got.rule);
    got
}

#[test]
fn numbers_in_prose_are_no_status() {
    check("x", None, "max_tokens must be at most 1500", Class::InvalidRequest, Reason::MaxTokensParam);
    for text in ["the list has 500 entries", "chapter 429", "answer took 503ms"] {
        check("x", None, text, Class::Unknown, Reason::NoDetail);
    }
}

#[test]
fn a_plan_of_the_client_is_no_wait() {
    for text in
        ["503 Overloaded · Retrying in 4s", "503 busy, will retry in 9s", "503 {\"totalRetryDelay\": 787}"]
    {
        assert_eq!(judge("anthropic", None, text).retry_after_ms, None, "{text}");
    }
    let text = "model x [503] (reset after 27s)";
    assert_eq!(judge("nvidia", None, text).retry_after_ms, None);
}

#[test]
fn words_about_retrying_do_not_steer() {
    let profile = "Retry your request with the ID or ARN of an inference profile";
    assert!(!check("bedrock", Some(400), profile, Class::InvalidRequest, Reason::ModelNotFound).retryable);
    let filter = "The prompt was blocked by the content filter. Please modify your prompt and retry";
    assert!(!check("azure", Some(400), filter, Class::Content, Reason::PromptBlocked).retryable);
    assert!(!check("zhipu", Some(429), "余额不足，请充值后重试", Class::Exhausted, Reason::Credit).retryable);
    let access = "You don't have access to the model. If this was just changed, try again after 5 minutes";
    assert_eq!(check("bedrock", Some(403), access, Class::Auth, Reason::ModelAccess).retry_after_ms, None);
}

#[test]
fn tokens_by_the_minute_are_no_context_overflow() {
    check(
        "bedrock",
        None,
        "Too many tokens, please wait before trying again.",
        Class::Throttled,
        Reason::Tpm,
    );
    check("x", Some(429), "Tokens per minute limit exceeded", Class::Throttled, Reason::Tpm);
    check(
        "x",
        Some(413),
        "Request too large for m: tokens per minute, Limit 1, Requested 2",
        Class::TooLarge,
        Reason::TpmRequest,
    );
}

#[test]
fn the_same_words_mean_what_their_provider_means() {
    let text = "insufficient_quota: You exceeded your current quota";
    check("openai", Some(429), text, Class::Exhausted, Reason::Quota);
    check("alibaba", Some(429), text, Class::Throttled, Reason::Tpm);
    let through_gateway = format!("Error from provider (Alibaba): {text}");
    check("opencode", Some(429), &through_gateway, Class::Throttled, Reason::Tpm);
    check("openai-compatible", Some(429), &through_gateway, Class::Throttled, Reason::Tpm);
    check("openai-compatible", Some(429), text, Class::Exhausted, Reason::Quota);
}

#[test]
fn a_wrapper_does_not_outvote_the_cause() {
    let text =
        r#"All accounts exhausted. Last error: HTTP 503: {"error":{"code":503,"message":"overloaded"}}"#;
    check("x", Some(429), text, Class::Transient, Reason::Overloaded);
    let text =
        "litellm.RateLimitError: OpenAIException - You exceeded your current quota. Received Model Group=a";
    check("litellm", Some(429), text, Class::Exhausted, Reason::Quota);
}

#[test]
fn the_words_of_a_cut_stream_are_no_abort() {
    check(
        "x",
        None,
        "TypeError: terminated at Fetch.onAborted (node:internal)",
        Class::Transient,
        Reason::StreamCut,
    );
    check("x", None, "AbortError: This operation was aborted", Class::Cancelled, Reason::Abort);
}

#[test]
fn a_guess_from_words_does_not_outvote_the_status() {
    let text = "this field cannot be read";
    assert_eq!(judge("x", None, text).class, Class::InvalidRequest);
    assert_eq!(judge("x", Some(502), text).class, Class::Transient);
    assert_eq!(judge("x", Some(403), text).class, Class::Auth);
}

#[test]
fn a_refusal_behind_the_status_of_a_server_stays_one() {
    for (status, text, class) in [
        (503, "The account was suspended", Class::Auth),
        (500, "This version of the client is no longer supported. Please upgrade.", Class::InvalidRequest),
        (502, "You ran out of units", Class::Exhausted),
        (500, "The conversation has grown too large", Class::TooLarge),
        (429, "The seat is in arrears", Class::Exhausted),
    ] {
        assert_eq!(judge("x", Some(status), text).class, class, "{text}");
        // A service that says that it will pass is believed.
        let passing = format!("{text}. This is temporary, try again");
        assert!(judge("x", Some(status), &passing).retryable, "{passing}");
    }
    // A code that no table knows is read as the words that it is made of.
    let code =
        Failure { status: Some(503), body: Some(r#"{"code":"seat_in_arrears"}"#), ..Failure::default() };
    assert_eq!(classify(&code).class, Class::Exhausted);
    // The way to a server, and what has a status of its own, is not guessed at.
    assert!(judge("x", Some(504), "The account was suspended").retryable);
    assert!(
        judge("x", Some(502), "<html><body>Your organization has blocked by policy</body></html>").retryable
    );
    assert!(judge("x", Some(500), "upstream sent too big header").retryable);
    assert!(judge("x", Some(429), "The conversation has grown too large").retryable);
}

#[test]
fn a_server_that_breaks_blames_no_request() {
    for text in [
        "Failed to parse upstream response",
        "runtime error: invalid memory address",
        "panic: index out of range",
        "Authentication service failed",
    ] {
        assert!(judge("x", None, text).retryable, "{text}");
    }
    assert!(!judge("x", None, "Failed to parse the request").retryable);
    assert!(!judge("x", None, "temperature is out of range").retryable);
}

#[test]
fn what_took_too_long_was_not_too_long() {
    assert_ne!(judge("x", None, "The prompt took too long").class, Class::TooLarge);
    check("x", None, "The prompt is too long", Class::TooLarge, Reason::ContextLength);
}

#[test]
fn links_are_no_words() {
    let text =
        "Odd thing, see https://example.com/docs/rate-limits/insufficient-balance and /overloaded.html";
    check(
        "x",
        Some(400),
        "Odd, see https://example.com/rate-limits",
        Class::InvalidRequest,
        Reason::BadRequest,
    );
    assert_ne!(judge("x", Some(400), text).class, Class::Throttled);
}

#[test]
fn should_retry_wins_over_the_status_but_not_over_an_empty_account() {
    let judge = |status, message, value| {
        let headers = [("X-Should-Retry", value)];
        classify(&Failure {
            status: Some(status),
            headers: &headers,
            message: Some(message),
            ..Failure::default()
        })
    };
    assert!(!judge(500, "Internal server error", "false").retryable);
    assert!(judge(400, "something odd", "true").retryable);
    assert!(!judge(429, "insufficient_quota", "true").retryable);
    assert!(!judge(401, "Invalid API key", "true").retryable);
    assert_eq!(judge(500, "x", "maybe").should_retry, None);
}

#[test]
fn the_advice_is_that_of_the_verdict_and_not_of_the_class_alone() {
    let headers: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-should-retry", "false")],
        &[("x-should-retry", "true")],
        &[("retry-after", "345600")],
        &[("retry-after", "5")],
    ];
    for status in 400..=599 {
        for headers in headers {
            let got = classify(&Failure { status: Some(status), headers, ..Failure::default() });
            let says_no = ["do not retry", "nothing to retry"].iter().any(|no| got.advice().starts_with(no));
            assert_eq!(says_no, !got.retryable, "{status} {headers:?}: {}", got.advice());
        }
    }
}

#[test]
fn statuses_that_no_table_knows() {
    let judge = |status| classify(&Failure { status: Some(status), ..Failure::default() });
    assert_eq!((judge(418).reason, judge(418).retryable), (Reason::Unrecognized4xx, false));
    assert_eq!((judge(567).reason, judge(567).retryable), (Reason::NoDetail, true));
}

#[test]
fn what_timed_out_beside_a_refused_login_is_the_login() {
    let session = "Your session has timed out. Please sign in again.";
    check("x", Some(401), session, Class::Auth, Reason::ExpiredToken);
    check("x", Some(403), "You were logged out: the login timed out", Class::Auth, Reason::ExpiredToken);
    check("x", None, "Login server timed out", Class::Transient, Reason::Timeout);
    check("x", Some(504), "The streaming session timed out", Class::Transient, Reason::Timeout);
}

#[test]
fn a_certificate_is_a_setup_fault_only_where_it_is_judged() {
    let proxy =
        "Unable to connect: SSL certificate verification failed. Check your proxy or SSL certificates";
    check("x", None, proxy, Class::InvalidRequest, Reason::TlsVerify);
    check(
        "x",
        None,
        "Unable to connect. Check your proxy or SSL certificates",
        Class::Transient,
        Reason::Connect,
    );
    check("x", Some(526), "526: Invalid SSL certificate", Class::Transient, Reason::BadGateway);
}

#[test]
fn the_offer_to_buy_credits_does_not_name_the_limit() {
    let window = "You've hit your usage limit, purchase more credits or try again at Mar 17th, 2030 5:46 PM.";
    for provider in ["openai", "codex", "none"] {
        let got = check(provider, None, window, Class::Exhausted, Reason::UsageLimit);
        assert_eq!((got.reset_at, got.reset_clock), (None, "2030-03-17T17:46:00".parse().ok()), "{provider}");
    }
    check(
        "openai",
        None,
        "You have no credits left, purchase more credits",
        Class::Exhausted,
        Reason::Credit,
    );
}

#[test]
fn a_code_beside_a_text_settles_what_the_text_leaves_open() {
    let judge = |code, message, status| {
        let failure = Failure { code: Some(code), message: Some(message), status, ..Failure::default() };
        let got = classify(&failure);
        (got.class, got.reason)
    };
    let connection = "Connection error.";
    assert_eq!(judge("StreamTruncated", connection, None), (Class::Transient, Reason::StreamCut));
    assert_eq!(judge("ECONNREFUSED", connection, None), (Class::Transient, Reason::Refused));
    let coarse = "invalid_request_error";
    assert_eq!(judge(coarse, "prompt is too long", Some(400)), (Class::TooLarge, Reason::ContextLength));
    assert_eq!(judge("server_error", "x", Some(503)), (Class::Transient, Reason::Unavailable));
    assert_eq!(judge("server_error", "x", None), (Class::Transient, Reason::ServerError));
}

#[test]
fn slowing_down_is_a_limit_unless_the_server_is_the_one_that_cannot() {
    check("openai", Some(503), "Slow Down", Class::Transient, Reason::Overloaded);
    check("openai", Some(429), "Slow Down", Class::Throttled, Reason::RateLimit);
}

#[test]
fn a_number_behind_the_marker_of_an_api_error_is_a_status() {
    let text = "API Error: 400 due to tool use concurrency issues.";
    assert!(!check("anthropic", None, text, Class::InvalidRequest, Reason::BadRequest).retryable);
    check("x", None, "last error: 4000 things went odd", Class::Unknown, Reason::NoDetail);
}

#[test]
fn a_short_wait_beside_a_used_up_quota_is_not_its_reset() {
    let now = "2026-11-30T10:00:00Z".parse().ok();
    let reset = |message, wait: &str| {
        let headers = [("retry-after", wait)];
        let failure = Failure {
            status: Some(429),
            headers: &headers,
            message: Some(message),
            now,
            ..Failure::default()
        };
        let got = classify(&failure);
        assert_eq!(got.retry_after_ms, wait.parse::<u64>().ok().map(|s| s * 1000), "{message}");
        got.reset_at
            .map(|at| at.timestamp() - now.map_or(0, |now: chrono::DateTime<chrono::Utc>| now.timestamp()))
    };
    let daily = "The quota per day is used up";
    assert_eq!(reset(daily, "20"), None);
    assert_eq!(reset(daily, "40000"), Some(40_000));
    assert_eq!(reset("You've hit your usage limit", "600"), Some(600));
    assert_eq!(reset("Too many requests", "20"), Some(20));
    assert_eq!(reset("The quota is used up, it resets in 00:00:20", "20"), Some(20));
}

#[test]
fn a_wait_of_a_day_is_no_quota_of_the_day() {
    check("x", Some(429), "Rate limit hit, try again in 24 hours", Class::Throttled, Reason::RateLimit);
    check("x", Some(429), "9 messages per 24 hours are free", Class::Exhausted, Reason::DailyQuota);
}

#[test]
fn a_longer_code_is_another_one() {
    let inner = |code: &str| format!("(500): <500> {code}: odd thing");
    check("alibaba", None, &inner("InternalError.Algo"), Class::Transient, Reason::ServerError);
    check(
        "alibaba",
        None,
        "<400> InternalError.Algo.InvalidParameter: odd thing",
        Class::InvalidRequest,
        Reason::BadRequest,
    );
}

#[test]
fn one_type_for_two_refusals_is_told_by_its_words() {
    let with = |text: &str| format!(r#"{{"error":{{"type":"access_terminated_error","message":"{text}"}}}}"#);
    check("kimi", Some(403), &with("Not for this program"), Class::Auth, Reason::Permission);
    check(
        "kimi",
        Some(403),
        &with("The weekly usage limit is reached"),
        Class::Exhausted,
        Reason::UsageLimit,
    );
}

#[test]
fn short_words_inside_longer_ones_do_not_count() {
    for text in ["Streaming is recommended for long answers", "the streaming tool was executed twice"] {
        assert_ne!(judge("x", None, text).class, Class::Transient, "{text}");
    }
    check("x", None, "the stream ended", Class::Transient, Reason::StreamCut);
    check("x", None, "the context window was read successfully", Class::Unknown, Reason::NoDetail);
}

#[test]
fn a_service_that_is_closed_to_a_place_is_no_service_that_is_down() {
    check("x", None, "The service is currently unavailable in your region", Class::Auth, Reason::Region);
    check("x", None, "The service is currently unavailable", Class::Transient, Reason::Unavailable);
    let model = "The model service is unavailable, please activate the model in the console";
    check("x", None, model, Class::Auth, Reason::ModelAccess);
}

#[test]
fn a_place_in_the_request_is_no_news_of_the_load() {
    let text = "messages.3.content.1.id: found `x`";
    check("anthropic", None, text, Class::InvalidRequest, Reason::BadRequest);
    assert_eq!(judge("anthropic", Some(503), text).class, Class::Transient);
    check("x", None, "messages: server is overloaded", Class::Transient, Reason::Overloaded);
}
