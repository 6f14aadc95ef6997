//! Cuts the long strings out of a line that is too long to keep.
//!
//! Knows double quotes and backslashes, nothing else. What is left is bounded: strings keep their first 4 KiB, and after
//! [`SKELETON_LIMIT`] bytes the rest is dropped, so that a decoder sees an unreadable line and reports it.

/// Most bytes of one string that are kept.
const STRING_LIMIT: usize = 4 << 10;

/// Most bytes of a line that are kept.
const SKELETON_LIMIT: usize = 1 << 20;

/// State of the cutting.
#[derive(Debug)]
pub(crate) struct Shrink {
    out: Vec<u8>,
    in_string: bool,
    escaped: bool,
    string_length: usize,
}

impl Shrink {
    pub(crate) fn new() -> Self {
        Self { out: Vec::new(), in_string: false, escaped: false, string_length: 0 }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let keep = if self.in_string {
                let ends = byte == b'"' && !self.escaped;
                self.string_length += 1;
                // An escape is kept whole or not at all.
                let keep = ends
                    || self.string_length <= STRING_LIMIT
                    || self.escaped && self.string_length == STRING_LIMIT + 1;
                self.escaped = byte == b'\\' && !self.escaped;
                self.in_string = !ends;
                keep
            } else {
                if byte == b'"' {
                    self.in_string = true;
                    self.escaped = false;
                    self.string_length = 0;
                }
                true
            };
            if keep && self.out.len() < SKELETON_LIMIT {
                self.out.push(byte);
            }
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrunk(line: &str) -> String {
        let mut shrink = Shrink::new();
        for part in line.as_bytes().chunks(7) {
            shrink.feed(part);
        }
        String::from_utf8(shrink.finish()).unwrap()
    }

    #[test]
    fn keeps_short_strings_and_cuts_long_ones() {
        let long = "x".repeat(STRING_LIMIT * 2);
        let out = shrunk(&format!(r#"{{"a":"{long}","b":"kept \" quote","c":1}}"#));
        assert!(out.ends_with(r#"","b":"kept \" quote","c":1}"#));
        assert!(out.len() < STRING_LIMIT + 100);
    }

    #[test]
    fn an_escape_at_the_cut_stays_whole() {
        for before in STRING_LIMIT - 3..STRING_LIMIT + 3 {
            let text = format!(r#"{{"a":"{}\"{}","b":1}}"#, "x".repeat(before), "y".repeat(50));
            let out = shrunk(&text);
            assert!(out.ends_with(r#"","b":1}"#), "{before}: {}", out.len());
            let quotes = out.matches('"').count() - out.matches("\\\"").count();
            assert_eq!(quotes, 6, "{before}");
        }
    }
}
