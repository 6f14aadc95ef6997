//! Finds an HTTP status inside a text, without taking just any number for one.
//!
//! A number counts only beside a cue: a phrase before it ("status code", "HTTP"), brackets around it, the standard
//! reason phrase after it, or its place at the very start of the text or of what stands behind a colon. What a process
//! exits with is no status.

use super::grpc;

/// What may stand right before a status, in lower case.
const BEFORE: &[&str] = &[
    "error code",
    "status code",
    "status_code",
    "statuscode",
    "httpstatuscode",
    "status",
    "http",
    "http error",
    "http/1.1",
    "http/2",
    "api error",
    "unexpected status",
    "last status",
    "response code",
    "error",
    "code",
    "request failed",
    "status of",
    "http_status",
    "errorcode",
    "状态码",
    "错误码",
    "错误代码",
    "响应码",
    "请求失败",
    "エラーコード",
    "ステータスコード",
    "상태 코드",
    "상태코드",
    "fehler",
    "erreur",
    "código",
    "código de estado",
    "ошибка",
    "Ошибка",
    "код ошибки",
    "Код ошибки",
    "код ответа",
    "Код ответа",
];

/// Verbs that may stand right before a status, in lower case. What they give may be an amount of something, too.
const GIVING: &[&str] = &[
    "returned",
    "responded",
    "responded with",
    "answered",
    "answered with",
    "replied",
    "replied with",
    "failed with",
];

/// As [`GIVING`], in a language that puts a counter right behind an amount.
const GIVING_BARE: &[&str] = &["返回"];

/// What a number right behind it is the number of, or an amount of, in lower case.
const NUMBERED: &[&str] = &[
    "port",
    "line",
    "lines",
    "row",
    "column",
    "col",
    "page",
    "step",
    "item",
    "index",
    "limit",
    "limits",
    "used",
    "usage",
    "requested",
    "current",
    "max",
    "maximum",
    "min",
    "minimum",
    "total",
    "count",
    "size",
    "length",
    "tokens",
    "quota",
    "remaining",
    "needed",
    "need",
    "balance",
    "budget",
    "credits",
    "requests",
    "after",
    "about",
    "id",
    "pid",
    "got",
    "expected",
    "value",
    "took",
    "duration",
    "bytes",
    "offset",
    "position",
    "attempt",
    "attempts",
    "rpm",
    "tpm",
    "rpd",
    "tpd",
    // aiohttp gives what it cannot parse in an answer the number 400 of its own.
    "transferencodingerror",
    "contentlengtherror",
    "contentencodingerror",
    "badhttpmessage",
];

/// Words that may stand between "exit" and its code.
const EXIT_WORDS: &[&str] =
    &["with", "code", "status", "error", "a", "an", "the", "non-zero", "nonzero", "of", "value"];

/// Reason phrases that make the number before them a status.
const AFTER: &[&str] = &[
    "bad request",
    "unauthorized",
    "authorization required",
    "payment required",
    "forbidden",
    "not found",
    "method not allowed",
    "request timeout",
    "conflict",
    "payload too large",
    "request entity too large",
    "content too large",
    "unprocessable",
    "too many requests",
    "internal server error",
    "bad gateway",
    "service unavailable",
    "service temporarily unavailable",
    "gateway time-out",
    "gateway timeout",
    "overloaded",
    "resource_exhausted",
    "unavailable",
    "status code",
    "server error",
    "client error",
    "error",
];

/// Returns the first status that `text` states; `None` when it states none.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = memchr_digit(bytes, at) {
        let end = digits_end(bytes, found);
        at = end;
        let after = text.get(end..).unwrap_or_default();
        if end - found != 3 || touches_number(bytes, found, end) && !is_item_of_list(bytes, found, after) {
            continue;
        }
        let number = text.get(found..end).and_then(|digits| digits.parse::<u16>().ok());
        let Some(number) = number.filter(|number| (400..600).contains(number)) else { continue };
        let before = text.get(..found).unwrap_or_default();
        if !is_numbered_or_exit(before) && has_cue(before, after) {
            return Some(number);
        }
    }
    grpc::status_in(text)
}

fn memchr_digit(bytes: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.iter().position(u8::is_ascii_digit).map(|offset| from + offset)
}

fn digits_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())
}

/// "1,500", "5.500", "x500", "500ms" and "a-503" are parts of something else.
fn touches_number(bytes: &[u8], start: usize, end: usize) -> bool {
    let joined_before = start.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(|b| {
        b.is_ascii_alphanumeric() || matches!(b, b'.' | b',' | b'-' | b'_' | b'/' | b'$' | b'#')
    });
    let next = bytes.get(end).copied();
    let joined_after = match next {
        Some(b'.' | b',' | b':') => bytes.get(end + 1).is_some_and(u8::is_ascii_digit),
        Some(b) => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'/' | b'%'),
        None => false,
    };
    joined_before || joined_after
}

/// ",400,Bad Request": a number between commas is one only with the reason phrase that belongs to a status.
fn is_item_of_list(bytes: &[u8], start: usize, after: &str) -> bool {
    start.checked_sub(1).and_then(|at| bytes.get(at)) == Some(&b',')
        && after.strip_prefix(',').is_some_and(|next| starts_with_any(next.trim_start(), AFTER))
}

/// "exited with code 401", "exit status 503", "port 503" and "Used: 429" say what the number is, and it is no status.
fn is_numbered_or_exit(before: &str) -> bool {
    let from = before.char_indices().rev().nth(48).map_or(0, |(at, _)| at);
    let near = before.get(from..).unwrap_or_default().to_ascii_lowercase();
    let mut words = near.rsplit([' ', ':', '=', '\n', '\t', ',', '(', '<']).filter(|word| !word.is_empty());
    let Some(last) = words.next() else { return false };
    NUMBERED.contains(&last)
        || std::iter::once(last).chain(words).find(|word| !EXIT_WORDS.contains(word)).is_some_and(|word| {
            matches!(word, "exit" | "exits" | "exited" | "exiting")
                || ["exitcode", "exit_code", "exit-code"].iter().any(|name| word.ends_with(name))
        })
}

fn has_cue(before: &str, after: &str) -> bool {
    let bare = |c: char| c.is_whitespace() || matches!(c, ':' | '：' | '=' | '"' | '\'' | '*');
    let lead = before.trim_end_matches(bare);
    // Brackets count as a cue of their own only when they close right after the number.
    let closes = after.trim_start().starts_with([')', ']', '）']);
    if lead.ends_with(['(', '[', '（'])
        && (closes || follows(lead.trim_end_matches(['(', '[', '（', ' ']), BEFORE))
    {
        return true;
    }
    // An object or a page right behind is the body of that answer. Of a page only its first bracket is seen here.
    let body = after.trim_start_matches([' ', ':', '-']);
    let holds_body = body.starts_with('{') || body == "<";
    if holds_body
        || follows(lead, BEFORE)
        || follows(lead, GIVING) && !counts_something(after.trim_start())
        || follows(lead, GIVING_BARE) && !after.trim_start().starts_with(char::is_alphabetic)
        || ends_with_request_line(lead) && !counts_something(after.trim_start())
        || starts_with_any(after.trim_start_matches([' ', ':', '-', '|', ',']), AFTER)
    {
        return true;
    }
    (lead.chars().all(|c| !c.is_alphanumeric()) || is_behind_lead(before)) && leads_a_sentence(after)
}

/// "mistral: 401 no such user", "(attempt 1/3): 400 odd thing" and "[api.refused] 403 No seat": what a client
/// says about its call stands in front, the answer behind.
fn is_behind_lead(before: &str) -> bool {
    let lead = before.trim_end();
    let ends_name = |name: &str| name.ends_with(|c: char| c.is_alphabetic() || matches!(c, ')' | ']' | '）'));
    before.ends_with(' ') && (lead.strip_suffix(':').is_some_and(ends_name) || ends_with_tag(lead))
}

/// Whether a word in square brackets is the last thing there: "[api.refused]", not "[7]".
fn ends_with_tag(lead: &str) -> bool {
    lead.strip_suffix(']')
        .and_then(|inner| inner.rsplit_once('['))
        .is_some_and(|(_, tag)| tag.starts_with(|c: char| c.is_alphabetic()) && !tag.contains(' '))
}

/// `POST https://host/v1/messages` and `GET /v1/x ->`: what stands behind the line of a request is how it was answered.
fn ends_with_request_line(lead: &str) -> bool {
    let mut words = lead.trim_end_matches(['-', '>', '→', ' ']).rsplit(' ');
    let (Some(target), Some(method)) = (words.next(), words.next()) else { return false };
    let target = target.trim_matches('"');
    (target.starts_with('/') || target.starts_with("http")) && matches!(method, "POST" | "GET")
}

fn follows(lead: &str, cues: &[&str]) -> bool {
    cues.iter().any(|cue| {
        let start = lead.len().checked_sub(cue.len());
        let tail = start.and_then(|start| lead.get(start..));
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(cue))
            && start
                .and_then(|start| lead.get(..start))
                .and_then(|head| head.chars().next_back())
                .is_none_or(|c| !c.is_ascii_lowercase() || !cue.is_ascii() || begins_word_of_a_name(tail))
    })
}

/// `Status` in `ErrorStatus`.
fn begins_word_of_a_name(tail: Option<&str>) -> bool {
    tail.is_some_and(|tail| tail.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn starts_with_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| {
        text.get(..phrase.len()).is_some_and(|head| head.eq_ignore_ascii_case(phrase))
            && text
                .get(phrase.len()..)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    })
}

/// "429 Too many ...", "503: {..", "500，upstream", "400 messages.2: .." - but not "500 requests per minute".
fn leads_a_sentence(after: &str) -> bool {
    let Some(next) = after.chars().next() else { return true };
    if matches!(next, ':' | '，' | '；' | '：' | '·' | '-' | '|' | '\n') {
        return true;
    }
    let word = after.trim_start();
    match word.chars().next() {
        None => true,
        Some(c) if c.is_ascii_digit() => false,
        Some(c) => !c.is_ascii_lowercase() || !counts_something(word),
    }
}

/// Whether `words`, right behind a number, say what it is a number of.
fn counts_something(words: &str) -> bool {
    let mut split = words.split_whitespace().map(|word| word.trim_end_matches([',', '.', ';', ')']));
    let (Some(first), second) = (split.next(), split.next()) else { return false };
    // "messages.2.content" and "messages:" are places in the request.
    if !first.bytes().all(|b| b.is_ascii_lowercase()) {
        return false;
    }
    let is_plural = |word: &str| {
        word.len() > 3 && word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end))
    };
    let things =
        ["tokens", "requests", "messages", "characters", "bytes", "seconds", "minutes", "hours", "days"];
    is_plural(first) || MEASURES.contains(&first) || second.is_some_and(|word| things.contains(&word))
}

/// Words behind a number that count or compare.
const MEASURES: &[&str] = &[
    "of", "and", "or", "to", "out", "more", "less", "in", "per", "x", "ms", "s", "sec", "min", "h", "kb",
    "mb", "gb", "kib", "mib", "gib", "percent", "token", "request", "byte", "second", "minute", "hour",
    "day", "new", "total",
];

/// Returns the status whose standard reason phrase is all that folded `text` says, perhaps behind the name of an
/// exception. Some clients keep nothing else of an answer.
pub(crate) fn status_of_phrase(text: &str) -> Option<u16> {
    let said = text.rsplit("error: ").next().unwrap_or(text).trim().trim_end_matches('.');
    REASON_PHRASES.iter().find(|(phrase, _)| *phrase == said).map(|&(_, status)| status)
}

/// Returns the status that a code names, however it is spelled: `forbidden`, `TOO_MANY_REQUESTS`, `DeadlineExceeded`.
pub(crate) fn status_of_name(code: &str) -> Option<u16> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let code = plain(code);
    let names = REASON_PHRASES.iter().chain([&("access denied", 403), &("invalid request", 400)]);
    let reason = names.into_iter().find(|(phrase, _)| plain(phrase) == code);
    // Clients call an answer that was stopped "aborted", too.
    let of_grpc = || grpc::http_status(&code, None).filter(|_| code != "aborted");
    reason.map(|&(_, status)| status).or_else(of_grpc)
}

const REASON_PHRASES: &[(&str, u16)] = &[
    ("bad request", 400),
    ("unauthorized", 401),
    ("payment required", 402),
    ("forbidden", 403),
    ("not found", 404),
    ("method not allowed", 405),
    ("request timeout", 408),
    ("conflict", 409),
    ("payload too large", 413),
    ("content too large", 413),
    ("unsupported media type", 415),
    ("unprocessable entity", 422),
    ("unprocessable content", 422),
    ("too many requests", 429),
    ("internal server error", 500),
    ("bad gateway", 502),
    ("service unavailable", 503),
    ("gateway timeout", 504),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u16>) {
        assert_eq!(status_in(text), expected, "{text}");
    }

    #[test]
    fn reads_a_status_beside_a_cue() {
        check("Error code: 503 - gone", Some(503));
        check("anthropic request failed (503): x", Some(503));
        check("API Error: 529 Busy", Some(529));
        check("API Error (429 {", Some(429));
        check("503: gone", Some(503));
        check("503 Service Unavailable", Some(503));
        check("unexpected status 503 Service Unavailable: x", Some(503));
        check("exceeded retry limit, last status: 429 Too Many Requests", Some(429));
        check("\u{273b} 529 Overloaded \u{b7} Retrying", Some(529));
        check("fetching from x: [503 ] The model", Some(503));
        check("HTTP 429: x", Some(429));
        check("Client error '404 Not Found' for url", Some(404));
        check("status_code=502", Some(502));
        check("400 messages.2.content.1: unexpected id", Some(400));
        check("400 messages: roles must alternate", Some(400));
        check("503 maintenance", Some(503));
        check("500 llama runner has ended", Some(500));
        check("429 slow", Some(429));
        check("failed with status code 500", Some(500));
        check("model call failed: 400 upstream said no", Some(400));
        check("call (attempt 2/3): 400 Upstream\n returned it", Some(400));
        check("client (somerouter): 402 pay first", Some(402));
        check("backend mistral: 401 no such person", Some(401));
        check("Error: [some.api_error] 403 No seat in this plan", Some(403));
        check("[somerouter] 400 - odd", Some(400));
        check("Odd answer of the server:,400,Bad Request", Some(400));
        check("the call failed with 404", Some(404));
        check("the call failed with 404 nothing there", Some(404));
        check("the host answered 401", Some(401));
    }

    #[test]
    fn leaves_other_numbers_alone() {
        check("max_tokens must be at most 1500", None);
        check("limit is 500 requests", None);
        check("500 requests per minute allowed", None);
        check("took 503ms", None);
        check("used 429,000 of 500,000 tokens", None);
        check("a key of 404 characters", None);
        check("gpt-500 is new", None);
        check("cost $500", None);
        check("429 tokens used of 500 lines", None);
        check("500 input tokens are left", None);
        check("404 characters, no more", None);
        check("500 of 800 were read", None);
        check("500 ms have passed", None);
        check("a page of 503 maintenance", None);
        check("the process exited with code 429", None);
        check("exit status 503: killed", None);
        check("Command failed with exit code 500", None);
        check("port 503 error", None);
        check("on line 404 error", None);
        check("Limit 500, Used: 429 Requested 90", None);
        check("Limit: 500 Requested: 450", None);
        check("it returned 500 lines", None);
        check("failed with 404 errors", None);
        check("sizes:,400,900", None);
        check("in total: 500 requests", None);
        check("at 12: 500 odd", None);
        check("messages[7] 500 odd", None);
        check("payload broken: <TransferEncodingError: 400, message='x'>", None);
        check("read [this] 500 pages", None);
        check("in [the long list] 500 odd", None);
    }

    #[test]
    fn reads_a_reason_phrase_that_stands_alone() {
        for (text, expected) in [
            ("ai_apicallerror: not found", Some(404)),
            ("bad request", Some(400)),
            ("the file was not found", None),
            ("conflict of roles", None),
        ] {
            assert_eq!(status_of_phrase(text), expected, "{text}");
        }
    }
}
