//! Codex' own error texts: what status, request id and wait stand in them.
//!
//! The texts are the same in all its logs. Not for: classes; those follow from status, code and text in the analysis.

use std::borrow::Cow;

use retryscope_events::{ModelFailed, ModelRetry};

use super::fields::whole_ms;
use crate::json::{Object, text};

/// What an error text says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) status: Option<u16>,
    pub(super) code: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) message: String,
}

impl Told {
    /// Reads an error text.
    pub(super) fn of(message: &str) -> Self {
        let status = ["unexpected status ", "exceeded retry limit, last status: "]
            .iter()
            .find_map(|beginning| message.strip_prefix(beginning))
            .and_then(status_at)
            // The program replaces the text of an internal error; no other status reads like this.
            .or_else(|| is_high_demand(message).then_some(500));
        let body = message.starts_with('{').then(|| Object::parse(message.as_bytes())).flatten();
        let error = body.as_ref().and_then(|body| body.object("error"));
        // A bare body is what the program makes of a request the provider calls invalid.
        let status = status.or_else(|| error.is_some().then_some(400));
        let code = error.and_then(|error| error.string("code").or_else(|| error.string("type")));
        Self { status, code, request_id: request_id_in(message), message: message.to_owned() }
    }

    /// Adds the program's own word for the error, as rollouts and the history database hold it.
    pub(super) fn with_info(mut self, info: Option<&str>) -> Self {
        let Some(info) = info else { return self };
        if let Some(word) = text(info) {
            self.code = self.code.or_else(|| Some(snake(&word)));
        } else if let Some(object) = Object::parse(info.as_bytes()) {
            let Some((word, inner)) = object.members().next() else { return self };
            self.code = self.code.or_else(|| Some(snake(word)));
            let inner = Object::parse(inner.as_bytes()).unwrap_or_default();
            self.status = self
                .status
                .or_else(|| inner.status("http_status_code"))
                .or_else(|| inner.status("httpStatusCode"));
        }
        self
    }

    /// Returns whether this is an answer without a stream: a status, or no connection.
    pub(super) fn is_before_stream(&self) -> bool {
        self.status.is_some() && !is_high_demand(&self.message)
            || self.message.starts_with("Connection failed")
    }

    /// Returns whether this is what became of a request, as far as the text tells.
    pub(super) fn is_of_request(&self) -> bool {
        self.status.is_some()
            || self.request_id.is_some()
            || self.is_before_stream()
            || self.message.starts_with("stream disconnected")
    }

    /// Returns whether it came over a WebSocket, as far as the text tells.
    pub(super) fn is_over_socket(&self) -> bool {
        ["url: ws", "websocket", "WebSocket"].iter().any(|word| self.message.contains(word))
    }

    /// Returns whether the request loop repeats such a failure by itself, unseen.
    pub(super) fn may_hide_requests(&self) -> bool {
        let unseen =
            self.status.is_some_and(|status| status >= 500) || self.message.starts_with("Connection failed");
        unseen || self.message.contains("timed out") || self.message.contains("error sending request")
    }

    /// Returns whether the server may have stated how long to wait, which may be no time at all.
    pub(super) fn may_state_wait(&self) -> bool {
        self.status == Some(429) || wait_in(&self.message).is_some()
    }

    pub(super) fn fill_retry(&self, retry: &mut ModelRetry) {
        retry.status = self.status;
        retry.code.clone_from(&self.code);
        retry.upstream_request_id.clone_from(&self.request_id);
        retry.retry_after_ms = wait_in(&self.message);
        retry.message = Some(self.message.clone()).filter(|m| !m.is_empty());
    }

    pub(super) fn fill_failed(&self, failed: &mut ModelFailed) {
        failed.status = self.status;
        failed.code.clone_from(&self.code);
        failed.upstream_request_id.clone_from(&self.request_id);
        failed.retry_after_ms = wait_in(&self.message);
        failed.message = Some(self.message.clone()).filter(|m| !m.is_empty());
    }
}

/// The program's words for errors that are told beside a turn and do not end it.
const BESIDE_A_TURN: &[&str] = &["active_turn_not_steerable", "thread_rollback_failed"];

/// Returns whether an error that the program told while a turn ran is one that ends a turn, by its own word for it.
pub(super) fn may_end_turn(info: Option<&str>) -> bool {
    let word = info.and_then(|info| {
        let named = || Some(Object::parse(info.as_bytes())?.members().next()?.0.to_owned());
        text(info).map(Cow::into_owned).or_else(named)
    });
    !word.is_some_and(|word| BESIDE_A_TURN.contains(&snake(&word).as_str()))
}

/// `Reconnecting... n/max (cause)`, with or without the cause; or a wait for the network, which has no number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reconnecting<'a> {
    pub(super) number: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) cause: Option<&'a str>,
}

impl<'a> Reconnecting<'a> {
    pub(super) fn of(message: &'a str) -> Option<Self> {
        let rest = message.strip_prefix("Reconnecting...")?.trim_start();
        let (counter, cause) = match rest.split_once('(') {
            Some((counter, cause)) => (counter.trim(), Some(cause.strip_suffix(')').unwrap_or(cause))),
            None => (rest.trim(), None),
        };
        let numbers = counter.split_once('/');
        let part =
            |pick: fn((&'a str, &'a str)) -> &'a str| numbers.map(pick).and_then(|n| n.trim().parse().ok());
        Some(Self { number: part(|n| n.0), max: part(|n| n.1), cause })
    }
}

fn status_at(rest: &str) -> Option<u16> {
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|n| (100..600).contains(n))
}

fn is_high_demand(message: &str) -> bool {
    // With a typographic or a plain apostrophe.
    message.contains("re currently experiencing high demand")
}

fn request_id_in(message: &str) -> Option<String> {
    let (_, rest) = message.rsplit_once("request id: ")?;
    let id: String =
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect();
    Some(id).filter(|id| !id.is_empty())
}

/// `Please try again in 1.2s`: the wait that the program takes from the text.
fn wait_in(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("try again in ")?;
    let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let value: f64 = number.trim_end_matches('.').parse().ok()?;
    let unit = rest.get(number.trim_end_matches('.').len()..)?.trim_start();
    let ms = if unit.starts_with("ms") {
        value
    } else if unit.starts_with('s') {
        value * 1e3
    } else {
        return None;
    };
    Some(whole_ms(ms))
}

/// `httpConnectionFailed` and `http_connection_failed` are one word.
fn snake(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 4);
    for c in word.chars() {
        if c.is_ascii_uppercase() {
            if !out.is_empty() {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_id_come_from_the_text() {
        let told =
            Told::of("unexpected status 502 Bad Gateway: upstream, url: http://h/v1, request id: ab-1_c");
        assert_eq!((told.status, told.request_id.as_deref()), (Some(502), Some("ab-1_c")));
        let told = Told::of("exceeded retry limit, last status: 429 Too Many Requests");
        assert_eq!((told.status, told.request_id), (Some(429), None));
        assert_eq!(Told::of("a sentence with 503 in it").status, None);
    }

    #[test]
    fn the_programs_word_may_be_nested() {
        let told = Told::of("x").with_info(Some(r#"{"httpConnectionFailed":{"httpStatusCode":503}}"#));
        assert_eq!((told.status, told.code.as_deref()), (Some(503), Some("http_connection_failed")));
        assert_eq!(Told::of("x").with_info(Some(r#""other""#)).code.as_deref(), Some("other"));
        assert_eq!(Told::of("x").with_info(Some("7")).code, None);
    }

    #[test]
    fn some_errors_leave_the_turn_alone() {
        for beside in [r#""threadRollbackFailed""#, r#"{"active_turn_not_steerable":{"turn_kind":"review"}}"#]
        {
            assert!(!may_end_turn(Some(beside)), "{beside}");
        }
        for fatal in [None, Some(r#""other""#), Some(r#"{"http_connection_failed":{}}"#), Some("7")] {
            assert!(may_end_turn(fatal), "{fatal:?}");
        }
    }

    #[test]
    fn reconnects_have_a_number_or_wait_for_the_network() {
        let r = Reconnecting::of("Reconnecting... 2/5 (cut (early))").unwrap();
        assert_eq!((r.number, r.max, r.cause), (Some(2), Some(5), Some("cut (early)")));
        assert_eq!(Reconnecting::of("Reconnecting... 1/2").unwrap().cause, None);
        assert_eq!(Reconnecting::of("Reconnecting... waiting for network (no route)").unwrap().number, None);
        assert!(Reconnecting::of("reconnect").is_none());
    }

    #[test]
    fn a_wait_needs_its_unit() {
        assert_eq!(wait_in("Please try again in 1.5s."), Some(1500));
        assert_eq!(wait_in("try again in 20ms"), Some(20));
        assert_eq!(wait_in("or try again in 3"), None);
        assert_eq!(wait_in("try again in …"), None);
    }
}
