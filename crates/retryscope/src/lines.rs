//! Lines of a file that a person names, one after the other, in bounded memory.

use std::io::{self, BufRead, Read as _};

/// Longest line that is kept, in bytes.
pub(crate) const LINE_LIMIT: usize = 16 << 20;

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line.
    Line,
    /// The beginning of a line that is longer than [`LINE_LIMIT`]; the rest of it was passed over.
    TooLong,
    /// Nothing: the input has ended.
    End,
}

/// Reads the next line into `line`, without its end.
pub(crate) fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    if input.by_ref().take(LINE_LIMIT as u64 + 1).read_until(b'\n', line)? == 0 {
        return Ok(Next::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
    }
    if line.len() <= LINE_LIMIT {
        return Ok(Next::Line);
    }
    input.skip_until(b'\n')?;
    Ok(Next::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_one_line() {
        let longest = vec![b'x'; LINE_LIMIT];
        let all = [b"a\r\n".as_slice(), &longest, b"\n", &longest, b"y\n\nlast"].concat();
        let (mut input, mut line) = (io::Cursor::new(all), Vec::new());
        let read: Vec<(Next, usize)> = std::iter::from_fn(|| {
            let next = next_line(&mut input, &mut line).ok().filter(|next| *next != Next::End)?;
            Some((next, line.len()))
        })
        .collect();
        let expected = [
            (Next::Line, 1),
            (Next::Line, LINE_LIMIT),
            (Next::TooLong, LINE_LIMIT + 1),
            (Next::Line, 0),
            (Next::Line, 4),
        ];
        assert_eq!(read, expected);
    }
}
