//! Steps over JSON values, one after the other.

use crate::string;

/// Returns what `read` reads; `None` if that is not the whole text, but for spaces around it.
pub fn whole<'a, T>(text: &'a str, read: impl FnOnce(&mut Cursor<'a>) -> Option<T>) -> Option<T> {
    let mut at = Cursor::at(text, 0);
    at.space();
    let result = read(&mut at)?;
    at.space();
    (at.at == text.len()).then_some(result)
}

/// A string, a key for example, as it stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// With its quotes.
    text: &'a str,
    has_escapes: bool,
}

impl<'a> Quoted<'a> {
    /// Returns the string with its quotes, for a decoder of JSON.
    pub fn as_json(self) -> &'a str {
        self.text
    }

    /// Returns what stands between the quotes, where that is the value itself; `None` for a string with escapes.
    #[inline]
    pub fn plain(self) -> Option<&'a str> {
        if self.has_escapes { None } else { self.text.get(1..self.text.len() - 1) }
    }
}

/// A place in a JSON text.
pub struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The end of each bracket that is open, innermost last: nothing recurses, however deep.
    open: Vec<u8>,
}

impl<'a> Cursor<'a> {
    /// Returns the place so many bytes after the beginning of a text.
    pub fn at(text: &'a str, place: usize) -> Self {
        Self { text, bytes: text.as_bytes(), at: place, open: Vec::new() }
    }

    /// Returns how many bytes stand before it.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Hands over the key of each member of the object that begins here to `take`, which steps over the value.
    pub fn members(&mut self, mut take: impl FnMut(&mut Self, Quoted<'a>) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
            take(self, key)?;
            self.space();
            match self.next()? {
                b',' => self.space(),
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Hands over each element of the array that begins here.
    pub fn elements(&mut self, mut take: impl FnMut(&'a str)) -> Option<()> {
        self.expect(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Some(());
        }
        loop {
            take(self.slice(Self::value)?);
            self.space();
            match self.next()? {
                b',' => self.space(),
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Returns what `step` returns; stays where it is if that is nothing.
    pub fn attempt<T>(&mut self, step: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let from = self.at;
        let result = step(self);
        if result.is_none() {
            self.at = from;
        }
        result
    }

    /// Returns the byte that stands here; `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    #[inline]
    fn space(&mut self) {
        // Hardly any log has spaces here.
        while let Some(byte) = self.peek().filter(|byte| *byte <= b' ') {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return;
            }
            self.at += 1;
        }
    }

    /// Returns what `step` steps over.
    pub fn slice(&mut self, step: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'a str> {
        let from = self.at;
        step(self)?;
        self.text.get(from..self.at)
    }

    /// Steps over one value, however deep.
    pub fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(drop),
            b'{' | b'[' => self.nested(),
            _ => self.scalar(),
        }
    }

    /// Steps over an object or array.
    fn nested(&mut self) -> Option<()> {
        let outside = self.open.len();
        // The innermost bracket that is open is at hand, those around it are kept.
        let mut end = 0;
        loop {
            // At the start of a value.
            match self.peek()? {
                b'"' => drop(self.skip_string()?),
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    self.space();
                    if self.peek() == Some(bracket + 2) {
                        self.at += 1;
                    } else {
                        self.open.push(end);
                        end = bracket + 2;
                        if end == b'}' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // After a value.
            loop {
                if self.open.len() == outside {
                    return Some(());
                }
                self.space();
                match self.next()? {
                    b',' => {
                        self.space();
                        if end == b'}' {
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte == end => end = self.open.pop()?,
                    _ => return None,
                }
            }
        }
    }

    /// Steps over the key of the next member.
    #[inline]
    fn key(&mut self) -> Option<()> {
        self.skip_string()?;
        self.space();
        self.expect(b':')?;
        self.space();
        Some(())
    }

    /// Steps over the string that begins here.
    #[inline]
    pub fn string(&mut self) -> Option<Quoted<'a>> {
        let from = self.at;
        let has_escapes = self.skip_string()?;
        Some(Quoted { text: self.text.get(from..self.at)?, has_escapes })
    }

    /// Steps over a string; returns whether it holds escapes.
    #[inline]
    fn skip_string(&mut self) -> Option<bool> {
        self.expect(b'"')?;
        let (end, has_escapes) = string::end(self.bytes, self.at)?;
        self.at = end;
        Some(has_escapes)
    }

    /// Steps over a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b't' => return self.word(b"true"),
            b'f' => return self.word(b"false"),
            b'n' => return self.word(b"null"),
            b'-' => self.at += 1,
            _ => {}
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

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let is_here = self.bytes.get(self.at..)?.starts_with(word);
        self.at += word.len();
        is_here.then_some(())
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
#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

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
        let mut all = Vec::new();
        whole(std::str::from_utf8(line).ok()?, |at| {
            at.members(|at, key| {
                let name: String = serde_json::from_str(key.as_json()).ok()?;
                assert!(key.plain().is_none_or(|plain| plain == name), "{name}");
                assert_eq!(key.plain().is_none(), key.as_json().contains('\\'), "{name}");
                all.push((name, at.slice(Cursor::value)?.to_owned()));
                Some(())
            })
        })?;
        Some(all)
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
            "{\"a\":{\"b\":1},\"a\":2}",
            "{\"a\":2,\"\\u0061\":{\"b\":1}}",
            "{\"a\":{\"b\":1},\"a\":null}",
            "{\"a\":{\"b\":1,\"\\ud800\":{}}}",
            "{\"a\":{\"b\":[1,{\"c\":\"\\ud800\"}],\"\\ud800\":{}},\"b\":[[]]}",
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

        #[test]
        fn any_string_ends_where_the_slow_way_sees_it_end(
            before in 0..70usize,
            pieces in prop::collection::vec(
                prop_oneof![
                    10 => Just("\\"),
                    4 => Just("\""),
                    4 => Just("\\\""),
                    4 => Just("\\\\"),
                    4 => Just("\\n"),
                    2 => Just("\\u00e9"),
                    2 => Just("\\/"),
                    1 => Just("\\u00"),
                    1 => Just("\t"),
                    4 => Just("n"),
                    4 => Just("é"),
                    8 => Just("a stretch of text"),
                ],
                0..40,
            ),
            after in 0..20usize,
        ) {
            let text = [&"x".repeat(before), &*pieces.concat(), &"x".repeat(after)].concat();
            check(format!("{{\"a\":\"{text}\"}}").as_bytes());
            check(format!("{{\"a\":\"{text}").as_bytes());
            check(format!("{{\"a\":\"{text}\",\"b\":[\"{text}\",{{}}],\"{text}\":1}}").as_bytes());
        }
    }
}
