//! Takes one line apart: names and values of a flat object, nothing copied.
//!
//! Not for: what a name or a value means (see the module above).

/// A value, not copied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw<'a> {
    /// A text without escapes.
    Text(&'a str),
    /// A text with escapes, with its quotes.
    Escaped(&'a str),
    Whole(u64),
    Flag(bool),
    /// An object, unparsed.
    Object(&'a str),
}

/// Goes over one line.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Hands over the members of the object that the text is, but for those that are null; `None` for anything but a flat
    /// object of plain values, or if `take` says so.
    pub(super) fn members(mut self, mut take: impl FnMut(&'a str, Raw<'a>) -> Option<()>) -> Option<()> {
        let text = self.text;
        let mut has_null = false;
        self.skip_space();
        self.expect(b'{')?;
        self.skip_space();
        loop {
            let name = self.name()?;
            if self.rest().starts_with(b"null") {
                self.at += 4;
                has_null = true;
            } else {
                take(name, self.value()?)?;
            }
            self.skip_space();
            match self.next()? {
                b',' => self.skip_space(),
                b'}' => break,
                _ => return None,
            }
        }
        self.skip_space();
        let is_whole = self.at == text.len() && (!has_null || Scanner::new(text).says_each_name_once()?);
        is_whole.then_some(())
    }

    /// Returns whether no name stands twice in an object that was read once. Of two members with one name a null one may be
    /// what counts.
    fn says_each_name_once(mut self) -> Option<bool> {
        let mut names = Vec::new();
        self.skip_space();
        self.expect(b'{')?;
        self.skip_space();
        loop {
            let name = self.name()?;
            if names.contains(&name) {
                return Some(false);
            }
            names.push(name);
            if self.rest().starts_with(b"null") {
                self.at += 4;
            } else {
                self.value()?;
            }
            self.skip_space();
            if self.next()? == b'}' {
                return Some(true);
            }
            self.skip_space();
        }
    }

    /// A name, and the colon behind it.
    fn name(&mut self) -> Option<&'a str> {
        let Raw::Text(name) = self.string()? else { return None };
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Some(name)
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.as_bytes().get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn skip_space(&mut self) {
        while matches!(self.text.as_bytes().get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Raw<'a>> {
        match self.rest().first()? {
            b'"' => self.string(),
            b'{' => self.object(),
            b'0'..=b'9' => self.whole(),
            b't' if self.rest().starts_with(b"true") => {
                self.at += 4;
                Some(Raw::Flag(true))
            }
            b'f' if self.rest().starts_with(b"false") => {
                self.at += 5;
                Some(Raw::Flag(false))
            }
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Raw<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        self.at += plain_length(self.rest())?;
        if self.next()? == b'"' {
            return Some(Raw::Text(self.text.get(start..self.at - 1)?));
        }
        // An escape, or a control character that the library refuses.
        let mut escaped = true;
        loop {
            match self.next()? {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Some(Raw::Escaped(self.text.get(start - 1..self.at)?)),
                _ => {}
            }
        }
    }

    /// A whole number without sign; others are rare.
    fn whole(&mut self) -> Option<Raw<'a>> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = self.text.get(self.at..self.at + digits)?;
        if digits > 18 || digits > 1 && text.starts_with('0') {
            return None;
        }
        self.at += digits;
        let ends = !matches!(self.rest().first(), Some(b'.' | b'e' | b'E'));
        ends.then_some(Raw::Whole(text.parse().ok()?))
    }

    /// An object whose end is found by its brackets; what stands in it is for the library.
    fn object(&mut self) -> Option<Raw<'a>> {
        let start = self.at;
        let mut depth = 0;
        loop {
            match self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(Raw::Object(self.text.get(start..self.at)?));
            }
        }
    }
}

/// Returns how many bytes come before the first quote, backslash or control character; `None` where there is none.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = below(word ^ repeated(b'"'), 1) | below(word ^ repeated(b'\\'), 1) | below(word, 0x20);
        if special != 0 {
            return Some(index * 8 + (special.trailing_zeros() / 8) as usize);
        }
    }
    let inside = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    Some(words.len() * 8 + inside)
}

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns a word whose lowest set bit stands in the first byte below a limit of at most 0x80; 0 if there is none.
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(repeated(limit)) & !word & repeated(0x80)
}

#[cfg(test)]
mod tests {
    use super::plain_length;

    #[test]
    fn the_first_special_byte_is_found_at_any_place() {
        for special in 0..=255_u8 {
            for before in 0..20 {
                let mut bytes = vec![b'x'; before];
                bytes.extend([special, b'"', 0xff, b'"', 0x80, 0]);
                let expected = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
                assert_eq!(plain_length(&bytes), expected, "{special} after {before}");
            }
        }
        assert_eq!(plain_length("é is no end".as_bytes()), None);
    }
}
