//! Steps over JSON values without building them: where does each member of an object begin and end?
//!
//! Accepts exactly what `serde_json` accepts, given text whose strings hold no control characters (see
//! [`holds_control`]): a test compares the two. Most bytes of a log stand in long strings; those are stepped over in
//! blocks.

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

/// Returns whether any byte is a control character.
pub(crate) fn holds_control(bytes: &[u8]) -> bool {
    // Without an early exit within a block, so that it becomes vector instructions.
    let block_holds = |block: &[u8]| block.iter().fold(0, |any, byte| any | u8::from(*byte < 0x20)) != 0;
    let blocks = bytes.chunks_exact(256);
    let rest = blocks.remainder();
    blocks.into_iter().any(block_holds) || block_holds(rest)
}

/// Hands over the key (in quotes) and the value of each member of an object; `None` if the text is not one object, or
/// if `take` says so.
pub(crate) fn members<'a>(text: &'a str, mut take: impl FnMut(&'a str, &'a str) -> Option<()>) -> Option<()> {
    let mut at = Cursor { text, bytes: text.as_bytes(), at: 0 };
    at.space();
    at.expect(b'{')?;
    at.space();
    if at.peek() == Some(b'}') {
        at.at += 1;
        return at.ends();
    }
    loop {
        let key = at.slice(Cursor::string)?;
        at.space();
        at.expect(b':')?;
        at.space();
        let value = at.slice(Cursor::value)?;
        take(key, value)?;
        at.space();
        match at.next()? {
            b',' => at.space(),
            b'}' => return at.ends(),
            _ => return None,
        }
    }
}

/// Hands over each element of an array; `None` if the text is not one array.
pub(crate) fn elements<'a>(text: &'a str, mut take: impl FnMut(&'a str)) -> Option<()> {
    let mut at = Cursor { text, bytes: text.as_bytes(), at: 0 };
    at.space();
    at.expect(b'[')?;
    at.space();
    if at.peek() == Some(b']') {
        at.at += 1;
        return at.ends();
    }
    loop {
        take(at.slice(Cursor::value)?);
        at.space();
        match at.next()? {
            b',' => at.space(),
            b']' => return at.ends(),
            _ => return None,
        }
    }
}

struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn ends(mut self) -> Option<()> {
        self.space();
        (self.at == self.bytes.len()).then_some(())
    }

    fn slice(&mut self, step: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'a str> {
        let from = self.at;
        step(self)?;
        self.text.get(from..self.at)
    }

    /// Steps over one value, however deep.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.nested(),
            _ => self.scalar(),
        }
    }

    /// Steps over an object or array. Keeps the open brackets in a vector: nothing recurses.
    fn nested(&mut self) -> Option<()> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            // At the start of a value.
            match self.peek()? {
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    self.space();
                    let end = bracket + 2;
                    if self.peek() == Some(end) {
                        self.at += 1;
                    } else {
                        open.push(end);
                        self.key(end)?;
                        continue;
                    }
                }
                b'"' => self.string()?,
                _ => self.scalar()?,
            }
            // After a value.
            loop {
                let Some(end) = open.last().copied() else { return Some(()) };
                self.space();
                match self.next()? {
                    b',' => {
                        self.space();
                        self.key(end)?;
                        break;
                    }
                    byte if byte == end => {
                        open.pop();
                    }
                    _ => return None,
                }
            }
        }
    }

    /// Within an object, steps over the key of the next member.
    fn key(&mut self, end: u8) -> Option<()> {
        if end == b'}' {
            self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
        }
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        // Most strings are short and plain: a few words by hand.
        for _ in 0..4 {
            let Some(word) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) else {
                break;
            };
            let word = u64::from_le_bytes(*word);
            let quotes = zero_bytes(word ^ repeated(b'"'));
            let escapes = zero_bytes(word ^ repeated(b'\\'));
            if escapes != 0 {
                break;
            }
            if quotes != 0 {
                self.at += (quotes.trailing_zeros() / 8) as usize + 1;
                return Some(());
            }
            self.at += 8;
        }
        self.long_string()
    }

    /// Steps over the rest of a string: finds its end, then looks at its escapes.
    fn long_string(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
        let mut end = 0;
        loop {
            end += memchr(b'"', rest.get(end..)?)?;
            let escapes = rest.get(..end)?.iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes.is_multiple_of(2) {
                break;
            }
            end += 1;
        }
        let inside = rest.get(..end)?;
        self.at += end + 1;
        (are_plain_escapes(inside) && are_plain_codes(inside) || are_escapes(inside)).then_some(())
    }

    /// Steps over a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
        for word in [&b"true"[..], b"false", b"null"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Some(());
            }
        }
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.next()? {
            b'0' => {
                if self.peek().is_some_and(|b| b.is_ascii_digit()) {
                    return None;
                }
            }
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Some(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Option<()> {
        let from = self.at;
        self.digits();
        (self.at > from).then_some(())
    }
}

/// Returns whether a backslash is always followed by what may follow it; false also for some that need a closer look.
fn are_plain_escapes(inside: &[u8]) -> bool {
    // Pairs of neighbours, without an early exit within a block, so that it becomes vector instructions.
    let is_odd = |(byte, next): (&u8, &u8)| {
        let may_follow = matches!(next, b'n' | b'"' | b't' | b'r' | b'u' | b'/' | b'b' | b'f' | b'\\');
        u8::from(*byte == b'\\') & u8::from(!may_follow)
    };
    let block_is_odd =
        |(bytes, nexts): (&[u8], &[u8])| bytes.iter().zip(nexts).fold(0, |any, pair| any | is_odd(pair)) != 0;
    let Some(nexts) = inside.get(1..) else { return true };
    !inside.chunks(256).zip(nexts.chunks(256)).any(block_is_odd)
}

/// Returns whether digits follow wherever a character may be given by its code; false also for some that need a closer
/// look.
fn are_plain_codes(inside: &[u8]) -> bool {
    static CODE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u"));
    CODE.find_iter(inside)
        .all(|at| inside.get(at + 2..at + 6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

/// Returns whether each escape is one, looking at one after the other.
fn are_escapes(mut inside: &[u8]) -> bool {
    while let Some(at) = memchr(b'\\', inside) {
        let length = match inside.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') if inside.get(at + 2..at + 6).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)) => {
                6
            }
            _ => return false,
        };
        inside = inside.get(at + length..).unwrap_or_default();
    }
    true
}

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns a word whose lowest set bit stands in the first zero byte; 0 if no byte is zero.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeated(0x01)) & !word & repeated(0x80)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use crate::json::Object;

    /// What the slow way finds: keys and values of one object.
    fn slow(line: &[u8]) -> Option<Vec<(String, String)>> {
        struct Members(Vec<(String, String)>);
        impl<'de> serde::Deserialize<'de> for Members {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct All;
                impl<'de> serde::de::Visitor<'de> for All {
                    type Value = Members;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Members, A::Error> {
                        let mut all = Vec::new();
                        while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                            all.push((key, value.get().to_owned()));
                        }
                        Ok(Members(all))
                    }
                }
                deserializer.deserialize_map(All)
            }
        }
        serde_json::from_slice::<Members>(line).ok().map(|members| members.0)
    }

    fn fast(line: &[u8]) -> Option<Vec<(String, String)>> {
        let object = Object::parse(line)?;
        Some(object.members().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn check(line: &[u8]) {
        assert_eq!(fast(line), slow(line), "{}", String::from_utf8_lossy(line));
    }

    #[test]
    fn accepts_what_the_slow_way_accepts() {
        for line in [
            "{}",
            " { } ",
            "{}x",
            "",
            "{",
            "[]",
            "null",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":01}",
            "{\"a\":-0.5e+10}",
            "{\"a\":1.}",
            "{\"a\":-}",
            "{\"a\":1e}",
            "{\"a\":tru}",
            "{\"a\":nullx}",
            "{\"a\":[[[{}]],{\"b\":[1,2,{\"c\":\"]}\"}]}]}",
            "{\"a\":[1,]}",
            "{\"a\":[}",
            "{\"a\":{]}",
            "{\"a\":[}]}",
            "{\"a\":\"\\\"\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12\"}",
            "{\"a\":\"\\ud800\"}",
            "{\"\\ud800\":1}",
            "{\"\\u0061\":1,\"a\":2}",
            "{\"a\":\"\t\"}",
            "{\t\"a\":\r1}",
            "{\"a\":\"é✓\"}",
            "{é:1}",
            "{\"a\":1}\u{0}",
            "{\"a\":\"long enough to be looked at twice \\\\u00\"}",
            "{\"a\":\"long enough to be looked at twice \\\\\\u00\"}",
            "{\"a\":\"\\\\x\"}",
            "{\"a\":\"\\\\\\x\"}",
            "{\"a\":\"\\u00e9\\n\\\\\"}",
            "{\"a\":\"\\\"}",
            "{\"a\":\"long enough to be looked at twice \\u00e\"}",
            "{\"a\" :  \"x\" , \"b\":[ ] }",
            "{\"a\":1 2}",
            "{\"a\":{\"b\":1 \"c\":2}}",
            "{\"a\":\"unclosed}",
        ] {
            check(line.as_bytes());
        }
        check(b"{\"a\":\"\xff\"}");
        let long = format!("{{\"a\":\"{}\\n{}\",\"b\":1}}", "x".repeat(1000), "y".repeat(77));
        check(long.as_bytes());
        check(&[b"{\"a\":".as_slice(), &vec![b'['; 100_000]].concat());
    }

    proptest! {
        #[test]
        fn any_change_to_a_line_is_seen_as_the_slow_way_sees_it(
            at in 0.0..1.0f64,
            with in prop_oneof![Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'}'), Just(b','), Just(b' '), Just(b'u'), any::<u8>()],
            cut in 0.0..1.0f64,
            insert in any::<bool>(),
        ) {
            let line = r#"{"parentUuid":null,"isSidechain":false,"n":-12.5e3,"message":{"content":[{"type":"text","text":"a \"quoted\" \\ line\nnext \u00e9 é → and a stretch that is much longer than eight words of eight bytes each, so that blocks are used"},[],{}],"ok":true},"type":"user"}"#;
            let mut bytes = line.as_bytes().to_vec();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in the line")]
            let place = |share: f64| (share * bytes.len() as f64) as usize;
            let (at, cut) = (place(at), place(cut));
            if insert { bytes.insert(at, with) } else { bytes[at] = with }
            check(&bytes);
            bytes.truncate(cut);
            check(&bytes);
        }
    }
}
