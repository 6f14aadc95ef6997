//! The first lines of a file, for telling what it is where its first bytes do not.
//!
//! A first line may be longer than anybody wants to look at: a prompt, a list of tools. What tells lies around it, so long
//! strings are cut out of it. Not for: what a line means.

use std::io::{self, Read};

use crate::shrink::Shrink;

/// Bytes of shortened lines that are enough, where no line counts for more than [`OF_EACH`].
const ENOUGH: usize = 16 << 10;

/// Bytes for which one line counts: a long one shall not hide those after it.
const OF_EACH: usize = 2 << 10;

/// Most bytes that are kept.
const KEPT: usize = 2 << 20;

/// Most bytes of a file that are read for this.
const MOST: u64 = 16 << 20;

/// Bytes that one read asks for.
const BLOCK: usize = 64 << 10;

/// The first lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstLines {
    /// Whole lines, long strings cut out of them; the last one may be without its end.
    pub bytes: Vec<u8>,
    /// Whether more would be seen if the file grew.
    pub may_grow: bool,
}

/// Reads the first lines of a file that stands at its start: some 16 KiB of shortened ones, more where single ones are long,
/// as far as they end within 16 MiB.
pub fn first_lines(input: impl Read) -> io::Result<FirstLines> {
    let mut input = input.take(MOST);
    let mut block = vec![0; BLOCK];
    let mut bytes = Vec::new();
    let mut shrink = Shrink::new();
    let mut counted = 0;
    loop {
        let got = match input.read(&mut block) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if got == 0 {
            bytes.append(&mut shrink.finish());
            return Ok(FirstLines { bytes, may_grow: input.limit() > 0 });
        }
        let mut rest = &block[..got];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            shrink.feed(&line[..end]);
            let mut line = std::mem::replace(&mut shrink, Shrink::new()).finish();
            counted += OF_EACH.min(line.len() + 1);
            bytes.append(&mut line);
            bytes.push(b'\n');
            if counted >= ENOUGH || bytes.len() >= KEPT {
                return Ok(FirstLines { bytes, may_grow: false });
            }
            rest = after;
        }
        shrink.feed(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (String, bool) {
        let first = first_lines(text.as_bytes()).unwrap();
        (String::from_utf8(first.bytes).unwrap(), first.may_grow)
    }

    #[test]
    fn short_lines_are_as_they_are() {
        assert_eq!(of("{\"a\":1}\n{\"b\""), ("{\"a\":1}\n{\"b\"".to_owned(), true));
        let many = "{\"a\":1}\n".repeat(10_000);
        let (seen, may_grow) = of(&many);
        assert!(many.starts_with(&seen) && seen.len() >= ENOUGH && seen.len() < ENOUGH + 10 && !may_grow);
    }

    #[test]
    fn what_stands_behind_a_long_string_is_seen() {
        let long = format!("{{\"text\":\"{}\",\"id\":\"x\"}}\n{{\"b\":2}}\n", "word ".repeat(1_000_000));
        let (seen, may_grow) = of(&long);
        assert!(seen.ends_with("\",\"id\":\"x\"}\n{\"b\":2}\n") && seen.len() < ENOUGH && may_grow);
    }

    #[test]
    fn a_long_line_of_short_strings_is_whole() {
        let names: Vec<String> = (0..2_000).map(|n| format!("\"operation_number_{n}\"")).collect();
        let line = format!("{{\"tools\":[{}],\"id\":\"x\"}}\n", names.join(","));
        assert_eq!(of(&line), (line.clone(), true));
        // And what follows is seen as well.
        let more = format!("{line}{{\"b\":2}}\n");
        assert_eq!(of(&more), (more, true));
    }

    #[test]
    fn a_line_without_an_end_is_not_read_for_ever() {
        let first = first_lines(io::repeat(b'x')).unwrap();
        assert!(first.bytes.len() <= 1 << 20 && !first.may_grow);
    }
}
