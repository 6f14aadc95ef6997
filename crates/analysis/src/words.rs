//! Numbers and names as a person reads them. Not for: JSON.

use std::borrow::Cow;

use crate::count::{Bound, Count};

/// Returns a span as text: `0.24 s`, `2.1 s`, `26 s`, `3 min 6 s`, `2 h 5 min`, `4 d 6 h`.
pub fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..=999 => format!("0.{:02} s", ms / 10),
        1_000..=9_999 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10_000..=119_999 => format!("{seconds} s"),
        120_000..=7_199_999 => match seconds % 60 {
            0 => format!("{} min", seconds / 60),
            rest => format!("{} min {rest} s", seconds / 60),
        },
        7_200_000..=172_799_999 => match seconds / 60 % 60 {
            0 => format!("{} h", seconds / 3600),
            rest => format!("{} h {rest} min", seconds / 3600),
        },
        _ => match seconds / 3600 % 24 {
            0 => format!("{} d", seconds / 86400),
            rest => format!("{} d {rest} h", seconds / 86400),
        },
    }
}

/// Returns a bound as text: `3`, `6 to 30`, `at least 8`.
pub fn bound(bound: Bound) -> String {
    match bound.max {
        Some(max) if max == bound.min => max.to_string(),
        Some(max) => format!("{} to {max}", bound.min),
        None => format!("at least {}", bound.min),
    }
}

/// Returns a count as text; a count that is not visible says so.
pub fn count(count: &Count) -> String {
    if count.is_visible() { bound(count.bound) } else { "not visible".to_owned() }
}

/// Returns `1 request`, `2 requests`, `6 to 30 requests`.
pub fn counted(of: Bound, one: &str, many: &str) -> String {
    format!("{} {}", bound(of), if of.max == Some(1) || of.max.is_none() && of.min == 1 { one } else { many })
}

/// Returns a number of things: `1 run`, `2 runs`.
pub fn number(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Returns `n time` or `n times`.
pub fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// Joins words: `a`, `a and b`, `a, b and c`.
pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// Returns a ratio as text: `30x`, `1.5x`, `6.0 to 30x`.
pub fn factor((min, max): (f64, Option<f64>)) -> String {
    let one = |value: f64| if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    match max {
        Some(max) if (max - min).abs() < 0.05 => format!("{}x", one(min)),
        Some(max) => format!("{} to {}x", one(min), one(max)),
        None => format!("at least {}x", one(min)),
    }
}

/// Returns a share as text: `67 %`, `83 to 97 %`.
pub fn percent((min, max): (f64, Option<f64>)) -> String {
    let one = |value: f64| format!("{:.0}", value * 100.0);
    match max {
        Some(max) if one(max) == one(min) => format!("{} %", one(min)),
        Some(max) => format!("{} to {} %", one(min.min(max)), one(max.max(min))),
        None => format!("at least {} %", one(min)),
    }
}

/// Returns the name of an agent as people write it.
pub fn agent(name: &str) -> String {
    match name {
        "claude-code" => "Claude Code".to_owned(),
        "codex" => "Codex".to_owned(),
        "omp" => "oh-my-pi".to_owned(),
        "agent" | "events" => "the agent".to_owned(),
        other => other.to_owned(),
    }
}

/// Makes the first letter a capital.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// Makes control characters and escape sequences of untrusted text visible; a line break becomes a space.
pub fn visible(text: &str) -> String {
    if !text.chars().any(is_unsafe) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            c if is_unsafe(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Does the same to a whole page, whose lines and columns stay.
pub fn visible_page(page: &str) -> Cow<'_, str> {
    let is_layout = |c: char| matches!(c, '\n' | '\t');
    if !page.chars().any(|c| is_unsafe(c) && !is_layout(c)) {
        return Cow::Borrowed(page);
    }
    let mut out = String::with_capacity(page.len());
    for c in page.chars() {
        if is_unsafe(c) && !is_layout(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns whether a sign may steer what shows it: control characters, line separators and marks that turn the direction of
/// writing.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_lines_and_shows_what_else_it_holds() {
        assert_eq!(visible_page("a\tb\nc"), "a\tb\nc");
        assert_eq!(visible_page("a\u{1b}[31m\nb\u{202e}\r"), "a\\u{1b}[31m\nb\\u{202e}\\r");
    }

    #[test]
    fn spans_read_well() {
        let check = |ms, expected: &str| assert_eq!(span(ms), expected);
        check(0, "0.00 s");
        check(235, "0.23 s");
        check(2_150, "2.1 s");
        check(26_100, "26 s");
        check(186_000, "3 min 6 s");
        check(3_600_000, "60 min");
        check(7_500_000, "2 h 5 min");
        check(367_200_000, "4 d 6 h");
    }

    #[test]
    fn bounds_read_well() {
        assert_eq!(counted(Bound::exact(1), "request", "requests"), "1 request");
        assert_eq!(counted(Bound::range(6, Some(30)), "request", "requests"), "6 to 30 requests");
        assert_eq!(counted(Bound::at_least(1), "request", "requests"), "at least 1 request");
    }

    #[test]
    fn escapes_never_reach_the_terminal() {
        assert_eq!(visible("a\u{1b}[31mred\u{7}"), "a\\u{1b}[31mred\\u{7}");
        assert_eq!(visible("two\nlines"), "two lines");
        assert_eq!(visible("bidi \u{202e}x"), "bidi \\u{202e}x");
        assert_eq!(visible("naïve 你好"), "naïve 你好");
    }
}
