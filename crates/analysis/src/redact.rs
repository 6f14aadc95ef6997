//! Takes credentials out of texts from logs, and bounds their length.
//!
//! Not for: control characters (the faces make those visible). Works on the shapes of keys and of the words before them;
//! what is cut is replaced by `[redacted]`, so that a reader sees that something stood there.

/// Longest text that is kept, in bytes.
const LIMIT: usize = 2048;

/// Beginnings of keys of the known providers and services.
const KEY_BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_",
    "rk_",
    "pk_live",
    "xai-",
    "gsk_",
    "AIza",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "hf_",
    "nvapi-",
    "pplx-",
    "eyJ",
    "ya29.",
    "xoxb-",
    "xoxp-",
    "glpat-",
    "r8_",
    "fw_",
    "csk-",
];

/// Words after which a credential stands.
const LABELS: &[&str] = &[
    "bearer",
    "api-key",
    "api_key",
    "apikey",
    "x-api-key",
    "authorization",
    "token",
    "password",
    "secret",
    "cookie",
    "set-cookie",
];

/// Returns the text without credentials, at most [`LIMIT`] bytes.
pub(crate) fn redact(text: &str) -> String {
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    without_credentials(text.get(..end).unwrap_or_default())
}

/// Returns the text without credentials.
pub fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_label = false;
    for piece in pieces(text) {
        let word = piece.trim_matches(|c: char| !c.is_alphanumeric());
        let is_word = piece.chars().any(char::is_alphanumeric);
        if is_word && (is_key(word) || after_label && looks_secret(word)) {
            // What stands around the word inside its piece, such as the full stop of a sentence, stays.
            let (before, after) = piece.split_once(word).unwrap_or_default();
            out.push_str(before);
            out.push_str("[redacted]");
            out.push_str(after);
            after_label = false;
        } else {
            out.push_str(piece);
            if is_word {
                let lower = word.to_ascii_lowercase();
                after_label = LABELS.contains(&lower.as_str());
            }
        }
    }
    out
}

/// Splits into words and what stands between them.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/' | '=' | '~');
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let inside = is_part(first);
        let end = rest.find(|c: char| is_part(c) != inside).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

fn is_key(word: &str) -> bool {
    word.len() >= 16 && KEY_BEGINNINGS.iter().any(|beginning| word.starts_with(beginning)) && word.bytes().any(|b| b.is_ascii_digit())
        // Words with a separator such as `sk-demo` are names only while they are short.
        || word.len() >= 20 && word.starts_with("sk-")
}

/// After a label such as `Bearer` anything long enough without being a plain word is taken as the secret.
fn looks_secret(word: &str) -> bool {
    word.len() >= 8 && (word.bytes().any(|b| b.is_ascii_digit()) || word.len() >= 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_cut() {
        let check = |text: &str, expected: &str| assert_eq!(redact(text), expected);
        check(
            "Incorrect API key provided: sk-proj-abc123def456ghi789. See docs",
            "Incorrect API key provided: [redacted]. See docs",
        );
        check("authorization: Bearer abcdef0123456789", "authorization: Bearer [redacted]");
        check(r#"{"x-api-key":"k3y-w1th-d1g1ts-0123"}"#, r#"{"x-api-key":"[redacted]"}"#);
        check("key AIzaSyA1234567890abcdefghijklmnop", "key [redacted]");
    }

    #[test]
    fn ordinary_words_stay() {
        for text in [
            "503 Service temporarily unavailable",
            "token limit of 200000 exceeded",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "request id: req_abc123def456",
            "model claude-opus-5-5 via us.anthropic.claude-opus-5-5",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn length_is_bounded_at_a_character() {
        let text = "ä".repeat(3000);
        let out = redact(&text);
        assert!(out.len() <= LIMIT && out.chars().all(|c| c == 'ä'));
    }
}
