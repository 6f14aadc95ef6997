//! Contradictions between the parts of a policy that can be read.

use std::collections::BTreeMap;

use super::{Findings, delays, keys::closest};
use crate::own::{
    CLASSES, Candidate, Idempotency, JitterRange, Limits, OwnPolicy, Recipients, RecipientsTo, Replay,
    Resolved, Row, Tool,
};

/// Classes of failure that sending the same request again cannot heal, and what does.
const HOPELESS: [(&str, &str); 6] = [
    ("exhausted", "the account is empty: fall back to another account or stop"),
    ("auth", "the key is refused: fix the key"),
    ("invalid_request", "the request is refused: fix the request"),
    ("too_large", "the request is too large: shrink it, which makes it a new request"),
    ("content", "the content is refused: change the prompt"),
    ("cancelled", "someone stopped it: do not go on"),
];

pub(super) fn check(policy: &OwnPolicy, findings: &mut Findings<'_>) {
    let defaults = policy.resolve("", "", "");
    limits(&["defaults"], &policy.defaults, &defaults, findings);
    for (index, row) in policy.rows.iter().enumerate() {
        let index = index.to_string();
        let place = ["rows", index.as_str()];
        row_keys(&place, row, findings);
        let part = |key: &Option<String>| key.clone().unwrap_or_default();
        let resolved = policy.resolve(&part(&row.provider), &part(&row.class), &part(&row.reason));
        limits(&place, &row.limits(), &resolved, findings);
    }
    repeated_rows(&policy.rows, findings);
    budget(policy, findings);
    chain(&policy.fallback.chain, findings);
    for (class, recipients) in &policy.recipients {
        self::recipients(class, recipients, &policy.fallback.chain, findings);
    }
    tools(&policy.tools, findings);
    layers(policy, &defaults, findings);
}

fn at<'a>(place: &[&'a str], key: &'a str) -> Vec<&'a str> {
    place.iter().copied().chain([key]).collect()
}

fn row_keys(place: &[&str], row: &Row, findings: &mut Findings<'_>) {
    if row.provider.is_none() && row.class.is_none() && row.reason.is_none() {
        findings.warning(
            place,
            "row-without-key",
            "row names no provider, class or reason",
            "move its limits to [defaults]",
        );
    }
    let Some(class) = &row.class else { return };
    if !CLASSES.contains(&class.as_str()) {
        let hint = closest(class, CLASSES.into_iter()).map_or_else(
            || format!("one of {}", CLASSES.join(", ")),
            |meant| format!("did you mean `{meant}`?"),
        );
        findings.error(
            &at(place, "class"),
            "unknown-class",
            &format!("`{class}` is not a failure class"),
            &hint,
        );
    }
    let hopeless = HOPELESS.iter().find(|(hopeless, _)| hopeless == class);
    if let (Some((_, cure)), Some(attempts)) = (hopeless, row.attempts.filter(|attempts| *attempts > 1)) {
        findings.error(
            &at(place, "attempts"),
            "hopeless-retry",
            &format!("{attempts} attempts for `{class}`, which sending again cannot heal"),
            &format!("set attempts = 1; {cure}"),
        );
    }
}

/// Checks limits that stand at `place`, against what is in force there.
fn limits(place: &[&str], written: &Limits, in_force: &Resolved, findings: &mut Findings<'_>) {
    if written.attempts == Some(0) {
        findings.error(
            &at(place, "attempts"),
            "no-attempt",
            "0 attempts means that no request is sent",
            "attempts counts the first try: 1 is no retry",
        );
    }
    if let Some(jitter) = written.jitter {
        self::jitter(&at(place, "jitter"), jitter, findings);
    }
    // An inherited limit is reported only where this place contributes to the contradiction.
    if (written.base_ms.is_some() || written.cap_ms.is_some()) && in_force.cap_ms < in_force.base_ms {
        let key = if written.cap_ms.is_some() { "cap_ms" } else { "base_ms" };
        findings.error(
            &at(place, key),
            "cap-below-base",
            &format!(
                "the longest wait ({} ms) is below the first ({} ms)",
                in_force.cap_ms, in_force.base_ms
            ),
            "raise cap_ms or lower base_ms",
        );
    } else if written.attempts.is_some() || written.base_ms.is_some() || written.total_ms.is_some() {
        let key = if written.total_ms.is_some() {
            "total_ms"
        } else if written.attempts.is_some() {
            "attempts"
        } else {
            "base_ms"
        };
        total(&at(place, key), in_force, findings);
    }
    if (written.retry_after_cap_ms.is_some() || written.total_ms.is_some())
        && in_force.retry_after_cap_ms > in_force.total_ms
        && in_force.attempts > 1
    {
        let key = if written.retry_after_cap_ms.is_some() { "retry_after_cap_ms" } else { "total_ms" };
        findings.warning(
            &at(place, key),
            "hint-beyond-total",
            &format!(
                "a server may ask for {} ms, but the whole answer has {} ms",
                in_force.retry_after_cap_ms, in_force.total_ms
            ),
            "lower retry_after_cap_ms to total_ms, so that a hopeless wait is refused at once",
        );
    }
}

fn total(place: &[&str], in_force: &Resolved, findings: &mut Findings<'_>) {
    if in_force.attempts < 2 {
        return;
    }
    let possible = delays::retries_within(in_force);
    if possible == 0 {
        findings.error(
            place,
            "total-below-first-wait",
            &format!(
                "{} ms in all is over before the first wait of {} ms ends: no retry is ever made",
                in_force.total_ms,
                delays::shortest(in_force, 1)
            ),
            "raise total_ms, lower base_ms, or set attempts = 1",
        );
    } else if possible < in_force.attempts - 1 {
        findings.warning(
            place,
            "total-cuts-attempts",
            &format!(
                "{} attempts do not fit into {} ms: after {} the time is over, even with the shortest waits",
                in_force.attempts,
                in_force.total_ms,
                possible + 1
            ),
            "raise total_ms or lower attempts, so that the file says what happens",
        );
    }
}

fn jitter(place: &[&str], jitter: JitterRange, findings: &mut Findings<'_>) {
    let is_sound = jitter.low >= 0.0 && jitter.low <= jitter.high && jitter.high.is_finite();
    if !is_sound {
        findings.error(
            place,
            "jitter-range",
            &format!("jitter from {} to {} is not a range of factors", jitter.low, jitter.high),
            "low is at least 0, and high at least low",
        );
    } else if (jitter.high - jitter.low).abs() < f64::EPSILON {
        findings.warning(
            place,
            "no-jitter",
            "no random part: clients that fail together come back together",
            "{ low = 0.5, high = 1.0 } spreads them",
        );
    }
}

fn repeated_rows(rows: &[Row], findings: &mut Findings<'_>) {
    let mut seen = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        let first = *seen.entry((&row.provider, &row.class, &row.reason)).or_insert(index);
        if first != index {
            findings.error(
                &["rows", &index.to_string()],
                "repeated-row",
                &format!("same provider, class and reason as row {}", first + 1),
                "merge the two: only one of them can win",
            );
        }
    }
}

fn budget(policy: &OwnPolicy, findings: &mut Findings<'_>) {
    let Some(budget) = policy.budget else { return };
    if !(budget.limit > 0.0 && budget.limit <= 1.0) {
        findings.error(
            &["budget", "limit"],
            "budget-limit",
            &format!("{} is not a share of requests", budget.limit),
            "a number above 0 and up to 1; 0.1 lets every tenth request be a retry",
        );
    }
    if budget.floor == 0 {
        findings.warning(
            &["budget", "floor"],
            "budget-floor",
            "with floor 0 a run with few requests can never retry",
            "set floor = 10",
        );
    }
}

fn chain(chain: &[String], findings: &mut Findings<'_>) {
    for (index, entry) in chain.iter().enumerate() {
        let position = index.to_string();
        let place = ["fallback", "chain", position.as_str()];
        if Candidate::parse(entry).is_none() {
            findings.error(
                &place,
                "candidate-form",
                &format!("`{entry}` does not name a candidate"),
                "write provider/model or provider/model@region",
            );
        } else if chain.iter().take(index).any(|earlier| earlier == entry) {
            findings.error(
                &place,
                "fallback-loop",
                &format!("`{entry}` is in the chain twice: it would be tried again after it failed"),
                "name each candidate once; use attempts for more tries",
            );
        }
    }
}

fn recipients(class: &str, recipients: &Recipients, chain: &[String], findings: &mut Findings<'_>) {
    let place = ["recipients", class];
    if recipients.to == RecipientsTo::AllowList && recipients.providers.is_empty() {
        findings.error(
            &at(&place, "to"),
            "empty-allow-list",
            &format!("the allow-list for `{class}` is empty"),
            "name providers = [...], or say to = \"same-provider\"",
        );
    }
    if recipients.to != RecipientsTo::AllowList && !recipients.providers.is_empty() {
        findings.warning(
            &at(&place, "providers"),
            "unused-providers",
            "providers count only with to = \"allow-list\"",
            "",
        );
    }
    let mut candidates = chain.iter().filter_map(|entry| Candidate::parse(entry));
    let Some(first) = candidates.next() else { return };
    for target in candidates {
        if let Some(refusal) = recipients.refusal(first, target) {
            findings.warning(
                &place,
                "recipient-not-allowed",
                &format!("`{class}` data never reaches fallback `{target}`: {refusal}"),
                "such runs fail instead of falling back; allow it, or name a candidate they may use",
            );
        }
    }
}

fn tools(tools: &[Tool], findings: &mut Findings<'_>) {
    for (index, tool) in tools.iter().enumerate() {
        let position = index.to_string();
        let place = ["tools", position.as_str()];
        let name = &tool.name;
        if tools.iter().take(index).any(|earlier| earlier.name == *name) {
            findings.error(
                &at(&place, "name"),
                "repeated-tool",
                &format!("`{name}` is there twice"),
                "merge the two",
            );
        }
        if tool.attempts == 0 {
            findings.error(
                &at(&place, "attempts"),
                "no-attempt",
                &format!("0 attempts means that `{name}` is never run"),
                "attempts counts the first run: 1 is no retry",
            );
        }
        match tool.idempotency {
            Idempotency::NonIdempotent if tool.attempts > 1 => findings.error(
                &at(&place, "attempts"),
                "unsafe-tool-retry",
                &format!("`{name}` is not idempotent, yet may run {} times", tool.attempts),
                "set attempts = 1, or give it an idempotency key and say idempotency = \"conditional\"",
            ),
            Idempotency::NonIdempotent if tool.replay == Replay::Auto => findings.error(
                &at(&place, "replay"),
                "unsafe-tool-replay",
                &format!("`{name}` is not idempotent, yet is replayed without asking"),
                "set replay = \"ask\" or \"never\"",
            ),
            Idempotency::Conditional if tool.replay == Replay::Auto => findings.warning(
                &at(&place, "replay"),
                "conditional-replay",
                &format!(
                    "`{name}` is replayed without asking: safe only if each call has the same idempotency key"
                ),
                "set replay = \"ask\" unless the key is certain",
            ),
            _ => {}
        }
    }
}

fn layers(policy: &OwnPolicy, defaults: &Resolved, findings: &mut Findings<'_>) {
    let mut product = defaults.attempts;
    let mut retrying = usize::from(defaults.attempts > 1);
    for (index, layer) in policy.layers.iter().enumerate() {
        let position = index.to_string();
        let place = ["layers", position.as_str()];
        if layer.attempts == 0 {
            findings.error(
                &at(&place, "attempts"),
                "no-attempt",
                "0 attempts means that no request is sent",
                "attempts counts the first try: 1 is no retry",
            );
        }
        if policy.layers.iter().take(index).any(|earlier| earlier.layer == layer.layer) {
            let message = format!("layer `{}` is there twice", layer.layer.as_str());
            findings.error(&at(&place, "layer"), "repeated-layer", &message, "merge the two");
        }
        product = product.saturating_mul(layer.attempts.max(1));
        retrying += usize::from(layer.attempts > 1);
        if layer.attempts > 1 && retrying > 1 {
            findings.warning(
                &at(&place, "attempts"),
                "layers-multiply",
                &format!(
                    "layer `{}` multiplies with the attempts around it: up to {product} requests for one answer",
                    layer.layer.as_str()
                ),
                "let one layer own the retries: set this one to 1",
            );
        }
    }
}
