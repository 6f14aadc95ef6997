//! The acceptance pack for tool retries: seven behaviours that the recorded runs of an agent should show.
//!
//! For the author of an agent, who runs the seven situations and asks which of them the records show, and whether they
//! went well. Not for judging a single run (the rules do).

use retryscope_events::{ToolAttempt, ToolStatus};
use retryscope_record::Origin;

use super::{Asked, Subject, Verdict, rule};
use crate::run::Run;
use crate::tools::{Call, calls};
use crate::waits::is_long_enough;

/// One behaviour, and what the runs show of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Behaviour {
    /// What a good agent does.
    pub name: &'static str,
    /// `Violation` if any run went wrong, `Pass` if one shows it and none went wrong, `Unknown` where none shows it.
    pub verdict: Verdict,
    /// Where it is shown.
    pub evidence: Vec<Origin>,
}

/// What one run shows of one behaviour.
type Shown = Option<(Verdict, Vec<Origin>)>;

/// Looks for one behaviour in one run.
type Check = fn(&Run) -> Shown;

/// Returns the seven behaviours, in the order in which an author would try them.
pub fn tool_retry(runs: &[Run]) -> Vec<Behaviour> {
    let checks: [(&'static str, Check); 7] = [
        ("a rate-limited tool is called again and succeeds", rate_limit_then_success),
        ("an idempotent tool that timed out is called again", idempotent_timeout_retried),
        ("a time-out with side effects is marked uncertain and not repeated", |run| of_rule(run, "RS502")),
        ("a denied call is not made in another way", |run| of_rule(run, "RS503")),
        ("a cancel ends every wait", |run| of_rule(run, "RS504")),
        ("the wait that a tool states is kept", stated_wait_kept),
        ("a non-idempotent tool is executed once, whatever is configured", once_whatever_is_configured),
    ];
    checks
        .into_iter()
        .map(|(name, check)| {
            let shown: Vec<(Verdict, Vec<Origin>)> = runs.iter().filter_map(check).collect();
            // The worst counts; what cannot be told shows nothing.
            let verdict = shown.iter().map(|(verdict, _)| *verdict).filter(|v| *v != Verdict::Unknown).min();
            let verdict = verdict.unwrap_or(Verdict::Unknown);
            let evidence =
                shown.into_iter().filter(|(v, _)| *v == verdict).flat_map(|(_, places)| places).collect();
            Behaviour { name, verdict, evidence }
        })
        .collect()
}

fn of_rule(run: &Run, code: &str) -> Shown {
    let subject = Subject::new(run, Vec::new(), &Asked::ALL);
    let found = rule(code)?.check.of_run(&subject);
    let verdict = found.iter().map(|found| found.verdict).min()?;
    Some((verdict, found.into_iter().filter(|f| f.verdict == verdict).flat_map(|f| f.evidence).collect()))
}

/// Returns what the calls of a run show, where `check` says something about one.
fn of_calls(run: &Run, check: impl Fn(&Call<'_>) -> Option<Verdict>) -> Shown {
    let calls = calls(&run.ledger);
    let shown: Vec<(Verdict, Vec<Origin>)> = calls
        .iter()
        .filter_map(|call| {
            Some((check(call)?, call.attempts.iter().map(|(entry, _)| entry.origin).collect()))
        })
        .collect();
    let verdict = shown.iter().map(|(verdict, _)| *verdict).min()?;
    Some((verdict, shown.into_iter().filter(|(v, _)| *v == verdict).flat_map(|(_, places)| places).collect()))
}

fn failed_with(attempt: &ToolAttempt, words: &[&str]) -> bool {
    let code = attempt.error_code.as_deref().unwrap_or_default().to_ascii_lowercase();
    matches!(attempt.status, Some(ToolStatus::Failed | ToolStatus::Uncertain))
        && words.iter().any(|word| code.contains(word))
}

fn rate_limit_then_success(run: &Run) -> Shown {
    of_calls(run, |call| {
        let limited = call.attempts.iter().position(|(_, a)| failed_with(a, &["rate", "429", "too_many"]))?;
        let better =
            call.attempts[limited + 1..].iter().any(|(_, a)| a.status == Some(ToolStatus::Succeeded));
        Some(if better { Verdict::Pass } else { Verdict::Violation })
    })
}

fn idempotent_timeout_retried(run: &Run) -> Shown {
    of_calls(run, |call| {
        let timed_out = call.attempts.iter().position(|(_, a)| {
            a.idempotency.as_deref() == Some("idempotent") && failed_with(a, &["timeout", "timed_out"])
        })?;
        // The last of several attempts may end in a time-out.
        let again = timed_out > 0 || call.attempts.len() > timed_out + 1;
        Some(if again { Verdict::Pass } else { Verdict::Violation })
    })
}

fn stated_wait_kept(run: &Run) -> Shown {
    of_calls(run, |call| {
        let asked: Vec<u64> = call.attempts.windows(2).filter_map(|pair| pair[0].1.retry_after_ms).collect();
        let intervals = call.intervals();
        if asked.is_empty() || intervals.len() + 1 != call.attempts.len() {
            return None;
        }
        let kept = call.attempts.windows(2).zip(&intervals).all(|(pair, waited)| {
            pair[0].1.retry_after_ms.is_none_or(|asked| is_long_enough(*waited, asked))
        });
        Some(if kept { Verdict::Pass } else { Verdict::Violation })
    })
}

fn once_whatever_is_configured(run: &Run) -> Shown {
    of_calls(run, |call| {
        let (_, first) = call.attempts.first()?;
        let tempted = first.max_attempts.is_some_and(|n| n > 1);
        if first.idempotency.as_deref() != Some("non_idempotent") || !(tempted || call.attempts.len() > 1) {
            return None;
        }
        Some(if call.attempts.len() == 1 { Verdict::Pass } else { Verdict::Violation })
    })
}
