//! Durations as providers write them, in whole-number arithmetic: a float would turn 4.77 s into 4771 ms.

/// Waits beyond this (about 31 years) are noise, not statements.
const LONGEST_MS: u64 = 1_000_000_000_000;

/// A wait and how finely it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    /// Rounded up.
    pub(super) ms: u64,
    /// Whether it was written more finely than in whole seconds.
    pub(super) fine: bool,
}

impl Wait {
    pub(super) fn from_nanos(nanos: u128) -> Option<Self> {
        let ms = u64::try_from(nanos.div_ceil(1_000_000)).ok().filter(|ms| *ms <= LONGEST_MS)?;
        Some(Self { ms, fine: !nanos.is_multiple_of(SECOND) })
    }
}

/// A unit name and its length in nanoseconds. Longer names stand before their own beginnings.
const UNITS: &[(&str, u128)] = &[
    ("milliseconds", 1_000_000),
    ("millisecond", 1_000_000),
    ("millis", 1_000_000),
    ("msec", 1_000_000),
    ("ms", 1_000_000),
    ("microseconds", 1_000),
    ("µs", 1_000),
    ("us", 1_000),
    ("毫秒", 1_000_000),
    ("ミリ秒", 1_000_000),
    ("minutes", MINUTE),
    ("minute", MINUTE),
    ("minuten", MINUTE),
    ("minutos", MINUTE),
    ("minuto", MINUTE),
    ("minuti", MINUTE),
    ("mins", MINUTE),
    ("min", MINUTE),
    ("分钟", MINUTE),
    ("分鐘", MINUTE),
    ("分", MINUTE),
    ("분", MINUTE),
    ("m", MINUTE),
    ("seconds", SECOND),
    ("second", SECOND),
    ("secondes", SECOND),
    ("seconde", SECOND),
    ("sekunden", SECOND),
    ("sekunde", SECOND),
    ("segundos", SECOND),
    ("segundo", SECOND),
    ("secondi", SECOND),
    ("secs", SECOND),
    ("sec", SECOND),
    ("秒钟", SECOND),
    ("秒", SECOND),
    ("초", SECOND),
    ("s", SECOND),
    ("hours", HOUR),
    ("hour", HOUR),
    ("heures", HOUR),
    ("heure", HOUR),
    ("horas", HOUR),
    ("hora", HOUR),
    ("stunden", HOUR),
    ("stunde", HOUR),
    ("hrs", HOUR),
    ("hr", HOUR),
    ("小时", HOUR),
    ("小時", HOUR),
    ("時間", HOUR),
    ("시간", HOUR),
    ("h", HOUR),
    ("weeks", 7 * DAY),
    ("week", 7 * DAY),
    ("days", DAY),
    ("day", DAY),
    ("tagen", DAY),
    ("tage", DAY),
    ("tag", DAY),
    ("jours", DAY),
    ("jour", DAY),
    ("días", DAY),
    ("día", DAY),
    ("天", DAY),
    ("日", DAY),
    ("일", DAY),
    ("d", DAY),
    ("секунд", SECOND),
    ("сек", SECOND),
    ("минут", MINUTE),
    ("мин", MINUTE),
    ("часов", HOUR),
    ("часа", HOUR),
    ("час", HOUR),
    ("дней", DAY),
    ("дня", DAY),
    ("день", DAY),
];

const SECOND: u128 = 1_000_000_000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;

/// Reads a duration with units at the start of lower-case `text`: "494ms", "1m2.3s", "5 days 22 hours".
pub(super) fn parse_prefix(text: &str) -> Option<Wait> {
    let mut rest = text.trim_start();
    let mut nanos = None::<u128>;
    while let Some((number, after_number)) = decimal(rest).or_else(|| number_word(rest)) {
        let Some((unit, after_unit)) = unit(after_number) else { break };
        nanos = Some(nanos.unwrap_or(0).checked_add(number.checked_mul(unit)? / SCALE)?);
        let after_comma = after_unit.trim_start().trim_start_matches(',').trim_start();
        rest = ["and ", "und ", "et ", "y "]
            .iter()
            .find_map(|word| after_comma.strip_prefix(word))
            .unwrap_or(after_comma);
    }
    nanos.and_then(Wait::from_nanos)
}

/// Reads a duration as a clock shows it at the start of `text`: "00:59:30", and with days "1.02:00:00".
///
/// Two numbers are none: "10:30" may be minutes and seconds, or a time of day.
pub(super) fn parse_clock(text: &str) -> Option<Wait> {
    let whole = |text: &'_ str| -> Option<(u128, usize)> {
        let len = digits(text);
        (1..=2).contains(&len).then(|| text.get(..len)?.parse().ok().map(|number| (number, len)))?
    };
    let text = text.trim_start();
    let days = whole(text).filter(|(_, len)| text.get(*len..).is_some_and(|rest| rest.starts_with('.')));
    let (days, mut rest) = match days {
        Some((days, len)) => (days, text.get(len + 1..)?),
        None => (0, text),
    };
    let mut parts = [0_u128; 3];
    for (place, part) in parts.iter_mut().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix(':')?;
        }
        let (number, len) = whole(rest)?;
        (*part, rest) = (number, rest.get(len..)?);
    }
    let [hours, minutes, seconds] = parts;
    let is_one =
        minutes < 60 && seconds < 60 && !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':');
    is_one.then(|| Wait::from_nanos(days * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND))?
}

/// Reads a whole text as a duration: with units, or as a bare number of `unit_ms` milliseconds.
pub(super) fn parse_whole(text: &str, unit_ms: u128) -> Option<Wait> {
    let text = text.trim();
    match decimal(text) {
        Some((number, "")) => Wait::from_nanos(number.checked_mul(unit_ms * 1_000_000)? / SCALE),
        _ => parse_prefix(&text.to_lowercase()),
    }
}

/// Reads a bare number of seconds at the start of `text`, one that no unit or date follows.
pub(super) fn parse_bare_seconds(text: &str) -> Option<Wait> {
    parse_bare(text, SECOND)
}

/// As [`parse_bare_seconds`], of milliseconds.
pub(super) fn parse_bare_millis(text: &str) -> Option<Wait> {
    parse_bare(text, SECOND / 1_000)
}

fn parse_bare(text: &str, unit: u128) -> Option<Wait> {
    let (number, after) = decimal(text.trim_start())?;
    let ends =
        after.chars().next().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '-' | ':' | '/' | '%'));
    if ends { Wait::from_nanos(number.checked_mul(unit)? / SCALE) } else { None }
}

/// Decimals are kept to nine places.
const SCALE: u128 = 1_000_000_000;

/// Reads a decimal number; returns it times [`SCALE`], and the rest.
fn decimal(text: &str) -> Option<(u128, &str)> {
    let whole_len = digits(text);
    if whole_len == 0 || whole_len > 15 {
        return None;
    }
    let mut whole: u128 = text.get(..whole_len)?.parse().ok()?;
    let mut rest = text.get(whole_len..)?;
    if whole_len <= 3 {
        // "1,200".
        while let Some(group) = rest.strip_prefix(',').filter(|group| digits(group) == 3) {
            whole = whole.checked_mul(1_000)?.checked_add(group.get(..3)?.parse().ok()?)?;
            rest = group.get(3..)?;
        }
        if whole > 1_000_000_000_000_000 {
            return None;
        }
    }
    let fraction = rest.strip_prefix('.').map(|tail| (digits(tail), tail)).filter(|(len, _)| *len > 0);
    let Some((len, tail)) = fraction else { return Some((whole * SCALE, rest)) };
    let kept = len.min(9);
    let places = u32::try_from(kept).ok()?;
    let mut part: u128 = tail.get(..kept)?.parse::<u128>().ok()? * 10_u128.pow(9 - places);
    // Further places can only push a wait up, never down.
    if tail.get(kept..len).is_some_and(|more| more.bytes().any(|b| b != b'0')) {
        part += 1;
    }
    Some((whole * SCALE + part, tail.get(len..)?))
}

/// Numbers that people write as words.
const NUMBER_WORDS: &[(&str, u128)] = &[
    ("one ", 1),
    ("two ", 2),
    ("three ", 3),
    ("four ", 4),
    ("five ", 5),
    ("ten ", 10),
    ("fifteen ", 15),
    ("thirty ", 30),
    ("sixty ", 60),
];

/// Whether lower-case `text` may hold a duration that is written in words alone.
pub(super) fn has_number_word(text: &str) -> bool {
    ["minute", "second", "hour"].iter().any(|unit| text.contains(unit))
        && NUMBER_WORDS.iter().any(|(word, _)| text.contains(word))
}

fn number_word(text: &str) -> Option<(u128, &str)> {
    NUMBER_WORDS.iter().find_map(|&(word, number)| Some((number * SCALE, text.strip_prefix(word)?)))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn unit(text: &str) -> Option<(u128, &str)> {
    let text = text.trim_start().trim_start_matches('个');
    UNITS
        .iter()
        .filter_map(|&(name, nanos)| {
            let rest = text.strip_prefix(name)?;
            // "5 msgs" is no five minutes; "1m2s" goes on with a digit.
            let whole_word = !name.is_ascii() || !rest.starts_with(|c: char| c.is_ascii_alphabetic());
            whole_word.then_some((name.len(), nanos, rest))
        })
        .max_by_key(|(len, _, _)| *len)
        .map(|(_, nanos, rest)| (nanos, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected_ms: Option<u64>) {
        assert_eq!(parse_prefix(text).map(|wait| wait.ms), expected_ms, "{text}");
    }

    #[test]
    fn reads_the_usual_forms() {
        check("494ms", Some(494));
        check("4.77s.", Some(4_770));
        check("20.04466179s", Some(20_045));
        check("1m2.3s", Some(62_300));
        check("1 seconds", Some(1_000));
        check("5 days 22 hours 11 minutes.", Some(511_860_000));
        check("1 hour, 3 minutes and 2 seconds", Some(3_782_000));
        check("2小时30分钟后", Some(9_000_000));
        check("20 sekunden", Some(20_000));
        check("7.66s", Some(7_660));
        check("one minute and 5 seconds", Some(65_000));
        check("1,200 seconds", Some(1_200_000));
        check("12,00 seconds", None);
    }

    #[test]
    fn needs_a_unit() {
        check("5 msgs", None);
        check("2026-08-06", None);
        check("a moment", None);
        check("1500", None);
    }

    #[test]
    fn as_a_clock_shows_it() {
        let clock = |text: &str| parse_clock(text).map(|wait| wait.ms);
        assert_eq!(clock("00:59:30."), Some(3_570_000));
        assert_eq!(clock("1.02:00:00"), Some(93_600_000));
        for text in ["10:30", "10:30 pm", "00:61:00", "1:2:3:4", "2026-01-01", "10:30:00z"] {
            assert_eq!(clock(text), None, "{text}");
        }
    }

    #[test]
    fn whole_texts() {
        assert_eq!(parse_whole("1.2", 1000), Some(Wait { ms: 1200, fine: true }));
        assert_eq!(parse_whole("26s", 1000), Some(Wait { ms: 26_000, fine: false }));
        assert_eq!(parse_whole("250.5", 1), Some(Wait { ms: 251, fine: true }));
        assert_eq!(parse_whole("-3", 1000), None);
        assert_eq!(parse_whole("NaN", 1000), None);
    }
}
