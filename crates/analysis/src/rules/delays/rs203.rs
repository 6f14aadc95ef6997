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
            .filter(|a| a.failure.as_ref().is_none_or(|f| f.retry_after_ms.is_none()))
            .filter(|a| matches!(a.delay_source, None | Some(DelaySource::Backoff)))
            .filter_map(|a| Some((a.delay_ms?, a.origin)))
            .filter(|(delay, _)| *delay > 0)
            .collect();
        if planned.len() < ENOUGH {
            few.extend(planned.iter().map(|(_, origin)| *origin));
            continue;
        }
        let delays: Vec<u64> = planned.iter().map(|(delay, _)| *delay).collect();
        if let Some(shape) = formula(&delays) {
            let message =
                format!("{} planned waits {shape} to the millisecond (n = {})", planned.len(), planned.len());
            return vec![Found::violation(message, planned.iter().map(|(_, origin)| *origin).collect())];
        }
        return vec![Found::pass(format!("{} planned waits show jitter", planned.len()))];
    }
    if few.is_empty() {
        return Vec::new();
    }
    let message = format!("too few planned waits in a row to tell (n = {}; {ENOUGH} are needed)", few.len());
    vec![Found::unknown(message, few)]
}

/// Returns the shape of waits that follow one to the millisecond. A longest wait that comes twice at the end is taken for a
/// cap, where enough waits before it show the shape.
fn formula(delays: &[u64]) -> Option<&'static str> {
    let longest = delays.iter().copied().max()?;
    let free = delays.iter().take_while(|delay| **delay < longest).count();
    let has_cap = free >= ENOUGH && delays.len() > free + 1;
    let cap = if has_cap { longest } else { u64::MAX };
    let all = |next: &dyn Fn(u64) -> u64| delays.windows(2).all(|pair| pair[1] == next(pair[0]).min(cap));
    let step = delays.get(1)?.checked_sub(*delays.first()?)?;
    if step == 0 {
        return all(&|before| before).then_some("are all equal");
    }
    if all(&|before| before.saturating_mul(2)) {
        return Some("double each time");
    }
    all(&|before| before.saturating_add(step)).then_some("grow by the same step")
}

#[cfg(test)]
mod tests {
    use super::formula;

    #[test]
    fn a_cap_does_not_look_like_jitter() {
        assert_eq!(formula(&[500, 1000, 2000, 4000, 4000]), Some("double each time"));
        assert_eq!(formula(&[1000, 2000, 3000]), Some("grow by the same step"));
        assert_eq!(formula(&[700, 700, 700]), Some("are all equal"));
        assert_eq!(formula(&[1000, 2000, 3900]), None);
        assert_eq!(formula(&[2000, 1000, 500]), None);
        // Two waits alike at the end of two others show no shape.
        assert_eq!(formula(&[731, 1311, 1311]), None);
        assert_eq!(formula(&[731, 1311, 2600, 2600]), None);
    }
}
