//! RS405: another model answered than was asked for, and nothing says why.

use crate::rules::{Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS405",
    name: "silent model change",
    what: "One model was asked for and another one answered, without a recorded fallback.",
    why: "Quality, price and the recipient of the data differ, and nobody was told.",
    example: "Asked for claude-opus-5-5, answered by claude-haiku-5.",
    instead: "Record a fallback with its reason, and show it to the person.",
    source: "https://docs.litellm.ai/docs/proxy/reliability",
    check,
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let silent = subject.requests().find_map(|(_, request)| {
        let asked = request.requested_model.as_deref()?;
        let last = request.attempts.last()?;
        let answered = last.candidate.model.as_deref()?;
        // An alias or a dated name of the same model is no change.
        let same = answered.starts_with(asked) || asked.starts_with(answered);
        (request.fallbacks == 0 && !same).then(|| (asked.to_owned(), answered.to_owned(), last.origin))
    });
    silent
        .map(|(asked, answered, origin)| {
            Found::violation(
                format!("{asked} was asked, {answered} answered, and no fallback is recorded"),
                vec![origin],
            )
        })
        .into_iter()
        .collect()
}
