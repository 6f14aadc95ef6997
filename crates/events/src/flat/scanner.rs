//! Takes one line apart: names and values of a flat object, nothing copied.
//!
//! Not for: what a name or a value means (see the module above).

/// Members of one object; lines with more go the long way.
pub(super) const MOST: usize = 40;

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
    /// Nothing; kept only to see a name that is said twice.
    Null,
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

    /// Reads the members of the object that the text is; `None` for anything but a flat object of plain values.
    pub(super) fn members(mut self, into: &mut [(&'a str, Raw<'a>); MOST]) -> Option<usize> {
        let (mut count, mut has_null) = (0, false);
        self.skip_space();
        self.expect(b'{')?;
        self.skip_space();
        loop {
            let Raw::Text(name) = self.string()? else { return None };
            self.skip_space();
            self.expect(b':')?;
            self.skip_space();
            if self.rest().starts_with(b"null") {
                self.at += 4;
                has_null = true;
                *into.get_mut(count)? = (name, Raw::Null);
            } else {
                *into.get_mut(count)? = (name, self.value()?);
            }
            count += 1;
            self.skip_space();
            match self.next()? {
                b',' => self.skip_space(),
                b'}' => break,
                _ => return None,
            }
        }
        self.skip_space();
        if self.at < self.text.len() {
            return None;
        }
        if has_null {
            let said = &into[..count];
            let is_repeated = |(index, (name, _)): (usize, &(&str, Raw<'_>))| {
                said[..index].iter().any(|(before, _)| before == name)
            };
            if said.iter().enumerate().any(is_repeated) {
                return None;
            }
            let mut kept = 0;
            for index in 0..count {
                if !matches!(into[index].1, Raw::Null) {
                    into[kept] = into[index];
                    kept += 1;
                }
            }
            count = kept;
        }
        Some(count)
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
        let plain = self.rest().iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        self.at += plain;
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
