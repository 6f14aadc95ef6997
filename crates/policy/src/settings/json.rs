//! Plain values of a JSON file, with their lines.
//!
//! Not a validating parser: it also takes comments, trailing commas and words without quotes (agents accept
//! them, and YAML files may hold such parts), and stops at the first thing it does not understand, keeping what
//! it has read so far.

use std::{iter::Peekable, str::Chars};

use super::{Leaf, MAX_DEPTH, SettingValue};

/// Plain values of a whole file.
pub(super) fn leaves(text: &str) -> Vec<Leaf> {
    leaves_below(text, Vec::new(), 1)
}

/// Plain values of a part of a file that stands at `path` and begins at `line`.
pub(super) fn leaves_below(text: &str, path: Vec<String>, line: u32) -> Vec<Leaf> {
    let mut reader = Reader { rest: text.chars().peekable(), line, path, leaves: Vec::new() };
    // `None` means that the rest was not understood.
    let _understood: Option<()> = reader.value();
    reader.leaves
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: u32,
    path: Vec<String>,
    leaves: Vec<Leaf>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            self.line = self.line.saturating_add(1);
        }
        Some(next)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn skip_blanks(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                Some('/') => {
                    self.next();
                    match self.next()? {
                        '/' => {
                            while self.peek().is_some_and(|c| c != '\n') {
                                self.next();
                            }
                        }
                        '*' => {
                            let mut before = ' ';
                            loop {
                                let next = self.next()?;
                                if before == '*' && next == '/' {
                                    break;
                                }
                                before = next;
                            }
                        }
                        _ => return None,
                    }
                }
                Some(c) if c.is_whitespace() => {
                    self.next();
                }
                _ => return Some(()),
            }
        }
    }

    fn value(&mut self) -> Option<()> {
        self.skip_blanks()?;
        if self.path.len() > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            '{' => self.object(),
            '[' => self.array(),
            _ => {
                let line = self.line;
                if let Some(value) = self.scalar()? {
                    self.leaves.push(Leaf { path: self.path.clone(), value, line: Some(line) });
                }
                Some(())
            }
        }
    }

    fn object(&mut self) -> Option<()> {
        self.next();
        loop {
            self.skip_blanks()?;
            match self.peek()? {
                '}' => {
                    self.next();
                    return Some(());
                }
                ',' => {
                    self.next();
                }
                _ => {
                    let key = self.word()?.0;
                    self.skip_blanks()?;
                    if self.next()? != ':' {
                        return None;
                    }
                    self.path.push(key);
                    self.value()?;
                    self.path.pop();
                }
            }
        }
    }

    /// Reads a list. Its plain items become one value, the others get their index as key.
    fn array(&mut self) -> Option<()> {
        let line = self.line;
        self.next();
        let mut items = Vec::new();
        let mut index = 0_usize;
        let complete = loop {
            if self.skip_blanks().is_none() {
                break false;
            }
            match self.peek() {
                Some(']') => {
                    self.next();
                    break true;
                }
                Some(',') => {
                    self.next();
                }
                Some('{' | '[') => {
                    self.path.push(index.to_string());
                    self.value()?;
                    self.path.pop();
                    index += 1;
                }
                Some(_) => {
                    let Some(item) = self.scalar() else { break false };
                    items.extend(item.map(|item| item.to_string()));
                    index += 1;
                }
                None => break false,
            }
        };
        if complete {
            let value = SettingValue::List(items);
            self.leaves.push(Leaf { path: self.path.clone(), value, line: Some(line) });
        }
        complete.then_some(())
    }

    /// Reads a plain value; `Some(None)` is `null`.
    #[expect(clippy::option_option, reason = "not understood and `null` differ")]
    fn scalar(&mut self) -> Option<Option<SettingValue>> {
        let (word, is_quoted) = self.word()?;
        Some(if is_quoted { Some(SettingValue::Text(word)) } else { SettingValue::from_bare(&word) })
    }

    /// Reads a quoted or bare word, and says whether it was quoted.
    fn word(&mut self) -> Option<(String, bool)> {
        let quote = self.peek()?;
        let mut word = String::new();
        if quote != '"' && quote != '\'' {
            while let Some(c) = self.peek().filter(|c| !matches!(c, ',' | ':' | '{' | '}' | '[' | ']' | '\n'))
            {
                word.push(c);
                self.next();
            }
            let word = word.trim_end();
            return (!word.is_empty()).then(|| (word.to_owned(), false));
        }
        self.next();
        loop {
            match self.next()? {
                c if c == quote => return Some((word, true)),
                '\\' => match self.next()? {
                    'n' => word.push('\n'),
                    't' => word.push('\t'),
                    'u' => {
                        let digits: String = (0..4).map_while(|_| self.next()).collect();
                        let code = u32::from_str_radix(&digits, 16).ok()?;
                        // Halves of a pair do not occur in names and values that are kept.
                        word.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    other => word.push(other),
                },
                c => word.push(c),
            }
        }
    }
}
