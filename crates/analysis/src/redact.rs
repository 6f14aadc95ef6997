//! Takes credentials out of texts from logs, and bounds their length.
//!
//! Each text that a view keeps comes through here once, when it is taken in: what is shown and what is saved is then free
//! of them. Ids and hashes do not: they are compared, and are nobody's words. Not for: control characters (the faces make those visible). Works on the shapes of keys and of the words before them;
//! what is cut is replaced by `[redacted]`, so that a reader sees that something stood there.

use serde_json::Value;

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

/// Words before a long credential where an equals sign stands between, in a query or a setting; else they are said of much.
const SHORT_LABELS: &[&str] = &["key", "auth", "sig", "signature", "credential"];

/// Bytes of the shortest credential that is told by the word before it.
const SHORTEST_SECRET: usize = 8;

/// Bytes of what follows one of [`SHORT_LABELS`] that is no name of a thing.
const SURELY_NO_NAME: usize = 16;

/// Returns the text without credentials, at most [`LIMIT`] bytes.
pub(crate) fn redact(text: &str) -> String {
    // Too short to hold anything; an address may give a short password.
    if text.len() < SHORTEST_SECRET && !text.contains('@') {
        return text.to_owned();
    }
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    without_credentials(text.get(..end).unwrap_or_default())
}

/// Returns the text that a log gives, without credentials and bounded; see [`redact`].
pub(crate) fn kept(text: Option<&str>) -> Option<String> {
    text.map(redact)
}

/// Does the same to each text inside a value.
pub(crate) fn redact_within(value: &mut Value) {
    match value {
        Value::String(text) => *text = redact(text),
        Value::Array(items) => items.iter_mut().for_each(redact_within),
        Value::Object(fields) => fields.values_mut().for_each(redact_within),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the text without credentials.
pub fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_label = false;
    let mut pieces = pieces(text).peekable();
    let mut sign = "";
    let mut last_word = "";
    while let Some(piece) = pieces.next() {
        if !piece.chars().any(char::is_alphanumeric) {
            out.push_str(piece);
            after_label |= labels(last_word, piece, pieces.peek());
            sign = piece;
            continue;
        }
        let word = piece.trim_matches(|c: char| !c.is_alphanumeric());
        let is_of_user = sign == ":" && pieces.peek().is_some_and(|next| next.starts_with('@'));
        if is_key(word) || is_of_user || after_label && looks_secret(word) {
            // What stands around the word inside its piece, such as the full stop of a sentence, stays.
            let (before, after) = piece.split_once(word).unwrap_or_default();
            out.push_str(before);
            out.push_str("[redacted]");
            out.push_str(after);
            after_label = false;
        } else {
            out.push_str(piece);
            after_label = is_one_of(LABELS, word);
        }
        last_word = word;
    }
    out
}

/// Returns whether a name and the sign behind it say that what follows is a credential: `OPENAI_API_KEY=`, `?key=`.
fn labels(name: &str, sign: &str, value: Option<&&str>) -> bool {
    let last = name.rsplit(['_', '-', '.', '/']).next().unwrap_or_default();
    let is_long = value.is_some_and(|value| value.len() >= SURELY_NO_NAME);
    let is_set = sign.starts_with('=') || sign.contains(':');
    is_set && is_one_of(LABELS, last) || sign == "=" && is_long && is_one_of(SHORT_LABELS, last)
}

fn is_one_of(labels: &[&str], word: &str) -> bool {
    labels.iter().any(|label| label.eq_ignore_ascii_case(word))
}

/// Splits into words and what stands between them.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/' | '~');
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
    word.len() >= SHORTEST_SECRET && (word.bytes().any(|b| b.is_ascii_digit()) || word.len() >= 24)
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
        check(
            "https://host.example/v1/models?key=AIzaSyA1234567890abcdefghijklmnop&alt=sse: 503",
            "https://host.example/v1/models?key=[redacted]&alt=sse: 503",
        );
        check(
            "GET /v1?key=0123456789abcdef0123&api-version=2024-06-01",
            "GET /v1?key=[redacted]&api-version=2024-06-01",
        );
        check("OPENAI_API_KEY=sk-proj-abc123def456ghi789 is wrong", "OPENAI_API_KEY=[redacted] is wrong");
        check("signed?sig=aGVsbG8gd29ybGQ0Mg==&se=1", "signed?sig=[redacted]==&se=1");
        check(
            "proxy http://dev:hunter2@proxy.example:3128 refused",
            "proxy http://dev:[redacted]@proxy.example:3128 refused",
        );
    }

    #[test]
    fn ordinary_words_stay() {
        for text in [
            "503 Service temporarily unavailable",
            "token limit of 200000 exceeded",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "request id: req_abc123def456",
            "model claude-opus-5-5 via us.anthropic.claude-opus-5-5",
            "status=503 code=server_error key=gpt-5.1-codex attempt=2 max_tokens=128000 key: 4f1d9f2f8a6e4d51",
            "10:15:00 connect to host.example:443 as dev@host.example",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn values_are_cleaned_to_the_last_text() {
        let mut value =
            serde_json::json!({"ok": false, "reason": ["key AIzaSyA1234567890abcdefghijklmnop", 7]});
        redact_within(&mut value);
        assert_eq!(value, serde_json::json!({"ok": false, "reason": ["key [redacted]", 7]}));
    }

    #[test]
    fn length_is_bounded_at_a_character() {
        let text = "ä".repeat(3000);
        let out = redact(&text);
        assert!(out.len() <= LIMIT && out.chars().all(|c| c == 'ä'));
    }
}
