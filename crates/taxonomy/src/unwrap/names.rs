//! Where a text quotes a name: `'properties.timeout'`, `"get_rate_limit"`, `` `content_filter` ``.
//!
//! Names are the sender's own words given back: what a field or a tool is called says nothing of what went wrong. Not
//! for quoted sentences, which may well be the cause.

use std::ops::Range;

/// Words right in front of a quote that make the quoted word a code or a message instead of a name.
const TELLING: &[&str] = &[
    "code",
    "error",
    "reason",
    "exception",
    "status",
    "message",
    "msg",
    "detail",
    "cause",
    "with",
    "said",
    "returned",
];

/// Returns where names stand inside single or double quotes in folded `text`.
pub(super) fn quoted_names(text: &str) -> Vec<Range<usize>> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some((open, quote)) = next_quote(text, at) {
        at = open + 1;
        let lead = text.get(..open).unwrap_or_default();
        if lead.ends_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let Some(inner) = text.get(at..).and_then(|rest| rest.split(quote).next()) else { break };
        let end = at + inner.len();
        let closes =
            text.get(end + 1..).is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric()));
        if closes && is_name(inner) && !is_told(lead) {
            names.push(at..end);
            at = end + 1;
        }
    }
    names
}

/// One word: a name, and no sentence.
pub(super) fn is_name(inner: &str) -> bool {
    !inner.is_empty() && !inner.contains(|c: char| c.is_whitespace() || c == ':' || !c.is_ascii())
}

fn next_quote(text: &str, from: usize) -> Option<(usize, char)> {
    let offset = text.get(from..)?.find(['\'', '"'])?;
    Some((from + offset, text.get(from + offset..)?.chars().next()?))
}

/// `error: 'overloaded'` and `'code': 'rate_limit_exceeded'` tell what went wrong; so does a type, as a field.
fn is_told(lead: &str) -> bool {
    let bare = lead.trim_end_matches([' ', ':', '=', '\'', '"', '(']);
    let is_field = lead.get(bare.len()..).is_some_and(|between| between.contains([':', '=']));
    let ends_with = |word: &str| {
        bare.strip_suffix(word).is_some_and(|head| !head.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    TELLING.iter().any(|word| ends_with(word)) || is_field && (ends_with("type") || ends_with("error_code"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, names: &[&str]) {
        let found: Vec<_> = quoted_names(text).into_iter().filter_map(|name| text.get(name)).collect();
        assert_eq!(found, names, "{text}");
    }

    #[test]
    fn finds_names() {
        check("function 'fetch': in ('properties', 'timeout')", &["fetch", "properties", "timeout"]);
        check("tool \"get_rate_limit\" is there twice", &["get_rate_limit"]);
        check(
            "'raise_error': 'terminated' is not of type 'string'",
            &["raise_error", "terminated", "string"],
        );
    }

    #[test]
    fn leaves_sentences_codes_and_apostrophes() {
        for text in [
            "you've hit your limit, don't go on",
            "client error '404 not found'",
            "code: 'insufficient_quota', type=\"overloaded_error\"",
            "failed with \"unauthorized\"",
            "an open 'quote",
        ] {
            check(text, &[]);
        }
    }
}
