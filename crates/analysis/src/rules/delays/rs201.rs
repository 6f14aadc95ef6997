//! RS201: the provider stated a wait, and the next attempt came earlier.

use crate::rules::{Check, Found, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS201",
    name: "stated wait not kept",
    what: "The provider stated a wait (Retry-After, body or text), and the request was sent again before it was over.",
    why: "It cannot succeed before; each early try is refused, counts against the limit, and uses up an attempt.",
    example: "The text says \"try again in 59 s\", and three retries follow after 2, 4 and 8 s.",
    instead: "Wait at least as long as stated, plus some jitter; if that is too long for the run, fail at once and say when.",
    source: "https://www.rfc-editor.org/rfc/rfc9110#field.retry-after",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut early = Vec::new();
    let mut worst: Option<(u64, u64)> = None;
    let mut kept = 0;
    let mut unknown = Vec::new();
    for (_, failed, next) in subject.repeats() {
        let Some(asked) = failed.failure.as_ref().and_then(|f| f.retry_after_ms) else { continue };
        // The wait was stated to another account.
        if failed.changed.iter().any(|what| what == "credential" || what == "account") {
            continue;
        }
        match failed.waited_ms.or(failed.delay_ms) {
            // Two clocks, and times that are rounded, differ by a little.
            Some(waited) if waited + asked / 50 + 50 < asked => {
                if worst.is_none_or(|(a, w)| asked - waited > a - w) {
                    worst = Some((asked, waited));
                }
                early.push(next.origin);
            }
            Some(_) => kept += 1,
            None => unknown.push(failed.origin),
        }
    }
    if let Some((asked, waited)) = worst {
        let message = format!(
            "the provider asked to wait {} and the next request came after {} ({} of {} stated waits not kept)",
            words::span(asked),
            words::span(waited),
            early.len(),
            early.len() + kept,
        );
        return vec![Found::violation(message, early).fix(subject.setting_for("stated_wait"))];
    }
    if !unknown.is_empty() {
        return vec![Found::unknown(
            "a wait was stated; how long was really waited is not in the log",
            unknown,
        )];
    }
    if kept > 0 { vec![Found::pass(format!("{kept} stated waits were kept"))] } else { Vec::new() }
}
