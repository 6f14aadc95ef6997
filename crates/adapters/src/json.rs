//! One JSON object, its members parsed only when asked for.
//!
//! Most members of agent records are prompts and tool output that nobody needs; they are skipped without being copied.
//! A member of an unexpected type reads as absent, so that one odd field never costs a record.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use retryscope_json::{Cursor, Quoted, whole};
use serde_json::Value;
use serde_json::value::RawValue;

/// Members of an object in their order, values unparsed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, &'a str)>);

/// Hardly any object has more members; the memory for so many is still of a size that is quickly had.
const USUAL_MEMBERS: usize = 24;

/// Whole numbers below it are exact in either form.
const MOST: f64 = 9e15;

impl<'a> Object<'a> {
    /// Parses one line; `None` if it is not a JSON object.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        Self::of_text(std::str::from_utf8(line).ok()?)
    }

    /// Parses one line together with a member that most lines of its kind are read for: looking at each byte once, where
    /// [`Object::object`] would look at those of the member again. Returns what that would, too.
    pub(crate) fn parse_with(line: &'a [u8], inner_key: &str) -> Option<(Self, Option<Self>)> {
        let mut members = Vec::with_capacity(USUAL_MEMBERS);
        let mut inner = None;
        whole(std::str::from_utf8(line).ok()?, |at| {
            at.members(|at, key| {
                let key = name(key)?;
                let value = at.slice(|at| {
                    if key == inner_key {
                        inner = at.attempt(Self::read);
                        if inner.is_some() {
                            return Some(());
                        }
                    }
                    at.value()
                })?;
                members.push((key, value));
                Some(())
            })
        })?;
        Some((Self(members), inner))
    }

    /// Parses the beginning of a line, cut before a member of an inner object, into the members of both that stand there.
    pub(crate) fn parse_beginning(line: &'a [u8], inner_key: &str) -> Option<(Self, Self)> {
        let (mut members, mut inner) = (Vec::with_capacity(USUAL_MEMBERS), Vec::with_capacity(USUAL_MEMBERS));
        whole(std::str::from_utf8(line).ok()?, |at| {
            let cut = at.members(|at, key| {
                let key = name(key)?;
                if key == inner_key {
                    return at.members(|at, key| {
                        inner.push((name(key)?, at.slice(Cursor::value)?));
                        Some(())
                    });
                }
                members.push((key, at.slice(Cursor::value)?));
                Some(())
            });
            // The cut ends it: what follows is only that it ended there.
            cut.is_none().then_some(())
        })?;
        Some((Self(members), Self(inner)))
    }

    fn of_text(text: &'a str) -> Option<Self> {
        whole(text, Self::read)
    }

    /// Reads the object that begins here.
    fn read(at: &mut Cursor<'a>) -> Option<Self> {
        let mut members = Vec::with_capacity(USUAL_MEMBERS);
        at.members(|at, key| {
            members.push((name(key)?, at.slice(Cursor::value)?));
            Some(())
        })?;
        Some(Self(members))
    }

    /// Returns the unparsed text of a member; `None` if absent or null.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a str> {
        // Keys of one length mostly differ in their first byte; a call to compare the rest is dear beside that.
        let first = key.as_bytes().first();
        let is_key = |name: &str| name.as_bytes().first() == first && name == key;
        let (_, value) = self.0.iter().rev().find(|(name, _)| is_key(name))?;
        Some(*value).filter(|text| *text != "null")
    }

    /// Returns a text member.
    pub(crate) fn str(&self, key: &str) -> Option<Cow<'a, str>> {
        text(self.raw(key)?)
    }

    /// Returns a text member as an owned string.
    pub(crate) fn string(&self, key: &str) -> Option<String> {
        self.str(key).map(Cow::into_owned)
    }

    /// Returns whether a text member has this value.
    pub(crate) fn is(&self, key: &str, value: &str) -> bool {
        self.str(key).is_some_and(|text| text == value)
    }

    /// Returns a number member, rounded to a whole one; a number written as text counts.
    pub(crate) fn u64(&self, key: &str) -> Option<u64> {
        // Most numbers are whole.
        if let Ok(whole) = self.raw(key)?.parse::<u32>() {
            return Some(whole.into());
        }
        let number = self.f64(key)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
        (0.0..MOST).contains(&number).then(|| number.round() as u64)
    }

    /// Returns a number member.
    pub(crate) fn f64(&self, key: &str) -> Option<f64> {
        let raw = self.raw(key)?;
        raw.parse().ok().or_else(|| text(raw)?.parse().ok()).filter(|n: &f64| n.is_finite())
    }

    /// Returns a status: a number from 100 to 599.
    pub(crate) fn status(&self, key: &str) -> Option<u16> {
        self.u64(key).and_then(|n| u16::try_from(n).ok()).filter(|n| (100..600).contains(n))
    }

    /// Returns a boolean member.
    pub(crate) fn bool(&self, key: &str) -> Option<bool> {
        self.raw(key)?.parse().ok()
    }

    /// Returns an object member.
    pub(crate) fn object(&self, key: &str) -> Option<Object<'a>> {
        Self::of_text(self.raw(key)?)
    }

    /// Returns the elements of an array member that are objects; `None` if it is no array.
    pub(crate) fn objects(&self, key: &str) -> Option<Vec<Object<'a>>> {
        let mut objects = Vec::new();
        whole(self.raw(key)?, |at| at.elements(|element| objects.extend(Self::of_text(element))))?;
        Some(objects)
    }

    /// Returns the elements of an array member that are texts; `None` if it is no array.
    pub(crate) fn strings(&self, key: &str) -> Option<Vec<Cow<'a, str>>> {
        let mut texts = Vec::new();
        whole(self.raw(key)?, |at| at.elements(|element| texts.extend(text(element))))?;
        Some(texts)
    }

    /// Returns the number of elements of an array member.
    pub(crate) fn length(&self, key: &str) -> Option<u64> {
        let mut length = 0;
        whole(self.raw(key)?, |at| at.elements(|_| length += 1))?;
        Some(length)
    }

    /// Returns a time member: RFC 3339 or an epoch number.
    pub(crate) fn time(&self, key: &str) -> Option<DateTime<Utc>> {
        let raw = self.raw(key)?;
        if let Some(text) = text(raw) {
            return retryscope_events::read::parse_time_text(&text);
        }
        let value: Value = serde_json::from_str(raw).ok()?;
        retryscope_events::read::parse_time(&value)
    }

    /// Returns the members.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }
}

fn name(key: Quoted<'_>) -> Option<Cow<'_, str>> {
    key.plain().map(Cow::Borrowed).or_else(|| text(key.as_json()))
}

/// Returns the text of a JSON string; `None` for other values.
pub(crate) fn text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        Some(Cow::Borrowed(inner))
    } else {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    }
}

/// Returns the unparsed elements of an array; `None` for other values.
pub(crate) fn elements(array: &[u8]) -> Option<Vec<&str>> {
    let mut elements = Vec::new();
    whole(std::str::from_utf8(array).ok()?, |at| at.elements(|element| elements.push(element)))?;
    Some(elements)
}

/// Returns whether the bytes are one complete JSON value; tells a torn line from a broken one.
pub fn is_complete_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

/// How often a byte of a broken line is looked at for a record, on average: any line may hold any number of brackets.
const LOOKS: usize = 32;

/// Returns the records of a line that is none by itself, because a writer died before it wrote the end of its line and the
/// next one went on behind: whole objects up to the end of the line, after the beginning of one that stays broken, or none.
/// `None` if there is no such thing: what stands behind a text is quoted by it.
pub fn records_run_together(line: &[u8]) -> Option<Vec<&[u8]>> {
    // Zero bytes are what a crash leaves of lines that were not written out.
    if line.iter().find(|byte| **byte != 0 && !byte.is_ascii_whitespace()) != Some(&b'{') {
        return None;
    }
    // What is broken may be cut within a character.
    let end = line.utf8_chunks().last().filter(|chunk| chunk.invalid().is_empty())?.valid();
    let mut left = line.len() * LOOKS;
    let mut places = end.match_indices('{').map(|(at, _)| at);
    loop {
        let found = objects(end.get(places.next()?..)?, &mut left);
        if found.is_some() || left == 0 {
            return found;
        }
    }
}

/// Returns the objects that a text is made of; `None` if it holds anything else. Takes the bytes it looked at off `left`.
fn objects<'a>(text: &'a str, left: &mut usize) -> Option<Vec<&'a [u8]>> {
    let between = |c: char| c.is_ascii_whitespace() || c == '\0';
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut at = Cursor::at(rest, 0);
        let object = if at.peek() == Some(b'{') { at.slice(Cursor::value) } else { None };
        *left = left.saturating_sub(at.place() + 1);
        found.push(object?.as_bytes());
        rest = rest.get(at.place()..)?.trim_start_matches(between);
    }
    Some(found)
}

/// Returns whether `haystack` holds `needle`.
pub(crate) fn holds(haystack: &[u8], needle: &str) -> bool {
    memchr::memmem::find(haystack, needle.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::{Object, records_run_together};

    fn together(line: &str) -> Option<Vec<String>> {
        let found = records_run_together(line.as_bytes())?;
        Some(found.into_iter().map(|record| String::from_utf8_lossy(record).into_owned()).collect())
    }

    fn begin(line: &str, length: usize) -> &str {
        line.get(..length).unwrap_or(line)
    }

    #[test]
    fn records_that_run_together_are_told_apart() {
        let (one, two) = (r#"{"v":1,"a":{"b":"}{"}}"#, r#"{"v":1,"c":[{"d":2}]}"#);
        let both = Some(vec![one.to_owned(), two.to_owned()]);
        assert_eq!(together(&format!("{one}{two}")), both);
        assert_eq!(together(&format!("{one}\0\0 {two} ")), both);
        assert_eq!(together(&format!("\0\0{one}")), Some(vec![one.to_owned()]));
        // The first is cut: within a string, within an object, within its name.
        for cut in 1..one.len() {
            let after = together(&format!("{}{two}", begin(one, cut)));
            assert_eq!(after.unwrap_or_default().last().map(String::as_str), Some(two), "{cut}");
        }
        // Near misses: what has no whole record at its end, and what is quoted by a text.
        for line in [begin(one, 9), begin(two, two.len() - 1), "no record", ""] {
            assert_eq!(together(line), None, "{line}");
        }
        assert_eq!(together(&format!("{one}{}", begin(two, 10))), None);
        assert_eq!(together(&format!("repeated: {one}")), None);
        // Looked at from each bracket to the end, it would take as long as the square of its length.
        let nested = "{\"a\":".repeat(200_000);
        assert_eq!(together(&nested), None);
        assert_eq!(
            records_run_together(&[&b"{\"a\":\"\xc3"[..], two.as_bytes()].concat()),
            Some(vec![two.as_bytes()])
        );
    }

    #[test]
    fn a_member_read_along_is_what_reading_it_apart_gives() {
        for line in [
            r#"{"a":{"b":1},"a":2}"#,
            r#"{"a":2,"\u0061":{"b":1}}"#,
            r#"{"a":{"b":1},"a":null}"#,
            r#"{"a":{"b":1,"\ud800":{}}}"#,
            r#"{"a":{"b":[1,{"c":"\ud800"}],"\ud800":{}},"b":[[]]}"#,
            r#"{"a":{"b":{"c":1},"d":"x\ny"},"e":[{}]}"#,
            r#"{"a":{"b":1,}}"#,
            r#"{"\ud800":1}"#,
            r#"{"b":{"a":1}}"#,
            r#"{"a":[{"b":1}]}"#,
            "[]",
        ] {
            let apart = Object::parse(line.as_bytes()).map(|object| {
                let inner = object.object("a");
                (object, inner)
            });
            assert_eq!(Object::parse_with(line.as_bytes(), "a"), apart, "{line}");
        }
    }
}
