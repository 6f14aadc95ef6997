//! Folding: the one form in which texts and patterns are compared.
//!
//! Lower case, one space for any run of white space, straight quotes, and no URLs: their paths ("docs/rate-limits",
//! "settings/billing") read like causes and are none.

use std::ops::Range;

use super::names;

/// Returns `text` in comparable form.
pub(crate) fn fold(text: &str) -> String {
    fold_with_names(text).0
}

/// Returns `text` in comparable form, and where names stand in it.
pub(super) fn fold_with_names(text: &str) -> (String, Vec<Range<usize>>) {
    let mut out = String::with_capacity(text.len());
    let mut names = Vec::new();
    // Backticks are dropped, so what they hold has to be noted on the way.
    let mut open = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if matches!(first, 'h' | 'H')
            && let Some(after) = skip_url(rest)
        {
            push(&mut out, ' ');
            rest = after;
            continue;
        }
        let mut taken = first.len_utf8();
        match first {
            '\\' => taken += push_escape(&mut out, rest),
            '\u{2018}' | '\u{2019}' => out.push('\''),
            '\u{201c}' | '\u{201d}' => out.push('"'),
            '`' => match open.take() {
                Some(start) => {
                    if out.get(start..).is_some_and(names::is_name) {
                        names.push(start..out.len());
                    }
                }
                None => open = Some(out.len()),
            },
            _ if first.is_ascii() => push(&mut out, first.to_ascii_lowercase()),
            _ => first.to_lowercase().for_each(|lower| push(&mut out, lower)),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    names.extend(names::quoted_names(&out));
    (out, names)
}

fn push(out: &mut String, c: char) {
    if !c.is_whitespace() {
        out.push(c);
    } else if !out.is_empty() && !out.ends_with(' ') {
        out.push(' ');
    }
}

/// A backslash left in a text is an escape that a wrapper did not undo; returns how many more bytes it took.
fn push_escape(out: &mut String, rest: &str) -> usize {
    match rest.as_bytes().get(1) {
        Some(b'n' | b't' | b'r') => {
            push(out, ' ');
            1
        }
        Some(b'u') => {
            let code = rest.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            match code.and_then(char::from_u32) {
                Some(c) => {
                    c.to_lowercase().for_each(|lower| push(out, lower));
                    5
                }
                None => 0,
            }
        }
        _ => 0,
    }
}

fn skip_url(text: &str) -> Option<&str> {
    let after = ["https://", "http://"]
        .iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
        .and_then(|scheme| text.get(scheme.len()..))?;
    let end = after
        .find(|c: char| {
            c.is_whitespace()
                || !c.is_ascii()
                || matches!(c, '"' | '\'' | ')' | '>' | '<' | '}' | ']' | ',' | '`' | '\\')
        })
        .unwrap_or(after.len());
    after.get(end..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_case_space_quotes_and_escapes() {
        assert_eq!(fold("  You\u{2019}ve  hit\\nYOUR\n limit `x`"), "you've hit your limit x");
        assert_eq!(fold("\\u4f60 \u{c4}rger"), "你 ärger");
    }

    #[test]
    fn notes_names_in_backticks() {
        let (out, names) = fold_with_names("The `timeout` of `two words` and 'Other'");
        let found: Vec<_> = names.into_iter().filter_map(|name| out.get(name)).collect();
        assert_eq!((out.as_str(), found), ("the timeout of two words and 'other'", vec!["timeout", "other"]));
    }

    #[test]
    fn drops_urls() {
        assert_eq!(fold("see https://a.b/rate-limits, now"), "see , now");
        assert_eq!(fold("hold http"), "hold http");
    }
}
