//! One assistant message: an attempt of the session loop, as both programs write it.
//!
//! pi has only a text for an error, whose first three digits are the status; omp has the status, and a set of class bits.
//! The answer itself is model output and never looked at.

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{Candidate, Usage};
use retryscope_record::RawFailure;

use super::Profile;
use crate::json::Object;

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// With an answer; whether a tool call follows.
    Answered {
        goes_on: bool,
    },
    Failed,
    Aborted,
}

/// What matters of an assistant message.
#[derive(Debug)]
pub(super) struct Answer {
    /// Start of the (last) request in ms: with the provider the same in every log.
    pub(super) stamp: u64,
    pub(super) stop: Stop,
    pub(super) reason: String,
    pub(super) api: Option<String>,
    pub(super) candidate: Candidate,
    pub(super) started_at: Option<DateTime<Utc>>,
    pub(super) ended_at: Option<DateTime<Utc>>,
    pub(super) duration_ms: Option<u64>,
    pub(super) status: Option<u16>,
    pub(super) code: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) message: Option<String>,
    pub(super) body: Option<String>,
    pub(super) class: Option<&'static str>,
    pub(super) retry_after_ms: Option<u64>,
    /// Whether the program itself says that it gave up.
    pub(super) is_final: bool,
    pub(super) is_empty: bool,
    pub(super) has_duration_field: bool,
    pub(super) usage: Option<Usage>,
    /// Connections over a WebSocket that failed before, so that the same was sent over another transport.
    pub(super) fallbacks: Vec<Fallback>,
}

/// A connection that failed before its stream began, and what was used instead.
#[derive(Debug, PartialEq)]
pub(super) struct Fallback {
    pub(super) to: String,
    pub(super) at: Option<DateTime<Utc>>,
    pub(super) message: Option<String>,
}

impl Fallback {
    /// Reads one of the program's notes beside a message. Of a stream that had begun nothing is sent again.
    fn of(note: &Object<'_>) -> Option<Self> {
        if !note.is("type", "provider_transport_failure") {
            return None;
        }
        let details = note.object("details")?;
        let to = details.string("fallbackTransport")?;
        let message = note.object("error").and_then(|error| error.string("message"));
        let before = details.is("phase", "before_message_stream_start");
        before.then(|| Self { to, at: note.time("timestamp"), message })
    }
}

impl Answer {
    /// Reads an assistant message; `None` for one that is still streaming or lacks what an attempt needs.
    pub(super) fn parse(message: &Object<'_>) -> Option<Self> {
        let reason = message.string("stopReason")?;
        let stop = match reason.as_str() {
            "pending" => return None,
            "error" => Stop::Failed,
            "aborted" => Stop::Aborted,
            other => Stop::Answered { goes_on: matches!(other, "toolUse" | "deferred") },
        };
        let stamp = message.u64("timestamp")?;
        let started_at = message.time("timestamp");
        let duration_ms = message.u64("durationMs").or_else(|| message.u64("duration"));
        let after = |ms: u64| {
            started_at
                .and_then(|at| at.checked_add_signed(TimeDelta::try_milliseconds(i64::try_from(ms).ok()?)?))
        };
        let ended_at = message.time("completedAt").or_else(|| after(duration_ms?));
        let text = message.string("errorMessage");
        let (text, is_final) = match text {
            Some(text) => {
                let (text, is_final) = without_budget(&text);
                (Some(without_paths(text)), is_final)
            }
            None => (None, false),
        };
        let error = text.as_deref().map(without_refused_wait);
        let notes = message.objects("diagnostics").unwrap_or_default();
        let answered = notes
            .iter()
            .rev()
            .filter_map(|note| note.object("details"))
            .find(|details| details.status("status").is_some());
        let status = message
            .status("errorStatus")
            .or_else(|| status_in(error?))
            .or_else(|| answered.as_ref()?.status("status"));
        let body = error.and_then(body_in).map(str::to_owned);
        Some(Self {
            stamp,
            stop,
            reason,
            api: message.string("api").filter(|api| !api.is_empty()),
            candidate: Candidate {
                provider: message.string("provider"),
                model: message.string("model"),
                ..Candidate::default()
            },
            started_at,
            ended_at,
            duration_ms,
            status,
            code: answered.as_ref().and_then(|details| details.string("errorCode")),
            request_id: answered.as_ref().and_then(|details| details.string("requestId")),
            retry_after_ms: text.as_deref().and_then(retry_after_in),
            message: text,
            body,
            class: message.u64("errorId").and_then(class_of_bits),
            is_final,
            is_empty: message.length("content") == Some(0),
            has_duration_field: message.raw("durationMs").is_some(),
            usage: message.object("usage").map(|usage| usage_of(&usage)),
            fallbacks: notes.iter().filter_map(Fallback::of).collect(),
        })
    }

    /// Whether the loop of the session may repeat what failed like this. omp judges by the status; the others by words in
    /// the text, of which each version knows some: what holds none of them is repeated by none.
    pub(super) fn may_heal(&self, profile: Profile) -> bool {
        let status = self.status.unwrap_or(0);
        let by_status = !(400..500).contains(&status) || matches!(status, 408 | 409 | 429);
        by_status && (profile == Profile::Omp || self.message.as_deref().is_some_and(says_that_it_passes))
    }

    /// Returns the error text of a record that has one, and the wait inside it.
    pub(super) fn error_text(record: &Object<'_>) -> (Option<String>, Option<u64>) {
        let Some(text) = record.string("errorMessage") else { return (None, None) };
        let text = without_paths(without_budget(&text).0);
        let wait = retry_after_in(&text);
        (Some(text), wait)
    }

    /// What only serves to classify the failure.
    pub(super) fn raw(&self) -> Option<RawFailure> {
        let body = self.body.clone()?;
        Some(RawFailure { headers: Vec::new(), body: Some(body) })
    }

    /// Whether the program was told to stop before the request could leave: while tools ran, as a rule. pi then writes an
    /// answer that is over as soon as it begins; what is sent takes it longer than that to prepare.
    pub(super) fn never_left(&self, profile: Profile, appended: Option<DateTime<Utc>>) -> bool {
        const AT_ONCE: TimeDelta = TimeDelta::milliseconds(5);
        let took = self.ended_at.or(appended).zip(self.started_at).map(|(end, start)| end - start);
        profile == Profile::Pi
            && self.stop == Stop::Aborted
            && self.is_empty
            && took.is_some_and(|took| took >= TimeDelta::zero() && took < AT_ONCE)
    }

    /// Whether the attempt took too little time for a layer below to have repeated anything. Only pi's loops below wait
    /// before each repeat: omp moves to another stored key at once. What a server answered with a status that they repeat it
    /// may have told them to repeat without a wait, unless the layer says that it would not wait so long.
    pub(super) fn excludes_hidden(&self, profile: Profile, took_ms: Option<u64>) -> bool {
        // Their smallest first wait is 0.5 s, less a quarter where it is spread.
        const SMALLEST_MS: u64 = 375;
        let is_repeated = |status: u16| matches!(status, 408 | 409 | 429) || status >= 500;
        let may_be_at_once = self.stop == Stop::Failed
            && self.status.is_some_and(is_repeated)
            && self.message.as_deref().is_none_or(|text| behind_refusal_to_wait(text).is_none());
        profile == Profile::Pi
            && !may_be_at_once
            && self.duration_ms.or(took_ms).is_some_and(|took| took < SMALLEST_MS)
    }
}

/// Whether a tool's result only stands in for one: the answer broke off within the call, so that nothing ran, and the same
/// answer is asked for again.
pub(super) fn stands_in(result: &Object<'_>) -> bool {
    let details = result.object("details").unwrap_or_default();
    details.bool("__synthetic") == Some(true) && details.is("source", "assistant_stop_error")
}

/// Words of errors that one version of pi or another repeats, without what stands between them.
const PASSING: &[&str] = &[
    "429",
    "500",
    "502",
    "503",
    "504",
    "524",
    "connectionerror",
    "connectionlost",
    "connectionrefused",
    "eaiagain",
    "endedbefore",
    "endedwithout",
    "enotfound",
    "fetchfailed",
    "getaddrinfo",
    "http2request",
    "internalerror",
    "networkerror",
    "othersideclosed",
    "overloaded",
    "providerreturnederror",
    "ratelimit",
    "resetbeforeheaders",
    "resourceexhausted",
    "retrydelay",
    "retryyourrequest",
    "servererror",
    "serviceunavailable",
    "socketconnectionwasclosed",
    "sockethangup",
    "terminated",
    "timedout",
    "timeout",
    "toomanyrequests",
    "tryyourrequestagain",
    "upstreamconnect",
    "websocketclosed",
    "websocketerror",
];

fn says_that_it_passes(text: &str) -> bool {
    let letters = text.chars().filter(char::is_ascii_alphanumeric);
    let letters: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    PASSING.iter().any(|words| letters.contains(words))
}

/// Takes the words away that omp puts before the error that used its retries up.
fn without_budget(text: &str) -> (&str, bool) {
    let Some(rest) = text.strip_prefix("Retry budget exhausted after ") else { return (text, false) };
    (rest.split_once(": ").map_or(text, |(_, error)| error), true)
}

/// Takes the words away that pi puts before the error whose stated wait was too long for it.
fn without_refused_wait(text: &str) -> &str {
    behind_refusal_to_wait(text).unwrap_or(text)
}

/// Leaves out the lines that name a dump of the whole request.
fn without_paths(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("raw-http-request="))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The status that an error text begins with.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let digits = text.get(..3).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let ends = text.as_bytes().get(3).is_none_or(|b| matches!(b, b':' | b' '));
    digits.parse().ok().filter(|status| ends && (100..600).contains(status))
}

/// The body that follows the status, where it is JSON.
fn body_in(text: &str) -> Option<&str> {
    status_in(text)?;
    let rest = text.get(3..)?.trim_start_matches([':', ' ']);
    rest.starts_with('{').then_some(rest)
}

/// Returns the error behind the words with which the layer below the session refuses to wait as long as the server asks.
fn behind_refusal_to_wait(text: &str) -> Option<&str> {
    let (wait, error) = text.strip_prefix("Server requested ")?.split_once("s). ")?;
    wait.contains(" retry delay (max: ").then_some(error)
}

/// omp appends the wait that the server stated.
fn retry_after_in(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("retry-after-ms=")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).take(15).collect();
    digits.parse().ok()
}

/// omp's class bits, where they say more than status and text.
fn class_of_bits(id: u64) -> Option<&'static str> {
    if id & 0x1000 == 0 {
        return None;
    }
    match id {
        id if id & 0x0080_0000 != 0 => Some("too_large"),
        id if id & 0x0100_0000 != 0 => Some("auth"),
        id if id & 0x8000 != 0 => Some("content"),
        _ => None,
    }
}

pub(super) fn usage_of(usage: &Object<'_>) -> Usage {
    Usage {
        input_tokens: usage.u64("input"),
        output_tokens: usage.u64("output"),
        cached_input_tokens: usage.u64("cacheRead"),
        reasoning_tokens: usage.u64("reasoning"),
        cost_usd: usage.object("cost").and_then(|cost| cost.f64("total")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Option<Answer> {
        Answer::parse(&Object::parse(text.as_bytes())?)
    }

    #[test]
    fn the_status_is_read_from_pis_text_and_from_omps_field() {
        let pi = answer(r#"{"stopReason":"error","timestamp":1795985281229,"errorMessage":"529: {\"a\":1}","durationMs":7}"#).unwrap();
        assert_eq!((pi.status, pi.body.as_deref(), pi.stop), (Some(529), Some("{\"a\":1}"), Stop::Failed));
        let omp = answer(
            r#"{"stopReason":"error","timestamp":1795985281229,"errorStatus":429,"errorId":8392704,
               "errorMessage":"Retry budget exhausted after 2 retries: slow down retry-after-ms=600000\nraw-http-request=/x"}"#,
        )
        .unwrap();
        assert_eq!((omp.status, omp.retry_after_ms, omp.is_final), (Some(429), Some(600_000), true));
        assert_eq!(omp.message.as_deref(), Some("slow down retry-after-ms=600000"));
        assert_eq!(omp.class, Some("too_large"));
    }

    #[test]
    fn a_number_that_is_no_status_stays_text() {
        assert_eq!(status_in("5000 tokens"), None);
        assert_eq!(status_in("999 x"), None);
        assert_eq!(status_in("503"), Some(503));
        assert_eq!(status_in("é 503"), None);
    }

    #[test]
    fn only_what_is_shorter_than_the_first_wait_excludes_a_repeat() {
        let ok = |api: &str, duration: u64| {
            let text = format!(
                r#"{{"stopReason":"stop","timestamp":1795985281229,"api":"{api}","duration":{duration}}}"#
            );
            answer(&text).unwrap()
        };
        assert!(ok("openai-completions", 100).excludes_hidden(Profile::Pi, None));
        assert!(!ok("openai-completions", 400).excludes_hidden(Profile::Pi, None));
        // A server may ask for no wait.
        let failed = |text: &str| {
            let line = format!(
                r#"{{"stopReason":"error","timestamp":1795985281229,"api":"openai-completions","duration":100,"errorMessage":"{text}"}}"#
            );
            answer(&line).unwrap()
        };
        assert!(!failed("503 status code (no body)").excludes_hidden(Profile::Pi, None));
        assert!(!failed("429 slow down").excludes_hidden(Profile::Pi, None));
        let refused = "Server requested 600s retry delay (max: 60s). 429 slow down";
        assert!(failed(refused).excludes_hidden(Profile::Pi, None));
        assert!(failed("401 invalid key").excludes_hidden(Profile::Pi, None));
        assert!(failed("Connection error.").excludes_hidden(Profile::Pi, None));
        // Another stored key is asked without any wait.
        for api in ["openai-completions", "openai-responses", "anthropic-messages"] {
            assert!(!ok(api, 1).excludes_hidden(Profile::Omp, None), "{api}");
        }
    }

    #[test]
    fn what_holds_none_of_the_words_is_not_repeated() {
        let failed = |text: &str| {
            let line =
                format!(r#"{{"stopReason":"error","timestamp":1795985281229,"errorMessage":"{text}"}}"#);
            answer(&line).unwrap()
        };
        for text in
            ["Key is not known to this gateway", "index out of bounds", "The usage limit has been reached"]
        {
            assert!(
                !failed(text).may_heal(Profile::Pi) && !failed(text).may_heal(Profile::OpenClaw),
                "{text}"
            );
            assert!(failed(text).may_heal(Profile::Omp), "{text}");
        }
        for text in
            ["503: {}", "Rate-limit reached", "Internal server error", "terminated", "Request timed out"]
        {
            assert!(failed(text).may_heal(Profile::Pi), "{text}");
        }
        assert!(!failed("400: timeout must be a number").may_heal(Profile::Pi));
    }

    #[test]
    fn notes_beside_a_message_tell_its_status_and_what_was_tried_before() {
        let with = |details: &str, kind: &str| {
            answer(&format!(
                r#"{{"stopReason":"error","timestamp":1795985281229,"errorMessage":"Denied","diagnostics":[{{"type":"{kind}","timestamp":1795985281300,"error":{{"message":"no socket"}},"details":{details}}}]}}"#
            ))
            .unwrap()
        };
        let told =
            with(r#"{"status":403,"errorCode":"Denied","requestId":"r-1"}"#, "gateway_response_failure");
        assert_eq!(
            (told.status, told.code.as_deref(), told.request_id.as_deref()),
            (Some(403), Some("Denied"), Some("r-1"))
        );
        let kind = "provider_transport_failure";
        let begun = r#"{"fallbackTransport":"sse","phase":"before_message_stream_start"}"#;
        let told = with(begun, kind);
        assert_eq!(
            (told.fallbacks[0].to.as_str(), told.fallbacks[0].message.as_deref()),
            ("sse", Some("no socket"))
        );
        // Near misses: nothing else was used, or the answer had begun.
        assert!(with(r#"{"phase":"before_message_stream_start"}"#, kind).fallbacks.is_empty());
        assert!(with(&begun.replace("before", "after"), kind).fallbacks.is_empty());
        assert!(with(begun, "other_failure").fallbacks.is_empty());
    }

    #[test]
    fn a_refused_wait_stands_before_the_error() {
        let text = r#"{"stopReason":"error","timestamp":1795985281229,"errorMessage":"Server requested 600s retry delay (max: 60s). 429 {\"a\":1}"}"#;
        let refused = answer(text).unwrap();
        assert_eq!((refused.status, refused.body.as_deref()), (Some(429), Some("{\"a\":1}")));
        // Without a status behind it, the first number is none.
        let none = answer(&text.replace("429 ", "")).unwrap();
        assert_eq!((none.status, none.body), (None, None));
    }
}
