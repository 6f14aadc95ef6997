//! RS405: another model answered than was asked for, and nothing says why.

use retryscope_record::Origin;

use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS405",
    name: "silent model change",
    what: "One model was asked for and another one answered, without a recorded fallback. A context that lost more than half of its tokens without a compaction is shown as unknown.",
    why: "Quality, price and the recipient of the data differ, and nobody was told.",
    example: "Asked for claude-opus-5-5, answered by claude-haiku-5.",
    instead: "Record a fallback with its reason, and show it to the person.",
    source: "https://docs.litellm.ai/docs/proxy/reliability",
    check: Check::Run(check),
};

/// Contexts below this many tokens shrink for many reasons.
const LARGE: u64 = 20_000;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let silent = subject.requests().find_map(|(_, request)| {
        let asked = request.requested_model.as_deref()?;
        let last = request.attempts.last()?;
        let answered = last.candidate.model.as_deref()?;
        // An alias or a dated name of the same model is no change.
        let same = answered.starts_with(asked) || asked.starts_with(answered);
        (request.fallbacks == 0 && !same).then(|| (asked.to_owned(), answered.to_owned(), last.origin))
    });
    let changed = silent.map(|(asked, answered, origin)| {
        Found::violation(
            format!("{asked} was asked, {answered} answered, and no fallback is recorded"),
            vec![origin],
        )
    });
    changed.or_else(|| shrunk(subject)).into_iter().collect()
}

/// A context that lost more than half of its tokens between two answers, in a run that shows no compaction: something may
/// have cut it, or the person began anew.
fn shrunk(subject: &Subject<'_>) -> Option<Found> {
    let side = subject.run.turns.iter().flat_map(|turn| &turn.requests);
    if side
        .filter_map(|request| request.purpose.as_deref())
        .any(|what| what.contains("compact") || what == "summary")
    {
        return None;
    }
    let answers: Vec<(u64, Origin)> = subject
        .requests()
        .filter(|(_, request)| request.outcome.is_ok())
        .filter_map(|(_, request)| {
            let usage = request.usage.as_ref()?;
            Some((usage.input_tokens? + usage.cached_input_tokens.unwrap_or(0), request.origin))
        })
        .collect();
    let (before, after) = answers
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .find(|((before, _), (after, _))| *before >= LARGE && after * 2 < *before)?;
    let message = format!(
        "the context went from {} to {} tokens, and no compaction is in the log: why is not known",
        before.0, after.0
    );
    Some(Found::unknown(message, vec![before.1, after.1]))
}
