//! RS105: the status says one thing, the text another.

use retryscope_events::ErrorSource;
use retryscope_taxonomy::Class;

use crate::explain::describe;
use crate::rules::{Check, Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS105",
    name: "class changed on the way",
    what: "An answer with a 5xx status whose text says that a quota is used up or a key is refused.",
    why: "No provider answers these with a server error: a gateway replaced the status. Whoever decides by status now retries what no retry can pass.",
    example: "A gateway answers 500 with the text \"insufficient_quota\".",
    instead: "Let the gateway hand on the provider's status, code and headers; decide by the body where it does not.",
    source: "https://github.com/BerriAI/litellm/issues",
    check: Check::Run(check),
};

/// Providers that answer so themselves (the table `minimax` of the taxonomy).
const SAY_SO: &[&str] = &["minimax"];

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut unknown = Vec::new();
    for attempt in subject.requests().flat_map(|(_, request)| &request.attempts) {
        let Some(failure) = &attempt.failure else { continue };
        let Some(status) = failure.status.filter(|status| *status >= 500) else { continue };
        let provider = attempt.candidate.provider.as_deref().unwrap_or_default().to_ascii_lowercase();
        if SAY_SO.contains(&provider.as_str()) {
            continue;
        }
        if matches!(failure.class, Class::Exhausted | Class::Auth) {
            let what = match failure.class {
                Class::Auth => "a refused key",
                _ => "a used-up quota",
            };
            let message = format!(
                "the status {status} says that the server failed, the text says {what}: something between changed the status"
            );
            return vec![Found::violation(message, vec![attempt.origin])];
        }
        let silent = failure.message.is_none() && failure.code.is_none();
        if silent && attempt.told.error_source == Some(ErrorSource::Gateway) {
            unknown.push((describe(failure), attempt.origin));
        }
    }
    let Some((what, origin)) = unknown.into_iter().next() else { return Vec::new() };
    let message = format!("a gateway answered {what}; what the provider behind it said is not in the log");
    vec![Found::unknown(message, vec![origin])]
}
