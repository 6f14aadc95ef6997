//! Dates with a time of day as sentences hold them: "2026-12-01 at 00:00 UTC", "Mar 17th, 2030 5:46 PM".

use chrono::{DateTime, Datelike, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};

/// What a clock shows at some moment, and where that clock hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) clock: NaiveDateTime,
    /// `None` where the text names no time zone.
    pub(super) zone: Option<FixedOffset>,
}

impl Written {
    /// The moment; `None` where the zone is not known, since any guess would be hours off.
    pub(super) fn moment(self) -> Option<DateTime<Utc>> {
        in_zone(self.clock, self.zone?)
    }
}

/// Returns the moment at which a clock in `zone` shows `clock`.
pub(super) fn in_zone(clock: NaiveDateTime, zone: FixedOffset) -> Option<DateTime<Utc>> {
    zone.from_local_datetime(&clock).single().map(|time| time.with_timezone(&Utc))
}

/// How far into a text a date is looked for, in characters: what comes later belongs to another sentence.
const NEAR: usize = 24;

/// Returns the first date with a time of day near the start of folded `text`. A date alone is none: its day is 24 hours
/// long.
pub(super) fn first_in(text: &str) -> Option<Written> {
    let mut previous = None;
    text.char_indices().take(NEAR).find_map(|(at, c)| {
        let begins_word = previous.is_none_or(|p: char| !p.is_ascii_alphanumeric());
        previous = Some(c);
        if !begins_word {
            return None;
        }
        let (day, rest) = day(text.get(at..)?)?;
        let (time, rest) = time_of_day(after_date(rest))?;
        Some(Written { clock: day.and_time(time), zone: zone(rest) })
    })
}

/// Returns the date with a time of day that stands near the end of folded `text`.
pub(super) fn near_end_of(text: &str) -> Option<Written> {
    let from = text.char_indices().rev().nth(2 * NEAR).map_or(0, |(at, _)| at);
    let tail = text.get(from..)?;
    tail.char_indices().find_map(|(at, _)| first_in(tail.get(at..)?))
}

/// What a clock in a known zone shows at the next reset, where a text leaves out the year, or the day, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recurring {
    /// Month and day; `None` for every day.
    day: Option<(u32, u32)>,
    time: NaiveTime,
    zone: FixedOffset,
}

impl Recurring {
    /// The first such moment after `base`.
    pub(super) fn next_after(self, base: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let today = base.with_timezone(&self.zone).date_naive();
        let days: [Option<NaiveDate>; 2] = match self.day {
            Some((month, day)) => {
                [0, 1].map(|later| NaiveDate::from_ymd_opt(today.year() + later, month, day))
            }
            None => [Some(today), today.succ_opt()],
        };
        let mut moments =
            days.into_iter().flatten().filter_map(|day| in_zone(day.and_time(self.time), self.zone));
        moments.find(|moment| *moment > base)
    }
}

/// Reads "3pm (utc)" and "jan 18, 11:30am (utc)" at the start of folded `text`; without a zone they are none.
pub(super) fn recurring(text: &str) -> Option<Recurring> {
    let text = after_date(text);
    let dated = month(text).and_then(|(month, rest)| {
        let (day, rest) = number(rest.trim_start_matches(['.', ' ']), 2)?;
        Some(((month, day), after_date(ordinal(rest))))
    });
    let (day, rest) = dated.map_or((None, text), |(day, rest)| (Some(day), rest));
    let (time, rest) = time_of_day(rest).or_else(|| whole_hour(rest))?;
    Some(Recurring { day, time, zone: zone(rest)? })
}

/// "3pm".
fn whole_hour(text: &str) -> Option<(NaiveTime, &str)> {
    let (hour, rest) = number(text, 2)?;
    half_of_day(hour, rest.trim_start())
        .and_then(|(hour, rest)| Some((NaiveTime::from_hms_opt(hour, 0, 0)?, rest)))
}

/// The hour on a clock of 24 hours, where "am" or "pm" follows.
fn half_of_day(hour: u32, half: &str) -> Option<(u32, &str)> {
    let rest = half.get(2..)?;
    match half.get(..2)? {
        "am" if (1..=12).contains(&hour) => Some((hour % 12, rest)),
        "pm" if (1..=12).contains(&hour) => Some((hour % 12 + 12, rest)),
        _ => None,
    }
}

fn after_date(rest: &str) -> &str {
    let rest = rest.trim_start_matches([',', ' ']);
    let rest = rest.strip_prefix("at ").unwrap_or(rest);
    rest.strip_prefix('t').unwrap_or(rest)
}

fn day(text: &str) -> Option<(NaiveDate, &str)> {
    iso_day(text).or_else(|| named_day(text))
}

/// "2026-12-01".
fn iso_day(text: &str) -> Option<(NaiveDate, &str)> {
    let day = text.get(..10).filter(|day| day.as_bytes().get(4) == Some(&b'-'))?;
    Some((NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()?, text.get(10..)?))
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// "mar 17th, 2030", "17 march 2030".
fn named_day(text: &str) -> Option<(NaiveDate, &str)> {
    let (month, number, rest) = if let Some((month, rest)) = month(text) {
        let (number, rest) = number(rest.trim_start_matches(['.', ' ']), 2)?;
        (month, number, ordinal(rest))
    } else {
        let (number, rest) = number(text, 2)?;
        let (month, rest) = month(ordinal(rest).trim_start())?;
        (month, number, rest)
    };
    let (year, rest) =
        self::number(rest.trim_start_matches(['.', ',', ' ']), 4).filter(|(y, _)| *y >= 1_000)?;
    Some((NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, number)?, rest))
}

fn month(text: &str) -> Option<(u32, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let word = text.get(..len).filter(|word| word.len() >= 3)?;
    let short = if word == "sept" { "sep" } else { word };
    let at = MONTHS.iter().position(|name| *name == word || name.get(..3) == Some(short))?;
    Some((u32::try_from(at).ok()? + 1, text.get(len..)?))
}

fn ordinal(text: &str) -> &str {
    ["st", "nd", "rd", "th"].iter().find_map(|suffix| text.strip_prefix(suffix)).unwrap_or(text)
}

/// "20:06:00", "00:00", "5:46 pm". Tenths of a second are dropped.
fn time_of_day(text: &str) -> Option<(NaiveTime, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, mut rest) = number(rest.strip_prefix(':')?, 2)?;
    let mut second = 0;
    if let Some((read, after)) = rest.strip_prefix(':').and_then(|rest| number(rest, 2)) {
        (second, rest) = (read, after);
        if let Some(fraction) = rest.strip_prefix('.') {
            rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
    }
    let (hour, rest) = half_of_day(hour, rest.trim_start()).unwrap_or((hour, rest));
    Some((NaiveTime::from_hms_opt(hour, minute, second)?, rest))
}

/// The zone behind a time of day: "z", "utc", "+08:00", also in brackets. Other names of zones are not read: some mean
/// several.
fn zone(rest: &str) -> Option<FixedOffset> {
    let rest = rest.trim_start_matches([' ', '(']);
    let names = ["utc", "gmt", "z"];
    let named = names
        .iter()
        .find_map(|name| rest.strip_prefix(name))
        .filter(|after| !after.starts_with(char::is_alphanumeric));
    match named {
        // "UTC+8" and "GMT-03:00".
        Some(after) if after.starts_with(['+', '-']) => offset(after),
        Some(_) => FixedOffset::east_opt(0),
        None => offset(rest),
    }
}

/// "+08:00", "-0330", "+8".
fn offset(text: &str) -> Option<FixedOffset> {
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = match number(text.get(1..)?, 4)? {
        (number, rest) if number_len(text.get(1..)?) <= 2 => {
            let minutes = rest.strip_prefix(':').and_then(|rest| self::number(rest, 2));
            (number, minutes.map_or(0, |(minutes, _)| minutes))
        }
        (number, _) => (number / 100, number % 100),
    };
    if minutes >= 60 {
        return None;
    }
    FixedOffset::east_opt(sign * i32::try_from(hours * 3_600 + minutes * 60).ok()?)
}

/// A number of at most `longest` digits that no further digit follows.
fn number(text: &str, longest: usize) -> Option<(u32, &str)> {
    let len = number_len(text);
    let rest = text.get(len..)?;
    (1..=longest).contains(&len).then(|| text.get(..len)?.parse().ok().map(|number| (number, rest)))?
}

fn number_len(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, clock: Option<&str>, moment: Option<i64>) {
        let got = first_in(&crate::unwrap::fold(text));
        assert_eq!(got.map(|w| w.clock.to_string()).as_deref(), clock, "{text}");
        assert_eq!(got.and_then(Written::moment).map(|at| at.timestamp()), moment, "{text}");
    }

    #[test]
    fn reads_what_a_clock_shows() {
        check("2026-12-01 at 00:00 UTC", Some("2026-12-01 00:00:00"), Some(1_796_083_200));
        check("Mar 17th, 2030 5:46 PM.", Some("2030-03-17 17:46:00"), None);
        check("Jan 1st, 2030 12:05 AM", Some("2030-01-01 00:05:00"), None);
        check("17 March 2030, 12:30 pm GMT", Some("2030-03-17 12:30:00"), Some(1_899_981_000));
        check("2026-08-06T20:06:00.250+08:00", Some("2026-08-06 20:06:00"), Some(1_786_017_960));
        check("2026-08-06 20:06 (UTC+8)", Some("2026-08-06 20:06:00"), Some(1_786_017_960));
        check("2026-08-06 20:06:00 +0800 CST", Some("2026-08-06 20:06:00"), Some(1_786_017_960));
        check("2026-08-06 08:36:00 UTC-0330", Some("2026-08-06 08:36:00"), Some(1_786_017_960));
        check("2026-08-06 20:06:00 +0890", Some("2026-08-06 20:06:00"), None);
        check("2026-08-06 20:06:00 +08000", Some("2026-08-06 20:06:00"), None);
    }

    #[test]
    fn what_recurs_is_next_after_the_failure() {
        let next = |text: &str, base: &str| {
            recurring(text)?.next_after(base.parse().ok()?).map(|at| at.to_rfc3339())
        };
        let check =
            |text, base, expected: Option<&str>| assert_eq!(next(text, base).as_deref(), expected, "{text}");
        check("3pm (utc)", "2026-11-30T12:00:00Z", Some("2026-11-30T15:00:00+00:00"));
        check("3pm (utc)", "2026-11-30T15:00:00Z", Some("2026-12-01T15:00:00+00:00"));
        check("1:30am (utc+8)", "2026-11-30T18:00:00Z", Some("2026-12-01T17:30:00+00:00"));
        check("jan 18, 11:30am (utc)", "2026-11-30T12:00:00Z", Some("2027-01-18T11:30:00+00:00"));
        for text in [
            "3pm",
            "3pm (america/los_angeles)",
            "jan 18, 11:30am",
            "3 (utc)",
            "25:00 (utc)",
            "thu 10:00 am (utc)",
        ] {
            check(text, "2026-11-30T12:00:00Z", None);
        }
    }

    #[test]
    fn takes_no_half_a_date() {
        for text in [
            "Mar 17th, 2030",
            "5:46 PM",
            "Jan 18, 11:30am",
            "2026-13-01 00:00 UTC",
            "Mar 17th, 2030 25:46",
            "march on to 17 things",
            "12026-12-01 00:00",
            "any time after a while, as of 2026-12-01 00:00 UTC",
        ] {
            check(text, None, None);
        }
        check("2026-12-01 00:00 EST", Some("2026-12-01 00:00:00"), None);
    }
}
