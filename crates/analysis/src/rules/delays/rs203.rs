//! RS203: waits without any randomness.

use retryscope_events::DelaySource;

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS203",
    name: "no jitter",
    what: "Three or more planned waits follow the same formula to the millisecond.",
    why: "Runs that fail together come back together, and hit the provider at the same moment again.",
    example: "2000, 4000 and 8000 ms, in every run.",
    instead: "Draw each wait at random between zero and the back-off (full jitter), or at least spread it widely.",
    source: "https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/",
    check: Check::Run(check),
};

/// Waits that are needed to tell: two may be equal by chance.
const ENOUGH: usize = 3;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut few = Vec::new();
    for (_, request) in subject.requests() {
        let planned: Vec<(u64, retryscope_record::Origin)> = request
            .attempts
            .iter()
            .filter(|a| match a.delay_source {
                Some(source) => source == DelaySource::Backoff,
                None => a.failure.as_ref().is_none_or(|f| f.retry_after_ms.is_none()),
            })
            .filter_map(|a| Some((a.delay_ms?, a.origin)))
            .filter(|(delay, _)| *delay > 0)
            .collect();
        if planned.len() < ENOUGH {
            few.extend(planned.iter().map(|(_, origin)| *origin));
            continue;
        }
        let delays: Vec<u64> = planned.iter().map(|(delay, _)| *delay).collect();
        let evidence = planned.iter().map(|(_, origin)| *origin).collect();
        return vec![match shape_of(&delays) {
            Shape::Fixed(shape) => Found::violation(
                format!("{} planned waits {shape} to the millisecond (n = {})", planned.len(), planned.len()),
                evidence,
            ),
            Shape::Unclear => Found::unknown(
                format!("{} planned waits reach a longest one too soon to tell", planned.len()),
                evidence,
            ),
            Shape::Random => Found::pass(format!("{} planned waits show jitter", planned.len())),
        }];
    }
    if few.is_empty() {
        return Vec::new();
    }
    let message = format!("too few planned waits in a row to tell (n = {}; {ENOUGH} are needed)", few.len());
    vec![Found::unknown(message, few)]
}

/// What waits in a row look like.
#[derive(Debug, PartialEq, Eq)]
enum Shape {
    /// They follow a formula.
    Fixed(&'static str),
    /// They may follow one up to a longest wait; too few come before that.
    Unclear,
    /// They follow none.
    Random,
}

/// Returns the shape of waits. A longest wait that comes more than once at the end is taken for a cap; below it two steps must
/// follow a formula, or the longest must come three times, which it would not by chance.
fn shape_of(delays: &[u64]) -> Shape {
    let longest = delays.iter().copied().max().unwrap_or(0);
    let at_the_end = delays.iter().rev().take_while(|delay| **delay == longest).count();
    let cap = if at_the_end > 1 { longest } else { u64::MAX };
    let step = match delays {
        [first, second, ..] => second.saturating_sub(*first),
        _ => 0,
    };
    let formulas: [(&str, &dyn Fn(u64) -> u64); 3] = [
        ("are all equal", &|before| before),
        ("double each time", &|before| before.saturating_mul(2)),
        ("grow by the same step", &|before| before.saturating_add(step)),
    ];
    let mut shape = Shape::Random;
    for (name, next) in formulas {
        let pairs = || delays.windows(2);
        if !pairs().all(|pair| pair[1] == next(pair[0]).min(cap)) {
            continue;
        }
        let told = pairs().filter(|pair| pair[1] == next(pair[0])).count();
        if told >= ENOUGH - 1 || at_the_end >= ENOUGH {
            return Shape::Fixed(name);
        }
        shape = Shape::Unclear;
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::{Shape, shape_of};

    #[test]
    fn a_cap_does_not_look_like_jitter() {
        let fixed = |delays: &[u64]| match shape_of(delays) {
            Shape::Fixed(name) => name,
            Shape::Unclear => "unclear",
            Shape::Random => "random",
        };
        assert_eq!(fixed(&[500, 1000, 2000, 4000, 4000]), "double each time");
        assert_eq!(fixed(&[500, 1000, 2000, 2000]), "double each time");
        assert_eq!(fixed(&[500, 1000, 1000, 1000, 1000]), "double each time");
        assert_eq!(fixed(&[1000, 2000, 3000]), "grow by the same step");
        assert_eq!(fixed(&[700, 700, 700]), "are all equal");
        assert_eq!(fixed(&[1000, 2000, 3900]), "random");
        assert_eq!(fixed(&[2000, 1000, 500]), "random");
        assert_eq!(fixed(&[731, 1311, 2600, 2600]), "random");
        // Two waits alike at the end show neither.
        assert_eq!(fixed(&[731, 1311, 1311]), "unclear");
        assert_eq!(fixed(&[2000, 4000, 5000, 5000]), "unclear");
    }
}
