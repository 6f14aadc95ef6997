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
        let changed = request.fallbacks == 0 && are_other_models(asked, answered);
        changed.then(|| (asked.to_owned(), answered.to_owned(), last.origin))
    });
    let changed = silent.map(|(asked, answered, origin)| {
        Found::violation(
            format!("{asked} was asked, {answered} answered, and no fallback is recorded"),
            vec![origin],
        )
    });
    changed.or_else(|| shrunk(subject)).into_iter().collect()
}

/// Words of a name that say which date or edition of a model is meant, or that any will do.
const EDITIONS: &[&str] =
    &["latest", "preview", "exp", "experimental", "stable", "auto", "default", "chat", "v1", "v2"];

/// Names that models of the known providers begin with. Any other name is one that somebody gave: a deployment, a route.
const FAMILIES: &[&str] = &[
    "chatgpt",
    "claude",
    "codestral",
    "codex",
    "command",
    "deepseek",
    "devstral",
    "gemini",
    "gemma",
    "glm",
    "gpt",
    "grok",
    "kimi",
    "llama",
    "magistral",
    "minimax",
    "ministral",
    "mistral",
    "mixtral",
    "nova",
    "o1",
    "o3",
    "o4",
    "phi",
    "qwen",
];

/// Returns whether two names are surely of two models: of known families, both with a version, and not alike but for
/// provider, region, date and edition. What has no version names a family, and may stand for any of its models.
fn are_other_models(asked: &str, answered: &str) -> bool {
    let (asked, answered) = (parts(asked), parts(answered));
    let is_known = |parts: &[String]| {
        let family =
            parts.first().is_some_and(|first| FAMILIES.iter().any(|family| first.starts_with(family)));
        family && parts.iter().any(|part| part.bytes().any(|b| b.is_ascii_digit()))
    };
    let holds = |all: &[String], some: &[String]| some.iter().all(|part| all.contains(part));
    is_known(&asked) && is_known(&answered) && !(holds(&asked, &answered) && holds(&answered, &asked))
}

/// Takes a name of a model apart: without its provider's path and region, dates and editions.
fn parts(name: &str) -> Vec<String> {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let name = name.split(['[', ':', '@']).next().unwrap_or_default();
    // `us.anthropic.claude-...`: region and vendor before the name. A version has digits on both sides of its point.
    let name = match name.rsplit_once('.') {
        Some((_, after)) if !after.starts_with(|c: char| c.is_ascii_digit()) => after,
        _ => name,
    };
    let mut parts = Vec::new();
    let mut in_edition = false;
    for part in name.split(['-', '_', ' ']).filter(|part| !part.is_empty()) {
        let is_number = part.bytes().all(|b| b.is_ascii_digit());
        in_edition |= is_number && part.len() >= 4 || EDITIONS.contains(&part);
        // Month and day behind a year or an edition.
        if !(EDITIONS.contains(&part) || in_edition && is_number) {
            parts.push(part.to_owned());
        }
    }
    parts
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

#[cfg(test)]
mod tests {
    use super::are_other_models;

    #[test]
    fn two_names_of_one_model_are_told_from_two_models() {
        for (asked, answered) in [
            ("gpt-5", "gpt-5-2025-08-07"),
            ("gpt-4o-2024-11-20", "gpt-4o"),
            ("openai/gpt-5", "gpt-5"),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5-20250929"),
            ("claude-sonnet-4-5", "claude-sonnet-4-5@20250929"),
            ("claude-opus-4-5[1m]", "claude-opus-4-5"),
            ("mistral-large-latest", "mistral-large-2411"),
            ("gemini-flash-latest", "gemini-2.5-flash"),
            ("gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
            ("sonnet", "claude-sonnet-4-5"),
            ("openrouter/auto", "google/gemini-2.5-pro"),
            ("my-gpt4-deployment", "gpt-4o-2024-11-20"),
            ("accounts/fireworks/models/kimi-k2", "kimi-k2"),
            ("deepseek-chat", "deepseek-v3.2"),
        ] {
            assert!(!are_other_models(asked, answered), "{asked} {answered}");
        }
        for (asked, answered) in [
            ("gpt-4o", "gpt-4o-mini"),
            ("o3", "o3-mini"),
            ("claude-opus-5-5", "claude-haiku-5"),
            ("claude-sonnet-4-5", "claude-sonnet-4-20250514"),
            ("anthropic/claude-sonnet-4.5", "openai/gpt-5"),
            ("gemini-2.5-pro", "gemini-2.5-flash"),
        ] {
            assert!(are_other_models(asked, answered), "{asked} {answered}");
        }
    }
}
