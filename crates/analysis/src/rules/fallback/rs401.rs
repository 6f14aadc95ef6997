//! RS401: content went where the policy does not let it go.

use retryscope_policy::own::{self, Recipients, RecipientsTo, Refusal};

use crate::recipients::{Recipient, recipients};
use crate::rules::{Check, Found, POLICY_UNREAD, Rule, Subject};
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS401",
    name: "data sent outside the policy",
    what: "Requests went to a provider or region that the policy does not allow for the run's class of data (`[recipients.CLASS]` of `policy.toml`: off, same-provider, allow-list, any; regions). The policy is the one given with `--policy`, else the one that the run recorded.",
    why: "A fallback that keeps the run alive hands the whole conversation to somebody else. Once sent, it cannot be taken back.",
    example: "Customer code may go to Anthropic and Bedrock in eu-west-1; during an outage it went to OpenRouter.",
    instead: "Keep only allowed recipients in the fallback chain (`retryscope policy check` says which are not), and let the agent refuse others.",
    source: "https://openrouter.ai/docs/features/provider-routing",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let received = recipients(subject.run);
    let Some(start) = received.first() else { return Vec::new() };
    if subject.policy_is_unread() {
        return vec![Found::unknown(POLICY_UNREAD, vec![start.origin])];
    }
    let Some(policy) = subject.own.filter(|policy| !policy.recipients.is_empty()) else { return Vec::new() };
    let evidence = vec![start.origin];
    let rule = match subject.data_class {
        Some(class) => policy
            .recipients
            .get(class)
            .ok_or_else(|| format!("the policy has no rule for data of class {class}")),
        None => policy.recipients.get("default").ok_or_else(|| {
            "the run does not say which class of data it sends, and the policy has no rule for `default`"
                .to_owned()
        }),
    };
    let rule = match rule {
        Ok(rule) => rule,
        Err(why) => return vec![Found::unknown(why, evidence)],
    };
    let chain = policy.fallback.chain.first().and_then(|text| own::Candidate::parse(text));
    let declared = subject.run.declared.candidates.first();
    let first = chain.or_else(|| declared.and_then(candidate)).or_else(|| candidate(&start.candidate));
    let Some(first) = first else {
        return vec![Found::unknown("who received the first request is not in the log", evidence)];
    };
    let mut out: Vec<Found> = received.iter().filter_map(|recipient| judge(rule, first, recipient)).collect();
    if out.is_empty() {
        let n = words::times(received.len() as u64);
        let listed = rule.providers.iter().any(|provider| provider == first.provider);
        let always = match rule.to {
            RecipientsTo::AllowList if !listed => {
                format!("; {} as the first candidate's provider, which a list need not name", first.provider)
            }
            _ => String::new(),
        };
        out.push(Found::pass(format!("all recipients were allowed (looked at {n}{always})")));
    }
    out
}

/// Returns what is wrong with one recipient, or cannot be told of it.
fn judge(rule: &Recipients, first: own::Candidate<'_>, recipient: &Recipient) -> Option<Found> {
    let Some(target) = candidate(&recipient.candidate) else {
        return Some(Found::unknown(
            "a recipient is not named in the log, so that it cannot be held to the policy",
            vec![recipient.origin],
        ));
    };
    let is_first =
        target.provider == first.provider && (target.model == first.model || target.model.is_empty());
    let region_is_open = target.region.is_none() && !rule.regions.is_empty();
    if is_first && rule.regions.is_empty() {
        return None;
    }
    let refusal = rule.refusal(first, target).filter(|refusal| !(is_first && *refusal == Refusal::Off))?;
    let who = if target.model.is_empty() {
        target.provider.to_owned()
    } else {
        format!("{} ({})", target.provider, target.model)
    };
    let many = words::counted(recipient.requests, "request", "requests");
    Some(match refusal {
        Refusal::Region if region_is_open => Found::unknown(
            format!("{many} went to {who}; in which region is not in the log, and the policy names regions"),
            vec![recipient.origin],
        ),
        refusal => Found::violation(format!("{many} went to {who}: {refusal}"), vec![recipient.origin])
            .fix(Some("take it out of the fallback chain, or allow it in the policy".to_owned())),
    })
}

/// Returns a candidate in the words of a policy; `None` without a provider.
fn candidate(known: &retryscope_events::Candidate) -> Option<own::Candidate<'_>> {
    Some(own::Candidate {
        provider: known.provider.as_deref()?,
        model: known.model.as_deref().unwrap_or_default(),
        region: known.region.as_deref(),
    })
}
