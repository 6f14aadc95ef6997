//! The phrases and codes of all rows as patterns of one automaton, and how a hit has to stand in a text to count.

use std::collections::BTreeMap;

/// How a code may stand outside a field of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeForm {
    /// `insufficient_quota`, `ThrottlingException`: as a whole word.
    Identifier,
    /// `1302`: in brackets, or behind the word "code".
    Number,
    /// `unavailable`: not at all; it is an ordinary word.
    FieldOnly,
}

/// Separates codes from each other and from the text; no folded text holds it.
pub(super) const SEPARATOR: char = '\u{1}';

/// What stands around a hit.
pub(super) struct Around<'a> {
    before: &'a str,
    hit: &'a str,
    after: &'a str,
}

impl<'a> Around<'a> {
    pub(super) fn new(text: &'a str, start: usize, end: usize) -> Self {
        Self {
            before: text.get(..start).unwrap_or_default(),
            hit: text.get(start..end).unwrap_or_default(),
            after: text.get(end..).unwrap_or_default(),
        }
    }

    fn previous(&self) -> char {
        self.before.chars().next_back().unwrap_or(SEPARATOR)
    }

    fn next(&self) -> char {
        self.after.chars().next().unwrap_or(SEPARATOR)
    }

    pub(super) fn is_whole_field(&self) -> bool {
        self.previous() == SEPARATOR && self.next() == SEPARATOR
    }

    /// A phrase that begins or ends with a digit must not cut a longer number in two.
    pub(super) fn splits_no_number(&self) -> bool {
        let cuts = |edge: Option<char>, beside: char| {
            edge.is_some_and(|c| c.is_ascii_digit()) && beside.is_ascii_digit()
        };
        !cuts(self.hit.chars().next(), self.previous()) && !cuts(self.hit.chars().next_back(), self.next())
    }

    pub(super) fn is_word(&self) -> bool {
        let joins = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !joins(self.previous()) && !joins(self.next())
    }

    pub(super) fn is_code(&self, form: CodeForm) -> bool {
        if !self.is_word() {
            return false;
        }
        match form {
            CodeForm::Identifier => true,
            CodeForm::FieldOnly => false,
            CodeForm::Number => {
                let bracketed =
                    matches!(self.previous(), '(' | '[' | '（') && matches!(self.next(), ')' | ']' | '）');
                let lead = self.before.trim_end_matches([' ', ':', '=', '"', '\'']);
                bracketed || lead.ends_with("code") || lead.ends_with("错误码") || lead.ends_with("type")
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Patterns {
    pub(super) list: Vec<String>,
    places: BTreeMap<String, usize>,
    pub(super) triggered: Vec<Vec<usize>>,
    pub(super) code_forms: Vec<CodeForm>,
    pub(super) whole: Vec<bool>,
}

impl Patterns {
    /// Apart from the same phrase that counts inside other words.
    pub(super) fn whole_words(&mut self, words: &str) -> usize {
        let words = words.to_lowercase();
        let place = self.keyed(format!("{SEPARATOR}{words}"), &words);
        if let Some(whole) = self.whole.get_mut(place) {
            *whole = true;
        }
        place
    }

    pub(super) fn phrase(&mut self, phrase: &str) -> usize {
        self.place(&phrase.to_lowercase())
    }

    pub(super) fn code(&mut self, code: &str) -> usize {
        let place = self.place(&code.to_lowercase());
        if let Some(form) = self.code_forms.get_mut(place) {
            *form = form_of(code);
        }
        place
    }

    fn place(&mut self, text: &str) -> usize {
        self.keyed(text.to_owned(), text)
    }

    fn keyed(&mut self, key: String, text: &str) -> usize {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let place = self.list.len();
        self.list.push(text.to_owned());
        self.places.insert(key, place);
        self.triggered.push(Vec::new());
        self.code_forms.push(CodeForm::FieldOnly);
        self.whole.push(false);
        place
    }

    pub(super) fn trigger(&mut self, pattern: Option<usize>, row: usize) {
        if let Some(rows) = pattern.and_then(|pattern| self.triggered.get_mut(pattern)) {
            rows.push(row);
        }
    }
}

fn form_of(code: &str) -> CodeForm {
    if code.bytes().all(|b| b.is_ascii_digit()) {
        return CodeForm::Number;
    }
    let inner_capital =
        code.chars().zip(code.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    if code.contains(['_', '.']) || inner_capital { CodeForm::Identifier } else { CodeForm::FieldOnly }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_codes() {
        assert_eq!(form_of("insufficient_quota"), CodeForm::Identifier);
        assert_eq!(form_of("ThrottlingException"), CodeForm::Identifier);
        assert_eq!(form_of("1302"), CodeForm::Number);
        assert_eq!(form_of("UNAVAILABLE"), CodeForm::FieldOnly);
    }
}
