//! Identifiers as the words that they are made of: `gateway_unavailable`, `QuotaDepletedError`.

/// Returns `text` with a space at each seam of an identifier: at underscores, and where a capital begins a word.
pub(super) fn spelled_out(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut chars = text.chars().peekable();
    let mut previous = ' ';
    while let Some(c) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(char::is_ascii_lowercase);
        // "DepletedError" and "HTTPError" both have their seam in front of "Error".
        let is_seam = c.is_ascii_uppercase()
            && (previous.is_ascii_lowercase() || previous.is_ascii_uppercase() && next_is_lower);
        if is_seam {
            out.push(' ');
        }
        out.push(if c == '_' { ' ' } else { c });
        previous = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seams() {
        assert_eq!(spelled_out("gateway_unavailable: 5"), "gateway unavailable: 5");
        assert_eq!(spelled_out("QuotaDepletedError"), "Quota Depleted Error");
        assert_eq!(spelled_out("an HTTPError of v2"), "an HTTP Error of v2");
        assert_eq!(spelled_out("NO_MORE_CREDITS"), "NO MORE CREDITS");
    }
}
