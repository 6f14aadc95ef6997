//! Values of one line as they stand there, and what the fields of an event make of them.
//!
//! Not for: which field a value belongs to (see the module above).

use std::borrow::Cow;

use chrono::{DateTime, NaiveDate, Utc};
use retryscope_json::{Cursor, Quoted};
use serde_json::Value;

use super::{members, part};
use crate::body::BudgetState;
use crate::read::parse_time;
use crate::values::{
    AttemptKind, AttemptOutcome, Candidate, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Sent,
    Source, ToolStatus, Usage,
};

/// Memory of texts that are no longer needed, for the ones to come.
#[derive(Debug, Default)]
pub(crate) struct Spare(Vec<String>);

/// Texts that are kept, and the largest of them: an event has no more that are short.
const SPARE_TEXTS: usize = 32;
const SPARE_LENGTH: usize = 256;

impl Spare {
    fn string(&mut self, text: &str) -> String {
        let mut string = self.0.pop().unwrap_or_default();
        string.push_str(text);
        string
    }

    pub(crate) fn give(&mut self, mut string: String) {
        if self.0.len() < SPARE_TEXTS && (1..=SPARE_LENGTH).contains(&string.capacity()) {
            string.clear();
            self.0.push(string);
        }
    }
}

/// What a field can be read from without the long way.
pub(crate) trait FromRaw: Sized {
    /// Returns the value; `None` for what only the long way understands.
    fn from_raw(raw: Raw<'_>, spare: &mut Spare) -> Option<Self>;

    /// Gives back the memory of a value that is no longer needed.
    fn give_back(self, _spare: &mut Spare) {}

    /// Puts a value into a field, in the place of the one before.
    fn put_into(self, field: &mut Option<Self>, spare: &mut Spare) {
        if let Some(before) = field.replace(self) {
            before.give_back(spare);
        }
    }
}

impl FromRaw for String {
    fn from_raw(raw: Raw<'_>, spare: &mut Spare) -> Option<Self> {
        raw.string(spare)
    }

    fn give_back(self, spare: &mut Spare) {
        spare.give(self);
    }
}

impl FromRaw for Candidate {
    fn from_raw(raw: Raw<'_>, spare: &mut Spare) -> Option<Self> {
        let Raw::Object(text) = raw else { return None };
        candidate(text, spare).or_else(|| serde_json::from_str(text).ok())
    }

    fn give_back(self, spare: &mut Spare) {
        let Candidate { provider, model, alias, endpoint, region, account, transport } = self;
        for part in [provider, model, alias, endpoint, region, account, transport].into_iter().flatten() {
            spare.give(part);
        }
    }
}

/// Declares how other types are read.
macro_rules! from_raw {
    ($($raw:ident => $read:expr, for $($of:ty),+;)+) => {
        $($(impl FromRaw for $of {
            fn from_raw($raw: Raw<'_>, _spare: &mut Spare) -> Option<Self> {
                $read
            }
        })+)+
    };
}

from_raw! {
    raw => raw.whole(), for u64;
    raw => u16::try_from(raw.whole()?).ok(), for u16;
    raw => if let Raw::Flag(flag) = raw { Some(flag) } else { None }, for bool;
    raw => raw.time(), for DateTime<Utc>;
    raw => Self::from_word(raw.text()?),
        for AttemptKind, AttemptOutcome, Decision, DelaySource, ErrorSource, FallbackKind, Layer, Source, ToolStatus;
    raw => raw.sent(), for Sent;
    raw => raw.object(|text| usage(text).or_else(|| serde_json::from_str(text).ok())), for Usage;
    raw => raw.object(|text| serde_json::from_str(text).ok()), for BudgetState;
    _raw => None, for f64, Value, Vec<Candidate>, Vec<Option<Value>>, Vec<String>, Vec<Value>;
}

/// Reads a candidate as it is usually written.
fn candidate(text: &str, spare: &mut Spare) -> Option<Candidate> {
    let mut candidate = Some(Candidate::default());
    members(text, |name, _, value| part(&mut candidate, name, value, spare))?;
    candidate
}

/// Reads tokens as they are usually written.
fn usage(text: &str) -> Option<Usage> {
    let mut usage = Usage::default();
    members(text, |name, _, value| {
        if value.is_null() {
            return Some(());
        }
        let field = match name {
            "input_tokens" => &mut usage.input_tokens,
            "output_tokens" => &mut usage.output_tokens,
            "cached_input_tokens" => &mut usage.cached_input_tokens,
            "reasoning_tokens" => &mut usage.reasoning_tokens,
            _ => return None,
        };
        *field = Some(value.whole()?);
        Some(())
    })?;
    Some(usage)
}

/// A value, not copied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw<'a> {
    Null,
    /// A text without escapes.
    Text(&'a str),
    /// A text with escapes.
    Escaped(Quoted<'a>),
    /// A whole number without sign; others are rare.
    Whole(u64),
    Flag(bool),
    /// An object, unparsed.
    Object(&'a str),
}

impl<'a> Raw<'a> {
    /// Reads the value that stands here.
    pub(super) fn read(at: &mut Cursor<'a>) -> Option<Self> {
        if at.peek()? == b'"' {
            let quoted = at.string()?;
            return Some(quoted.plain().map_or(Raw::Escaped(quoted), Raw::Text));
        }
        let text = at.slice(Cursor::value)?;
        match text.as_bytes() {
            b"null" => Some(Raw::Null),
            b"true" => Some(Raw::Flag(true)),
            b"false" => Some(Raw::Flag(false)),
            [b'{', ..] => Some(Raw::Object(text)),
            _ => text.parse().ok().map(Raw::Whole),
        }
    }

    pub(super) fn is_null(self) -> bool {
        matches!(self, Raw::Null)
    }

    pub(super) fn text(self) -> Option<&'a str> {
        if let Raw::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn string(self, spare: &mut Spare) -> Option<String> {
        match self {
            Raw::Text(text) => Some(spare.string(text)),
            Raw::Escaped(quoted) => {
                serde_json::from_str::<Cow<'_, str>>(quoted.as_json()).ok().map(Cow::into_owned)
            }
            _ => None,
        }
    }

    pub(super) fn whole(self) -> Option<u64> {
        if let Raw::Whole(number) = self { Some(number) } else { None }
    }

    fn object<T>(self, read: impl FnOnce(&'a str) -> Option<T>) -> Option<T> {
        if let Raw::Object(text) = self { read(text) } else { None }
    }

    fn sent(self) -> Option<Sent> {
        match self {
            Raw::Flag(true) => Some(Sent::Yes),
            Raw::Flag(false) => Some(Sent::No),
            Raw::Text(word) => Sent::from_word(word),
            _ => None,
        }
    }

    pub(super) fn time(self) -> Option<DateTime<Utc>> {
        match self {
            Raw::Text(text) => plain_time(text).or_else(|| parse_time(&Value::from(text))),
            Raw::Whole(number) => parse_time(&Value::from(number)),
            _ => None,
        }
    }
}

/// Reads `2026-07-01T10:00:00Z` with up to nine decimals; `None` for any other form.
fn plain_time(text: &str) -> Option<DateTime<Utc>> {
    let bytes = text.as_bytes();
    let (date_time, fraction) = bytes.split_at_checked(19)?;
    let digits = |from: usize, to: usize| -> Option<u32> {
        date_time[from..to]
            .iter()
            .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
    };
    let separators = [date_time[4], date_time[7], date_time[10], date_time[13], date_time[16]];
    if &separators != b"--T::" {
        return None;
    }
    let fraction = fraction.strip_suffix(b"Z")?;
    let nanos = match fraction.split_first() {
        None => 0,
        Some((b'.', decimals)) if (1..=9).contains(&decimals.len()) => {
            let mut nanos = 0;
            for index in 0..9 {
                let digit = *decimals.get(index).unwrap_or(&b'0');
                if !digit.is_ascii_digit() {
                    return None;
                }
                nanos = nanos * 10 + u32::from(digit - b'0');
            }
            nanos
        }
        Some(_) => return None,
    };
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    // A leap second is for the long way.
    let date = NaiveDate::from_ymd_opt(i32::try_from(digits(0, 4)?).ok()?, digits(5, 7)?, digits(8, 10)?)?;
    Some(date.and_hms_nano_opt(hour, minute, second, nanos)?.and_utc())
}
