//! Where a text leads up to its cause: `503 Service Unavailable: CAUSE`, `stream error: CAUSE`.
//!
//! A standard reason phrase, and what a client says of its connection, are all there is where nothing follows; before
//! a cause they say only how it came. Not for finding out what the cause is.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

/// Phrases that lead, folded. Of two that begin at one place the longer one is meant.
const LEADS: &[&str] = &[
    "too many requests",
    "rate limit exceeded",
    "rate limit reached",
    "rate limit error",
    "rate limited",
    "rate limit",
    "request rejected (429)",
    "ratelimiterror",
    "service unavailable",
    "service temporarily unavailable",
    "service is temporarily unavailable",
    "temporarily unavailable",
    "serviceunavailableerror",
    "internal server error",
    "internalservererror",
    "internal error",
    "server error",
    "bad gateway",
    "gateway timeout",
    "gateway time-out",
    "request timeout",
    "request timed out",
    "timed out",
    "overloaded",
    "stream error",
    "stream closed",
    "stream interrupted",
    "stream disconnected",
    "stream aborted",
    "stream terminated",
    "mid-stream error",
    "error mid-stream",
    "mid-stream",
    "connection closed",
    "connection lost",
    "connection dropped",
    "connection reset",
    "connection error",
    "connection failed",
    "apiconnectionerror",
    "connect error",
    "network error",
    "transport error",
    "transient api error",
    "upstream error",
    "upstream request failed",
];

/// What may stand between a lead and its cause.
const JOINTS: &[&str] = &[":", " :", " - ", " \u{2013} ", " \u{2014} ", " \u{b7} ", " | "];

/// Returns where leads stand in folded `text`.
pub(super) fn leads(text: &str) -> Vec<Range<usize>> {
    let Some(phrases) = phrases() else { return Vec::new() };
    let is_lead = |range: &Range<usize>| {
        let (before, after) = (text.get(..range.start), text.get(range.end..));
        before.is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric()))
            && after.is_some_and(|after| leads_on(after, before.is_some_and(ends_with_status)))
    };
    phrases.find_iter(text).map(|hit| hit.range()).filter(is_lead).collect()
}

fn phrases() -> Option<&'static AhoCorasick> {
    static PHRASES: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    PHRASES
        .get_or_init(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(LEADS).ok())
        .as_ref()
}

/// Whether words follow that a joint binds to the lead. Behind a number and its reason phrase none is needed.
fn leads_on(after: &str, has_status: bool) -> bool {
    // A number may stand on either side of its phrase.
    let bare = after.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ' ' | '(' | ')'));
    let joined =
        JOINTS.iter().find_map(|joint| after.strip_prefix(joint).or_else(|| bare.strip_prefix(joint.trim())));
    let words = joined.or_else(|| has_status.then_some(after).filter(|after| after.starts_with(' ')));
    words.is_some_and(|words| words.contains(char::is_alphabetic))
}

/// "... 429 ".
fn ends_with_status(before: &str) -> bool {
    let mut bytes = before.bytes().rev();
    bytes.next() == Some(b' ')
        && bytes.by_ref().take(3).filter(u8::is_ascii_digit).count() == 3
        && !bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = leads(text).into_iter().filter_map(|lead| text.get(lead)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn finds_what_leads_to_a_cause() {
        check("429 too many requests: the week is over", &["too many requests"]);
        check(
            "rate limit exceeded: 429 too many requests: over",
            &["rate limit exceeded", "too many requests"],
        );
        check("bad gateway 502: gone", &["bad gateway"]);
        check("unexpected status 503 service unavailable for you", &["service unavailable"]);
        check("mid-stream error: gone", &["mid-stream error"]);
        check("server error - gone", &["server error"]);
    }

    #[test]
    fn leaves_what_is_the_cause_itself() {
        for text in [
            "too many requests",
            "429 too many requests",
            "stream error:",
            "rate limit reached for model x",
            "the server is overloaded, later please",
            "rate limit exceeded. please wait",
            "bad gateway (502): ",
        ] {
            check(text, &[]);
        }
    }
}
