//! What the HTTP status says against what the words say, and which words are only names.

use retryscope_taxonomy::{Class, Failure, Judgement, Reason, classify};

fn judge(provider: Option<&str>, status: Option<u16>, body: &str) -> Judgement {
    classify(&Failure { provider, status, body: Some(body), ..Failure::default() })
}

fn check(status: Option<u16>, body: &str, class: Class, reason: Reason) {
    let got = judge(None, status, body);
    assert_eq!((got.class, got.reason), (class, reason), "{status:?} {body}: {}", got.rule);
}

fn openai_body(message: &str, code: Option<&str>) -> String {
    serde_json::json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}})
        .to_string()
}

const LOADED: [&str; 8] = [
    "timeout",
    "overloaded",
    "rate_limit",
    "terminated",
    "socket hang up",
    "ECONNRESET",
    "cancelled",
    "service_unavailable",
];

#[test]
fn words_of_the_request_do_not_outvote_a_status_that_blames_it() {
    for word in LOADED {
        for message in [
            format!("Unrecognized request argument supplied: {word}"),
            format!("Duplicate tool name: get_{word}"),
            format!("Expected a string, got \"{word}\""),
        ] {
            for provider in [None, Some("openai"), Some("anthropic"), Some("mistral"), Some("openrouter")] {
                for status in [400, 404, 422] {
                    let got = judge(provider, Some(status), &openai_body(&message, Some("invalid_value")));
                    assert_eq!(
                        got.class,
                        Class::InvalidRequest,
                        "{provider:?} {status} {message}: {}",
                        got.rule
                    );
                    assert!(!got.retryable, "{message}");
                }
            }
        }
    }
}

#[test]
fn a_code_in_its_field_still_says_what_it_was() {
    check(
        Some(400),
        r#"{"__type":"ThrottlingException","message":"x"}"#,
        Class::Throttled,
        Reason::RateLimit,
    );
    check(
        Some(400),
        r#"{"error":{"type":"overloaded_error","message":"x"}}"#,
        Class::Transient,
        Reason::Overloaded,
    );
    let got = judge(Some("groq"), Some(400), &openai_body("No call came of it.", Some("tool_use_failed")));
    assert_eq!(got.rule, "groq/tool-use-failed");
    check(Some(400), r#"{"error":{"message":"The quota is exceeded"}}"#, Class::Exhausted, Reason::Quota);
    check(Some(400), r#"{"error":{"message":"Incorrect API key"}}"#, Class::Auth, Reason::InvalidKey);
}

#[test]
fn quoted_names_say_nothing_whatever_the_status() {
    for status in [None, Some(400), Some(422)] {
        for word in ["unauthorized", "content_filter", "timeout", "insufficient_quota", "cancelled"] {
            let quotes = [format!("'{word}'"), format!("\"{word}\""), format!("`{word}`")];
            for name in quotes {
                let message = format!("Invalid schema for function {name}: {name} is not of type 'string'");
                check(status, &openai_body(&message, None), Class::InvalidRequest, Reason::BadRequest);
            }
        }
    }
    check(None, "error: \"overloaded\"", Class::Transient, Reason::Overloaded);
    check(None, "it failed with 'unauthorized'", Class::Auth, Reason::InvalidKey);
    check(None, "code: 'insufficient_quota'", Class::Exhausted, Reason::Quota);
}

#[test]
fn where_in_a_request_a_field_stands_is_no_cause() {
    for place in ["timeout", "unauthorized", "content_filter", "rate limit"] {
        let detail = serde_json::json!({"loc": ["body", "tools", 0, place], "msg": "field required"});
        let body = serde_json::json!({ "detail": [detail] }).to_string();
        check(Some(422), &body, Class::InvalidRequest, Reason::BadRequest);
    }
}

#[test]
fn a_status_echoed_in_words_is_not_the_answers() {
    let echo = "field x holds '503 Service Unavailable'";
    check(Some(400), &openai_body(echo, None), Class::InvalidRequest, Reason::BadRequest);
    check(
        Some(500),
        r#"{"error":{"message":"bad response status code 502"}}"#,
        Class::Transient,
        Reason::BadGateway,
    );
}

#[test]
fn a_coarse_type_does_not_outvote_the_status() {
    let body = openai_body("Odd.", None);
    for provider in
        [None, Some("openai"), Some("groq"), Some("mistral"), Some("dashscope"), Some("anthropic")]
    {
        for (status, class, retryable) in [
            (400, Class::InvalidRequest, false),
            (401, Class::Auth, false),
            (402, Class::Exhausted, false),
            (403, Class::Auth, false),
            (404, Class::InvalidRequest, false),
            (413, Class::TooLarge, true),
            (422, Class::InvalidRequest, false),
            (429, Class::Throttled, true),
            (503, Class::Transient, true),
        ] {
            let got = judge(provider, Some(status), &body);
            assert_eq!((got.class, got.retryable), (class, retryable), "{provider:?} {status}: {}", got.rule);
        }
    }
}

#[test]
fn a_gateways_server_error_does_not_outvote_a_refusal() {
    let body = r#"{"error":{"type":"server_error","message":"Odd."}}"#;
    for provider in [None, Some("openai"), Some("litellm")] {
        for (status, class) in [
            (401, Class::Auth),
            (402, Class::Exhausted),
            (403, Class::Auth),
            (413, Class::TooLarge),
            (429, Class::Throttled),
            // Near misses: what does not refuse leaves the word to the type.
            (400, Class::Transient),
            (500, Class::Transient),
        ] {
            let got = judge(provider, Some(status), body);
            assert_eq!(got.class, class, "{provider:?} {status}: {}", got.rule);
        }
    }
}

#[test]
fn the_status_in_front_of_a_text() {
    let message = |text| {
        let got = classify(&Failure { message: Some(text), ..Failure::default() });
        (got.class, got.retryable)
    };
    assert_eq!(message("400 messages.2.content.1: unexpected id"), (Class::InvalidRequest, false));
    assert_eq!(
        message("401 <html><head><title>401 Authorization Required</title></head></html>").0,
        Class::Auth
    );
    assert_eq!(message("502 <html><body>nothing</body></html>"), (Class::Transient, true));
    assert_eq!(message("503 maintenance"), (Class::Transient, true));
    assert_eq!(message("429 tokens used of 500 lines").0, Class::Unknown);
    assert_eq!(message("AI_APICallError: Not Found"), (Class::InvalidRequest, false));
    assert_eq!(message("AI_APICallError: Bad Request"), (Class::InvalidRequest, false));
    assert_eq!(message("AI_APICallError: Service Unavailable"), (Class::Transient, true));
}

#[test]
fn a_status_in_the_words_of_many_clients() {
    for text in [
        "ErrorStatus(403, \"frobnicate\")",
        "lastErrorCode=403",
        "httpStatus=403",
        "the server responded with a status of 403",
        "POST https://host/v1/messages 403",
        "GET /v1/models -> 403",
        "API 返回 403: frobnicate",
        "状态码：403",
        "エラーコード 403",
        "Ошибка 403: frobnicate",
        "Fehler 403: frobnicate",
        "API 返回 403: <html><body>x</body></html>",
        "status: PermissionDenied, message: \"frobnicate\"",
    ] {
        let got = classify(&Failure { message: Some(text), ..Failure::default() });
        assert_eq!(got.class, Class::Auth, "{text}: {}", got.rule);
    }
    for text in ["exitCode=403", "processExitCode: 403", "返回 500 条记录", "GET /v1/list 500 tokens"] {
        let got = classify(&Failure { message: Some(text), ..Failure::default() });
        assert_eq!(got.class, Class::Unknown, "{text}: {}", got.rule);
    }
}

#[test]
fn statuses_of_grpc() {
    for (text, class) in [
        ("rpc error: code = Internal desc = frobnicate", Class::Transient),
        ("13 INTERNAL: frobnicate", Class::Transient),
        ("[unavailable] frobnicate", Class::Transient),
        ("rpc error: code = NotFound desc = frobnicate", Class::InvalidRequest),
        ("9 FAILED_PRECONDITION: frobnicate", Class::InvalidRequest),
        ("[failed_precondition] frobnicate", Class::InvalidRequest),
    ] {
        let got = classify(&Failure { message: Some(text), ..Failure::default() });
        assert_eq!(got.class, class, "{text}: {}", got.rule);
    }
}

#[test]
fn a_code_that_names_a_status() {
    for (code, class) in [
        ("forbidden", Class::Auth),
        ("UNAUTHENTICATED", Class::Auth),
        ("AccessDenied", Class::Auth),
        ("bad_request", Class::InvalidRequest),
        ("NotFound", Class::InvalidRequest),
        ("INTERNAL", Class::Transient),
        ("service_unavailable", Class::Transient),
        ("TOO_MANY_REQUESTS", Class::Throttled),
    ] {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"x"}}}}"#);
        let got = judge(None, None, &body);
        assert_eq!(got.class, class, "{body}: {}", got.rule);
    }
    // A number knows better than a name.
    check(Some(402), r#"{"error":{"code":"forbidden","message":"x"}}"#, Class::Exhausted, Reason::Credit);
}
