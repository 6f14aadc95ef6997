//! Waits and reset times inside sentences, in several languages.
//!
//! A client's own plan is no statement of the provider: "retrying in 4s", "will retry in 4s", "(retry in 4s,
//! attempt 2/5)", and the cool-down of a router.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use chrono::{DateTime, FixedOffset, NaiveDateTime, Utc};

use super::date::{self, Recurring};
use super::duration::{self, Wait};

#[derive(Clone, Copy)]
enum Cue {
    /// The duration follows.
    Before,
    /// The duration follows, perhaps as a clock shows it ("00:59:30").
    In,
    /// As [`Cue::In`], and at its end the limit is new.
    Reset,
    /// The duration follows; a bare number is seconds, as in the header of that name.
    HeaderName,
    /// As [`Cue::HeaderName`], in milliseconds.
    HeaderNameMs,
    /// The duration follows, if the sentence speaks of trying again: the words are too common otherwise.
    CommonWord,
    /// The duration follows, if the word begins what a person is told to do: "or wait 6 seconds".
    Told,
    /// The duration stands in front.
    Behind,
}

const CUES: &[(&str, Cue)] = &[
    ("again in", Cue::In),
    ("again after", Cue::Before),
    ("retry in", Cue::In),
    ("retry after", Cue::Before),
    ("retry after:", Cue::HeaderName),
    ("retryafter", Cue::HeaderName),
    ("retry-after-ms", Cue::HeaderNameMs),
    ("retry_after_ms", Cue::HeaderNameMs),
    ("retryafterms", Cue::HeaderNameMs),
    ("retry your requests after", Cue::Before),
    ("back off for", Cue::Before),
    ("come back in", Cue::In),
    ("next request allowed in", Cue::In),
    ("next request in", Cue::In),
    ("unblocked in", Cue::In),
    ("retry the request in", Cue::Before),
    ("retry the request after", Cue::Before),
    ("retry your request in", Cue::Before),
    ("retry your request after", Cue::Before),
    ("server requested", Cue::Before),
    ("please wait", Cue::Before),
    ("wait for", Cue::Before),
    ("wait ", Cue::Told),
    ("resets in", Cue::Reset),
    ("reset in", Cue::Reset),
    ("quota will reset after", Cue::Reset),
    ("replenished in", Cue::Reset),
    ("available in", Cue::In),
    (" try in", Cue::Before),
    ("retry-after", Cue::HeaderName),
    ("retry_after", Cue::HeaderName),
    ("retrydelay", Cue::Before),
    ("请在", Cue::Before),
    ("请等待", Cue::Before),
    (" in ", Cue::CommonWord),
    (" dans ", Cue::CommonWord),
    (" en ", Cue::CommonWord),
    (" em ", Cue::CommonWord),
    (" tra ", Cue::CommonWord),
    ("через ", Cue::CommonWord),
    ("后重试", Cue::Behind),
    ("后再试", Cue::Behind),
    ("后再次", Cue::Behind),
    ("后恢复", Cue::Behind),
    ("后重置", Cue::Behind),
    ("之后重试", Cue::Behind),
    ("之后再试", Cue::Behind),
    ("後重試", Cue::Behind),
    ("後再試", Cue::Behind),
    ("後に再", Cue::Behind),
    ("後にもう一度", Cue::Behind),
    ("후에 다시", Cue::Behind),
    ("후 다시", Cue::Behind),
];

/// Words for "again" that make a common word a cue.
const AGAIN: &[&str] = &[
    "erneut",
    "wieder",
    "noch einmal",
    "réessay",
    "reessay",
    "de nuevo",
    "reintent",
    "novamente",
    "riprov",
    "повторите",
    "попробуйте",
    "снова",
];

/// Words between the cue and the number.
const FILLERS: &[&str] = &[
    "about ",
    "approximately ",
    "at least ",
    "another ",
    "approx. ",
    "up to ",
    "for ",
    "header: ",
    "header of ",
    "~",
    "约",
];

/// What may stand in front of "wait" where it is told to a person.
const TOLD_BEFORE: &[&str] = &["or ", "must ", "should ", ". ", ", ", "; ", "! "];

/// What in front of a cue makes it somebody's plan.
const PLAN_BEFORE: &[&str] =
    &["will ", "next ", "auto ", "auto-", "automatically ", "going to ", "client ", "to ", "shall "];

/// What anywhere in the text says that a router speaks of its own cool-down.
const ROUTER: &[&str] =
    &["no deployments available", "cooldown_list", "cooldown", "cool-down", "cooling down"];

/// Returns the first wait that the provider states in folded `text`.
pub(super) fn wait_in(text: &str) -> Option<Wait> {
    wait_by(text, |_| true)
}

/// Returns the first wait in folded `text` that is said to end with a new limit.
pub(super) fn wait_for_reset_in(text: &str) -> Option<Wait> {
    wait_by(text, |cue| matches!(cue, Cue::Reset))
}

fn wait_by(text: &str, counts: impl Fn(Cue) -> bool) -> Option<Wait> {
    let has_number = text.bytes().any(|b| b.is_ascii_digit()) || duration::has_number_word(text);
    if !has_number {
        return None;
    }
    let cues = automaton()?;
    let mut found = None;
    for hit in cues.find_overlapping_iter(text) {
        let Some(&(_, cue)) = CUES.get(hit.pattern().as_usize()).filter(|(_, cue)| counts(*cue)) else {
            continue;
        };
        let before = text.get(..hit.start()).unwrap_or_default();
        let after = text.get(hit.end()..).unwrap_or_default();
        let wait = match cue {
            Cue::Behind => duration_at_end(before),
            Cue::Told if !before.is_empty() && !TOLD_BEFORE.iter().any(|words| before.ends_with(words)) => {
                None
            }
            Cue::CommonWord if !AGAIN.iter().any(|word| text.contains(word)) => None,
            Cue::Before | Cue::CommonWord | Cue::Told => stated(before, after, |_| None),
            Cue::In => stated(before, after, duration::parse_clock),
            // That it "will reset" is nobody's plan to ask again.
            Cue::Reset => told(after, duration::parse_clock),
            Cue::HeaderName => stated(before, after, duration::parse_bare_seconds),
            Cue::HeaderNameMs => stated(before, after, duration::parse_bare_millis),
        };
        if wait.is_some() {
            found = wait;
            break;
        }
    }
    found.filter(|_| !ROUTER.iter().any(|word| text.contains(word)))
}

fn automaton() -> Option<&'static AhoCorasick> {
    static CUE_WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    CUE_WORDS
        .get_or_init(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .build(CUES.iter().map(|(words, _)| words))
                .ok()
        })
        .as_ref()
}

/// Reads the duration that follows, with units or in the one other form that `bare` reads.
fn stated(before: &str, after: &str, bare: impl Fn(&str) -> Option<Wait>) -> Option<Wait> {
    if PLAN_BEFORE.iter().any(|words| before.ends_with(words)) || is_counted_attempt(before, after) {
        return None;
    }
    told(after, bare)
}

/// Reads the duration at the start of `after`, whoever speaks of it.
fn told(after: &str, bare: impl Fn(&str) -> Option<Wait>) -> Option<Wait> {
    let mut rest = after.trim_start_matches([' ', ':', '=', '"', '\'', '(']);
    for filler in FILLERS {
        rest = rest.strip_prefix(filler).unwrap_or(rest);
    }
    duration::parse_prefix(rest).or_else(|| bare(rest))
}

/// "retry in 4s (attempt 2/5)" and "attempt 2: retry in 4s" are an agent counting.
fn is_counted_attempt(before: &str, after: &str) -> bool {
    let near_after: String = after.chars().take(24).collect();
    let near_before: String = before.chars().rev().take(16).collect::<Vec<_>>().into_iter().rev().collect();
    near_after.contains("attempt ") || near_before.contains("attempt ") || near_before.contains("retry #")
}

/// The duration that ends where `text` ends, as in "请 2 分钟" before "后重试".
fn duration_at_end(text: &str) -> Option<Wait> {
    let is_part = |c: char| {
        c.is_ascii_digit()
            || matches!(c, '.' | ' ' | 's' | 'm' | 'h')
            || "毫秒钟分鐘小时時間天日个초분시간일ミリ".contains(c)
    };
    let start = text.char_indices().rev().take_while(|(_, c)| is_part(*c)).last().map(|(at, _)| at)?;
    let run = text.get(start..)?;
    let number = run.find(|c: char| c.is_ascii_digit())?;
    duration::parse_prefix(run.get(number..)?)
}

/// A reset time as a sentence states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reset {
    At(DateTime<Utc>),
    /// What a clock will show, in a time zone that is not named.
    Clock(NaiveDateTime),
    /// What a clock in a named zone will show; the day follows from when the text was written.
    Next(Recurring),
}

/// Returns the reset time that folded `text` states as a date or a time of day.
///
/// A time of day without a zone ("resets 2am") is none: nobody can say which moment is meant.
pub(super) fn reset_in(text: &str) -> Option<Reset> {
    epoch_behind_bar(text).map(Reset::At).or_else(|| dated_reset(text)).or_else(|| recurring_reset(text))
}

/// "resets 3pm (UTC)".
fn recurring_reset(text: &str) -> Option<Reset> {
    let (_, behind) = text.split_once("resets ")?;
    date::recurring(behind.strip_prefix("at ").unwrap_or(behind)).map(Reset::Next)
}

/// "limit reached|1760000400".
fn epoch_behind_bar(text: &str) -> Option<DateTime<Utc>> {
    text.find('|')?;
    let at = text.find("reached|")?;
    let tail = text.get(at + "reached|".len()..)?;
    let len = tail.bytes().take_while(u8::is_ascii_digit).count();
    super::epoch(tail.get(..len)?)
}

/// Words before the date from which on it works again.
const FROM_THEN_ON: &[&str] = &[
    "reset at",
    "resets at",
    "resets on",
    "reset on",
    "again at",
    "again on",
    "again after",
    "again from",
    "retry after",
    "retry at",
    "wait until",
    "access on",
    "access at",
    "available on",
    "available at",
    "replenished at",
    "replenished on",
    "renews on",
    "renews at",
];

/// "resets at 2026-05-01T10:00:00+08:00", "try again at Mar 17th, 2030 5:46 PM", and "将在 2026-08-06 20:06:00 重置",
/// which the one provider that writes so means as Chinese time.
fn dated_reset(text: &str) -> Option<Reset> {
    // Most texts hold no time of day, and looking for one byte is far cheaper than looking for words.
    if !text.contains(':') {
        return None;
    }
    if let Some(marker) = text.find("重置") {
        let written = date::near_end_of(text.get(..marker)?)?;
        let zone = written.zone.or_else(|| FixedOffset::east_opt(8 * 3600))?;
        return date::in_zone(written.clock, zone).map(Reset::At);
    }
    let mut behind =
        FROM_THEN_ON.iter().flat_map(|words| text.match_indices(words).map(|(at, _)| at + words.len()));
    let written = behind.find_map(|at| date::first_in(text.get(at..)?))?;
    Some(written.moment().map_or(Reset::Clock(written.clock), Reset::At))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected_ms: Option<u64>) {
        assert_eq!(wait_in(&crate::unwrap::fold(text)).map(|wait| wait.ms), expected_ms, "{text}");
    }

    #[test]
    fn reads_stated_waits() {
        check("Please try again in 494ms.", Some(494));
        check("Please retry in 20.04466179s.", Some(20_045));
        check("please try again after 1 seconds", Some(1_000));
        check("Please retry after 86400 seconds.", Some(86_400_000));
        check("or try again in 5 days 22 hours 11\nminutes.", Some(511_860_000));
        check("'Retry-After': '17'", Some(17_000));
        check("Please wait about 3 minutes before", Some(180_000));
        check("Server requested 600s retry delay (max: 60s). 429 Rate limit reached", Some(600_000));
        check("请在 30 秒后重试", Some(30_000));
        check("请求过于频繁，请2分钟后再试", Some(120_000));
        check("20秒後に再試行してください", Some(20_000));
        check("太频繁，请稍等40s后再试", Some(40_000));
        check("Upgrade or wait 7 seconds for it to reset.", Some(7_000));
        check("Slow down. Wait 40 seconds and go on", Some(40_000));
        check("Wait 2 minutes.", Some(120_000));
        check("Try again in two minutes", Some(120_000));
        check("retry after one hour", Some(3_600_000));
        check("Please wait 2,400 seconds", Some(2_400_000));
        check("Bitte versuchen Sie es in 20 Sekunden erneut.", Some(20_000));
        check("Veuillez réessayer dans 5 secondes", Some(5_000));
        check("Inténtelo de nuevo en 2 minutos", Some(120_000));
    }

    #[test]
    fn leaves_plans_and_prose_alone() {
        check("Retrying in 4s", None);
        check("retrying in 88 seconds...", None);
        check("will retry in 5s", None);
        check("(retry in 4s, attempt 2/5)", None);
        check("[400] (reset after 27s)", None);
        check("total retry wait time: 30s", None);
        check("the client shall wait 9 seconds", None);
        check("step 2: wait 9 seconds", None);
        check("they await 9 seconds of silence", None);
        check("try again in one of the other regions", None);
        check("try again in someone minutes", None);
        check("No deployments available, try again in 60 seconds", None);
        check("try again in a moment", None);
        check("used 500 in 20 seconds", None);
        check("the server requested 600 tokens", None);
        check("Retry your request with the ID or ARN of an inference profile", None);
    }

    #[test]
    fn a_wait_as_a_clock_shows_it() {
        check("Quota will be replenished in 00:59:30.", Some(3_570_000));
        check("Try again in 1.02:00:00", Some(93_600_000));
        check("again after 10:30:00", None);
        check("again in 10:30", None);
    }

    #[test]
    fn reads_absolute_resets() {
        let at = |text: &str| reset_in(&crate::unwrap::fold(text));
        let moment = |seconds| DateTime::from_timestamp(seconds, 0).map(Reset::At);
        let clock = |text: &str| text.parse().ok().map(Reset::Clock);
        assert_eq!(at("usage limit reached|1760000400"), moment(1_760_000_400));
        assert_eq!(at("您的限额将在 2026-08-06 20:06:00 重置"), moment(1_786_017_960));
        assert_eq!(at("limit reached, resets at 2026-08-06T20:06:00+08:00"), moment(1_786_017_960));
        assert_eq!(at("You will regain access on 2026-12-01 at 00:00 UTC."), moment(1_796_083_200));
        assert_eq!(at("Your limit will reset at 2026-08-06 20:06:00"), clock("2026-08-06T20:06:00"));
        assert_eq!(at("or try again at Mar 17th, 2030 5:46 PM."), clock("2030-03-17T17:46:00"));
        assert_eq!(at("Rate limit hit, retry after 2026-11-30T12:00:45Z"), moment(1_796_040_045));
        assert!(matches!(at("You've hit your limit · resets 3pm (UTC)"), Some(Reset::Next(_))));
        assert_eq!(at("resets 2am"), None);
        assert_eq!(at("Try again at 5:46 PM"), None);
        assert_eq!(at("it failed on 2026-12-01 at 00:00 UTC"), None);
    }
}
