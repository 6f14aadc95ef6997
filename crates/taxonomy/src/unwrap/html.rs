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

/// Returns the text of the page without tags, scripts and styles, the title first (it comes first in a page).
pub(super) fn text_of(page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some(open) = rest.find('<') {
        out.push_str(rest.get(..open).unwrap_or_default());
        out.push(' ');
        let tag = rest.get(open..).unwrap_or_default();
        rest = ["script", "style"]
            .iter()
            .find(|name| tag.get(1..=name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)))
            .and_then(|name| {
                let close = tag.find(&format!("</{name}"))?;
                tag.get(close + 2 + name.len()..)
            })
            .unwrap_or(tag);
        rest = match rest.find('>') {
            Some(end) => rest.get(end + 1..).unwrap_or_default(),
            None => "",
        };
    }
    out.push_str(rest);
    out
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
    fn survives_broken_markup() {
        assert_eq!(text_of("a <b").trim(), "a");
        assert_eq!(text_of("<script>x").trim(), "x");
    }
}
