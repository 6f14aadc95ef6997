//! The readable part of an HTML error page.
//!
//! Only for finding out what a page says; not an HTML parser.

/// Returns whether `text` is, or holds, an HTML page.
pub(super) fn is_html(text: &str) -> bool {
    text.contains('<')
        && ["<html", "<HTML", "<!doctype html", "<!DOCTYPE html", "<title>", "<h1>"]
            .iter()
            .any(|tag| text.contains(tag))
}

/// Returns the text of the page without tags, scripts and styles, the title first (it comes first in a page). Behind a
/// script or style that a cut leaves open there are no words any more.
pub(super) fn text_of(page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some(open) = next_tag(rest) {
        out.push_str(rest.get(..open).unwrap_or_default());
        out.push(' ');
        let tag = rest.get(open..).unwrap_or_default();
        let silent = ["script", "style"].into_iter().find(|name| opens(tag, name));
        rest = match silent {
            Some(name) => match end_of(tag, name) {
                Some(end) => tag.get(end..).unwrap_or_default(),
                None => return out,
            },
            None => tag,
        };
        rest = match rest.find('>') {
            Some(end) => rest.get(end + 1..).unwrap_or_default(),
            None => "",
        };
    }
    out.push_str(rest);
    out
}

/// Where the next tag begins; what follows another `<` is prose: "invalid character '<' looking for a value".
fn next_tag(text: &str) -> Option<usize> {
    let begins_tag = |(at, _): &(usize, &str)| {
        text.get(at + 1..).is_some_and(|after| {
            after.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'))
        })
    };
    text.match_indices('<').find(begins_tag).map(|(at, _)| at)
}

fn opens(tag: &str, name: &str) -> bool {
    let Some(after) = tag.get(1 + name.len()..) else { return false };
    tag.get(1..=name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name))
        && !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
}

/// Where the name in the closing tag ends.
fn end_of(tag: &str, name: &str) -> Option<usize> {
    let closing = |(at, _): &(usize, &str)| {
        tag.get(at + 2..at + 2 + name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    tag.match_indices("</").find(closing).map(|(at, _)| at + 2 + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_words_and_drops_markup() {
        let page = "<html><head><title>502 Bad Gateway</title><style>a{b}</style></head><h1>Sorry</h1>";
        assert!(is_html(page));
        assert_eq!(text_of(page).split_whitespace().collect::<Vec<_>>().join(" "), "502 Bad Gateway Sorry");
    }

    #[test]
    fn a_sign_in_prose_opens_no_tag() {
        let text = "invalid character '<' before a value: 503 Service Unavailable, got: <html>";
        assert_eq!(
            text_of(text).trim(),
            "invalid character '<' before a value: 503 Service Unavailable, got:"
        );
        assert_eq!(text_of("1 < 2 <b>so</b>").split_whitespace().collect::<Vec<_>>().join(" "), "1 < 2 so");
    }

    #[test]
    fn survives_broken_markup() {
        assert_eq!(text_of("a <b").trim(), "a");
        assert_eq!(text_of("gone <script>x <b>y</b>").trim(), "gone");
        assert_eq!(text_of("<title>gone</title><style global>.blocked{content:x").trim(), "gone");
        assert_eq!(text_of("<STYLE>.x{}</STYLE>gone").trim(), "gone");
        assert_eq!(text_of("<styled>gone</styled>").trim(), "gone");
    }
}
