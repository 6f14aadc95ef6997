//! Reads objects that are nearly JSON: Python and JavaScript prints, line breaks inside strings, cut-off ends.
//!
//! Not a JSON validator, and not for data that must be read exactly: where the text is broken, what was read up to
//! there is kept.

use serde_json::{Map, Value};

/// Nesting beyond this is refused; real errors nest a handful of levels.
const MAX_NESTING: usize = 32;

/// Reads one object or array at the start of `text`.
///
/// Returns the value and the number of bytes it took. `None` when there is no object or array, or when it holds
/// nothing that looks like an entry (so that a brace in prose is not taken for one).
pub(super) fn parse_prefix(text: &str) -> Option<(Value, usize)> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    let value = match reader.peek()? {
        b'{' => reader.object(0)?,
        b'[' => reader.array(0)?,
        _ => return None,
    };
    let holds_entries = match &value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => items.iter().any(|item| matches!(item, Value::Object(map) if !map.is_empty())),
        _ => false,
    };
    holds_entries.then_some((value, reader.at))
}

/// Reads `text` as one quoted string and nothing else; `None` when it is not.
pub(super) fn parse_string(text: &str) -> Option<String> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    reader.skip_bytes_prefix();
    let quote = reader.peek().filter(|b| matches!(b, b'"' | b'\''))?;
    let value = reader.string(quote);
    (reader.at == text.len() && text.len() > 2).then_some(value)
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// Skips white space, also where a client printed it as an escape between tokens.
    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'\\' if matches!(self.peek_at(1), Some(b'n' | b't' | b'r' | b'\n')) => self.at += 2,
                _ => break,
            }
        }
    }

    /// Python marks byte strings with a letter before the quote.
    fn skip_bytes_prefix(&mut self) {
        if matches!(self.peek(), Some(b'b' | b'u' | b'r')) && matches!(self.peek_at(1), Some(b'"' | b'\'')) {
            self.at += 1;
        }
    }

    fn object(&mut self, nesting: usize) -> Option<Value> {
        if nesting >= MAX_NESTING {
            return None;
        }
        self.at += 1;
        let mut map = Map::new();
        loop {
            self.skip_space();
            match self.peek() {
                None => return Some(Value::Object(map)),
                Some(b'}') => {
                    self.at += 1;
                    return Some(Value::Object(map));
                }
                Some(b',') => self.at += 1,
                Some(_) => {
                    let key = self.key()?;
                    self.skip_space();
                    match self.peek() {
                        Some(b':' | b'=') => self.at += 1,
                        None => return Some(Value::Object(map)),
                        Some(_) => return None,
                    }
                    let value = self.value(nesting)?;
                    map.insert(key, value);
                }
            }
        }
    }

    fn array(&mut self, nesting: usize) -> Option<Value> {
        if nesting >= MAX_NESTING {
            return None;
        }
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                None => return Some(Value::Array(items)),
                Some(b']') => {
                    self.at += 1;
                    return Some(Value::Array(items));
                }
                Some(b',') => self.at += 1,
                Some(b'}' | b':') => return None,
                Some(_) => {
                    let item = self.value(nesting)?;
                    items.push(self.named_object(item, nesting)?);
                }
            }
        }
    }

    /// Protobuf prints an object of a list behind its name: `[retry_delay { seconds: 23 }]`.
    fn named_object(&mut self, item: Value, nesting: usize) -> Option<Value> {
        match item {
            Value::String(name) if self.peek() == Some(b'{') => {
                let object = self.object(nesting + 1)?;
                Some(Value::Object(Map::from_iter([(name, object)])))
            }
            item => Some(item),
        }
    }

    fn key(&mut self) -> Option<String> {
        self.skip_bytes_prefix();
        match self.peek()? {
            quote @ (b'"' | b'\'') => Some(self.string(quote)),
            b'\\' if matches!(self.peek_at(1), Some(b'"' | b'\'')) => self.escaped_string(),
            byte if byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$') => {
                let start = self.at;
                while self
                    .peek()
                    .is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'-' | b'.'))
                {
                    self.at += 1;
                }
                self.text.get(start..self.at).map(str::to_owned)
            }
            _ => None,
        }
    }

    fn value(&mut self, nesting: usize) -> Option<Value> {
        self.skip_space();
        self.skip_bytes_prefix();
        match self.peek() {
            None => Some(Value::Null),
            Some(b'{') => self.object(nesting + 1),
            Some(b'[') => self.array(nesting + 1),
            Some(quote @ (b'"' | b'\'' | b'`')) => Some(Value::String(self.string(quote))),
            Some(b'\\') if matches!(self.peek_at(1), Some(b'"' | b'\'')) => {
                self.escaped_string().map(Value::String)
            }
            Some(_) => match self.debug_constructor() {
                Some(constructor) => self.debug_value(constructor, nesting + 1),
                None => Some(self.bare()),
            },
        }
    }

    /// How Rust prints a value of JSON for its programmers: `Object {"code": Number(500), "message": String("x")}`.
    fn debug_constructor(&self) -> Option<&'static str> {
        let rest = self.text.get(self.at..)?;
        ["Object {", "Array [", "String(\"", "Number(", "Bool(", "Some("]
            .into_iter()
            .find(|constructor| rest.starts_with(constructor))
    }

    fn debug_value(&mut self, constructor: &str, nesting: usize) -> Option<Value> {
        if nesting >= MAX_NESTING {
            return None;
        }
        // The bracket or quote is the beginning of the value, the parenthesis is not.
        let opens = constructor.len() - usize::from(!constructor.ends_with('('));
        self.at += opens;
        let value = match constructor {
            "Object {" => return self.object(nesting),
            "Array [" => return self.array(nesting),
            "Number(" | "Bool(" => {
                let start = self.at;
                while self
                    .peek()
                    .is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'))
                {
                    self.at += 1;
                }
                let word = self.text.get(start..self.at)?;
                serde_json::from_str(word).unwrap_or_else(|_| Value::String(word.to_owned()))
            }
            _ => self.value(nesting)?,
        };
        if self.peek() == Some(b')') {
            self.at += 1;
        }
        Some(value)
    }

    /// Reads a string up to its closing quote, or to the end of a cut-off text.
    fn string(&mut self, quote: u8) -> String {
        self.at += 1;
        let mut out = String::new();
        let mut raw = Vec::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|b| b != quote && b != b'\\') {
                self.at += 1;
            }
            flush_bytes(&mut raw, &mut out, self.at > start);
            out.push_str(self.text.get(start..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'\\') => self.escape(&mut out, &mut raw),
                Some(_) => {
                    self.at += 1;
                    break;
                }
                None => break,
            }
        }
        flush_bytes(&mut raw, &mut out, true);
        out
    }

    /// A string whose quotes were escaped by a wrapper: `\"text\"`.
    fn escaped_string(&mut self) -> Option<String> {
        let quote = self.peek_at(1)?;
        self.at += 2;
        let start = self.at;
        while self.at < self.bytes.len() {
            let escaped_quote = self.peek() == Some(b'\\') && self.peek_at(1) == Some(quote);
            if escaped_quote {
                let text = self.text.get(start..self.at)?.to_owned();
                self.at += 2;
                return Some(text);
            }
            self.at += 1;
        }
        self.text.get(start..).map(str::to_owned)
    }

    fn escape(&mut self, out: &mut String, raw: &mut Vec<u8>) {
        let kind = self.peek_at(1);
        if kind == Some(b'x')
            && let Some(byte) = self.hex(2, 2).and_then(|code| u8::try_from(code).ok())
        {
            raw.push(byte);
            self.at += 4;
            return;
        }
        flush_bytes(raw, out, true);
        match kind {
            Some(b'n' | b'r' | b't' | b'f' | b'b' | b'\n') => {
                out.push(if kind == Some(b't') { '\t' } else { '\n' });
                self.at += 2;
            }
            Some(b'u') => match self.hex(2, 4) {
                Some(high) if (0xD800..0xDC00).contains(&high) => {
                    let low = (self.peek_at(6) == Some(b'\\') && self.peek_at(7) == Some(b'u'))
                        .then(|| self.hex(8, 4))
                        .flatten()
                        .filter(|low| (0xDC00..0xE000).contains(low));
                    let joined = low
                        .and_then(|low| char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)));
                    out.push(joined.unwrap_or(char::REPLACEMENT_CHARACTER));
                    self.at += if low.is_some() { 12 } else { 6 };
                }
                Some(code) => {
                    out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    self.at += 6;
                }
                None => self.at += 2,
            },
            Some(byte) if byte.is_ascii() => {
                out.push(char::from(byte));
                self.at += 2;
            }
            _ => self.at += 1,
        }
    }

    fn hex(&self, from: usize, len: usize) -> Option<u32> {
        let digits = self.text.get(self.at + from..self.at + from + len)?;
        u32::from_str_radix(digits, 16).ok()
    }

    /// A number, a constant, or unquoted words up to the end of the entry.
    fn bare(&mut self) -> Value {
        let start = self.at;
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'(' | b'[' => open += 1,
                b',' | b']' if open == 0 => break,
                b')' | b']' => open = open.saturating_sub(1),
                b'{' | b'}' | b'\n' => break,
                _ => {}
            }
            self.at += 1;
        }
        // Progress is owed even on a byte that starts nothing, or a caller would loop.
        if self.at == start {
            self.at += 1;
            while !self.text.is_char_boundary(self.at) {
                self.at += 1;
            }
        }
        let word = self.text.get(start..self.at).unwrap_or_default().trim();
        match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "Null" | "None" | "undefined" | "" => Value::Null,
            _ => match word.parse::<serde_json::Number>() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::String(word.to_owned()),
            },
        }
    }
}

/// Bytes written one by one (`\xe4\xbd\xa0`) form characters only together.
fn flush_bytes(raw: &mut Vec<u8>, out: &mut String, now: bool) {
    if now && !raw.is_empty() {
        out.push_str(&String::from_utf8_lossy(raw));
        raw.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: Option<&Value>) {
        assert_eq!(parse_prefix(text).map(|(value, _)| value).as_ref(), expected, "{text}");
    }

    #[test]
    fn reads_json_as_it_is() {
        check(r#"{"a":{"b":[1,"x\n\u4f60",null]}} rest"#, Some(&json!({"a":{"b":[1,"x\n你",null]}})));
        assert_eq!(parse_prefix(r#"{"a":1} rest"#).map(|(_, len)| len), Some(7));
    }

    #[test]
    fn reads_python_and_javascript_prints() {
        check("{'a': None, 'b': True, 'c': b'\\xe4\\xbd\\xa0'}", Some(&json!({"a":null,"b":true,"c":"你"})));
        check(
            "{ ok: false, error: Error [E]: gone (a, b), n: 2 }",
            Some(&json!({"ok":false,"error":"Error [E]: gone (a, b)","n":2})),
        );
    }

    #[test]
    fn keeps_what_a_cut_text_had() {
        check(
            r#"{"error":{"code":429,"message":"too ma"#,
            Some(&json!({"error":{"code":429,"message":"too ma"}})),
        );
    }

    #[test]
    fn leaves_prose_alone() {
        check("{}", None);
        check("{please wait}", None);
        check("[1302]", None);
        check("{", None);
    }
}
