//! Cuts the long strings out of a line that is too long to keep.
//!
//! Knows double quotes, backslashes, commas and brackets, nothing else. What is left is bounded: strings keep their first
//! 4 KiB. Of what lies deep, only the first members are kept once [`DEEP_LIMIT`] bytes are: what tells of a line stands in
//! its outer members, wherever among them. After [`SKELETON_LIMIT`] bytes the rest is dropped, so that a decoder sees an
//! unreadable line and reports it.

/// Most bytes of one string that are kept.
const STRING_LIMIT: usize = 4 << 10;

/// Most bytes of a line that are kept.
const SKELETON_LIMIT: usize = 1 << 20;

/// Bytes that are kept whatever their depth.
const DEEP_LIMIT: usize = 256 << 10;

/// Down to this depth members of objects are always kept: those of the line's object, and of an object in it.
const SHALLOW: usize = 2;

/// State of the cutting.
#[derive(Debug)]
pub(crate) struct Shrink {
    out: Vec<u8>,
    in_string: bool,
    escaped: bool,
    string_length: usize,
    depth: usize,
    /// Whether a list is open at the depth [`SHALLOW`].
    in_list: bool,
    /// Depth of the members that are left out, until what holds them ends.
    left_out: Option<usize>,
}

impl Shrink {
    pub(crate) fn new() -> Self {
        Self {
            out: Vec::new(),
            in_string: false,
            escaped: false,
            string_length: 0,
            depth: 0,
            in_list: false,
            left_out: None,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        // A hole before a line is no part of it.
        let hole = if self.out.is_empty() { bytes.iter().take_while(|byte| **byte == 0).count() } else { 0 };
        for &byte in &bytes[hole..] {
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
                self.structure(byte);
                true
            };
            if keep && self.left_out.is_none() && self.out.len() < SKELETON_LIMIT {
                self.out.push(byte);
            }
        }
    }

    /// A byte outside strings.
    fn structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.escaped = false;
                self.string_length = 0;
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == SHALLOW {
                    self.in_list = byte == b'[';
                }
            }
            b'}' | b']' => {
                if self.left_out == Some(self.depth) {
                    self.left_out = None;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            // From a comma on, the bracket that closes can follow what is kept.
            b',' if self.out.len() >= DEEP_LIMIT
                && self.left_out.is_none()
                && (self.depth > SHALLOW || self.depth == SHALLOW && self.in_list) =>
            {
                self.left_out = Some(self.depth);
            }
            _ => {}
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
    fn what_stands_behind_many_small_members_is_kept() {
        let part = r#"{"type":"text","text":"some, words] here"}"#;
        let deep = vec![part; 50_000].join(",");
        let line = format!(
            r#"{{"a":{{"content":[{deep}],"b":1}},"c":[{deep}],"d":[[{deep}],{{"d":[1,2]}}],"e":"kept"}}"#
        );
        let out = shrunk(&line);
        assert!(out.len() < DEEP_LIMIT + 1000, "{}", out.len());
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&value["a"]["b"], &value["e"]), (&1.into(), &"kept".into()));
        assert_eq!(value["a"]["content"][0]["type"], "text");
        // Near miss: what is not so long stays as it is.
        let short = format!(r#"{{"a":[{{"b":[{}]}}]}}"#, vec![part; 1_000].join(","));
        assert_eq!(shrunk(&short), short);
    }

    #[test]
    fn a_hole_before_a_line_takes_no_room() {
        let line = "\0".repeat(2 * SKELETON_LIMIT) + r#"{"a":1}"#;
        assert_eq!(shrunk(&line), r#"{"a":1}"#);
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
